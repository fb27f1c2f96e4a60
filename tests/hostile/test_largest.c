/* SPDX-License-Identifier: MIT */
/*
 * Class: work without end that is perfectly legal. The largest batches there may be in tight loops,
 * from many queues, many connections, in class bulk, and shared by several workers. One thread.
 */
#include <stdlib.h>

#include "tests/hostile/target.h"

enum { SIZE = 16 << 20, DEPTH = 16, QUEUES = 8, CONNECTIONS = 4, ENTRIES = 65536, CROWD = 16 };

static void keep_full(struct raw_queue *queue, const struct dmasync_unit *units, uint32_t count)
{
	struct dmasync_ring_completion done;
	/* Their units must not be written while one is in work: one at a time where it fills them.
	 */
	uint32_t most = queue->units / count < queue->depth ? queue->units / count : queue->depth;

	while (raw_peek(queue, &done))
		check_int(done.status, 0);
	while (queue->submitted - queue->completed < most)
		raw_submit(queue, units, count, 0);
	if (dmasync_ring_wants_doorbell(&queue->ring, &queue->page->sleeping))
		raw_ring_bell(queue);
}

/* Until others have got on that often: the queues never run empty meanwhile. */
static void keep_all_full(struct attack *attack, struct raw_queue *queues, uint32_t count,
			  const struct dmasync_unit *units, uint32_t unit_count, uint64_t others)
{
	uint64_t from = others_rounds(attack);

	while (others_rounds(attack) < from + others) {
		for (uint32_t i = 0; i < count; i++)
			keep_full(&queues[i], units, unit_count);
		harness_pause();
	}
}

ATTACK(the_largest_batch_again_and_again, .connections = 1, .queues = 1, .peak_bytes = 3 * SIZE)
{
	struct target target;

	target_open(&target, attack, SIZE, DEPTH, DEPTH);
	struct dmasync_unit unit = target_unit(&target, 0, SIZE);

	keep_all_full(attack, &target.queue, 1, &unit, 1, 100);
	target_close(&target);
}

/* One line each: a fetch, a check and a run for each of them. */
ATTACK(the_most_entries_again_and_again, .connections = 1, .queues = 1,
       .peak_bytes = 3 * SIZE + (8 << 20))
{
	struct target target;
	struct dmasync_unit *units = calloc(ENTRIES, sizeof *units);

	check(units);
	target_open(&target, attack, SIZE, 2, ENTRIES);
	for (uint32_t i = 0; i < ENTRIES; i++)
		units[i] = target_unit(&target, (uint64_t)i % (SIZE / 128) * 128, 1);
	keep_all_full(attack, &target.queue, 1, units, ENTRIES, 60);
	free(units);
	target_close(&target);
}

static void from_many_queues(struct attack *attack, enum dmasync_class klass, uint64_t others)
{
	static struct raw raws[CONNECTIONS];
	static struct raw_memory memories[CONNECTIONS];
	static struct raw_queue queues[CONNECTIONS * QUEUES];
	struct dmasync_unit unit;

	for (uint32_t i = 0; i < CONNECTIONS; i++) {
		raw_open(&raws[i], attack->socket);
		raw_memory_alloc(&memories[i], &raws[i], SIZE / CONNECTIONS);
		for (uint32_t k = 0; k < QUEUES; k++)
			raw_queue_open_as(&queues[i * QUEUES + k], &raws[i], klass, DEPTH, DEPTH);
	}
	/* The first connection's handle: they are all alike. */
	unit = raw_unit(memories[0].handle, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0,
			SIZE / CONNECTIONS);
	for (uint32_t i = 1; i < CONNECTIONS; i++)
		check_int(memories[i].handle, memories[0].handle);
	keep_all_full(attack, queues, CONNECTIONS * QUEUES, &unit, 1, others);
	for (uint32_t i = 0; i < CONNECTIONS; i++) {
		for (uint32_t k = 0; k < QUEUES; k++)
			raw_queue_close(&queues[i * QUEUES + k]);
		raw_memory_free(&memories[i]);
		raw_close(&raws[i]);
	}
}

ATTACK(from_many_normal_queues, .connections = CONNECTIONS, .queues = CONNECTIONS * QUEUES,
       .peak_bytes = 3 * SIZE)
{
	from_many_queues(attack, DMASYNC_CLASS_NORMAL, 60);
}

ATTACK(from_many_bulk_queues, .connections = CONNECTIONS, .queues = CONNECTIONS * QUEUES,
       .bulk = true, .peak_bytes = 3 * SIZE)
{
	from_many_queues(attack, DMASYNC_CLASS_BULK, 100);
}

/* Hundreds of queues with a line each: nobody's is forgotten among them. */
ATTACK(from_hundreds_of_queues, .connections = CROWD, .queues = CROWD * CROWD)
{
	static struct target targets[CROWD];
	static struct raw_queue queues[CROWD][CROWD];
	uint64_t from = others_rounds(attack);

	for (uint32_t i = 0; i < CROWD; i++) {
		raw_open(&targets[i].raw, attack->socket);
		raw_memory_alloc(&targets[i].memory, &targets[i].raw, 4096);
		for (uint32_t k = 0; k < CROWD; k++)
			raw_queue_open(&queues[i][k], &targets[i].raw, 2, 2);
	}
	while (others_rounds(attack) < from + 40) {
		for (uint32_t i = 0; i < CROWD; i++) {
			struct dmasync_unit unit = target_unit(&targets[i], 0, LINE);

			for (uint32_t k = 0; k < CROWD; k++)
				keep_full(&queues[i][k], &unit, 1);
		}
	}
	for (uint32_t i = 0; i < CROWD; i++) {
		for (uint32_t k = 0; k < CROWD; k++)
			raw_queue_close(&queues[i][k]);
		raw_memory_free(&targets[i].memory);
		raw_close(&targets[i].raw);
	}
}

static const struct harness_case cases[] = {
	HARNESS_CASE(from_hundreds_of_queues),
	HARNESS_CASE(the_largest_batch_again_and_again),
	HARNESS_CASE(the_most_entries_again_and_again),
	HARNESS_CASE(from_many_normal_queues),
	HARNESS_CASE(from_many_bulk_queues),
};

HARNESS_MAIN(cases)
