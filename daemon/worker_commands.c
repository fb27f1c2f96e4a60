/* SPDX-License-Identifier: MIT */
/*
 * What the control thread asks of a worker; worker_clients.c has what must wait for batches in
 * work. Worker thread only.
 */
#include <errno.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/worker_internal.h"

#define PS_PER_US UINT64_C(1000000)
#define PS_PER_NS UINT64_C(1000)

/*
 * When a slice is out of order: dirty lines cost several times what was measured, and the thread
 * may lose its CPU for a few milliseconds; a page fault that allocates, or waits, takes longer.
 */
#define OVERRUN_SLICES 20u
#define OVERRUN_LEAST_NS UINT64_C(5000000)
#define SLICE_MIN 64u /* as slice_lines' least; below, the turns cost more than the work */

/*
 * Between two slices, whoever sent them: one costs a few lookups, the end of a client some system
 * calls, and together no more than a slice.
 */
#define COMMANDS_PER_TURN 16u

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

static void release_queue(struct worker *worker, struct queue *queue)
{
	worker->wait.ops->remove_queue(worker, queue);
	worker_watch_remove(worker, queue);
	scheduler_detach(&worker->scheduler, &queue->flow);
}

static void add_queue(struct worker *worker, struct worker_command *command)
{
	struct queue *queue = command->queue;

	if (queue->moved)
		worker_queue_comes(queue);
	command->error = scheduler_attach(&worker->scheduler, &queue->flow, queue->klass,
					  queue->uid, queue->client);
	if (command->error == 0) {
		command->error = worker_watch_add(worker, queue);
		if (command->error == 0) {
			command->error = worker->wait.ops->add_queue(worker, queue);
			if (command->error < 0)
				worker_watch_remove(worker, queue);
		}
		if (command->error < 0)
			scheduler_detach(&worker->scheduler, &queue->flow);
	}
	if (command->error == 0) {
		command->error = worker_client_add_queue(worker, queue);
		if (command->error < 0)
			release_queue(worker, queue);
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
		if (queue->moved)
			worker_batch_comes(worker, &queue->batch);
	} else {
		atomic_fetch_sub_explicit(&worker->queue_count, 1, memory_order_relaxed);
	}
	worker_answer(worker, command);
}

void worker_unlink_queue(struct worker *worker, struct queue *queue)
{
	release_queue(worker, queue);
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

/*
 * What was submitted until now is still done; what comes later is not. Nor is what waits for a
 * fence: it is not published, and the library submits it anew elsewhere.
 */
static void drain(struct worker *worker, struct worker_command *command)
{
	worker->stop = command;
	for (struct queue *queue = worker->queues; queue; queue = queue->next) {
		worker_queue_stays(worker, queue);
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
	worker_clients_cancel_fences(worker);
}

static void start_sync(struct worker *worker, struct worker_command *command)
{
	bool comes = command->elsewhere;

	command->elsewhere = false;
	command->error = scheduler_attach(&worker->scheduler, &command->flow, DMASYNC_CLASS_NORMAL,
					  command->uid, command->client);
	if (command->error == 0) {
		command->error = worker_client_add_sync(worker, command);
		if (command->error < 0)
			scheduler_detach(&worker->scheduler, &command->flow);
	}
	if (command->error < 0)
		worker_answer(worker, command);
	else if (comes)
		worker_batch_comes(worker, &command->batch);
	else
		worker_start_sync(worker, command);
}

/* As many line operations as slice_us has room for, by the dearest of them. */
void worker_tuned(struct worker *worker)
{
	struct worker_params *params = &worker->params;
	uint64_t dearest_ps = params->cache->clean_ps;

	if (params->slow) { /* short slices: each may take long, and nobody waits for its answers */
		params->spin_us = params->spin_min_us = 0;
		params->slice_lines = SLICE_MIN;
	}
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
	worker->overrun_ns = OVERRUN_SLICES * worker->slice * dearest_ps / PS_PER_NS;
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
		/* It could not be added, or has left: it is not to be looked into. */
		command->elsewhere =
			!worker_client_has_queue(worker, command->client, command->queue);
		if (command->elsewhere) {
			worker_answer(worker, command);
			break;
		}
		command->queue->stopping = true;
		command->queue->remove = command;
		worker->wait.ops->cancel_doorbell(worker, command->queue);
		if (command->queue->batch.phase == BATCH_FENCE)
			worker_cancel_batch(worker, &command->queue->batch);
		worker_client_due(worker, command->queue->batch.client);
		break;
	case WORKER_CLIENT_STOP:
		worker_client_stop(worker, command);
		break;
	case WORKER_BUFFER_GRACE:
		command->grace_mark = worker->batch_count;
		worker_client_grace(worker, command);
		break;
	case WORKER_SYNC:
		start_sync(worker, command);
		break;
	case WORKER_TUNE:
		worker->params.rt_share = command->rt_share;
		worker->params.spin_us = command->spin_us;
		worker->params.spin_min_us = command->spin_min_us;
		worker->params.slice_us = command->slice_us;
		worker->params.slice_lines = command->slice_lines;
		worker->params.normal_share = command->normal_share;
		worker->params.bulk_share = command->bulk_share;
		worker->params.simulated_ps = command->simulated_ps;
		worker->params.split_lines = command->split_lines;
		worker->params.share_barrier_lines = command->share_barrier_lines;
		worker->params.share_barrier_us = command->share_barrier_us;
		worker->params.overruns_to_move = command->overruns_to_move;
		worker->params.max_batch_lines = command->max_batch_lines;
		worker->params.fence_timeout_ms = command->fence_timeout_ms;
		worker_tuned(worker);
		worker_spin_tune(worker);
		worker_answer(worker, command);
		break;
	case WORKER_STOP:
		drain(worker, command);
		break;
	case WORKER_QUEUE_BROKEN: /* only ever sent the other way */
	case WORKER_FAULT:
	case WORKER_QUEUE_MOVED:
		break;
	}
}

void worker_handle_commands(struct worker *worker)
{
	for (uint32_t i = 0; i < COMMANDS_PER_TURN && worker_has_commands(worker); i++) {
		if (!worker->taken)
			worker->taken = mailbox_take(&worker->commands);
		struct worker_command *command = (struct worker_command *)worker->taken;

		/* Before the answer: it is the poster's again then. */
		worker->taken = worker->taken->next;
		handle(worker, command);
	}
}

static bool drained(struct worker *worker)
{
	if (worker->taken || !scheduler_is_empty(&worker->scheduler) || worker->sync_count)
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
		worker->wait.ops->cancel_doorbell(worker, queue);
	}
	if (worker->cancels)
		return;
	worker->running = false;
	worker_answer(worker, worker->stop);
}

void worker_settle(struct worker *worker)
{
	worker_clients_settle(worker);
	if (worker->stop)
		settle_stop(worker);
}
