/* SPDX-License-Identifier: MIT */
/*
 * A large batch that several workers issue: its home worker, that of its queue, asks those that
 * have nothing to do, and each takes a chunk after the other until none is left. On the thread of
 * whichever worker is passed.
 *
 * The ordering argument. The client's stores come before the home worker's acquire of the slot; the
 * home worker's release of `help` and the helper's acquire carry that on (release and acquire are
 * cumulative), and the helper's own opening fence puts it before the helper's first line operation,
 * as in worker_open_batch(). The checked runs, constant from then on, are handed over the same way.
 *
 * Back: each helper executes a barrier of its own, on the CPU that issued its chunks, and then
 * subtracts itself from `parts`, acquire and release. Who comes to 0 has therefore seen the ends of
 * all others and hands the batch to the home worker (release in mailbox_post(), acquire in
 * mailbox_take()), who publishes after that. So no line of the batch is outstanding on any CPU.
 *
 * Until then the batch is not FREE: a grace period, a client's removal and a drain, which look at
 * the home worker's batches alone, wait for the helpers, too, and no buffer is unmapped under them.
 * The batch is the helper's to look at only up to its subtraction.
 */
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/config.h"
#include "daemon/guard.h"
#include "daemon/worker_internal.h"

enum split_flag {
	SPLIT_STOP = 1u << 0,	 /* take nothing more: cancelled, or it has faulted */
	SPLIT_FAULT = 1u << 1,	 /* a line operation has faulted */
	SPLIT_CHANGED = 1u << 2, /* a CPU changed between opening fence and barrier */
	SPLIT_MIXED = 1u << 3,	 /* a helper's barrier waited for lines of its own batches */
	SPLIT_OVERRAN = 1u << 4, /* a part of it took too long: no longer shared */
};

/* Stands in `help` of a worker that has ended: no batch is there. */
static struct batch closed;

static_assert(CONFIG_CPUS_MAX <= 64, "a bit of split->takers for each worker");

/* Below this a chunk is not worth its taking. */
#define CHUNK_LINES 512u

static void set_flags(struct batch *batch, uint32_t flags)
{
	/* Relaxed: SPLIT_STOP is a hint; the others are read after `parts` has come to 0. */
	atomic_fetch_or_explicit(&batch->split.flags, flags, memory_order_relaxed);
}

static void wake(struct worker *worker)
{
	/* Posted before, and the fence inside: as in worker_post(). */
	if (dmasync_ring_is_sleeping(&worker->page->sleeping)) {
		ssize_t n = write(worker->wake_fd, &(uint64_t){1}, sizeof(uint64_t));

		(void)n; /* a full counter has already woken it */
	}
}

/* ---- chunks ---- */

enum take {
	TAKE_CHUNK, /* and something is left */
	TAKE_LAST,  /* a chunk, and nothing is left */
	TAKE_BUSY,  /* another worker is taking one: try again in the next turn */
	TAKE_END,   /* nothing is left */
};

/*
 * Nobody waits for the cursor: who holds it may have been preempted, and the other has queues to
 * look after. *budget is the most, and then what was taken; `chunk` becomes a walk of its own over
 * the units, which are only read.
 */
static enum take take_chunk(struct worker *worker, struct batch *batch, struct cache_batch *chunk,
			    uint32_t *budget)
{
	struct split *split = &batch->split;
	struct cache_batch *cursor = &batch->cache;

	if (atomic_load_explicit(&split->flags, memory_order_relaxed) & SPLIT_STOP)
		return TAKE_END;
	/* Acquire: pairs with the release below, the cursor as its last mover left it. */
	if (atomic_exchange_explicit(&split->moving, true, memory_order_acquire))
		return TAKE_BUSY;

	enum take take = TAKE_END;

	if (!split->all_taken) {
		/* Towards the end chunks get smaller, so that all workers end at one time. */
		uint64_t left = cursor->lines_bound - cursor->lines;
		uint64_t share =
			left / (2 * atomic_load_explicit(&split->parts, memory_order_relaxed));

		if (share < CHUNK_LINES)
			share = CHUNK_LINES;
		if (*budget > share)
			*budget = (uint32_t)share;
		*chunk = *cursor;
		chunk->lines = chunk->bytes = 0;
		cache_batch_skip(cursor, worker->params.cache, *budget, &split->all_taken);
		split->takers |= UINT64_C(1) << worker->params.index;
		take = split->all_taken ? TAKE_LAST : TAKE_CHUNK;
	}
	/* Release: pairs with the acquire above. */
	atomic_store_explicit(&split->moving, false, memory_order_release);
	return take;
}

struct slice {
	struct cache_batch *chunk;
	const struct cache *cache;
	uint32_t budget;
};

static void issue_slice(void *argument)
{
	struct slice *slice = argument;
	bool done;

	cache_batch_issue(slice->chunk, slice->cache, slice->budget, &done);
	KILL_POINT("mid-issue");
}

/* Returns the lines issued. A fault ends the batch for all. */
static uint64_t issue_chunk(struct worker *worker, struct batch *batch, struct cache_batch *chunk,
			    uint32_t budget)
{
	struct slice slice = {.chunk = chunk, .cache = worker->params.cache, .budget = budget};

	if (guard_run(issue_slice, &slice))
		return chunk->lines;
	set_flags(batch, SPLIT_FAULT | SPLIT_STOP);
	return budget; /* at most */
}

/* ---- the end ---- */

/* On its home worker: no other worker looks at the batch any more. */
static void end_batch(struct worker *worker, struct batch *batch)
{
	uint32_t flags = atomic_load_explicit(&batch->split.flags, memory_order_relaxed);

	batch->end_ns = batch->barrier_end_ns = clock_ns();
	if (batch->cancelled) {
		worker_release_cpu(worker);
		worker_fail_batch(worker, batch, DMASYNC_REASON_CANCELLED, 0);
		return;
	}
	if (flags & SPLIT_FAULT) {
		worker_fault_batch(worker, batch);
		return;
	}
	if (flags & (SPLIT_CHANGED | SPLIT_OVERRAN)) {
		/*
		 * Which chunks that CPU had issued is not known any more: the whole batch again,
		 * and this time the home worker alone, who can hold on to its CPU.
		 */
		batch->phase = BATCH_ISSUE;
		batch->reissues = 1;
		batch->flags |= DMASYNC_COMPLETION_REISSUED;
		counter_add(&worker->stats.reissued, 1);
		cache_batch_rewind(&batch->cache);
		worker_open_batch(worker, batch);
		worker->slice_end_ns = batch->end_ns; /* no slice has lasted since */
		if (flags & SPLIT_OVERRAN)
			worker_batch_is_to_leave(worker, batch);
		worker_resume_batch(worker, batch);
		return;
	}
	if (flags & SPLIT_MIXED)
		batch->flags |= DMASYNC_COMPLETION_MIXED;
	if (batch->split.takers & (batch->split.takers - 1)) {
		batch->workers = (uint32_t)__builtin_popcountll(batch->split.takers);
		batch->flags |= DMASYNC_COMPLETION_SPLIT;
		counter_add(&worker->stats.batches_split, 1);
		counter_add(&worker->stats.parts, batch->workers);
	}
	worker_batch_waited_for(worker, batch);
}

/* The caller's barrier is executed, and it takes nothing more. True: it was the last one. */
static bool leave(struct batch *batch)
{
	/* Acquire and release: of all that ended before, for whoever comes to 0. */
	return atomic_fetch_sub_explicit(&batch->split.parts, 1, memory_order_acq_rel) == 1;
}

void worker_split_ended(struct worker *worker)
{
	struct mailbox_node *node = mailbox_take(&worker->ended);

	while (node) {
		struct split *split = (struct split *)node;
		struct batch *batch =
			(struct batch *)((char *)split - offsetof(struct batch, split));

		node = node->next;
		worker->splits_out--;
		end_batch(worker, batch);
	}
}

/* ---- home ---- */

static bool may_ask(const struct worker *peer)
{
	/* Relaxed, both: hints. What counts is the exchange in ask(). */
	return atomic_load_explicit(&peer->free, memory_order_relaxed) &&
	       !atomic_load_explicit(&peer->help, memory_order_relaxed);
}

/* Who was busy when the batch began may be free at its next slice. */
static void ask(struct worker *worker, struct batch *batch)
{
	struct split *split = &batch->split;

	for (uint32_t i = 0; i < worker->params.count; i++) {
		struct worker *peer = worker->params.peers[i];
		struct batch *none = NULL;

		if (peer == worker || !may_ask(peer))
			continue;
		/* Ours is among them, so that nobody comes to 0 meanwhile. */
		atomic_fetch_add_explicit(&split->parts, 1, memory_order_relaxed);
		/* Release: the runs, and what the client did. Pairs with worker_split_help(). */
		if (atomic_compare_exchange_strong_explicit(
			    &peer->help, &none, batch, memory_order_release, memory_order_relaxed))
			wake(peer);
		else
			atomic_fetch_sub_explicit(&split->parts, 1, memory_order_relaxed);
	}
}

bool worker_split_begin(struct worker *worker, struct batch *batch)
{
	struct split *split = &batch->split;
	bool found = false;

	if (batch->phase == BATCH_SPLIT)
		return true;
	/* The second pass of an erratum is one over all of a batch: it is not shared. */
	if (worker->params.cache->second_pass || worker->params.split_lines == 0 ||
	    !worker->params.peers || batch->reissues ||
	    batch->cache.lines_bound - batch->cache.lines <= worker->params.split_lines)
		return false;
	for (uint32_t i = 0; i < worker->params.count && !found; i++)
		found = worker->params.peers[i] != worker && may_ask(worker->params.peers[i]);
	if (!found)
		return false;

	batch->phase = BATCH_SPLIT;
	split->home = worker;
	split->all_taken = false;
	split->takers = 0;
	/* Relaxed: nobody else knows of it before ask(). */
	atomic_store_explicit(&split->moving, false, memory_order_relaxed);
	atomic_store_explicit(&split->parts, 1, memory_order_relaxed);
	atomic_store_explicit(&split->flags, 0, memory_order_relaxed);
	return true;
}

static void wait_for_helpers(struct worker *worker, struct batch *batch)
{
	scheduler_remove(&worker->scheduler, batch->flow); /* until it is back */
	worker->splits_out++;
	worker->splits_out_ns = batch->issue_end_ns;
}

/*
 * A chunk near the end is short, and to sleep and be woken would take longer. A helper that is not
 * running just now may need any time: not for that, and never longer than workers may look on.
 */
bool worker_split_is_awaited(const struct worker *worker)
{
	uint32_t us = worker->params.slice_us < worker->params.spin_us ? worker->params.slice_us
								       : worker->params.spin_us;

	return worker->splits_out && clock_ns() - worker->splits_out_ns < us * UINT64_C(1000);
}

static void end_home_part(struct worker *worker, struct batch *batch)
{
	batch->issue_end_ns = clock_ns();
	if (worker->unfinished_lines > batch->own_lines)
		batch->flags |= DMASYNC_COMPLETION_MIXED;
	if (worker_execute_barrier(worker, batch->cache.flushes) != batch->cpu)
		set_flags(batch, SPLIT_CHANGED);
	if (leave(batch))
		end_batch(worker, batch);
	else
		wait_for_helpers(worker, batch);
}

void worker_split_slice(struct worker *worker, struct batch *batch)
{
	struct cache_batch chunk;
	uint32_t budget = worker_credit_left(worker);

	switch (take_chunk(worker, batch, &chunk, &budget)) {
	case TAKE_END:
		end_home_part(worker, batch);
		return;
	case TAKE_BUSY:
		return;
	case TAKE_CHUNK:
		ask(worker, batch);
		break;
	case TAKE_LAST:
		break;
	}
	if (batch->barrier_mark != worker->barriers) { /* another batch's barrier came between */
		batch->barrier_mark = worker->barriers;
		batch->own_lines = 0;
	}

	uint64_t lines = issue_chunk(worker, batch, &chunk, budget);

	batch->own_lines += lines;
	worker->unfinished_lines += lines;
	worker->work_lines += lines;
	worker->spent += budget;
	worker_pay(worker, batch);
}

void worker_split_cancel(struct batch *batch)
{
	set_flags(batch, SPLIT_STOP);
}

void worker_split_again(struct batch *batch)
{
	set_flags(batch, SPLIT_STOP | SPLIT_OVERRAN);
}

/* ---- helper ---- */

/*
 * Our barrier, on the CPU that issued our chunks, after the last and before the batch is handed
 * back. It flushes in any case where the batch does: which chunk held a flush is not known.
 */
static void end_part(struct worker *worker, struct batch *batch)
{
	struct split_part *part = &worker->part;
	struct worker *home = batch->split.home;

	if (part->open) {
		if (worker_execute_barrier(worker, batch->cache.flushes) != part->cpu)
			set_flags(batch, SPLIT_CHANGED);
		if (part->mixed)
			set_flags(batch, SPLIT_MIXED);
		part->open = false;
	}
	/* Relaxed: free to be asked again, and only the word itself is handed over. */
	atomic_store_explicit(&worker->help, NULL, memory_order_relaxed);
	if (leave(batch)) {
		mailbox_post(&home->ended, &batch->split.node);
		wake(home);
	}
}

static void open_part(struct worker *worker)
{
	const struct cache_ops *ops = &worker->params.cache->ops;

	worker->part = (struct split_part){
		.cpu = worker_current_cpu(worker),
		.open = true,
		.mixed = worker->unfinished_lines > 0,
	};
	if (ops->open)
		ops->open();
}

bool worker_split_is_asked(struct worker *worker)
{
	struct batch *batch = atomic_load_explicit(&worker->help, memory_order_relaxed);

	return batch && batch != &closed;
}

/* One chunk. What it costs is charged to nobody: nothing of ours is runnable meanwhile. */
bool worker_split_help(struct worker *worker, bool busy)
{
	struct cache_batch chunk;
	uint32_t budget = worker->slice;
	/* Acquire: pairs with the release in ask(). */
	struct batch *batch = atomic_load_explicit(&worker->help, memory_order_acquire);

	if (atomic_load_explicit(&worker->free, memory_order_relaxed) == busy)
		atomic_store_explicit(&worker->free, !busy, memory_order_relaxed);
	if (!batch || batch == &closed)
		return false;
	if (busy) { /* our own work comes first */
		end_part(worker, batch);
		return true;
	}
	switch (take_chunk(worker, batch, &chunk, &budget)) {
	case TAKE_END:
		end_part(worker, batch);
		return true;
	case TAKE_BUSY:
		return true;
	case TAKE_CHUNK:
	case TAKE_LAST:
		break;
	}
	if (!worker->part.open)
		open_part(worker);

	struct worker_slice slice = {.start_ns = clock_ns()};

	worker_slice_begins(worker, batch, &slice);

	uint64_t lines = issue_chunk(worker, batch, &chunk, budget);
	uint64_t end_ns = clock_ns();

	if (end_ns - slice.start_ns > worker->overrun_ns &&
	    worker_slice_counts(worker, &slice, end_ns))
		worker_split_again(batch);

	worker->unfinished_lines += lines;
	worker->work_lines += lines;
	worker->spent = budget; /* our own queues are looked at accordingly */
	return true;
}

bool worker_split_close(struct worker *worker)
{
	struct batch *none = NULL;

	/* Relaxed: nothing is handed over. After it ask() finds the word taken. */
	return atomic_compare_exchange_strong_explicit(
		       &worker->help, &none, &closed, memory_order_relaxed, memory_order_relaxed) ||
	       none == &closed;
}
