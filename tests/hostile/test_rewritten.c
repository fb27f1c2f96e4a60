/* SPDX-License-Identifier: MIT */
/*
 * Class: what the daemon checks is changed before it is used. A thread rewrites the units of a
 * batch, the second units of strided entries and the submission itself while the worker copies,
 * checks and issues them. Two threads.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "tests/hostile/target.h"

enum {
	SIZE = 1 << 20,
	HALF = SIZE / 2,
	DEPTH = 4,
	UNITS = 64,
	UNTOUCHED = 0x11,
	PAUSE = 500,
};

/*
 * Right: within the first half of the buffer. Wrong in every other way, also when the words of both
 * are mixed: the second half is never right.
 */
struct rewriter {
	struct target *target;
	bool stop;
	bool submissions;
};

static void store_words(void *at, const void *from, size_t size)
{
	for (size_t i = 0; i < size / 4; i++) {
		uint32_t word;

		memcpy(&word, (const char *)from + 4 * i, 4);
		__atomic_store_n((uint32_t *)at + i, word, __ATOMIC_RELAXED);
	}
}

static void store_unit(struct dmasync_unit *at, const struct dmasync_unit *unit)
{
	store_words(at, unit, sizeof *unit);
}

/* As dmasync_ring_submit(), but the other thread writes there as well. */
static void submit(struct raw_queue *queue, struct dmasync_submission *submission)
{
	uint32_t position = queue->submitted++;
	struct dmasync_submission *slot = &queue->ring.submissions[position & (DEPTH - 1)];

	store_words(&slot->flags, &submission->flags, sizeof *slot - sizeof slot->seq);
	__atomic_store_n(&slot->seq, position, __ATOMIC_RELEASE);
}

static struct dmasync_unit good(const struct target *target, uint32_t i)
{
	return target_unit(target, i * (HALF / UNITS), LINE * 4);
}

static struct dmasync_unit bad(const struct target *target, uint32_t kind)
{
	static const struct {
		uint64_t offset;
		uint32_t length;
	} ranges[] = {
		{SIZE, LINE},
		{SIZE - 1, LINE},
		{0, UINT32_MAX},
		{UINT64_MAX - 63, LINE},
		{UINT64_C(1) << 40, LINE},
		{SIZE + 4096, LINE},
		{UINT64_C(1) << 32, LINE},
		{UINT32_MAX, LINE},
	};
	struct dmasync_unit unit =
		target_unit(target, ranges[kind % 8].offset, ranges[kind % 8].length);

	if (kind & 8)
		unit.word ^= 1 + (kind >> 4) % 255; /* another buffer */
	if (kind & 16)
		unit.word |= DMASYNC_UNIT_STRIDED;
	return unit;
}

static void *rewrite(void *argument)
{
	struct rewriter *rewriter = argument;
	struct target *target = rewriter->target;
	unsigned short seed[3] = {4, 5, 6};

	while (!__atomic_load_n(&rewriter->stop, __ATOMIC_RELAXED)) {
		uint32_t i = (uint32_t)nrand48(seed) % UNITS;
		struct dmasync_unit unit = bad(target, (uint32_t)nrand48(seed));

		store_unit(&target->queue.ring.units[i], &unit);
		unit = good(target, i);
		store_unit(&target->queue.ring.units[i], &unit);
		/* Right for most of the time: a batch has a chance to get through the check. */
		for (int pause = 0; pause < PAUSE; pause++)
			__atomic_signal_fence(__ATOMIC_SEQ_CST);
		if (!rewriter->submissions)
			continue;
		struct dmasync_submission *slot = &target->queue.ring.submissions[i % DEPTH];

		__atomic_store_n(&slot->unit_count, (uint32_t)jrand48(seed), __ATOMIC_RELAXED);
		__atomic_store_n(&slot->unit_position, (uint32_t)jrand48(seed), __ATOMIC_RELAXED);
		unit = bad(target, (uint32_t)nrand48(seed));
		store_unit(&slot->entry, &unit);
	}
	return NULL;
}

/*
 * Whatever was read when: no line of the second half, and none outside of the buffer, is ever
 * synced. What was checked is what is issued.
 */
static void rewrite_while_it_runs(struct attack *attack, bool submissions)
{
	struct target target;
	struct rewriter rewriter = {.target = &target, .submissions = submissions};
	struct dmasync_ring_completion done;
	pthread_t thread;
	uint64_t succeeded = 0, failed = 0;

	target_open(&target, attack, SIZE, DEPTH, UNITS);
	memset(target.memory.device, UNTOUCHED, SIZE);
	memset(target.memory.cpu, 0x22, SIZE);
	for (uint32_t i = 0; i < UNITS; i++) {
		struct dmasync_unit unit = good(&target, i);

		store_unit(&target.queue.ring.units[i], &unit);
	}
	check_int(pthread_create(&thread, NULL, rewrite, &rewriter), 0);
	for (uint64_t i = 0; i < rounds(600); i++) {
		struct dmasync_submission submission = {
			.unit_position = target.queue.unit_position,
			.unit_count = 1 + attack_random() % UNITS,
		};

		submit(&target.queue, &submission);
		raw_wait(&target.queue, &done);
		succeeded += done.status == 0;
		failed += done.status < 0;
		check(done.status == 0 || done.lines == 0);
		check(done.lines <= UNITS * 4 || submissions);
	}
	others_go_on(attack);
	__atomic_store_n(&rewriter.stop, true, __ATOMIC_RELAXED);
	check_int(pthread_join(thread, NULL), 0);
	check(submissions || succeeded > 0);
	printf("%llu batches succeeded, %llu failed\n", (unsigned long long)succeeded,
	       (unsigned long long)failed);
	for (size_t i = HALF; i < SIZE; i++)
		check_int(target.memory.device[i], UNTOUCHED);
	target_close(&target);
}

ATTACK(units_rewritten_meanwhile, .connections = 1, .queues = 1)
{
	rewrite_while_it_runs(attack, false);
}

ATTACK(submissions_rewritten_meanwhile, .connections = 1, .queues = 1)
{
	rewrite_while_it_runs(attack, true);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(units_rewritten_meanwhile),
	HARNESS_CASE(submissions_rewritten_meanwhile),
};

HARNESS_MAIN(cases)
