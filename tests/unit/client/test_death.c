/* SPDX-License-Identifier: MIT */
/*
 * The daemon's death and fork(): a sleeper wakes, what had completed is handed out, nobody gets a
 * SIGPIPE, a child gets -ECHILD.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#include "client/internal.h"
#include "tests/unit/client/bench.h"

static void *die_when_it_sleeps(void *argument)
{
	struct bench *b = argument;

	/* The client announces its sleep just before it sleeps. */
	while (!dmasync_ring_is_sleeping(&b->fq->ring.header->client_sleeping))
		sched_yield();
	fake_die(b->fake);
	return NULL;
}

static void a_sleeper_wakes(void **state)
{
	struct bench b = bench_start(8, 8, 4096, 10);
	struct dmasync_completion c;
	struct dmasync_batch *batch;
	pthread_t thread;

	(void)state;
	bench_submit(&b, 1);
	assert_int_equal(pthread_create(&thread, NULL, die_when_it_sleeps, &b), 0);
	assert_int_equal(dmasync_wait(b.queue, &c, -1), -ECONNRESET);
	pthread_join(thread, NULL);
	assert_int_equal(dmasync_wait(b.queue, &c, -1), -ECONNRESET);
	assert_int_equal(dmasync_peek(b.queue, &c), -ECONNRESET);
	assert_int_equal(dmasync_batch_begin(b.queue, &batch), -ECONNRESET);
	bench_stop(&b);
}

static void sync_ends_as_well(void **state)
{
	struct bench b = bench_start(8, 8, 4096, 0);
	pthread_t thread;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, die_when_it_sleeps, &b), 0);
	assert_int_equal(
		dmasync_sync(b.queue, b.buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, 1),
		-ECONNRESET);
	pthread_join(thread, NULL);
	bench_stop(&b);
}

/* What was published before the death is handed out, then the error comes. */
static void the_last_completions(void **state)
{
	(void)state;
	for (int with_fd = 0; with_fd < 2; with_fd++) {
		struct bench b = bench_start(8, 8, 4096, 0);
		int fd = with_fd ? dmasync_queue_fd(b.queue) : -1;
		struct pollfd p = {.fd = fd, .events = POLLIN};
		struct dmasync_completion c;

		for (uint64_t i = 0; i < 4; i++)
			bench_submit(&b, i);
		fake_serve(b.fq, 3);
		fake_die(b.fake);
		assert_int_equal(dmasync_wait(b.queue, &c, -1), 0);
		assert_int_equal(dmasync_peek(b.queue, &c), 1);
		assert_true(c.user_data == 1);
		if (with_fd)
			assert_int_equal(poll(&p, 1, 0), 1);
		assert_int_equal(dmasync_peek(b.queue, &c), 1);
		assert_true(c.user_data == 2);
		assert_int_equal(dmasync_peek(b.queue, &c), -ECONNRESET);
		/* Readable for ever now: whoever comes is told. */
		if (with_fd)
			assert_int_equal(poll(&p, 1, 0), 1);
		bench_stop(&b);
	}
}

/* Who never sleeps must hear of it too, though nothing wakes him. */
static void a_peeker_is_told(void **state)
{
	(void)state;
	for (int waits = 0; waits < 2; waits++) {
		struct bench b = bench_start(8, 8, 4096, 0);
		struct dmasync_completion c;
		int r;

		bench_submit(&b, 1);
		assert_int_equal(dmasync_peek(b.queue, &c), 0);
		fake_die(b.fake);
		do {
			r = waits ? dmasync_wait(b.queue, &c, 0) : dmasync_peek(b.queue, &c);
		} while (r == (waits ? -ETIMEDOUT : 0));
		assert_int_equal(r, -ECONNRESET);
		bench_stop(&b);
	}
}

/* ---- SIGPIPE ---- */

static volatile sig_atomic_t got_sigpipe;

static void on_sigpipe(int signal)
{
	(void)signal;
	got_sigpipe++;
}

/* The doorbell is rung for a worker that is dead, by either way of writing. */
static void no_sigpipe(void **state)
{
	struct sigaction action = {.sa_handler = on_sigpipe}, before;

	(void)state;
	sigaction(SIGPIPE, &action, &before);
	for (int plain = 0; plain < 2; plain++) {
		struct bench b = bench_start(8, 8, 4096, 0);
		struct dmasync_completion c;
		sigset_t mask, pending;

		b.queue->plain_doorbell = plain;
		fake_say_asleep(b.fq, true);
		fake_die(b.fake);
		bench_submit(&b, 1);
		assert_int_equal(dmasync_wait(b.queue, &c, -1), -ECONNRESET);
		assert_int_equal(got_sigpipe, 0);
		pthread_sigmask(SIG_SETMASK, NULL, &mask);
		assert_int_equal(sigismember(&mask, SIGPIPE), 0);
		sigpending(&pending);
		assert_int_equal(sigismember(&pending, SIGPIPE), 0);
		bench_stop(&b);
	}
	sigaction(SIGPIPE, &before, NULL);
}

/* An application's own blocked and pending SIGPIPE stays what it was. */
static void a_pending_sigpipe_is_kept(void **state)
{
	sigset_t set, before, pending;
	struct timespec now = {0};

	(void)state;
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &set, &before);
	for (int own = 0; own < 2; own++) {
		struct bench b = bench_start(8, 8, 4096, 0);

		if (own)
			pthread_kill(pthread_self(), SIGPIPE);
		b.queue->plain_doorbell = true;
		fake_say_asleep(b.fq, true);
		fake_die(b.fake);
		bench_submit(&b, 1);
		sigpending(&pending);
		assert_int_equal(sigismember(&pending, SIGPIPE), own);
		bench_stop(&b);
	}
	assert_int_equal(sigtimedwait(&set, NULL, &now), SIGPIPE);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- destruction ---- */

static void *serve_slowly(void *argument)
{
	struct fake_queue *fq = argument;
	struct timespec pause = {.tv_nsec = 5000000};

	for (int i = 0; i < 4; i++) {
		nanosleep(&pause, NULL);
		fake_serve(fq, 1);
	}
	return NULL;
}

/* A buffer is unregistered only when the batches that may name it are done. */
static void buffers_wait_for_what_is_in_flight(void **state)
{
	struct bench b = bench_start(8, 8, 4096, 0);
	struct dmasync_buffer *buffer = fake_buffer(b.ds, 4096);
	struct dmasync_queue *idle = fake_queue_create(b.ds, 2, 2, 0);
	struct dmasync_completion c;
	pthread_t thread;

	(void)state;
	for (uint64_t i = 0; i < 4; i++)
		bench_submit(&b, i);
	assert_int_equal(pthread_create(&thread, NULL, serve_slowly, b.fq), 0);
	dmasync_buffer_destroy(buffer);
	for (uint64_t i = 0; i < 4; i++) {
		assert_int_equal(dmasync_peek(b.queue, &c), 1);
		assert_true(c.user_data == i);
	}
	pthread_join(thread, NULL);
	assert_int_equal(fake_requests(b.fake, DMASYNC_OP_BUFFER_REMOVE), 1);
	dmasync_queue_destroy(idle);
	bench_stop(&b);
}

static void queues_wait_for_what_is_in_flight(void **state)
{
	struct bench b = bench_start(8, 8, 4096, 0);
	pthread_t thread;

	(void)state;
	for (uint64_t i = 0; i < 4; i++)
		bench_submit(&b, i);
	assert_int_equal(pthread_create(&thread, NULL, serve_slowly, b.fq), 0);
	dmasync_queue_destroy(b.queue);
	b.queue = NULL;
	pthread_join(thread, NULL);
	assert_int_equal(b.fq->completed, DMASYNC_RING_START + 4);
	assert_int_equal(b.fake->last_queue_remove.queue, 1);
	bench_stop(&b);
}

/* ---- fork ---- */

/* Every call in the child; the number of the one that was wrong, or 0. */
static int child_calls(struct bench *b, struct dmasync_batch *batch)
{
	struct dmasync_connect_params connect_params;
	struct dmasync_buffer_params buffer_params;
	struct dmasync_queue_params queue_params;
	struct dmasync_info info = {.size = sizeof info};
	struct dmasync_buffer_info buffer_info = {.size = sizeof buffer_info};
	struct dmasync_buffer *buffer = NULL;
	struct dmasync_queue *queue = NULL;
	struct dmasync_batch *other = NULL;
	struct dmasync_completion c;
	struct dmasync *ds = NULL;
	char text[128];

	dmasync_buffer_params_init(&buffer_params);
	dmasync_queue_params_init(&queue_params);
	if (dmasync_get_info(b->ds, &info) != -ECHILD)
		return 1;
	if (dmasync_buffer_import(b->ds, 0, 0, &buffer) != -ECHILD)
		return 2;
	if (dmasync_buffer_alloc(b->ds, &buffer_params, &buffer) != -ECHILD)
		return 3;
	if (dmasync_buffer_get_info(b->buffer, &buffer_info) != -ECHILD)
		return 4;
	if (dmasync_buffer_map(b->buffer) || dmasync_buffer_map_device(b->buffer))
		return 5;
	if (dmasync_queue_create(b->ds, &queue_params, &queue) != -ECHILD)
		return 6;
	if (dmasync_queue_fd(b->queue) != -ECHILD)
		return 7;
	if (dmasync_batch_begin(b->queue, &other) != -ECHILD)
		return 8;
	if (dmasync_batch_add(batch, b->buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, 1) !=
		    -ECHILD ||
	    dmasync_batch_add_rows(batch, b->buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, 1, 2,
				   64) != -ECHILD)
		return 9;
	if (dmasync_batch_submit(batch, 0) != -ECHILD)
		return 10;
	if (dmasync_peek(b->queue, &c) != -ECHILD || dmasync_wait(b->queue, &c, -1) != -ECHILD)
		return 11;
	if (dmasync_sync(b->queue, b->buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, 1) !=
	    -ECHILD)
		return 12;
	dmasync_error_text(b->ds, text, sizeof text);
	if (!strstr(text, "fork"))
		return 13;
	dmasync_batch_abort(batch);
	dmasync_buffer_destroy(b->buffer);
	dmasync_queue_destroy(b->queue);
	dmasync_disconnect(b->ds);
	/* And a connection of its own is a matter of connecting. */
	dmasync_connect_params_init(&connect_params);
	connect_params.socket = b->fake->path;
	connect_params.timeout_ms = 1;
	if (dmasync_connect_with(&connect_params, &ds) != -ETIMEDOUT)
		return 14;
	return 0;
}

static void a_child_gets_echild(void **state)
{
	struct bench b = bench_start(8, 8, 4096, 0);
	struct dmasync_batch *batch;
	struct dmasync_completion c;
	int status = 0;
	pid_t child;

	(void)state;
	assert_int_equal(dmasync_batch_begin(b.queue, &batch), 0);
	assert_int_equal(
		dmasync_batch_add(batch, b.buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, 64), 0);
	child = fork();
	if (child == 0)
		_exit(child_calls(&b, batch));
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	/* The parent's objects are none the worse for it. */
	assert_int_equal(fake_requests(b.fake, DMASYNC_OP_QUEUE_REMOVE), 0);
	assert_int_equal(dmasync_batch_submit(batch, 9), 0);
	fake_serve(b.fq, 1);
	assert_int_equal(dmasync_wait(b.queue, &c, -1), 0);
	assert_true(c.user_data == 9);
	bench_stop(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		fake_test(a_sleeper_wakes),
		fake_test(sync_ends_as_well),
		fake_test(the_last_completions),
		fake_test(a_peeker_is_told),
		fake_test(no_sigpipe),
		fake_test(a_pending_sigpipe_is_kept),
		fake_test(buffers_wait_for_what_is_in_flight),
		fake_test(queues_wait_for_what_is_in_flight),
		fake_test(a_child_gets_echild),
	};

	return cmocka_run_group_tests_name("client death", tests, NULL, NULL);
}
