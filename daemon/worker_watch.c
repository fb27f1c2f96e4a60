/* SPDX-License-Identifier: MIT */
/*
 * Which queues are looked at for something new, and when. Worker thread only.
 *
 * A look reads one word that the queue's client writes: the seq of the next slot, or, where there
 * is no room for another result, how far the client has read. All words stand in one array, so that
 * a look at an idle queue touches that word and its place in the array, nothing of the queue.
 *
 * Between two slices every realtime queue is looked at, and every one of the WATCH_RECENT queues
 * served last; of all others LOOKS and one for each CREDIT_PER_LOOK that the slice before has cost,
 * in turns. So:
 * - a realtime batch is found at the end of the slice during which it was submitted;
 * - any other one when `count` * CREDIT_PER_LOOK credit was spent since the last look, or when the
 *   slice ends in which that happened: of 128 queues, each after every full slice of 4096;
 * - looking at idle queues costs the busy ones less than a tenth: each word stands in a page of its
 *   own, which makes a look as dear as two or three line operations, and there is one for
 *   CREDIT_PER_LOOK of them, besides LOOKS for each batch however small.
 * Without work WATCH_IDLE_LOOKS are made each time, so that the recent ones come often.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/worker_internal.h"

#define LOOKS 4u
#define CREDIT_PER_LOOK 32u
#define WATCH_IDLE_LOOKS 8u

/* What a queue's place looks at while there is nothing to be fetched from it. */
static const uint32_t nothing;

static struct watches *watches_of(struct worker *worker, const struct queue *queue)
{
	return queue->klass == DMASYNC_CLASS_REALTIME ? &worker->urgent : &worker->others;
}

int worker_watch_add(struct worker *worker, struct queue *queue)
{
	struct watches *watches = watches_of(worker, queue);

	if (watches->count == watches->size) {
		uint32_t size = watches->size ? watches->size * 2 : 16;
		struct watch *watch = reallocarray(watches->watch, size, sizeof *watch);

		if (!watch)
			return -ENOMEM;
		watches->watch = watch;
		watches->size = size;
	}
	queue->watch = watches->count++;
	watches->watch[queue->watch] = (struct watch){.queue = queue};
	worker_watch_again(worker, queue);
	return 0;
}

void worker_watch_remove(struct worker *worker, struct queue *queue)
{
	struct watches *watches = watches_of(worker, queue);
	struct watch *last = &watches->watch[--watches->count];

	watches->watch[queue->watch] = *last;
	last->queue->watch = queue->watch;
	for (uint32_t i = 0; i < WATCH_RECENT; i++)
		if (worker->recent[i] == queue)
			worker->recent[i] = NULL;
}

void worker_watch_free(struct worker *worker)
{
	free(worker->urgent.watch);
	free(worker->others.watch);
}

static struct watch *watch_of(struct worker *worker, const struct queue *queue)
{
	return &watches_of(worker, queue)->watch[queue->watch];
}

/* What the queue waits for is known anew: a batch was fetched or completed, or it has no room. */
static void aim(struct worker *worker, struct queue *queue)
{
	struct watch *watch = watch_of(worker, queue);

	watch->word = &nothing;
	watch->seen = nothing;
	if (queue->batch.phase != BATCH_FREE || queue->broken || queue->stopping ||
	    queue->batch.leaving || (queue->draining && queue->fetched == queue->drain_end))
		return;
	if (queue->completed - queue->completions_read < queue->ring.depth)
		watch->word =
			dmasync_ring_submission_word(&queue->ring, queue->fetched, &watch->seen);
	else
		watch->word =
			dmasync_ring_room_word(&queue->ring, queue->completions_read, &watch->seen);
}

static void mark(const struct worker *worker, struct watch *watch)
{
	watch->lines = worker->work_lines;
	watch->entries = (uint32_t)worker->work_entries;
}

void worker_watch_soon(struct worker *worker, struct queue *queue)
{
	if (queue->klass == DMASYNC_CLASS_REALTIME || queue->recent)
		return;
	struct queue **place = &worker->recent[worker->next_recent++ % WATCH_RECENT];

	if (*place)
		(*place)->recent = false;
	*place = queue;
	queue->recent = true;
}

void worker_watch_again(struct worker *worker, struct queue *queue)
{
	mark(worker, watch_of(worker, queue));
	aim(worker, queue);
	worker_watch_soon(worker, queue);
}

static bool look(struct worker *worker, struct watch *watch)
{
	if (dmasync_ring_look(watch->word) == watch->seen) {
		mark(worker, watch);
		return false;
	}
	struct queue *queue = watch->queue;
	bool fetched = worker_poll_queue(worker, queue);

	if (fetched) {
		queue->batch.waited_lines = watch->lines;
		queue->batch.waited_entries = watch->entries;
	} else {
		mark(worker, watch);
	}
	aim(worker, queue);
	return fetched;
}

static bool look_at_some(struct worker *worker, struct watches *watches, uint64_t most)
{
	uint64_t n = most < watches->count ? most : watches->count;
	bool fetched = false;

	for (; n > 0; n--) {
		if (watches->next >= watches->count)
			watches->next = 0;
		fetched |= look(worker, &watches->watch[watches->next++]);
	}
	return fetched;
}

bool worker_watch_look(struct worker *worker)
{
	bool fetched = look_at_some(worker, &worker->urgent, UINT32_MAX);

	for (uint32_t i = 0; i < WATCH_RECENT; i++)
		if (worker->recent[i])
			fetched |= look(worker, watch_of(worker, worker->recent[i]));
	fetched |= look_at_some(worker, &worker->others,
				worker->spent ? LOOKS + worker->spent / CREDIT_PER_LOOK
					      : WATCH_IDLE_LOOKS);
	worker->spent = 0;
	return fetched;
}
