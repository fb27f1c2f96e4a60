/* SPDX-License-Identifier: MIT */
/*
 * A batch on its way from units to line operations: checked, turned into runs in place, walked.
 * Owned by one thread; nothing here is shared, allocated or trusted to be read twice.
 *
 * The units are the caller's private copy, a mirror of the unit ring: same size, same places. Once
 * an entry is checked its units are overwritten by runs (addresses instead of handles and offsets),
 * never more runs than units were read, so the walk that follows neither looks anything up nor
 * checks anything.
 */
#ifndef DMASYNC_CACHE_BATCH_H
#define DMASYNC_CACHE_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/cache/cache.h"
#include "proto/ring.h"

/* Most lines of a batch, where no configuration says otherwise (max_batch_lines=). */
#define CACHE_BATCH_MAX_LINES 4194304

/* What a check must know of a buffer. Constant while a batch may name it. */
struct cache_buffer {
	uintptr_t base; /* page-aligned; unused by the kernel backend */
	uint64_t size;	/* bytes */
	enum dmasync_backend backend;
	bool guarantee; /* false: completions that used it say NO_GUARANTEE */
	bool fenced;	/* a dma-buf: its fences come before any operation, elided ones too */
};

/* Distinct buffers noted before the check pauses, so that the caller can wait for their fences. */
#define CACHE_BATCH_FENCES 16u

/* A buffer whose fences the batch has to wait for. */
struct cache_fence {
	const struct cache_buffer *buffer;
	bool readers; /* also the fences of who reads: something is to be written */
};

/* NULL where the handle names nothing. Called for each entry whose handle differs from the last. */
typedef const struct cache_buffer *(*cache_lookup)(void *context, uint32_t handle);

enum cache_run_op {
	CACHE_RUN_FLUSH = 1u << 0,     /* clean and drop; else clean */
	CACHE_RUN_SIMULATED = 1u << 1, /* by the simulated operations */
	CACHE_RUN_STRIDED = 1u << 2,   /* start and amount in bytes; rows follow in the next unit */
	CACHE_RUN_KERNEL = 1u << 3,    /* start: the buffer; amount: sync << 2 | direction */
};

struct cache_run {
	uint64_t start;	 /* address: of a whole line, or (strided) of the first byte */
	uint32_t amount; /* lines, or (strided) bytes of one row */
	uint32_t op;	 /* enum cache_run_op */
};

union cache_unit {
	struct dmasync_unit entry;
	struct dmasync_unit_rows rows;
	struct cache_run run;
};

struct cache_batch {
	union cache_unit *units; /* the mirror */
	uint32_t mask;		 /* its size - 1 */
	uint32_t first, count;	 /* the batch's units: position of the first, how many */

	/* check cursor */
	uint32_t checked;  /* units checked so far */
	uint32_t runs;	   /* units used by runs so far, <= checked */
	uint32_t last_run; /* index of the last plain run, to merge with; UINT32_MAX: none */
	uint32_t last_handle;
	const struct cache_buffer *last_buffer;
	uint32_t alike_word; /* of the last entry, where the next may be checked by its range alone
			      */
	uint32_t alike_op;

	/* what the check found */
	uint32_t entries, elided;
	uint64_t lines_bound; /* upper bound of lines, checked against the limit */
	bool flushes;	      /* at least one flush */
	bool kernel;	      /* at least one KERNEL run */
	bool no_guarantee;
	enum dmasync_reason reason;
	uint32_t bad_entry;

	/*
	 * CACHE_BATCH_FENCES of them, set by the caller after cache_batch_begin(); NULL: fences are
	 * nobody's business. The caller sets fence_count back to 0 between two calls of the check.
	 */
	struct cache_fence *fences;
	uint32_t fence_count;

	/* walk cursor */
	uint32_t run;	   /* next run */
	uint32_t progress; /* lines done of a plain run, or of the current row */
	uint32_t row;	   /* of a strided run */
	bool second;	   /* in the second pass, which struct cache asks for */
	uint64_t lines;	   /* operations issued so far, by both passes */
	uint64_t bytes;	   /* what they cover: simulated lines have a size of their own */
};

/* A batch of `count` units from `first`; mask + 1 units in the mirror. */
void cache_batch_begin(struct cache_batch *batch, union cache_unit *units, uint32_t mask,
		       uint32_t first, uint32_t count);

enum cache_check {
	CACHE_CHECK_MORE,   /* all of `available` checked, or no room for more fences: goes on */
	CACHE_CHECK_DONE,   /* the whole batch is good: it may be issued */
	CACHE_CHECK_FAILED, /* batch->reason, batch->bad_entry; nothing was issued */
};

/*
 * Checks the batch's units up to `available` (counted from its first). All or nothing: only after
 * DONE may cache_batch_issue() be called.
 */
enum cache_check cache_batch_check(struct cache_batch *batch, uint32_t available, size_t line,
				   uint64_t max_lines, cache_lookup lookup, void *context);

/*
 * Issues line operations worth up to `budget` (at least 2, or it never gets on): one for each line,
 * one for each run or row begun; where cache->second_pass says so, twice.
 * Returns what is left of it, 0 included; true in *ret_done once everything is issued. The caller
 * executes ops.open() before the first call and ops.complete() after the last. Faults on
 * mappings that went away: run under a guard.
 */
uint32_t cache_batch_issue(struct cache_batch *batch, const struct cache *cache, uint32_t budget,
			   bool *ret_done);

/*
 * Moves on, and counts, exactly as cache_batch_issue() does with the same budget, but issues
 * nothing and touches no buffer: a copy of *batch from before the call then issues that very part.
 * Not where cache->second_pass is set.
 */
uint32_t cache_batch_skip(struct cache_batch *batch, const struct cache *cache, uint32_t budget,
			  bool *ret_done);

/* From the first line again: the CPU changed under the batch. */
void cache_batch_rewind(struct cache_batch *batch);

#endif
