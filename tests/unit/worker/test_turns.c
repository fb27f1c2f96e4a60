/* SPDX-License-Identifier: MIT */
/*
 * The scheduler in a real worker: what a batch waited for, as its record says, exact and bounded.
 * Counts and order, no times.
 */
#include <errno.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "fixture.h"

static struct fixture fixture;
static sem_t at_line, go_on; /* the worker waits before a marked line */
static uintptr_t marked;
static long nap_ns; /* or sleeps */

#define HANDLE (fixture.buffer.handle)
#define BASE (fixture.buffer.cache.base)
#define SLICE 256u
#define OTHER ((struct client *)(uintptr_t)0x2000)
#define THIRD ((struct client *)(uintptr_t)0x3000)

/* What a batch costs besides its lines: worker_batch.c. */
#define FETCH 16u

static void wait_at_mark(uintptr_t address)
{
	if (address != marked)
		return;
	if (nap_ns) {
		nanosleep(&(struct timespec){.tv_nsec = nap_ns}, NULL);
		return;
	}
	sem_post(&at_line);
	sem_wait(&go_on);
}

static int start(void **state)
{
	(void)state;
	sem_init(&at_line, 0, 0);
	sem_init(&go_on, 0, 0);
	fixture_start(&fixture, 50, SLICE, -1);
	marked = 0;
	nap_ns = 0;
	trace.hook = wait_at_mark;
	return 0;
}

static int stop(void **state)
{
	(void)state;
	fixture_stop(&fixture);
	return 0;
}

/* One plain entry: `lines` lines from line `first` on. */
static void submit_lines(struct client_queue *queue, uint32_t first, uint32_t lines)
{
	struct dmasync_unit unit = entry(HANDLE, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE,
					 (uint64_t)first * LINE, lines * LINE);

	submit_units(queue, &unit, 1, first);
}

/* The worker stops before this line, in a batch of the first queue; then `go()`. */
static void hold_at(uint32_t first, uint32_t lines, uint32_t line)
{
	marked = BASE + (uintptr_t)line * LINE;
	submit_lines(&fixture.first, first, lines);
	sem_wait(&at_line);
}

static void go(void)
{
	marked = 0;
	sem_post(&go_on);
}

/* All records so far, in the order of completion. Everything that was reaped is among them. */
static uint32_t read_records(struct dmasync_batch_record *ret, uint32_t most)
{
	uint64_t cursor = 0, lost = 0;

	/* The record follows the publish: answered when it is through with that. */
	post_and_wait(&fixture, WORKER_BUFFER_GRACE, NULL, CLIENT);
	uint32_t count = records_read(worker_records(fixture.worker), &cursor, most, ret, &lost);

	assert_int_equal(lost, 0);
	return count;
}

static struct dmasync_batch_record record_of(uint64_t user_data)
{
	static struct dmasync_batch_record records[RECORDS_SIZE];
	uint32_t count = read_records(records, RECORDS_SIZE);

	for (uint32_t i = 0; i < count; i++)
		if (records[i].user_data == user_data)
			return records[i];
	fail_msg("no record of batch %llu", (unsigned long long)user_data);
	return records[0];
}

static uint64_t slices(enum dmasync_class klass)
{
	return atomic_load(&worker_stats(fixture.worker)->klass[klass].slices);
}

static size_t lines_before(uint32_t line)
{
	size_t lines = 0;

	for (size_t i = 0; i < trace.count; i++) {
		if (trace.event[i].kind != TRACE_CLEAN)
			continue;
		if (trace.event[i].address == BASE + (uintptr_t)line * LINE)
			return lines;
		lines++;
	}
	fail_msg("line %u was not issued", line);
	return 0;
}

/* ---- commands ---- */

#define COMMANDS 200u
#define COMMANDS_PER_TURN 16u /* worker_commands.c */

static uint32_t answered; /* when the marked line was issued */

static void count_answers(uintptr_t address)
{
	if (address != BASE + 50000 * LINE)
		return;
	/* On the worker, which alone posts there; the taker sleeps. */
	for (const struct mailbox_node *node = atomic_load(&fixture.events.newest); node;
	     node = node->next)
		answered++;
	sem_post(&at_line);
}

static void wait_or_count(uintptr_t address)
{
	wait_at_mark(address);
	count_answers(address);
}

/* However many requests came meanwhile: between two slices only so many are looked at. */
static void a_batch_does_not_wait_for_all_commands(void **state)
{
	struct client_queue realtime;
	struct dmasync_ring_completion completion;

	(void)state;
	answered = 0;
	queue_open_as(&fixture, &realtime, 8, 64, THIRD, DMASYNC_CLASS_REALTIME, 2);
	trace.hook = wait_or_count;
	hold_at(0, 1, 0);
	for (uint32_t i = 0; i < COMMANDS; i++) {
		struct worker_command *command = command_new(WORKER_BUFFER_GRACE);

		command->client = OTHER; /* has nothing here: answered at once */
		worker_post(fixture.worker, command);
	}
	submit_lines(&realtime, 50000, 1);
	go();
	sem_wait(&at_line);
	for (uint32_t i = 0; i < COMMANDS; i++)
		free(await_event(&fixture, WORKER_BUFFER_GRACE));
	assert_int_equal(answered, COMMANDS_PER_TURN);
	reap(&realtime, &completion);
	reap(&fixture.first, &completion);
	queue_release(&fixture, &realtime);
}

/* ---- classes ---- */

static void realtime_waits_for_one_slice_of_bulk(void **state)
{
	struct client_queue bulk[2], realtime;
	struct dmasync_ring_completion completion;

	(void)state;
	for (int i = 0; i < 2; i++)
		queue_open_as(&fixture, &bulk[i], 8, 64, OTHER, DMASYNC_CLASS_BULK, 1);
	queue_open_as(&fixture, &realtime, 8, 64, THIRD, DMASYNC_CLASS_REALTIME, 2);

	marked = BASE;
	for (uint32_t i = 0; i < 4; i++)
		submit_lines(&bulk[0], i * 5000, 5000);
	sem_wait(&at_line);
	for (uint32_t i = 4; i < 8; i++)
		submit_lines(&bulk[1], i * 5000, 5000);
	submit_lines(&realtime, 50000, 1);
	go();
	reap(&realtime, &completion);
	assert_int_equal(completion.status, 0);
	assert_true(completion.flags & DMASYNC_COMPLETION_MIXED);
	for (int k = 0; k < 4; k++) {
		reap(&bulk[0], &completion);
		reap(&bulk[1], &completion);
	}

	/* A slice that begins a batch of one entry: its fetch, its unit, its run, and lines. */
	struct dmasync_batch_record record = record_of(50000);

	assert_int_equal(record.waited_lines, SLICE - FETCH - 1 - 1);
	assert_int_equal(record.waited_lines, lines_before(50000));
	assert_int_equal(record.waited_entries, 1);
	assert_int_equal(record.klass, DMASYNC_CLASS_REALTIME);
	assert_int_equal(worker_stats(fixture.worker)->klass[DMASYNC_CLASS_REALTIME].waited_lines,
			 record.waited_lines);
	assert_int_equal(slices(DMASYNC_CLASS_REALTIME), 1);

	/* 8 batches of 5000 lines and 18 credit: 20 slices each, of which the last is short. */
	assert_int_equal(slices(DMASYNC_CLASS_BULK), 8 * 20);
	for (int i = 0; i < 2; i++)
		queue_release(&fixture, &bulk[i]);
	queue_release(&fixture, &realtime);
}

/* Each time anew, at whatever moment of the bulk batches: never more than one slice. */
static void realtime_never_waits_for_more(void **state)
{
	enum { COUNT = 200 };
	static struct dmasync_batch_record records[RECORDS_SIZE];
	struct client_queue bulk, normal, realtime;
	struct dmasync_ring_completion completion;
	uint32_t urgent = 0;

	(void)state;
	queue_open_as(&fixture, &bulk, 2, 64, OTHER, DMASYNC_CLASS_BULK, 1);
	queue_open_as(&fixture, &normal, 2, 64, OTHER, DMASYNC_CLASS_NORMAL, 1);
	queue_open_as(&fixture, &realtime, 8, 64, THIRD, DMASYNC_CLASS_REALTIME, 2);
	marked = BASE + 65535 * LINE; /* hold the first one until all is submitted */
	submit_lines(&bulk, 65000, 536);
	sem_wait(&at_line);
	submit_lines(&bulk, 0, 50000);
	submit_lines(&normal, 50000, 10000);
	submit_lines(&normal, 0, 10000);
	submit_lines(&realtime, 64000, 1); /* this one in the middle of a slice for certain */
	go();
	for (uint32_t i = 1; i < COUNT; i++) {
		reap(&realtime, &completion);
		submit_lines(&realtime, 64000 + i, 1);
	}
	reap(&realtime, &completion);
	for (int i = 0; i < 2; i++) {
		reap(&normal, &completion);
		reap(&bulk, &completion);
	}
	uint32_t count = read_records(records, RECORDS_SIZE);

	for (uint32_t i = 0; i < count; i++) {
		if (records[i].klass != DMASYNC_CLASS_REALTIME)
			continue;
		assert_true(records[i].waited_lines <= SLICE);
		urgent++;
	}
	assert_int_equal(urgent, COUNT);
	assert_true(record_of(64000).waited_lines > 0);
	queue_release(&fixture, &bulk);
	queue_release(&fixture, &normal);
	queue_release(&fixture, &realtime);
}

/* ---- all work costs credit ---- */

static void entries_that_touch_no_line_yield_too(void **state)
{
	enum { COUNT = 4096 };
	struct client_queue queue[2];
	struct dmasync_ring_completion completion;
	struct dmasync_unit *units = calloc(COUNT, sizeof *units);
	uint32_t waited[2];

	(void)state;
	assert_non_null(units);
	for (uint32_t i = 0; i < COUNT; i++)
		units[i] = entry(HANDLE, DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE, i * LINE, LINE);
	for (uint32_t i = 0; i < 2; i++)
		queue_open_as(&fixture, &queue[i], 8, COUNT, OTHER, DMASYNC_CLASS_BULK, i);
	hold_at(0, 1, 0);
	for (uint32_t i = 0; i < 2; i++)
		submit_units(&queue[i], units, COUNT, 7 + i);
	go();
	reap(&fixture.first, &completion);
	for (uint32_t i = 0; i < 2; i++) {
		reap(&queue[i], &completion);
		assert_int_equal(completion.elided, COUNT);
		assert_int_equal(completion.lines, 0);
		waited[i] = record_of(7 + i).waited_entries;
	}
	/* The fetch and 4096 units in slices of 256: 17. */
	assert_int_equal(slices(DMASYNC_CLASS_BULK), 2 * ((FETCH + COUNT + SLICE - 1) / SLICE));
	/* The one entry that held the worker; then one of them waited for a slice of the other. */
	assert_int_equal(waited[0] < waited[1] ? waited[0] : waited[1], 1);
	assert_int_equal(waited[0] + waited[1], 1 + 1 + SLICE - FETCH);
	for (uint32_t i = 0; i < 2; i++)
		queue_release(&fixture, &queue[i]);
	free(units);
}

static void rows_cost_credit(void **state)
{
	enum { ROWS = 3000 };
	struct dmasync_ring_completion completion;
	struct dmasync_unit units[2] = {
		{.word = dmasync_unit_word(HANDLE, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 1),
		 .length = 1},
	};
	struct dmasync_unit_rows rows = {.rows = ROWS, .stride = 4 * LINE};

	(void)state;
	memcpy(&units[1], &rows, sizeof rows);
	submit_units(&fixture.first, units, 2, 7);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.lines, ROWS);
	post_and_wait(&fixture, WORKER_BUFFER_GRACE, NULL, CLIENT);
	/* Two for each row, its begin and its line; an odd one is lost at the end of a slice. */
	assert_in_range(slices(DMASYNC_CLASS_NORMAL), (FETCH + 2 + 2 * ROWS) / SLICE,
			(FETCH + 2 + 2 * ROWS) / (SLICE - 1) + 1);
}

/* A queue whose batches are all bad pays for each: it gets as much as its neighbour, no more. */
static void bad_batches_pay(void **state)
{
	enum { COUNT = 256 };
	static struct dmasync_batch_record records[RECORDS_SIZE];
	struct client_queue bad, good;
	struct dmasync_ring_completion completion;
	int64_t lead = 0;

	(void)state;
	queue_open_as(&fixture, &bad, COUNT, 64, OTHER, DMASYNC_CLASS_NORMAL, 1);
	queue_open_as(&fixture, &good, COUNT, 64, THIRD, DMASYNC_CLASS_NORMAL, 2);
	hold_at(0, 1, 0);
	for (uint32_t i = 0; i < COUNT; i++) {
		struct dmasync_submission nothing = {.user_data = 1};

		dmasync_ring_submit(&bad.ring, bad.submitted++, &nothing);
		submit_lines(&good, 2, 1);
	}
	go();
	for (uint32_t i = 0; i < COUNT; i++) {
		reap(&bad, &completion);
		assert_int_equal(completion.status, -EINVAL);
		reap(&good, &completion);
		assert_int_equal(completion.status, 0);
	}
	uint32_t count = read_records(records, RECORDS_SIZE), seen = 0;

	for (uint32_t i = 0; i < count && seen < COUNT; i++) { /* while both have some left */
		if (records[i].user_data == 0)
			continue; /* that held the worker */
		seen++;
		/* Fetch alone against fetch, unit, run and line. */
		lead += records[i].user_data == 1 ? FETCH : -(int64_t)(FETCH + 3);
		assert_in_range(lead + 2 * SLICE, 0, 4 * SLICE);
	}
	assert_int_equal(seen, COUNT);
	queue_release(&fixture, &bad);
	queue_release(&fixture, &good);
}

static void tune(uint32_t slice_us, uint32_t slice_lines, uint32_t simulated_ps)
{
	struct worker_command *command = command_new(WORKER_TUNE);

	command->spin_us = 50;
	command->slice_us = slice_us;
	command->slice_lines = slice_lines;
	command->simulated_ps = simulated_ps;
	command->max_batch_lines = UINT64_C(1) << 32;
	worker_post(fixture.worker, command);
	free(await_event(&fixture, WORKER_TUNE));
}

/* By the dearest operation measured at start, and never more than slice_lines. */
static void slice_us_is_turned_into_lines(void **state)
{
	enum { LINES = 5000, COST = FETCH + 2 + LINES };
	static const struct {
		uint32_t us, lines, clean_ps, flush_ps, simulated_ps, expected;
	} cases[] = {
		{1, 4096, 10000, 1000, 0, 100},
		{1, 4096, 1000, 5000, 0, 200},
		{2, 4096, 1000, 5000, 20000, 100},
		{50, 500, 5000, 5000, 0, 500},
		{50, 4096, 0, 0, 0, 4096},
		{1, 4096, 1000000, 5000, 0, 64},
		{10000, 1048576, 9000, 10000, 0, 1000000},
	};
	struct dmasync_ring_completion completion;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		uint64_t before = slices(DMASYNC_CLASS_NORMAL);

		fixture.cache.clean_ps = cases[i].clean_ps;
		fixture.cache.flush_ps = cases[i].flush_ps;
		tune(cases[i].us, cases[i].lines, cases[i].simulated_ps);
		submit_lines(&fixture.first, 0, LINES);
		reap(&fixture.first, &completion);
		assert_int_equal(slices(DMASYNC_CLASS_NORMAL) - before,
				 (COST + cases[i].expected - 1) / cases[i].expected);
	}
}

/* ---- users ---- */

static void two_users_get_equal_lines(void **state)
{
	enum { QUEUES = 64, LINES = 32000, EACH = 500 };
	static struct client_queue many[QUEUES];
	struct client_queue one;
	struct dmasync_ring_completion completion;
	size_t of_one = 0, of_many = 0, worst = 0;

	(void)state;
	queue_open_as(&fixture, &one, 2, 64, THIRD, DMASYNC_CLASS_BULK, 1000);
	for (uint32_t i = 0; i < QUEUES; i++)
		queue_open_as(&fixture, &many[i], 2, 64, OTHER, DMASYNC_CLASS_BULK, 1001);
	hold_at(65535, 1, 65535);
	for (uint32_t i = 0; i < QUEUES; i++)
		submit_lines(&many[i], LINES + i * EACH, EACH);
	submit_lines(&one, 0, LINES);
	go();
	reap(&one, &completion);
	for (uint32_t i = 0; i < QUEUES; i++)
		reap(&many[i], &completion);
	for (size_t i = 0; i < trace.count && of_one < LINES && of_many < QUEUES * EACH; i++) {
		uintptr_t line = (trace.event[i].address - BASE) / LINE;

		if (trace.event[i].kind != TRACE_CLEAN || line == 65535)
			continue;
		of_one += line < LINES;
		of_many += line >= LINES;
		size_t apart = of_one > of_many ? of_one - of_many : of_many - of_one;

		worst = apart > worst ? apart : worst;
	}
	/*
	 * In credit they are never more than two slices apart. In lines the many pay for the fetch,
	 * unit and run of each of their batches besides.
	 */
	assert_true(worst <= 2 * SLICE + QUEUES * (FETCH + 2));
	assert_true(of_one + of_many > LINES + QUEUES * EACH / 2);
	queue_release(&fixture, &one);
	for (uint32_t i = 0; i < QUEUES; i++)
		queue_release(&fixture, &many[i]);
}

/* ---- looks ---- */

/*
 * However many queues are idle: what is submitted to any of them is found when so much was done for
 * others, and a look is paid by 32 line operations (worker_watch.c).
 */
static void a_batch_among_many_idle_queues_is_found(void **state)
{
	enum { QUEUES = 256, BOUND = 32 * (QUEUES + 1) + 2 * SLICE };
	static struct client_queue idle[QUEUES];
	struct dmasync_ring_completion completion;
	uint64_t most = 0;

	(void)state;
	for (uint32_t i = 0; i < QUEUES; i++)
		queue_open(&fixture, &idle[i], 2, 2, OTHER);
	for (uint32_t i = 0; i < QUEUES; i += 31) {
		hold_at(0, 30000, 1000);
		submit_lines(&idle[i], 50000 + i, 1);
		go();
		reap(&idle[i], &completion);
		reap(&fixture.first, &completion);

		struct dmasync_batch_record record = record_of(50000 + i);

		assert_in_range(record.waited_lines, 1, BOUND);
		most = record.waited_lines > most ? record.waited_lines : most;
		trace.count = 0;
	}
	assert_true(most > SLICE); /* or nothing was put off, and the bound says nothing */
	for (uint32_t i = 0; i < QUEUES; i++)
		queue_release(&fixture, &idle[i]);
}

/* The predecessor in its own queue is not what a batch waits for. */
static void a_batch_does_not_wait_for_its_own_queue(void **state)
{
	struct dmasync_ring_completion completion;

	(void)state;
	hold_at(0, 1000, 0);
	submit_lines(&fixture.first, 2000, 1000);
	submit_lines(&fixture.first, 4000, 1000);
	go();
	for (int i = 0; i < 3; i++)
		reap(&fixture.first, &completion);
	assert_int_equal(record_of(0).waited_lines, 0);
	assert_int_equal(record_of(2000).waited_lines, 0);
	assert_int_equal(record_of(4000).waited_lines, 0);
	assert_int_equal(record_of(4000).waited_entries, 0);
}

/* A message waits like a batch of a normal queue, and is counted as one. */
static void a_sync_message_waits_for_one_slice(void **state)
{
	union cache_unit unit = {
		.entry = entry(HANDLE, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 50000 * LINE, LINE)};
	struct worker_command *command = command_new(WORKER_SYNC);
	struct dmasync_ring_completion completion;

	(void)state;
	command->client = OTHER;
	command->uid = 1;
	command->buffers = &fixture.table;
	command->owner = &fixture.owner;
	command->user_data = 50000;
	command->units = &unit;
	command->units_size = 1;
	command->count = 1;
	hold_at(0, 10000, 0);
	worker_post(fixture.worker, command);
	go();
	assert_ptr_equal(await_event(&fixture, WORKER_SYNC), command);
	assert_int_equal(command->error, 0);
	assert_int_equal(command->result.status, 0);
	reap(&fixture.first, &completion);

	struct dmasync_batch_record record = record_of(50000);

	assert_int_equal(record.waited_lines, SLICE - FETCH - 1 - 1);
	assert_int_equal(record.klass, DMASYNC_CLASS_NORMAL);
	free(command);
}

/* ---- slices that overrun ---- */

static void a_slice_that_overruns_is_counted(void **state)
{
	struct dmasync_ring_completion completion;
	struct client_queue other;

	(void)state;
	queue_open(&fixture, &other, 8, 64, OTHER);
	marked = BASE + 100 * LINE;
	nap_ns = 30000000; /* as a page fault that waits for memory; the limit is 5 ms */
	submit_lines(&other, 0, 200);
	reap(&other, &completion);
	post_and_wait(&fixture, WORKER_BUFFER_GRACE, NULL, CLIENT);
	assert_true(worker_stats(fixture.worker)->slice_overruns >= 1);
	queue_release(&fixture, &other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)
		CASE(a_batch_does_not_wait_for_all_commands),
		CASE(realtime_waits_for_one_slice_of_bulk),
		CASE(realtime_never_waits_for_more),
		CASE(entries_that_touch_no_line_yield_too),
		CASE(rows_cost_credit),
		CASE(bad_batches_pay),
		CASE(slice_us_is_turned_into_lines),
		CASE(two_users_get_equal_lines),
		CASE(a_batch_among_many_idle_queues_is_found),
		CASE(a_batch_does_not_wait_for_its_own_queue),
		CASE(a_sync_message_waits_for_one_slice),
		CASE(a_slice_that_overruns_is_counted),
	};

	return cmocka_run_group_tests_name("worker-turns", tests, NULL, NULL);
}
