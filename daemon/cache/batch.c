/* SPDX-License-Identifier: MIT */
/*
 * A batch from units to line operations: the check, the merging of neighbours, the walk. Owned by
 * one thread; the same code for the daemon's workers and for in-process use.
 */
#include <errno.h>
#include <string.h>

#include "daemon/cache/batch.h"

static_assert(sizeof(struct cache_run) == sizeof(struct dmasync_unit),
	      "a run takes a unit's place");
static_assert(sizeof(union cache_unit) == 16, "a run takes a unit's place");

#define NO_RUN UINT32_MAX

void cache_batch_begin(struct cache_batch *batch, union cache_unit *units, uint32_t mask,
		       uint32_t first, uint32_t count)
{
	/*
	 * Field by field: the compiler would zero a struct of this size with a string instruction,
	 * which takes longer than the check of a single entry.
	 */
	batch->units = units;
	batch->mask = mask;
	batch->first = first;
	batch->count = count;
	batch->checked = batch->runs = 0;
	batch->last_run = NO_RUN;
	batch->last_handle = 0;
	batch->last_buffer = NULL;
	batch->alike_word = batch->alike_op = 0;
	batch->entries = batch->elided = 0;
	batch->lines_bound = 0;
	batch->flushes = batch->kernel = batch->no_guarantee = false;
	batch->reason = DMASYNC_REASON_NONE;
	batch->bad_entry = DMASYNC_NO_ENTRY;
	batch->fences = NULL;
	batch->fence_count = 0;
	batch->run = batch->progress = batch->row = 0;
	batch->second = false;
	batch->lines = batch->bytes = 0;
}

static union cache_unit *unit_at(const struct cache_batch *batch, uint32_t index)
{
	return &batch->units[(batch->first + index) & batch->mask];
}

/* How many of `n` units from `unit` on lie before the end of the mirror. */
static uint32_t contiguous(const struct cache_batch *batch, const union cache_unit *unit,
			   uint32_t n)
{
	uint64_t until_end = (uint64_t)batch->mask + 1 - (uint64_t)(unit - batch->units);

	return n < until_end ? n : (uint32_t)until_end;
}

static uint64_t round_down(uint64_t address, size_t line)
{
	return address & ~(uint64_t)(line - 1);
}

/* `bytes`, a multiple of `line`, in lines. A division here would be a third of an entry's check. */
static uint64_t to_lines(uint64_t bytes, size_t line)
{
	return bytes >> __builtin_ctzl(line);
}

/* What the table in DESIGN's words asks for: nothing, a clean or a flush. */
enum operation { OPERATION_NONE, OPERATION_CLEAN, OPERATION_FLUSH };

/*
 * The kernel's rules for arm64 (arch/arm64/mm/dma-mapping.c): for_device cleans whatever the
 * direction, since a line left dirty could be evicted over what the device writes; for_cpu does
 * nothing after the device has only read. Where the kernel invalidates we flush: user space has no
 * invalidate, and a line that for_device left clean is not written back by a flush.
 */
static enum operation operation_of(enum dmasync_sync sync, enum dmasync_direction direction)
{
	if (sync == DMASYNC_FOR_DEVICE)
		return OPERATION_CLEAN;
	return direction == DMASYNC_TO_DEVICE ? OPERATION_NONE : OPERATION_FLUSH;
}

/* One or two runs take the place of what was checked; they never reach beyond it. */
static void add_plain_run(struct cache_batch *batch, uint64_t first_byte, uint64_t last_byte,
			  uint32_t op, size_t line)
{
	uint64_t start = round_down(first_byte, line);
	uint64_t lines = to_lines(round_down(last_byte, line) - start, line) + 1;

	/*
	 * Merged with the run before where it begins inside it or where it ends: the line that two
	 * entries share is then issued once. Not sorted: only neighbours in submission order.
	 */
	if (batch->last_run != NO_RUN) {
		struct cache_run *last = &unit_at(batch, batch->last_run)->run;
		uint64_t last_end = last->start + (uint64_t)last->amount * line;

		if (last->op == op && start >= last->start && start <= last_end) {
			uint64_t end = start + lines * line;
			uint64_t merged =
				to_lines((end > last_end ? end : last_end) - last->start, line);

			if (merged <= UINT32_MAX) {
				last->amount = (uint32_t)merged;
				return;
			}
		}
	}
	unit_at(batch, batch->runs)->run =
		(struct cache_run){.start = start, .amount = (uint32_t)lines, .op = op};
	batch->last_run = batch->runs++;
}

static void add_strided_run(struct cache_batch *batch, uint64_t first_byte, uint32_t length,
			    uint32_t rows, uint64_t stride, uint32_t op)
{
	unit_at(batch, batch->runs++)->run = (struct cache_run){
		.start = first_byte, .amount = length, .op = op | CACHE_RUN_STRIDED};
	unit_at(batch, batch->runs++)->rows =
		(struct dmasync_unit_rows){.rows = rows, .stride = stride};
	batch->last_run = NO_RUN;
}

/*
 * What the range is about to suffer decides which fences come first. A clean writes memory, and
 * after for_cpu with to_device the CPU will: nobody may still read or write. After for_cpu with
 * from_device it only reads, and others that read do not matter.
 */
static void note_fence(struct cache_batch *batch, const struct cache_buffer *buffer,
		       enum dmasync_sync sync, enum dmasync_direction direction)
{
	bool readers = sync == DMASYNC_FOR_DEVICE || direction != DMASYNC_FROM_DEVICE;

	for (uint32_t i = batch->fence_count; i-- > 0;) { /* mostly the last one again */
		if (batch->fences[i].buffer == buffer) {
			batch->fences[i].readers |= readers;
			return;
		}
	}
	batch->fences[batch->fence_count++] = (struct cache_fence){buffer, readers};
}

/* Checks one entry and, where it needs work, writes its run. NONE where it is good. */
static enum dmasync_reason check_entry(struct cache_batch *batch, struct dmasync_unit entry,
				       struct dmasync_unit_rows rows, size_t line,
				       uint64_t max_lines, cache_lookup lookup, void *context)
{
	uint32_t handle = entry.word & DMASYNC_UNIT_BUFFER_MASK;
	uint32_t direction = entry.word >> DMASYNC_UNIT_DIRECTION_SHIFT & 3;
	uint32_t sync = entry.word >> DMASYNC_UNIT_SYNC_SHIFT & 3;
	uint64_t end;

	if (entry.word & DMASYNC_UNIT_RESERVED || rows.reserved)
		return DMASYNC_REASON_RESERVED_BITS;
	if (sync != DMASYNC_FOR_DEVICE && sync != DMASYNC_FOR_CPU)
		return DMASYNC_REASON_BAD_SYNC;
	if (direction == 0)
		return DMASYNC_REASON_BAD_DIRECTION;
	if (rows.rows == 0 || (rows.rows > 1 && rows.stride < entry.length))
		return DMASYNC_REASON_BAD_STRIDE;

	if (!batch->last_buffer || batch->last_handle != handle) {
		batch->last_buffer = lookup(context, handle);
		batch->last_handle = handle;
		if (!batch->last_buffer)
			return DMASYNC_REASON_UNKNOWN_BUFFER;
	}
	const struct cache_buffer *buffer = batch->last_buffer;
	uint64_t span = entry.length;

	if (rows.rows > 1 && (__builtin_mul_overflow((uint64_t)rows.rows - 1, rows.stride, &span) ||
			      __builtin_add_overflow(span, (uint64_t)entry.length, &span)))
		return DMASYNC_REASON_OVERFLOW;
	if (__builtin_add_overflow(entry.offset, span, &end))
		return DMASYNC_REASON_OVERFLOW;
	if (end > buffer->size)
		return DMASYNC_REASON_OUT_OF_RANGE;

	if (!buffer->guarantee)
		batch->no_guarantee = true;
	if (buffer->fenced && batch->fences)
		note_fence(batch, buffer, (enum dmasync_sync)sync,
			   (enum dmasync_direction)direction);
	enum operation operation =
		operation_of((enum dmasync_sync)sync, (enum dmasync_direction)direction);
	if (operation == OPERATION_NONE || entry.length == 0 ||
	    buffer->backend == DMASYNC_BACKEND_NONE) {
		batch->elided++;
		return DMASYNC_REASON_NONE;
	}
	if (buffer->backend == DMASYNC_BACKEND_KERNEL) {
		unit_at(batch, batch->runs++)->run = (struct cache_run){
			.start = (uintptr_t)buffer,
			.amount = sync << 2 | direction,
			.op = CACHE_RUN_KERNEL,
		};
		batch->last_run = NO_RUN;
		batch->kernel = true;
		return DMASYNC_REASON_NONE;
	}

	uint32_t op = (operation == OPERATION_FLUSH ? CACHE_RUN_FLUSH : 0u) |
		      (buffer->backend == DMASYNC_BACKEND_SIMULATED ? CACHE_RUN_SIMULATED : 0u);
	size_t step = op & CACHE_RUN_SIMULATED ? CACHE_SIMULATED_LINE : line;
	uint64_t first_byte = buffer->base + entry.offset;
	uint64_t bound;

	/*
	 * The buffer's base is page-aligned and its mapping whole pages, so a range rounded out to
	 * whole lines stays inside the mapping whatever its end.
	 *
	 * Rows whose gap is smaller than a line leave no line between them untouched: they are one
	 * range. Otherwise no two rows share a line, so that rows never issue a line twice.
	 */
	if (rows.rows == 1 || rows.stride - entry.length < step) {
		uint64_t last_byte = first_byte + span - 1;

		bound = to_lines(round_down(last_byte, step) - round_down(first_byte, step), step) +
			1;
		if (bound > UINT32_MAX)
			return DMASYNC_REASON_TOO_MANY_LINES;
		add_plain_run(batch, first_byte, last_byte, op, step);
	} else {
		bound = rows.rows * ((entry.length - 1) / step + 2);
		add_strided_run(batch, first_byte, entry.length, rows.rows, rows.stride, op);
	}
	/* Neither sum can wrap: bound is below 2^61 and lines_bound never above max_lines. */
	batch->lines_bound += bound;
	if (batch->lines_bound > max_lines)
		return DMASYNC_REASON_TOO_MANY_LINES;
	if (operation == OPERATION_FLUSH)
		batch->flushes = true;
	if (!(entry.word & DMASYNC_UNIT_STRIDED)) {
		batch->alike_word = entry.word;
		batch->alike_op = op;
	}
	return DMASYNC_REASON_NONE;
}

/*
 * Entries with the very word of one that was good: same buffer, sync and direction, not strided.
 * Only their ranges are left to check, which makes the check of a long list a third as dear. The
 * first one that is anything but a good range of at least a byte is left to check_entry(), which
 * knows the reasons. Everything that matters stays in registers.
 */
static void check_alike(struct cache_batch *batch, uint32_t available, size_t line,
			uint64_t max_lines)
{
	const struct cache_buffer *buffer = batch->last_buffer;
	const uint32_t word = batch->alike_word, op = batch->alike_op;
	const size_t step = op & CACHE_RUN_SIMULATED ? CACHE_SIMULATED_LINE : line;
	const int shift = __builtin_ctzl(step);
	const uint64_t base = buffer->base, size = buffer->size, low = step - 1;
	uint64_t left = max_lines - batch->lines_bound;

	if (batch->last_run == NO_RUN)
		return;
	struct cache_run *last = &unit_at(batch, batch->last_run)->run;

	if (last->op != op)
		return;
	uint64_t start = last->start, span = (uint64_t)last->amount << shift;

	while (batch->checked < available) {
		const union cache_unit *in = unit_at(batch, batch->checked);
		const union cache_unit *begin = in;
		union cache_unit *const out_begin = unit_at(batch, batch->runs), *out = out_begin;
		uint32_t n = available - batch->checked;

		/* Neither reading nor writing wraps: no run is written ahead of what was read. */
		n = contiguous(batch, in, n);
		n = contiguous(batch, out, n);
		for (const union cache_unit *stop = in + n; in != stop; in++) {
			struct dmasync_unit entry = in->entry;
			uint64_t length = entry.length;

			/* length - 1: one comparison refuses 0 and what is larger than the buffer.
			 */
			if (entry.word != word || length - 1 >= size ||
			    entry.offset > size - length)
				break;

			uint64_t byte = base + entry.offset, at = byte & ~low;
			uint64_t lines = ((byte & low) + length + low) >> shift;

			if (__builtin_sub_overflow(left, lines, &left)) {
				left += lines;
				break;
			}
			if (at - start <= span) { /* merged, as in add_plain_run() */
				uint64_t to = at - start + (lines << shift);

				if (to > span) {
					if (to >> shift > UINT32_MAX) {
						left += lines;
						break;
					}
					span = to;
					if (out != out_begin)
						last = &out[-1].run;
					last->amount = (uint32_t)(to >> shift);
				}
			} else {
				out++->run = (struct cache_run){
					.start = at, .amount = (uint32_t)lines, .op = op};
				start = at;
				span = lines << shift;
			}
		}
		if (out != out_begin)
			last = &out[-1].run;
		batch->runs += (uint32_t)(out - out_begin);
		batch->entries += (uint32_t)(in - begin);
		batch->checked += (uint32_t)(in - begin);
		if (in != begin + n)
			break;
	}
	batch->last_run = batch->runs - 1;
	batch->lines_bound = max_lines - left;
}

enum cache_check cache_batch_check(struct cache_batch *batch, uint32_t available, size_t line,
				   uint64_t max_lines, cache_lookup lookup, void *context)
{
	enum dmasync_reason reason = DMASYNC_REASON_NONE;

	if (batch->count == 0)
		reason = DMASYNC_REASON_EMPTY_BATCH;

	while (reason == DMASYNC_REASON_NONE && batch->checked < available) {
		if (batch->alike_word) {
			check_alike(batch, available, line, max_lines);
			batch->alike_word = 0;
			continue;
		}
		struct dmasync_unit entry = unit_at(batch, batch->checked)->entry;
		struct dmasync_unit_rows rows = {.rows = 1};
		uint32_t taken = 1;

		if (batch->fence_count == CACHE_BATCH_FENCES)
			return CACHE_CHECK_MORE;
		if (entry.word & DMASYNC_UNIT_STRIDED) {
			if (batch->checked + 1 == batch->count) {
				reason = DMASYNC_REASON_TRUNCATED_ENTRY;
				break;
			}
			if (batch->checked + 1 == available)
				return CACHE_CHECK_MORE; /* its rows come with the next chunk */
			rows = unit_at(batch, batch->checked + 1)->rows;
			taken = 2;
		}
		reason = check_entry(batch, entry, rows, line, max_lines, lookup, context);
		if (reason == DMASYNC_REASON_NONE) {
			batch->checked += taken;
			batch->entries++;
		}
	}

	if (reason != DMASYNC_REASON_NONE) {
		batch->reason = reason;
		batch->bad_entry = batch->count ? batch->entries : DMASYNC_NO_ENTRY;
		return CACHE_CHECK_FAILED;
	}
	return batch->checked == batch->count ? CACHE_CHECK_DONE : CACHE_CHECK_MORE;
}

static void issue_lines(const struct cache_ops *ops, uint32_t op, uint64_t start, uint64_t end,
			size_t line)
{
	if (op & CACHE_RUN_FLUSH)
		ops->flush((uintptr_t)start, (uintptr_t)end, line);
	else
		ops->clean((uintptr_t)start, (uintptr_t)end, line);
}

/*
 * Issues what is left of a range of `lines` lines, as far as the budget goes. True when the range
 * is through; batch->progress is then 0 again.
 */
static inline bool issue_range(struct cache_batch *batch, const struct cache_ops *ops, uint32_t op,
			       uint64_t start, uint32_t lines, size_t line, uint32_t *budget,
			       const bool issue)
{
	if (batch->progress == 0 && --*budget == 0)
		return false;

	uint32_t left = lines - batch->progress;
	uint32_t n = left < *budget ? left : *budget;
	uint64_t at = start + (uint64_t)batch->progress * line;

	if (issue)
		issue_lines(ops, op, at, at + (uint64_t)n * line, line);
	*budget -= n;
	batch->lines += n;
	batch->bytes += (uint64_t)n * line;
	if (n < left) {
		batch->progress += n;
		return false;
	}
	batch->progress = 0;
	return true;
}

/*
 * Whole runs by the CPU's own operations, the common case, with the cursor in registers. What is
 * strided, simulated, the kernel's, begun before or larger than the budget is left to the caller.
 */
static inline uint32_t issue_whole_runs(struct cache_batch *batch, const struct cache *cache,
					uint32_t budget, const bool issue)
{
	/* Copies, which no operation can change: read once and not for each run. */
	const struct cache_ops ops = cache->ops;
	const size_t line = cache->line;
	const int shift = __builtin_ctzl(line);
	const uint32_t before = budget, at = batch->run;

	if (batch->progress)
		return budget;
	while (batch->run < batch->runs) {
		const union cache_unit *unit = unit_at(batch, batch->run), *begin = unit;
		uint32_t n = contiguous(batch, unit, batch->runs - batch->run);

		for (const union cache_unit *stop = unit + n; unit != stop; unit++) {
			struct cache_run run = unit->run;

			if (run.op & ~(uint32_t)CACHE_RUN_FLUSH || run.amount >= budget)
				break;
			if (issue)
				issue_lines(&ops, run.op, run.start,
					    run.start + ((uint64_t)run.amount << shift), line);
			budget -= run.amount + 1;
		}
		batch->run += (uint32_t)(unit - begin);
		if (unit != begin + n)
			break;
	}
	/* Of the budget one went for each run, the rest for lines. */
	uint64_t lines = before - budget - (batch->run - at);

	batch->lines += lines;
	batch->bytes += lines << shift;
	return budget;
}

/*
 * From where the cursor is to the end of the runs, or of the budget. One walk for what is issued
 * and what is skipped, so that both get equally far; `issue` is a constant at each call.
 */
static inline __attribute__((always_inline)) uint32_t walk_runs(struct cache_batch *batch,
								const struct cache *cache,
								uint32_t budget, const bool issue)
{
	while (batch->run < batch->runs && budget > 0) {
		budget = issue_whole_runs(batch, cache, budget, issue);
		if (batch->run == batch->runs || budget == 0)
			break;
		struct cache_run run = unit_at(batch, batch->run)->run;
		const struct cache_ops *ops =
			run.op & CACHE_RUN_SIMULATED ? &cache_simulated_ops : &cache->ops;
		size_t line = run.op & CACHE_RUN_SIMULATED ? CACHE_SIMULATED_LINE : cache->line;

		if (run.op & CACHE_RUN_KERNEL) {
			batch->run++;
			budget--;
			continue;
		}
		if (!(run.op & CACHE_RUN_STRIDED)) {
			if (issue_range(batch, ops, run.op, run.start, run.amount, line, &budget,
					issue))
				batch->run++;
			continue;
		}

		struct dmasync_unit_rows rows = unit_at(batch, batch->run + 1)->rows;

		while (batch->row < rows.rows && budget > 0) {
			uint64_t first_byte = run.start + batch->row * rows.stride;
			uint64_t start = round_down(first_byte, line);
			uint64_t last = round_down(first_byte + run.amount - 1, line);
			uint32_t lines = (uint32_t)((last - start) / line + 1);

			if (issue_range(batch, ops, run.op, start, lines, line, &budget, issue))
				batch->row++;
		}
		if (batch->row == rows.rows) {
			batch->row = 0;
			batch->run += 2;
		}
	}
	return budget;
}

static uint32_t issue_runs(struct cache_batch *batch, const struct cache *cache, uint32_t budget)
{
	return walk_runs(batch, cache, budget, true);
}

static void rewind_cursor(struct cache_batch *batch)
{
	batch->run = 0;
	batch->row = 0;
	batch->progress = 0;
}

/*
 * The second pass (Arm SI L1 4311569): an operation may be reported complete before its data has
 * arrived, and the same one issued again waits for it. All of the first before any of the second,
 * so that hardly one has to wait, and both before the barrier. What is covered is counted once.
 */
static uint32_t issue_again(struct cache_batch *batch, const struct cache *cache, uint32_t budget)
{
	uint64_t bytes = batch->bytes;

	if (!batch->second) {
		batch->second = true;
		rewind_cursor(batch);
	}
	budget = issue_runs(batch, cache, budget);
	batch->bytes = bytes;
	return budget;
}

uint32_t cache_batch_issue(struct cache_batch *batch, const struct cache *cache, uint32_t budget,
			   bool *ret_done)
{
	if (!batch->second)
		budget = issue_runs(batch, cache, budget);
	if (cache->second_pass && (batch->second || batch->run == batch->runs))
		budget = issue_again(batch, cache, budget);
	*ret_done = batch->run == batch->runs;
	return budget;
}

uint32_t cache_batch_skip(struct cache_batch *batch, const struct cache *cache, uint32_t budget,
			  bool *ret_done)
{
	budget = walk_runs(batch, cache, budget, false);
	*ret_done = batch->run == batch->runs;
	return budget;
}

void cache_batch_rewind(struct cache_batch *batch)
{
	rewind_cursor(batch);
	batch->second = false;
	batch->lines = 0;
	batch->bytes = 0;
}
