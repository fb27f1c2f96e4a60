/* SPDX-License-Identifier: MIT */
/* A daemon with nothing to do does nothing. One thread. */
#include <time.h>

#include "tests/e2e/support.h"
#include "tests/lib/sanitizer.h"

/* Counted over the daemon's threads: each wake-up ends in another sleep. */
static void an_idle_daemon_does_not_wake_up(void)
{
	enum { SECONDS = 3 };
	struct range line = {DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, LINE, 0, 0};
	struct harness_daemon server;
	struct client client;
	struct memory memory;
	struct dmasync_completion done;
	uint64_t before, after;

	if (UNDER_TSAN)
		harness_skip("the thread sanitizer has a thread that wakes up by itself");
	harness_daemon_start(&server, SIMULATED_CONFIG, NULL);
	client_open(&client, server.socket, 4, 4);
	memory_alloc(&memory, client.ds, 4096);
	client_run(&client, memory.buffer, &line, 1, &done);

	/*
	 * Until the worker sleeps and the last status line is out, which is held back two seconds
	 * (and a little more on a machine that is busy with other things).
	 */
	after = harness_count_sleeps(server.pid);
	do {
		before = after;
		nanosleep(&(struct timespec){.tv_sec = 4}, NULL);
		after = harness_count_sleeps(server.pid);
	} while (after != before);

	nanosleep(&(struct timespec){.tv_sec = SECONDS}, NULL);
	check_int(harness_count_sleeps(server.pid) - before, 0);

	client_run(&client, memory.buffer, &line, 1, &done);
	memory_free(&memory);
	client_close(&client);
	harness_daemon_stop(&server);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(an_idle_daemon_does_not_wake_up),
};

HARNESS_MAIN(cases)
