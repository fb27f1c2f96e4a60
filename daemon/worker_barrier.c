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

/* Returns the CPU on which it was executed. */
static int barrier(struct worker *worker, bool flushed)
{
	const struct cache_ops *ops = &worker->params.cache->ops;

	if (ops->complete)
		ops->complete(flushed);

	int cpu = sched_getcpu();

	worker->barriers++;
	worker->unfinished_lines = 0;
	counter_add(&worker->stats.barriers, 1);
	KILL_POINT("barrier");
	return cpu;
}

/*
 * The barrier waits for all that this CPU has issued, other batches' slices included: then the
 * completion says MIXED.
 */
static void note_mixed(const struct worker *worker, struct batch *batch)
{
	uint64_t own = batch->barrier_mark == worker->barriers ? batch->own_lines : 0;

	if (worker->unfinished_lines > own)
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

/* The barrier behind all of its operations was executed by this worker, on this CPU. */
static void behind_barrier(struct worker *worker, struct batch *batch, int cpu, uint64_t end_ns,
			   uint32_t shared)
{
	batch->end_ns = batch->barrier_end_ns = end_ns;
	if (batch->cancelled) {
		worker_release_cpu(worker);
		worker_fail_batch(worker, batch, DMASYNC_REASON_CANCELLED, 0);
		return;
	}
	if (worker_changed_cpu(worker, batch, cpu)) {
		batch->phase = BATCH_ISSUE;
		cache_batch_rewind(&batch->cache);
		worker_open_batch(worker, batch);
		worker_resume_batch(worker, batch);
		return;
	}
	batch->shared_by = shared > 1 ? shared : 0;
	worker_batch_waited_for(worker, batch);
}

/*
 * share_barrier: batches of which everything is issued wait behind one barrier, as a database
 * commits a group. Each is published after it, in the order in which they were issued; a queue has
 * one batch in work, so its own order is kept. They wait only as long as another batch has its
 * slices meanwhile, and no longer than the bounds say. `first`: one that has not waited, or NULL.
 * Returns the CPU of the barrier.
 */
static int share(struct worker *worker, struct batch *first, bool flushed)
{
	struct issued *issued = &worker->issued;
	struct batch *batch = issued->first;
	uint32_t shared = issued->count + (first ? 1 : 0);

	flushed |= issued->flushes;
	*issued = (struct issued){0};
	if (first)
		note_mixed(worker, first);
	for (struct batch *other = batch; other; other = other->next_issued)
		note_mixed(worker, other);

	/* One look for all: later the worker may be back where some of them were issued. */
	int cpu = barrier(worker, flushed);

	if (shared > 1)
		counter_add(&worker->stats.barriers_shared, 1);

	uint64_t end_ns = clock_ns();

	if (first)
		behind_barrier(worker, first, cpu, end_ns, shared);
	while (batch) {
		struct batch *next = batch->next_issued; /* of a SYNC message: gone afterwards */

		behind_barrier(worker, batch, cpu, end_ns, shared);
		batch = next;
	}
	return cpu;
}

int worker_execute_barrier(struct worker *worker, bool flushed)
{
	return share(worker, NULL, flushed);
}

void worker_batch_issued(struct worker *worker, struct batch *batch)
{
	struct issued *issued = &worker->issued;

	batch->issue_end_ns = clock_ns();
	records_prefetch(&worker->records);
	if (batch->queue)
		dmasync_ring_prefetch_next(&batch->queue->ring, batch->queue->fetched,
					   batch->queue->completed, CHECK_CHUNK);
	/* Who is urgent waits for nobody, and takes those along that wait. */
	if (worker->params.share_barrier_lines == 0 ||
	    batch->flow->klass == DMASYNC_CLASS_REALTIME) {
		share(worker, batch, batch->cache.flushes);
		return;
	}
	scheduler_remove(&worker->scheduler, batch->flow);
	batch->phase = BATCH_ISSUED;
	batch->next_issued = NULL;
	if (issued->last)
		issued->last->next_issued = batch;
	else
		issued->first = batch;
	issued->last = batch;
	if (issued->count++ == 0)
		issued->since_ns = batch->issue_end_ns;
	issued->lines += batch->cache.lines;
	issued->flushes |= batch->cache.flushes;
	worker->slice_end_ns = batch->issue_end_ns;
	/* The next turn first looks who else is there. */
}

bool worker_share_barrier(struct worker *worker, bool more)
{
	const struct issued *issued = &worker->issued;

	/* The slice that has just ended tells the time: none has begun since. */
	if (issued->count == 0 || (more && issued->lines < worker->params.share_barrier_lines &&
				   worker->slice_end_ns - issued->since_ns <
					   worker->params.share_barrier_us * UINT64_C(1000)))
		return false;
	share(worker, NULL, false);
	return true;
}
