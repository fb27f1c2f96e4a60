/* SPDX-License-Identifier: MIT */
/*
 * Completions: peek, wait and sync, the stash, what a damaged ring does, and the pollable fd.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/time.h>

#include <cmocka.h>

#include "client/internal.h"
#include "tests/unit/client/bench.h"

static void fields_come_through(void **state)
{
	struct bench b = bench_start(4, 8, 4096, 0);
	struct dmasync_ring_completion wire = {
		.status = -ERANGE,
		.user_data = 1,
		.entries = 2,
		.flags = DMASYNC_COMPLETION_EXTENDED | DMASYNC_COMPLETION_MIXED,
		.lines = 3,
		.bytes = 4,
		.queued_ns = 5,
		.issue_ns = 6,
		.barrier_ns = 7,
		.fence_ns = 8,
		.batch_id = 9,
		.bad_entry = 10,
		.reason = DMASYNC_REASON_OUT_OF_RANGE,
		.elided = 11,
		.shared_by = 12,
		.workers = 13,
	};
	struct dmasync_completion c;
	struct fake_batch seen;

	(void)state;
	bench_submit(&b, 1);
	assert_true(fake_fetch(b.fq, &seen));
	assert_int_equal(dmasync_peek(b.queue, &c), 0);
	fake_complete(b.fq, &wire);
	memset(&c, 0xff, sizeof c);
	assert_int_equal(dmasync_peek(b.queue, &c), 1);
	assert_int_equal(c.status, -ERANGE);
	assert_int_equal(c.flags, DMASYNC_COMPLETION_MIXED);
	assert_true(c.user_data == 1 && c.entries == 2 && c.lines == 3 && c.bytes == 4);
	assert_true(c.queued_ns == 5 && c.issue_ns == 6 && c.barrier_ns == 7 && c.fence_ns == 8);
	assert_true(c.batch_id == 9 && c.bad_entry == 10 && c.elided == 11 && c.shared_by == 12);
	assert_int_equal(c.workers, 13);
	assert_int_equal(c.reason, DMASYNC_REASON_OUT_OF_RANGE);
	for (size_t i = 0; i < sizeof c.reserved / sizeof c.reserved[0]; i++)
		assert_int_equal(c.reserved[i], 0);

	/* Not extended: the second line is not believed, whatever stands there. */
	bench_submit(&b, 2);
	assert_true(fake_fetch(b.fq, &seen));
	wire.user_data = 2;
	wire.status = 0;
	wire.flags = 0;
	fake_complete(b.fq, &wire);
	assert_int_equal(dmasync_peek(b.queue, &c), 1);
	assert_true(c.batch_id == 0 && c.fence_ns == 0 && c.reason == 0 && c.shared_by == 0);
	assert_int_equal(c.workers, 0);
	assert_int_equal(c.bad_entry, DMASYNC_NO_ENTRY);
	assert_int_equal(dmasync_peek(b.queue, &c), 0);
	bench_stop(&b);
}

static void waiting_that_ends_without_a_completion(void **state)
{
	struct bench b = bench_start(4, 8, 4096, 20);
	struct dmasync_completion c = {.user_data = 4711};

	(void)state;
	assert_int_equal(dmasync_wait(b.queue, &c, -1), -ENODATA);
	assert_int_equal(dmasync_wait(b.queue, &c, 0), -ENODATA);
	bench_submit(&b, 1);
	assert_int_equal(dmasync_wait(b.queue, &c, 0), -ETIMEDOUT);
	assert_int_equal(dmasync_wait(b.queue, &c, 1), -ETIMEDOUT);
	assert_int_equal(dmasync_wait(b.queue, &c, 2000000), -ETIMEDOUT);
	assert_true(c.user_data == 4711);
	fake_serve(b.fq, 1);
	assert_int_equal(dmasync_wait(b.queue, &c, INT64_MAX), 0);
	assert_true(c.user_data == 1);
	bench_stop(&b);
}

static void on_alarm(int signal)
{
	(void)signal;
}

static void a_signal_ends_the_wait(void **state)
{
	struct bench b = bench_start(4, 8, 4096, 0);
	struct sigaction action = {.sa_handler = on_alarm}, before;
	/* Again and again: the first may come before the sleep has begun. */
	struct itimerval timer = {.it_value = {.tv_usec = 10000},
				  .it_interval = {.tv_usec = 10000}};
	struct itimerval off = {0};
	struct dmasync_completion c;

	(void)state;
	bench_submit(&b, 1);
	sigaction(SIGALRM, &action, &before);
	setitimer(ITIMER_REAL, &timer, NULL);
	assert_int_equal(dmasync_wait(b.queue, &c, -1), -EINTR);
	setitimer(ITIMER_REAL, &off, NULL);
	sigaction(SIGALRM, &before, NULL);
	fake_serve(b.fq, 1);
	assert_int_equal(dmasync_peek(b.queue, &c), 1);
	bench_stop(&b);
}

/*
 * A seq that no correct worker writes, an impossible status and another batch's user_data end the
 * queue for good.
 */
static void damaged_rings(void **state)
{
	static const struct {
		uint32_t seq;
		int32_t status;
		uint64_t user_data;
	} wrong[] = {
		{DMASYNC_RING_START + 1, 0, 1}, {0, 0, 1},
		{DMASYNC_RING_START - 8, 0, 1}, {DMASYNC_RING_START, 1, 1},
		{DMASYNC_RING_START, -4096, 1}, {DMASYNC_RING_START, 0, 2},
	};

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct bench b = bench_start(4, 8, 4096, 0);
		struct dmasync_ring_completion *slot =
			&b.fq->ring.completions[DMASYNC_RING_START & 3];
		struct dmasync_completion c;
		struct dmasync_batch *batch;

		/* With nothing in flight nothing is believed. */
		slot->seq = DMASYNC_RING_START;
		assert_int_equal(dmasync_peek(b.queue, &c), 0);
		slot->seq = DMASYNC_RING_START - 4;
		bench_submit(&b, 1);
		slot->user_data = wrong[i].user_data;
		slot->status = wrong[i].status;
		slot->seq = wrong[i].seq;
		assert_int_equal(dmasync_peek(b.queue, &c), -EPROTO);
		/* It does not heal. */
		slot->status = 0;
		slot->user_data = 1;
		slot->seq = DMASYNC_RING_START;
		assert_int_equal(dmasync_peek(b.queue, &c), -EPROTO);
		assert_int_equal(dmasync_wait(b.queue, &c, -1), -EPROTO);
		assert_int_equal(dmasync_batch_begin(b.queue, &batch), -EPROTO);
		assert_int_equal(dmasync_sync(b.queue, b.buffer, DMASYNC_FOR_CPU,
					      DMASYNC_FROM_DEVICE, 0, 64),
				 -EPROTO);
		bench_stop(&b);
	}
}

/* ---- sync ---- */

static void *work(void *argument)
{
	struct fake_queue *fq = argument;

	fake_work(fq, UINT64_MAX, 100);
	return NULL;
}

static void stop_worker(struct bench *b, pthread_t thread)
{
	/* fake_die() would close the pipes under the thread: let it see the hang-up. */
	dmasync_queue_destroy(b->queue);
	b->queue = NULL;
	pthread_join(thread, NULL);
}

static void sync_keeps_the_others(void **state)
{
	struct bench b = bench_start(8, 8, 4096, 20);
	struct dmasync_completion c;
	struct dmasync_batch *batch;
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, work, b.fq), 0);
	for (uint64_t round = 0; round < 200; round++) {
		for (uint64_t i = 0; i < 3; i++)
			bench_submit(&b, 10 * round + i);
		assert_int_equal(dmasync_sync(b.queue, b.buffer, DMASYNC_FOR_DEVICE,
					      DMASYNC_TO_DEVICE, 0, 64),
				 0);
		for (uint64_t i = 3; i < 6; i++)
			bench_submit(&b, 10 * round + i);
		assert_int_equal(dmasync_sync(b.queue, b.buffer, DMASYNC_FOR_DEVICE,
					      DMASYNC_TO_DEVICE, 0, 64),
				 0);
		/* Six completions are kept: room for two, then the ring is full. */
		bench_submit(&b, 10 * round + 6);
		bench_submit(&b, 10 * round + 7);
		assert_int_equal(dmasync_batch_begin(b.queue, &batch), -EAGAIN);
		assert_int_equal(dmasync_sync(b.queue, b.buffer, DMASYNC_FOR_DEVICE,
					      DMASYNC_TO_DEVICE, 0, 64),
				 -EAGAIN);
		for (uint64_t i = 0; i < 8; i++) {
			assert_int_equal(dmasync_wait(b.queue, &c, -1), 0);
			assert_true(c.user_data == 10 * round + i);
		}
		assert_int_equal(dmasync_wait(b.queue, &c, -1), -ENODATA);
	}
	assert_int_equal(dmasync_batch_begin(b.queue, &batch), 0);
	assert_int_equal(
		dmasync_sync(b.queue, b.buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, 1),
		-EBUSY);
	dmasync_batch_abort(batch);
	assert_int_equal(
		dmasync_sync(b.queue, b.buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 4096, 1),
		-ERANGE);
	stop_worker(&b, thread);
	bench_stop(&b);
}

/* The batch's own status is what sync returns. */
static void *fail_one(void *argument)
{
	struct fake_queue *fq = argument;
	struct dmasync_ring_completion completion = {.status = -EFAULT};
	struct fake_batch seen;

	while (!fake_fetch(fq, &seen))
		sched_yield();
	fake_complete(fq, &completion);
	return NULL;
}

static void sync_returns_the_status(void **state)
{
	struct bench b = bench_start(4, 8, 4096, 0);
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, fail_one, b.fq), 0);
	assert_int_equal(
		dmasync_sync(b.queue, b.buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, 1),
		-EFAULT);
	pthread_join(thread, NULL);
	bench_stop(&b);
}

/* ---- the pollable fd ---- */

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static void fd_says_the_truth(void **state)
{
	struct bench b = bench_start(8, 8, 4096, 0);
	struct dmasync_completion c;
	int fd;

	(void)state;
	/* Costs nothing until asked for: the worker sends no notification. */
	bench_submit(&b, 0);
	fake_serve(b.fq, 1);
	assert_int_equal(atomic_load(&b.fq->notifications), 0);
	/* What was there before the fd counts. */
	fd = dmasync_queue_fd(b.queue);
	assert_true(fd >= 0);
	assert_true(readable(fd));
	assert_int_equal(dmasync_queue_fd(b.queue), fd);
	assert_int_equal(dmasync_peek(b.queue, &c), 1);
	assert_false(readable(fd));

	for (int round = 0; round < 100; round++) {
		/* One by one, in bursts, and read in parts. */
		bench_submit(&b, 1);
		assert_false(readable(fd));
		fake_serve(b.fq, 1);
		assert_true(readable(fd));
		bench_submit(&b, 2);
		bench_submit(&b, 3);
		fake_serve(b.fq, 2);
		assert_true(readable(fd));
		assert_int_equal(dmasync_peek(b.queue, &c), 1);
		assert_true(readable(fd));
		assert_int_equal(dmasync_wait(b.queue, &c, -1), 0);
		assert_true(readable(fd));
		bench_submit(&b, 4);
		assert_int_equal(dmasync_peek(b.queue, &c), 1);
		assert_true(c.user_data == 3);
		assert_false(readable(fd));
		assert_int_equal(dmasync_peek(b.queue, &c), 0);
		assert_false(readable(fd));
		assert_int_equal(dmasync_wait(b.queue, &c, 1000), -ETIMEDOUT);
		assert_false(readable(fd));
		fake_serve(b.fq, 1);
		assert_true(readable(fd));
		assert_int_equal(dmasync_peek(b.queue, &c), 1);
		assert_false(readable(fd));
	}
	/* The number stays, and a notification that was not needed wakes nobody for ever. */
	assert_int_equal(dmasync_queue_fd(b.queue), fd);
	bench_stop(&b);
}

static void *serve_three(void *argument)
{
	fake_work(argument, 3, 1);
	return NULL;
}

static void fd_knows_the_stash(void **state)
{
	struct bench b = bench_start(8, 8, 4096, 0);
	struct dmasync_completion c;
	pthread_t thread;
	int fd = dmasync_queue_fd(b.queue);

	(void)state;
	bench_submit(&b, 1);
	bench_submit(&b, 2);
	assert_int_equal(pthread_create(&thread, NULL, serve_three, b.fq), 0);
	assert_int_equal(
		dmasync_sync(b.queue, b.buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, 1), 0);
	pthread_join(thread, NULL);
	assert_true(readable(fd));
	assert_int_equal(dmasync_peek(b.queue, &c), 1);
	assert_true(readable(fd));
	assert_int_equal(dmasync_peek(b.queue, &c), 1);
	assert_true(c.user_data == 2);
	/* The worker's byte may come behind its completion; one peek clears that up. */
	assert_int_equal(dmasync_peek(b.queue, &c), 0);
	assert_false(readable(fd));
	bench_stop(&b);
}

/* A worker may be held up between taking the flag and writing its byte. */
static void fd_is_quiet_after_a_late_notification(void **state)
{
	struct bench b = bench_start(4, 8, 4096, 0);
	struct pollfd p = {.events = POLLIN};
	struct dmasync_completion c;

	(void)state;
	p.fd = dmasync_queue_fd(b.queue);
	for (uint64_t i = 1; i <= 2; i++) {
		struct dmasync_ring_completion completion = {.user_data = i, .entries = 1};
		struct fake_batch batch;

		bench_submit(&b, i);
		assert_true(fake_fetch(b.fq, &batch));
		dmasync_ring_complete(&b.fq->ring, b.fq->completed++, &completion);
		assert_true(dmasync_ring_take_sleeper(&b.fq->ring.header->client_sleeping));
		assert_int_equal(dmasync_peek(b.queue, &c), 1);
		assert_true(c.user_data == i);
		assert_int_equal(dmasync_peek(b.queue, &c), 0);
		assert_int_equal(write(b.fq->notification_fd, "n", 1), 1);
		/* It says only: look. Who has looked is not told again. */
		assert_int_equal(poll(&p, 1, 0), 1);
		if (i == 1)
			assert_int_equal(dmasync_peek(b.queue, &c), 0);
		else
			assert_int_equal(dmasync_wait(b.queue, &c, 0), -ENODATA);
		assert_int_equal(poll(&p, 1, 0), 0);
	}
	bench_submit(&b, 3);
	fake_serve(b.fq, 1);
	assert_int_equal(poll(&p, 1, 0), 1);
	assert_int_equal(dmasync_peek(b.queue, &c), 1);
	bench_stop(&b);
}

static void fd_tells_of_damage(void **state)
{
	struct bench b = bench_start(4, 8, 4096, 0);
	struct dmasync_completion c;
	int fd = dmasync_queue_fd(b.queue);

	(void)state;
	bench_submit(&b, 1);
	b.fq->ring.completions[DMASYNC_RING_START & 3].seq = DMASYNC_RING_START + 1;
	if (dmasync_ring_take_sleeper(&b.fq->ring.header->client_sleeping))
		assert_int_equal(write(b.fq->notification_fd, "n", 1), 1);
	assert_true(readable(fd));
	assert_int_equal(dmasync_peek(b.queue, &c), -EPROTO);
	assert_true(readable(fd));
	bench_stop(&b);
}

/* Completes the one batch in flight once the client sleeps. */
struct late {
	struct fake_queue *fq;
	uint64_t queued_ns; /* as the completion says */
};

static void *complete_late(void *argument)
{
	struct late *late = argument;
	struct fake_batch seen;

	while (!RING_LOAD_RELAXED(&late->fq->ring.header->client_sleeping))
		sched_yield();
	assert_true(fake_fetch(late->fq, &seen));
	fake_complete(late->fq, &(struct dmasync_ring_completion){.queued_ns = late->queued_ns,
								  .user_data = 1});
	return NULL;
}

static void sleep_through_one(struct bench *b, uint64_t queued_ns)
{
	struct late late = {.fq = b->fq, .queued_ns = queued_ns};
	struct dmasync_completion c;
	pthread_t thread;

	bench_submit(b, 1);
	assert_int_equal(pthread_create(&thread, NULL, complete_late, &late), 0);
	assert_int_equal(dmasync_wait(b->queue, &c, -1), 0);
	pthread_join(thread, NULL);
}

/* The rule itself: worker-spin. Here: what it is fed, and where it is not asked. */
static void waits_look_while_it_is_worth_it(void **state)
{
	struct bench b = bench_start(4, 8, 4096, 160);

	(void)state;
	assert_int_equal(completion_look_ns(b.queue), 160000);
	sleep_through_one(&b, UINT64_C(10000000000)); /* 10 s after its submission */
	assert_int_equal(completion_look_ns(b.queue), 80000);
	sleep_through_one(&b, UINT64_C(10000000000));
	assert_int_equal(completion_look_ns(b.queue), 40000);
	sleep_through_one(&b, 0); /* at once: only the waking took long */
	assert_int_equal(completion_look_ns(b.queue), 40000);
	for (int i = 0; i < 6; i++)
		sleep_through_one(&b, UINT64_C(10000000000));
	assert_int_equal(completion_look_ns(b.queue), 0);
	sleep_through_one(&b, 0);
	assert_int_equal(completion_look_ns(b.queue), 20000);
	bench_stop(&b);
}

static void no_look_on_the_workers_cpu(void **state)
{
	struct bench b = bench_start(4, 8, 4096, 160);
	cpu_set_t before, here;
	int cpu = sched_getcpu();

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
	CPU_ZERO(&here);
	CPU_SET((unsigned int)cpu, &here);
	assert_int_equal(sched_setaffinity(0, sizeof here, &here), 0);
	dmasync_ring_say_cpu(&b.fq->page->cpu, cpu);
	assert_int_equal(completion_look_ns(b.queue), 0);
	dmasync_ring_say_cpu(&b.fq->page->cpu, cpu + 1); /* the worker was moved */
	assert_int_equal(completion_look_ns(b.queue), 160000);
	dmasync_ring_say_cpu(&b.fq->page->cpu, -1);
	assert_int_equal(completion_look_ns(b.queue), 160000);
	assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
	bench_stop(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		fake_test(fields_come_through),
		fake_test(waiting_that_ends_without_a_completion),
		fake_test(a_signal_ends_the_wait),
		fake_test(damaged_rings),
		fake_test(sync_keeps_the_others),
		fake_test(sync_returns_the_status),
		fake_test(fd_says_the_truth),
		fake_test(fd_knows_the_stash),
		fake_test(fd_is_quiet_after_a_late_notification),
		fake_test(fd_tells_of_damage),
		fake_test(waits_look_while_it_is_worth_it),
		fake_test(no_look_on_the_workers_cpu),
	};

	return cmocka_run_group_tests_name("client completion", tests, NULL, NULL);
}
