/* SPDX-License-Identifier: MIT */
/*
 * share_barrier: batches that are issued back to back complete behind one barrier, each after it
 * and in the order of their issue; bounds, urgent batches, another CPU, a client that goes away.
 * Order and counts.
 */
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <time.h>

#include "fixture.h"

#include "daemon/records.h"

#define HANDLE (fixture.buffer.handle)
#define BASE (fixture.buffer.cache.base)
#define OTHER_CLIENT ((struct client *)(uintptr_t)0x2000)
#define QUEUES 5u /* three more of the same client, and these two: */
#define OTHERS 3u
#define URGENT 4u
#define LONG_US (60u * 1000 * 1000)

static struct fixture fixture;
static struct client_queue queues[QUEUES]; /* beside the fixture's first one */
static sem_t at_line, go_on;		   /* the worker waits before the first line of all */
static int cpus[2];

static void (*at_second)(void); /* before the first line of the second batch */

static void wait_at_first(uintptr_t address)
{
	if (address == BASE && trace.count == 1) {
		sem_post(&at_line);
		sem_wait(&go_on);
	}
	if (address == BASE + 4096 && at_second)
		at_second();
}

static void tune(uint32_t lines, uint32_t us)
{
	struct worker_command *command = command_new(WORKER_TUNE);

	command->spin_us = 50;
	command->slice_lines = 4096;
	command->max_batch_lines = 4096;
	command->share_barrier_lines = lines;
	command->share_barrier_us = us;
	worker_post(fixture.worker, command);
	free(await_event(&fixture, WORKER_TUNE));
}

static int start(void **state)
{
	cpu_set_t mine;
	int found = 0;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
	for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
		if (CPU_ISSET((unsigned)cpu, &mine))
			cpus[found++] = cpu;
	if (found < 2)
		cpus[1] = -1;
	sem_init(&at_line, 0, 0);
	sem_init(&go_on, 0, 0);
	/* Pinned: a batch that changes CPU is issued again, which only one case is about. */
	fixture_start(&fixture, 50, 4096, cpus[0]);
	at_second = NULL;
	trace.hook = wait_at_first;
	tune(4096, LONG_US);
	for (uint32_t i = 0; i < QUEUES; i++)
		queue_open_as(&fixture, &queues[i], 8, 64, i == OTHERS ? OTHER_CLIENT : CLIENT,
			      i == URGENT ? DMASYNC_CLASS_REALTIME : DMASYNC_CLASS_NORMAL, 0);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < QUEUES; i++)
		if (queues[i].queue)
			queue_release(&fixture, &queues[i]);
	fixture_stop(&fixture);
	return 0;
}

/* Batch n begins at page n. */
static void submit(struct client_queue *queue, uint32_t n, uint32_t lines, enum dmasync_sync sync)
{
	struct dmasync_unit unit =
		entry(HANDLE, sync, DMASYNC_BIDIRECTIONAL, n * 4096, lines * LINE);

	submit_units(queue, &unit, 1, n);
}

static void submit_clean(struct client_queue *queue, uint32_t n, uint32_t lines)
{
	submit(queue, n, lines, DMASYNC_FOR_DEVICE);
}

/* The first batch, and the worker in the middle of it: what is submitted now stands in line. */
static void hold_worker_in_first(uint32_t lines)
{
	submit_clean(&fixture.first, 0, lines);
	sem_wait(&at_line);
}

static uint64_t counter(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static struct dmasync_ring_completion expect(struct client_queue *queue, uint32_t n, uint32_t lines,
					     uint32_t shared_by)
{
	struct dmasync_ring_completion completion;

	reap(queue, &completion);
	assert_int_equal(completion.status, 0);
	assert_int_equal(completion.user_data, n);
	assert_int_equal(completion.lines, lines);
	assert_int_equal(completion.shared_by, shared_by);
	assert_int_equal((completion.flags & DMASYNC_COMPLETION_EXTENDED) != 0, shared_by > 0);
	return completion;
}

/* "o" an opening fence, a digit for the batch a line belongs to, "|" a barrier. */
static void expect_trace(const char *wanted)
{
	char seen[64] = "";
	size_t n = 0;

	for (size_t i = 0; i < trace.count; i++) {
		const struct trace_event *event = &trace.event[i];

		assert_true(n < sizeof seen - 1);
		switch (event->kind) {
		case TRACE_OPEN:
			seen[n++] = 'o';
			break;
		case TRACE_CLEAN:
		case TRACE_FLUSH:
			seen[n++] = (char)('0' + (event->address - BASE) / 4096);
			break;
		case TRACE_COMPLETE:
			seen[n++] = '|';
			break;
		case TRACE_COMPLETE_FLUSHED:
			seen[n++] = '!';
			break;
		}
		assert_false(event->published);
	}
	assert_string_equal(seen, wanted);
}

/* The batches as they were published. */
static void expect_order(const uint32_t *batches, uint32_t count)
{
	struct dmasync_batch_record records[16];
	uint64_t cursor = 0, lost = 0;

	assert_int_equal(records_read(worker_records(fixture.worker), &cursor, 16, records, &lost),
			 count);
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(records[i].user_data, batches[i]);
}

static void four_batches_one_barrier(void **state)
{
	const struct worker_stats *stats = worker_stats(fixture.worker);

	(void)state;
	trace.ring = &queues[2].ring; /* no completion of the last one before the barrier */
	trace.next_completion = queues[2].reaped;
	hold_worker_in_first(1);
	for (uint32_t i = 0; i < 3; i++)
		submit_clean(&queues[i], i + 1, 1);
	sem_post(&go_on);

	struct dmasync_ring_completion completion = expect(&fixture.first, 0, 1, 4);

	assert_true(completion.flags & DMASYNC_COMPLETION_MIXED);
	for (uint32_t i = 0; i < 3; i++)
		expect(&queues[i], i + 1, 1, 4);
	expect_trace("o0o1o2o3|");
	expect_order((const uint32_t[]){0, 1, 2, 3}, 4);
	assert_int_equal(counter(&stats->barriers), 1);
	assert_int_equal(counter(&stats->barriers_shared), 1);
	assert_int_equal(counter(&stats->batches), 4);
}

static void the_first_one_is_not_published_earlier(void **state)
{
	(void)state;
	trace.ring = &fixture.first.ring;
	trace.next_completion = fixture.first.reaped;
	hold_worker_in_first(1);
	for (uint32_t i = 0; i < 3; i++)
		submit_clean(&queues[i], i + 1, 1);
	sem_post(&go_on);
	expect(&queues[2], 3, 1, 4);
	expect_trace("o0o1o2o3|");
	expect(&fixture.first, 0, 1, 4);
}

static void who_is_alone_waits_for_nobody(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 3; i++) {
		submit_clean(&queues[i], i + 1, 1);
		expect(&queues[i], i + 1, 1, 0);
	}
	expect_trace("o1|o2|o3|");
	assert_int_equal(counter(&worker_stats(fixture.worker)->barriers_shared), 0);
}

static void a_flush_among_them_makes_it_the_barrier_of_flushes(void **state)
{
	(void)state;
	hold_worker_in_first(1);
	submit(&queues[0], 1, 1, DMASYNC_FOR_CPU);
	submit_clean(&queues[1], 2, 1);
	sem_post(&go_on);
	expect(&queues[1], 2, 1, 3);
	expect_trace("o0o1o2!");
}

static void each_has_its_own_where_it_is_off(void **state)
{
	(void)state;
	tune(0, LONG_US);
	hold_worker_in_first(1);
	for (uint32_t i = 0; i < 2; i++)
		submit_clean(&queues[i], i + 1, 1);
	sem_post(&go_on);
	expect(&fixture.first, 0, 1, 0);
	expect(&queues[0], 1, 1, 0);
	expect(&queues[1], 2, 1, 0);
	expect_trace("o0|o1|o2|");
}

static void no_more_than_so_many_lines_wait(void **state)
{
	(void)state;
	tune(4, LONG_US);
	hold_worker_in_first(2);
	for (uint32_t i = 0; i < 3; i++)
		submit_clean(&queues[i], i + 1, 2);
	sem_post(&go_on);
	expect(&fixture.first, 0, 2, 2);
	expect(&queues[0], 1, 2, 2);
	expect(&queues[1], 2, 2, 2);
	expect(&queues[2], 3, 2, 2);
	expect_trace("o00o11|o22o33|");
}

static void take_long(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void none_waits_longer_than_that(void **state)
{
	(void)state;
	tune(4096, 500);
	at_second = take_long;
	hold_worker_in_first(1);
	for (uint32_t i = 0; i < 2; i++)
		submit_clean(&queues[i], i + 1, 1);
	sem_post(&go_on);
	expect(&fixture.first, 0, 1, 2);
	expect(&queues[0], 1, 1, 2);
	expect(&queues[1], 2, 1, 0);
	expect_trace("o0o1|o2|");
}

/* And is published first; who has waited until then comes along. */
static void an_urgent_batch_waits_for_none(void **state)
{
	(void)state;
	hold_worker_in_first(1);
	submit_clean(&queues[0], 1, 1);
	submit_clean(&queues[URGENT], 5, 1);
	sem_post(&go_on);
	expect(&queues[URGENT], 5, 1, 2);
	expect(&fixture.first, 0, 1, 2);
	expect(&queues[0], 1, 1, 0);
	expect_trace("o0o5|o1|");
	expect_order((const uint32_t[]){5, 0, 1}, 3);
}

static void move_to(int cpu)
{
	cpu_set_t other;

	CPU_ZERO(&other);
	CPU_SET((unsigned)cpu, &other);
	assert_int_equal(sched_setaffinity(0, sizeof other, &other), 0);
}

static void move(void)
{
	at_second = NULL;
	move_to(cpus[1]);
}

/* The barrier is that of the third one's CPU: what was issued before on the other is done again. */
static void who_was_issued_on_another_cpu_is_issued_again(void **state)
{
	struct dmasync_ring_completion completion;

	(void)state;
	if (cpus[1] < 0)
		skip();
	at_second = move;
	hold_worker_in_first(1);
	for (uint32_t i = 0; i < 2; i++)
		submit_clean(&queues[i], i + 1, 1);
	sem_post(&go_on);
	completion = expect(&queues[1], 2, 1, 3);
	assert_false(completion.flags & DMASYNC_COMPLETION_REISSUED);
	completion = expect(&fixture.first, 0, 1, 2);
	assert_true(completion.flags & DMASYNC_COMPLETION_REISSUED);
	completion = expect(&queues[0], 1, 1, 2);
	assert_true(completion.flags & DMASYNC_COMPLETION_REISSUED);
	/* Both opening fences, as ever where a batch is issued again, at once. */
	expect_trace("o0o1o2|oo01|");
}

static void move_back(void)
{
	trace.open_hook = NULL;
	move_to(cpus[0]);
}

static void move_away(void)
{
	trace.barrier_hook = NULL;
	trace.open_hook = move_back;
	move_to(cpus[1]);
}

/*
 * What counts is where the barrier was: the worker is back on the CPU that issued the second batch
 * before that one's end, but its barrier was not there.
 */
static void who_is_back_too_late_is_issued_again(void **state)
{
	struct dmasync_ring_completion completion;

	(void)state;
	if (cpus[1] < 0)
		skip();
	trace.barrier_hook = move_away;
	hold_worker_in_first(1);
	submit_clean(&queues[0], 1, 1);
	sem_post(&go_on);
	completion = expect(&queues[0], 1, 1, 2);
	assert_true(completion.flags & DMASYNC_COMPLETION_REISSUED);
	/* The first one was opened once more before the way back, and needs a third barrier. */
	completion = expect(&fixture.first, 0, 1, 0);
	assert_true(completion.flags & DMASYNC_COMPLETION_REISSUED);
	expect_trace("o0o1|oo01|o0|");
}

static void a_client_that_goes_away_while_its_batch_waits(void **state)
{
	struct dmasync_ring_completion completion;
	struct worker_command *command = command_new(WORKER_CLIENT_STOP);

	(void)state;
	/* The other client's batch is issued and waits; ours is being issued. */
	command->client = OTHER_CLIENT;
	submit_clean(&queues[OTHERS], 0, 1);
	sem_wait(&at_line);
	submit_clean(&queues[1], 1, 1);
	worker_post(fixture.worker, command);
	sem_post(&go_on);
	free(await_event(&fixture, WORKER_CLIENT_STOP));
	expect(&queues[1], 1, 1, 2);
	assert_false(try_reap(&queues[OTHERS], &completion));
	expect_trace("o0o1|");
	queue_free(queues[OTHERS].queue);
	queue_close_ends(&queues[OTHERS]);
	queues[OTHERS].queue = NULL;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(four_batches_one_barrier),
		CASE(the_first_one_is_not_published_earlier),
		CASE(who_is_alone_waits_for_nobody),
		CASE(a_flush_among_them_makes_it_the_barrier_of_flushes),
		CASE(each_has_its_own_where_it_is_off),
		CASE(no_more_than_so_many_lines_wait),
		CASE(none_waits_longer_than_that),
		CASE(an_urgent_batch_waits_for_none),
		CASE(who_was_issued_on_another_cpu_is_issued_again),
		CASE(who_is_back_too_late_is_issued_again),
		CASE(a_client_that_goes_away_while_its_batch_waits),
	};

	return cmocka_run_group_tests_name("worker-share", tests, NULL, NULL);
}
