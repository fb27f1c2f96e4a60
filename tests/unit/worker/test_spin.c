/* SPDX-License-Identifier: MIT */
/* How long worker and client look before they sleep: the rule, and whether the worker keeps to it.
 */
#include <sched.h>
#include <time.h>

#include "proto/spin.h"
#include "tests/unit/worker/fixture.h"

static struct fixture fixture;

static uint64_t after(struct dmasync_spin *spin, uint64_t gap_ns)
{
	dmasync_spin_learn(spin, gap_ns);
	return spin->window_ns;
}

static void vain_looks_are_halved(void **state)
{
	static const uint64_t windows[] = {25000, 12500, 6250, 3125, 1562, 0, 0, 0};
	struct dmasync_spin spin;

	(void)state;
	dmasync_spin_bounds(&spin, 0, 50000);
	assert_int_equal(spin.window_ns, 50000);
	for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
		assert_int_equal(after(&spin, 50001), windows[i]);
	assert_int_equal(after(&spin, UINT64_MAX), 0);
}

static void looks_that_would_have_seen_it_grow(void **state)
{
	struct dmasync_spin spin;

	(void)state;
	dmasync_spin_bounds(&spin, 0, 50000);
	for (int i = 0; i < 8; i++)
		dmasync_spin_learn(&spin, 1000000);
	assert_int_equal(after(&spin, 0), 6250);   /* an eighth at least */
	assert_int_equal(after(&spin, 100), 6250); /* seen: as it is */
	assert_int_equal(after(&spin, 6249), 6250);
	assert_int_equal(after(&spin, 6250), 12500);
	assert_int_equal(after(&spin, 20000), 40000);
	assert_int_equal(after(&spin, 50000), 50000); /* never beyond the bound */
	assert_int_equal(after(&spin, 50000), 50000);
}

static void the_lower_bound_holds(void **state)
{
	struct dmasync_spin spin;

	(void)state;
	dmasync_spin_bounds(&spin, 10000, 50000);
	for (int i = 0; i < 8; i++)
		dmasync_spin_learn(&spin, 1000000);
	assert_int_equal(spin.window_ns, 10000);
	dmasync_spin_bounds(&spin, 60000, 50000); /* no more than the upper one */
	assert_int_equal(spin.least_ns, 50000);
	dmasync_spin_bounds(&spin, 10000, 0); /* and 0 is never */
	assert_int_equal(after(&spin, 0), 0);
	assert_int_equal(after(&spin, 1000000), 0);
}

/* ---- the worker ---- */

#define SPIN_US 50

static int start(void **state)
{
	(void)state;
	fixture_start(&fixture, SPIN_US, 256, 0);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	fixture_stop(&fixture);
	return 0;
}

static void pause_us(long us)
{
	nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static void await_sleep(void)
{
	while (!RING_LOAD_RELAXED(&fixture.first.page->sleeping))
		pause_us(20);
}

/* A batch of a client that says it is on `cpu`, a whole bound after the worker went to sleep. */
static void run_one_from(int cpu)
{
	struct client_queue *queue = &fixture.first;
	struct dmasync_ring_completion completion;
	struct dmasync_submission submission = {
		.entry = entry(fixture.buffer.handle, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0,
			       LINE),
		.client_cpu = (uint32_t)(cpu + 1),
	};
	struct timespec now;

	await_sleep();
	pause_us(4 * SPIN_US);
	clock_gettime(CLOCK_MONOTONIC, &now);
	submission.submit_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	dmasync_ring_submit(&queue->ring, queue->submitted++, &submission);
	ring_if_asleep(queue);
	reap(queue, &completion);
	assert_int_equal(completion.status, 0);
	await_sleep();
}

static uint64_t spins(void)
{
	return atomic_load(&worker_stats(fixture.worker)->spins);
}

static uint64_t sleeps(void)
{
	return atomic_load(&worker_stats(fixture.worker)->sleeps);
}

static void no_look_for_a_client_on_the_workers_cpu(void **state)
{
	(void)state;
	assert_int_equal(dmasync_ring_said_cpu(&fixture.first.page->cpu), 0);
	for (int i = 0; i < 20; i++)
		run_one_from(0);
	assert_int_equal(spins(), 0);
	assert_true(sleeps() >= 20);
}

static void rare_batches_are_soon_not_looked_for(void **state)
{
	(void)state;
	/*
	 * The first was waited for by nobody; the others came later than the bound allows: looks of
	 * 50, 25, 12.5, 6.25, 3.1 and 1.6 us, and no more.
	 */
	for (int i = 0; i < 20; i++)
		run_one_from(1);
	assert_true(spins() <= 6);
	assert_true(spins() >=
		    5); /* one less where the queue's making left the worker idle before */

	uint64_t before = spins();

	for (int i = 0; i < 5; i++)
		run_one_from(1);
	assert_int_equal(spins(), before);
}

static void tune(uint32_t spin_us, uint32_t spin_min_us)
{
	struct worker_command *command = command_new(WORKER_TUNE);

	command->spin_us = spin_us;
	command->spin_min_us = spin_min_us;
	command->slice_lines = 256;
	command->max_batch_lines = 1000;
	worker_post(fixture.worker, command);
	free(await_event(&fixture, WORKER_TUNE));
}

static void at_least_the_lower_bound(void **state)
{
	(void)state;
	tune(SPIN_US, 20);
	for (int i = 0; i < 20; i++)
		run_one_from(1);
	assert_int_equal(spins(), 20);
}

static void never_where_there_is_one_cpu(void **state)
{
	(void)state;
	tune(0, 0); /* as the control thread says then */
	for (int i = 0; i < 20; i++)
		run_one_from(1);
	assert_int_equal(spins(), 0);
}

static void the_page_follows_the_worker(void **state)
{
	cpu_set_t all;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
	if (!CPU_ISSET(1, &all))
		skip();
	assert_int_equal(worker_pin(fixture.worker, 1, &all), 0);
	assert_int_equal(dmasync_ring_said_cpu(&fixture.first.page->cpu), 1);
	for (int i = 0; i < 20; i++)
		run_one_from(1); /* the CPU it is on now */
	assert_int_equal(dmasync_ring_said_cpu(&fixture.first.page->cpu), 1);
	assert_int_equal(spins(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(vain_looks_are_halved),
		cmocka_unit_test(looks_that_would_have_seen_it_grow),
		cmocka_unit_test(the_lower_bound_holds),
		cmocka_unit_test_setup_teardown(no_look_for_a_client_on_the_workers_cpu, start,
						stop),
		cmocka_unit_test_setup_teardown(rare_batches_are_soon_not_looked_for, start, stop),
		cmocka_unit_test_setup_teardown(at_least_the_lower_bound, start, stop),
		cmocka_unit_test_setup_teardown(never_where_there_is_one_cpu, start, stop),
		cmocka_unit_test_setup_teardown(the_page_follows_the_worker, start, stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
