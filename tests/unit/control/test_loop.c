/* SPDX-License-Identifier: MIT */
/*
 * The control loop: events reach their watch, removed watches stay silent and let go of their file,
 * timers fire once, and hundreds of watches fit a ring of 256 entries.
 */
#include "daemon/loop.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/loop_kind.h"

struct end {
	struct loop *loop;
	struct loop_watch *watch;
	struct loop_watch *other;
	struct loop_timer *timer;
	int fd;
	unsigned int calls;
	uint32_t events;
	unsigned int *total;
	unsigned int exit_after;
};

/* How often the loop went into the kernel to wait. */
static unsigned int waits;

int __real_epoll_wait(int fd, struct epoll_event *events, int count, int timeout_ms);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int count, int timeout_ms);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int count, int timeout_ms)
{
	waits++;
	return __real_epoll_wait(fd, events, count, timeout_ms);
}

static void create(struct loop **ret)
{
	enum loop_kind kind = test_loop_kind();
	/* Not AUTO: a test of io_uring is not to pass on epoll. */
	int r = loop_create(kind == LOOP_AUTO ? LOOP_URING : kind, ret);

	if (r == -EPERM || r == -ENOSYS)
		skip(); /* io_uring is refused here */
	assert_int_equal(r, 0);
}

static void read_and_count(void *context, uint32_t events)
{
	struct end *end = context;
	char byte;

	end->events = events;
	end->calls++;
	if (events & POLLIN)
		assert_true(read(end->fd, &byte, 1) >= 0);
	if (end->calls == end->exit_after)
		loop_exit(end->loop, 7);
}

static void test_event(void **state)
{
	struct end end = {.exit_after = 3};
	int pipe_fds[2];

	(void)state;
	create(&end.loop);
	assert_int_equal(pipe(pipe_fds), 0);
	end.fd = pipe_fds[0];
	/* Three bytes, read one at a time: a watch is level-triggered. */
	assert_int_equal(write(pipe_fds[1], "abc", 3), 3);
	assert_int_equal(loop_watch(end.loop, end.fd, POLLIN, read_and_count, &end, &end.watch), 0);
	assert_int_equal(loop_run(end.loop), 7);
	assert_int_equal(end.calls, 3);
	assert_int_equal(end.events, POLLIN);
	/* A hang-up is told without being asked for. */
	close(pipe_fds[1]);
	end.exit_after = 4;
	assert_int_equal(loop_run(end.loop), 7);
	assert_true(end.events & POLLHUP);
	loop_unwatch(end.watch);
	close(pipe_fds[0]);
	loop_free(end.loop);
}

static void expire(void *context)
{
	struct end *end = context;

	end->calls++;
	loop_exit(end->loop, (int)end->calls);
}

static void test_unwatch_closes(void **state)
{
	struct end end = {0};
	int fds[2];
	struct pollfd other;

	(void)state;
	create(&end.loop);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
	end.fd = fds[0];
	assert_int_equal(loop_watch(end.loop, end.fd, POLLIN, read_and_count, &end, &end.watch), 0);
	assert_int_equal(loop_timer_create(end.loop, expire, &end, &end.timer), 0);
	assert_int_equal(loop_timer_set(end.timer, 1000000), 0);
	assert_int_equal(loop_run(end.loop), 1); /* the poll is in the kernel now */
	loop_unwatch(end.watch);
	close(fds[0]);
	other = (struct pollfd){.fd = fds[1], .events = POLLIN};
	assert_int_equal(poll(&other, 1, 0), 1);
	assert_true(other.revents & POLLHUP);
	close(fds[1]);
	loop_timer_free(end.timer);
	loop_free(end.loop);
}

static void test_unwatch_before_submit(void **state)
{
	struct end end = {0};
	int fds[2];
	struct pollfd other;

	(void)state;
	create(&end.loop);
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
	assert_int_equal(loop_watch(end.loop, fds[0], POLLIN, read_and_count, &end, &end.watch), 0);
	loop_unwatch(end.watch);
	close(fds[0]);
	other = (struct pollfd){.fd = fds[1], .events = POLLIN};
	assert_int_equal(poll(&other, 1, 0), 1);
	close(fds[1]);
	loop_free(end.loop);
}

/* Two watches become ready in one turn; the first to be called removes both. */
static void remove_both(void *context, uint32_t events)
{
	struct end *end = context;

	(void)events;
	(*end->total)++;
	loop_unwatch(end->other);
	loop_unwatch(end->watch);
	loop_exit(end->loop, 0);
}

static void test_remove_in_callback(void **state)
{
	struct loop *loop;
	unsigned int total = 0;
	struct end a = {.total = &total}, b = {.total = &total};
	int pipe_fds[2], other_fds[2];

	(void)state;
	create(&loop);
	a.loop = b.loop = loop;
	assert_int_equal(pipe(pipe_fds), 0);
	assert_int_equal(write(pipe_fds[1], "x", 1), 1);
	assert_int_equal(loop_watch(loop, pipe_fds[0], POLLIN, remove_both, &a, &a.watch), 0);
	assert_int_equal(pipe(other_fds), 0);
	assert_int_equal(write(other_fds[1], "x", 1), 1);
	assert_int_equal(loop_watch(loop, other_fds[0], POLLIN, remove_both, &b, &b.watch), 0);
	a.other = b.watch;
	b.other = a.watch;
	assert_int_equal(loop_run(loop), 0);
	assert_int_equal(total, 1);
	/* Nothing is left that would call back. */
	assert_int_equal(loop_timer_create(loop, expire, &a, &a.timer), 0);
	assert_int_equal(loop_timer_set(a.timer, 1000000), 0);
	assert_int_equal(loop_run(loop), 1);
	assert_int_equal(total, 1);
	loop_timer_free(a.timer);
	close(pipe_fds[0]);
	close(pipe_fds[1]);
	close(other_fds[0]);
	close(other_fds[1]);
	loop_free(loop);
}

/* A hang-up is always told, but not to a watch that is paused, and nothing spins meanwhile. */
static void test_paused_hangup(void **state)
{
	struct end end = {.exit_after = 1}, clock = {0};
	int fds[2];

	(void)state;
	create(&end.loop);
	clock.loop = end.loop;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
	end.fd = fds[0];
	assert_int_equal(loop_watch(end.loop, end.fd, 0, read_and_count, &end, &end.watch), 0);
	close(fds[1]);
	assert_int_equal(loop_timer_create(end.loop, expire, &clock, &clock.timer), 0);
	assert_int_equal(loop_timer_set(clock.timer, 20000000), 0);
	waits = 0;
	assert_int_equal(loop_run(end.loop), 1);
	assert_int_equal(end.calls, 0);
	assert_true(waits <= 3); /* the hang-up once, the timer, and once early by rounding */
	loop_rewatch(end.watch, POLLOUT);
	assert_int_equal(loop_run(end.loop), 7);
	assert_true(end.events & POLLHUP);
	loop_rewatch(end.watch, 0);
	assert_int_equal(loop_timer_set(clock.timer, 20000000), 0);
	waits = 0;
	assert_int_equal(loop_run(end.loop), 2);
	assert_int_equal(end.calls, 1);
	assert_true(waits <= 3);
	loop_unwatch(end.watch);
	loop_timer_free(clock.timer);
	close(fds[0]);
	loop_free(end.loop);
}

static void test_rewatch(void **state)
{
	struct end end = {.exit_after = 1}, clock = {0};
	int fds[2];

	(void)state;
	create(&end.loop);
	clock.loop = end.loop;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
	end.fd = fds[0];
	assert_int_equal(write(fds[1], "x", 1), 1);
	assert_int_equal(loop_watch(end.loop, end.fd, POLLIN, read_and_count, &end, &end.watch), 0);
	loop_rewatch(end.watch, 0); /* paused before the kernel saw it */
	assert_int_equal(loop_timer_create(end.loop, expire, &clock, &clock.timer), 0);
	assert_int_equal(loop_timer_set(clock.timer, 1000000), 0);
	assert_int_equal(loop_run(end.loop), 1);
	assert_int_equal(end.calls, 0);
	loop_rewatch(end.watch, POLLOUT);
	assert_int_equal(loop_run(end.loop), 7);
	assert_int_equal(end.events, POLLOUT);
	end.exit_after = 2;
	loop_rewatch(end.watch, POLLIN);
	assert_int_equal(loop_run(end.loop), 7);
	assert_int_equal(end.events, POLLIN);
	loop_unwatch(end.watch);
	loop_timer_free(clock.timer);
	close(fds[0]);
	close(fds[1]);
	loop_free(end.loop);
}

static void expire_three_times(void *context)
{
	struct end *end = context;

	if (++end->calls == 3)
		loop_exit(end->loop, 3);
	else
		assert_int_equal(loop_timer_set(end->timer, 1000), 0);
}

static void test_timer(void **state)
{
	struct end end = {0}, never = {0}, last = {0};

	(void)state;
	create(&end.loop);
	never.loop = last.loop = end.loop;
	assert_int_equal(loop_timer_create(end.loop, expire_three_times, &end, &end.timer), 0);
	assert_int_equal(loop_timer_create(end.loop, expire, &never, &never.timer), 0);
	assert_int_equal(loop_timer_create(end.loop, expire, &last, &last.timer), 0);
	assert_int_equal(loop_timer_set(end.timer, 0), 0);
	assert_int_equal(loop_timer_set(never.timer, 1000), 0);
	loop_timer_cancel(never.timer);
	assert_int_equal(loop_run(end.loop), 3);
	/* Set twice: the first setting no longer counts. */
	assert_int_equal(loop_timer_set(never.timer, 1000), 0);
	assert_int_equal(loop_timer_set(never.timer, UINT64_C(3600000000000)), 0);
	assert_int_equal(loop_timer_set(last.timer, 2000000), 0);
	assert_int_equal(loop_run(end.loop), 1);
	assert_int_equal(last.calls, 1);
	assert_int_equal(never.calls, 0);
	loop_timer_free(never.timer);
	loop_timer_free(end.timer);
	loop_timer_free(last.timer);
	loop_free(end.loop);
}

static void free_own_timer(void *context)
{
	struct end *end = context;

	loop_timer_free(end->timer);
	end->timer = NULL;
	loop_exit(end->loop, 5);
}

static void test_timer_frees_itself(void **state)
{
	struct end end = {0};

	(void)state;
	create(&end.loop);
	assert_int_equal(loop_timer_create(end.loop, free_own_timer, &end, &end.timer), 0);
	assert_int_equal(loop_timer_set(end.timer, 1000), 0);
	assert_int_equal(loop_run(end.loop), 5);
	assert_null(end.timer);
	loop_free(end.loop);
}

#define MANY 700u
#define ROUNDS 5u

static void count_and_remove(void *context, uint32_t events)
{
	struct end *end = context;
	char byte;

	assert_true(events & POLLIN);
	assert_int_equal(read(end->fd, &byte, 1), 1);
	end->calls++;
	if (++*end->total == MANY * ROUNDS)
		loop_exit(end->loop, 0);
}

static void test_many(void **state)
{
	struct rlimit limit;
	struct loop *loop;
	struct end *ends = calloc(MANY, sizeof(*ends));
	int(*fds)[2] = calloc(MANY, sizeof(*fds));
	unsigned int total = 0;

	(void)state;
	assert_non_null(ends);
	assert_non_null(fds);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur < 2 * MANY + 64)
		skip();
	create(&loop);
	for (unsigned int i = 0; i < MANY; i++) {
		assert_int_equal(pipe(fds[i]), 0);
		ends[i] = (struct end){.loop = loop, .fd = fds[i][0], .total = &total};
		assert_int_equal(loop_watch(loop, ends[i].fd, POLLIN, count_and_remove, &ends[i],
					    &ends[i].watch),
				 0);
		for (unsigned int byte = 0; byte < ROUNDS; byte++)
			assert_int_equal(write(fds[i][1], "x", 1), 1);
	}
	assert_int_equal(loop_run(loop), 0);
	for (unsigned int i = 0; i < MANY; i++) {
		assert_int_equal(ends[i].calls, ROUNDS);
		loop_unwatch(ends[i].watch);
		close(fds[i][0]);
		close(fds[i][1]);
	}
	loop_free(loop);
	free(fds);
	free(ends);
}

static void test_null(void **state)
{
	struct loop *loop;

	(void)state;
	loop_unwatch(NULL);
	loop_timer_free(NULL);
	loop_free(NULL);
	create(&loop);
	assert_int_equal(strncmp(loop_name(loop), "io_uring", 8) == 0,
			 loop_kind(loop) == LOOP_URING);
	assert_int_equal(strcmp(loop_name(loop), "epoll") == 0, loop_kind(loop) == LOOP_EPOLL);
	assert_true(strlen(loop_name(loop)) < 32);
	assert_int_equal(loop_refused(loop), 0);
	loop_free(loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_event),
		cmocka_unit_test(test_unwatch_closes),
		cmocka_unit_test(test_unwatch_before_submit),
		cmocka_unit_test(test_remove_in_callback),
		cmocka_unit_test(test_paused_hangup),
		cmocka_unit_test(test_rewatch),
		cmocka_unit_test(test_timer),
		cmocka_unit_test(test_timer_frees_itself),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_null),
	};

	return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
