/* SPDX-License-Identifier: MIT */
/*
 * Batches, built in place in the ring's units. The queue's thread; no lock, and no system call but
 * the doorbell of a worker that sleeps.
 */
#include <sched.h>
#include <string.h>

#include "client/inline.h"
#include "client/internal.h"

DMASYNC_PUBLIC int dmasync_batch_begin(struct dmasync_queue *queue, struct dmasync_batch **ret)
{
	uint32_t submitted;
	int r = queue_check(queue);

	if (r < 0)
		return r;
	if (queue->batch.open)
		return -EBUSY;
	if (queue->ds->fallback && !queue_in_flight(queue))
		queue_choose_side(queue);
	/*
	 * A slot is free when its last completion was handed out, not when it was read: so the
	 * stash of dmasync_sync() never needs room for more than depth of them.
	 */
	submitted = atomic_load_explicit(&queue->submitted, memory_order_relaxed);
	if (submitted - queue->read + queue->stash_count >= queue->ring.depth)
		return -EAGAIN;
	queue->batch = (struct dmasync_batch){.queue = queue, .open = true};
	*ret = &queue->batch;
	return 0;
}

static int fail(struct dmasync_batch *batch, int error)
{
	if (batch->error == 0)
		batch->error = error;
	return error;
}

/*
 * By value, here and in append(): a unit travels in two registers. Built on the stack and copied
 * with one 16-byte load, it would wait for the two stores before it, 7 ns an entry on x86.
 */
static void write_unit(struct dmasync_batch *batch, struct dmasync_unit unit)
{
	struct dmasync_queue *queue = batch->queue;

	dmasync_ring_write_unit(&queue->ring, queue->unit_head + batch->units, &unit);
	batch->units++;
}

/* Makes sure that `more` units fit, the entry that was held back counted too. */
static int reserve(const struct dmasync_batch *batch, uint32_t more)
{
	const struct dmasync_queue *queue = batch->queue;
	uint32_t used = queue->unit_head - queue->unit_tail;
	uint32_t need = batch->units + (batch->first_held ? 1 : 0) + more;

	if (need > queue->ring.unit_count)
		return -EMSGSIZE;
	return need > queue->ring.unit_count - used ? -EAGAIN : 0;
}

/*
 * Adds an entry of one unit, or of two where rows is given. A batch of one plain entry needs no
 * unit at all: it travels inside its submission, on the line that the worker polls. So the first
 * is held back until a second one or submit decides.
 */
static int append(struct dmasync_batch *batch, struct dmasync_unit unit,
		  const struct dmasync_unit_rows *rows)
{
	struct dmasync_unit second;
	int r;

	if (batch->entries == 0 && !rows) {
		batch->first = unit;
		batch->first_held = true;
		batch->entries = 1;
		return 0;
	}
	r = reserve(batch, rows ? 2 : 1);
	if (r < 0)
		return r;
	if (batch->first_held) {
		write_unit(batch, batch->first);
		batch->first_held = false;
	}
	write_unit(batch, unit);
	if (rows) {
		static_assert(sizeof second == sizeof *rows, "both are one unit");
		memcpy(&second, rows, sizeof second);
		write_unit(batch, second);
	}
	batch->entries++;
	return 0;
}

/* What add and add_rows have in common: who, and which way. */
static int check_entry(const struct dmasync_batch *batch, const struct dmasync_buffer *buffer,
		       enum dmasync_sync sync, enum dmasync_direction direction)
{
	if (batch->error)
		return batch->error;
	if (!batch->open)
		return -EINVAL;
	if (!buffer || buffer->ds != batch->queue->ds)
		return -EINVAL;
	if (sync != DMASYNC_FOR_DEVICE && sync != DMASYNC_FOR_CPU)
		return -EINVAL;
	if (direction != DMASYNC_TO_DEVICE && direction != DMASYNC_FROM_DEVICE &&
	    direction != DMASYNC_BIDIRECTIONAL)
		return -EINVAL;
	return 0;
}

/* `span`: from the first byte to behind the last one, gaps included. */
static int check_range(const struct dmasync_buffer *buffer, uint64_t offset, uint64_t span)
{
	uint64_t end;

	if (__builtin_add_overflow(offset, span, &end))
		return -EOVERFLOW;
	return end > buffer->bytes ? -ERANGE : 0;
}

static int check_plain(const struct dmasync_buffer *buffer, uint64_t offset, uint64_t length)
{
	int r = check_range(buffer, offset, length);

	return r == 0 && length > UINT32_MAX ? -EOVERFLOW : r;
}

DMASYNC_PUBLIC int dmasync_batch_add(struct dmasync_batch *batch, struct dmasync_buffer *buffer,
				     enum dmasync_sync sync, enum dmasync_direction direction,
				     uint64_t offset, uint64_t length)
{
	int r;

	if (!fork_guard_ok(batch->queue->ds))
		return -ECHILD;
	r = check_entry(batch, buffer, sync, direction);
	if (r == 0)
		r = check_plain(buffer, offset, length);
	if (r == 0) {
		struct dmasync_unit unit = {
			.word = dmasync_unit_word(buffer->handle, sync, direction, 0),
			.length = (uint32_t)length,
			.offset = offset,
		};

		r = append(batch, unit, NULL);
	}
	return r < 0 ? fail(batch, r) : 0;
}

/* The whole list or nothing of it: what was written is only counted once all of it was good. */
static int append_ranges(struct dmasync_batch *batch, const struct dmasync_buffer *buffer,
			 uint32_t word, const struct dmasync_range *ranges, size_t count)
{
	struct dmasync_queue *queue = batch->queue;
	const uint64_t size = buffer->bytes;
	uint32_t at;
	int r;

	if (count > queue->ring.unit_count)
		return -EMSGSIZE;
	r = reserve(batch, (uint32_t)count);
	if (r < 0)
		return r;
	at = queue->unit_head + batch->units + (batch->first_held ? 1 : 0);
	for (size_t i = 0; i < count; i++) {
		uint64_t offset = ranges[i].offset, length = ranges[i].length;

		if (length > UINT32_MAX || offset > size || length > size - offset)
			return check_plain(buffer, offset, length);
		dmasync_ring_write_unit(&queue->ring, at++,
					&(struct dmasync_unit){.word = word,
							       .length = (uint32_t)length,
							       .offset = offset});
	}
	if (batch->first_held) {
		write_unit(batch, batch->first);
		batch->first_held = false;
	}
	batch->units += (uint32_t)count;
	batch->entries += (uint32_t)count;
	return 0;
}

DMASYNC_PUBLIC int dmasync_batch_add_ranges(struct dmasync_batch *batch,
					    struct dmasync_buffer *buffer, enum dmasync_sync sync,
					    enum dmasync_direction direction,
					    const struct dmasync_range *ranges, size_t count)
{
	int r;

	if (count == 1) /* may still be the one that travels inside its submission */
		return dmasync_batch_add(batch, buffer, sync, direction, ranges->offset,
					 ranges->length);
	if (!fork_guard_ok(batch->queue->ds))
		return -ECHILD;
	r = check_entry(batch, buffer, sync, direction);
	if (r == 0 && count > 0)
		r = append_ranges(batch, buffer,
				  dmasync_unit_word(buffer->handle, sync, direction, 0), ranges,
				  count);
	return r < 0 ? fail(batch, r) : 0;
}

static int check_rows(const struct dmasync_buffer *buffer, uint64_t offset, uint64_t length,
		      uint64_t rows, uint64_t stride)
{
	uint64_t last, span;

	if (rows == 0 || stride < length)
		return -EINVAL;
	if (rows > UINT32_MAX || length > UINT32_MAX ||
	    __builtin_mul_overflow(rows - 1, stride, &last) ||
	    __builtin_add_overflow(last, length, &span))
		return -EOVERFLOW;
	return check_range(buffer, offset, span);
}

DMASYNC_PUBLIC int dmasync_batch_add_rows(struct dmasync_batch *batch,
					  struct dmasync_buffer *buffer, enum dmasync_sync sync,
					  enum dmasync_direction direction, uint64_t offset,
					  uint64_t length, uint64_t rows, uint64_t stride)
{
	int r;

	if (rows == 1)
		return dmasync_batch_add(batch, buffer, sync, direction, offset, length);
	if (!fork_guard_ok(batch->queue->ds))
		return -ECHILD;
	r = check_entry(batch, buffer, sync, direction);
	if (r == 0)
		r = check_rows(buffer, offset, length, rows, stride);
	if (r == 0 && !(batch->queue->ds->hello.features & DMASYNC_FEATURE_STRIDED))
		r = -EOPNOTSUPP;
	if (r == 0) {
		struct dmasync_unit unit = {
			.word = dmasync_unit_word(buffer->handle, sync, direction, 1),
			.length = (uint32_t)length,
			.offset = offset,
		};
		struct dmasync_unit_rows second = {.rows = (uint32_t)rows, .stride = stride};

		r = append(batch, unit, &second);
	}
	return r < 0 ? fail(batch, r) : 0;
}

/*
 * Hands the position of read completions to the worker, which fetches no batch whose result would
 * have no room. That store dirties a line the worker reads, so it is made only when a submission
 * would otherwise find no room: at most once per depth batches where few are in flight. It is
 * released before the submission is, so a worker that sees the submission sees the room as well,
 * and there is nothing to wait for: no deadlock.
 */
static void publish_read(struct dmasync_queue *queue, uint32_t position)
{
	if (position - queue->read_published < queue->ring.depth)
		return;
	dmasync_ring_consume_completion(&queue->ring, queue->read);
	queue->read_published = queue->read;
}

DMASYNC_PUBLIC int dmasync_batch_submit(struct dmasync_batch *batch, uint64_t user_data)
{
	struct dmasync_queue *queue = batch->queue;
	uint32_t position = atomic_load_explicit(&queue->submitted, memory_order_relaxed);
	struct client_slot *slot = &queue->slots[position & (queue->ring.depth - 1)];
	struct dmasync_submission submission = {
		.user_data = user_data,
		.unit_position = queue->unit_head,
		.unit_count = batch->units,
	};

	if (!fork_guard_ok(queue->ds))
		return -ECHILD;
	if (!batch->open)
		return -EINVAL;
	batch->open = false;
	if (batch->error)
		return batch->error;
	if (batch->entries == 0)
		return -EINVAL;
	if (batch->first_held)
		submission.entry = batch->first;
	submission.client_cpu = (uint32_t)(sched_getcpu() + 1);
	submission.submit_ns = (uint64_t)now_ns();
	queue->unit_head += batch->units;
	slot->submit_ns = submission.submit_ns;
	slot->user_data = user_data;
	slot->unit_end = queue->unit_head;
	publish_read(queue, position);
	dmasync_ring_submit(&queue->ring, position, &submission);
	/* Release: the batch is in the ring. Pairs with the acquire in queues_drain(). */
	atomic_store_explicit(&queue->submitted, position + 1, memory_order_release);
	if (queue->in_process) {
		if (!inline_worker_run(queue->in_process))
			queue->error = -EPROTO;
	} else if (dmasync_ring_wants_doorbell(&queue->ring, &queue->worker_page->sleeping)) {
		doorbell_ring(queue);
	}
	return 0;
}

DMASYNC_PUBLIC void dmasync_batch_abort(struct dmasync_batch *batch)
{
	if (batch && fork_guard_ok(batch->queue->ds))
		batch->open = false;
}
