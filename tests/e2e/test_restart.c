/* SPDX-License-Identifier: MIT */
/*
 * One daemon goes and another comes, between the calls of a client: what each call does meanwhile,
 * with a listening socket that stays and one that does not. One thread; test_restart_points.c has
 * deaths in the midst of batches.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/support.h"

enum { DEPTH = 8, UNITS = 64, SIZE = 64 << 10 };

static struct harness_daemon server;
static struct client client;
static struct memory memory;
static char socket_path[108];

static const struct range whole = {DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, SIZE, 0, 0};

static void open_all(const char *config)
{
	snprintf(socket_path, sizeof socket_path, "%s/socket", harness_directory());
	harness_daemon_start_at(&server, socket_path, config, NULL);
	client_connect_with(&client, socket_path, 0);
	client_queue(&client, DEPTH, UNITS);
	memory_alloc(&memory, client.ds, SIZE);
}

static void close_all(void)
{
	memory_free(&memory);
	client_close(&client);
	harness_daemon_stop(&server);
}

static struct dmasync_state_info state(void)
{
	struct dmasync_state_info info = {.size = sizeof info};

	check_int(dmasync_get_state(client.ds, &info), 0);
	return info;
}

/* Until the client can know: the kernel closes what an io_uring held a moment after its owner. */
static void kill_daemon(void)
{
	harness_daemon_kill(&server);
	harness_until(state().state == DMASYNC_STATE_RECONNECTING, PATIENCE_MS);
}

static void submit(uint64_t user_data)
{
	memset(memory.cpu, (int)user_data, SIZE);
	client_submit(&client, memory.buffer, &whole, 1, user_data);
}

static void expect(uint64_t user_data, bool replayed)
{
	struct dmasync_completion done;

	check_int(dmasync_wait(client.queue, &done, PATIENCE_NS), 0);
	check_int(done.status, 0);
	check_int(done.user_data, user_data);
	check_int((done.flags & DMASYNC_COMPLETION_REPLAYED) != 0, replayed);
	check_int(done.lines, SIZE / LINE);
}

/* Nothing is there to connect to: every call says so in its own way, and none of them hangs. */
static void calls_while_nobody_answers(void)
{
	struct dmasync_completion done;
	struct dmasync_batch *batch;
	char text[512];

	open_all(SIMULATED_CONFIG);
	kill_daemon();
	check_int(dmasync_peek(client.queue, &done), 0);
	check_int(dmasync_wait(client.queue, &done, -1), -ENODATA);
	/* Batches go into the old ring, as many as it holds. */
	for (uint64_t i = 0; i < DEPTH; i++)
		submit(i);
	check_int(dmasync_batch_begin(client.queue, &batch), -EAGAIN);
	check_int(dmasync_peek(client.queue, &done), 0);
	check_int(dmasync_wait(client.queue, &done, 0), -ETIMEDOUT);
	check_int(dmasync_wait(client.queue, &done, 20000000), -ETIMEDOUT);
	check(dmasync_error_text(client.ds, text, sizeof text) > 0);
	check(strstr(text, socket_path));

	harness_daemon_start_at(&server, socket_path, SIMULATED_CONFIG, NULL);
	for (uint64_t i = 0; i < DEPTH; i++)
		expect(i, true);
	check_int(memcmp(memory.cpu, memory.device, SIZE), 0);
	check_int(state().state, DMASYNC_STATE_CONNECTED);
	check_int(state().restarts, 1);
	check_int(state().replayed, DEPTH);
	submit(100);
	expect(100, false);
	close_all();
}

/* A socket unit: somebody always listens, and accepts for a daemon that is not there. */
static void the_listening_socket_stays(void)
{
	struct dmasync_completion done;
	int listen_fd;

	snprintf(socket_path, sizeof socket_path, "%s/socket", harness_directory());
	listen_fd = harness_listen(socket_path);
	harness_daemon_start_on(&server, socket_path, listen_fd, SIMULATED_CONFIG);
	client_connect_with(&client, socket_path, 0);
	client_queue(&client, DEPTH, UNITS);
	memory_alloc(&memory, client.ds, SIZE);
	for (uint64_t round = 1; round < 5; round++) {
		submit(100 + round);
		expect(100 + round, false);
		kill_daemon();
		submit(round);
		/* HELLO is on its way and nobody reads it. */
		check_int(dmasync_wait(client.queue, &done, 20000000), -ETIMEDOUT);
		check_int(dmasync_peek(client.queue, &done), 0);
		harness_daemon_start_on(&server, socket_path, listen_fd, SIMULATED_CONFIG);
		expect(round, true);
		check_int(memcmp(memory.cpu, memory.device, SIZE), 0);
		check_int(state().restarts, round);
	}
	close_all();
	close(listen_fd);
}

static void readable_again_and_again(void)
{
	struct pollfd p;
	uint64_t expected = 0;

	open_all(SIMULATED_CONFIG);
	p = (struct pollfd){.fd = dmasync_queue_fd(client.queue), .events = POLLIN};
	check(p.fd >= 0);
	for (int round = 0; round < 4; round++) {
		unsigned int looks = 0;

		for (uint64_t i = 0; i < DEPTH; i++)
			submit(expected + i);
		harness_daemon_kill(&server);
		/* Away, it is readable now and then, not for ever: nobody spins on it. */
		for (int64_t end = harness_now_ms() + 200; harness_now_ms() < end;) {
			struct dmasync_completion done;
			int r = poll(&p, 1, 50) == 1 ? dmasync_peek(client.queue, &done) : 0;

			check(r >= 0);
			if (r == 1)
				check_int(done.user_data, expected++);
			looks++;
		}
		check(looks < 150);
		harness_daemon_start_at(&server, socket_path, SIMULATED_CONFIG, NULL);
		while (expected < (uint64_t)(round + 1) * DEPTH) {
			struct dmasync_completion done;

			check_int(poll(&p, 1, (int)harness_scaled_ms(PATIENCE_MS)), 1);
			if (dmasync_peek(client.queue, &done) == 1) {
				check_int(done.status, 0);
				check_int(done.user_data, expected++);
			}
		}
		check_int(dmasync_queue_fd(client.queue), p.fd);
	}
	/* All read: quiet. */
	for (int i = 0; i < 10; i++) {
		struct dmasync_completion done;

		check_int(dmasync_peek(client.queue, &done), 0);
	}
	check_int(poll(&p, 1, 20), 0);
	close_all();
}

/* A fork holds all that the first daemon gave: its hang-ups must not be told for ever. */
static void a_fork_holds_the_old_ends(void)
{
	struct dmasync_completion done;
	struct pollfd p;
	int status;

	open_all(SIMULATED_CONFIG);
	p = (struct pollfd){.fd = dmasync_queue_fd(client.queue), .events = POLLIN};
	pid_t child = fork();

	check(child >= 0);
	if (child == 0)
		for (;;)
			pause();
	kill_daemon();
	harness_daemon_start_at(&server, socket_path, SIMULATED_CONFIG, NULL);
	submit(1);
	check_int(poll(&p, 1, (int)harness_scaled_ms(PATIENCE_MS)), 1);
	expect(1, true);
	while (dmasync_peek(client.queue, &done) == 1)
		fail_case("a second completion");
	check_int(poll(&p, 1, 20), 0);
	kill(child, SIGKILL);
	check_int(waitpid(child, &status, 0), child);
	close_all();
}

static void on_alarm(int signal)
{
	(void)signal;
}

/* A signal ends a wait for a daemon as it ends one for a completion. */
static void a_signal_ends_the_wait(void)
{
	struct sigaction action = {.sa_handler = on_alarm};
	struct itimerval timer = {.it_interval.tv_usec = 5000, .it_value.tv_usec = 5000};
	struct itimerval never = {0};
	struct dmasync_completion done;

	open_all(SIMULATED_CONFIG);
	kill_daemon();
	submit(1);
	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &timer, NULL);
	check_int(dmasync_wait(client.queue, &done, -1), -EINTR);
	setitimer(ITIMER_REAL, &never, NULL);
	harness_daemon_start_at(&server, socket_path, SIMULATED_CONFIG, NULL);
	expect(1, true);
	close_all();
}

/* ---- what a new daemon is told of ---- */

static void *start_soon(void *argument)
{
	(void)argument;
	usleep(30000);
	harness_daemon_start_at(&server, socket_path, SIMULATED_CONFIG, NULL);
	pause();
	return NULL;
}

/* Requests wait for a daemon; what they make is used, and survives the next death. */
static void added_while_nobody_is_there(void)
{
	struct memory other;
	struct client second;
	struct dmasync_completion done;
	pthread_t supervisor;

	open_all(SIMULATED_CONFIG);
	second.ds = client.ds;
	harness_daemon_kill(&server);
	/* A daemon dies with the thread that started it: this one stays until then. */
	check_int(pthread_create(&supervisor, NULL, start_soon, NULL), 0);
	memory_alloc(&other, client.ds, SIZE);
	client_queue(&second, DEPTH, UNITS);
	for (int round = 0; round < 2; round++) {
		memset(other.cpu, 0x40 + round, SIZE);
		client_submit(&second, other.buffer, &whole, 1, 5);
		client_wait(&second, &done);
		check_int(done.status, 0);
		check_int(memcmp(other.cpu, other.device, SIZE), 0);
		submit(6);
		expect(6, true); /* its queue was still the daemon's before */
		if (round == 0) {
			pthread_cancel(supervisor); /* and the daemon goes with it */
			pthread_join(supervisor, NULL);
			harness_daemon_wait(&server, PATIENCE_MS);
			harness_daemon_start_at(&server, socket_path, SIMULATED_CONFIG, NULL);
		}
	}
	check_int(state().restarts, 2);
	memory_free(&other);
	dmasync_queue_destroy(second.queue);
	close_all();
}

/* A buffer that a device has written to is not cleaned once more: its bytes would be lost. */
static void what_the_device_wrote_stays(void)
{
	struct range back = {DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, SIZE, 0, 0};
	struct dmasync_completion done;

	open_all(SIMULATED_CONFIG);
	submit(1);
	expect(1, false);
	memset(memory.device, 0x5d, SIZE);
	harness_daemon_kill(&server);
	harness_daemon_start_at(&server, socket_path, SIMULATED_CONFIG, NULL);
	harness_until(state().state == DMASYNC_STATE_CONNECTED, PATIENCE_MS);
	client_submit(&client, memory.buffer, &back, 1, 2);
	client_wait(&client, &done);
	check_int(done.status, 0);
	for (size_t i = 0; i < SIZE; i++)
		check_int(memory.cpu[i], 0x5d);
	close_all();
}

/* Built before, during and after: an open batch moves to the new ring. */
static void an_open_batch_moves(void)
{
	struct dmasync_batch *batch;
	struct dmasync_completion done;

	open_all(SIMULATED_CONFIG);
	/* Not at the start of the ring, and one batch in flight before it. */
	for (uint64_t i = 0; i < 5; i++) {
		submit(i);
		expect(i, false);
	}
	memset(memory.cpu, 0x11, SIZE);
	memset(memory.device, 0, SIZE);
	check_int(dmasync_batch_begin(client.queue, &batch), 0);
	for (uint64_t i = 0; i < 10; i++)
		check_int(dmasync_batch_add(batch, memory.buffer, DMASYNC_FOR_DEVICE,
					    DMASYNC_TO_DEVICE, i * LINE, LINE),
			  0);
	harness_daemon_kill(&server);
	check_int(dmasync_batch_add_rows(batch, memory.buffer, DMASYNC_FOR_DEVICE,
					 DMASYNC_TO_DEVICE, 10ul * LINE, LINE, 5, LINE),
		  0);
	harness_daemon_start_at(&server, socket_path, SIMULATED_CONFIG, NULL);
	while (state().restarts == 0)
		harness_pause();
	check_int(dmasync_peek(client.queue, &done), 0); /* attaches */
	check_int(dmasync_batch_add(batch, memory.buffer, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE,
				    15ul * LINE, SIZE - 15ul * LINE),
		  0);
	check_int(dmasync_batch_submit(batch, 9), 0);
	check_int(dmasync_wait(client.queue, &done, PATIENCE_NS), 0);
	check_int(done.status, 0);
	check_int(done.user_data, 9);
	check_int(done.entries, 12);
	check_int(done.lines, SIZE / LINE);
	check_int(done.flags & DMASYNC_COMPLETION_REPLAYED, 0);
	check_int(memcmp(memory.cpu, memory.device, SIZE), 0);
	close_all();
}

/* ---- a daemon that cannot take over ---- */

static void broken_for_good(const char *config, const char *why)
{
	struct pollfd p;
	struct dmasync_completion done;
	struct dmasync_batch *batch;
	struct dmasync_buffer *buffer;
	struct dmasync_buffer_params params;
	char text[512];

	open_all(SIMULATED_CONFIG);
	p = (struct pollfd){.fd = dmasync_queue_fd(client.queue), .events = POLLIN};
	submit(0);
	expect(0, false);
	harness_daemon_kill(&server);
	for (uint64_t i = 1; i < 4; i++)
		submit(i);
	harness_daemon_start_at(&server, socket_path, config, NULL);
	for (uint64_t i = 1; i < 4; i++) {
		check_int(dmasync_wait(client.queue, &done, PATIENCE_NS), 0);
		check_int(done.status, -ECONNRESET);
		check_int(done.reason, DMASYNC_REASON_DAEMON_LOST);
		check_int(done.user_data, i);
	}
	check_int(dmasync_wait(client.queue, &done, -1), -ECONNRESET);
	check_int(dmasync_peek(client.queue, &done), -ECONNRESET);
	check_int(dmasync_batch_begin(client.queue, &batch), -ECONNRESET);
	check_int(poll(&p, 1, 0), 1);
	dmasync_buffer_params_init(&params);
	params.bytes = 1;
	params.memory = DMASYNC_MEMORY_MEMFD;
	check_int(dmasync_buffer_alloc(client.ds, &params, &buffer), -ECONNRESET);
	check_int(state().state, DMASYNC_STATE_BROKEN);
	check_int(state().restarts, 0);
	dmasync_error_text(client.ds, text, sizeof text);
	if (!strstr(text, why))
		fail_case("the error text is: %s", text);
	close_all();
}

static void a_feature_is_missing(void)
{
	broken_for_good("[daemon]\n", "feature");
}

static void a_limit_is_lower(void)
{
	broken_for_good(SIMULATED_CONFIG "[limits]\nmax_depth = 4\n", "max_depth is 4");
}

static void nobody_comes(void)
{
	struct dmasync_connect_params params;
	struct dmasync_completion done;

	snprintf(socket_path, sizeof socket_path, "%s/socket", harness_directory());
	harness_daemon_start_at(&server, socket_path, SIMULATED_CONFIG, NULL);
	dmasync_connect_params_init(&params);
	params.socket = socket_path;
	params.give_up_ms = 50;
	check_int(dmasync_connect_with(&params, &client.ds), 0);
	client_queue(&client, DEPTH, UNITS);
	memory_alloc(&memory, client.ds, SIZE);
	harness_daemon_kill(&server);
	submit(1);
	check_int(dmasync_wait(client.queue, &done, -1), 0);
	check_int(done.reason, DMASYNC_REASON_DAEMON_LOST);
	check_int(dmasync_sync(client.queue, memory.buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0,
			       1),
		  -ECONNRESET);
	memory_free(&memory);
	client_close(&client);
}

/* ---- who wants to know ---- */

static unsigned int told[4];

static void note(struct dmasync *ds, enum dmasync_state now, void *context)
{
	struct dmasync_state_info info = {.size = sizeof info};

	check(context == told);
	/* No lock is held. */
	check_int(dmasync_get_state(ds, &info), 0);
	told[now]++;
}

static void the_callback(void)
{
	open_all(SIMULATED_CONFIG);
	check_int(dmasync_set_state_callback(client.ds, note, told), 0);
	for (uint64_t round = 1; round < 4; round++) {
		kill_daemon();
		check_int(told[DMASYNC_STATE_RECONNECTING], round);
		harness_daemon_start_at(&server, socket_path, SIMULATED_CONFIG, NULL);
		submit(round);
		expect(round, true);
		check_int(told[DMASYNC_STATE_CONNECTED], round);
	}
	check_int(told[DMASYNC_STATE_BROKEN], 0);
	check_int(dmasync_set_state_callback(client.ds, NULL, NULL), 0);
	close_all();
}

/* Work in flight is waited for, over a restart as well; and nobody waits for ever. */
static void destroyed_meanwhile(void)
{
	struct client second = {0};

	open_all(SIMULATED_CONFIG);
	second.ds = client.ds;
	client_queue(&second, DEPTH, UNITS);
	harness_daemon_kill(&server);
	memset(memory.cpu, 0x21, SIZE);
	client_submit(&second, memory.buffer, &whole, 1, 1);
	harness_daemon_start_at(&server, socket_path, SIMULATED_CONFIG, NULL);
	dmasync_queue_destroy(second.queue);
	check_int(memcmp(memory.cpu, memory.device, SIZE), 0);
	/* Not a trace of it in the next daemon. */
	harness_daemon_kill(&server);
	memory_free(&memory);
	harness_daemon_start_at(&server, socket_path, SIMULATED_CONFIG, NULL);
	memory_alloc(&memory, client.ds, SIZE);
	submit(3);
	expect(3, true);
	close_all();
}

static const struct harness_case cases[] = {
	HARNESS_CASE(calls_while_nobody_answers),
	HARNESS_CASE(the_listening_socket_stays),
	HARNESS_CASE(readable_again_and_again, .timeout_s = 40),
	HARNESS_CASE(a_fork_holds_the_old_ends),
	HARNESS_CASE(a_signal_ends_the_wait),
	HARNESS_CASE(added_while_nobody_is_there),
	HARNESS_CASE(what_the_device_wrote_stays),
	HARNESS_CASE(an_open_batch_moves),
	HARNESS_CASE(a_feature_is_missing),
	HARNESS_CASE(a_limit_is_lower),
	HARNESS_CASE(nobody_comes),
	HARNESS_CASE(the_callback),
	HARNESS_CASE(destroyed_meanwhile),
};

HARNESS_MAIN(cases)
