/* SPDX-License-Identifier: MIT */
/*
 * The worker of inline mode: a batch from its ring to its completion, on the thread that submits,
 * by the code of the daemon's workers. The queue's thread.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "client/inline.h"
#include "client/internal.h"
#include "daemon/buffer/fence.h"
#include "daemon/buffer/kernel.h"
#include "daemon/cache/submission.h"

/*
 * Once the CPU has changed under a batch it is issued again in pieces of so many lines and entries,
 * each repeated at most so often; see issue_in_pieces().
 */
#define PIECE_LINES 1024u
#define PIECE_TRIES 8u

int inline_worker_create(struct inline_side *side, const struct dmasync_ring *ring,
			 int notification_fd, struct inline_worker **ret)
{
	struct inline_worker *worker = calloc(1, sizeof *worker);

	if (!worker)
		return -ENOMEM;
	worker->mirror = calloc(ring->unit_count, sizeof *worker->mirror);
	if (!worker->mirror) {
		free(worker);
		return -ENOMEM;
	}
	worker->side = side;
	worker->ring = *ring;
	worker->fetched = DMASYNC_RING_START;
	worker->notification_fd = notification_fd;
	*ret = worker;
	return 0;
}

void inline_worker_free(struct inline_worker *worker)
{
	if (!worker)
		return;
	close_fd(worker->notification_fd);
	free(worker->mirror);
	free(worker);
}

/* ---- check ---- */

/* Waits for the fences that the check has noted. NONE, or FENCE with *error where poll(2) failed.
 */
static enum dmasync_reason await_fences(struct inline_worker *worker, int64_t *deadline,
					struct dmasync_ring_completion *completion)
{
	struct cache_batch *batch = &worker->batch;
	int64_t start, now;

	/* Mostly they are signalled: then the clock is not read. */
	if (fences_drop_signalled(batch, 0) == 0 && batch->fence_count == 0)
		return DMASYNC_REASON_NONE;
	start = now = now_ns();
	if (*deadline == 0)
		*deadline = start + (int64_t)worker->side->fence_timeout_ms * 1000000;
	while (batch->fence_count && now < *deadline) {
		int r = fences_drop_signalled(batch, (int)((*deadline - now + 999999) / 1000000));

		now = now_ns();
		if (r < 0 && r != -EINTR) {
			completion->status = r;
			break;
		}
	}
	completion->fence_ns += (uint64_t)(now - start);
	return batch->fence_count ? DMASYNC_REASON_FENCE : DMASYNC_REASON_NONE;
}

static enum dmasync_reason check(struct inline_worker *worker,
				 struct dmasync_ring_completion *completion)
{
	struct inline_side *side = worker->side;
	struct cache_batch *batch = &worker->batch;
	int64_t deadline = 0;

	for (;;) {
		enum cache_check check = cache_batch_check(batch, batch->count, side->cache.line,
							   side->max_batch_lines,
							   buffer_table_lookup, &side->buffers);

		if (check == CACHE_CHECK_FAILED) {
			completion->bad_entry = batch->bad_entry;
			return batch->reason;
		}
		/* Fences first, then the opening fence, then operations: whatever the backend. */
		if (batch->fence_count) {
			enum dmasync_reason reason = await_fences(worker, &deadline, completion);

			if (reason != DMASYNC_REASON_NONE)
				return reason;
		}
		if (check == CACHE_CHECK_DONE)
			return DMASYNC_REASON_NONE;
	}
}

/* ---- issue ---- */

/*
 * The calling thread's earlier stores, and what other threads and devices made visible to it, come
 * before the first line operation, which is ordered by itself only against accesses to its own
 * line.
 */
static void open_batch(const struct cache_ops *ops)
{
	if (ops->open)
		ops->open();
}

/* After the last operation and before the publish. */
static void execute_barrier(const struct cache_ops *ops, bool flushes)
{
	if (ops->complete)
		ops->complete(flushes);
}

/*
 * A barrier waits for what its own CPU issued, and this thread is not pinned. A worker binds itself
 * to its CPU after a few changes; the affinity of an application's thread is not ours to touch, as
 * whoever set it meanwhile would find it undone. So the batch is issued in pieces that each have
 * their own opening fence and barrier and are far shorter than the time between two migrations
 * (1024 lines: 10 to 100 us; a running thread is moved on a scheduler tick at most): each piece is
 * through at the first or second try. The bound is for machines that lie about the CPU. Beyond it
 * nothing is lost on Linux either: the way from one CPU to another completes the operations, by the
 * DSB in arm64's __switch_to and by the locked instructions of the run queues on x86, which order
 * clwb and clflushopt.
 */
static void issue_in_pieces(struct inline_worker *worker)
{
	const struct cache *cache = &worker->side->cache;
	struct cache_batch *batch = &worker->batch;
	bool done = false;

	cache_batch_rewind(batch);
	while (!done) {
		struct cache_batch before = *batch;
		unsigned int tries = 0;
		int cpu;

		do {
			*batch = before;
			cpu = sched_getcpu();
			open_batch(&cache->ops);
			cache_batch_issue(batch, cache, PIECE_LINES, &done);
			execute_barrier(&cache->ops, batch->flushes);
		} while (sched_getcpu() != cpu && ++tries < PIECE_TRIES);
	}
}

static void issue(struct inline_worker *worker, int64_t fetched,
		  struct dmasync_ring_completion *completion)
{
	const struct cache *cache = &worker->side->cache;
	struct cache_batch *batch = &worker->batch;
	int64_t start, issued, end;
	bool done = false;
	int cpu;

	/* As in the worker: of a single entry issue_ns includes the check. */
	start = batch->count > 1 || batch->last_buffer->fenced ? now_ns() : fetched;
	cpu = sched_getcpu();
	open_batch(&cache->ops);
	while (!done)
		cache_batch_issue(batch, cache, UINT32_MAX, &done);
	issued = now_ns();
	execute_barrier(&cache->ops, batch->flushes); /* ONE, whatever the number of entries */
	end = now_ns();
	/* After the barrier, so a change between the last operation and the barrier is seen too. */
	if (sched_getcpu() != cpu) {
		completion->flags |= DMASYNC_COMPLETION_REISSUED;
		issue_in_pieces(worker);
		issued = end = now_ns();
	}
	completion->issue_ns = (uint64_t)(issued - start);
	completion->barrier_ns = (uint64_t)(end - issued);
}

/* ---- a batch ---- */

static void run_batch(struct inline_worker *worker, const struct dmasync_submission *submission,
		      struct dmasync_ring_completion *completion)
{
	struct cache_batch *batch = &worker->batch;
	int64_t fetched = now_ns();
	enum dmasync_reason reason = cache_batch_take(batch, submission, worker->mirror,
						      worker->ring.unit_count, &worker->alone);

	*completion = (struct dmasync_ring_completion){
		.user_data = submission->user_data,
		.flags = DMASYNC_COMPLETION_INLINE,
		.queued_ns = (uint64_t)fetched - submission->submit_ns,
		.bad_entry = DMASYNC_NO_ENTRY,
	};
	batch->fences = worker->fences;
	if (reason == DMASYNC_REASON_NONE) {
		if (submission->unit_count)
			dmasync_ring_copy_units(&worker->ring, submission->unit_position,
						submission->unit_count, &worker->mirror->entry);
		reason = check(worker, completion);
	}
	if (reason == DMASYNC_REASON_NONE) {
		issue(worker, fetched, completion);
		completion->lines = batch->lines;
		completion->bytes = batch->bytes;
	}
	/* After the barrier, as the daemon parks a batch for a helper. */
	if (reason == DMASYNC_REASON_NONE && batch->kernel) {
		uint64_t calls;
		int r = kernel_sync_runs(batch, &calls);

		completion->flags |= DMASYNC_COMPLETION_KERNEL;
		if (r < 0) {
			reason = DMASYNC_REASON_KERNEL_SYNC;
			completion->status = r;
			completion->lines = completion->bytes = 0;
		}
	}
	completion->entries = batch->entries;
	completion->reason = reason;
	if (reason != DMASYNC_REASON_NONE) {
		if (completion->status == 0)
			completion->status = -cache_reason_errno(reason);
		return;
	}
	completion->elided = batch->elided;
	if (batch->no_guarantee)
		completion->flags |= DMASYNC_COMPLETION_NO_GUARANTEE;
}

/*
 * The barrier came before, in program order; that the store of the slot's seq cannot pass it is
 * said at publish() in daemon/worker_publish.c. The reader is this thread or comes after it.
 */
static void publish(struct inline_worker *worker, struct dmasync_ring_completion *completion)
{
	if (completion->status < 0 || completion->elided || completion->fence_ns)
		completion->flags |= DMASYNC_COMPLETION_EXTENDED;
	dmasync_ring_complete(&worker->ring, worker->fetched++, completion);
	/* Nobody sleeps, but queue_fd may be watched: as for a sleeper. A full pipe has signalled.
	 */
	if (dmasync_ring_take_sleeper(&worker->ring.header->client_sleeping))
		(void)!write(worker->notification_fd, "", 1);
}

bool inline_worker_run(struct inline_worker *worker)
{
	for (;;) {
		struct dmasync_ring_completion completion;
		struct dmasync_submission submission;

		switch (dmasync_ring_poll_submission(&worker->ring, worker->fetched)) {
		case DMASYNC_RING_EMPTY:
			return true;
		case DMASYNC_RING_BROKEN:
			return false;
		case DMASYNC_RING_READY:
			break;
		}
		/* Room for the completion is there: begin counts those that nobody has read. */
		dmasync_ring_copy_submission(&worker->ring, worker->fetched, &submission);
		run_batch(worker, &submission, &completion);
		publish(worker, &completion);
	}
}
