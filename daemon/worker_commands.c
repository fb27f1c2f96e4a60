/* SPDX-License-Identifier: MIT */
/*
 * What the control thread asks of a worker, and when each request can be answered. Answers that
 * must wait are looked at again whenever something was let go of. Worker thread only.
 */
#include <errno.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/worker_internal.h"

#define PS_PER_US UINT64_C(1000000)
#define NS_PER_US UINT64_C(1000)

/*
 * When a slice is out of order: dirty lines cost several times what was measured, and the thread
 * may lose its CPU for a few milliseconds; a page fault that allocates, or waits, takes longer.
 */
#define OVERRUN_SLICES 20u
#define OVERRUN_LEAST_NS UINT64_C(5000000)
#define SLICE_MIN 64u /* as slice_lines' least; below, the turns cost more than the work */

void worker_answer(struct worker *worker, struct worker_command *command)
{
	command->worker = worker;
	/*
	 * The first one into an empty mailbox wakes the control loop, which takes all there is
	 * after it has read the eventfd; a later one is either seen by that take or finds it empty
	 * again.
	 */
	if (mailbox_post(worker->params.events, &command->node)) {
		ssize_t n = write(worker->params.events_fd, &(uint64_t){1}, sizeof(uint64_t));

		(void)n;
	}
}

static void add_pending(struct worker_command **list, struct worker_command *command)
{
	command->previous_pending = NULL;
	command->next_pending = *list;
	if (*list)
		(*list)->previous_pending = command;
	*list = command;
}

static void remove_pending(struct worker_command **list, struct worker_command *command)
{
	if (command->previous_pending)
		command->previous_pending->next_pending = command->next_pending;
	else
		*list = command->next_pending;
	if (command->next_pending)
		command->next_pending->previous_pending = command->previous_pending;
}

static void add_queue(struct worker *worker, struct worker_command *command)
{
	struct queue *queue = command->queue;

	command->error = scheduler_attach(&worker->scheduler, &queue->flow, queue->klass,
					  queue->uid, queue->client);
	if (command->error == 0) {
		command->error = worker_watch_add(worker, queue);
		if (command->error == 0) {
			command->error = worker_ring_add_queue(worker, queue);
			if (command->error < 0)
				worker_watch_remove(worker, queue);
		}
		if (command->error < 0)
			scheduler_detach(&worker->scheduler, &queue->flow);
	}
	if (command->error == 0) {
		queue->batch.flow = &queue->flow;
		queue->batch.queue = queue;
		queue->batch.buffers = queue->buffers;
		queue->batch.owner = queue->owner;
		queue->next = worker->queues;
		queue->previous = NULL;
		if (worker->queues)
			worker->queues->previous = queue;
		worker->queues = queue;
		queue->linked = true;
	} else {
		atomic_fetch_sub_explicit(&worker->queue_count, 1, memory_order_relaxed);
	}
	worker_answer(worker, command);
}

static void unlink_queue(struct worker *worker, struct queue *queue)
{
	worker_ring_remove_queue(worker, queue);
	worker_watch_remove(worker, queue);
	scheduler_detach(&worker->scheduler, &queue->flow);
	if (worker->served == queue)
		worker->served = NULL;
	if (queue->previous)
		queue->previous->next = queue->next;
	else
		worker->queues = queue->next;
	if (queue->next)
		queue->next->previous = queue->previous;
	atomic_fetch_sub_explicit(&worker->queue_count, 1, memory_order_relaxed);
}

static void stop_client(struct worker *worker, struct worker_command *command)
{
	for (struct queue *queue = worker->queues; queue; queue = queue->next) {
		if (queue->client != command->client)
			continue;
		queue->stopping = true;
		worker_ring_cancel_doorbell(worker, queue);
		worker_cancel_batch(worker, &queue->batch);
	}
	for (struct worker_command *sync = worker->syncs, *next; sync; sync = next) {
		next = sync->next_pending;
		if (sync->client == command->client)
			worker_cancel_batch(worker, &sync->batch); /* may leave the list */
	}
	add_pending(&worker->stops, command);
}

/*
 * What was submitted until now is still done; what comes later is not. Nor is what waits for a
 * fence: it is not published, and the library submits it anew elsewhere.
 */
static void drain(struct worker *worker, struct worker_command *command)
{
	worker->stop = command;
	for (struct queue *queue = worker->queues; queue; queue = queue->next) {
		queue->draining = true;
		queue->drain_end = queue->fetched;
		if (queue->batch.phase == BATCH_FENCE) {
			worker_cancel_batch(worker, &queue->batch);
			continue;
		}
		while (queue->drain_end - queue->fetched < queue->ring.depth &&
		       dmasync_ring_poll_submission(&queue->ring, queue->drain_end) ==
			       DMASYNC_RING_READY)
			queue->drain_end++;
	}
	for (struct worker_command *sync = worker->syncs, *next; sync; sync = next) {
		next = sync->next_pending;
		if (sync->batch.phase == BATCH_FENCE)
			worker_cancel_batch(worker, &sync->batch); /* may leave the list */
	}
}

static void start_sync(struct worker *worker, struct worker_command *command)
{
	command->error = scheduler_attach(&worker->scheduler, &command->flow, DMASYNC_CLASS_NORMAL,
					  command->uid, command->client);
	if (command->error < 0) {
		worker_answer(worker, command);
		return;
	}
	add_pending(&worker->syncs, command);
	worker_start_sync(worker, command);
}

/* As many line operations as slice_us has room for, by the dearest of them. */
void worker_tuned(struct worker *worker)
{
	const struct worker_params *params = &worker->params;
	uint64_t dearest_ps = params->cache->clean_ps;

	if (params->cache->flush_ps > dearest_ps)
		dearest_ps = params->cache->flush_ps;
	if (params->simulated_ps > dearest_ps)
		dearest_ps = params->simulated_ps;
	worker->slice = params->slice_lines > SLICE_MIN ? params->slice_lines : SLICE_MIN;
	if (params->slice_us && dearest_ps) {
		uint64_t lines = params->slice_us * PS_PER_US / dearest_ps;

		if (lines < SLICE_MIN)
			lines = SLICE_MIN;
		if (lines < worker->slice)
			worker->slice = (uint32_t)lines;
	}
	worker->overrun_ns = OVERRUN_SLICES * NS_PER_US * params->slice_us;
	if (worker->overrun_ns < OVERRUN_LEAST_NS)
		worker->overrun_ns = OVERRUN_LEAST_NS;
	scheduler_tune(&worker->scheduler, worker->slice, params->normal_share, params->bulk_share);
}

static void handle(struct worker *worker, struct worker_command *command)
{
	switch (command->type) {
	case WORKER_QUEUE_ADD:
		add_queue(worker, command);
		break;
	case WORKER_QUEUE_REMOVE:
		if (!command->queue->linked) { /* it could not be added: nothing to wait for */
			worker_answer(worker, command);
			break;
		}
		command->queue->stopping = true;
		command->queue->remove = command;
		worker_ring_cancel_doorbell(worker, command->queue);
		if (command->queue->batch.phase == BATCH_FENCE)
			worker_cancel_batch(worker, &command->queue->batch);
		break;
	case WORKER_CLIENT_STOP:
		stop_client(worker, command);
		break;
	case WORKER_BUFFER_GRACE:
		command->grace_mark = worker->batch_count;
		add_pending(&worker->graces, command);
		break;
	case WORKER_SYNC:
		start_sync(worker, command);
		break;
	case WORKER_TUNE:
		worker->params.rt_share = command->rt_share;
		worker->params.spin_us = command->spin_us;
		worker->params.spin_min_us = command->spin_min_us;
		worker_spin_tune(worker);
		worker->params.slice_us = command->slice_us;
		worker->params.slice_lines = command->slice_lines;
		worker->params.normal_share = command->normal_share;
		worker->params.bulk_share = command->bulk_share;
		worker->params.simulated_ps = command->simulated_ps;
		worker->params.split_lines = command->split_lines;
		worker->params.share_barrier_lines = command->share_barrier_lines;
		worker->params.share_barrier_us = command->share_barrier_us;
		worker->params.max_batch_lines = command->max_batch_lines;
		worker->params.fence_timeout_ms = command->fence_timeout_ms;
		worker_tuned(worker);
		worker_answer(worker, command);
		break;
	case WORKER_STOP:
		drain(worker, command);
		break;
	case WORKER_QUEUE_BROKEN: /* only ever sent the other way */
	case WORKER_FAULT:
		break;
	}
	worker->settle = true;
}

void worker_handle_commands(struct worker *worker)
{
	struct mailbox_node *node = mailbox_take(&worker->commands);

	while (node) {
		struct worker_command *command = (struct worker_command *)node;

		node = node->next; /* before the answer: it is the poster's again then */
		handle(worker, command);
	}
}

void worker_sync_done(struct worker *worker, struct worker_command *command)
{
	scheduler_detach(&worker->scheduler, &command->flow);
	remove_pending(&worker->syncs, command);
	worker_answer(worker, command);
}

static bool in_use(const struct queue *queue)
{
	return queue->batch.phase != BATCH_FREE || queue->doorbell_armed;
}

static void settle_queues(struct worker *worker)
{
	for (struct queue *queue = worker->queues, *next; queue; queue = next) {
		next = queue->next;
		if (!queue->stopping || in_use(queue))
			continue;
		struct worker_command *remove = queue->remove;

		unlink_queue(worker, queue); /* the control thread's from the answer on */
		if (remove)
			worker_answer(worker, remove);
	}
}

static bool client_gone(const struct worker *worker, const struct client *client)
{
	for (const struct queue *queue = worker->queues; queue; queue = queue->next)
		if (queue->client == client)
			return false;
	for (const struct worker_command *sync = worker->syncs; sync; sync = sync->next_pending)
		if (sync->client == client)
			return false;
	return true;
}

/*
 * A batch fetched before the mark may still use a buffer that was taken out of the table; one
 * fetched after it cannot have found it. Batches with a lower order than the mark are therefore
 * waited for.
 */
static bool grace_over(const struct worker *worker, const struct worker_command *grace)
{
	for (const struct queue *queue = worker->queues; queue; queue = queue->next)
		if (queue->client == grace->client && queue->batch.phase != BATCH_FREE &&
		    queue->batch.fetch_order < grace->grace_mark)
			return false;
	for (const struct worker_command *sync = worker->syncs; sync; sync = sync->next_pending)
		if (sync->client == grace->client && sync->batch.fetch_order < grace->grace_mark)
			return false;
	return true;
}

static bool drained(struct worker *worker)
{
	if (!scheduler_is_empty(&worker->scheduler) || worker->syncs)
		return false;
	for (struct queue *queue = worker->queues; queue; queue = queue->next)
		if (queue->batch.phase != BATCH_FREE || worker_queue_has_work(worker, queue))
			return false;
	return true;
}

static void settle_stop(struct worker *worker)
{
	if (!drained(worker) || !worker_split_close(worker))
		return;
	/* The reads write into the queues, which are the control thread's after the answer. */
	for (struct queue *queue = worker->queues; queue; queue = queue->next) {
		queue->stopping = true;
		worker_ring_cancel_doorbell(worker, queue);
	}
	if (worker->cancels)
		return;
	worker->running = false;
	worker_answer(worker, worker->stop);
}

void worker_settle(struct worker *worker)
{
	worker->settle = false;
	settle_queues(worker);
	for (struct worker_command *stop = worker->stops, *next; stop; stop = next) {
		next = stop->next_pending;
		if (client_gone(worker, stop->client)) {
			remove_pending(&worker->stops, stop);
			worker_answer(worker, stop);
		}
	}
	for (struct worker_command *grace = worker->graces, *next; grace; grace = next) {
		next = grace->next_pending;
		if (grace_over(worker, grace)) {
			remove_pending(&worker->graces, grace);
			worker_answer(worker, grace);
		}
	}
	if (worker->stop)
		settle_stop(worker);
}
