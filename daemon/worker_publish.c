/* SPDX-License-Identifier: MIT */
/*
 * The end of a batch: its result, published once, counted and recorded. Worker thread only.
 */
#include <unistd.h>

#include "daemon/cache/submission.h"
#include "daemon/clock.h"
#include "daemon/worker_internal.h"

static void add_record(struct worker *worker, const struct batch *batch,
		       const struct dmasync_ring_completion *completion, uint64_t end_ns)
{
	struct dmasync_batch_record record;

	record.batch_id = batch->id;
	record.client_id = batch->owner->client_id;
	record.end_ns = end_ns;
	record.user_data = batch->user_data;
	record.lines = completion->lines;
	record.bytes = completion->bytes;
	record.queued_ns = completion->queued_ns;
	record.issue_ns = completion->issue_ns;
	record.barrier_ns = completion->barrier_ns;
	record.fence_ns = completion->fence_ns;
	record.entries = completion->entries;
	record.elided = completion->elided;
	record.flags = completion->flags & ~DMASYNC_COMPLETION_EXTENDED;
	record.status = completion->status;
	record.reason = completion->reason;
	record.bad_entry = completion->bad_entry;
	record.queue = batch->queue ? batch->queue->id : 0;
	record.worker = worker->params.index;
	record.pid = batch->owner->pid;
	record.waited_entries = batch->waited_entries;
	record.waited_lines = batch->waited_lines;
	record.klass = batch->flow->klass;
	record.workers = (uint16_t)completion->workers;
	record.shared_by =
		completion->shared_by < UINT16_MAX ? (uint16_t)completion->shared_by : UINT16_MAX;
	records_add(&worker->records, &record);
}

/* What must be right for whoever asks after having seen the completion: before the publish. */
static void count_batch(struct worker *worker, const struct batch *batch,
			const struct dmasync_ring_completion *completion)
{
	struct worker_stats *stats = &worker->stats;
	struct worker_class_stats *klass = &stats->klass[batch->flow->klass];

	counter_add(&stats->batches, 1);
	counter_add(&stats->entries, completion->entries);
	counter_add(&stats->lines, completion->lines);
	counter_add(&stats->bytes, completion->bytes);
	counter_add(&klass->batches, 1);
	counter_add(&klass->lines, completion->lines);
	if (completion->elided)
		counter_add(&stats->elided, completion->elided);
	if (completion->status < 0)
		counter_add(&stats->failed, 1);
}

/* The rest is off the batch's way: after the publish. */
static void count_times(struct worker *worker, const struct batch *batch,
			const struct dmasync_ring_completion *completion, uint64_t end_ns)
{
	struct histogram *phase = worker->stats.phase;

	if (completion->status < 0)
		return;
	histogram_add(&phase[DMASYNC_PHASE_ISSUE], completion->issue_ns);
	histogram_add(&phase[DMASYNC_PHASE_BARRIER], completion->barrier_ns);
	if (batch->suspect_time) {
		counter_add(&worker->stats.suspect_times, 1);
		return;
	}
	histogram_add(&phase[DMASYNC_PHASE_QUEUED], completion->queued_ns);
	histogram_add(&phase[DMASYNC_PHASE_TOTAL], end_ns - batch->submit_ns);
}

static void count_owner(struct batch_owner *owner, const struct dmasync_ring_completion *completion)
{
	/* Release: its record before. Pairs with the acquire in own_batches(). */
	atomic_fetch_add_explicit(&owner->batches, 1, memory_order_release);
	atomic_fetch_add_explicit(&owner->lines, completion->lines, memory_order_relaxed);
	if (completion->status < 0)
		atomic_fetch_add_explicit(&owner->failed, 1, memory_order_relaxed);
}

static void notify(struct queue *queue)
{
	KILL_POINT("wake");
	/*
	 * O_NONBLOCK: a full pipe has already signalled. EPIPE: the client is gone (SIGPIPE is
	 * blocked), which the control thread learns by the socket.
	 */
	ssize_t n = write(queue->notification_fd, "", 1);

	(void)n;
}

/*
 * Publishes the result. The caller has executed the completion barrier after the batch's last line
 * operation (worker_barrier.c), and so has every worker that helped with it (worker_split.c); or
 * the batch has issued none. The store-release of the slot's seq comes after the barrier in program
 * order, and neither a DSB (arm64), a fence of the stores it orders (x86) nor a FENCE (riscv64)
 * lets a later store pass.
 */
static void publish(struct worker *worker, struct batch *batch,
		    struct dmasync_ring_completion *completion)
{
	uint64_t end_ns = batch->end_ns;
	struct batch_owner *owner = batch->owner;
	struct worker_command *sync = batch->sync;

	if (completion->status < 0 || completion->elided || completion->fence_ns ||
	    completion->workers || completion->shared_by)
		completion->flags |= DMASYNC_COMPLETION_EXTENDED;
	worker->slice_end_ns = end_ns;
	count_batch(worker, batch, completion);
	if (sync) {
		sync->result = *completion;
	} else if (!batch->cancelled) {
		struct queue *queue = batch->queue;

		dmasync_ring_complete(&queue->ring, queue->completed++, completion);
		KILL_POINT("publish");
		if (dmasync_ring_take_sleeper(&queue->ring.header->client_sleeping))
			notify(queue);
	}
	batch->phase = BATCH_FREE;
	batch->flow->batch = NULL; /* out of line when its queue was looked at and is empty */
	if (batch->queue)
		worker_watch_again(worker, batch->queue);
	add_record(worker, batch, completion, end_ns);
	count_times(worker, batch, completion, end_ns);
	count_owner(owner, completion);
	worker_client_let_go(worker, batch);
	if (sync)
		worker_sync_done(worker, sync);
}

/*
 * Field by field, and into the worker's own: to zero a struct of this size takes longer than to
 * clean a line.
 */
static struct dmasync_ring_completion *begin_result(struct worker *worker,
						    const struct batch *batch)
{
	struct dmasync_ring_completion *result = &worker->result;

	result->user_data = batch->user_data;
	result->entries = batch->cache.entries;
	result->flags = batch->flags;
	result->queued_ns = batch->fetched_ns - batch->submit_ns;
	result->fence_ns = batch->fence_ns;
	result->batch_id = batch->id;
	result->shared_by = batch->shared_by;
	result->workers = batch->workers;
	return result;
}

void worker_complete_batch(struct worker *worker, struct batch *batch)
{
	const struct cache_batch *cache = &batch->cache;
	struct dmasync_ring_completion *result = begin_result(worker, batch);

	result->status = 0;
	result->lines = cache->lines;
	result->bytes = cache->bytes;
	result->issue_ns = batch->issue_end_ns - batch->issue_start_ns;
	result->barrier_ns = batch->barrier_end_ns - batch->issue_end_ns;
	result->bad_entry = DMASYNC_NO_ENTRY;
	result->reason = DMASYNC_REASON_NONE;
	result->elided = cache->elided;
	if (cache->no_guarantee)
		result->flags |= DMASYNC_COMPLETION_NO_GUARANTEE;
	publish(worker, batch, result);
}

void worker_fail_batch(struct worker *worker, struct batch *batch, enum dmasync_reason reason,
		       int error)
{
	struct dmasync_ring_completion *result = begin_result(worker, batch);

	result->status = error ? error : -cache_reason_errno(reason);
	result->lines = result->bytes = 0;
	result->issue_ns = result->barrier_ns = 0;
	result->bad_entry = batch->cache.bad_entry;
	result->reason = reason;
	result->elided = 0;
	batch->end_ns = clock_ns();
	publish(worker, batch, result);
}
