/* SPDX-License-Identifier: MIT */
/*
 * Class: the memory that the daemon gives away. Rings and the worker's page shrunk, grown, sealed
 * otherwise, punched, mapped for writing. What a seal forbids fails; what it cannot forbid harms
 * its owner alone. One or two threads.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/hostile/target.h"

enum { BYTES = 64 << 10, DEPTH = 4, UNITS = 1024 };

static void queue_fds(struct raw *raw, int fds[DMASYNC_QUEUE_FDS], size_t *ret_size)
{
	struct dmasync_ring_layout layout;
	union reply reply;

	check_int(requests_queue(raw->socket, DEPTH, UNITS, &reply, fds), 0);
	check(dmasync_ring_layout(DEPTH, UNITS, &layout));
	*ret_size = layout.size;
}

static void close_fds(const int fds[DMASYNC_QUEUE_FDS])
{
	for (int i = 0; i < DMASYNC_QUEUE_FDS; i++)
		close(fds[i]);
}

ATTACK(sizes_and_seals_stay, .connections = 1, .queues = 1)
{
	static const int seals[] = {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE, F_SEAL_FUTURE_WRITE,
				    F_SEAL_SEAL};
	struct raw raw;
	int fds[DMASYNC_QUEUE_FDS];
	size_t size;

	raw_open(&raw, attack->socket);
	queue_fds(&raw, fds, &size);
	for (int which = DMASYNC_QUEUE_RING; which <= DMASYNC_QUEUE_WORKER_PAGE; which++) {
		check_int(ftruncate(fds[which], 0), -1);
		check_int(ftruncate(fds[which], 4095), -1);
		check_int(ftruncate(fds[which], 1 << 30), -1);
		check_int(fallocate(fds[which], 0, 0, 1 << 30), -1);
		for (size_t i = 0; i < sizeof seals / sizeof seals[0]; i++)
			check_int(fcntl(fds[which], F_ADD_SEALS, seals[i]), -1);
	}
	others_go_on(attack);
	close_fds(fds);
	raw_close(&raw);
}

/* All clients of a worker look at it: nobody but the worker may write it. */
ATTACK(the_workers_page_is_read_only, .connections = 1, .queues = 1)
{
	struct raw raw;
	int fds[DMASYNC_QUEUE_FDS], page;
	size_t size;

	raw_open(&raw, attack->socket);
	queue_fds(&raw, fds, &size);
	page = fds[DMASYNC_QUEUE_WORKER_PAGE];
	check(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0) == MAP_FAILED);
	check(mmap(NULL, 4096, PROT_WRITE, MAP_SHARED, page, 0) == MAP_FAILED);
	check_int(write(page, "x", 1), -1);
	check_int(pwrite(page, "x", 1, 0), -1);
	check_int(fallocate(page, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);

	void *memory = mmap(NULL, 4096, PROT_READ, MAP_SHARED, page, 0);

	check(memory != MAP_FAILED);
	check_int(mprotect(memory, 4096, PROT_READ | PROT_WRITE), -1);
	check(madvise(memory, 4096, MADV_REMOVE) < 0);
	munmap(memory, 4096);
	/* A private copy is nobody else's. */
	memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, page, 0);
	check(memory != MAP_FAILED);
	memset(memory, 0xff, 4096);
	munmap(memory, 4096);
	others_go_on(attack);
	close_fds(fds);
	raw_close(&raw);
}

/* ---- pages taken out of a ring ---- */

struct puncher {
	int fd;
	off_t size;
	bool stop;
};

static void *punch(void *argument)
{
	struct puncher *puncher = argument;

	while (!__atomic_load_n(&puncher->stop, __ATOMIC_RELAXED))
		check_int(fallocate(puncher->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				    puncher->size),
			  0);
	return NULL;
}

/* It reads as zeroes then, under the worker's eyes. */
ATTACK(rings_punched, .connections = 1, .queues = 1)
{
	for (uint64_t round = 0; round < rounds(10); round++) {
		struct target target;
		int fds[DMASYNC_QUEUE_FDS];
		size_t size;
		pthread_t thread;

		raw_open(&target.raw, attack->socket);
		raw_memory_alloc(&target.memory, &target.raw, BYTES);
		queue_fds(&target.raw, fds, &size);
		char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED,
				    fds[DMASYNC_QUEUE_RING], 0);
		struct dmasync_ring_layout layout;
		struct dmasync_ring ring;
		struct puncher puncher = {.fd = fds[DMASYNC_QUEUE_RING], .size = (off_t)size};

		check(memory != MAP_FAILED);
		check(dmasync_ring_layout(DEPTH, UNITS, &layout));
		dmasync_ring_attach(&ring, memory, &layout);
		check_int(pthread_create(&thread, NULL, punch, &puncher), 0);
		for (uint32_t i = 0; i < 2 * DEPTH; i++) {
			struct dmasync_submission submission = {
				.entry = target_unit(&target, 0, BYTES)};

			dmasync_ring_submit(&ring, DMASYNC_RING_START + i, &submission);
			(void)!write(fds[DMASYNC_QUEUE_DOORBELL], "", 1);
			harness_pause();
		}
		others_go_on(attack);
		__atomic_store_n(&puncher.stop, true, __ATOMIC_RELAXED);
		check_int(pthread_join(thread, NULL), 0);
		munmap(memory, size);
		close_fds(fds);
		raw_memory_free(&target.memory);
		raw_close(&target.raw);
	}
}

/* What the daemon made is sealed as a buffer must be: registered, and synced while it is in use. */
ATTACK(the_daemons_memory_as_buffers, .connections = 1, .queues = 1)
{
	struct raw raw;
	struct raw_queue queue;
	struct dmasync_ring_completion done;
	union reply reply;
	int fds[DMASYNC_QUEUE_FDS];
	size_t size;

	raw_open(&raw, attack->socket);
	queue_fds(&raw, fds, &size);
	raw_queue_open(&queue, &raw, DEPTH, UNITS);
	for (int which = DMASYNC_QUEUE_RING; which <= DMASYNC_QUEUE_WORKER_PAGE; which++) {
		for (int backend = DMASYNC_BACKEND_AUTO; backend <= DMASYNC_BACKEND_SIMULATED;
		     backend++) {
			if (requests_add(raw.socket, fds[which], 0, (enum dmasync_backend)backend,
					 0, &reply) < 0)
				continue;
			struct dmasync_unit unit =
				raw_unit(reply.buffer.handle, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE,
					 0, (uint32_t)reply.buffer.size);

			for (int i = 0; i < 3; i++) {
				raw_submit(&queue, &unit, 1, 0);
				raw_wait(&queue, &done);
				check_int(done.status, 0);
			}
		}
	}
	others_go_on(attack);
	close_fds(fds);
	raw_queue_close(&queue);
	raw_close(&raw);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(sizes_and_seals_stay),
	HARNESS_CASE(the_workers_page_is_read_only),
	HARNESS_CASE(rings_punched),
	HARNESS_CASE(the_daemons_memory_as_buffers),
};

HARNESS_MAIN(cases)
