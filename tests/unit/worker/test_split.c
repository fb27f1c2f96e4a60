/* SPDX-License-Identifier: MIT */
/*
 * A batch that several workers issue: each line once, an opening fence and a barrier on each worker
 * around its own operations, the completion after the last barrier; and what happens where one of
 * them faults, changes CPU, has work of its own, or the client goes away. Order and counts.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fixture.h"

#include "daemon/clock.h"
#include "daemon/guard.h"

#define HANDLE (fixture.buffer.handle)
#define BASE (fixture.buffer.cache.base)
#define OTHER_CLIENT ((struct client *)(uintptr_t)0x2000)
#define LINES (BUFFER_SIZE / LINE)
#define SLICE 256u
#define SPLIT 1024u
#define THREADS 256u /* numbered over all cases */
#define NEVER_SPINS_OUT (60u * 1000 * 1000)

static struct fixture fixture;

/* ---- the workers at their first lines ---- */

/*
 * Each waits at its first line until `expected` of them have come, so that all of them have a part
 * in the batch whatever else the machine does.
 */
static _Atomic uint32_t arrived, expected, home;
static _Atomic bool seen[THREADS];
static sem_t helper_stands, helper_goes_on;
/* at its first line, when all have come */
static void (*on_helper)(void), (*on_home)(void);

static void pause_briefly(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void meet(uintptr_t address)
{
	uint32_t me = trace_thread();
	char name[16];

	(void)address;
	assert_true(me < THREADS);
	if (atomic_exchange(&seen[me], true))
		return;
	pthread_getname_np(pthread_self(), name, sizeof name);
	if (strcmp(name, "worker-0") == 0)
		atomic_store(&home, me);
	atomic_fetch_add(&arrived, 1);
	for (uint64_t start = clock_ns(); atomic_load(&arrived) < atomic_load(&expected) &&
					  clock_ns() - start < UINT64_C(10000000000);)
		pause_briefly();
	void (*on_worker)(void) = me == atomic_load(&home) ? on_home : on_helper;

	if (on_worker)
		on_worker();
}

static void forget(void)
{
	for (uint32_t i = 0; i < THREADS; i++)
		atomic_store(&seen[i], false);
	atomic_store(&arrived, 0);
	atomic_store(&home, 0);
	trace.count = 0;
	atomic_store(&trace.done, 0);
	trace.next_completion = fixture.first.reaped;
}

static void hold_helper(void)
{
	sem_post(&helper_stands);
	sem_wait(&helper_goes_on);
}

static int start_with(uint32_t workers, uint32_t spin_us)
{
	fixture_start_shared(&fixture, workers, spin_us, SLICE, SPLIT);
	sem_init(&helper_stands, 0, 0);
	sem_init(&helper_goes_on, 0, 0);
	on_helper = on_home = NULL;
	forget();
	atomic_store(&expected, workers);
	trace.ring = &fixture.first.ring;
	trace.hook = meet;
	return 0;
}

static int start_two(void **state)
{
	(void)state;
	return start_with(2, 50);
}

static int start_three(void **state)
{
	(void)state;
	return start_with(3, 0);
}

static int start_spinning(void **state)
{
	(void)state;
	return start_with(2, NEVER_SPINS_OUT);
}

static int stop(void **state)
{
	(void)state;
	sem_post(&helper_goes_on); /* where a case has failed */
	fixture_stop(&fixture);
	return 0;
}

static void submit_clean(struct client_queue *queue, uint64_t offset, uint32_t length)
{
	struct dmasync_unit unit =
		entry(HANDLE, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, offset, length);

	submit_units(queue, &unit, 1, offset);
}

/* ---- the trace ---- */

static void expect_lines(const uint32_t wanted[LINES], size_t from)
{
	static uint32_t issued[LINES];

	memset(issued, 0, sizeof issued);
	for (size_t i = from; i < trace.count; i++) {
		const struct trace_event *event = &trace.event[i];

		if (event->kind == TRACE_CLEAN || event->kind == TRACE_FLUSH)
			issued[(event->address - BASE) / LINE]++;
	}
	for (size_t i = 0; i < LINES; i++)
		if (issued[i] != wanted[i])
			fail_msg("line %zu was issued %u times instead of %u", i, issued[i],
				 wanted[i]);
}

static void expect_range_once(uint32_t lines, size_t from)
{
	static uint32_t wanted[LINES];

	for (size_t i = 0; i < LINES; i++)
		wanted[i] = i < lines;
	expect_lines(wanted, from);
}

/* On every worker one opening fence, lines, one barrier; and no completion before the last. */
static uint32_t expect_parts(enum trace_kind barrier)
{
	enum { NOTHING, OPEN, ISSUED, CLOSED } part[THREADS] = {NOTHING};
	uint32_t parts = 0;

	for (size_t i = 0; i < trace.count; i++) {
		const struct trace_event *event = &trace.event[i];
		uint32_t thread = event->thread;

		assert_true(thread < THREADS);
		assert_false(event->published);
		switch (event->kind) {
		case TRACE_OPEN:
			assert_int_equal(part[thread], NOTHING);
			part[thread] = OPEN;
			parts++;
			break;
		case TRACE_CLEAN:
		case TRACE_FLUSH:
			assert_true(part[thread] == OPEN || part[thread] == ISSUED);
			part[thread] = ISSUED;
			break;
		case TRACE_COMPLETE:
		case TRACE_COMPLETE_FLUSHED:
			assert_int_equal(event->kind, barrier);
			assert_int_equal(part[thread], ISSUED);
			part[thread] = CLOSED;
			break;
		}
	}
	for (uint32_t i = 0; i < THREADS; i++)
		assert_true(part[i] == NOTHING || part[i] == CLOSED);
	return parts;
}

static uint64_t counter(const _Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

/* ---- cases ---- */

static void each_line_once_and_a_barrier_on_each_worker(void **state)
{
	(void)state;
	const struct worker_stats *stats = worker_stats(fixture.workers[0]);
	struct dmasync_ring_completion completion;

	submit_clean(&fixture.first, 0, 64 * 16384);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
	assert_int_equal(completion.lines, 16384);
	assert_int_equal(completion.bytes, 64 * 16384);
	assert_true(completion.flags & DMASYNC_COMPLETION_SPLIT);
	assert_false(completion.flags & DMASYNC_COMPLETION_MIXED);
	assert_int_equal(completion.workers, 3);
	expect_range_once(16384, 0);
	assert_int_equal(expect_parts(TRACE_COMPLETE), 3);
	assert_int_equal(counter(&stats->batches_split), 1);
	assert_int_equal(counter(&stats->parts), 3);
	assert_int_equal(counter(&stats->batches), 1);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(counter(&worker_stats(fixture.workers[i])->barriers), 1);
}

static void wait_for_home_to_end(void)
{
	/* The home worker has no line left to take and has executed its barrier. */
	while (counter(&worker_stats(fixture.workers[0])->barriers) == 0)
		pause_briefly();
}

/* The last barrier is the helper's, long after the home worker has ended its own part. */
static void slow_helper(void)
{
	if (trace_thread() == atomic_load(&home))
		return;
	wait_for_home_to_end();
	nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
}

static void the_completion_comes_after_the_last_barrier(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;

	trace.barrier_hook = slow_helper;
	submit_clean(&fixture.first, 0, 64 * 8192);
	reap(&fixture.first, &completion);
	/* So that it has ended, whether or not it was waited for. */
	for (uint32_t i = 0; i < 1000 && atomic_load(&trace.done) < 8192 + 4; i++)
		pause_briefly();
	assert_int_equal(completion.workers, 2);
	assert_int_equal(expect_parts(TRACE_COMPLETE), 2);
	expect_range_once(8192, 0);
	assert_int_not_equal(trace.event[trace.count - 1].thread, atomic_load(&home));
}

/* Flushes, cleans, rows, many chunks of the check, and entries that share lines and do not merge.
 */
static void every_kind_of_entry(void **state)
{
	(void)state;
	enum { COUNT = 1000 };
	static struct dmasync_unit units[COUNT];
	static uint32_t wanted[LINES];
	struct dmasync_unit_rows rows = {.rows = 100, .stride = 640};
	struct dmasync_ring_completion completion;
	uint64_t lines = 0;

	memset(wanted, 0, sizeof wanted);
	for (uint32_t i = 0; i < COUNT - 2; i++) {
		uint64_t first = (uint64_t)(i * 7919 % 1000) * 32;
		uint32_t length = 1 + i % 31;

		units[i] = entry(HANDLE, i % 3 ? DMASYNC_FOR_DEVICE : DMASYNC_FOR_CPU,
				 DMASYNC_BIDIRECTIONAL, first * LINE, length * LINE);
		for (uint32_t k = 0; k < length; k++)
			wanted[first + k]++;
		lines += length;
	}
	units[COUNT - 2] = (struct dmasync_unit){
		.word = dmasync_unit_word(HANDLE, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 1),
		.length = 128,
		.offset = 40000 * LINE,
	};
	memcpy(&units[COUNT - 1], &rows, sizeof rows);
	for (uint32_t row = 0; row < 100; row++) {
		wanted[40000 + row * 10]++;
		wanted[40000 + row * 10 + 1]++;
		lines += 2;
	}
	submit_units(&fixture.first, units, COUNT, 1);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
	assert_int_equal(completion.entries, COUNT - 1);
	assert_int_equal(completion.lines, lines);
	assert_int_equal(completion.workers, 2);
	expect_lines(wanted, 0);
	assert_int_equal(expect_parts(TRACE_COMPLETE_FLUSHED), 2);
}

static void a_batch_of_no_more_lines_is_not_shared(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;

	atomic_store(&expected, 1);
	submit_clean(&fixture.first, 0, 64 * SPLIT);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.lines, SPLIT);
	assert_int_equal(completion.workers, 0);
	assert_false(completion.flags & DMASYNC_COMPLETION_SPLIT);
	assert_int_equal(trace.count, SPLIT + 2);
	assert_int_equal(expect_parts(TRACE_COMPLETE), 1);
}

static struct worker_command *tune(uint64_t split_lines)
{
	struct worker_command *command = command_new(WORKER_TUNE);

	command->spin_us = 50;
	command->slice_lines = SLICE;
	command->split_lines = split_lines;
	command->max_batch_lines = LINES;
	return command;
}

static void none_is_shared_where_the_configuration_says_so(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;

	worker_post(fixture.worker, tune(0));
	free(await_event(&fixture, WORKER_TUNE));
	atomic_store(&expected, 1);
	submit_clean(&fixture.first, 0, BUFFER_SIZE);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.lines, LINES);
	assert_int_equal(completion.workers, 0);
	assert_int_equal(expect_parts(TRACE_COMPLETE), 1);
}

/* Arm SI L1 4311569: one worker issues all of it, twice, and waits once. */
static void a_second_pass_is_not_shared(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;

	fixture.cache.second_pass = true; /* seen by the workers through the submission's release */
	atomic_store(&expected, 1);
	submit_clean(&fixture.first, 0, 4 * SPLIT * LINE);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
	assert_int_equal(completion.lines, 2 * 4 * SPLIT);
	assert_int_equal(completion.bytes, 4 * SPLIT * LINE);
	assert_int_equal(completion.workers, 0);
	assert_int_equal(expect_parts(TRACE_COMPLETE), 1);
	assert_int_equal(trace.count, 2 * 4 * SPLIT + 2);
	for (size_t i = 0; i < 2 * 4 * SPLIT; i++)
		assert_int_equal(trace.event[1 + i].address, BASE + i % (4 * SPLIT) * LINE);
}

static void use_worker(uint32_t index)
{
	fixture.worker = fixture.workers[index];
}

/* It ends its part, barrier and all, and only then begins its own batch. */
static void a_helper_does_its_own_work_first(void **state)
{
	(void)state;
	struct client_queue own;
	struct dmasync_ring_completion completion;
	size_t at = 0, barriers = 0;

	on_helper = hold_helper;
	use_worker(1);
	queue_open(&fixture, &own, 8, 64, OTHER_CLIENT);
	submit_clean(&fixture.first, 0, 64 * 32768);
	sem_wait(&helper_stands);
	submit_clean(&own, 64 * 50000, 64);
	sem_post(&helper_goes_on);
	reap(&own, &completion);
	assert_int_equal(completion.status, 0);
	assert_int_equal(completion.lines, 1);
	assert_false(completion.flags & DMASYNC_COMPLETION_MIXED);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
	assert_int_equal(completion.lines, 32768);
	assert_int_equal(completion.workers, 2);

	while (trace.event[at].address != BASE + 64 * 50000)
		at++;
	uint32_t helper = trace.event[at].thread;
	bool opened = false;

	assert_int_not_equal(helper, atomic_load(&home));
	for (size_t i = 0; i < at; i++) {
		const struct trace_event *event = &trace.event[i];

		if (event->thread != helper)
			continue;
		if (event->kind == TRACE_OPEN) {
			assert_false(opened);
			opened = true;
		} else if (event->kind == TRACE_COMPLETE) {
			assert_true(opened);
			opened = false;
			barriers++;
		}
	}
	assert_true(opened); /* its own */
	assert_true(barriers >= 1);

	static uint32_t wanted[LINES];

	for (size_t i = 0; i < LINES; i++)
		wanted[i] = i < 32768 || i == 50000;
	expect_lines(wanted, 0);
	queue_release(&fixture, &own);
	use_worker(0);
}

static void segfault(void)
{
	raise(SIGSEGV);
}

static void a_fault_fails_the_batch(void)
{
	struct client_queue second;
	struct dmasync_ring_completion completion;

	/* Again here: cmocka puts its own handlers in place before each test. */
	assert_int_equal(guard_install(), 0);
	queue_open(&fixture, &second, 8, 64, OTHER_CLIENT);
	submit_clean(&second, 0, 64 * 16384);
	struct worker_command *event = await_event(&fixture, WORKER_FAULT);

	assert_ptr_equal(event->client, OTHER_CLIENT);
	reap(&second, &completion);
	assert_int_equal(completion.status, -EFAULT);
	assert_int_equal(completion.reason, DMASYNC_REASON_FAULT);
	assert_int_equal(completion.lines, 0);
	assert_int_equal(completion.workers, 0);
	/* Nobody went on with it for long: each had one chunk in hand, and took no further one. */
	assert_true(trace.count < 16384);

	forget();
	on_helper = on_home = NULL;
	submit_clean(&fixture.first, 0, 64 * 16384); /* both workers are as good as before */
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
	assert_int_equal(completion.workers, 2);
	expect_range_once(16384, 0);
	queue_release(&fixture, &second);
}

static void a_fault_on_a_helper_fails_the_batch(void **state)
{
	(void)state;
	on_helper = segfault;
	a_fault_fails_the_batch();
}

static void a_fault_on_the_home_worker_fails_it_too(void **state)
{
	(void)state;
	on_home = segfault;
	a_fault_fails_the_batch();
}

/* ---- another CPU ---- */

static int cpus[2];

static void move(void)
{
	cpu_set_t other;

	CPU_ZERO(&other);
	CPU_SET((unsigned)(sched_getcpu() == cpus[0] ? cpus[1] : cpus[0]), &other);
	assert_int_equal(sched_setaffinity(0, sizeof other, &other), 0);
}

/* Whose lines lost their barrier is not known: all of them again, by the home worker alone. */
static void a_helper_that_changes_cpu_has_it_all_issued_again(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	cpu_set_t mine;
	size_t second = 0;
	int found = 0;

	assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
	for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
		if (CPU_ISSET((unsigned)cpu, &mine))
			cpus[found++] = cpu;
	if (found < 2)
		skip();

	on_helper = move;
	submit_clean(&fixture.first, 0, 64 * 8192);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
	assert_true(completion.flags & DMASYNC_COMPLETION_REISSUED);
	assert_int_equal(completion.lines, 8192);
	assert_int_equal(completion.workers, 0); /* the second time it was not shared */
	assert_true(counter(&worker_stats(fixture.worker)->reissued) >= 1);

	/* The last pass is whole, on one worker, between a fence and a barrier of its own. */
	assert_int_equal(trace.event[trace.count - 1].kind, TRACE_COMPLETE);
	for (size_t i = 0; i < trace.count; i++)
		if (trace.event[i].kind == TRACE_OPEN)
			second = i;
	for (size_t i = second; i < trace.count; i++) {
		assert_int_equal(trace.event[i].thread, atomic_load(&home));
		assert_false(trace.event[i].published);
	}
	assert_int_equal(trace.count - second, 8192 + 2);
	expect_range_once(8192, second);
}

/* ---- letting go ---- */

static void a_client_that_goes_away_waits_for_the_helper(void **state)
{
	(void)state;
	struct client_queue second;
	struct dmasync_ring_completion completion;
	struct worker_command *command = command_new(WORKER_CLIENT_STOP);

	on_helper = hold_helper;
	queue_open(&fixture, &second, 8, 64, OTHER_CLIENT);
	submit_clean(&second, 0, 64 * 32768);
	sem_wait(&helper_stands);
	command->client = OTHER_CLIENT;
	worker_post(fixture.worker, command);
	wait_for_home_to_end();
	for (uint32_t i = 0; i < 20; i++)
		pause_briefly();
	assert_false(event_is_there(&fixture, WORKER_CLIENT_STOP));
	sem_post(&helper_goes_on);
	free(await_event(&fixture, WORKER_CLIENT_STOP));
	assert_false(try_reap(&second, &completion));
	queue_free(second.queue);
	queue_close_ends(&second);
	assert_int_equal(worker_queue_count(fixture.worker), 1);
}

static void a_buffer_is_held_as_long_as_a_helper_issues(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	struct worker_command *command = command_new(WORKER_BUFFER_GRACE);

	on_helper = hold_helper;
	submit_clean(&fixture.first, 0, 64 * 32768);
	sem_wait(&helper_stands);
	command->client = CLIENT;
	worker_post(fixture.worker, command);
	wait_for_home_to_end();
	for (uint32_t i = 0; i < 20; i++)
		pause_briefly();
	assert_false(event_is_there(&fixture, WORKER_BUFFER_GRACE));
	assert_false(try_reap(&fixture.first, &completion));
	sem_post(&helper_goes_on);
	free(await_event(&fixture, WORKER_BUFFER_GRACE));
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
	assert_int_equal(completion.workers, 2);
	expect_range_once(32768, 0);
}

/* A helper that is told to end first hands back its part, and is asked no more. */
static void a_helper_that_ends_finishes_its_part(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	struct worker_command *command = command_new(WORKER_STOP);

	on_helper = hold_helper;
	submit_clean(&fixture.first, 0, 64 * 8192);
	sem_wait(&helper_stands);
	worker_post(fixture.workers[1], command);
	assert_false(event_is_there(&fixture, WORKER_STOP));
	sem_post(&helper_goes_on);
	free(await_event(&fixture, WORKER_STOP));
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
	assert_int_equal(completion.workers, 2);
	expect_range_once(8192, 0);

	forget();
	on_helper = NULL;
	atomic_store(&expected, 1);
	submit_clean(&fixture.first, 0, 64 * 8192);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.workers, 0);
	assert_int_equal(expect_parts(TRACE_COMPLETE), 1);
	worker_join(fixture.workers[1]);
	fixture.worker_count = 1;
}

/* The workers spin for a minute: only one without a queue sleeps earlier. */
static void who_only_helped_sleeps_at_once(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	const struct worker_stats *helper = worker_stats(fixture.workers[1]);
	uint64_t start = clock_ns();

	submit_clean(&fixture.first, 0, 64 * 8192);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.workers, 2);
	while (atomic_load(&helper->busy)) {
		assert_true(clock_ns() - start < UINT64_C(10000000000));
		pause_briefly();
	}
	assert_true(atomic_load(&worker_stats(fixture.workers[0])->busy));
}

/* ---- contents ---- */

static void nothing(void)
{
}

static void nothing_flushed(bool flushed)
{
	(void)flushed;
}

/*
 * On simulated memory, whose operations are plain loads and stores: the client's bytes reach the
 * device through whichever worker cleans them, and a race between any two threads is one that
 * ThreadSanitizer sees. Operations and barriers are not recorded here, as that would order them.
 */
static void contents_through_two_helpers(void **state)
{
	(void)state;
	const uint64_t size = BUFFER_SIZE;
	int fd = memfd_create("simulated", MFD_CLOEXEC);
	struct buffer simulated = fixture.buffer;
	struct dmasync_ring_completion completion;
	uint64_t shared = 0;
	void *memory;

	assert_int_equal(ftruncate(fd, (off_t)(size * CACHE_SIMULATED_REGIONS)), 0);
	assert_int_equal(cache_simulated_map(fd, size, &memory), 0);
	close(fd);
	fixture.cache.ops.open = nothing;
	fixture.cache.ops.complete = nothing_flushed;
	simulated.cache.base = (uintptr_t)memory;
	simulated.cache.size = size;
	simulated.cache.backend = DMASYNC_BACKEND_SIMULATED;
	simulated.handle = 1u << BUFFER_INDEX_BITS | 1;
	atomic_store(&fixture.slot[1], &simulated);

	uint64_t *cpu = memory;
	uint64_t *device = (uint64_t *)((char *)memory + CACHE_SIMULATED_SPAN);

	for (uint64_t round = 1; round <= rounds(20); round++) {
		struct dmasync_unit unit = entry(simulated.handle, DMASYNC_FOR_DEVICE,
						 DMASYNC_BIDIRECTIONAL, 0, BUFFER_SIZE);

		for (uint64_t i = 0; i < size / 8; i += 8)
			cpu[i] = round << 32 | i;
		submit_units(&fixture.first, &unit, 1, round);
		reap(&fixture.first, &completion);
		assert_int_equal(completion.status, 0);
		assert_int_equal(completion.lines, LINES);
		shared += completion.workers > 1;
		for (uint64_t i = 0; i < size / 8; i += 8)
			if (device[i] != (round << 32 | i))
				fail_msg("line %lu of the device holds an old value",
					 (unsigned long)(i / 8));

		for (uint64_t i = 0; i < size / 8; i += 8)
			device[i] = ~(round << 32 | i);
		unit.word = dmasync_unit_word(simulated.handle, DMASYNC_FOR_CPU,
					      DMASYNC_FROM_DEVICE, 0);
		submit_units(&fixture.first, &unit, 1, round);
		reap(&fixture.first, &completion);
		assert_int_equal(completion.status, 0);
		shared += completion.workers > 1;
		for (uint64_t i = 0; i < size / 8; i += 8)
			if (cpu[i] != ~(round << 32 | i))
				fail_msg("line %lu of the CPU holds an old value",
					 (unsigned long)(i / 8));
	}
	assert_true(shared > 0);
	cache_simulated_unmap(memory);
}

#define CASE(name, start) cmocka_unit_test_setup_teardown(name, start, stop)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		CASE(each_line_once_and_a_barrier_on_each_worker, start_three),
		CASE(the_completion_comes_after_the_last_barrier, start_two),
		CASE(every_kind_of_entry, start_two),
		CASE(a_batch_of_no_more_lines_is_not_shared, start_two),
		CASE(none_is_shared_where_the_configuration_says_so, start_two),
		CASE(a_second_pass_is_not_shared, start_two),
		CASE(a_helper_does_its_own_work_first, start_two),
		CASE(a_fault_on_a_helper_fails_the_batch, start_two),
		CASE(a_fault_on_the_home_worker_fails_it_too, start_two),
		CASE(a_helper_that_changes_cpu_has_it_all_issued_again, start_two),
		CASE(a_client_that_goes_away_waits_for_the_helper, start_two),
		CASE(a_buffer_is_held_as_long_as_a_helper_issues, start_two),
		CASE(a_helper_that_ends_finishes_its_part, start_two),
		CASE(who_only_helped_sleeps_at_once, start_spinning),
		CASE(contents_through_two_helpers, start_three),
	};

	if (argc > 1) /* one case alone */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("worker-split", tests, NULL, NULL);
}
