/* SPDX-License-Identifier: MIT */
/*
 * Notification, with a socket of the test in the service manager's place and workers that the test
 * moves: what is sent, and that nothing is where nothing happened.
 */
#include "daemon/notify.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/daemon.h"
#include "daemon/worker_internal.h"

#include <cmocka.h>

#include "tests/lib/loop_kind.h"

struct fixture {
	struct daemon daemon;
	struct notify *notify;
	struct loop_timer *end;
	int fd;
};

static void end(void *context)
{
	struct fixture *fixture = context;

	loop_exit(fixture->daemon.loop, 0);
}

static void run_ms(struct fixture *fixture, uint64_t ms)
{
	assert_int_equal(loop_timer_set(fixture->end, ms * 1000000), 0);
	assert_int_equal(loop_run(fixture->daemon.loop), 0);
}

static int setup(void **state)
{
	struct fixture *fixture = calloc(1, sizeof(*fixture));
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t size = sizeof(sa_family_t);
	char name[128];

	if (!fixture || loop_create(test_loop_kind(), &fixture->daemon.loop) < 0)
		return -1;
	if (loop_timer_create(fixture->daemon.loop, end, fixture, &fixture->end) < 0)
		return -1;
	/* An abstract address that the kernel chooses. */
	fixture->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	if (bind(fixture->fd, (struct sockaddr *)&address, size) < 0)
		return -1;
	size = sizeof(address);
	if (getsockname(fixture->fd, (struct sockaddr *)&address, &size) < 0)
		return -1;
	snprintf(name, sizeof(name), "@%s", address.sun_path + 1);
	setenv("NOTIFY_SOCKET", name, 1);
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	*state = fixture;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;

	notify_free(fixture->notify);
	loop_timer_free(fixture->end);
	loop_free(fixture->daemon.loop);
	close(fixture->fd);
	free(fixture);
	return 0;
}

static const char *received(struct fixture *fixture)
{
	static char text[512];
	ssize_t n = recv(fixture->fd, text, sizeof(text) - 1, 0);

	text[n < 0 ? 0 : n] = '\0';
	return text;
}

static void create(struct fixture *fixture)
{
	assert_int_equal(notify_create(&fixture->daemon, &fixture->notify), 0);
}

static void test_states(void **state)
{
	struct fixture *fixture = *state;
	unsigned long long usec;

	create(fixture);
	fixture->daemon.accounts.used[ACCOUNT_CONNECTIONS] = 2;
	notify_ready(fixture->notify);
	assert_string_equal(received(fixture),
			    "READY=1\nSTATUS=2 clients, 0 buffers (0 MiB), 0 queues; 0 workers, no "
			    "line operations");
	notify_reloading(fixture->notify);
	assert_int_equal(sscanf(received(fixture), "RELOADING=1\nMONOTONIC_USEC=%llu", &usec), 1);
	assert_true(usec <= clock_ns() / 1000);
	notify_stopping(fixture->notify);
	assert_string_equal(received(fixture), "STOPPING=1");
}

/* A burst of changes is one line, and no change is none. */
static void test_status(void **state)
{
	struct fixture *fixture = *state;

	create(fixture);
	notify_changed(fixture->notify);
	assert_memory_equal(received(fixture), "STATUS=0 clients", 16);
	for (uint32_t i = 1; i <= 100; i++) {
		fixture->daemon.accounts.used[ACCOUNT_CONNECTIONS] = i;
		notify_changed(fixture->notify);
	}
	assert_string_equal(received(fixture), ""); /* later, all in one */
	run_ms(fixture, 2500);
	assert_memory_equal(received(fixture), "STATUS=100 clients", 18);
	assert_string_equal(received(fixture), "");
	notify_changed(fixture->notify);
	run_ms(fixture, 2500);
	assert_string_equal(received(fixture), ""); /* nothing had changed */
}

/* The receiver's queue is full: the daemon goes on. */
static void test_full_queue(void **state)
{
	struct fixture *fixture = *state;

	create(fixture);
	for (uint32_t i = 0; i < 2000; i++) {
		fixture->daemon.accounts.used[ACCOUNT_CONNECTIONS] = i;
		notify_free(fixture->notify);
		create(fixture);
		notify_changed(fixture->notify);
	}
	assert_memory_equal(received(fixture), "STATUS=0 clients", 16);
}

static void test_watchdog(void **state)
{
	struct fixture *fixture = *state;
	struct cache cache = {.line = 64, .ops = cache_simulated_ops};
	struct worker *worker;
	char pid[32];

	setenv("WATCHDOG_USEC", "20000", 1);
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	setenv("WATCHDOG_PID", pid, 1);
	create(fixture);
	/* No worker that could stand still. */
	run_ms(fixture, 100);
	assert_string_equal(received(fixture), "WATCHDOG=1");

	/* One that sleeps with nothing to do. */
	struct worker_params params = {.cpu = -1,
				       .cache = &cache,
				       .slice_lines = 4096,
				       .max_batch_lines = 1024,
				       .events = &fixture->daemon.events,
				       .events_fd = -1};
	struct worker_command stop = {.type = WORKER_STOP};

	assert_int_equal(worker_start(&params, &worker), 0);
	fixture->daemon.workers = &worker;
	fixture->daemon.worker_count = fixture->daemon.ordinary_count = 1;
	while (*received(fixture))
		;
	run_ms(fixture, 100);
	assert_string_equal(received(fixture), "WATCHDOG=1");
	fixture->daemon.worker_count = fixture->daemon.ordinary_count = 0;
	worker_post(worker, &stop);
	worker_join(worker);
}

/*
 * One that has work and does not move: no sign of life, until it moves. The slow one may stand
 * still as long as its clients like. They have no threads.
 */
static void test_watchdog_stuck(void **state)
{
	struct fixture *fixture = *state;
	struct worker *worker = calloc(1, sizeof(*worker)), *slow = calloc(1, sizeof(*slow));
	struct worker *workers[] = {worker, slow};

	assert_non_null(worker);
	assert_non_null(slow);
	atomic_store(&slow->stats.busy, 1);
	setenv("WATCHDOG_USEC", "20000", 1);
	atomic_store(&worker->stats.alive, 1);
	atomic_store(&worker->stats.busy, 1);
	fixture->daemon.workers = workers;
	fixture->daemon.ordinary_count = 1;
	fixture->daemon.worker_count = 2;
	create(fixture);
	run_ms(fixture, 50); /* the first look sees it move, the next ones do not */
	assert_string_equal(received(fixture), "WATCHDOG=1");
	assert_string_equal(received(fixture), "");
	run_ms(fixture, 100);
	assert_string_equal(received(fixture), "");
	atomic_fetch_add(&worker->stats.alive, 1);
	run_ms(fixture, 50);
	assert_string_equal(received(fixture), "WATCHDOG=1");
	assert_string_equal(received(fixture), "");
	atomic_store(&worker->stats.busy, 0); /* sleeps: it may stand still */
	run_ms(fixture, 100);
	assert_string_equal(received(fixture), "WATCHDOG=1");
	assert_string_equal(received(fixture), "WATCHDOG=1");
	free(slow);
	free(worker);
}

static void test_watchdog_of_another(void **state)
{
	struct fixture *fixture = *state;

	setenv("WATCHDOG_USEC", "20000", 1);
	setenv("WATCHDOG_PID", "1", 1);
	create(fixture);
	run_ms(fixture, 100);
	assert_string_equal(received(fixture), "");
}

static void test_nobody_listens(void **state)
{
	struct fixture *fixture = *state;

	unsetenv("NOTIFY_SOCKET");
	setenv("WATCHDOG_USEC", "20000", 1);
	create(fixture);
	notify_ready(fixture->notify);
	notify_changed(fixture->notify);
	notify_stopping(fixture->notify);
	run_ms(fixture, 50);
	assert_string_equal(received(fixture), "");
	notify_changed(NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_states),	   TEST(test_status),
		TEST(test_full_queue),	   TEST(test_watchdog),
		TEST(test_watchdog_stuck), TEST(test_watchdog_of_another),
		TEST(test_nobody_listens),
	};

	return cmocka_run_group_tests_name("notify", tests, NULL, NULL);
}
