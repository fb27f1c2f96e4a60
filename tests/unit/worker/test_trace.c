/* SPDX-License-Identifier: MIT */
/*
 * The recorded trace of a batch through a real worker: opening fence, the exact lines, one barrier,
 * and only then the completion.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "fixture.h"

static struct fixture fixture;

#define HANDLE (fixture.buffer.handle)
#define BASE (fixture.buffer.cache.base)

static int start(void **state)
{
	(void)state;
	fixture_start(&fixture, 50, 4096, -1);
	trace.ring = &fixture.first.ring;
	trace.next_completion = fixture.first.reaped;
	return 0;
}

static int stop(void **state)
{
	(void)state;
	fixture_stop(&fixture);
	return 0;
}

static void expect_event(size_t index, enum trace_kind kind, uintptr_t address)
{
	assert_true(index < trace.count);
	assert_int_equal(trace.event[index].kind, kind);
	assert_int_equal(trace.event[index].address, address);
	assert_false(trace.event[index].published);
}

static void opening_fence_lines_barrier_publish(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	struct dmasync_unit units[] = {
		entry(HANDLE, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 60, 8),
		entry(HANDLE, DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE, 0, 4096), /* elided */
		entry(HANDLE, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 1024, 64),
		entry(HANDLE, DMASYNC_FOR_CPU, DMASYNC_BIDIRECTIONAL, 1088, 1), /* a neighbour */
	};

	submit_units(&fixture.first, units, 4, 42);
	reap(&fixture.first, &completion);

	expect_event(0, TRACE_OPEN, 0);
	expect_event(1, TRACE_CLEAN, BASE);
	expect_event(2, TRACE_CLEAN, BASE + 64);
	expect_event(3, TRACE_FLUSH, BASE + 1024);
	expect_event(4, TRACE_FLUSH, BASE + 1088);
	expect_event(5, TRACE_COMPLETE_FLUSHED, 0);
	assert_int_equal(trace.count, 6);

	assert_int_equal(completion.status, 0);
	assert_int_equal(completion.user_data, 42);
	assert_int_equal(completion.entries, 4);
	assert_int_equal(completion.elided, 1);
	assert_int_equal(completion.lines, 4);
	assert_int_equal(completion.bytes, 256);
	assert_int_equal(completion.bad_entry, DMASYNC_NO_ENTRY);
}

/* Arm SI L1 4311569: all operations once more before the one barrier, over many slices. */
static void second_pass_before_the_barrier(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	struct dmasync_unit units[] = {
		entry(HANDLE, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, 200 * LINE),
		entry(HANDLE, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 512 * LINE, 100 * LINE),
	};
	size_t n = 1;

	fixture_stop(&fixture);
	fixture_start(&fixture, 50, 64, -1);
	trace.ring = &fixture.first.ring;
	trace.next_completion = fixture.first.reaped;
	fixture.cache.second_pass = true; /* seen by the worker through the submission's release */
	submit_units(&fixture.first, units, 2, 1);
	reap(&fixture.first, &completion);

	expect_event(0, TRACE_OPEN, 0);
	for (int pass = 0; pass < 2; pass++) {
		for (uintptr_t line = 0; line < 200; line++)
			expect_event(n++, TRACE_CLEAN, BASE + line * LINE);
		for (uintptr_t line = 512; line < 612; line++)
			expect_event(n++, TRACE_FLUSH, BASE + line * LINE);
	}
	expect_event(n++, TRACE_COMPLETE_FLUSHED, 0);
	assert_int_equal(trace.count, n);
	assert_int_equal(completion.status, 0);
	assert_int_equal(completion.lines, 600);
	assert_int_equal(completion.bytes, 300 * LINE);
}

static void one_entry_inside_the_submission(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	struct dmasync_unit unit = entry(HANDLE, DMASYNC_FOR_DEVICE, DMASYNC_FROM_DEVICE, 128, 64);

	submit_units(&fixture.first, &unit, 1, 1);
	reap(&fixture.first, &completion);
	expect_event(0, TRACE_OPEN, 0);
	expect_event(1, TRACE_CLEAN, BASE + 128);
	expect_event(2, TRACE_COMPLETE, 0);
	assert_int_equal(trace.count, 3);
	assert_false(completion.flags & DMASYNC_COMPLETION_EXTENDED);
}

static void strided_rows(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	struct dmasync_unit units[2] = {
		{.word = dmasync_unit_word(HANDLE, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 1),
		 .length = 100,
		 .offset = 10},
	};
	struct dmasync_unit_rows rows = {.rows = 3, .stride = 1000};
	size_t n = 1;

	memcpy(&units[1], &rows, sizeof rows);
	submit_units(&fixture.first, units, 2, 1);
	reap(&fixture.first, &completion);
	expect_event(0, TRACE_OPEN, 0);
	for (uintptr_t row = 0; row < 3; row++) {
		uintptr_t first = (BASE + 10 + row * 1000) / LINE * LINE;
		uintptr_t last = (BASE + 10 + row * 1000 + 99) / LINE * LINE;

		for (uintptr_t line = first; line <= last; line += LINE)
			expect_event(n++, TRACE_CLEAN, line);
	}
	expect_event(n++, TRACE_COMPLETE, 0);
	assert_int_equal(trace.count, n);
	assert_int_equal(completion.entries, 1);
	assert_int_equal(completion.lines, n - 2);
}

static void elided_entries_keep_fence_and_barrier(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	struct dmasync_unit unit = entry(HANDLE, DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE, 0, 4096);

	submit_units(&fixture.first, &unit, 1, 1);
	reap(&fixture.first, &completion);
	expect_event(0, TRACE_OPEN, 0);
	expect_event(1, TRACE_COMPLETE, 0);
	assert_int_equal(trace.count, 2);
	assert_int_equal(completion.lines, 0);
	assert_int_equal(completion.elided, 1);
}

/* A batch of many chunks whose last entry is bad: not one line, not even the fence. */
static void all_or_nothing(void **state)
{
	(void)state;
	enum { COUNT = 2000 };
	struct dmasync_unit *units = calloc(COUNT, sizeof *units);
	struct dmasync_ring_completion completion;

	assert_non_null(units);
	for (uint32_t i = 0; i < COUNT; i++)
		units[i] = entry(HANDLE, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, i * 128, 64);
	units[COUNT - 1].offset = BUFFER_SIZE - 63;
	submit_units(&fixture.first, units, COUNT, 5);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, -ERANGE);
	assert_int_equal(completion.reason, DMASYNC_REASON_OUT_OF_RANGE);
	assert_int_equal(completion.bad_entry, COUNT - 1);
	assert_int_equal(completion.lines, 0);
	assert_int_equal(trace.count, 0);

	units[COUNT - 1].offset = BUFFER_SIZE - 64; /* and it is good */
	trace.next_completion = fixture.first.reaped;
	submit_units(&fixture.first, units, COUNT, 6);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
	assert_int_equal(completion.lines, COUNT);
	assert_int_equal(trace.count, COUNT + 2);
	for (size_t i = 0; i < trace.count; i++)
		assert_false(trace.event[i].published);
	free(units);
}

static void batches_complete_in_order_across_the_wrap(void **state)
{
	(void)state;
	trace.ring = NULL;
	for (uint64_t i = 0; i < rounds(1000); i++) { /* 0xffffff00 + 256 is 2^32 */
		struct dmasync_ring_completion completion;

		for (uint64_t k = 0; k < 4; k++) {
			struct dmasync_unit units[3];

			for (uint32_t j = 0; j < 3; j++)
				units[j] = entry(HANDLE, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE,
						 j * 256, 64);
			submit_units(&fixture.first, units, (uint32_t)(1 + k % 3), i * 4 + k);
		}
		for (uint64_t k = 0; k < 4; k++) {
			reap(&fixture.first, &completion);
			assert_int_equal(completion.status, 0);
			assert_int_equal(completion.user_data, i * 4 + k);
			assert_int_equal(completion.lines, 1 + k % 3);
		}
	}
}

/* ---- another CPU in the middle ---- */

static uint32_t moves;
static int cpus[2];
static bool two_cpus;

static void move_once(uintptr_t address)
{
	cpu_set_t other;

	if (address != BASE + 4096 || moves == 0)
		return;
	CPU_ZERO(&other);
	CPU_SET((unsigned)(sched_getcpu() == cpus[0] ? cpus[1] : cpus[0]), &other);
	assert_int_equal(sched_setaffinity(0, sizeof other, &other), 0);
	moves--;
}

static void a_change_of_cpu_issues_again(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	struct dmasync_unit unit = entry(HANDLE, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, 8192);
	cpu_set_t mine;
	int found = 0;

	assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
	for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
		if (CPU_ISSET((unsigned)cpu, &mine))
			cpus[found++] = cpu;
	if (found < 2)
		skip();

	moves = 1;
	trace.hook = move_once;
	submit_units(&fixture.first, &unit, 1, 1);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
	assert_true(completion.flags & DMASYNC_COMPLETION_REISSUED);
	assert_int_equal(completion.lines, 128);

	/* Everything twice, the second time on one CPU. */
	assert_int_equal(trace.count, 2 * 130);
	for (size_t pass = 0; pass < 2; pass++) {
		expect_event(pass * 130, TRACE_OPEN, 0);
		for (size_t i = 0; i < 128; i++)
			expect_event(pass * 130 + 1 + i, TRACE_CLEAN, BASE + i * LINE);
		expect_event(pass * 130 + 129, TRACE_COMPLETE, 0);
	}
	assert_int_equal(worker_stats(fixture.worker)->reissued, 1);
}

static int start_pinned(void **state)
{
	cpu_set_t mine;
	int found = 0;

	assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
	for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
		if (CPU_ISSET((unsigned)cpu, &mine))
			cpus[found++] = cpu;
	two_cpus = found == 2;
	(void)state;
	fixture_start(&fixture, 50, 4096, cpus[0]);
	trace.ring = &fixture.first.ring;
	trace.next_completion = fixture.first.reaped;
	return 0;
}

/* As where its CPU goes offline: the kernel moves the thread, and nobody has asked it to. */
static void a_pinned_worker_that_is_moved_says_so(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	struct dmasync_unit unit = entry(HANDLE, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, 8192);
	struct pollfd events = {.fd = fixture.events_fd, .events = POLLIN};
	cpu_set_t others;

	if (!two_cpus)
		skip();
	assert_int_equal(worker_cpu(fixture.worker), cpus[0]);
	submit_units(&fixture.first, &unit, 1, 1);
	reap(&fixture.first, &completion);
	assert_false(completion.flags & DMASYNC_COMPLETION_REISSUED);
	assert_false(worker_take_displaced(fixture.worker));

	moves = 1;
	trace.hook = move_once;
	submit_units(&fixture.first, &unit, 1, 2);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
	assert_true(completion.flags & DMASYNC_COMPLETION_REISSUED);
	assert_int_equal(poll(&events, 1, 10000), 1);
	assert_true(worker_take_displaced(fixture.worker));
	assert_false(worker_take_displaced(fixture.worker)); /* once */

	/* Where it is put it stays, and it is asked for nothing more. */
	assert_int_equal(worker_pin(fixture.worker, cpus[1], NULL), 0);
	assert_int_equal(worker_cpu(fixture.worker), cpus[1]);
	submit_units(&fixture.first, &unit, 1, 3);
	reap(&fixture.first, &completion);
	assert_false(completion.flags & DMASYNC_COMPLETION_REISSUED);
	assert_false(worker_take_displaced(fixture.worker));

	/* Without a CPU of its own any one will do. */
	CPU_ZERO(&others);
	CPU_SET((unsigned)cpus[0], &others);
	CPU_SET((unsigned)cpus[1], &others);
	assert_int_equal(worker_pin(fixture.worker, -1, &others), 0);
	assert_int_equal(worker_cpu(fixture.worker), -1);
	moves = 1;
	submit_units(&fixture.first, &unit, 1, 4);
	reap(&fixture.first, &completion);
	assert_true(completion.flags & DMASYNC_COMPLETION_REISSUED);
	assert_false(worker_take_displaced(fixture.worker));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(opening_fence_lines_barrier_publish, start, stop),
		cmocka_unit_test_setup_teardown(second_pass_before_the_barrier, start, stop),
		cmocka_unit_test_setup_teardown(one_entry_inside_the_submission, start, stop),
		cmocka_unit_test_setup_teardown(strided_rows, start, stop),
		cmocka_unit_test_setup_teardown(elided_entries_keep_fence_and_barrier, start, stop),
		cmocka_unit_test_setup_teardown(all_or_nothing, start, stop),
		cmocka_unit_test_setup_teardown(batches_complete_in_order_across_the_wrap, start,
						stop),
		cmocka_unit_test_setup_teardown(a_change_of_cpu_issues_again, start, stop),
		cmocka_unit_test_setup_teardown(a_pinned_worker_that_is_moved_says_so, start_pinned,
						stop),
	};

	return cmocka_run_group_tests_name("worker-trace", tests, NULL, NULL);
}
