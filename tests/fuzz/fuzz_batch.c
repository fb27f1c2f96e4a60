/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: the check of a batch and its walk (daemon/cache/batch.c) beside the model. The same
 * entries are refused, for a reason that applies; else the very lines of the model are issued,
 * whatever the chunks of the check and the slices of the walk are. One thread.
 */
#include "daemon/cache/batch.h"
#include "fuzz.h"
#include "model.h"

#define UNITS 256u
#define AREA UINT64_C(0x7f0000000000) /* an address like another: nothing here is accessed */
#define AREA_SIZE (UINT64_C(1) << 20)
#define LEAST_LINE 16u
#define BUFFERS 6u

static const struct cache_buffer buffers[BUFFERS] = {
	{.base = AREA, .size = 4096, .backend = DMASYNC_BACKEND_DIRECT, .guarantee = true},
	{.base = AREA + 8192, .size = 65536, .backend = DMASYNC_BACKEND_DIRECT, .fenced = true},
	{.base = AREA + 81920, .size = 4097, .backend = DMASYNC_BACKEND_DIRECT, .guarantee = true},
	{.base = AREA + 131072, .size = 4096, .backend = DMASYNC_BACKEND_NONE, .guarantee = true},
	{.size = UINT64_MAX, .backend = DMASYNC_BACKEND_KERNEL, .fenced = true},
	{.base = AREA + 524288, .size = 524288, .backend = DMASYNC_BACKEND_DIRECT},
};

/* By line of LEAST_LINE bytes: bit 0 cleaned, bit 1 flushed. */
static uint8_t issued[AREA_SIZE / LEAST_LINE], expected[AREA_SIZE / LEAST_LINE];
static uint64_t issued_lines;
static uint32_t line;

static const struct cache_buffer *lookup(void *context, uint32_t handle)
{
	(void)context;
	return handle >= 1 && handle <= BUFFERS ? &buffers[handle - 1] : NULL;
}

static void record(uintptr_t start, uintptr_t end, uint8_t bit)
{
	claim(start < end && start % line == 0 && end % line == 0);
	for (uintptr_t at = start; at < end; at += line) {
		bool inside = false;

		for (uint32_t i = 0; i < BUFFERS; i++)
			inside |= buffers[i].backend == DMASYNC_BACKEND_DIRECT &&
				  at >= buffers[i].base && at < buffers[i].base + buffers[i].size;
		claim(inside);
		issued[(at - AREA) / LEAST_LINE] |= bit;
		issued_lines++;
	}
}

static void nothing(void)
{
}

static void clean(uintptr_t start, uintptr_t end, size_t step)
{
	claim(step == line);
	record(start, end, 1);
}

static void flush(uintptr_t start, uintptr_t end, size_t step)
{
	claim(step == line);
	record(start, end, 2);
}

static void complete(bool flushed)
{
	(void)flushed;
}

static void expect(void *context, uint64_t address)
{
	const bool *is_flush = context;

	expected[(address - AREA) / LEAST_LINE] |= *is_flush ? 2u : 1u;
}

/* What the whole batch is to be, by the model. */
struct verdict {
	bool must_fail, may_fail; /* may: too many lines, by a bound that is not exact */
	uint32_t broken;	  /* reasons that apply to the first bad entry */
	uint32_t entries;	  /* before it */
	uint32_t elided;
	bool flushes, kernel, no_guarantee;
};

static struct verdict judge(const union cache_unit *units, uint32_t first, uint32_t count,
			    uint64_t max_lines)
{
	struct verdict verdict = {0};
	uint64_t least = 0, most = 0;

	for (uint32_t i = 0; i < count && !verdict.must_fail; i++) {
		const struct dmasync_unit *entry = &units[(first + i) & (UNITS - 1)].entry;
		const struct dmasync_unit_rows *rows = NULL;
		const struct cache_buffer *buffer =
			lookup(NULL, entry->word & DMASYNC_UNIT_BUFFER_MASK);

		if (entry->word & DMASYNC_UNIT_STRIDED) {
			if (i + 1 == count) {
				verdict.must_fail = true;
				verdict.broken = 1u << DMASYNC_REASON_TRUNCATED_ENTRY;
				break;
			}
			rows = &units[(first + ++i) & (UNITS - 1)].rows;
		}
		struct model_entry model = model_entry(entry, rows, buffer, line);

		least += model.least;
		if (__builtin_add_overflow(most, model.most, &most))
			most = UINT64_MAX;
		if (!model.broken && least > max_lines)
			model.broken = 1u << DMASYNC_REASON_TOO_MANY_LINES;
		if (model.broken) {
			verdict.must_fail = true;
			verdict.broken = model.broken;
			break;
		}
		verdict.may_fail |= most > max_lines;
		verdict.entries++;
		verdict.elided += model.elided;
		verdict.flushes |= model.flush && !model.elided && !model.kernel;
		verdict.kernel |= model.kernel && !model.elided;
		verdict.no_guarantee |= !buffer->guarantee;
		if (!model.elided && !model.kernel && !verdict.may_fail)
			model_lines(entry, rows, buffer, line, expect, &model.flush);
	}
	return verdict;
}

static enum cache_check check(struct cache_batch *batch, struct input *chunks, uint64_t max_lines)
{
	enum cache_check found;

	do {
		uint32_t available = chunks->left ? batch->checked + 1u + input_u8(chunks) : UNITS;

		if (available > batch->count)
			available = batch->count;
		found = cache_batch_check(batch, available, line, max_lines, lookup, NULL);
		claim(batch->checked <= batch->count);
		claim(batch->runs <= batch->checked || found == CACHE_CHECK_FAILED);
		claim(batch->fence_count <= CACHE_BATCH_FENCES);
		batch->fence_count = 0;
	} while (found == CACHE_CHECK_MORE);
	return found;
}

static void issue(struct cache_batch *batch, const struct cache *cache, struct input *slices,
		  bool in_parts)
{
	bool done = false;
	uint32_t slice_count = 0;

	while (!done) {
		uint32_t budget = slices->left ? 2u + input_u16(slices) % 512u : 1u << 20;
		uint64_t before = issued_lines, counted = batch->lines;
		struct cache_batch part = *batch;
		uint32_t left;

		if (in_parts) {
			bool part_done;

			left = cache_batch_skip(batch, cache, budget, &done);
			claim(issued_lines == before);
			claim(cache_batch_issue(&part, cache, budget, &part_done) == left);
			claim(part_done == done && part.run == batch->run &&
			      part.row == batch->row && part.progress == batch->progress &&
			      part.lines == batch->lines && part.bytes == batch->bytes);
		} else {
			left = cache_batch_issue(batch, cache, budget, &done);
		}
		claim(left <= budget);
		claim(issued_lines - before <= budget - left);
		claim(batch->lines - counted == issued_lines - before);
		claim(++slice_count < 1u << 20);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static union cache_unit units[UNITS], copy[UNITS];
	static struct cache_fence fences[CACHE_BATCH_FENCES];
	struct input input = {data, size};
	uint8_t mode = input_u8(&input), tuning = input_u8(&input);
	uint32_t first = input_u32(&input), count = input_u8(&input);
	uint64_t max_lines = tuning & 0x80 ? 1 + (tuning & 0x7fu) * 4 : 65536;
	struct input steps = {.left = input_u8(&input) % 32u};
	struct cache cache = {
		.ops = {.name = "recorded",
			.open = nothing,
			.clean = clean,
			.flush = flush,
			.complete = complete},
		.second_pass = mode & 0x10,
	};
	struct cache_batch batch;

	line = LEAST_LINE << (mode & 3); /* 16 to 128 bytes */
	cache.line = cache.granule = line;
	/* The steps of check and walk are bytes of the input, too; they come before the entries. */
	steps.data = input.data;
	steps.left = steps.left < input.left ? steps.left : input.left;
	input.data += steps.left;
	input.left -= steps.left;

	memset(issued, 0, sizeof issued);
	memset(expected, 0, sizeof expected);
	issued_lines = 0;
	for (uint32_t i = 0; i < count; i++)
		input_copy(&input, &units[(first + i) & (UNITS - 1)], sizeof units[0]);
	memcpy(copy, units, sizeof copy);

	struct verdict verdict = judge(copy, first, count, max_lines);

	cache_batch_begin(&batch, units, UNITS - 1, first, count);
	batch.fences = mode & 0x20 ? fences : NULL;
	if (check(&batch, &steps, max_lines) == CACHE_CHECK_FAILED) {
		if (count == 0) {
			claim(batch.reason == DMASYNC_REASON_EMPTY_BATCH);
			return 0;
		}
		claim(batch.bad_entry == batch.entries);
		if (verdict.may_fail && batch.reason == DMASYNC_REASON_TOO_MANY_LINES)
			return 0;
		claim(verdict.must_fail);
		claim(verdict.broken & 1u << batch.reason);
		claim(batch.bad_entry == verdict.entries);
		claim(issued_lines == 0);
		return 0;
	}
	claim(count > 0 && !verdict.must_fail);
	claim(batch.entries == verdict.entries && batch.elided == verdict.elided);
	claim(batch.flushes == verdict.flushes && batch.kernel == verdict.kernel);
	claim(batch.no_guarantee == verdict.no_guarantee);
	claim(batch.lines_bound <= max_lines);

	issue(&batch, &cache, &steps, mode & 0x40 && !cache.second_pass);
	claim(batch.lines == issued_lines && issued_lines <= 2 * batch.lines_bound);
	claim(batch.bytes * (cache.second_pass ? 2 : 1) == batch.lines * line);
	if (!verdict.may_fail)
		claim(memcmp(issued, expected, sizeof issued) == 0);
	return 0;
}
