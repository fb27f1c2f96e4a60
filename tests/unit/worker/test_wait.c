/* SPDX-License-Identifier: MIT */
/*
 * What a worker waits for, from a client that does what it likes with its doorbell: nothing spins,
 * nothing waits where it must not. By DMASYNC_TEST_LOOP in an io_uring or in epoll.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "fixture.h"

#define OTHER_CLIENT ((struct client *)(uintptr_t)0x2000)
#define PATIENCE_NS UINT64_C(10000000000)

static struct fixture fixture;

/* The worker alone calls it, and alone is looked at. */
static _Atomic uint64_t waits;
static _Atomic int thief = -1; /* takes the bytes of a doorbell between its ring and its read */

int __real_epoll_wait(int fd, struct epoll_event *events, int count, int timeout_ms);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int count, int timeout_ms);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int count, int timeout_ms)
{
	char bytes[4096];

	atomic_fetch_add(&waits, 1);

	int n = __real_epoll_wait(fd, events, count, timeout_ms);

	while (n > 0 && thief >= 0 && read(thief, bytes, sizeof bytes) > 0)
		;
	return n;
}

static int start(void **state)
{
	(void)state;
	atomic_store(&waits, 0);
	fixture_start(&fixture, 50, 4096, -1);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	fixture_stop(&fixture);
	return 0;
}

static uint64_t sleeps(void)
{
	return atomic_load(&worker_stats(fixture.worker)->sleeps);
}

/* Until the worker sleeps, and goes on doing so. */
static void check_sleeps(void)
{
	uint64_t begin = clock_ns(), before;

	do {
		assert_true(clock_ns() - begin < PATIENCE_NS);
		before = sleeps();
		usleep(20000);
	} while (sleeps() != before || atomic_load(&worker_stats(fixture.worker)->busy));
}

static void run(struct client_queue *queue)
{
	struct dmasync_ring_completion completion;
	struct dmasync_unit unit =
		entry(fixture.buffer.handle, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, 64);

	submit_units(queue, &unit, 1, 1);
	reap(queue, &completion);
	assert_int_equal(completion.status, 0);
}

static int doorbell(const struct client_queue *queue)
{
	return queue->fds[DMASYNC_QUEUE_DOORBELL];
}

static int bytes_in(const struct client_queue *queue)
{
	int bytes;

	assert_int_equal(ioctl(doorbell(queue), FIONREAD, &bytes), 0);
	return bytes;
}

static void a_closed_doorbell_is_left_alone(void **state)
{
	(void)state;
	struct client_queue other;

	queue_open(&fixture, &other, 8, 64, OTHER_CLIENT);
	run(&other);
	check_sleeps();
	close(other.fds[DMASYNC_QUEUE_DOORBELL]);
	other.fds[DMASYNC_QUEUE_DOORBELL] = -1;
	check_sleeps();
	run(&fixture.first); /* another's still rings */
	check_sleeps();
	queue_release(&fixture, &other);
}

static void a_full_doorbell_is_emptied(void **state)
{
	(void)state;
	struct client_queue other;
	char bytes[4096] = {0};

	queue_open(&fixture, &other, 8, 64, OTHER_CLIENT);
	check_sleeps();
	while (write(doorbell(&other), bytes, sizeof bytes) > 0)
		;
	assert_int_equal(errno, EAGAIN);
	check_sleeps();
	assert_int_equal(bytes_in(&other), 0);
	run(&other);
	queue_release(&fixture, &other);
}

/* A client can open a read end of its own. The worker must not wait for bytes that are gone. */
static void stolen_bytes_hold_up_nobody(void **state)
{
	(void)state;
	struct client_queue other;
	char path[64];

	queue_open(&fixture, &other, 8, 64, OTHER_CLIENT);
	snprintf(path, sizeof path, "/proc/self/fd/%d", doorbell(&other));

	int end = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	assert_true(end >= 0);
	atomic_store(&thief, end);
	for (int i = 0; i < 5; i++) {
		check_sleeps();
		assert_int_equal(write(doorbell(&other), "", 1), 1);
		run(&fixture.first);
		run(&other);
	}
	atomic_store(&thief, -1);
	queue_release(&fixture, &other); /* the worker has come out of its wait */
	close(end);
}

static void a_broken_queue_rings_in_vain(void **state)
{
	(void)state;
	struct client_queue other;

	queue_open(&fixture, &other, 8, 64, OTHER_CLIENT);
	__atomic_store_n(&other.ring.submissions[other.submitted & 7].seq, other.submitted + 1,
			 __ATOMIC_RELEASE);
	ring_if_asleep(&other);
	await_event(&fixture, WORKER_QUEUE_BROKEN);
	check_sleeps();
	for (int i = 0; i < 1000; i++)
		assert_int_equal(write(doorbell(&other), "", 1), 1);
	check_sleeps(); /* with bytes that are never read */
	assert_true(bytes_in(&other) > 0);
	run(&fixture.first);
	check_sleeps();
	queue_release(&fixture, &other);
}

/* Awake it makes no system call to learn of work: one wait for each sleep, and no other. */
static void one_wait_for_each_sleep(void **state)
{
	(void)state;
	for (int i = 0; i < 2000; i++)
		run(&fixture.first);
	check_sleeps();
	assert_int_equal(atomic_load(&waits),
			 worker_loop(fixture.worker) == LOOP_EPOLL ? sleeps() : 0);
}

/* Refused to this thread and those that it starts, for good: the last case. */
static void refused_to_a_worker(void **state)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
	struct worker_params params = fixture.params;
	struct worker *worker;

	(void)state;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		skip();
	params.loop = LOOP_URING;
	assert_int_equal(worker_start(&params, &worker), -ENOMEM);
	params.loop = LOOP_AUTO;
	assert_int_equal(worker_start(&params, &worker), 0);
	assert_int_equal(worker_loop(worker), LOOP_EPOLL);
	assert_int_equal(worker_loop_refused(worker), -ENOMEM);

	struct worker *first = fixture.worker;

	fixture.worker = worker;
	post_and_wait(&fixture, WORKER_STOP, NULL, NULL);
	fixture.worker = first;
	worker_join(worker);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)
		CASE(a_closed_doorbell_is_left_alone), CASE(a_full_doorbell_is_emptied),
		CASE(stolen_bytes_hold_up_nobody),     CASE(a_broken_queue_rings_in_vain),
		CASE(one_wait_for_each_sleep),	       CASE(refused_to_a_worker),
	};

	return cmocka_run_group_tests_name("worker-wait", tests, NULL, NULL);
}
