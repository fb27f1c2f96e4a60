/* SPDX-License-Identifier: MIT */
/*
 * Raw clients: their own ring writer over proto/ring_access.h, without the library's checks. For
 * one thread of a test.
 */
#include "tests/e2e/support.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

void raw_open(struct raw *raw, const char *socket)
{
	*raw = (struct raw){.socket = harness_connect(socket), .cookie = 1};
	harness_hello(raw->socket, &raw->hello);
}

void raw_close(struct raw *raw)
{
	close(raw->socket);
}

static void call_with_fds(struct raw *raw, void *request, uint16_t opcode, size_t size,
			  const int *fds, size_t fd_count, void *reply, size_t reply_size,
			  int *reply_fds, size_t *reply_fd_count)
{
	struct dmasync_message *header = request;
	union {
		struct dmasync_message header;
		struct dmasync_error error;
		char bytes[DMASYNC_MESSAGE_MAX];
	} answer;

	*header = (struct dmasync_message){
		.size = (uint32_t)size, .opcode = opcode, .cookie = ++raw->cookie};

	size_t length = harness_call(raw->socket, request, size, fds, fd_count, &answer,
				     sizeof answer, reply_fds, reply_fd_count);

	if (answer.header.flags & DMASYNC_MESSAGE_ERROR)
		fail_case("opcode %u is answered with %d: %s", opcode, answer.error.error,
			  answer.error.text);
	check(length >= reply_size);
	memcpy(reply, &answer, reply_size);
}

void raw_call(struct raw *raw, void *request, uint16_t opcode, size_t size, void *reply,
	      size_t reply_size)
{
	call_with_fds(raw, request, opcode, size, NULL, 0, reply, reply_size, NULL, NULL);
}

uint32_t raw_add_buffer(struct raw *raw, int fd, enum dmasync_backend backend, uint64_t size)
{
	struct dmasync_buffer_add request = {.backend = backend, .size = size};
	struct dmasync_buffer_add_reply reply;

	call_with_fds(raw, &request, DMASYNC_OP_BUFFER_ADD, sizeof request, &fd, 1, &reply,
		      sizeof reply, NULL, NULL);
	check_int(reply.backend, backend);
	return reply.handle;
}

void raw_stats(struct raw *raw, struct dmasync_stats_reply *ret)
{
	struct dmasync_message request;

	raw_call(raw, &request, DMASYNC_OP_STATS, sizeof request, ret, sizeof *ret);
}

static uint8_t *map(int fd, size_t size, size_t offset)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);

	check(memory != MAP_FAILED);
	return memory;
}

void raw_memory_alloc(struct raw_memory *memory, struct raw *raw, size_t size)
{
	memory->size = size;
	memory->fd = harness_memfd(3 * size, F_SEAL_SHRINK);
	memory->cpu = map(memory->fd, size, 0);
	memory->device = map(memory->fd, size, size);
	memory->handle = raw_add_buffer(raw, memory->fd, DMASYNC_BACKEND_SIMULATED, 0);
}

void raw_memory_free(struct raw_memory *memory)
{
	munmap(memory->cpu, memory->size);
	munmap(memory->device, memory->size);
	close(memory->fd);
}

void raw_queue_open(struct raw_queue *queue, struct raw *raw, uint32_t depth, uint32_t units)
{
	raw_queue_open_as(queue, raw, DMASYNC_CLASS_NORMAL, depth, units);
}

void raw_queue_open_as(struct raw_queue *queue, struct raw *raw, enum dmasync_class klass,
		       uint32_t depth, uint32_t units)
{
	struct dmasync_queue_create request = {
		.depth = depth, .units = units, .klass = (uint32_t)klass};
	struct dmasync_queue_create_reply reply;
	struct dmasync_ring_layout layout;
	int fds[DMASYNC_QUEUE_FDS];
	size_t fd_count = DMASYNC_QUEUE_FDS;

	call_with_fds(raw, &request, DMASYNC_OP_QUEUE_CREATE, sizeof request, NULL, 0, &reply,
		      sizeof reply, fds, &fd_count);
	check_int(fd_count, DMASYNC_QUEUE_FDS);
	check(dmasync_ring_layout(reply.depth, reply.units, &layout));

	*queue = (struct raw_queue){
		.id = reply.queue,
		.depth = layout.depth,
		.units = layout.units,
		.size = layout.size,
		.memory = map(fds[DMASYNC_QUEUE_RING], layout.size, 0),
		.doorbell = fds[DMASYNC_QUEUE_DOORBELL],
		.notification = fds[DMASYNC_QUEUE_NOTIFICATION],
		.submitted = DMASYNC_RING_START,
		.completed = DMASYNC_RING_START,
		.unit_position = DMASYNC_RING_START,
	};
	dmasync_ring_attach(&queue->ring, queue->memory, &layout);
	check_int(queue->ring.header->magic, DMASYNC_RING_MAGIC);

	void *page = mmap(NULL, DMASYNC_RING_PAGE, PROT_READ, MAP_SHARED,
			  fds[DMASYNC_QUEUE_WORKER_PAGE], 0);

	check(page != MAP_FAILED);
	queue->page = page;
	close(fds[DMASYNC_QUEUE_RING]);
	close(fds[DMASYNC_QUEUE_WORKER_PAGE]);
}

void raw_queue_close(struct raw_queue *queue)
{
	munmap(queue->memory, queue->size);
	munmap((void *)(uintptr_t)queue->page, DMASYNC_RING_PAGE);
	close(queue->doorbell);
	close(queue->notification);
}

void raw_queue_remove(struct raw_queue *queue, struct raw *raw)
{
	struct dmasync_queue_remove request = {.queue = queue->id};
	struct dmasync_done_reply reply;

	raw_call(raw, &request, DMASYNC_OP_QUEUE_REMOVE, sizeof request, &reply, sizeof reply);
	raw_queue_close(queue);
}

void raw_publish(struct raw_queue *queue, const struct dmasync_unit *units, uint32_t count,
		 struct dmasync_submission *submission)
{
	for (uint32_t i = 0; i < count; i++)
		dmasync_ring_write_unit(&queue->ring, queue->unit_position + i, &units[i]);
	queue->unit_position += count;
	dmasync_ring_submit(&queue->ring, queue->submitted++, submission);
}

static uint64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void raw_submit(struct raw_queue *queue, const struct dmasync_unit *units, uint32_t count,
		uint64_t user_data)
{
	struct dmasync_submission submission = {
		.user_data = user_data,
		.submit_ns = monotonic_ns(),
		.unit_position = queue->unit_position,
		.unit_count = count,
	};

	raw_publish(queue, units, count, &submission);
}

void raw_ring_bell(struct raw_queue *queue)
{
	char byte = 0;

	/* A full pipe has already woken the worker. */
	if (write(queue->doorbell, &byte, 1) < 0)
		check(fcntl(queue->doorbell, F_GETFL) & O_NONBLOCK);
}

void raw_await_sleep(const struct raw_queue *queue)
{
	harness_until(__atomic_load_n(&queue->page->sleeping, __ATOMIC_SEQ_CST) == 1, PATIENCE_MS);
}

bool raw_peek(struct raw_queue *queue, struct dmasync_ring_completion *ret)
{
	enum dmasync_ring_poll poll =
		dmasync_ring_poll_completion(&queue->ring, queue->completed, ret);

	check(poll != DMASYNC_RING_BROKEN);
	if (poll == DMASYNC_RING_EMPTY)
		return false;
	dmasync_ring_consume_completion(&queue->ring, ++queue->completed);
	return true;
}

void raw_wait(struct raw_queue *queue, struct dmasync_ring_completion *ret)
{
	if (dmasync_ring_wants_doorbell(&queue->ring, &queue->page->sleeping))
		raw_ring_bell(queue);
	harness_until(raw_peek(queue, ret), PATIENCE_MS);
}

struct dmasync_unit raw_unit(uint32_t handle, enum dmasync_sync sync,
			     enum dmasync_direction direction, uint64_t offset, uint32_t length)
{
	return (struct dmasync_unit){
		.word = dmasync_unit_word(handle, sync, direction, 0),
		.length = length,
		.offset = offset,
	};
}
