/* SPDX-License-Identifier: MIT */
/* See fixture.h. */
#include "fixture.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/guard.h"
#include "tests/lib/loop_kind.h"

#define PATIENCE_NS UINT64_C(10000000000)

struct trace trace;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

uint32_t trace_thread(void)
{
	static _Atomic uint32_t count;
	static _Thread_local uint32_t number;

	if (number == 0)
		number = atomic_fetch_add(&count, 1) + 1;
	return number;
}

static void record(enum trace_kind kind, uintptr_t address)
{
	bool is_line = kind == TRACE_CLEAN || kind == TRACE_FLUSH;

	if (trace.hook && is_line)
		trace.hook(address);
	if (trace.open_hook && kind == TRACE_OPEN)
		trace.open_hook();
	if (trace.barrier_hook && !is_line && kind != TRACE_OPEN)
		trace.barrier_hook();
	pthread_mutex_lock(&lock);
	size_t n = trace.count;

	assert_true(n < trace.size);
	trace.event[n].kind = kind;
	trace.event[n].address = address;
	trace.event[n].thread = trace_thread();
	if (trace.ring) {
		struct dmasync_ring_completion completion;

		trace.event[n].published =
			dmasync_ring_poll_completion(trace.ring, trace.next_completion,
						     &completion) != DMASYNC_RING_EMPTY;
	}
	if (trace.fence_fd) {
		struct pollfd fence = {.fd = trace.fence_fd, .events = POLLIN};

		trace.event[n].fenced = poll(&fence, 1, 0) == 0;
	}
	trace.count++;
	atomic_store_explicit(&trace.done, trace.count, memory_order_release);
	pthread_mutex_unlock(&lock);
}

static void record_open(void)
{
	record(TRACE_OPEN, 0);
}

static void record_clean(uintptr_t start, uintptr_t end, size_t line)
{
	for (; start < end; start += line)
		record(TRACE_CLEAN, start);
}

static void record_flush(uintptr_t start, uintptr_t end, size_t line)
{
	for (; start < end; start += line)
		record(TRACE_FLUSH, start);
}

static void record_complete(bool flushed)
{
	record(flushed ? TRACE_COMPLETE_FLUSHED : TRACE_COMPLETE, 0);
}

/* The last one is slow where params say so. */
static void start(struct fixture *fixture, uint32_t workers, struct worker_params params)
{
	uint32_t ordinary = workers - params.slow;

	*fixture = (struct fixture){
		.cache =
			{
				.ops = {.name = "recorded",
					.open = record_open,
					.clean = record_clean,
					.flush = record_flush,
					.complete = record_complete},
				.line = LINE,
				.granule = LINE,
			},
		.events_fd = eventfd(0, EFD_CLOEXEC),
		.owner = {.client_id = 7, .pid = 99},
	};
	free(trace.event);
	trace = (struct trace){.size = 1u << 20};
	trace.event = calloc(trace.size, sizeof *trace.event);
	assert_non_null(trace.event);
	assert_int_equal(guard_install(), 0);

	void *memory =
		mmap(NULL, BUFFER_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(memory, MAP_FAILED);
	fixture->buffer = (struct buffer){
		.cache = {.base = (uintptr_t)memory,
			  .size = BUFFER_SIZE,
			  .backend = DMASYNC_BACKEND_DIRECT,
			  .guarantee = true},
		.handle = 1u << BUFFER_INDEX_BITS,
		.fd = -1,
	};
	fixture->table = (struct buffer_table){.size = 8, .slot = fixture->slot};
	atomic_store(&fixture->slot[0], &fixture->buffer);

	assert_int_equal(helpers_create(2, 1, &fixture->helpers), 0);
	cpu_set_t cpus;
	int cpu = -1;

	assert_int_equal(sched_getaffinity(0, sizeof cpus, &cpus), 0);
	params.loop = test_loop_kind();
	params.cache = &fixture->cache;
	params.max_batch_lines = UINT64_C(1) << 32;
	params.fence_timeout_ms = 60000;
	params.events = &fixture->events;
	params.events_fd = fixture->events_fd;
	params.helpers = fixture->helpers;
	params.count = workers;
	fixture->params = params;
	for (params.index = 0; params.index < workers; params.index++) {
		params.slow = params.index >= ordinary;
		params.peers = ordinary > 1 && !params.slow ? fixture->workers : NULL;
		if (params.slow) {
			params.cpu = -1;
		} else if (ordinary > 1 || params.cpu < 0) {
			do
				cpu = (cpu + 1) % CPU_SETSIZE;
			while (!CPU_ISSET((unsigned)cpu, &cpus));
			params.cpu = cpu;
		}
		assert_int_equal(worker_start(&params, &fixture->workers[params.index]), 0);
		fixture->worker_count++;
	}
	fixture->worker = fixture->workers[0];
	queue_open(fixture, &fixture->first, 8, 4096, CLIENT);
}

void fixture_start(struct fixture *fixture, uint32_t spin_us, uint32_t slice_lines, int cpu)
{
	start(fixture, 1,
	      (struct worker_params){.spin_us = spin_us, .slice_lines = slice_lines, .cpu = cpu});
}

void fixture_start_shared(struct fixture *fixture, uint32_t workers, uint32_t spin_us,
			  uint32_t slice_lines, uint64_t split_lines)
{
	assert_in_range(workers, 2, FIXTURE_WORKERS);
	start(fixture, workers,
	      (struct worker_params){.spin_us = spin_us,
				     .slice_lines = slice_lines,
				     .split_lines = split_lines,
				     .cpu = -1});
}

void fixture_start_slow(struct fixture *fixture, uint32_t ordinary, uint32_t slice_lines,
			uint64_t split_lines, uint32_t overruns_to_move)
{
	assert_in_range(ordinary, 1, FIXTURE_WORKERS - 1);
	start(fixture, ordinary + 1,
	      (struct worker_params){.slice_lines = slice_lines,
				     .split_lines = split_lines,
				     .overruns_to_move = overruns_to_move,
				     .slow = true,
				     .cpu = -1});
	/* Whose faults are counted is not to be the trace itself. */
	memset(trace.event, 0, (1u << 16) * sizeof *trace.event);
}

void fixture_stop(struct fixture *fixture)
{
	queue_release(fixture, &fixture->first);
	for (uint32_t i = 0; i < fixture->worker_count; i++) {
		fixture->worker = fixture->workers[i];
		post_and_wait(fixture, WORKER_STOP, NULL, NULL);
	}
	helpers_free(fixture->helpers, 1000);
	for (uint32_t i = 0; i < fixture->worker_count; i++)
		worker_join(fixture->workers[i]);
	close(fixture->events_fd);
	munmap((void *)fixture->buffer.cache.base, BUFFER_SIZE);
	free(trace.event);
	trace.event = NULL;
	assert_null(fixture->stashed);
}

struct worker_command *command_new(enum worker_command_type type)
{
	struct worker_command *command = calloc(1, sizeof *command);

	assert_non_null(command);
	command->type = type;
	return command;
}

static bool take(struct fixture *fixture, enum worker_command_type type,
		 struct worker_command **ret)
{
	struct mailbox_node *node = mailbox_take(&fixture->events);
	struct worker_command **end = &fixture->stashed;

	while (*end)
		end = &(*end)->next_command;
	while (node) {
		struct worker_command *command = (struct worker_command *)node;

		node = node->next;
		command->next_command = NULL;
		*end = command;
		end = &command->next_command;
	}
	for (struct worker_command **at = &fixture->stashed; *at; at = &(*at)->next_command) {
		if ((*at)->type == type) {
			*ret = *at;
			*at = (*at)->next_command;
			return true;
		}
	}
	return false;
}

bool event_is_there(struct fixture *fixture, enum worker_command_type type)
{
	struct worker_command *command;

	if (!take(fixture, type, &command))
		return false;
	command->next_command = fixture->stashed;
	fixture->stashed = command;
	return true;
}

struct worker_command *await_event(struct fixture *fixture, enum worker_command_type type)
{
	uint64_t start = clock_ns();
	struct worker_command *command;

	while (!take(fixture, type, &command)) {
		struct pollfd poll_fd = {.fd = fixture->events_fd, .events = POLLIN};
		uint64_t value;

		assert_true(clock_ns() - start < PATIENCE_NS);
		if (poll(&poll_fd, 1, 1000) > 0)
			assert_int_equal(read(fixture->events_fd, &value, sizeof value),
					 sizeof value);
	}
	return command;
}

void post_and_wait(struct fixture *fixture, enum worker_command_type type, struct queue *queue,
		   struct client *client)
{
	struct worker_command *command = command_new(type);

	command->queue = queue;
	command->client = client;
	worker_post(fixture->worker, command);
	struct worker_command *answer = await_event(fixture, type);

	assert_ptr_equal(answer, command);
	assert_int_equal(answer->error, 0);
	free(answer);
}

void queue_open(struct fixture *fixture, struct client_queue *queue, uint32_t depth, uint32_t units,
		struct client *client)
{
	queue_open_as(fixture, queue, depth, units, client, DMASYNC_CLASS_NORMAL, 0);
}

void queue_open_as(struct fixture *fixture, struct client_queue *queue, uint32_t depth,
		   uint32_t units, struct client *client, enum dmasync_class klass, uint32_t uid)
{
	struct dmasync_ring_layout layout = {0};

	memset(queue, 0, sizeof *queue);
	assert_int_equal(queue_create(depth, units, worker_page_fd(fixture->worker), &queue->queue,
				      queue->fds),
			 0);
	queue->queue->client = client;
	queue->queue->buffers = &fixture->table;
	queue->queue->owner = &fixture->owner;
	queue->queue->id = 1;
	queue->queue->klass = klass;
	queue->queue->uid = uid;
	queue->submitted = queue->reaped = queue->units = DMASYNC_RING_START;

	assert_true(dmasync_ring_layout(depth, units, &layout));
	/* The client looks at the daemon's mapping: TSan follows one mapping of a memfd, not two.
	 */
	queue->memory = NULL;
	dmasync_ring_attach(&queue->ring, queue->queue->memory, &layout);
	queue->page =
		mmap(NULL, 4096, PROT_READ, MAP_SHARED, queue->fds[DMASYNC_QUEUE_WORKER_PAGE], 0);
	assert_ptr_not_equal(queue->page, MAP_FAILED);
	post_and_wait(fixture, WORKER_QUEUE_ADD, queue->queue, client);
}

void queue_close_ends(struct client_queue *queue)
{
	for (int i = 0; i < DMASYNC_QUEUE_FDS; i++) {
		if (queue->fds[i] >= 0)
			close(queue->fds[i]);
		queue->fds[i] = -1;
	}
	if (queue->page)
		munmap((void *)(uintptr_t)queue->page, 4096);
	queue->page = NULL;
}

void queue_release(struct fixture *fixture, struct client_queue *queue)
{
	post_and_wait(fixture, WORKER_QUEUE_REMOVE, queue->queue, queue->queue->client);
	queue_free(queue->queue);
	queue_close_ends(queue);
}

struct dmasync_unit entry(uint32_t handle, enum dmasync_sync sync, enum dmasync_direction direction,
			  uint64_t offset, uint32_t length)
{
	return (struct dmasync_unit){
		.word = dmasync_unit_word(handle, sync, direction, 0),
		.length = length,
		.offset = offset,
	};
}

void ring_if_asleep(struct client_queue *queue)
{
	if (dmasync_ring_wants_doorbell(&queue->ring, &queue->page->sleeping)) {
		ssize_t n = write(queue->fds[DMASYNC_QUEUE_DOORBELL], "", 1);

		(void)n;
	}
}

void submit_units(struct client_queue *queue, const struct dmasync_unit *units, uint32_t count,
		  uint64_t user_data)
{
	struct dmasync_submission submission = {
		.user_data = user_data,
		.submit_ns = clock_ns(),
		.unit_position = queue->units,
		.unit_count = count,
	};

	if (count == 1 && !(units[0].word & DMASYNC_UNIT_STRIDED)) {
		submission.unit_count = 0;
		submission.entry = units[0];
	} else {
		for (uint32_t i = 0; i < count; i++)
			dmasync_ring_write_unit(&queue->ring, queue->units++, &units[i]);
	}
	dmasync_ring_submit(&queue->ring, queue->submitted++, &submission);
	ring_if_asleep(queue);
}

bool try_reap(struct client_queue *queue, struct dmasync_ring_completion *ret)
{
	enum dmasync_ring_poll poll =
		dmasync_ring_poll_completion(&queue->ring, queue->reaped, ret);

	assert_int_not_equal(poll, DMASYNC_RING_BROKEN);
	if (poll != DMASYNC_RING_READY)
		return false;
	dmasync_ring_consume_completion(&queue->ring, ++queue->reaped);
	return true;
}

void reap(struct client_queue *queue, struct dmasync_ring_completion *ret)
{
	uint64_t start = clock_ns();

	while (!try_reap(queue, ret)) {
		assert_true(clock_ns() - start < PATIENCE_NS);
		nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
	}
}
