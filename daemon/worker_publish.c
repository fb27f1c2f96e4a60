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
	struct dmasync_batch_record record = {
		.batch_id = batch->id,
		.client_id = batch->owner->client_id,
		.end_ns = end_ns,
		.user_data = batch->user_data,
		.lines = completion->lines,
		.bytes = completion->bytes,
		.queued_ns = completion->queued_ns,
		.issue_ns = completion->issue_ns,
		.barrier_ns = completion->barrier_ns,
		.fence_ns = completion->fence_ns,
		.entries = completion->entries,
		.elided = completion->elided,
		.flags = completion->flags & ~DMASYNC_COMPLETION_EXTENDED,
		.status = completion->status,
		.reason = completion->reason,
		.bad_entry = completion->bad_entry,
		.queue = batch->queue ? batch->queue->id : 0,
		.worker = worker->params.index,
		.pid = batch->owner->pid,
	};

	records_add(&worker->records, &record);
}

/* What must be right for whoever asks after having seen the completion: before the publish. */
static void count_batch(struct worker *worker, const struct dmasync_ring_completion *completion)
{
	struct worker_stats *stats = &worker->stats;

	counter_add(&stats->batches, 1);
	counter_add(&stats->entries, completion->entries);
	counter_add(&stats->lines, completion->lines);
	counter_add(&stats->bytes, completion->bytes);
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
	atomic_fetch_add_explicit(&owner->batches, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&owner->lines, completion->lines, memory_order_relaxed);
	if (completion->status < 0)
		atomic_fetch_add_explicit(&owner->failed, 1, memory_order_relaxed);
}

static void notify(struct queue *queue)
{
	/*
	 * O_NONBLOCK: a full pipe has already signalled. EPIPE: the client is gone (SIGPIPE is
	 * blocked), which the control thread learns by the socket.
	 */
	ssize_t n = write(queue->notification_fd, "", 1);

	(void)n;
}

/*
 * Publishes the result. The caller has executed the completion barrier after the batch's last line
 * operation (execute_barrier(), or the batch has issued none): the store-release of the slot's seq
 * comes after it in program order, and neither a DSB (arm64), a fence of the stores it orders (x86)
 * nor a FENCE (riscv64) lets a later store pass.
 */
static void publish(struct worker *worker, struct batch *batch,
		    struct dmasync_ring_completion *completion)
{
	uint64_t end_ns = batch->end_ns;
	struct batch_owner *owner = batch->owner;
	struct worker_command *sync = batch->sync;

	if (completion->status < 0 || completion->elided || completion->fence_ns)
		completion->flags |= DMASYNC_COMPLETION_EXTENDED;
	count_batch(worker, completion);
	if (sync) {
		sync->result = *completion;
	} else if (!batch->cancelled) {
		struct queue *queue = batch->queue;

		dmasync_ring_complete(&queue->ring, queue->completed++, completion);
		if (dmasync_ring_take_sleeper(&queue->ring.header->client_sleeping))
			notify(queue);
	}
	batch->phase = BATCH_FREE;
	add_record(worker, batch, completion, end_ns);
	count_times(worker, batch, completion, end_ns);
	count_owner(owner, completion);
	worker->settle |= worker->graces || worker->stops || batch->cancelled ||
			  (batch->queue && batch->queue->remove);
	if (sync)
		worker_sync_done(worker, sync);
}

void worker_complete_batch(struct worker *worker, struct batch *batch)
{
	const struct cache_batch *cache = &batch->cache;
	struct dmasync_ring_completion completion = {
		.user_data = batch->user_data,
		.entries = cache->entries,
		.flags = batch->flags,
		.lines = cache->lines,
		.bytes = cache->bytes,
		.queued_ns = batch->fetched_ns - batch->submit_ns,
		.issue_ns = batch->issue_end_ns - batch->issue_start_ns,
		.barrier_ns = batch->barrier_end_ns - batch->issue_end_ns,
		.fence_ns = batch->fence_ns,
		.batch_id = batch->id,
		.bad_entry = DMASYNC_NO_ENTRY,
		.elided = cache->elided,
	};

	if (cache->no_guarantee)
		completion.flags |= DMASYNC_COMPLETION_NO_GUARANTEE;
	publish(worker, batch, &completion);
}

void worker_fail_batch(struct worker *worker, struct batch *batch, enum dmasync_reason reason,
		       int error)
{
	struct dmasync_ring_completion completion = {
		.status = error ? error : -cache_reason_errno(reason),
		.user_data = batch->user_data,
		.entries = batch->cache.entries,
		.flags = batch->flags,
		.queued_ns = batch->fetched_ns - batch->submit_ns,
		.fence_ns = batch->fence_ns,
		.batch_id = batch->id,
		.bad_entry = batch->cache.bad_entry,
		.reason = reason,
	};

	batch->end_ns = clock_ns();
	publish(worker, batch, &completion);
}
