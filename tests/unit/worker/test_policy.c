/* SPDX-License-Identifier: MIT */
/* SCHED_FIFO for no more than its share: the sums, and what a worker makes of them. */
#include <errno.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/rt_share.h"
#include "daemon/worker_internal.h"
#include "tests/unit/worker/fixture.h"

#define MS UINT64_C(1000000)

/* Awake `used` of every `period`, `rounds` times; the most that was ever the sum. */
static uint64_t run(struct rt_share *share, uint64_t *now, uint64_t used, uint64_t period,
		    int rounds)
{
	uint64_t most = 0;

	for (int i = 0; i < rounds; i++, *now += period) {
		uint64_t sum = rt_share_use(share, *now, *now + used);

		if (sum > most)
			most = sum;
	}
	return most;
}

static void the_sum_is_of_the_last_steps(void **state)
{
	struct rt_share share = {0};
	uint64_t now = 1000 * MS;

	(void)state;
	/* The step that begins with the last moment holds nothing yet. */
	assert_int_equal(run(&share, &now, 10 * MS, 10 * MS, 20), 100 * MS);
	assert_int_equal(rt_share_use(&share, now, now + 9 * MS), 109 * MS);
	share = (struct rt_share){0};
	assert_int_equal(run(&share, &now, 10 * MS, 10 * MS, 20), 100 * MS);
	now += 99 * MS;
	assert_int_equal(rt_share_use(&share, now, now), 10 * MS);
	now += 1 * MS;
	assert_int_equal(rt_share_use(&share, now, now), 0);
	/* Far ahead, and a look longer than all steps. */
	now += UINT64_C(1) << 40;
	assert_int_equal(rt_share_use(&share, now, now + 3 * MS), 3 * MS);
	uint64_t all = rt_share_use(&share, now + 3 * MS, now + 5000 * MS);

	assert_true(all >= 100 * MS && all <= 110 * MS);
}

/* The real windows, one for every millisecond, against the sum at their end. */
static void no_window_holds_more_than_the_sum(void **state)
{
	enum { SPAN = 2000 };
	static bool awake[SPAN];
	struct rt_share share = {0};
	uint32_t random = 12345;

	(void)state;
	for (int i = 0; i < SPAN; i++) {
		random = random * 1664525 + 1013904223;
		awake[i] = i % 300 < 150 ? random >> 31 : random >> 29 == 0;

		uint64_t start = (5000 + (uint64_t)i) * MS, in_window = 0;
		uint64_t sum = rt_share_use(&share, awake[i] ? start : start + MS, start + MS);

		for (int j = i; j >= 0 && j > i - 100; j--)
			in_window += awake[j] * MS;
		assert_true(sum >= in_window);
		assert_true(sum <= in_window + 10 * MS);
	}
}

/* ---- a worker without a thread ---- */

static int events_fd[2];

static void worker_at(struct worker *worker, uint64_t now)
{
	*worker = (struct worker){
		.params = {.priority = 1, .rt_share = 50, .events_fd = events_fd[1]},
		.awake_since_ns = now,
	};
	atomic_init(&worker->policy, WORKER_POLICY_FIFO);
}

static int make_pipe(void **state)
{
	(void)state;
	return pipe(events_fd);
}

static int close_pipe(void **state)
{
	struct sched_param other = {0};

	(void)state;
	sched_setscheduler(0, SCHED_OTHER, &other); /* a restored worker made this thread so */
	close(events_fd[0]);
	close(events_fd[1]);
	return 0;
}

/* Awake for `used` of each 10 ms, `steps` of them. */
static void live(struct worker *worker, uint64_t *now, uint64_t used, int steps)
{
	for (int i = 0; i < steps; i++, *now += 10 * MS) {
		worker->awake_since_ns = *now;
		worker_policy_account(worker, *now + used);
	}
}

static void at_its_share_it_keeps_the_policy(void **state)
{
	static struct worker worker;
	uint64_t now = 1000 * MS;

	(void)state;
	worker_at(&worker, now);
	live(&worker, &now, 4 * MS, 1000); /* 44 ms at most in what the sum covers */
	assert_int_equal(worker_policy(&worker), WORKER_POLICY_FIFO);
	assert_int_equal(atomic_load(&worker.stats.realtime_drops), 0);
	assert_false(worker_take_policy_change(&worker));
}

static void above_it_is_dropped_and_restored_once(void **state)
{
	static struct worker worker;
	uint64_t now = 1000 * MS;
	bool permitted;

	(void)state;
	worker_at(&worker, now);
	live(&worker, &now, 6 * MS, 8);
	assert_int_equal(worker_policy(&worker), WORKER_POLICY_FIFO);
	live(&worker, &now, 6 * MS, 1); /* 54 ms */
	assert_int_equal(worker_policy(&worker), WORKER_POLICY_DROPPED);
	assert_int_equal(sched_getscheduler(0) & ~SCHED_RESET_ON_FORK, SCHED_OTHER);
	assert_true(worker_take_policy_change(&worker));
	assert_false(worker_take_policy_change(&worker)); /* told once */
	live(&worker, &now, 6 * MS, 1000);
	assert_int_equal(worker_policy(&worker), WORKER_POLICY_DROPPED);
	assert_int_equal(atomic_load(&worker.stats.realtime_drops), 1);
	assert_false(worker_take_policy_change(&worker));

	/* Two steps until the sum is below, then a second. */
	live(&worker, &now, 1 * MS, 102);
	assert_int_equal(worker_policy(&worker), WORKER_POLICY_DROPPED);
	live(&worker, &now, 1 * MS, 2);

	struct sched_param param = {.sched_priority = 1};

	permitted = sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &param) == 0;
	assert_int_equal(worker_policy(&worker),
			 permitted ? WORKER_POLICY_FIFO : WORKER_POLICY_REFUSED);
	assert_true(worker_take_policy_change(&worker));
	if (!permitted)
		return;
	live(&worker, &now, 10 * MS, 8);
	assert_int_equal(worker_policy(&worker), WORKER_POLICY_DROPPED);
	assert_int_equal(atomic_load(&worker.stats.realtime_drops), 2);
}

/* 0 where all is as it should be; in a process that may not have the policy. */
static int be_refused(void)
{
	struct rlimit none = {0};
	static struct worker worker;
	uint64_t now = 1000 * MS;

	if (setrlimit(RLIMIT_RTPRIO, &none) < 0)
		return 1;
	if (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0)
		return 2;
	worker_at(&worker, now);
	if (worker_policy_begin(&worker) != -EPERM)
		return 3;
	live(&worker, &now, 10 * MS, 100);
	if (worker_policy(&worker) != WORKER_POLICY_REFUSED || worker.stats.realtime_drops)
		return 4;
	return 0;
}

static void refused_it_stays_an_ordinary_thread(void **state)
{
	pid_t child = fork();
	int status;

	(void)state;
	assert_true(child >= 0);
	if (child == 0)
		_exit(be_refused());
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_sum_is_of_the_last_steps),
		cmocka_unit_test(no_window_holds_more_than_the_sum),
		cmocka_unit_test_setup_teardown(at_its_share_it_keeps_the_policy, make_pipe,
						close_pipe),
		cmocka_unit_test_setup_teardown(above_it_is_dropped_and_restored_once, make_pipe,
						close_pipe),
		cmocka_unit_test_setup_teardown(refused_it_stays_an_ordinary_thread, make_pipe,
						close_pipe),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
