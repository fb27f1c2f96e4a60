/* SPDX-License-Identifier: MIT */
/*
 * From units to line operations, recorded: what cache_batch_check() and cache_batch_issue() do to
 * which line, beside a model that goes byte by byte. The operations record; the loop is walk.h's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/rounds.h"
#include "tests/unit/cache/recording.h"

/* 1; more under sanitizers, which are there for what the code does and not for where. */
#ifndef OFFSET_STEP
#define OFFSET_STEP 1
#endif

static const size_t line_sizes[] = {16, 32, 64, 128};
#define LINE_SIZES (sizeof line_sizes / sizeof line_sizes[0])

/* ---- every offset and length ---- */

static struct {
	uintptr_t start, end;
} ranges[PAGES];
static unsigned int range_count;

static void note_range(uintptr_t start, uintptr_t end, size_t line)
{
	(void)line;
	if (range_count < PAGES) {
		ranges[range_count].start = start;
		ranges[range_count].end = end;
	}
	range_count++;
}

/*
 * Every offset and length in two pages, as ranges: that the loop takes every line of a range is
 * test_walk.c's, for every range of two pages. All lengths of one offset are a batch; cleans and
 * flushes take turns, so that nothing is merged.
 */
static void every_offset_and_length(void **state)
{
	static union cache_unit mirror[PAGES];
	struct cache noting = {.ops = {.clean = note_range, .flush = note_range}};
	const uint32_t words[] = {
		dmasync_unit_word(0, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0),
		dmasync_unit_word(0, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0),
	};

	(void)state;
	for (size_t i = 0; i < LINE_SIZES; i++) {
		noting.line = line_sizes[i];
		for (uint32_t offset = 0; offset < PAGES;
		     offset += OFFSET_STEP * (uint32_t)rounds_step(PAGES)) {
			uint32_t line = (uint32_t)noting.line, lengths = PAGES - offset;
			struct cache_batch batch;
			bool done;

			for (uint32_t k = 0; k < lengths; k++)
				mirror[k].entry =
					(struct dmasync_unit){words[k % 2], 1 + k, offset};
			cache_batch_begin(&batch, mirror, PAGES - 1, 0, lengths);
			range_count = 0;
			assert_int_equal(cache_batch_check(&batch, lengths, line, UINT64_MAX / 2,
							   look_up, NULL),
					 CACHE_CHECK_DONE);
			cache_batch_issue(&batch, &noting, UINT32_MAX, &done);
			assert_true(done);
			assert_int_equal(range_count, lengths);
			for (uint32_t k = 0; k < lengths; k++) {
				uint32_t last_byte = offset + k;

				if (ranges[k].start != BASE + offset / line * line ||
				    ranges[k].end != BASE + (last_byte / line + 1) * line)
					fail_msg("[%u, +%u) by %u: [%#zx, %#zx)", offset, k + 1,
						 line, ranges[k].start, ranges[k].end);
			}
		}
	}
}

/* The same down to the recorded line, for every offset and the lengths where something turns. */
static void every_offset_line_by_line(void **state)
{
	(void)state;
	for (size_t i = 0; i < LINE_SIZES; i++) {
		cache.line = line_sizes[i];
		for (uint32_t offset = 0; offset < PAGES;
		     offset += OFFSET_STEP * (uint32_t)rounds_step(PAGES)) {
			uint32_t line = (uint32_t)cache.line;
			uint32_t until_end = PAGES - offset;
			const uint32_t lengths[] = {1,	      2,
						    line - 1, line,
						    line + 1, 2 * line - 1,
						    2 * line, 2 * line + 1,
						    until_end};

			for (size_t j = 0; j < sizeof lengths / sizeof lengths[0]; j++) {
				uint32_t length = lengths[j] < until_end ? lengths[j] : until_end;
				uintptr_t expected = BASE + offset / line * line;

				start_batch();
				add_entry(0, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, offset, length);
				run_at_once();
				assert_int_equal(trace[0].type, OPEN);
				for (size_t k = 1; k < events - 1; k++, expected += line) {
					if (trace[k].type != FLUSH || trace[k].address != expected)
						fail_msg("[%u, +%u) by %u", offset, length, line);
				}
				/* Its last byte lies in the last line. */
				assert_int_equal((offset + length - 1) / line * line + line,
						 expected - BASE);
				assert_int_equal(trace[events - 1].type, COMPLETE);
				assert_int_equal(trace[events - 1].address, true);
			}
		}
	}
}

/* ---- what an entry costs ---- */

static void sync_and_direction_choose_the_operation(void **state)
{
	static const struct {
		enum dmasync_sync sync;
		enum dmasync_direction direction;
		int type; /* -1: nothing */
	} table[] = {
		{DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, CLEAN},
		{DMASYNC_FOR_DEVICE, DMASYNC_FROM_DEVICE, CLEAN},
		{DMASYNC_FOR_DEVICE, DMASYNC_BIDIRECTIONAL, CLEAN},
		{DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE, -1},
		{DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, FLUSH},
		{DMASYNC_FOR_CPU, DMASYNC_BIDIRECTIONAL, FLUSH},
	};

	(void)state;
	cache.line = 64;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		start_batch();
		add_entry(0, table[i].sync, table[i].direction, 64, 64);
		struct cache_batch batch = run_at_once();

		assert_int_equal(batch.entries, 1);
		assert_int_equal(batch.elided, table[i].type < 0);
		assert_int_equal(events, table[i].type < 0 ? 2 : 3);
		assert_int_equal(trace[0].type, OPEN);
		if (table[i].type >= 0) {
			assert_int_equal(trace[1].type, table[i].type);
			assert_int_equal(trace[1].address, BASE + 64);
		}
		assert_int_equal(trace[events - 1].type, COMPLETE);
		assert_int_equal(trace[events - 1].address, table[i].type == FLUSH);
	}
}

static void elided_entries_keep_fence_and_barrier(void **state)
{
	(void)state;
	cache.line = 64;
	start_batch();
	add_entry(0, DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE, 0, 4096);
	add_entry(0, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 100, 0);
	add_entry(0, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, PAGES, 0);
	add_rows(0, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, 0, 100, 64);
	add_entry(2, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, PAGES);
	struct cache_batch batch = run_at_once();

	assert_int_equal(batch.entries, 5);
	assert_int_equal(batch.elided, 5);
	assert_int_equal(batch.lines, 0);
	assert_int_equal(events, 2);
	assert_int_equal(trace[0].type, OPEN);
	assert_int_equal(trace[1].type, COMPLETE);
	assert_int_equal(trace[1].address, false);
}

static void entry_that_fails_leaves_no_line_touched(void **state)
{
	(void)state;
	cache.line = 64;
	start_batch();
	add_entry(0, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, PAGES);
	add_entry(1, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, 4001);
	struct cache_batch batch = run_at_once();

	assert_int_equal(batch.reason, DMASYNC_REASON_OUT_OF_RANGE);
	assert_int_equal(batch.bad_entry, 1);
	assert_int_equal(events, 0);
}

/* The buffer ends inside a line; that line is taken, nothing behind it. */
static void last_line_of_a_buffer_is_whole(void **state)
{
	(void)state;
	for (size_t i = 0; i < LINE_SIZES; i++) {
		uintptr_t last;

		cache.line = line_sizes[i];
		last = (BASE + PAGES + 3999) / cache.line * cache.line;
		start_batch();
		add_entry(1, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, 4000);
		run_at_once();
		assert_int_equal(trace[events - 2].address, last);
		assert_int_equal(events - 2, (last - BASE - PAGES) / cache.line + 1);
	}
}

/* ---- merging ---- */

static void neighbours_share_their_line(void **state)
{
	(void)state;
	for (size_t i = 0; i < LINE_SIZES; i++) {
		cache.line = line_sizes[i];
		for (uint32_t cut = 1; cut < 600; cut++) {
			start_batch();
			add_entry(0, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 7, cut);
			add_entry(0, DMASYNC_FOR_DEVICE, DMASYNC_FROM_DEVICE, 7 + cut, 600 - cut);
			struct cache_batch batch = run_at_once();

			clear_model();
			model_bytes(model_clean, 7, 600);
			check_trace_against_model(&batch);
			assert_int_equal(batch.runs, 1);
		}
	}
}

static void overlapping_and_contained_entries_merge(void **state)
{
	static const struct {
		uint32_t offset, length;
	} second[] = {{0, 1000}, {500, 1000}, {200, 100}, {999, 1}, {1000, 64}};

	(void)state;
	cache.line = 64;
	for (size_t i = 0; i < sizeof second / sizeof second[0]; i++) {
		start_batch();
		add_entry(0, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, 1000);
		add_entry(0, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, second[i].offset,
			  second[i].length);
		struct cache_batch batch = run_at_once();

		clear_model();
		model_bytes(model_flush, 0, 1000);
		model_bytes(model_flush, second[i].offset, second[i].length);
		check_trace_against_model(&batch);
	}
}

/* A flush is more than a clean: neither may swallow the other, and their order stays. */
static void clean_and_flush_do_not_merge(void **state)
{
	(void)state;
	cache.line = 64;
	start_batch();
	add_entry(0, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, 64);
	add_entry(0, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, 128);
	add_entry(0, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 64, 64);
	run_at_once();

	static const struct event expected[] = {
		{OPEN, 0},	    {CLEAN, BASE},	{FLUSH, BASE},
		{FLUSH, BASE + 64}, {CLEAN, BASE + 64}, {COMPLETE, true},
	};
	assert_int_equal(events, sizeof expected / sizeof expected[0]);
	for (size_t i = 0; i < events; i++) {
		assert_int_equal(trace[i].type, expected[i].type);
		assert_int_equal(trace[i].address, expected[i].address);
	}
}

static void distant_entries_keep_their_order(void **state)
{
	(void)state;
	cache.line = 64;
	start_batch();
	for (uint32_t i = 0; i < 60; i++)
		add_entry(0, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, (59 - i) * 128 + 60, 8);
	run_at_once();
	assert_int_equal(events, 2 + 2 * 60);
	for (uint32_t i = 0; i < 60; i++) {
		assert_int_equal(trace[1 + 2 * i].address, BASE + (59 - i) * 128);
		assert_int_equal(trace[2 + 2 * i].address, BASE + (59 - i) * 128 + 64);
	}
}

/* ---- strided entries ---- */

static void rows_match_the_model(void **state)
{
	(void)state;
	srandom(2);
	for (unsigned int round = 0; round < rounds(40000); round++) {
		uint32_t length = 1 + (uint32_t)random() % 300;
		uint64_t stride = length + (uint64_t)random() % 300;
		uint64_t offset = (uint64_t)random() % (PAGES - length + 1);
		uint32_t most = (uint32_t)((PAGES - length - offset) / stride + 1);
		uint32_t rows = 1 + (uint32_t)random() % most;

		cache.line = line_sizes[round % LINE_SIZES];
		start_batch();
		add_rows(0, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, offset, length, rows, stride);
		struct cache_batch batch = run_at_once();

		assert_int_equal(batch.reason, DMASYNC_REASON_NONE);
		clear_model();
		for (uint32_t row = 0; row < rows; row++)
			model_bytes(model_flush, offset + row * stride, length);
		check_trace_against_model(&batch);
		assert_true(batch.lines <= batch.lines_bound);
	}
}

/* ---- slices, chunks, wrap, rewind: the trace is always the same ---- */

static void add_random_entries(void)
{
	static const enum dmasync_direction directions[] = {DMASYNC_TO_DEVICE, DMASYNC_FROM_DEVICE,
							    DMASYNC_BIDIRECTIONAL};

	while (unit_count < UNITS - 1) {
		enum dmasync_sync sync = random() % 2 ? DMASYNC_FOR_DEVICE : DMASYNC_FOR_CPU;
		enum dmasync_direction direction = directions[random() % 3];
		uint32_t buffer = (uint32_t)random() % 3;
		uint64_t size = buffers[buffer].size;
		uint32_t length = (uint32_t)random() % 200;
		uint64_t offset = (uint64_t)random() % (size - 1000);

		if (random() % 3)
			add_entry(buffer, sync, direction, offset, length);
		else
			add_rows(buffer, sync, direction, offset, length, 4, 200 + length % 50);
	}
}

static void slices_chunks_and_places_leave_no_trace(void **state)
{
	static const uint32_t budgets[] = {2, 3, 5, 17, 64, 1000};
	static const uint32_t chunks[] = {1, 2, 7, 64};
	static const uint32_t firsts[] = {UNITS - 1, UNITS / 2, UINT32_MAX - 3};
	static struct event expected[MAX_EVENTS];

	(void)state;
	srandom(3);
	for (unsigned int round = 0; round < 20; round++) {
		cache.line = line_sizes[round % LINE_SIZES];
		start_batch();
		add_random_entries();
		struct cache_batch whole = run_at_once();
		size_t expected_events = events;

		assert_int_equal(whole.reason, DMASYNC_REASON_NONE);
		assert_true(events > UNITS);
		memcpy(expected, trace, events * sizeof trace[0]);
		for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
			events = 0;
			struct cache_batch sliced =
				run_batch(firsts[i % 3], chunks[i % 4], budgets[i]);

			assert_int_equal(events, expected_events);
			for (size_t j = 0; j < events; j++) {
				assert_int_equal(trace[j].type, expected[j].type);
				assert_int_equal(trace[j].address, expected[j].address);
			}
			assert_int_equal(sliced.lines, whole.lines);
			assert_int_equal(sliced.entries, whole.entries);
			assert_int_equal(sliced.elided, whole.elided);
			assert_int_equal(sliced.runs, whole.runs);
		}
	}
}

static void rewound_batch_issues_everything_again(void **state)
{
	bool done;

	(void)state;
	cache.line = 64;
	start_batch();
	add_entry(0, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 100, 1000);
	add_rows(0, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 2000, 100, 5, 300);
	struct cache_batch batch = run_at_once();
	uint64_t lines = batch.lines;

	for (uint32_t budget = 2; budget < lines + 8; budget++) {
		size_t first_time = (size_t)lines;

		/* Part of it on one CPU, then all of it on another. */
		cache_batch_rewind(&batch);
		cache_batch_issue(&batch, &cache, budget, &done);
		cache_batch_rewind(&batch);
		events = 0;
		cache_batch_issue(&batch, &cache, UINT32_MAX, &done);
		assert_true(done);
		assert_int_equal(events, first_time);
		assert_int_equal(batch.lines, lines);
	}
}

/* As workers share a batch: each chunk by a copy of the cursor, which then skips that chunk. */
static void chunks_that_are_skipped_are_those_that_are_issued(void **state)
{
	static const uint32_t budgets[] = {2, 3, 5, 17, 64, 1000};
	static struct event expected[MAX_EVENTS];

	(void)state;
	srandom(4);
	for (unsigned int round = 0; round < 40; round++) {
		cache.line = line_sizes[round % LINE_SIZES];
		start_batch();
		add_random_entries();
		struct cache_batch cursor = run_at_once();
		struct cache_batch whole = cursor;
		size_t expected_events = events - 2; /* without fence and barrier */
		uint64_t lines = 0, bytes = 0;
		bool end = false;

		assert_int_equal(whole.reason, DMASYNC_REASON_NONE);
		memcpy(expected, trace + 1, expected_events * sizeof trace[0]);
		cache_batch_rewind(&cursor);
		events = 0;
		while (!end) {
			uint32_t budget = budgets[(uint32_t)random() % 6];
			struct cache_batch chunk = cursor;
			size_t before = events;
			bool chunk_end;

			chunk.lines = chunk.bytes = 0;
			uint32_t left = cache_batch_skip(&cursor, &cache, budget, &end);

			assert_int_equal(events, before);
			assert_int_equal(cache_batch_issue(&chunk, &cache, budget, &chunk_end),
					 left);
			assert_int_equal(chunk_end, end);
			assert_int_equal(chunk.run, cursor.run);
			assert_int_equal(chunk.row, cursor.row);
			assert_int_equal(chunk.progress, cursor.progress);
			assert_int_equal(events - before, chunk.lines);
			lines += chunk.lines;
			bytes += chunk.bytes;
		}
		assert_int_equal(events, expected_events);
		for (size_t i = 0; i < events; i++) {
			assert_int_equal(trace[i].type, expected[i].type);
			assert_int_equal(trace[i].address, expected[i].address);
		}
		assert_int_equal(cursor.lines, whole.lines);
		assert_int_equal(cursor.bytes, whole.bytes);
		assert_int_equal(lines, whole.lines);
		assert_int_equal(bytes, whole.bytes);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_offset_and_length),
		cmocka_unit_test(every_offset_line_by_line),
		cmocka_unit_test(sync_and_direction_choose_the_operation),
		cmocka_unit_test(elided_entries_keep_fence_and_barrier),
		cmocka_unit_test(entry_that_fails_leaves_no_line_touched),
		cmocka_unit_test(last_line_of_a_buffer_is_whole),
		cmocka_unit_test(neighbours_share_their_line),
		cmocka_unit_test(overlapping_and_contained_entries_merge),
		cmocka_unit_test(clean_and_flush_do_not_merge),
		cmocka_unit_test(distant_entries_keep_their_order),
		cmocka_unit_test(rows_match_the_model),
		cmocka_unit_test(slices_chunks_and_places_leave_no_trace),
		cmocka_unit_test(rewound_batch_issues_everything_again),
		cmocka_unit_test(chunks_that_are_skipped_are_those_that_are_issued),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
