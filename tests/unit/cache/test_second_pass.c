/* SPDX-License-Identifier: MIT */
/*
 * The second pass (Arm SI L1 4311569), recorded: every operation of the batch twice, the second
 * time after the whole first, both before the one barrier, whatever the slices. One thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/cache/recording.h"

#define LINE 64u

static int with_second_pass(void **state)
{
	(void)state;
	cache.line = LINE;
	cache.second_pass = true;
	start_batch();
	return 0;
}

static int without(void **state)
{
	(void)state;
	cache.second_pass = false;
	return 0;
}

static void expect(size_t at, enum event_type type, uint64_t offset)
{
	if (trace[at].type != type || trace[at].address != BASE + offset)
		fail_msg("event %zu: type %d at %#zx", at, trace[at].type, trace[at].address);
}

static void the_exact_trace(void **state)
{
	(void)state;
	add_entry(0, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, 2 * LINE);
	add_entry(0, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 10 * LINE, 1);
	add_entry(0, DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE, 0, 4096); /* elided */
	add_rows(0, DMASYNC_FOR_CPU, DMASYNC_BIDIRECTIONAL, 20 * LINE, 1, 2, 8 * LINE);

	struct cache_batch batch = run_at_once();
	static const struct {
		enum event_type type;
		unsigned int line;
	} pass[] = {{CLEAN, 0}, {CLEAN, 1}, {FLUSH, 10}, {FLUSH, 20}, {FLUSH, 28}};

	assert_int_equal(events, 1 + 5 + 5 + 1);
	assert_int_equal(trace[0].type, OPEN);
	for (size_t i = 0; i < 10; i++)
		expect(1 + i, pass[i % 5].type, pass[i % 5].line * LINE);
	assert_int_equal(trace[11].type, COMPLETE);
	assert_int_equal(trace[11].address, true);
	/* What was issued counts twice, what was covered once. */
	assert_int_equal(batch.lines, 10);
	assert_int_equal(batch.bytes, 5 * LINE);
	assert_int_equal(batch.entries, 4);
	assert_int_equal(batch.elided, 1);
}

static void slices_of_every_size(void **state)
{
	(void)state;
	for (uint32_t budget = 2; budget < 60; budget++) {
		struct cache_batch batch;

		start_batch();
		add_entry(0, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, 7 * LINE);
		add_entry(0, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 16 * LINE, 5 * LINE);
		add_rows(0, DMASYNC_FOR_DEVICE, DMASYNC_FROM_DEVICE, 32 * LINE + 1, LINE, 3,
			 4 * LINE);
		batch = run_batch(UNITS - 2, 1, budget);
		assert_int_equal(events, 1 + 2 * 18 + 1);
		for (size_t i = 1; i <= 18; i++) {
			assert_int_equal(trace[i].type, trace[i + 18].type);
			assert_int_equal(trace[i].address, trace[i + 18].address);
		}
		assert_int_equal(trace[37].type, COMPLETE);
		assert_int_equal(batch.lines, 36);
		assert_int_equal(batch.bytes, 18 * LINE);
	}
}

static void nothing_issued_is_not_issued_twice(void **state)
{
	(void)state;
	add_entry(0, DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE, 0, 4096);
	add_entry(2, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, 4096);
	run_at_once();
	assert_int_equal(events, 2);
	assert_int_equal(trace[1].type, COMPLETE);
}

/* The CPU changed before the barrier: both passes are issued anew. */
static void both_passes_after_a_rewind(void **state)
{
	static union cache_unit units[2];
	struct cache_batch batch;
	uint32_t left;
	bool done;

	(void)state;
	units[0].entry = (struct dmasync_unit){
		dmasync_unit_word(0, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0), 4 * LINE, 0};
	cache_batch_begin(&batch, units, 1, 0, 1);
	assert_int_equal(cache_batch_check(&batch, 1, LINE, UINT64_MAX, look_up, NULL),
			 CACHE_CHECK_DONE);
	left = cache_batch_issue(&batch, &cache, 8, &done);
	assert_int_equal(left, 0);
	assert_false(done);
	assert_int_equal(events, 4 + 2); /* in the midst of the second pass */
	cache_batch_rewind(&batch);
	events = 0;
	cache_batch_issue(&batch, &cache, 100, &done);
	assert_true(done);
	assert_int_equal(events, 8);
	for (size_t i = 0; i < 8; i++)
		expect(i, CLEAN, i % 4 * LINE);
	assert_int_equal(batch.lines, 8);
	assert_int_equal(batch.bytes, 4 * LINE);
}

static void once_where_the_machine_is_well(void **state)
{
	(void)state;
	cache.second_pass = false;
	add_entry(0, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, 4 * LINE);

	struct cache_batch batch = run_at_once();

	assert_int_equal(events, 1 + 4 + 1);
	assert_int_equal(batch.lines, 4);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, with_second_pass, without)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(the_exact_trace),
		CASE(slices_of_every_size),
		CASE(nothing_issued_is_not_issued_twice),
		CASE(both_passes_after_a_rewind),
		CASE(once_where_the_machine_is_well),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
