/* SPDX-License-Identifier: MIT */
/*
 * In raw_client.c's place: the same units and submissions, written straight into the ring of an
 * inline queue, past the library's own checks. So one table of bad input is shown to the daemon and
 * to inline mode. For one thread of a test.
 */
#include "tests/e2e/support.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/inline.h"
#include "client/internal.h"

enum { BUFFERS = 8, MAX_LINES = 2048 };

static struct dmasync *ds; /* of the case's one connection */
static struct dmasync_queue *inline_queue;
static struct dmasync_buffer *buffers[BUFFERS];

void raw_open(struct raw *raw, const char *socket)
{
	(void)socket;
	*raw = (struct raw){.socket = -1};
	check_int(dmasync_connect(NULL, DMASYNC_INLINE | DMASYNC_INLINE_SIMULATED, &ds), 0);
	/* As the daemon's configuration has it. */
	ds->in_process->max_batch_lines = MAX_LINES;
	inline_hello(ds->in_process, &raw->hello);
}

void raw_close(struct raw *raw)
{
	(void)raw;
	for (int i = 0; i < BUFFERS; i++) {
		dmasync_buffer_destroy(buffers[i]);
		buffers[i] = NULL;
	}
	dmasync_disconnect(ds);
}

void raw_call(struct raw *raw, void *request, uint16_t opcode, size_t size, void *reply,
	      size_t reply_size)
{
	const struct dmasync_buffer_remove *remove = request;

	(void)raw;
	(void)size;
	check_int(opcode, DMASYNC_OP_BUFFER_REMOVE);
	for (int i = 0; i < BUFFERS; i++) {
		if (!buffers[i] || buffers[i]->handle != remove->handle)
			continue;
		dmasync_buffer_destroy(buffers[i]);
		buffers[i] = NULL;
		memset(reply, 0, reply_size);
		return;
	}
	fail_case("no buffer has handle %u", remove->handle);
}

uint32_t raw_add_buffer(struct raw *raw, int fd, enum dmasync_backend backend, uint64_t size)
{
	(void)raw;
	check_int(backend, DMASYNC_BACKEND_SIMULATED);
	check_int(size, 0);
	for (int i = 0; i < BUFFERS; i++) {
		if (buffers[i])
			continue;
		check_int(dmasync_buffer_import(ds, fd, DMASYNC_IMPORT_SIMULATED, &buffers[i]), 0);
		return buffers[i]->handle;
	}
	fail_case("more than %d buffers", BUFFERS);
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
	struct dmasync_queue_params params;

	(void)raw;
	dmasync_queue_params_init(&params);
	params.depth = depth;
	params.units = units;
	check_int(dmasync_queue_create(ds, &params, &inline_queue), 0);
	*queue = (struct raw_queue){
		.depth = depth,
		.units = units,
		.ring = inline_queue->ring,
		.submitted = DMASYNC_RING_START,
		.completed = DMASYNC_RING_START,
		.unit_position = DMASYNC_RING_START,
	};
}

void raw_queue_close(struct raw_queue *queue)
{
	(void)queue;
	dmasync_queue_destroy(inline_queue);
}

void raw_publish(struct raw_queue *queue, const struct dmasync_unit *units, uint32_t count,
		 struct dmasync_submission *submission)
{
	for (uint32_t i = 0; i < count; i++)
		dmasync_ring_write_unit(&queue->ring, queue->unit_position + i, &units[i]);
	queue->unit_position += count;
	dmasync_ring_submit(&queue->ring, queue->submitted++, submission);
	check(inline_worker_run(inline_queue->in_process));
}

void raw_submit(struct raw_queue *queue, const struct dmasync_unit *units, uint32_t count,
		uint64_t user_data)
{
	struct dmasync_submission submission = {
		.user_data = user_data,
		.submit_ns = (uint64_t)now_ns(),
		.unit_position = queue->unit_position,
		.unit_count = count,
	};

	raw_publish(queue, units, count, &submission);
}

/* What the work left is there at once, and says who did it. */
void raw_wait(struct raw_queue *queue, struct dmasync_ring_completion *ret)
{
	check_int(dmasync_ring_poll_completion(&queue->ring, queue->completed, ret),
		  DMASYNC_RING_READY);
	check(ret->flags & DMASYNC_COMPLETION_INLINE);
	dmasync_ring_consume_completion(&queue->ring, ++queue->completed);
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
