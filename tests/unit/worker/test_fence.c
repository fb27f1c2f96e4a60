/* SPDX-License-Identifier: MIT */
/*
 * Fences of dma-bufs, by eventfds that stand in for them: poll(2) says of an eventfd what it says
 * of a dma-buf. 0: a writer's fence is not signalled (no POLLIN). Full: a reader's is not (no
 * POLLOUT). 1: all are.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/kernel_sync.h"
#include "fixture.h"

#define WRITER_BUSY UINT64_C(0)
#define READER_BUSY (UINT64_MAX - 1)
#define IDLE UINT64_C(1)
#define OTHER_CLIENT ((struct client *)(uintptr_t)0x2000)
#define BUFFERS 40u

static struct fixture fixture;
static struct buffer buffers[BUFFERS];
static _Atomic(struct buffer *) slots[BUFFERS + 1];

static int event(uint64_t value)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	assert_true(fd >= 0);
	if (value)
		assert_int_equal(write(fd, &value, sizeof value), sizeof value);
	return fd;
}

static void signal_writer(int fd)
{
	assert_int_equal(write(fd, &(uint64_t){1}, sizeof(uint64_t)), sizeof(uint64_t));
}

static void signal_reader(int fd)
{
	uint64_t value;

	assert_int_equal(read(fd, &value, sizeof value), sizeof value);
}

/* Buffers 1 to BUFFERS of the table; 0 is the fixture's, which has no fences. */
static uint32_t add_buffer(uint32_t place, uint64_t value)
{
	struct buffer *buffer = &buffers[place - 1];

	*buffer = fixture.buffer;
	buffer->cache.fenced = true;
	buffer->handle = 1u << BUFFER_INDEX_BITS | place;
	buffer->fd = event(value);
	atomic_store(&slots[place], buffer);
	return buffer->handle;
}

static int fence_of(uint32_t place)
{
	return buffers[place - 1].fd;
}

/* The worker may be at work meanwhile. */
static size_t events_so_far(void)
{
	return atomic_load_explicit(&trace.done, memory_order_acquire);
}

static int start(void **state)
{
	(void)state;
	fixture_start(&fixture, 50, 4096, -1);
	memset(buffers, 0, sizeof buffers);
	memset(slots, 0, sizeof slots);
	atomic_store(&slots[0], &fixture.buffer);
	fixture.table.size = BUFFERS + 1;
	fixture.table.slot = slots;
	return 0;
}

static int stop(void **state)
{
	(void)state;
	fixture_stop(&fixture);
	for (uint32_t i = 0; i < BUFFERS; i++)
		if (buffers[i].fd > 0)
			close(buffers[i].fd);
	return 0;
}

static void submit(struct client_queue *queue, uint32_t handle, enum dmasync_sync sync,
		   enum dmasync_direction direction, uint64_t user_data)
{
	struct dmasync_unit unit = entry(handle, sync, direction, 0, 128);

	submit_units(queue, &unit, 1, user_data);
}

static void submit_flush(struct client_queue *queue, uint32_t handle, uint64_t user_data)
{
	submit(queue, handle, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, user_data);
}

/* A batch of another queue that was submitted later is through: the worker has been everywhere. */
static void another_queue_goes_on(struct client_queue *other)
{
	struct dmasync_ring_completion completion;

	for (int i = 0; i < 3; i++) {
		submit_flush(other, fixture.buffer.handle, 100);
		reap(other, &completion);
		assert_int_equal(completion.status, 0);
		assert_int_equal(completion.lines, 2);
		assert_int_equal(completion.fence_ns, 0);
	}
}

static void fence_opening_fence_operations(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	uint32_t handle = add_buffer(1, WRITER_BUSY);
	struct client_queue other;

	queue_open(&fixture, &other, 8, 64, OTHER_CLIENT);
	trace.fence_fd = fence_of(1);
	submit_flush(&fixture.first, handle, 1);
	submit_flush(&fixture.first, fixture.buffer.handle, 2); /* behind it */
	another_queue_goes_on(&other);
	assert_false(try_reap(&fixture.first, &completion));

	size_t before = events_so_far();

	signal_writer(fence_of(1));
	reap(&fixture.first, &completion);
	assert_int_equal(completion.user_data, 1);
	assert_int_equal(completion.status, 0);
	assert_true(completion.fence_ns > 0);
	assert_true(completion.flags & DMASYNC_COMPLETION_EXTENDED);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.user_data, 2);
	assert_int_equal(completion.fence_ns, 0);

	static const enum trace_kind order[] = {TRACE_OPEN, TRACE_FLUSH, TRACE_FLUSH,
						TRACE_COMPLETE_FLUSHED};

	assert_int_equal(events_so_far(), before + 8);
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(trace.event[before + i].kind, order[i]);
		assert_false(trace.event[before + i].fenced);
	}
	queue_release(&fixture, &other);
}

/* Which fences come first: drivers/dma-buf/dma-buf.c, and daemon/cache/batch.c for why. */
static void who_is_waited_for(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	uint32_t writer = add_buffer(1, WRITER_BUSY), reader = add_buffer(2, READER_BUSY);
	struct client_queue other;

	queue_open(&fixture, &other, 8, 64, OTHER_CLIENT);
	for (int sync = DMASYNC_FOR_DEVICE; sync <= DMASYNC_FOR_CPU; sync++) {
		for (int direction = DMASYNC_TO_DEVICE; direction <= DMASYNC_BIDIRECTIONAL;
		     direction++) {
			bool reads_only =
				sync == DMASYNC_FOR_CPU && direction == DMASYNC_FROM_DEVICE;
			uint32_t waits = reads_only ? writer : reader;
			uint32_t passes = reads_only ? reader : writer;

			/* An eventfd has one state at a time: each stands for one kind of fence. */
			submit(&fixture.first, passes, (enum dmasync_sync)sync,
			       (enum dmasync_direction)direction, 1);
			reap(&fixture.first, &completion);
			assert_int_equal(completion.status, 0);
			assert_int_equal(completion.fence_ns, 0);

			size_t before = events_so_far();

			submit(&fixture.first, waits, (enum dmasync_sync)sync,
			       (enum dmasync_direction)direction, 2);
			another_queue_goes_on(&other);
			assert_false(try_reap(&fixture.first, &completion));
			assert_int_equal(events_so_far(), before + 12); /* all of them its own */
			if (reads_only) {
				signal_writer(fence_of(1));
				reap(&fixture.first, &completion);
				signal_reader(fence_of(1)); /* busy again */
			} else {
				signal_reader(fence_of(2));
				reap(&fixture.first, &completion);
				assert_int_equal(write(fence_of(2), &(uint64_t){READER_BUSY}, 8),
						 8);
			}
			assert_int_equal(completion.status, 0);
			assert_true(completion.fence_ns > 0);
		}
	}
	queue_release(&fixture, &other);
}

/* More buffers than the list of fences holds, in several chunks, the busy ones in the middle. */
static void many_buffers(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	enum { COUNT = 2000 };
	struct dmasync_unit *units = calloc(COUNT, sizeof *units);

	struct client_queue other;

	assert_non_null(units);
	queue_open(&fixture, &other, 8, 64, OTHER_CLIENT);
	for (uint32_t i = 1; i <= BUFFERS; i++)
		add_buffer(i, i == 3 || i == 20 || i == 40 ? WRITER_BUSY : IDLE);
	for (uint32_t i = 0; i < COUNT; i++)
		units[i] = entry(buffers[i * BUFFERS / COUNT].handle, DMASYNC_FOR_CPU,
				 DMASYNC_FROM_DEVICE, i * 128, 64);
	submit_units(&fixture.first, units, COUNT, 1);
	another_queue_goes_on(&other);
	signal_writer(fence_of(40));
	signal_writer(fence_of(20));
	another_queue_goes_on(&other);
	assert_int_equal(events_so_far(), 2 * 12); /* all of them its own */
	signal_writer(fence_of(3));
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
	assert_int_equal(completion.lines, COUNT);
	assert_true(completion.fence_ns > 0);
	free(units);
	queue_release(&fixture, &other);
}

static void a_bad_entry_fails_without_a_wait(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	uint32_t handle = add_buffer(1, WRITER_BUSY);
	struct dmasync_unit units[] = {
		entry(handle, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, 64),
		entry(handle, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, BUFFER_SIZE, 64),
	};

	submit_units(&fixture.first, units, 2, 1);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.reason, DMASYNC_REASON_OUT_OF_RANGE);
	assert_int_equal(completion.bad_entry, 1);
}

static void tune(uint32_t fence_timeout_ms)
{
	struct worker_command *command = command_new(WORKER_TUNE);

	command->spin_us = 50;
	command->slice_lines = 4096;
	command->max_batch_lines = UINT64_C(1) << 32;
	command->fence_timeout_ms = fence_timeout_ms;
	worker_post(fixture.worker, command);
	free(await_event(&fixture, WORKER_TUNE));
}

static void a_fence_that_never_comes_ends_the_batch(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	uint32_t handle = add_buffer(1, WRITER_BUSY);

	tune(20);
	for (uint64_t i = 0; i < 3; i++)
		submit_flush(&fixture.first, handle, i);
	for (uint64_t i = 0; i < 3; i++) {
		reap(&fixture.first, &completion);
		assert_int_equal(completion.user_data, i);
		assert_int_equal(completion.status, -ETIMEDOUT);
		assert_int_equal(completion.reason, DMASYNC_REASON_FENCE);
		assert_int_equal(completion.bad_entry, DMASYNC_NO_ENTRY);
		assert_true(completion.fence_ns >= 20000000);
	}
	assert_int_equal(events_so_far(), 0);
	signal_writer(fence_of(1));
	submit_flush(&fixture.first, handle, 9);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
}

static void without_a_limit_it_waits(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	uint32_t handle = add_buffer(1, WRITER_BUSY);

	tune(0);
	submit_flush(&fixture.first, handle, 1);
	usleep(20000);
	assert_false(try_reap(&fixture.first, &completion));
	signal_writer(fence_of(1));
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
}

/* The end of a queue, of a client, of the worker: none waits for a fence. */
static void going_away_waits_for_no_fence(void **state)
{
	(void)state;
	struct client_queue other;
	uint32_t handle = add_buffer(1, WRITER_BUSY);

	queue_open(&fixture, &other, 8, 64, OTHER_CLIENT);
	submit_flush(&other, handle, 1);
	submit_flush(&other, handle, 2);
	queue_release(&fixture, &other);

	queue_open(&fixture, &other, 8, 64, OTHER_CLIENT);
	submit_flush(&other, handle, 1);
	submit_flush(&other, fixture.buffer.handle, 2);
	post_and_wait(&fixture, WORKER_CLIENT_STOP, NULL, OTHER_CLIENT);
	queue_free(other.queue);
	queue_close_ends(&other);
	assert_int_equal(events_so_far(), 0);
}

static void stopping_leaves_what_waits_unpublished(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	uint32_t handle = add_buffer(1, WRITER_BUSY);
	union cache_unit unit = {
		.entry = entry(handle, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, 64)};
	struct worker_command *sync = command_new(WORKER_SYNC);

	submit_flush(&fixture.first, handle, 1);
	submit_flush(&fixture.first, fixture.buffer.handle, 2);
	sync->client = OTHER_CLIENT;
	sync->buffers = &fixture.table;
	sync->owner = &fixture.owner;
	sync->submit_ns = clock_ns();
	sync->units = &unit;
	sync->units_size = sync->count = 1;
	worker_post(fixture.worker, sync);
	post_and_wait(&fixture, WORKER_STOP, NULL, NULL);
	assert_ptr_equal(await_event(&fixture, WORKER_SYNC), sync);
	assert_int_equal(sync->result.reason, DMASYNC_REASON_CANCELLED);
	free(sync);
	assert_false(try_reap(&fixture.first, &completion));
	assert_int_equal(events_so_far(), 0);

	helpers_free(fixture.helpers, 1000);
	worker_join(fixture.worker);
	queue_free(fixture.first.queue);
	queue_close_ends(&fixture.first);
	close(fixture.events_fd);
	close(fence_of(1));
	munmap((void *)fixture.buffer.cache.base, BUFFER_SIZE);
	free(trace.event);
	trace.event = NULL;
}

/* A buffer that is removed while a batch of it waits: the removal waits for the batch. */
static void a_removal_waits_for_the_parked_batch(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	uint32_t handle = add_buffer(1, WRITER_BUSY);
	struct client_queue other;

	queue_open(&fixture, &other, 8, 64, OTHER_CLIENT);
	submit_flush(&fixture.first, handle, 1);
	another_queue_goes_on(&other);
	atomic_store(&slots[1], NULL);
	struct worker_command *grace = command_new(WORKER_BUFFER_GRACE);

	grace->client = CLIENT;
	worker_post(fixture.worker, grace);
	usleep(2000);
	assert_false(event_is_there(&fixture, WORKER_BUFFER_GRACE));
	signal_writer(fence_of(1));
	free(await_event(&fixture, WORKER_BUFFER_GRACE));
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
	queue_release(&fixture, &other);
}

/* Neither readable nor writable, unlike an eventfd: both kinds of fence on one file. */
static uint32_t add_busy_socket(uint32_t place, int *ret_peer)
{
	uint32_t handle = add_buffer(place, IDLE);
	char bytes[1024] = {0};
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends),
			 0);
	while (write(ends[0], bytes, sizeof bytes) > 0)
		;
	close(buffers[place - 1].fd);
	buffers[place - 1].fd = ends[0];
	*ret_peer = ends[1];
	return handle;
}

static void one_file_and_many_who_wait(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	struct client_queue reader[2], writer, leaver, other;
	char bytes[4096];
	int peer;
	uint32_t handle = add_busy_socket(1, &peer);

	queue_open(&fixture, &other, 8, 64, OTHER_CLIENT);
	queue_open(&fixture, &reader[0], 8, 64, CLIENT);
	queue_open(&fixture, &reader[1], 8, 64, CLIENT);
	queue_open(&fixture, &writer, 8, 64, CLIENT);
	queue_open(&fixture, &leaver, 8, 64, CLIENT);
	submit_flush(&reader[0], handle, 1);
	submit(&writer, handle, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 2);
	submit_flush(&reader[1], handle, 3);
	submit(&leaver, handle, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 4);
	another_queue_goes_on(&other);
	queue_release(&fixture, &leaver);
	another_queue_goes_on(&other);

	assert_int_equal(write(peer, "", 1), 1); /* the writers' fence */
	for (int i = 0; i < 2; i++) {
		reap(&reader[i], &completion);
		assert_int_equal(completion.status, 0);
		assert_true(completion.fence_ns > 0);
	}
	another_queue_goes_on(&other);
	assert_false(try_reap(&writer, &completion));
	while (read(peer, bytes, sizeof bytes) > 0)
		;
	reap(&writer, &completion);
	assert_int_equal(completion.status, 0);
	assert_int_equal(completion.user_data, 2);
	queue_release(&fixture, &writer);
	queue_release(&fixture, &reader[1]);
	queue_release(&fixture, &reader[0]);
	queue_release(&fixture, &other);
	close(peer);
}

/* Each in the order of its time, whatever the order in which they began to wait. */
static void many_that_never_come(void **state)
{
	(void)state;
	enum { QUEUES = 20 };
	static struct client_queue queue[QUEUES];
	struct dmasync_ring_completion completion;
	uint32_t handle = add_buffer(1, WRITER_BUSY);

	for (uint32_t i = 0; i < QUEUES; i++) {
		tune(i % 2 ? 60000 : 20 + i);
		queue_open(&fixture, &queue[i], 8, 64, CLIENT);
		submit_flush(&queue[i], handle, i);
		another_queue_goes_on(&fixture.first);
	}
	for (uint32_t i = 0; i < QUEUES; i += 2) {
		reap(&queue[i], &completion);
		assert_int_equal(completion.status, -ETIMEDOUT);
	}
	for (uint32_t i = 1; i < QUEUES; i += 2)
		assert_false(try_reap(&queue[i], &completion));
	signal_writer(fence_of(1));
	for (uint32_t i = 1; i < QUEUES; i += 2) {
		reap(&queue[i], &completion);
		assert_int_equal(completion.status, 0);
	}
	for (uint32_t i = 0; i < QUEUES; i++)
		queue_release(&fixture, &queue[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)
		CASE(fence_opening_fence_operations),
		CASE(who_is_waited_for),
		CASE(many_buffers),
		CASE(a_bad_entry_fails_without_a_wait),
		CASE(a_fence_that_never_comes_ends_the_batch),
		CASE(without_a_limit_it_waits),
		CASE(going_away_waits_for_no_fence),
		cmocka_unit_test_setup(stopping_leaves_what_waits_unpublished, start),
		CASE(a_removal_waits_for_the_parked_batch),
		CASE(one_file_and_many_who_wait),
		CASE(many_that_never_come),
	};

	return cmocka_run_group_tests_name("worker-fence", tests, NULL, NULL);
}
