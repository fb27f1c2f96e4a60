/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: a worker and rings whose client does anything. Entries good and bad, slots out of
 * turn, bytes of the ring changed between two turns, at a line operation, and (a mode of the input)
 * by a second thread all the time. Whatever the ring says: line operations lie inside a buffer that
 * was registered, a slice keeps its budget, completions come in order, once, and never into a slot
 * that was not read; and in the end nothing is held. One thread, and the one that flips.
 */
#include <unistd.h>

#include "helpers_here.h"
#include "ring_bed.h"

/* ---- what must hold after each turn ---- */

static void look_at_result(struct end *end)
{
	struct dmasync_ring_completion completion;
	enum dmasync_ring_poll poll =
		dmasync_ring_poll_completion(&end->ring, end->reaped, &completion);
	const struct submitted *batch = &end->batch[end->reaped % 64];

	claim(poll == DMASYNC_RING_READY);
	claim(completion.seq == end->reaped && completion.user_data == batch->user_data);
	if (completion.status < 0) {
		claim(completion.lines == 0 && completion.reason != DMASYNC_REASON_NONE);
		if (completion.reason == DMASYNC_REASON_KERNEL_SYNC ||
		    completion.reason == DMASYNC_REASON_UNKNOWN_BUFFER ||
		    completion.reason == DMASYNC_REASON_CANCELLED)
			return; /* of memory that is no dma-buf; of a buffer taken away meanwhile */
		if (batch->may_fail && completion.reason == DMASYNC_REASON_TOO_MANY_LINES)
			return;
		claim(batch->must_fail && batch->broken & 1u << completion.reason);
		claim(completion.bad_entry == batch->entries);
		return;
	}
	claim(!batch->must_fail);
	claim(completion.entries == batch->entries && completion.elided == batch->elided);
}

static void look(void)
{
	for (uint32_t i = 0; i < RING_QUEUES; i++) {
		struct end *end = &ring_ends[i];
		struct queue *queue = end->queue;

		if (!queue)
			continue;
		claim(queue->fetched - queue->completed <= 1); /* one in work */
		claim(queue->completed - queue->completions_read <= queue->ring.depth);
		claim(queue->completed - end->completed <= 1 || !end->honest ||
		      queue->completed - end->completed <= queue->ring.depth);
		end->completed = queue->completed;
	}
}

static bool take_turn(void)
{
	uint64_t entries = ring_worker->work_entries;
	bool worked;

	ring_turn_lines = 0;
	worked = worker_here_turn(ring_worker);
	claim(ring_turn_lines <= ring_worker->slice);
	claim(ring_worker->work_entries - entries <= ring_worker->slice);
	ring_worker_take_events();
	look();
	return worked;
}

/* ---- the client ---- */

static bool open_end(struct end *end, uint8_t shape)
{
	struct dmasync_ring_layout layout = {0};
	uint32_t depth = 2u << (shape & 3), units = 2u << (shape >> 2 & 7);
	struct worker_command add = {.type = WORKER_QUEUE_ADD};

	memset(end, 0, sizeof *end);
	if (queue_create(depth, units, ring_worker->page_fd, &end->queue, end->fds) < 0)
		return false;
	end->queue->client = ring_client;
	end->queue->buffers = &ring_table;
	end->queue->owner = &ring_owner;
	end->queue->id = 1;
	end->queue->klass = (enum dmasync_class)((shape >> 5) % DMASYNC_CLASSES);
	end->submitted = end->reaped = end->units = end->completed = DMASYNC_RING_START;
	end->honest = true;
	claim(dmasync_ring_layout(depth, units, &layout));
	dmasync_ring_attach(&end->ring, end->queue->memory, &layout);
	add.queue = end->queue;
	add.client = ring_client;
	worker_post(ring_worker, &add);
	while (!add.context)
		take_turn();
	claim(add.error == 0);
	return true;
}

static void reap(struct end *end)
{
	struct dmasync_ring_completion completion;

	if (end->honest) {
		while (end->reaped != end->queue->completed) {
			look_at_result(end);
			dmasync_ring_consume_completion(&end->ring, ++end->reaped);
		}
		return;
	}
	while (dmasync_ring_poll_completion(&end->ring, end->reaped, &completion) ==
	       DMASYNC_RING_READY)
		dmasync_ring_consume_completion(&end->ring, ++end->reaped);
}

static void close_end(struct end *end, uint8_t which)
{
	int *fd = &end->fds[which % DMASYNC_QUEUE_FDS];

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void step(struct input *input)
{
	uint8_t what = input_u8(input);
	struct end *end = &ring_ends[what >> 7];

	if (!end->queue)
		end = &ring_ends[0];
	switch (what & 15) {
	case 0:
	case 1:
	case 2:
		ring_submit(end, input);
		break;
	case 3:
		reap(end);
		break;
	case 4:
	case 5:
		for (uint8_t i = what >> 4 & 7; i < 8; i++)
			take_turn();
		break;
	case 6:
		for (int i = 0; i < 200 && take_turn(); i++)
			;
		break;
	case 7:
		ring_rewrite(end, input);
		break;
	case 8:
		ring_worker_set_fence(what >> 4);
		break;
	case 9:
		worker_here_nap(ring_worker);
		take_turn();
		break;
	case 10:
		close_end(end, what >> 4);
		break;
	case 11: /* it may be put back: a removed buffer's memory outlives its batches */
		atomic_store(&ring_table.slot[(what >> 4) % RING_BUFFERS],
			     what & 0x80 ? &ring_buffers[(what >> 4) % RING_BUFFERS] : NULL);
		for (uint32_t i = 0; i < RING_QUEUES; i++)
			if (ring_ends[i].submitted != ring_ends[i].reaped)
				ring_ends[i].honest = false;
		break;
	case 12:
		helpers_here_run_one();
		break;
	case 13:
		if (end->fds[DMASYNC_QUEUE_DOORBELL] >= 0)
			(void)!write(end->fds[DMASYNC_QUEUE_DOORBELL], "", 1);
		break;
	case 14:
		__atomic_store_n(&end->ring.header->client_sleeping, 1, __ATOMIC_SEQ_CST);
		break;
	default:
		ring_worker_tune(input);
		for (uint32_t i = 0; i < RING_QUEUES; i++)
			if (ring_ends[i].submitted != ring_ends[i].reaped)
				ring_ends[i].honest = false;
		take_turn();
		break;
	}
}

static void close_all(bool by_client)
{
	struct worker_command stop = {.type = WORKER_CLIENT_STOP, .client = ring_client};

	for (uint32_t i = 0; i < RING_QUEUES; i++) {
		struct end *end = &ring_ends[i];

		if (!end->queue)
			continue;
		end->remove = (struct worker_command){
			.type = WORKER_QUEUE_REMOVE, .queue = end->queue, .client = ring_client};
		if (!by_client)
			worker_post(ring_worker, &end->remove);
	}
	if (by_client)
		worker_post(ring_worker, &stop);
	for (int i = 0; ring_worker->queues || ring_worker->client_count; i++) {
		claim(i < 100000); /* else it is stuck */
		if (i > 100)
			ring_worker_set_fence(0);
		helpers_here_run_one();
		if (!take_turn())
			worker_here_nap(ring_worker);
	}
	if (by_client)
		claim(stop.context && stop.error == 0);
	for (uint32_t i = 0; i < RING_QUEUES; i++) {
		struct end *end = &ring_ends[i];

		if (!end->queue)
			continue;
		claim(by_client || (end->remove.context && end->remove.error == 0));
		for (uint8_t j = 0; j < DMASYNC_QUEUE_FDS; j++)
			close_end(end, j);
		queue_free(end->queue);
		end->queue = NULL;
	}
	claim(scheduler_is_empty(&ring_worker->scheduler));
	claim(ring_worker->fences == 0 && ring_worker->cancels == 0);
	claim(ring_worker->issued.count == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {data, size};
	uint8_t mode = input_u8(&input);

	ring_worker_begin(mode & 8);
	unsigned int fds = open_fds();

	ring_worker_set_fence(mode >> 4);
	ring_worker_tune(&input);
	ring_be_late(false);
	for (uint32_t i = 0; i < RING_QUEUES; i++)
		if (i == 0 || mode & 1)
			claim(open_end(&ring_ends[i], input_u8(&input)));
	if (mode & 2) {
		ring_ends[0].honest = false;
		ring_flip(&ring_ends[0]);
	}
	while (input.left)
		step(&input);
	for (int i = 0; i < 1000 && take_turn(); i++)
		;
	for (uint32_t i = 0; i < RING_QUEUES; i++)
		if (ring_ends[i].queue)
			reap(&ring_ends[i]);
	ring_flip(NULL);
	close_all(mode & 4);
	claim(open_fds() == fds);
	return 0;
}
