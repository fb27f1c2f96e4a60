/* SPDX-License-Identifier: MIT */
/*
 * What must not hold a caller up: a daemon that sends without end, on the socket and into the
 * notification pipe; one that takes its time. And a process that has no room for more fds.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "client/internal.h"
#include "tests/unit/client/bench.h"

#define FLOODERS 2

struct flood {
	struct bench *b;
	_Atomic bool stop;
	pthread_t threads[FLOODERS];
};

static void *flood_socket(void *argument)
{
	/* An event; the library asks for none, and passes over it. */
	struct dmasync_batches_reply event = {
		.header = {sizeof event, DMASYNC_OP_WATCH, DMASYNC_MESSAGE_EVENT, 1},
	};
	struct flood *flood = argument;
	int fd = flood->b->fake->connection_fd;

	while (!atomic_load(&flood->stop))
		send(fd, &event, sizeof event, MSG_NOSIGNAL | MSG_DONTWAIT);
	return NULL;
}

static void *flood_pipe(void *argument)
{
	char bytes[4096] = {0};
	struct flood *flood = argument;
	int fd = flood->b->fq->notification_fd;

	while (!atomic_load(&flood->stop))
		(void)!write(fd, bytes, sizeof bytes);
	return NULL;
}

static void flood_start(struct flood *flood, void *(*function)(void *))
{
	for (int i = 0; i < FLOODERS; i++)
		assert_int_equal(pthread_create(&flood->threads[i], NULL, function, flood), 0);
}

static void flood_stop(struct flood *flood)
{
	atomic_store(&flood->stop, true);
	for (int i = 0; i < FLOODERS; i++)
		pthread_join(flood->threads[i], NULL);
}

/* An answer that never comes, and always something else to read. */
static void a_flood_of_messages(void **state)
{
	struct bench b = bench_start(8, 8, 4096, 0);
	struct flood flood = {.b = &b};
	struct dmasync_buffer_params params;
	struct dmasync_buffer *buffer = NULL;

	(void)state;
	fake_set(b.fake, DMASYNC_OP_BUFFER_ADD, FAKE_SILENT);
	flood_start(&flood, flood_socket);
	b.ds->timeout_ms = 200;
	dmasync_buffer_params_init(&params);
	params.bytes = 4096;
	params.memory = DMASYNC_MEMORY_MEMFD;
	assert_int_equal(dmasync_buffer_alloc(b.ds, &params, &buffer), -ETIMEDOUT);
	assert_null(buffer);
	flood_stop(&flood);
	b.ds->timeout_ms = 10000;
	bench_stop(&b);
}

/* Notifications without a completion: neither wait nor peek go on for ever. */
static void a_flood_of_notifications(void **state)
{
	struct bench b = bench_start(8, 8, 4096, 0);
	struct flood flood = {.b = &b};
	struct dmasync_completion c;

	(void)state;
	assert_true(dmasync_queue_fd(b.queue) >= 0);
	bench_submit(&b, 1);
	flood_start(&flood, flood_pipe);
	assert_int_equal(dmasync_wait(b.queue, &c, 100000000), -ETIMEDOUT);
	for (int i = 0; i < 100; i++)
		assert_int_equal(dmasync_peek(b.queue, &c), 0);
	flood_stop(&flood);
	fake_serve(b.fq, 1);
	assert_int_equal(dmasync_wait(b.queue, &c, 10000000000), 0);
	assert_true(c.user_data == 1);
	bench_stop(&b);
}

/* A daemon that is slow with each buffer holds up no call for all of them. */
static void a_few_buffers_at_a_time(void **state)
{
	struct bench b = {.fake = fake_start()};
	struct dmasync_buffer *others[3];
	struct dmasync_completion c;
	uint32_t before, calls = 0;

	(void)state;
	assert_int_equal(dmasync_connect(b.fake->path, 0, &b.ds), 0);
	b.queue = fake_queue_create(b.ds, 8, 8, 0);
	b.buffer = fake_buffer(b.ds, 4096);
	for (int i = 0; i < 3; i++)
		others[i] = fake_buffer(b.ds, 4096);
	fake_set(b.fake, DMASYNC_OP_BUFFER_ADD, FAKE_SLOW);
	fake_die(b.fake);
	fake_live(b.fake);
	before = fake_requests(b.fake, DMASYNC_OP_BUFFER_ADD);
	/* The newest one first, which then goes before the daemon has taken over. */
	while (fake_requests(b.fake, DMASYNC_OP_BUFFER_ADD) == before)
		assert_int_equal(dmasync_peek(b.queue, &c), 0);
	assert_false(life_is_up(control_life(b.ds)));
	dmasync_buffer_destroy(others[2]);
	while (!life_is_up(control_life(b.ds))) {
		uint32_t requests = fake_requests(b.fake, DMASYNC_OP_BUFFER_ADD);

		assert_int_equal(dmasync_peek(b.queue, &c), 0);
		assert_true(fake_requests(b.fake, DMASYNC_OP_BUFFER_ADD) <= requests + 1);
		calls++;
	}
	assert_true(calls >= 3);
	assert_int_equal(fake_requests(b.fake, DMASYNC_OP_BUFFER_ADD), before + 4);
	assert_int_equal(fake_requests(b.fake, DMASYNC_OP_BUFFER_REMOVE), 1);
	assert_int_equal(b.fake->last_remove.handle, 4);
	while (!queue_current(b.queue))
		assert_int_equal(dmasync_peek(b.queue, &c), 0);
	b.fq = fake_queue(b.fake);
	bench_submit(&b, 1);
	fake_serve(b.fq, 1);
	assert_int_equal(dmasync_wait(b.queue, &c, 10000000000), 0);
	for (int i = 0; i < 2; i++)
		dmasync_buffer_destroy(others[i]);
	bench_stop(&b);
}

/* ---- no room for fds ---- */

static void *create_queue(void *argument)
{
	struct bench *b = argument;
	struct dmasync_queue_params params;
	struct dmasync_queue *queue = NULL;

	dmasync_queue_params_init(&params);
	return (void *)(intptr_t)dmasync_queue_create(b->ds, &params, &queue);
}

/* From now on this process gets none of the fds that the fake holds ready to send. */
static void leave_no_room(struct fake *fake, struct rlimit *before)
{
	struct rlimit limit;
	int lowest = fcntl(fake->stop_fd, F_DUPFD_CLOEXEC, 0);

	assert_true(lowest >= 0);
	close(lowest);
	pthread_mutex_lock(&fake->lock);
	for (size_t i = 0; i < fake->late_fd_count; i++)
		lowest = fake->late_fds[i] < lowest ? fake->late_fds[i] : lowest;
	pthread_mutex_unlock(&fake->lock);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, before), 0);
	limit = *before;
	limit.rlim_cur = (rlim_t)lowest;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static bool holds_an_answer(struct fake *fake)
{
	bool holds;

	pthread_mutex_lock(&fake->lock);
	holds = fake->late_fd_count == DMASYNC_QUEUE_FDS;
	pthread_mutex_unlock(&fake->lock);
	return holds;
}

/*
 * The kernel drops the fds of an answer. That is no nonsense of the daemon's: the caller is told,
 * what was made for nobody is given back, and all else goes on.
 */
static void no_room_for_fds(void **state)
{
	struct bench b = bench_start(8, 8, 4096, 0);
	struct dmasync_completion c;
	struct dmasync_queue *other;
	struct rlimit before;
	pthread_t thread;
	char text[512];
	void *result;

	(void)state;
	bench_submit(&b, 1);
	fake_set(b.fake, DMASYNC_OP_QUEUE_CREATE, FAKE_LATE);
	assert_int_equal(pthread_create(&thread, NULL, create_queue, &b), 0);
	while (!holds_an_answer(b.fake))
		sched_yield();
	leave_no_room(b.fake, &before);
	fake_release(b.fake);
	pthread_join(thread, &result);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal((int)(intptr_t)result, -EMFILE);
	dmasync_error_text(b.ds, text, sizeof text);
	assert_non_null(strstr(text, "RLIMIT_NOFILE"));

	fake_set(b.fake, DMASYNC_OP_QUEUE_CREATE, FAKE_GOOD);
	other = fake_queue_create(b.ds, 8, 8, 0);
	pthread_mutex_lock(&b.fake->lock);
	assert_int_equal(b.fake->last_queue_remove.queue, 2);
	pthread_mutex_unlock(&b.fake->lock);
	fake_serve(b.fq, 1);
	assert_int_equal(dmasync_peek(b.queue, &c), 1);
	dmasync_queue_destroy(other);
	bench_stop(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		fake_test(a_flood_of_messages),
		fake_test(a_flood_of_notifications),
		fake_test(a_few_buffers_at_a_time),
		fake_test(no_room_for_fds),
	};

	return cmocka_run_group_tests_name("client-patience", tests, NULL, NULL);
}
