/* SPDX-License-Identifier: MIT */
/*
 * Class: urgency for everybody. Queues of class realtime by who may not have them, and a flood of
 * realtime work by one who may: the lower classes keep their shares. One thread.
 */
#include <errno.h>
#include <unistd.h>

#include "tests/hostile/target.h"

enum { SIZE = 4 << 20, DEPTH = 16, OTHERS = 60 };

ATTACK(by_who_may_not, .connections = 1)
{
	struct raw raw;
	union reply reply;
	int fds[DMASYNC_QUEUE_FDS];

	if (!is_another_user(attack))
		harness_skip("who runs the daemon may have such queues; only root can be another");
	raw_open(&raw, attack->socket);
	for (int i = 0; i < 20; i++)
		check_int(requests_queue_of_class(raw.socket, DMASYNC_CLASS_REALTIME, 2, 2, &reply,
						  fds),
			  -EPERM);
	others_go_on(attack);
	raw_close(&raw);
}

static void keep_full(struct raw_queue *queue, const struct dmasync_unit *unit, uint64_t *completed)
{
	struct dmasync_ring_completion done;

	while (raw_peek(queue, &done)) {
		check_int(done.status, 0);
		++*completed;
	}
	while (queue->submitted - queue->completed < queue->depth)
		raw_submit(queue, unit, 1, 0);
	if (dmasync_ring_wants_doorbell(&queue->ring, &queue->page->sleeping))
		raw_ring_bell(queue);
}

/* Bulk and normal beside it, of this client and of others. */
ATTACK(a_flood_by_who_may, .connections = 1, .queues = 2, .realtime = true, .bulk = true,
       .as_root = true, .peak_bytes = 3 * SIZE)
{
	struct target target;
	struct raw_queue bulk;
	uint64_t from = others_rounds(attack), urgent_done = 0, bulk_done = 0;

	raw_open(&target.raw, attack->socket);
	raw_memory_alloc(&target.memory, &target.raw, SIZE);
	raw_queue_open_as(&target.queue, &target.raw, DMASYNC_CLASS_REALTIME, DEPTH, DEPTH);
	raw_queue_open_as(&bulk, &target.raw, DMASYNC_CLASS_BULK, DEPTH, DEPTH);
	struct dmasync_unit large = target_unit(&target, 0, SIZE);
	struct dmasync_unit small = target_unit(&target, 0, 64 * LINE);

	while (others_rounds(attack) < from + OTHERS || bulk_done < OTHERS) {
		keep_full(&target.queue, &large, &urgent_done);
		keep_full(&bulk, &small, &bulk_done);
		harness_pause();
	}
	raw_queue_close(&bulk);
	target_close(&target);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(by_who_may_not),
	HARNESS_CASE(a_flood_by_who_may),
};

HARNESS_MAIN(cases)
