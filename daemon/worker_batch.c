/* SPDX-License-Identifier: MIT */
/*
 * A batch from fetch to publish: fetched, copied and checked a chunk at a time, issued a slice at a
 * time, waited for once, published. Worker thread only.
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/guard.h"
#include "daemon/worker_internal.h"

/* After so many changes of CPU under one batch an unpinned worker holds on to the CPU it is on. */
#define REISSUES_BEFORE_HOLD 2u

static int errno_of(enum dmasync_reason reason)
{
	static const int errors[] = {
#define ERRNO_OF(name, value, error, text) [value] = error,
		DMASYNC_REASONS(ERRNO_OF)
#undef ERRNO_OF
	};

	return errors[reason];
}

static const struct cache_buffer *lookup(void *context, uint32_t handle)
{
	const struct buffer *buffer = buffer_table_get(context, handle);

	return buffer ? &buffer->cache : NULL;
}

/* ---- the end of a batch ---- */

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
	uint64_t end_ns = batch->barrier_end_ns;
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

static void complete_batch(struct worker *worker, struct batch *batch)
{
	const struct cache_batch *cache = &batch->cache;
	struct dmasync_ring_completion completion = {
		.user_data = batch->user_data,
		.entries = cache->entries,
		.flags = batch->flags,
		.lines = cache->lines,
		.bytes = cache->lines * worker->params.cache->line,
		.queued_ns = batch->fetched_ns - batch->submit_ns,
		.issue_ns = batch->issue_end_ns - batch->issue_start_ns,
		.barrier_ns = batch->barrier_end_ns - batch->issue_end_ns,
		.batch_id = batch->id,
		.bad_entry = DMASYNC_NO_ENTRY,
		.elided = cache->elided,
	};

	if (cache->no_guarantee)
		completion.flags |= DMASYNC_COMPLETION_NO_GUARANTEE;
	publish(worker, batch, &completion);
}

static void fail_batch(struct worker *worker, struct batch *batch, enum dmasync_reason reason,
		       int error)
{
	struct dmasync_ring_completion completion = {
		.status = error ? error : -errno_of(reason),
		.user_data = batch->user_data,
		.entries = batch->cache.entries,
		.flags = batch->flags,
		.queued_ns = batch->fetched_ns - batch->submit_ns,
		.batch_id = batch->id,
		.bad_entry = batch->cache.bad_entry,
		.reason = reason,
	};

	batch->barrier_end_ns = clock_ns();
	publish(worker, batch, &completion);
}

/* ---- fetch ---- */

static void begin_batch(struct worker *worker, struct batch *batch)
{
	batch->phase = BATCH_CHECK;
	batch->fetch_order = worker->batch_count++;
	batch->id = batch->fetch_order * 64 + worker->params.index + 1;
	batch->flags = 0;
	batch->reissues = 0;
	batch->copied = 0;
	batch->cancelled = false;
	batch->suspect_time = false;
	batch->fetched_ns = clock_ns();
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

bool worker_queue_has_work(struct worker *worker, struct queue *queue)
{
	(void)worker;
	if (queue->batch.phase != BATCH_FREE || queue->broken || queue->stopping ||
	    (queue->draining && queue->fetched == queue->drain_end))
		return false;
	return dmasync_ring_poll_submission(&queue->ring, queue->fetched) != DMASYNC_RING_EMPTY &&
	       has_room(worker, queue);
}

/* The submission is the private copy. NONE, or why the batch fails before its units are looked at.
 */
static enum dmasync_reason prepare(struct queue *queue, struct batch *batch,
				   const struct dmasync_submission *submission)
{
	uint32_t count = submission->unit_count;

	if (count == 0) {
		batch->inline_unit.entry = submission->entry;
		cache_batch_begin(&batch->cache, &batch->inline_unit, 0, 0, 1);
		batch->copied = 1;
	} else {
		cache_batch_begin(&batch->cache, queue->mirror, queue->ring.unit_count - 1,
				  submission->unit_position, count);
	}
	if (submission->flags)
		return DMASYNC_REASON_BAD_FLAGS;
	if (submission->deadline_us | submission->reserved[0] | submission->reserved[1] |
	    submission->reserved[2])
		return DMASYNC_REASON_RESERVED_BITS;
	if (count > queue->ring.unit_count)
		return DMASYNC_REASON_TOO_MANY_UNITS;
	if (count == 0 && !(submission->entry.word | submission->entry.length) &&
	    submission->entry.offset == 0)
		return DMASYNC_REASON_EMPTY_BATCH;
	if (count > 0 &&
	    (submission->entry.word | submission->entry.length || submission->entry.offset))
		return DMASYNC_REASON_RESERVED_BITS;
	return DMASYNC_REASON_NONE;
}

bool worker_poll_queue(struct worker *worker, struct queue *queue)
{
	struct dmasync_submission submission;
	struct batch *batch = &queue->batch;

	if (!worker_queue_has_work(worker, queue))
		return false;
	if (dmasync_ring_poll_submission(&queue->ring, queue->fetched) == DMASYNC_RING_BROKEN) {
		break_queue(worker, queue, "a submission slot carries a seq of another lap");
		return false;
	}

	dmasync_ring_copy_submission(&queue->ring, queue->fetched, &submission);
	queue->fetched++;
	begin_batch(worker, batch);
	batch->user_data = submission.user_data;
	check_time(batch, submission.submit_ns, queue->created_ns);

	enum dmasync_reason reason = prepare(queue, batch, &submission);

	if (reason == DMASYNC_REASON_NONE)
		scheduler_add(&worker->scheduler, batch);
	else
		fail_batch(worker, batch, reason, 0);
	return true;
}

void worker_start_sync(struct worker *worker, struct worker_command *command)
{
	struct batch *batch = &command->batch;

	*batch = (struct batch){
		.sync = command,
		.buffers = command->buffers,
		.owner = command->owner,
		.user_data = command->user_data,
	};
	begin_batch(worker, batch);
	check_time(batch, command->submit_ns, 0);
	cache_batch_begin(&batch->cache, command->units, command->units_size - 1, 0,
			  command->count);
	batch->copied = command->count; /* the message was the copy */
	scheduler_add(&worker->scheduler, batch);
}

/* ---- check ---- */

static enum cache_check check_chunk(struct worker *worker, struct batch *batch)
{
	struct cache_batch *cache = &batch->cache;
	uint32_t available = cache->checked + CHECK_CHUNK;

	if (available > cache->count)
		available = cache->count;
	/* Each unit is copied once, into its place in the mirror; only the copy is looked at. */
	if (batch->copied < available) {
		dmasync_ring_copy_units(&batch->queue->ring, cache->first + batch->copied,
					available - batch->copied, &batch->queue->mirror->entry);
		batch->copied = available;
	}
	return cache_batch_check(cache, available, worker->params.cache->line,
				 worker->params.max_batch_lines, lookup, (void *)batch->buffers);
}

/* ---- issue ---- */

/*
 * The client's stores, seen through the acquire of its slot, come before the first line operation:
 * a line operation is ordered by itself only against accesses to its own line.
 */
static void open_batch(struct worker *worker, struct batch *batch)
{
	const struct cache_ops *ops = &worker->params.cache->ops;

	batch->cpu = sched_getcpu();
	batch->barrier_mark = worker->barriers;
	batch->own_lines = 0;
	if (ops->open)
		ops->open();
}

struct slice {
	struct worker *worker;
	struct batch *batch;
	bool done;
};

static void issue_slice(void *argument)
{
	struct slice *slice = argument;

	cache_batch_issue(&slice->batch->cache, slice->worker->params.cache,
			  slice->worker->params.slice_lines, &slice->done);
}

static void fault(struct worker *worker, struct batch *batch)
{
	struct queue *queue = batch->queue;

	counter_add(&worker->stats.faults, 1);
	batch->cache.lines = 0;
	fail_batch(worker, batch, DMASYNC_REASON_FAULT, 0);
	if (!queue || queue->broken)
		return;
	queue->broken = true;
	queue->event->type = WORKER_FAULT;
	queue->event->queue = queue;
	queue->event->client = queue->client;
	worker_answer(worker, queue->event);
}

/*
 * The barrier waits for what its own CPU issued. A pinned worker never changes CPU unless that one
 * goes offline; where it has, nothing is known about the lines issued on the other one, and
 * the batch is issued again. (arm64 Linux also completes maintenance in __switch_to.) The look
 * comes after the barrier, so a change between the last operation and the barrier is seen too.
 */
static bool changed_cpu(struct worker *worker, struct batch *batch)
{
	int cpu = sched_getcpu();

	if (cpu == batch->cpu)
		return false;
	if (++batch->reissues > REISSUES_BEFORE_HOLD && worker->params.cpu < 0 && cpu >= 0) {
		cpu_set_t here;

		CPU_ZERO(&here);
		CPU_SET((unsigned)cpu, &here);
		if (!worker->holding_cpu &&
		    sched_getaffinity(0, sizeof worker->home, &worker->home) == 0 &&
		    sched_setaffinity(0, sizeof here, &here) == 0)
			worker->holding_cpu = true;
	}
	counter_add(&worker->stats.reissued, 1);
	batch->flags |= DMASYNC_COMPLETION_REISSUED;
	return true;
}

static void release_cpu(struct worker *worker)
{
	if (!worker->holding_cpu)
		return;
	sched_setaffinity(0, sizeof worker->home, &worker->home);
	worker->holding_cpu = false;
}

/*
 * ONE barrier, after the last operation of the batch and before its publish. It waits for all that
 * this CPU has issued, other batches' slices included: then the completion says MIXED.
 */
static void execute_barrier(struct worker *worker, struct batch *batch)
{
	const struct cache_ops *ops = &worker->params.cache->ops;

	if (worker->unfinished_lines > batch->own_lines)
		batch->flags |= DMASYNC_COMPLETION_MIXED;
	if (ops->complete)
		ops->complete(batch->cache.flushes);
	worker->barriers++;
	worker->unfinished_lines = 0;
	counter_add(&worker->stats.barriers, 1);
}

static void park(struct worker *worker, struct batch *batch)
{
	batch->phase = BATCH_PARKED;
	batch->flags |= DMASYNC_COMPLETION_KERNEL;
	kernel_sync_prepare(&batch->kernel, &batch->cache, batch->owner->client_id, &worker->jobs,
			    worker->wake_fd);
	helpers_submit(worker->params.helpers, &batch->kernel.job);
}

static void issue(struct worker *worker, struct batch *batch)
{
	struct slice slice = {.worker = worker, .batch = batch};
	uint64_t before = batch->cache.lines;

	if (batch->barrier_mark != worker->barriers) { /* another batch's barrier came between */
		batch->barrier_mark = worker->barriers;
		batch->own_lines = 0;
	}
	if (!guard_run(issue_slice, &slice)) {
		fault(worker, batch);
		return;
	}
	batch->own_lines += batch->cache.lines - before;
	worker->unfinished_lines += batch->cache.lines - before;
	if (!slice.done) {
		worker->again = batch;
		return;
	}

	batch->issue_end_ns = clock_ns();
	execute_barrier(worker, batch);
	batch->barrier_end_ns = clock_ns();
	if (changed_cpu(worker, batch)) {
		cache_batch_rewind(&batch->cache);
		open_batch(worker, batch);
		worker->again = batch;
		return;
	}
	release_cpu(worker);
	if (batch->cache.kernel)
		park(worker, batch);
	else
		complete_batch(worker, batch);
}

void worker_run_batch(struct worker *worker, struct batch *batch)
{
	if (batch->phase == BATCH_CHECK) {
		switch (check_chunk(worker, batch)) {
		case CACHE_CHECK_MORE:
			worker->again = batch;
			return;
		case CACHE_CHECK_FAILED:
			fail_batch(worker, batch, batch->cache.reason, 0);
			return;
		case CACHE_CHECK_DONE:
			break;
		}
		batch->phase = BATCH_ISSUE;
		batch->issue_start_ns = clock_ns();
		open_batch(worker, batch);
	}
	issue(worker, batch);
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
		batch->barrier_end_ns = clock_ns();
		if (batch->cancelled)
			fail_batch(worker, batch, DMASYNC_REASON_CANCELLED, 0);
		else if (sync->error < 0)
			fail_batch(worker, batch, DMASYNC_REASON_KERNEL_SYNC, sync->error);
		else
			complete_batch(worker, batch);
	}
}

void worker_cancel_batch(struct worker *worker, struct batch *batch)
{
	batch->cancelled = true;
	switch (batch->phase) {
	case BATCH_FREE:
	case BATCH_PARKED: /* the helper has it: ends in worker_finish_jobs() */
		return;
	case BATCH_CHECK:
	case BATCH_ISSUE:
		scheduler_remove(&worker->scheduler, batch);
		release_cpu(worker);
		fail_batch(worker, batch, DMASYNC_REASON_CANCELLED, 0);
		return;
	}
}
