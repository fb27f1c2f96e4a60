/* SPDX-License-Identifier: MIT */
/*
 * DMASYNC_INLINE_FALLBACK: batches are done by whoever is there, in order, exactly once, with the
 * right bytes, while daemons come and go. One thread, but for the one case that says so.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/support.h"

enum { SIZE = 65536, DEPTH = 8 };

static struct harness_daemon server;
static char path[108];
static struct client client;
static struct memory memory;
static uint64_t submitted, completed;

static void find_path(void)
{
	snprintf(path, sizeof path, "%s/socket", harness_directory());
}

static void start_daemon(const char *config)
{
	harness_daemon_start_at(&server, path, config, NULL);
}

static int try_connect(uint32_t flags, char *text, size_t size)
{
	struct dmasync_connect_params params;

	dmasync_connect_params_init(&params);
	params.socket = path;
	params.flags = flags;
	params.error_text = text;
	params.error_text_size = size;
	return dmasync_connect_with(&params, &client.ds);
}

static void begin(void)
{
	struct dmasync_queue_params params;
	char text[512] = "";

	if (try_connect(DMASYNC_INLINE_FALLBACK | DMASYNC_INLINE_SIMULATED, text, sizeof text) < 0)
		fail_case("%s", text);
	dmasync_queue_params_init(&params);
	params.depth = DEPTH;
	check_int(dmasync_queue_create(client.ds, &params, &client.queue), 0);
	memory_alloc(&memory, client.ds, SIZE);
	submitted = completed = 0;
}

static void end(void)
{
	check_int(completed, submitted);
	memory_free(&memory);
	client_close(&client);
}

/* Batch i writes its number over line i, and syncs it for the device. */
static size_t line_of(uint64_t batch)
{
	return batch % (SIZE / LINE) * LINE;
}

static void submit(void)
{
	struct range line = {DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, line_of(submitted), LINE, 0, 0};

	memset(memory.cpu + line_of(submitted), (int)submitted % 255 + 1, LINE);
	client_submit(&client, memory.buffer, &line, 1, submitted);
	submitted++;
}

/* The next completion: its flags. */
static uint32_t take(void)
{
	struct dmasync_completion done;

	check_int(dmasync_wait(client.queue, &done, PATIENCE_NS), 0);
	check_int(done.status, 0);
	check_int(done.user_data, completed);
	check_int(done.lines, 1);
	for (int i = 0; i < LINE; i++)
		check_int(memory.device[line_of(completed) + (size_t)i], (int)completed % 255 + 1);
	completed++;
	return done.flags & (DMASYNC_COMPLETION_INLINE | DMASYNC_COMPLETION_REPLAYED);
}

static uint32_t run(void)
{
	submit();
	return take();
}

static enum dmasync_state state(void)
{
	struct dmasync_state_info info = {.size = sizeof info};

	check_int(dmasync_get_state(client.ds, &info), 0);
	return info.state;
}

/* Batch after batch until the daemon does them. */
static void until_daemon(void)
{
	harness_until(run() == 0, PATIENCE_MS);
	check_int(state(), DMASYNC_STATE_CONNECTED);
	check_int(run(), 0);
}

static void no_daemon_is_no_error(void)
{
	char text[512] = "";

	find_path();
	check_int(try_connect(0, text, sizeof text), -ENOENT);
	begin();
	check_int(state(), DMASYNC_STATE_INLINE);
	for (int i = 0; i < 100; i++)
		check_int(run(), DMASYNC_COMPLETION_INLINE);
	end();
}

static void daemons_come_and_go(void)
{
	find_path();
	begin();
	check_int(run(), DMASYNC_COMPLETION_INLINE);
	for (uint64_t round = 0; round < rounds(5); round++) {
		start_daemon(SIMULATED_CONFIG);
		until_daemon();
		harness_daemon_kill(&server);
		/* The first may still have gone to the dead one's ring. */
		check(run() & DMASYNC_COMPLETION_INLINE);
		check_int(run(), DMASYNC_COMPLETION_INLINE);
		check_int(state(), DMASYNC_STATE_INLINE);
	}
	end();
}

/* A daemon that stands still does not do what was submitted; nor does it once it is killed. */
static void what_was_in_flight_is_done_here(void)
{
	find_path();
	start_daemon(SIMULATED_CONFIG);
	begin();
	check_int(run(), 0);
	kill(server.pid, SIGSTOP);
	/* All its threads stand still by then. */
	check_int(waitpid(server.pid, NULL, WUNTRACED), server.pid);
	for (int i = 0; i < DEPTH - 1; i++)
		submit();
	harness_daemon_kill(&server);
	submit();
	for (int i = 0; i < DEPTH; i++)
		check_int(take(), DMASYNC_COMPLETION_INLINE | DMASYNC_COMPLETION_REPLAYED);
	check_int(run(), DMASYNC_COMPLETION_INLINE);
	end();
}

/* One completion is never read: the queue stays where it is, though a daemon is connected. */
static void sides_change_at_an_empty_queue_alone(void)
{
	find_path();
	begin();
	submit();
	start_daemon(SIMULATED_CONFIG);
	harness_until(state() == DMASYNC_STATE_CONNECTED, PATIENCE_MS);
	for (int i = 0; i < 50; i++) {
		submit();
		check_int(take(), DMASYNC_COMPLETION_INLINE);
	}
	check_int(take(), DMASYNC_COMPLETION_INLINE);
	check_int(run(), 0);
	end();
	harness_daemon_stop(&server);
}

/* Registered with a daemon, without one, or with one that went: known to every later side. */
static void buffers_are_known_to_both_sides(void)
{
	struct dmasync_buffer_info first = {.size = sizeof first}, second = {.size = sizeof second};
	struct memory with_daemon, other = {0};
	struct holdings before;

	find_path();
	start_daemon(SIMULATED_CONFIG);
	begin();
	harness_daemon_kill(&server);
	check(run() & DMASYNC_COMPLETION_INLINE);
	with_daemon = memory;
	memory_alloc(&other, client.ds, SIZE);
	check_int(dmasync_buffer_get_info(with_daemon.buffer, &first), 0);
	check_int(dmasync_buffer_get_info(other.buffer, &second), 0);
	check(first.handle != second.handle);
	memory = other;
	check_int(run(), DMASYNC_COMPLETION_INLINE);

	start_daemon(SIMULATED_CONFIG);
	until_daemon();
	memory = with_daemon;
	check_int(run(), 0);
	before = holdings_of(&server);
	memory_free(&other);
	/* Three regions of the buffer that went. */
	harness_until(harness_count_shared_maps(server.pid) == before.shared_maps - 3, PATIENCE_MS);
	memory_alloc(&other, client.ds, SIZE);
	memory = other;
	check_int(run(), 0);
	harness_daemon_kill(&server);
	check(run() & DMASYNC_COMPLETION_INLINE);
	memory = with_daemon;
	check_int(run(), DMASYNC_COMPLETION_INLINE);
	memory_free(&other);
	end();
}

/* Such a daemon is as none; the next one is tried again. */
static void a_daemon_that_cannot_take_over_is_left_alone(void)
{
	find_path();
	begin();
	start_daemon("");
	for (int64_t until = harness_now_ms() + 300; harness_now_ms() < until;)
		check_int(run(), DMASYNC_COMPLETION_INLINE);
	check_int(state(), DMASYNC_STATE_INLINE);
	harness_daemon_stop(&server);
	start_daemon(SIMULATED_CONFIG);
	until_daemon();
	end();
	harness_daemon_stop(&server);
}

/* Nobody calls into the library but when the descriptor is readable. */
static void the_descriptor_is_good_on_either_side(void)
{
	struct pollfd p = {.events = POLLIN};
	struct dmasync_completion done;
	bool by_daemon = false;

	find_path();
	begin();
	p.fd = dmasync_queue_fd(client.queue);
	check(p.fd >= 0);
	for (uint64_t round = 0; round < rounds(6); round++) {
		if (round % 2)
			start_daemon(SIMULATED_CONFIG);
		else if (round > 0)
			harness_daemon_kill(&server);
		do {
			int n = 0;

			submit();
			submit();
			while (completed < submitted) {
				check_int(poll(&p, 1, PATIENCE_MS), 1);
				while (dmasync_peek(client.queue, &done) == 1) {
					check_int(done.user_data, completed++);
					check_int(done.status, 0);
					by_daemon = !(done.flags & DMASYNC_COMPLETION_INLINE);
					n++;
				}
			}
			check_int(n, 2);
		} while (by_daemon != (round % 2 == 1));
	}
	check_int(dmasync_queue_fd(client.queue), p.fd);
	end();
	harness_daemon_stop(&server);
}

/* A thread with a queue and buffers of its own on the connection of all. */
static void *use_connection(void *argument)
{
	const _Atomic bool *stop = argument;
	struct client own = {.ds = client.ds};
	struct dmasync_queue_params params;
	uint8_t value = 0;

	dmasync_queue_params_init(&params);
	params.depth = DEPTH;
	check_int(dmasync_queue_create(own.ds, &params, &own.queue), 0);
	while (!atomic_load(stop)) {
		struct range all = {DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, SIZE, 0, 0};
		struct dmasync_completion done;
		struct memory mine;

		memory_alloc(&mine, own.ds, SIZE);
		for (uint64_t i = 0; i < 20; i++) {
			memset(mine.cpu, ++value, SIZE);
			client_submit(&own, mine.buffer, &all, 1, i);
			check_int(dmasync_wait(own.queue, &done, PATIENCE_NS), 0);
			check_int(done.status, 0);
			check_int(done.user_data, i);
			check_int(memcmp(mine.cpu, mine.device, SIZE), 0);
		}
		memory_free(&mine);
	}
	dmasync_queue_destroy(own.queue);
	return NULL;
}

static void threads_share_a_connection(void)
{
	enum { THREADS = 4 };
	pthread_t threads[THREADS];
	_Atomic bool stop = false;

	find_path();
	begin();
	for (int i = 0; i < THREADS; i++)
		check_int(pthread_create(&threads[i], NULL, use_connection, &stop), 0);
	for (uint64_t round = 0; round < rounds(6); round++) {
		start_daemon(SIMULATED_CONFIG);
		until_daemon();
		harness_daemon_kill(&server);
		check(run() & DMASYNC_COMPLETION_INLINE);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < THREADS; i++)
		check_int(pthread_join(threads[i], NULL), 0);
	end();
}

static void wrong_flags_are_refused(void)
{
	char text[512] = "";

	find_path();
	check_int(try_connect(DMASYNC_INLINE_FALLBACK | DMASYNC_INLINE, text, sizeof text),
		  -EINVAL);
	check(strstr(text, "excludes") != NULL);
	check_int(try_connect(DMASYNC_INLINE_FALLBACK | DMASYNC_NO_RECONNECT, text, sizeof text),
		  -EINVAL);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(no_daemon_is_no_error),
	HARNESS_CASE(daemons_come_and_go),
	HARNESS_CASE(what_was_in_flight_is_done_here),
	HARNESS_CASE(sides_change_at_an_empty_queue_alone),
	HARNESS_CASE(buffers_are_known_to_both_sides),
	HARNESS_CASE(a_daemon_that_cannot_take_over_is_left_alone),
	HARNESS_CASE(the_descriptor_is_good_on_either_side),
	HARNESS_CASE(threads_share_a_connection),
	HARNESS_CASE(wrong_flags_are_refused),
};

HARNESS_MAIN(cases)
