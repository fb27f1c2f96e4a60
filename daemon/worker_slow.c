/* SPDX-License-Identifier: MIT */
/*
 * Queues whose slices overran, and how they get to the slow worker. On the thread of the worker
 * that is passed.
 *
 * A line operation that faults may take any time: its client punches holes into the memfd it shares
 * with us, which no seal forbids to who may write. The slice cannot be left in the middle of that,
 * so the others have waited already when it is noticed: what can be done is that it happens a few
 * times and not for ever.
 *
 * The rule: a slice overran that took longer than worker->overrun_ns, and in which this thread had
 * a page fault. (A thread that lost its CPU was late, too, but its client has not done that.) When
 * overruns_to_move of one connection have, each within FORGET_NS of the one before, the queue
 * or message whose slice was the last of them leaves; so does any other of the connection at its
 * first. Faults are counted around each slice for WATCH_NS after one: the first overrun since then
 * is nobody's, it only starts that. So does a fault in a publish before, which is no part of a
 * slice as long as they are not counted: it shows as a long time before the next fetch or sleep. A
 * look at a ring that faults finds zeroes, which end the queue.
 *
 * What leaves is fetched from no more. Once no request of our ring knows it and no other thread has
 * its batch, it goes to the control thread with the batch as it is, and from there to the slow
 * worker. There a batch that was being checked goes on; one that was being issued begins again
 * at its first line, since our barrier waits for what this CPU has issued, not for that. Operations
 * are idempotent, and it is published there alone. What the client wrote before it submitted came
 * before our acquire of the slot, and by the two mailboxes comes before the slow worker's opening
 * fence.
 */
#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/worker_internal.h"

#define WATCH_NS UINT64_C(1000000000)
#define FORGET_NS UINT64_C(10000000000)
#define NICE 10 /* what it serves has no bound to keep */

void worker_slow_begin(struct worker *worker)
{
	(void)worker;
	/* Of this thread alone. Refused, it is as any other one. */
	(void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
}

uint64_t worker_count_faults(struct worker *worker)
{
	struct rusage usage;
	uint64_t faults;

	if (getrusage(RUSAGE_THREAD, &usage) < 0)
		return 0;
	faults = (uint64_t)(usage.ru_minflt + usage.ru_majflt);
	atomic_store_explicit(&worker->stats.page_faults, faults, memory_order_relaxed);
	return faults;
}

/* ---- slices ---- */

void worker_slice_begins(struct worker *worker, const struct batch *batch,
			 struct worker_slice *slice)
{
	slice->owner = batch->owner;
	slice->queue = batch->queue;
	slice->syncs = worker->sync_count;
	slice->counted = false;
	if (!worker->suspect_until_ns)
		return;
	slice->start_ns = clock_ns();
	if (slice->start_ns > worker->suspect_until_ns) {
		worker->suspect_until_ns = 0;
		return;
	}
	slice->counted = true;
	slice->faults = worker_count_faults(worker);
}

bool worker_slice_counts(struct worker *worker, const struct worker_slice *slice, uint64_t end_ns)
{
	uint64_t before = atomic_load_explicit(&worker->stats.page_faults, memory_order_relaxed);
	uint64_t faults = worker_count_faults(worker);
	struct batch_owner *owner = slice->owner;

	counter_add(&worker->stats.slice_overruns, 1);
	if (faults == before)
		return false;
	worker->suspect_until_ns = end_ns + WATCH_NS;
	if (!slice->counted || faults == slice->faults)
		return false;
	/* Relaxed: several workers may count; an overrun more or less does not matter. */
	if (end_ns - atomic_exchange_explicit(&owner->overran_ns, end_ns, memory_order_relaxed) >
	    FORGET_NS)
		atomic_store_explicit(&owner->overruns, 0, memory_order_relaxed);

	uint32_t overruns =
		atomic_fetch_add_explicit(&owner->overruns, 1, memory_order_relaxed) + 1;

	return worker->params.overruns_to_move && overruns >= worker->params.overruns_to_move &&
	       !worker->params.slow && !worker->stop;
}

void worker_slice_ends(struct worker *worker, struct batch *batch, const struct worker_slice *slice)
{
	/* The result was published after slice_end_ns: that may have faulted, too. */
	uint64_t end_ns = slice->counted ? clock_ns() : worker->slice_end_ns;

	if (end_ns - slice->start_ns <= worker->overrun_ns ||
	    !worker_slice_counts(worker, slice, end_ns))
		return;
	/* A message that has completed is gone, and what stands in `batch` with it. */
	if (slice->queue || worker->sync_count == slice->syncs)
		worker_batch_leaves(worker, batch);
}

void worker_suspect(struct worker *worker, uint64_t now)
{
	uint64_t before = atomic_load_explicit(&worker->stats.page_faults, memory_order_relaxed);

	if (worker_count_faults(worker) != before)
		worker->suspect_until_ns = now + WATCH_NS;
}

/* ---- away ---- */

bool worker_batch_is_to_leave(struct worker *worker, struct batch *batch)
{
	struct queue *queue = batch->queue;

	if (batch->leaving || batch->cancelled || worker->stop ||
	    (queue && (queue->broken || queue->stopping)))
		return false;
	batch->leaving = true;
	if (queue) {
		worker->wait.ops->cancel_doorbell(worker, queue);
		worker_client_due(worker, batch->client);
	}
	return true;
}

void worker_batch_leaves(struct worker *worker, struct batch *batch)
{
	if (!worker_batch_is_to_leave(worker, batch))
		return;
	switch (batch->phase) {
	case BATCH_FREE:
	case BATCH_ISSUED: /* completes behind the next barrier */
	case BATCH_PARKED: /* the helper has it: completes in worker_finish_jobs() */
		break;
	case BATCH_CHECK:
	case BATCH_ISSUE:
		worker_resume_batch(worker, batch);
		break;
	case BATCH_SPLIT: /* when no worker is at it any more */
		worker_split_again(batch);
		break;
	case BATCH_FENCE: /* its poll is of our ring: the slow worker makes another */
		if (batch->fence_armed)
			worker->wait.ops->cancel_fence(worker, batch);
		else
			worker_resume_batch(worker, batch);
		break;
	}
}

void worker_resume_batch(struct worker *worker, struct batch *batch)
{
	if (!batch->leaving || batch->cancelled || worker->stop) {
		scheduler_add(&worker->scheduler, batch->flow, batch);
		return;
	}
	scheduler_remove(&worker->scheduler, batch->flow);
	worker_release_cpu(worker);
	if (batch->queue) {
		worker_client_due(worker, batch->client);
		return;
	}
	batch->sync->elsewhere = true;
	worker_sync_done(worker, batch->sync);
}

void worker_queue_stays(struct worker *worker, struct queue *queue)
{
	struct batch *batch = &queue->batch;

	if (!batch->leaving)
		return;
	batch->leaving = false;
	if (batch->phase == BATCH_CHECK || batch->phase == BATCH_ISSUE ||
	    (batch->phase == BATCH_FENCE && !batch->fence_armed))
		scheduler_add(&worker->scheduler, batch->flow, batch);
	worker_watch_again(worker, queue);
}

bool worker_queue_may_leave(const struct queue *queue)
{
	const struct batch *batch = &queue->batch;

	if (!batch->leaving || queue->doorbell_armed)
		return false;
	switch (batch->phase) {
	case BATCH_FREE:
	case BATCH_CHECK:
	case BATCH_ISSUE:
		return true;
	case BATCH_FENCE:
		return !batch->fence_armed;
	case BATCH_SPLIT:
	case BATCH_ISSUED:
	case BATCH_PARKED:
		return false;
	}
	return false;
}

void worker_queue_leaves(struct worker *worker, struct queue *queue)
{
	struct worker_command *move = queue->move;

	queue->batch.leaving = false;
	queue->stopping = queue->recent = false;
	queue->remove = NULL;
	queue->moved = true;
	move->type = WORKER_QUEUE_MOVED;
	move->queue = queue;
	move->client = queue->client;
	worker_answer(worker, move);
}

/* ---- here ---- */

void worker_queue_comes(struct queue *queue)
{
	dmasync_ring_announce_move(&queue->ring.header->ring_always);
}

void worker_batch_comes(struct worker *worker, struct batch *batch)
{
	batch->leaving = false;
	if (batch->phase == BATCH_FREE)
		return;
	/* Before those that are fetched from now on: grace periods compare these. */
	batch->fetch_order = worker->batch_count++;
	if (batch->phase == BATCH_ISSUE) {
		batch->flags |= DMASYNC_COMPLETION_REISSUED;
		counter_add(&worker->stats.reissued, 1);
		cache_batch_rewind(&batch->cache);
		worker_open_batch(worker, batch);
	}
	worker->slice_end_ns = clock_ns(); /* its next slice does not start before */
	scheduler_add(&worker->scheduler, batch->flow, batch);
}
