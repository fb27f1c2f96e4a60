/* SPDX-License-Identifier: MIT */
/*
 * A batch from fetch to its last line operation: fetched, copied and checked a chunk at a time,
 * issued a slice at a time. worker_split.c issues it together with other workers, worker_barrier.c
 * waits for it, worker_publish.c has its end. Worker thread only.
 */
#include <string.h>
#include <unistd.h>

#include "daemon/cache/submission.h"
#include "daemon/clock.h"
#include "daemon/guard.h"
#include "daemon/worker_internal.h"

/*
 * What things cost besides line operations, which are 1 each, as are runs and rows begun
 * (cache_batch_issue()) and units copied and checked. In line operations, roughly, on the machines
 * measured: a slot and a completion change cores, a poll of fences is a system call.
 */
#define FETCH_CREDIT 16u
#define FENCES_CREDIT 64u

/* With less neither the check of a strided entry nor a run gets on. */
#define LEAST_CREDIT 2u

uint32_t worker_credit_left(const struct worker *worker)
{
	return worker->spent < worker->slice ? worker->slice - worker->spent : 0;
}

/* Before the batch completes: afterwards its flow may be gone. */
void worker_pay(struct worker *worker, const struct batch *batch)
{
	scheduler_charge(&worker->scheduler, batch->flow, worker->spent - worker->paid);
	worker->paid = worker->spent;
}

/* ---- fetch ---- */

static void begin_batch(struct worker *worker, struct batch *batch)
{
	batch->phase = BATCH_CHECK;
	batch->fetch_order = worker->batch_count++;
	batch->id = batch->fetch_order * worker->params.count + worker->params.index + 1;
	batch->flags = 0;
	batch->reissues = batch->workers = batch->shared_by = 0;
	batch->fence_start_ns = batch->fence_deadline_ns = batch->fence_ns = 0;
	batch->fence_error = 0;
	batch->copied = 0;
	batch->begun = false;
	batch->cancelled = false;
	batch->suspect_time = false;
}

/*
 * A look at the clock costs as much as the cleaning of several lines. What was submitted before the
 * last slice ended, and is found before the worker was idle, was fetched right after that end. Not
 * so for a batch of one entry, whose issue_ns begins here.
 */
static uint64_t fetch_time(const struct worker *worker, const struct dmasync_submission *submission)
{
	if (submission->unit_count > 1 && submission->submit_ns <= worker->slice_end_ns &&
	    worker->idle_since_ns == 0)
		return worker->slice_end_ns;
	return clock_ns();
}

/* submit_ns is the client's word: not before its queue was made, not in the future. */
static void check_time(struct batch *batch, uint64_t submit_ns, uint64_t earliest_ns)
{
	if (submit_ns >= earliest_ns && submit_ns <= batch->fetched_ns) {
		batch->submit_ns = submit_ns;
		return;
	}
	batch->submit_ns = batch->fetched_ns;
	batch->suspect_time = true;
	batch->flags |= DMASYNC_COMPLETION_SUSPECT_TIME;
}

static void break_queue(struct worker *worker, struct queue *queue, const char *text)
{
	queue->broken = true;
	queue->event->type = WORKER_QUEUE_BROKEN;
	queue->event->queue = queue;
	queue->event->client = queue->client;
	queue->event->text = text;
	worker_answer(worker, queue->event);
}

/* Room for one more result? The only index taken from a client is read when it seems not. */
static bool has_room(struct worker *worker, struct queue *queue)
{
	if (queue->completed - queue->completions_read < queue->ring.depth)
		return true;

	uint32_t read = dmasync_ring_completions_read(&queue->ring);

	/* Never back, never beyond what was written; both modulo 2^32. */
	if (read - queue->completions_read > queue->completed - queue->completions_read) {
		break_queue(worker, queue,
			    "the position of read completions went backwards or beyond what was "
			    "written");
		return false;
	}
	queue->completions_read = read;
	return queue->completed - read < queue->ring.depth;
}

/* One look at the slot that would be next; EMPTY also where nothing may be fetched now. */
static inline enum dmasync_ring_poll look_at_queue(struct worker *worker, struct queue *queue)
{
	enum dmasync_ring_poll poll;

	if (queue->batch.phase != BATCH_FREE || queue->broken || queue->stopping ||
	    queue->batch.leaving || (queue->draining && queue->fetched == queue->drain_end))
		return DMASYNC_RING_EMPTY;
	poll = dmasync_ring_poll_submission(&queue->ring, queue->fetched);
	return poll != DMASYNC_RING_EMPTY && has_room(worker, queue) ? poll : DMASYNC_RING_EMPTY;
}

bool worker_queue_has_work(struct worker *worker, struct queue *queue)
{
	return look_at_queue(worker, queue) != DMASYNC_RING_EMPTY;
}

bool worker_poll_queue(struct worker *worker, struct queue *queue)
{
	struct dmasync_submission submission;
	struct batch *batch = &queue->batch;

	switch (look_at_queue(worker, queue)) {
	case DMASYNC_RING_EMPTY:
		return false;
	case DMASYNC_RING_BROKEN:
		break_queue(worker, queue, "a submission slot carries a seq of another lap");
		return false;
	case DMASYNC_RING_READY:
		break;
	}
	dmasync_ring_copy_submission(&queue->ring, queue->fetched, &submission);
	queue->fetched++;
	KILL_POINT("fetch");
	begin_batch(worker, batch);
	batch->fetched_ns = fetch_time(worker, &submission);
	batch->user_data = submission.user_data;
	worker_look_back(worker, batch->fetched_ns);
	check_time(batch, submission.submit_ns, queue->created_ns);
	worker_spin_arrival(worker, batch, submission.client_cpu);

	/*
	 * One that is bad as a whole fails in its turn: its queue pays for it like any other. What
	 * nobody has paid for yet is this fetch, one of a queue until its batch had its turn.
	 */
	batch->cache.reason = cache_batch_take(&batch->cache, &submission, queue->mirror,
					       queue->ring.unit_count, &batch->inline_unit);
	batch->cache.fences = batch->fences;
	batch->copied = submission.unit_count ? 0 : 1;
	scheduler_add(&worker->scheduler, batch->flow, batch);
	return true;
}

void worker_start_sync(struct worker *worker, struct worker_command *command)
{
	struct batch *batch = &command->batch;

	*batch = (struct batch){
		.sync = command,
		.buffers = command->buffers,
		.owner = command->owner,
		.flow = &command->flow,
		.client = batch->client,
		.user_data = command->user_data,
	};
	begin_batch(worker, batch);
	batch->fetched_ns = clock_ns();
	check_time(batch, command->submit_ns, 0);
	cache_batch_begin(&batch->cache, command->units, command->units_size - 1, 0,
			  command->count);
	batch->cache.fences = batch->fences;
	batch->copied = command->count; /* the message was the copy */
	batch->waited_lines = worker->command_lines;
	batch->waited_entries = (uint32_t)worker->command_entries;
	scheduler_add(&worker->scheduler, batch->flow, batch);
}

/* ---- check ---- */

static enum cache_check check_chunk(struct worker *worker, struct batch *batch, uint32_t most)
{
	struct cache_batch *cache = &batch->cache;
	uint32_t available = cache->checked + (most < CHECK_CHUNK ? most : CHECK_CHUNK);

	if (available > cache->count)
		available = cache->count;
	/* Each unit is copied once, into its place in the mirror; only the copy is looked at. */
	if (batch->copied < available) {
		dmasync_ring_copy_units(&batch->queue->ring, cache->first + batch->copied,
					available - batch->copied, &batch->queue->mirror->entry);
		batch->copied = available;
		/* The next chunk comes while this one is checked. */
		uint32_t left = cache->count - available;

		dmasync_ring_prefetch_units(&batch->queue->ring, cache->first + available,
					    left < CHECK_CHUNK ? left : CHECK_CHUNK);
	}
	return cache_batch_check(cache, available, worker->params.cache->line,
				 worker->params.max_batch_lines, buffer_table_lookup,
				 (void *)batch->buffers);
}

/* ---- issue ---- */

struct slice {
	struct worker *worker;
	struct batch *batch;
	uint32_t left; /* of its credit */
	bool done;
};

static void issue_slice(void *argument)
{
	struct slice *slice = argument;

	slice->left = cache_batch_issue(&slice->batch->cache, slice->worker->params.cache,
					slice->left, &slice->done);
	if (!slice->done)
		KILL_POINT("mid-issue");
}

void worker_fault_batch(struct worker *worker, struct batch *batch)
{
	struct queue *queue = batch->queue;

	counter_add(&worker->stats.faults, 1);
	worker_release_cpu(worker);
	batch->cache.lines = batch->cache.bytes = 0;
	worker_fail_batch(worker, batch, DMASYNC_REASON_FAULT, 0);
	if (!queue || queue->broken)
		return;
	queue->broken = true;
	queue->event->type = WORKER_FAULT;
	queue->event->queue = queue;
	queue->event->client = queue->client;
	worker_answer(worker, queue->event);
}

static void issue(struct worker *worker, struct batch *batch)
{
	struct slice slice = {.worker = worker, .batch = batch, .left = worker_credit_left(worker)};
	uint32_t credit = slice.left;
	uint64_t before = batch->cache.lines;

	if (batch->barrier_mark != worker->barriers) { /* another batch's barrier came between */
		batch->barrier_mark = worker->barriers;
		batch->own_lines = 0;
	}
	if (!guard_run(issue_slice, &slice)) {
		/*
		 * How far the slice got is not known: at most all of it, which the next barrier
		 * waits for.
		 */
		worker->unfinished_lines += worker->slice;
		worker->spent = worker->slice;
		worker_pay(worker, batch);
		worker_fault_batch(worker, batch);
		return;
	}
	batch->own_lines += batch->cache.lines - before;
	worker->unfinished_lines += batch->cache.lines - before;
	worker->work_lines += batch->cache.lines - before;
	worker->spent += credit - slice.left;
	worker_pay(worker, batch);
	if (!slice.done)
		return;

	worker_batch_issued(worker, batch);
}

/* False where the batch goes no further in this slice. */
static bool check(struct worker *worker, struct batch *batch)
{
	enum cache_check found;

	do {
		uint32_t checked = batch->cache.checked, entries = batch->cache.entries;

		found = check_chunk(worker, batch, worker_credit_left(worker));
		worker->spent += batch->cache.checked - checked;
		worker->work_entries += batch->cache.entries - entries;
		if (found == CACHE_CHECK_FAILED) {
			worker_pay(worker, batch);
			worker_fail_batch(worker, batch, batch->cache.reason, 0);
			return false;
		}
		/* Fences first, then the opening fence, then operations: whatever the backend. */
		if (batch->cache.fence_count) {
			worker->spent += FENCES_CREDIT;
			worker_pay(worker, batch);
			if (!worker_await_fences(worker, batch))
				return false;
		}
		if (worker_credit_left(worker) < LEAST_CREDIT) {
			worker_pay(worker, batch);
			return false;
		}
	} while (found == CACHE_CHECK_MORE);

	batch->phase = BATCH_ISSUE;
	/*
	 * A look at the clock takes longer than the check of a single entry, and would be a
	 * twentieth of a short batch's round trip: there issue_ns includes the check.
	 */
	batch->issue_start_ns = batch->cache.count > 1 || batch->cache.last_buffer->fenced
					? clock_ns()
					: batch->fetched_ns;
	worker_open_batch(worker, batch);
	return true;
}

static void begin(struct worker *worker, struct batch *batch)
{
	struct worker_class_stats *stats = &worker->stats.klass[batch->flow->klass];

	batch->begun = true;
	batch->waited_lines = worker->work_lines - batch->waited_lines;
	batch->waited_entries = (uint32_t)worker->work_entries - batch->waited_entries;
	counter_raise(&stats->waited_lines, batch->waited_lines);
	counter_raise(&stats->waited_entries, batch->waited_entries);
	worker->spent = FETCH_CREDIT;
}

static void run_slice(struct worker *worker, struct batch *batch)
{
	worker->spent = worker->paid = 0;
	if (!batch->begun) {
		begin(worker, batch);
		if (batch->cache.reason != DMASYNC_REASON_NONE) {
			worker_pay(worker, batch);
			worker_fail_batch(worker, batch, batch->cache.reason, 0);
			return;
		}
	}
	if (batch->phase == BATCH_FENCE) {
		worker->spent += FENCES_CREDIT; /* another look at them, and mostly another poll */
		worker_pay(worker, batch);
		if (!worker_await_fences(worker, batch))
			return;
		batch->phase = BATCH_CHECK; /* which says DONE once more where it was through */
	}
	if (batch->phase == BATCH_CHECK && !check(worker, batch))
		return;
	if (worker_split_begin(worker, batch))
		worker_split_slice(worker, batch);
	else
		issue(worker, batch);
}

/*
 * The clock is looked at once for a slice at most, and not at all where the batch completes in it:
 * a slice begins where the last one has ended, or its batch was fetched.
 */
void worker_run_batch(struct worker *worker, struct batch *batch)
{
	struct worker_slice slice = {.start_ns = worker->slice_end_ns};

	if (!batch->begun && batch->fetched_ns > slice.start_ns)
		slice.start_ns = batch->fetched_ns;
	worker_slice_begins(worker, batch, &slice);
	counter_add(&worker->stats.klass[batch->flow->klass].slices, 1);
	worker->slice_end_ns = 0;
	run_slice(worker, batch);
	if (!worker->slice_end_ns)
		worker->slice_end_ns = clock_ns();
	worker_slice_ends(worker, batch, &slice);
}

void worker_finish_jobs(struct worker *worker)
{
	struct mailbox_node *node = mailbox_take(&worker->jobs);

	while (node) {
		struct kernel_sync *sync = (struct kernel_sync *)node;
		struct batch *batch =
			(struct batch *)((char *)sync - offsetof(struct batch, kernel));

		node = node->next;
		counter_add(&worker->stats.kernel_syncs, sync->calls);
		batch->end_ns = clock_ns();
		if (batch->cancelled)
			worker_fail_batch(worker, batch, DMASYNC_REASON_CANCELLED, 0);
		else if (sync->error < 0)
			worker_fail_batch(worker, batch, DMASYNC_REASON_KERNEL_SYNC, sync->error);
		else
			worker_complete_batch(worker, batch);
	}
}

void worker_cancel_batch(struct worker *worker, struct batch *batch)
{
	batch->cancelled = true;
	switch (batch->phase) {
	case BATCH_FREE:
	case BATCH_ISSUED: /* ends behind the next barrier */
	case BATCH_PARKED: /* the helper has it: ends in worker_finish_jobs() */
		return;
	case BATCH_CHECK:
	case BATCH_ISSUE:
		scheduler_remove(&worker->scheduler, batch->flow);
		worker_release_cpu(worker);
		worker_fail_batch(worker, batch, DMASYNC_REASON_CANCELLED, 0);
		return;
	case BATCH_SPLIT: /* ends when no worker is at it any more */
		worker_split_cancel(batch);
		return;
	case BATCH_FENCE:
		if (batch->fence_armed) { /* ends when its poll does */
			worker->wait.ops->cancel_fence(worker, batch);
			return;
		}
		scheduler_remove(&worker->scheduler, batch->flow);
		worker_fail_batch(worker, batch, DMASYNC_REASON_CANCELLED, 0);
		return;
	}
}
