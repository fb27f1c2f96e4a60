/* SPDX-License-Identifier: MIT */
/*
 * Class: memory that is not what it seems. Files that could shrink, files without pages, pages
 * taken away while a batch reads them. One or two threads.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/hostile/target.h"

enum { SIZE = 8 << 20, SPARSE = 64 << 20 };

static int add(struct raw *raw, int fd, uint64_t size)
{
	union reply reply;

	return requests_add(raw->socket, fd, 0, DMASYNC_BACKEND_AUTO, size, &reply);
}

static int reopen(int fd, int flags)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int again = open(path, flags | O_CLOEXEC);

	check(again >= 0);
	return again;
}

ATTACK(files_that_could_shrink, .connections = 1)
{
	static const unsigned int seals[] = {0, F_SEAL_GROW, F_SEAL_WRITE, F_SEAL_SEAL,
					     F_SEAL_GROW | F_SEAL_WRITE};
	char path[] = "/dev/shm/dmasync-hostile.XXXXXX";
	struct raw raw;

	raw_open(&raw, attack->socket);
	for (size_t i = 0; i < sizeof seals / sizeof seals[0]; i++) {
		int fd = harness_memfd(SIZE, seals[i]);

		check_int(add(&raw, fd, 0), -EINVAL);
		/* Sealed after the refusal, and as before. */
		if (!(seals[i] & F_SEAL_SEAL)) {
			check_int(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
			check_int(add(&raw, fd, 0), 0);
			check_int(ftruncate(fd, 0), -1);
		}
		close(fd);
	}
	int file = mkostemp(path, O_CLOEXEC); /* has seals like a memfd, and none is set */

	if (file >= 0) {
		unlink(path);
		check_int(ftruncate(file, SIZE), 0);
		check_int(add(&raw, file, 0), -EINVAL);
		close(file);
	}
	others_go_on(attack);
	raw_close(&raw);
}

/* Truncated to nothing, and to less than was said, before it was sealed. */
ATTACK(files_smaller_than_said, .connections = 1)
{
	static const uint64_t sizes[] = {
		4097,	   SIZE, UINT32_MAX, UINT64_C(1) << 40, INT64_MAX, UINT64_MAX - 4095,
		UINT64_MAX};
	struct raw raw;
	int fd = harness_memfd(SIZE, 0);

	raw_open(&raw, attack->socket);
	check_int(ftruncate(fd, 0), 0);
	check_int(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	check_int(add(&raw, fd, 0), -EINVAL);
	check_int(ftruncate(fd, 4096), 0); /* it may grow */
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
		check(add(&raw, fd, sizes[i]) < 0);
	check_int(add(&raw, fd, 4096), 0);

	int write_only = reopen(fd, O_WRONLY);

	check_int(add(&raw, write_only, 0), -EACCES);
	close(write_only);
	close(fd);
	others_go_on(attack);
	raw_close(&raw);
}

/* ---- a thread that truncates and seals while the file is being registered ---- */

struct shaker {
	int fd;
	bool stop;
};

static void *shake(void *argument)
{
	struct shaker *shaker = argument;

	while (!__atomic_load_n(&shaker->stop, __ATOMIC_RELAXED)) {
		(void)!ftruncate(shaker->fd, 0);
		(void)!ftruncate(shaker->fd, SIZE);
	}
	return NULL;
}

ATTACK(files_that_shrink_meanwhile, .connections = 1)
{
	for (uint64_t i = 0; i < rounds(20); i++) {
		struct shaker shaker = {.fd = harness_memfd(SIZE, 0)};
		struct raw raw;
		pthread_t thread;

		raw_open(&raw, attack->socket);
		check_int(pthread_create(&thread, NULL, shake, &shaker), 0);
		for (int k = 0; k < 10; k++)
			check_int(add(&raw, shaker.fd, 0), -EINVAL);
		fcntl(shaker.fd, F_ADD_SEALS, F_SEAL_SHRINK);
		int r = add(&raw, shaker.fd, 0); /* of whatever size it has now, 0 included */

		check(r == 0 || r == -EINVAL);
		__atomic_store_n(&shaker.stop, true, __ATOMIC_RELAXED);
		check_int(pthread_join(thread, NULL), 0);
		close(shaker.fd);
		raw_close(&raw);
	}
	others_go_on(attack);
}

/* ---- pages ---- */

/* A file that has no page yet costs what is registered, within the limits. */
ATTACK(sparse_files, .connections = 1, .limits_keys = "max_buffer_bytes = 16M\n",
       .peak_bytes = 16 << 20)
{
	struct raw raw;
	int fd = harness_memfd(SPARSE, F_SEAL_SHRINK);

	raw_open(&raw, attack->socket);
	check_int(add(&raw, fd, 0), -ENOSPC);
	for (int i = 0; i < 2; i++)
		check_int(add(&raw, fd, SIZE), 0);
	check_int(add(&raw, fd, 4096), -ENOSPC);
	others_go_on(attack);
	close(fd);
	raw_close(&raw);
}

static void *punch(void *argument)
{
	struct shaker *shaker = argument;

	while (!__atomic_load_n(&shaker->stop, __ATOMIC_RELAXED))
		check_int(
			fallocate(shaker->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, SIZE),
			0);
	return NULL;
}

/* Each line may fault, and the page that comes is charged to nobody but the file. */
ATTACK(holes_punched_into_a_batch, .connections = 1, .queues = 1, .peak_bytes = SIZE)
{
	struct raw raw;
	struct raw_queue queue;
	struct dmasync_ring_completion done;
	union reply reply;
	struct shaker shaker = {.fd = harness_memfd(SIZE, F_SEAL_SHRINK)};
	pthread_t thread;

	raw_open(&raw, attack->socket);
	raw_queue_open(&queue, &raw, 4, 4);
	check_int(requests_add(raw.socket, shaker.fd, 0, DMASYNC_BACKEND_AUTO, 0, &reply), 0);
	check_int(pthread_create(&thread, NULL, punch, &shaker), 0);
	struct dmasync_unit unit =
		raw_unit(reply.buffer.handle, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, SIZE);

	for (uint64_t i = 0; i < rounds(4); i++) {
		raw_submit(&queue, &unit, 1, i);
		raw_wait(&queue, &done);
		check_int(done.status, 0);
		check_int(done.lines, SIZE / LINE);
	}
	others_go_on(attack);
	__atomic_store_n(&shaker.stop, true, __ATOMIC_RELAXED);
	check_int(pthread_join(thread, NULL), 0);
	close(shaker.fd);
	raw_queue_close(&queue);
	raw_close(&raw);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(files_that_could_shrink),	   HARNESS_CASE(files_smaller_than_said),
	HARNESS_CASE(files_that_shrink_meanwhile), HARNESS_CASE(sparse_files),
	HARNESS_CASE(holes_punched_into_a_batch),
};

HARNESS_MAIN(cases)
