/* SPDX-License-Identifier: MIT */
/*
 * The two ends of what a worker issues of a batch: the opening fence before the first line
 * operation, ONE completion barrier after the last. Worker thread only.
 */
#include "daemon/clock.h"
#include "daemon/worker_internal.h"

/*
 * The client's stores, seen through the acquire of its slot, come before the first line operation:
 * a line operation is ordered by itself only against accesses to its own line.
 */
void worker_open_batch(struct worker *worker, struct batch *batch)
{
	const struct cache_ops *ops = &worker->params.cache->ops;

	worker_open_on_cpu(worker, batch);
	batch->barrier_mark = worker->barriers;
	batch->own_lines = 0;
	if (ops->open)
		ops->open();
}

void worker_execute_barrier(struct worker *worker, bool flushed)
{
	const struct cache_ops *ops = &worker->params.cache->ops;

	if (ops->complete)
		ops->complete(flushed);
	worker->barriers++;
	worker->unfinished_lines = 0;
	counter_add(&worker->stats.barriers, 1);
	KILL_POINT("barrier");
}

/*
 * The barrier waits for all that this CPU has issued, other batches' slices included: then the
 * completion says MIXED.
 */
static void note_mixed(const struct worker *worker, struct batch *batch)
{
	if (worker->unfinished_lines > batch->own_lines)
		batch->flags |= DMASYNC_COMPLETION_MIXED;
}

static void park(struct worker *worker, struct batch *batch)
{
	batch->phase = BATCH_PARKED;
	scheduler_remove(&worker->scheduler, batch->flow);
	batch->flags |= DMASYNC_COMPLETION_KERNEL;
	kernel_sync_prepare(&batch->kernel, &batch->cache, batch->owner->client_id,
			    batch->owner->user_id, &worker->jobs, worker->wake_fd);
	helpers_submit(worker->params.helpers, &batch->kernel.job);
}

void worker_batch_waited_for(struct worker *worker, struct batch *batch)
{
	worker_release_cpu(worker);
	if (batch->cache.kernel)
		park(worker, batch);
	else
		worker_complete_batch(worker, batch);
}

void worker_batch_issued(struct worker *worker, struct batch *batch)
{
	batch->issue_end_ns = clock_ns();
	note_mixed(worker, batch);
	worker_execute_barrier(worker, batch->cache.flushes);
	batch->end_ns = batch->barrier_end_ns = clock_ns();
	if (worker_changed_cpu(worker, batch)) {
		cache_batch_rewind(&batch->cache);
		worker_open_batch(worker, batch);
		return;
	}
	worker_batch_waited_for(worker, batch);
}
