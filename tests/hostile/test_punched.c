/* SPDX-License-Identifier: MIT */
/*
 * Class: time spent in page faults. Pages of a buffer are taken away while it is synced, again and
 * again: each line then waits for the kernel, as long as the client likes. Its queue goes to the
 * slow worker, and what it does there is no one else's matter. One thread and who punches.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/hostile/target.h"

enum { SIZE = 48 << 20, PAGE = 4096, DEPTH = 4, AFTERWARDS = 4 };

struct puncher {
	struct raw raw;
	struct raw_queue queue;
	pthread_t thread;
	int fd;
	char *memory;
	uint32_t handle;
	bool stop;
};

/* All there and gone at once: a fault meanwhile waits until the kernel is through with it. */
static void *punch(void *argument)
{
	struct puncher *puncher = argument;

	while (!__atomic_load_n(&puncher->stop, __ATOMIC_RELAXED)) {
		for (size_t i = 0; i < SIZE; i += PAGE)
			puncher->memory[i] = 1;
		check_int(
			fallocate(puncher->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE),
			0);
	}
	return NULL;
}

static void begin(struct puncher *puncher, const struct attack *attack)
{
	*puncher = (struct puncher){.fd = harness_memfd(SIZE, F_SEAL_SHRINK)};
	raw_open(&puncher->raw, attack->socket);
	raw_queue_open(&puncher->queue, &puncher->raw, DEPTH, 16);
	puncher->handle = raw_add_buffer(&puncher->raw, puncher->fd, DMASYNC_BACKEND_DIRECT, 0);
	puncher->memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, puncher->fd, 0);
	check(puncher->memory != MAP_FAILED);
	check_int(pthread_create(&puncher->thread, NULL, punch, puncher), 0);
}

/* One line of each page: nothing but faults. */
static void submit(struct puncher *puncher, uint64_t user_data)
{
	struct dmasync_unit units[2] = {
		raw_unit(puncher->handle, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, LINE)};
	struct dmasync_unit_rows rows = {.rows = SIZE / PAGE, .stride = PAGE};

	units[0].word |= DMASYNC_UNIT_STRIDED;
	memcpy(&units[1], &rows, sizeof rows);
	raw_submit(&puncher->queue, units, 2, user_data);
}

static void await(struct puncher *puncher, uint64_t user_data)
{
	struct dmasync_ring_completion done;

	raw_wait(&puncher->queue, &done);
	check_int(done.status, 0);
	check_int(done.user_data, user_data);
	check_int(done.lines, SIZE / PAGE);
}

static void end(struct puncher *puncher)
{
	__atomic_store_n(&puncher->stop, true, __ATOMIC_RELAXED);
	check_int(pthread_join(puncher->thread, NULL), 0);
	munmap(puncher->memory, SIZE);
	close(puncher->fd);
	raw_close(&puncher->raw);
}

static uint64_t moved(struct puncher *puncher)
{
	struct dmasync_stats_reply stats;

	raw_stats(&puncher->raw, &stats);
	return stats.moved_queues;
}

ATTACK(its_queue_moves, .connections = 1, .queues = 1, .peak_bytes = SIZE,
       .logged = "the slow worker goes on with it", .logged_lines = 1)
{
	struct puncher puncher;
	int64_t patience = harness_now_ms() + harness_scaled_ms(PATIENCE_MS);
	uint64_t n = 0;

	begin(&puncher, attack);
	while (moved(&puncher) == 0) {
		check(harness_now_ms() < patience);
		submit(&puncher, n);
		await(&puncher, n++);
	}
	/* There it is served as before, woken by a doorbell each time, and others go on. */
	for (int i = 0; i < AFTERWARDS; i++) {
		submit(&puncher, n);
		others_go_on(attack);
		await(&puncher, n++);
	}
	check_int(moved(&puncher), 1);
	raw_queue_close(&puncher.queue);
	end(&puncher);
}

/* It goes before, while and after it moves. */
static void punch_until_killed(struct attack *attack, void *argument)
{
	static struct puncher puncher; /* its thread goes on when this returns */

	(void)argument;
	begin(&puncher, attack);
	for (uint64_t n = 0; n < DEPTH; n++)
		submit(&puncher, n);
}

ATTACK(killed_in_the_move, .connections = 1, .queues = 1, .peak_bytes = SIZE)
{
	for (uint64_t round = 0; round < rounds(12); round++) {
		pid_t victim = victim_start(punch_until_killed, attack, NULL);

		usleep(attack_random() % 200000);
		victim_kill(victim);
		others_go_on(attack);
	}
}

/* What is asked for meanwhile is answered, wherever the queue is: its batch ends before that. */
ATTACK(removed_in_the_move, .connections = 1, .queues = 1, .peak_bytes = SIZE)
{
	for (uint64_t round = 0; round < rounds(12); round++) {
		struct puncher puncher;
		struct dmasync_done_reply done;

		begin(&puncher, attack);
		for (uint64_t n = 0; n < DEPTH; n++)
			submit(&puncher, n);
		raw_ring_bell(&puncher.queue);
		usleep(attack_random() % 100000);

		struct dmasync_buffer_remove remove = {.handle = puncher.handle};

		raw_call(&puncher.raw, &remove, DMASYNC_OP_BUFFER_REMOVE, sizeof remove, &done,
			 sizeof done);
		raw_queue_remove(&puncher.queue, &puncher.raw);
		end(&puncher);
	}
	others_go_on(attack);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(its_queue_moves),
	HARNESS_CASE(killed_in_the_move),
	HARNESS_CASE(removed_in_the_move),
};

HARNESS_MAIN(cases)
