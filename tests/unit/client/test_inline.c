/* SPDX-License-Identifier: MIT */
/*
 * Inline mode with recording line operations: what a batch does and in which order, a CPU that
 * changes under it, and that the rest of the library finds its completions. One thread.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/inline.h"
#include "client/internal.h"
#include "tests/unit/client/fake.h"

#define LINE 64u
#define BYTES (1u << 20)
#define DEPTH 4u
#define UNITS 64u

/* ---- recording ---- */

enum event_type { OPEN, CLEAN, FLUSH, COMPLETE };
struct event {
	enum event_type type;
	uint64_t offset; /* of the first line in the buffer */
	uint64_t lines;
};
static struct event trace[8192];
static size_t events;
static struct dmasync_queue *watched; /* nothing of it is published before the barrier is over */
static uintptr_t base;

static void record(enum event_type type, uintptr_t start, uintptr_t end)
{
	assert_true(events < sizeof trace / sizeof *trace);
	trace[events++] = (struct event){type, start - base, (end - start) / LINE};
	if (watched)
		assert_false(dmasync_ring_completion_reached(&watched->ring, watched->read));
}

static void record_open(void)
{
	record(OPEN, base, base);
}

static void record_clean(uintptr_t start, uintptr_t end, size_t line)
{
	assert_int_equal(line, LINE);
	record(CLEAN, start, end);
}

static void record_flush(uintptr_t start, uintptr_t end, size_t line)
{
	assert_int_equal(line, LINE);
	record(FLUSH, start, end);
}

static void record_complete(bool flushed)
{
	record(COMPLETE, base, base + (flushed ? LINE : 0));
}

/* The CPU changes with each barrier, so many times; nobody else's looks at it count. */
static unsigned int moves;

int sched_getcpu(void)
{
	unsigned int barriers = 0;

	for (size_t i = 0; i < events; i++)
		barriers += trace[i].type == COMPLETE;
	return (int)(barriers < moves ? barriers : moves);
}

static bool is(size_t at, enum event_type type, uint64_t offset, uint64_t lines)
{
	return at < events && trace[at].type == type && trace[at].offset == offset &&
	       trace[at].lines == lines;
}

/* ---- a connection, a queue, a buffer ---- */

static struct dmasync *ds;
static struct dmasync_queue *queue;
static struct dmasync_buffer *buffer;

static int setup(void **state)
{
	struct dmasync_buffer_params buffer_params;
	struct dmasync_queue_params queue_params;

	if (fds_remember(state) < 0)
		return -1;
	assert_int_equal(dmasync_connect(NULL, DMASYNC_INLINE, &ds), 0);
	ds->in_process->cache = (struct cache){
		.ops = {.name = "recording",
			.open = record_open,
			.clean = record_clean,
			.flush = record_flush,
			.complete = record_complete},
		.line = LINE,
		.granule = LINE,
	};
	watched = NULL;
	dmasync_buffer_params_init(&buffer_params);
	buffer_params.bytes = BYTES;
	buffer_params.memory = DMASYNC_MEMORY_MEMFD;
	buffer_params.flags = DMASYNC_IMPORT_NO_CLEAN;
	assert_int_equal(dmasync_buffer_alloc(ds, &buffer_params, &buffer), 0);
	assert_int_equal(buffer->backend, DMASYNC_BACKEND_DIRECT);
	base = buffer_table_get(&ds->in_process->buffers, buffer->handle)->cache.base;
	dmasync_queue_params_init(&queue_params);
	queue_params.depth = DEPTH;
	queue_params.units = UNITS;
	assert_int_equal(dmasync_queue_create(ds, &queue_params, &queue), 0);
	events = 0;
	moves = 0;
	watched = queue;
	return 0;
}

static int teardown(void **state)
{
	watched = NULL;
	dmasync_buffer_destroy(buffer);
	dmasync_queue_destroy(queue);
	dmasync_disconnect(ds);
	return fds_compare(state);
}

static struct dmasync_batch *begin(void)
{
	struct dmasync_batch *batch;

	assert_int_equal(dmasync_batch_begin(queue, &batch), 0);
	return batch;
}

static void add(struct dmasync_batch *batch, enum dmasync_sync sync, uint64_t offset,
		uint64_t length)
{
	enum dmasync_direction direction =
		sync == DMASYNC_FOR_CPU ? DMASYNC_FROM_DEVICE : DMASYNC_TO_DEVICE;

	assert_int_equal(dmasync_batch_add(batch, buffer, sync, direction, offset, length), 0);
}

static struct dmasync_completion take(void)
{
	struct dmasync_completion completion;

	assert_int_equal(dmasync_peek(queue, &completion), 1);
	return completion;
}

/* ---- tests ---- */

static void fence_operations_one_barrier_publish(void **state)
{
	struct dmasync_completion done;
	struct dmasync_batch *batch = begin();

	(void)state;
	add(batch, DMASYNC_FOR_DEVICE, 0, 4096);
	add(batch, DMASYNC_FOR_DEVICE, 4096, 64); /* merged with the one before */
	add(batch, DMASYNC_FOR_CPU, 65536, 100);
	add(batch, DMASYNC_FOR_DEVICE, 8192, 0); /* elided */
	assert_int_equal(dmasync_batch_add_rows(batch, buffer, DMASYNC_FOR_DEVICE,
						DMASYNC_FROM_DEVICE, 16384, 128, 2, 1024),
			 0);
	assert_int_equal(events, 0);
	assert_int_equal(dmasync_batch_submit(batch, 7), 0);
	assert_int_equal(events, 6);
	assert_true(is(0, OPEN, 0, 0));
	assert_true(is(1, CLEAN, 0, 65));
	assert_true(is(2, FLUSH, 65536, 2));
	assert_true(is(3, CLEAN, 16384, 2));
	assert_true(is(4, CLEAN, 16384 + 1024, 2));
	assert_true(is(5, COMPLETE, 0, 1)); /* told of the flush */

	done = take();
	assert_int_equal(done.status, 0);
	assert_int_equal(done.user_data, 7);
	assert_int_equal(done.flags, DMASYNC_COMPLETION_INLINE);
	assert_int_equal(done.entries, 5);
	assert_int_equal(done.elided, 1);
	assert_int_equal(done.lines, 65 + 2 + 4);
	assert_int_equal(done.bytes, done.lines * LINE);
	assert_int_equal(done.bad_entry, DMASYNC_NO_ENTRY);
	assert_int_equal(done.batch_id, 0);
	assert_int_equal(dmasync_peek(queue, &done), 0);
	assert_int_equal(dmasync_wait(queue, &done, -1), -ENODATA);
}

static void a_batch_of_one_entry_travels_alone(void **state)
{
	struct dmasync_batch *batch = begin();

	(void)state;
	add(batch, DMASYNC_FOR_DEVICE, 63, 2);
	assert_int_equal(dmasync_batch_submit(batch, 1), 0);
	assert_int_equal(events, 3);
	assert_true(is(0, OPEN, 0, 0));
	assert_true(is(1, CLEAN, 0, 2));
	assert_true(is(2, COMPLETE, 0, 0));
	assert_int_equal(take().lines, 2);
}

/* Nothing to do keeps its fence and its barrier. */
static void elided_work_has_its_barrier(void **state)
{
	struct dmasync_batch *batch = begin();
	struct dmasync_completion done;

	(void)state;
	assert_int_equal(
		dmasync_batch_add(batch, buffer, DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE, 0, 4096), 0);
	assert_int_equal(dmasync_batch_submit(batch, 1), 0);
	assert_int_equal(events, 2);
	assert_true(is(0, OPEN, 0, 0));
	assert_true(is(1, COMPLETE, 0, 0));
	done = take();
	assert_int_equal(done.elided, 1);
	assert_int_equal(done.lines, 0);
}

/* A bad entry, as no call of the library would write it: no line is touched. */
static void a_bad_batch_touches_nothing(void **state)
{
	struct dmasync_batch *batch = begin();
	struct dmasync_completion done;
	struct dmasync_unit bad = {
		.word = dmasync_unit_word(buffer->handle, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0),
		.length = 1,
		.offset = BYTES,
	};

	(void)state;
	add(batch, DMASYNC_FOR_DEVICE, 0, 64);
	add(batch, DMASYNC_FOR_DEVICE, 4096, 64);
	dmasync_ring_write_unit(&queue->ring, queue->unit_head + 1, &bad);
	assert_int_equal(dmasync_batch_submit(batch, 5), 0);
	assert_int_equal(events, 0);
	done = take();
	assert_int_equal(done.status, -ERANGE);
	assert_int_equal(done.reason, DMASYNC_REASON_OUT_OF_RANGE);
	assert_int_equal(done.bad_entry, 1);
	assert_int_equal(done.flags, DMASYNC_COMPLETION_INLINE);
	assert_int_equal(done.lines, 0);
	/* The queue is none the worse. */
	batch = begin();
	add(batch, DMASYNC_FOR_DEVICE, 0, 64);
	assert_int_equal(dmasync_batch_submit(batch, 6), 0);
	assert_int_equal(take().status, 0);
}

/*
 * Another CPU after the first barrier, and after that of the first piece's first try. The batch is
 * issued again in pieces, each with its own fence and barrier; its lines are counted once.
 */
static void a_changed_cpu_means_again_in_pieces(void **state)
{
	enum { LINES = 2500, PIECE = 1023 }; /* one of 1024 is for beginning the entry */
	struct dmasync_batch *batch = begin();
	struct dmasync_completion done;

	(void)state;
	moves = 2;
	add(batch, DMASYNC_FOR_DEVICE, 0, LINES * LINE);
	assert_int_equal(dmasync_batch_submit(batch, 1), 0);
	assert_true(is(0, OPEN, 0, 0));
	assert_true(is(1, CLEAN, 0, LINES));
	assert_true(is(2, COMPLETE, 0, 0));
	for (size_t try = 0; try < 2; try++) {
		assert_true(is(3 + 3 * try, OPEN, 0, 0));
		assert_true(is(4 + 3 * try, CLEAN, 0, PIECE));
		assert_true(is(5 + 3 * try, COMPLETE, 0, 0));
	}
	assert_true(
		is(10, CLEAN, PIECE * LINE, 1024)); /* the rest of an entry costs no beginning */
	assert_true(is(13, CLEAN, (PIECE + 1024) * LINE, LINES - PIECE - 1024));
	assert_true(is(14, COMPLETE, 0, 0));
	assert_int_equal(events, 15);
	done = take();
	assert_int_equal(done.status, 0);
	assert_int_equal(done.lines, LINES);
	assert_int_equal(done.flags, DMASYNC_COMPLETION_INLINE | DMASYNC_COMPLETION_REISSUED);
}

/* Another CPU at every look: it ends all the same, after a bounded number of tries. */
static void a_cpu_that_always_changes_ends_too(void **state)
{
	struct dmasync_batch *batch = begin();
	struct dmasync_completion done;

	(void)state;
	moves = UINT32_MAX;
	add(batch, DMASYNC_FOR_DEVICE, 0, 10 * LINE);
	assert_int_equal(dmasync_batch_submit(batch, 1), 0);
	assert_int_equal(events, 3 + 3 * 8);
	done = take();
	assert_int_equal(done.status, 0);
	assert_int_equal(done.lines, 10);
}

/* Two laps of the positions' wrap at 2^32 and many of the ring's, with and without units. */
static void many_batches(void **state)
{
	struct dmasync_completion done;

	(void)state;
	for (uint64_t i = 0; i < 3000; i++) {
		struct dmasync_batch *batch = begin();

		events = 0;
		for (uint64_t entry = 0; entry <= i % 7; entry++)
			add(batch, DMASYNC_FOR_DEVICE, entry * 4096, 64);
		assert_int_equal(dmasync_batch_submit(batch, i), 0);
		assert_int_equal(events, 2 + 1 + i % 7);
		assert_int_equal(dmasync_wait(queue, &done, 0), 0);
		assert_int_equal(done.user_data, i);
		assert_int_equal(done.lines, 1 + i % 7);
	}
}

static void a_full_ring_says_so(void **state)
{
	struct dmasync_batch *batch;

	(void)state;
	watched = NULL;
	for (uint64_t i = 0; i < DEPTH; i++) {
		batch = begin();
		add(batch, DMASYNC_FOR_DEVICE, 0, 64);
		assert_int_equal(dmasync_batch_submit(batch, i), 0);
	}
	assert_int_equal(dmasync_batch_begin(queue, &batch), -EAGAIN);
	assert_int_equal(take().user_data, 0);
	batch = begin();
	dmasync_batch_abort(batch);
	/* dmasync_sync() keeps the others for later. */
	assert_int_equal(dmasync_sync(queue, buffer, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, 64),
			 0);
	for (uint64_t i = 1; i < DEPTH; i++)
		assert_int_equal(take().user_data, i);
}

static bool readable(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, 0) == 1;
}

static void queue_fd_tells_of_completions(void **state)
{
	int fd = dmasync_queue_fd(queue);
	struct dmasync_completion done;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(dmasync_queue_fd(queue), fd);
	for (uint64_t round = 0; round < 100; round++) {
		assert_int_equal(dmasync_peek(queue, &done), 0);
		assert_false(readable(fd));
		for (uint64_t i = 0; i <= round % 3; i++) {
			struct dmasync_batch *batch = begin();

			watched = NULL;
			add(batch, DMASYNC_FOR_DEVICE, 0, 64);
			assert_int_equal(dmasync_batch_submit(batch, i), 0);
			assert_true(readable(fd));
		}
		for (uint64_t i = 0; i <= round % 3; i++) {
			assert_true(readable(fd));
			assert_int_equal(take().user_data, i);
		}
		events = 0;
	}
}

static void a_child_is_refused(void **state)
{
	pid_t pid = fork();
	int status;

	(void)state;
	if (pid == 0) {
		struct dmasync_completion done;
		struct dmasync_batch *batch;

		_exit(dmasync_batch_begin(queue, &batch) == -ECHILD &&
				      dmasync_peek(queue, &done) == -ECHILD
			      ? 0
			      : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(fence_operations_one_barrier_publish),
		CASE(a_batch_of_one_entry_travels_alone),
		CASE(elided_work_has_its_barrier),
		CASE(a_bad_batch_touches_nothing),
		CASE(a_changed_cpu_means_again_in_pieces),
		CASE(a_cpu_that_always_changes_ends_too),
		CASE(many_batches),
		CASE(a_full_ring_says_so),
		CASE(queue_fd_tells_of_completions),
		CASE(a_child_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
