/* SPDX-License-Identifier: MIT */
/*
 * Requests on a live connection: refusals, nonsense, late answers and many threads at once.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/internal.h"
#include "tests/lib/rounds.h"
#include "tests/unit/client/fake.h"

static int sealed_memfd(void)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, 8192), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	return fd;
}

static struct dmasync *connect_shortly(struct fake *fake, uint32_t timeout_ms)
{
	struct dmasync_connect_params params;
	struct dmasync *ds = NULL;

	dmasync_connect_params_init(&params);
	params.socket = fake->path;
	params.timeout_ms = timeout_ms;
	assert_int_equal(dmasync_connect_with(&params, &ds), 0);
	return ds;
}

static void refusal_keeps_the_connection(void **state)
{
	struct fake *fake = fake_start();
	struct dmasync *ds = fake_connect(fake);
	struct dmasync_buffer *buffer = NULL;
	struct dmasync_queue *queue = NULL;
	struct dmasync_queue_params params;
	char text[256];
	int fd = sealed_memfd();

	(void)state;
	assert_int_equal(dmasync_error_text(ds, text, sizeof text), 0);
	assert_string_equal(text, "");
	fake_set(fake, DMASYNC_OP_BUFFER_ADD, FAKE_REFUSE);
	assert_int_equal(dmasync_buffer_import(ds, fd, 0, &buffer), -ENOSPC);
	assert_null(buffer);
	dmasync_error_text(ds, text, sizeof text);
	assert_string_equal(text, "too many of these: at most 16 (max_buffers)");
	fake_set(fake, DMASYNC_OP_QUEUE_CREATE, FAKE_REFUSE);
	dmasync_queue_params_init(&params);
	assert_int_equal(dmasync_queue_create(ds, &params, &queue), -ENOSPC);
	assert_null(queue);
	fake_set(fake, DMASYNC_OP_BUFFER_ADD, FAKE_GOOD);
	assert_int_equal(dmasync_buffer_import(ds, fd, 0, &buffer), 0);
	dmasync_buffer_destroy(buffer);
	assert_int_equal(fake_requests(fake, DMASYNC_OP_BUFFER_REMOVE), 1);
	dmasync_disconnect(ds);
	close(fd);
	fake_stop(fake);
}

/* Nonsense ends the connection; what comes after says that it is gone; no fd is left. */
static void nonsense_ends_the_connection(void **state)
{
	static const enum fake_mode adds[] = {
		FAKE_SHORT,	   FAKE_LONG,	     FAKE_HEADER_ONLY,	 FAKE_LYING_SIZE,
		FAKE_WRONG_OPCODE, FAKE_WRONG_FLAGS, FAKE_FUTURE_COOKIE, FAKE_EXTRA_FD,
		FAKE_MANY_FDS,	   FAKE_BAD_ERRNO,   FAKE_BAD_BODY,	 FAKE_TOO_LARGE,
	};
	static const enum fake_mode creates[] = {
		FAKE_SHORT,    FAKE_EXTRA_FD,	   FAKE_NO_FDS,	    FAKE_MANY_FDS, FAKE_BAD_BODY,
		FAKE_BAD_RING, FAKE_UNSEALED_RING, FAKE_SMALL_RING, FAKE_NO_PIPE,
	};
	int fd = sealed_memfd();

	(void)state;
	for (size_t i = 0; i < sizeof adds / sizeof *adds; i++) {
		struct fake *fake = fake_start();
		struct dmasync *ds = fake_connect(fake);
		struct dmasync_buffer *buffer = NULL;
		unsigned int fds = open_fds();

		fake_set(fake, DMASYNC_OP_BUFFER_ADD, adds[i]);
		assert_int_equal(dmasync_buffer_import(ds, fd, 0, &buffer), -EPROTO);
		fake_set(fake, DMASYNC_OP_BUFFER_ADD, FAKE_GOOD);
		assert_int_equal(dmasync_buffer_import(ds, fd, 0, &buffer), -ECONNRESET);
		assert_null(buffer);
		fake_die(fake);
		/* The fake has closed its end of the connection. */
		assert_int_equal(open_fds(), fds - 1);
		dmasync_disconnect(ds);
		fake_stop(fake);
	}
	for (size_t i = 0; i < sizeof creates / sizeof *creates; i++) {
		struct fake *fake = fake_start();
		struct dmasync *ds = fake_connect(fake);
		struct dmasync_queue *queue = NULL;
		struct dmasync_queue_params params;
		unsigned int fds = open_fds();

		dmasync_queue_params_init(&params);
		fake_set(fake, DMASYNC_OP_QUEUE_CREATE, creates[i]);
		assert_int_equal(dmasync_queue_create(ds, &params, &queue), -EPROTO);
		assert_int_equal(dmasync_queue_create(ds, &params, &queue), -ECONNRESET);
		assert_null(queue);
		fake_die(fake);
		assert_int_equal(open_fds(), fds - 1);
		dmasync_disconnect(ds);
		fake_stop(fake);
	}
	close(fd);
}

static void pipes_never_block(void **state)
{
	struct fake *fake = fake_start();
	struct dmasync *ds = fake_connect(fake);
	struct dmasync_queue *queue;
	struct dmasync_buffer *buffer;

	(void)state;
	fake_set(fake, DMASYNC_OP_QUEUE_CREATE, FAKE_BLOCKING_PIPES);
	queue = fake_queue_create(ds, 64, 64, 0);
	buffer = fake_buffer(ds, 4096);
	/* A worker that never empties its pipe: ring it more often than the pipe has room. */
	fake_say_asleep(fake_queue(fake), true);
	assert_int_equal(fcntl(fake_queue(fake)->doorbell_fd, F_SETPIPE_SZ, 4096), 4096);
	for (int i = 0; i < 5000; i++) {
		struct dmasync_batch *batch;
		struct dmasync_completion completion;

		assert_int_equal(dmasync_batch_begin(queue, &batch), 0);
		dmasync_batch_add(batch, buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, 64);
		assert_int_equal(dmasync_batch_submit(batch, 7), 0);
		fake_serve(fake_queue(fake), 1);
		assert_int_equal(dmasync_wait(queue, &completion, 0), 0);
	}
	dmasync_buffer_destroy(buffer);
	dmasync_queue_destroy(queue);
	dmasync_disconnect(ds);
	fake_stop(fake);
}

static void an_event_is_passed_over(void **state)
{
	struct fake *fake = fake_start();
	struct dmasync *ds = fake_connect(fake);
	struct dmasync_buffer *buffer;

	(void)state;
	fake_set(fake, DMASYNC_OP_BUFFER_ADD, FAKE_EVENT_FIRST);
	buffer = fake_buffer(ds, 4096);
	dmasync_buffer_destroy(buffer);
	dmasync_disconnect(ds);
	fake_stop(fake);
}

static void wait_for_requests(struct fake *fake, enum dmasync_opcode opcode, uint32_t count)
{
	while (fake_requests(fake, opcode) < count)
		sched_yield();
}

/* An answer that comes after its caller gave up is told by its cookie, its fds closed, undone. */
#define PATIENT_MS 10000u

static void late_answers(void **state)
{
	struct fake *fake = fake_start();
	struct dmasync *ds = connect_shortly(fake, PATIENT_MS);
	struct dmasync_queue_params params;
	struct dmasync_queue *queue = NULL;
	struct dmasync_buffer *buffer = NULL;
	int fd = sealed_memfd();
	unsigned int fds;

	(void)state;
	fake_set(fake, DMASYNC_OP_BUFFER_ADD, FAKE_LATE);
	ds->timeout_ms = 100; /* for the answers that come late alone: the machine may be slow */
	assert_int_equal(dmasync_buffer_import(ds, fd, 0, &buffer), -ETIMEDOUT);
	ds->timeout_ms = PATIENT_MS;
	fake_set(fake, DMASYNC_OP_BUFFER_ADD, FAKE_GOOD);
	fake_release(fake);
	assert_int_equal(dmasync_buffer_import(ds, fd, 0, &buffer), 0);
	/* Handle 1 was registered for nobody: it has been removed again. */
	wait_for_requests(fake, DMASYNC_OP_BUFFER_REMOVE, 1);
	pthread_mutex_lock(&fake->lock);
	assert_int_equal(fake->last_remove.handle, 1);
	pthread_mutex_unlock(&fake->lock);

	dmasync_queue_params_init(&params);
	fake_set(fake, DMASYNC_OP_QUEUE_CREATE, FAKE_LATE);
	ds->timeout_ms = 100;
	assert_int_equal(dmasync_queue_create(ds, &params, &queue), -ETIMEDOUT);
	ds->timeout_ms = PATIENT_MS;
	fake_set(fake, DMASYNC_OP_QUEUE_CREATE, FAKE_GOOD);
	fds = open_fds();
	fake_release(fake);
	dmasync_buffer_destroy(buffer);
	wait_for_requests(fake, DMASYNC_OP_QUEUE_REMOVE, 1);
	/* The four that the fake kept are gone, and as many duplicates that came, and the buffer.
	 */
	assert_int_equal(open_fds(), fds - DMASYNC_QUEUE_FDS - 1);
	assert_int_equal(dmasync_queue_create(ds, &params, &queue), 0);
	dmasync_queue_destroy(queue);
	dmasync_disconnect(ds);
	close(fd);
	fake_stop(fake);
}

#define THREADS 4

static void *hammer(void *argument)
{
	struct dmasync *ds = argument;

	for (uint64_t i = rounds(200); i > 0; i--) {
		struct dmasync_buffer *buffer = fake_buffer(ds, 4096);
		struct dmasync_buffer_info info = {.size = sizeof info};
		char text[64];

		assert_int_equal(dmasync_buffer_get_info(buffer, &info), 0);
		assert_int_equal(info.bytes, 4096);
		dmasync_error_text(ds, text, sizeof text);
		dmasync_buffer_destroy(buffer);
	}
	return NULL;
}

static void many_threads(void **state)
{
	struct fake *fake = fake_start();
	struct dmasync *ds = fake_connect(fake);
	pthread_t threads[THREADS];

	(void)state;
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, hammer, ds), 0);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(fake_requests(fake, DMASYNC_OP_BUFFER_ADD), THREADS * rounds(200));
	assert_int_equal(fake_requests(fake, DMASYNC_OP_BUFFER_REMOVE), THREADS * rounds(200));
	dmasync_disconnect(ds);
	fake_stop(fake);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		fake_test(refusal_keeps_the_connection),
		fake_test(nonsense_ends_the_connection),
		fake_test(pipes_never_block),
		fake_test(an_event_is_passed_over),
		fake_test(late_answers),
		fake_test(many_threads),
	};

	return cmocka_run_group_tests_name("client control", tests, NULL, NULL);
}
