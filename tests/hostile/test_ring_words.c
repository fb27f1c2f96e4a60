/* SPDX-License-Identifier: MIT */
/*
 * Class: the words of a ring are not what they should be. Sequence numbers of other laps, positions
 * ahead and behind, noise over all of it, also while the worker reads. One or two threads.
 */
#include <pthread.h>

#include "tests/hostile/target.h"

enum { SIZE = 1 << 20, DEPTH = 4, UNITS = 16 };

/* ---- a seq that no correct client writes ---- */

static const uint32_t wrong_seqs[] = {
	DEPTH,	     /* the next lap */
	2 * DEPTH,   /* one after */
	-7u * DEPTH, /* long gone */
	1,	     /* of another slot */
	0x5a5a5a5a,  /* noise */
	UINT32_C(1) << 31,
	-DMASYNC_RING_START, /* 0: as in memory never written */
};

ATTACK(wrong_seqs_end_their_queue, .connections = 1, .queues = 1,
       .logged = "a submission slot carries a seq of another lap",
       .logged_lines = sizeof wrong_seqs / sizeof wrong_seqs[0])
{
	for (size_t i = 0; i < sizeof wrong_seqs / sizeof wrong_seqs[0]; i++) {
		struct target target;

		target_open(&target, attack, SIZE, DEPTH, UNITS);
		uint32_t position = target.queue.submitted;
		uint32_t *seq = &target.queue.ring.submissions[position & (DEPTH - 1)].seq;

		__atomic_store_n(seq, position + wrong_seqs[i], __ATOMIC_RELEASE);
		raw_ring_bell(&target.queue);
		target_await_end(&target);
		others_go_on(attack);
		target_close(&target);
	}
}

/* ---- how far completions were read ---- */

static const uint32_t wrong_reads[] = {
	2 * DEPTH,	   /* ahead of what was ever written */
	-2u * DEPTH,	   /* backwards */
	UINT32_C(1) << 31, /* as far as can be */
	(UINT32_C(1) << 31) + DEPTH,
	-DMASYNC_RING_START, /* 0 */
};

ATTACK(wrong_read_positions_end_their_queue, .connections = 1, .queues = 1,
       .logged = "the position of read completions went backwards or beyond",
       .logged_lines = sizeof wrong_reads / sizeof wrong_reads[0])
{
	for (size_t i = 0; i < sizeof wrong_reads / sizeof wrong_reads[0]; i++) {
		struct dmasync_ring_completion done;
		struct target target;

		target_open(&target, attack, SIZE, DEPTH, UNITS);
		struct dmasync_unit unit = target_unit(&target, 0, LINE);

		/* It is looked at when the ring is full of completions. */
		for (uint32_t k = 0; k < 2 * DEPTH; k++) {
			raw_submit(&target.queue, &unit, 1, k);
			raw_wait(&target.queue, &done);
		}
		__atomic_store_n(&target.queue.ring.header->completions_read,
				 target.queue.completed + wrong_reads[i], __ATOMIC_RELEASE);
		for (uint32_t k = 0; k < DEPTH; k++)
			raw_submit(&target.queue, &unit, 1, k);
		raw_ring_bell(&target.queue);
		target_await_end(&target);
		others_go_on(attack);
		target_close(&target);
	}
}

/* A reader that reads nothing stalls itself alone. */
ATTACK(unread_completions_stall_their_queue, .connections = 1, .queues = 1)
{
	struct dmasync_ring_completion done;
	struct target target;

	target_open(&target, attack, SIZE, DEPTH, UNITS);
	struct dmasync_unit unit = target_unit(&target, 0, LINE);

	for (uint32_t k = 0; k < DEPTH; k++)
		raw_submit(&target.queue, &unit, 1, k);
	raw_ring_bell(&target.queue);
	others_go_on(attack);
	/* Slots of batches that are done may be written again; their results have no room. */
	for (uint32_t k = 0; k < DEPTH; k++)
		raw_submit(&target.queue, &unit, 1, DEPTH + k);
	raw_ring_bell(&target.queue);
	others_go_on(attack);
	for (uint32_t k = 0; k < 2 * DEPTH; k++) {
		raw_wait(&target.queue, &done);
		check_int(done.user_data, k);
	}
	target_close(&target);
}

/* ---- noise ---- */

static void scribble(struct raw_queue *queue)
{
	for (size_t i = 0; i < queue->size / 4; i++)
		if (attack_random() % 3)
			__atomic_store_n((uint32_t *)queue->memory + i, attack_random(),
					 __ATOMIC_RELAXED);
}

ATTACK(a_ring_of_noise, .connections = 1, .queues = 1)
{
	for (uint64_t round = rounds(30); round > 0; round--) {
		struct target target;

		target_open(&target, attack, SIZE, DEPTH, UNITS);
		scribble(&target.queue);
		/* Some of it with a seq that the worker takes. */
		for (uint32_t i = 0; i < DEPTH; i++)
			__atomic_store_n(&target.queue.ring.submissions[i].seq,
					 DMASYNC_RING_START + i, __ATOMIC_RELEASE);
		raw_ring_bell(&target.queue);
		if (round % 8 == 0)
			others_go_on(attack);
		target_close(&target);
	}
}

struct scribbler {
	struct raw_queue *queue;
	bool stop;
};

/* All words of the ring, for ever: what the worker checks is changed before it looks again. */
static void *scribble_on(void *argument)
{
	struct scribbler *scribbler = argument;
	struct raw_queue *queue = scribbler->queue;
	unsigned short seed[3] = {1, 2, 3};

	while (!__atomic_load_n(&scribbler->stop, __ATOMIC_RELAXED)) {
		size_t word = (size_t)nrand48(seed) % (queue->size / 4);

		__atomic_store_n((uint32_t *)queue->memory + word, (uint32_t)jrand48(seed),
				 __ATOMIC_RELAXED);
	}
	return NULL;
}

ATTACK(noise_while_the_worker_reads, .connections = 1, .queues = 1)
{
	for (uint64_t round = rounds(8); round > 0; round--) {
		struct target target;
		struct scribbler scribbler = {.queue = &target.queue};
		pthread_t thread;

		target_open(&target, attack, SIZE, DEPTH, UNITS);
		check_int(pthread_create(&thread, NULL, scribble_on, &scribbler), 0);
		for (uint32_t i = 0; i < 2 * DEPTH; i++) {
			uint32_t position = DMASYNC_RING_START + i;

			__atomic_store_n(&target.queue.ring.header->completions_read, position,
					 __ATOMIC_RELEASE);
			__atomic_store_n(&target.queue.ring.submissions[position & (DEPTH - 1)].seq,
					 position, __ATOMIC_RELEASE);
			raw_ring_bell(&target.queue);
			harness_pause();
		}
		others_go_on(attack);
		__atomic_store_n(&scribbler.stop, true, __ATOMIC_RELAXED);
		check_int(pthread_join(thread, NULL), 0);
		target_close(&target);
	}
}

/* The sizes and offsets in the header are the client's to read: the daemon knows its own. */
ATTACK(a_header_of_other_sizes, .connections = 1, .queues = 1)
{
	struct dmasync_ring_completion done;
	struct target target;

	target_open(&target, attack, SIZE, DEPTH, UNITS);
	struct dmasync_ring_header *header = target.queue.ring.header;
	struct dmasync_unit unit = target_unit(&target, 0, SIZE);

	header->magic = 0;
	header->layout = UINT32_MAX;
	header->depth = header->units = header->size = UINT32_MAX;
	header->submissions_offset = header->units_offset = header->completions_offset =
		UINT32_MAX - 7;
	header->start = 5;
	for (uint32_t i = 0; i < 3 * DEPTH; i++) {
		raw_submit(&target.queue, &unit, 1, i);
		raw_wait(&target.queue, &done);
		check_int(done.status, 0);
		check_int(done.lines, SIZE / LINE);
	}
	others_go_on(attack);
	target_close(&target);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(wrong_seqs_end_their_queue),
	HARNESS_CASE(wrong_read_positions_end_their_queue),
	HARNESS_CASE(unread_completions_stall_their_queue),
	HARNESS_CASE(a_ring_of_noise),
	HARNESS_CASE(noise_while_the_worker_reads),
	HARNESS_CASE(a_header_of_other_sizes),
};

HARNESS_MAIN(cases)
