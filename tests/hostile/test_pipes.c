/* SPDX-License-Identifier: MIT */
/*
 * Class: doorbells and notifications. Pipes filled, rung without end, closed at the wrong end of
 * time, made smaller, opened again at the daemon's end; sleepers that are none. One or two threads.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/hostile/target.h"

enum { BYTES = 4096, DEPTH = 8 };

static void fill(int fd)
{
	static const char noise[4096];

	check_int(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	while (write(fd, noise, sizeof noise) > 0)
		;
	while (write(fd, noise, 1) > 0)
		;
}

/* Full, again and again, while the worker sleeps and while it does not. */
ATTACK(doorbells_filled, .connections = 1, .queues = 1)
{
	struct target target;
	struct dmasync_ring_completion done;

	target_open(&target, attack, BYTES, DEPTH, DEPTH);
	struct dmasync_unit unit = target_unit(&target, 0, BYTES);

	for (int round = 0; round < 50; round++) {
		fill(target.queue.doorbell);
		raw_submit(&target.queue, &unit, 1, 0);
		raw_wait(&target.queue, &done);
		check_int(done.status, 0);
	}
	others_go_on(attack);
	target_close(&target);
}

/* One bell rung for ever, without a batch. */
ATTACK(doorbells_rung_for_nothing, .connections = 1, .queues = 1)
{
	struct target target;
	uint64_t from = others_rounds(attack);

	target_open(&target, attack, BYTES, DEPTH, DEPTH);
	while (others_rounds(attack) < from + 40)
		raw_ring_bell(&target.queue);
	target_close(&target);
}

/* Blocking ends are their owner's business: each side has a description of its own. */
ATTACK(flags_toggled, .connections = 1, .queues = 1)
{
	struct target target;
	struct dmasync_ring_completion done;

	target_open(&target, attack, BYTES, DEPTH, DEPTH);
	struct dmasync_unit unit = target_unit(&target, 0, BYTES);

	for (int round = 0; round < 100; round++) {
		int flags = round % 2 ? O_NONBLOCK : 0;

		check_int(fcntl(target.queue.doorbell, F_SETFL, flags), 0);
		check_int(fcntl(target.queue.notification, F_SETFL, flags), 0);
		(void)fcntl(target.queue.doorbell, F_SETPIPE_SZ, round % 3 ? 4096 : 65536);
		(void)fcntl(target.queue.notification, F_SETPIPE_SZ, round % 3 ? 4096 : 65536);
		raw_submit(&target.queue, &unit, 1, 0);
		raw_wait(&target.queue, &done);
		check_int(done.status, 0);
	}
	others_go_on(attack);
	target_close(&target);
}

/* Wanted and never read: the pipe fills up, and the worker does not wait for it. */
ATTACK(notifications_unread, .connections = 1, .queues = 1)
{
	struct target target;
	struct dmasync_ring_completion done;

	target_open(&target, attack, BYTES, DEPTH, DEPTH);
	struct dmasync_unit unit = target_unit(&target, 0, LINE);

	(void)fcntl(target.queue.notification, F_SETPIPE_SZ, 4096);
	for (uint64_t round = 0; round < rounds(6000); round += DEPTH) {
		for (uint32_t i = 0; i < DEPTH; i++) {
			__atomic_store_n(&target.queue.ring.header->client_sleeping, 1,
					 __ATOMIC_SEQ_CST);
			raw_submit(&target.queue, &unit, 1, i);
		}
		for (uint32_t i = 0; i < DEPTH; i++) {
			__atomic_store_n(&target.queue.ring.header->client_sleeping, 1,
					 __ATOMIC_SEQ_CST);
			raw_wait(&target.queue, &done);
			check_int(done.user_data, i);
		}
	}
	others_go_on(attack);
	target_close(&target);
}

/* Each of the four ends and mappings gone while the connection stays, before and during batches. */
ATTACK(ends_closed_early, .connections = 1, .queues = 1)
{
	for (int round = 0; round < 24; round++) {
		struct target target;
		int null = open("/dev/null", O_RDWR | O_CLOEXEC);

		check(null >= 0);
		target_open(&target, attack, BYTES, DEPTH, DEPTH);
		struct dmasync_unit unit = target_unit(&target, 0, BYTES);

		if (round & 4)
			dmasync_ring_announce_sleep(&target.queue.ring.header->client_sleeping);
		if (round & 1) /* a doorbell without a bell */
			check(dup2(null, target.queue.doorbell) >= 0);
		if (round & 2) /* the next notification would be a SIGPIPE */
			check(dup2(null, target.queue.notification) >= 0);
		for (uint32_t i = 0; i < DEPTH; i++)
			raw_submit(&target.queue, &unit, 1, i);
		if (!(round & 1))
			raw_ring_bell(&target.queue);
		if (round % 8 == 7)
			others_go_on(attack);
		target_close(&target);
		close(null);
	}
	others_go_on(attack);
}

/*
 * The other end of one's own pipe, opened by /proc: bytes stolen from the doorbell, a notification
 * pipe that never hangs up. Who can do that harms himself.
 */
static int other_end(int fd, int flags)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return open(path, flags | O_NONBLOCK | O_CLOEXEC);
}

static void with_other_ends(struct attack *attack)
{
	char bytes[64];
	int opened = 0;

	for (int round = 0; round < 20; round++) {
		struct target target;
		struct dmasync_ring_completion done;

		target_open(&target, attack, BYTES, DEPTH, DEPTH);
		struct dmasync_unit unit = target_unit(&target, 0, BYTES);
		int bell = other_end(target.queue.doorbell, O_RDONLY);
		int notification = other_end(target.queue.notification, O_WRONLY);

		opened += bell >= 0 && notification >= 0;
		if (notification >= 0)
			fill(notification);
		raw_submit(&target.queue, &unit, 1, 0);
		raw_ring_bell(&target.queue);
		if (bell >= 0)
			(void)!read(bell, bytes, sizeof bytes);
		raw_wait(&target.queue, &done);
		check_int(done.status, 0);
		raw_queue_remove(&target.queue, &target.raw);
		raw_memory_free(&target.memory);
		raw_close(&target.raw);
		if (bell >= 0)
			close(bell);
		if (notification >= 0)
			close(notification);
	}
	printf("%d of 20 times both other ends could be opened\n", opened);
	others_go_on(attack);
}

ATTACK(other_ends_of_a_user, .connections = 1, .queues = 1)
{
	with_other_ends(attack);
}

ATTACK(other_ends_of_root, .connections = 1, .queues = 1, .as_root = true)
{
	with_other_ends(attack);
}

/* ---- the sleeper's word, changed all the time ---- */

struct flicker {
	uint32_t *word;
	bool stop;
};

static void *flicker(void *argument)
{
	struct flicker *flicker = argument;
	uint32_t value = 0;

	while (!__atomic_load_n(&flicker->stop, __ATOMIC_RELAXED))
		__atomic_store_n(flicker->word, value += 0x10001, __ATOMIC_SEQ_CST);
	return NULL;
}

ATTACK(a_sleeper_that_flickers, .connections = 1, .queues = 1)
{
	struct target target;
	struct dmasync_ring_completion done;
	pthread_t thread;

	target_open(&target, attack, BYTES, DEPTH, DEPTH);
	struct flicker words = {.word = &target.queue.ring.header->client_sleeping};
	struct dmasync_unit unit = target_unit(&target, 0, LINE);

	check_int(pthread_create(&thread, NULL, flicker, &words), 0);
	for (uint64_t i = 0; i < rounds(300); i++) {
		raw_submit(&target.queue, &unit, 1, i);
		raw_wait(&target.queue, &done);
		check_int(done.status, 0);
	}
	__atomic_store_n(&words.stop, true, __ATOMIC_RELAXED);
	check_int(pthread_join(thread, NULL), 0);
	others_go_on(attack);
	target_close(&target);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(doorbells_filled),	  HARNESS_CASE(doorbells_rung_for_nothing),
	HARNESS_CASE(flags_toggled),	  HARNESS_CASE(notifications_unread),
	HARNESS_CASE(ends_closed_early),  HARNESS_CASE(other_ends_of_a_user),
	HARNESS_CASE(other_ends_of_root), HARNESS_CASE(a_sleeper_that_flickers),
};

HARNESS_MAIN(cases)
