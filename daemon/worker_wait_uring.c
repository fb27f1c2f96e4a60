/* SPDX-License-Identifier: MIT */
/*
 * What a worker waits for, in one io_uring: doorbells, its wake-up eventfd, fences. Reads are armed
 * only when going to sleep, so that an awake worker makes no system call. Worker thread only.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/uring.h"
#include "daemon/worker_internal.h"

#define WAKE_DATA UINT64_MAX
#define CANCEL_DATA (UINT64_MAX - 1)
#define FENCE_DATA (UINT64_C(1) << 63) /* and the batch: user space lies in the lower half */
#define GENERATION_MASK UINT32_C(0x7fffffff)

/*
 * The slot of the queue and its generation, never a pointer: a late completion of a queue that is
 * gone then finds nobody.
 */
static uint64_t doorbell_data(const struct worker *worker, uint32_t slot)
{
	return (uint64_t)(worker->wait.generations[slot] & GENERATION_MASK) << 32 | slot;
}

static void free_wait(struct worker *worker)
{
	io_uring_queue_exit(&worker->wait.ring);
	free(worker->wait.slots);
	free(worker->wait.generations);
}

static int add_queue(struct worker *worker, struct queue *queue)
{
	for (uint32_t i = 0; i < worker->wait.slot_count; i++) {
		if (!worker->wait.slots[i]) {
			worker->wait.slots[i] = queue;
			worker->wait.generations[i]++;
			queue->slot = i;
			return 0;
		}
	}

	uint32_t count = worker->wait.slot_count ? worker->wait.slot_count * 2 : 16;
	struct queue **slots = realloc(worker->wait.slots, count * sizeof *slots);

	if (!slots)
		return -ENOMEM;
	worker->wait.slots = slots;
	uint32_t *generations = realloc(worker->wait.generations, count * sizeof *generations);

	if (!generations)
		return -ENOMEM;
	worker->wait.generations = generations;
	memset(slots + worker->wait.slot_count, 0,
	       (count - worker->wait.slot_count) * sizeof *slots);
	memset(generations + worker->wait.slot_count, 0,
	       (count - worker->wait.slot_count) * sizeof *generations);
	queue->slot = worker->wait.slot_count;
	slots[queue->slot] = queue;
	worker->wait.slot_count = count;
	return 0;
}

static void remove_queue(struct worker *worker, struct queue *queue)
{
	worker->wait.slots[queue->slot] = NULL;
}

/* NULL where the kernel takes no more until its completions were reaped (-EBUSY, -EAGAIN). */
static struct io_uring_sqe *get_sqe(struct worker *worker)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&worker->wait.ring);

	if (!sqe) { /* full: hand over what is there */
		io_uring_submit(&worker->wait.ring);
		sqe = io_uring_get_sqe(&worker->wait.ring);
	}
	return sqe;
}

static void doorbell_rang(struct worker *worker, uint64_t data, int result)
{
	uint32_t slot = (uint32_t)data;
	struct queue *queue = slot < worker->wait.slot_count ? worker->wait.slots[slot] : NULL;

	if (!queue || doorbell_data(worker, slot) != data)
		return;
	queue->doorbell_armed = false;
	worker_watch_soon(worker, queue);
	/*
	 * End of file: nobody can ring any more, and a read would come back at once for ever. The
	 * control thread learns of the client's death by the socket; a living client that closed
	 * its end is served while the worker happens to be awake.
	 */
	if (result == 0 ||
	    (result < 0 && result != -ECANCELED && result != -EINTR && result != -EAGAIN))
		queue->doorbell_closed = true;
	if (queue->doorbell_cancelled) {
		queue->doorbell_cancelled = false;
		worker->cancels--;
		worker_client_due(worker, queue->batch.client);
	}
}

static void reap(struct worker *worker)
{
	struct io_uring_cqe *cqe;

	while (io_uring_peek_cqe(&worker->wait.ring, &cqe) == 0) {
		uint64_t data = io_uring_cqe_get_data64(cqe);
		int result = cqe->res;

		io_uring_cqe_seen(&worker->wait.ring, cqe);
		if (data == WAKE_DATA)
			worker->wait.wake_armed = false;
		else if (data == CANCEL_DATA)
			continue;
		else if (data & FENCE_DATA)
			worker_fence_polled(worker, (struct batch *)(uintptr_t)(data & ~FENCE_DATA),
					    result);
		else
			doorbell_rang(worker, data, result);
	}
}

static void get_and_reap(struct worker *worker)
{
	/* With DEFER_TASKRUN completions appear only when the thread asks for them. */
	io_uring_get_events(&worker->wait.ring);
	reap(worker);
}

static void cancel_doorbell(struct worker *worker, struct queue *queue)
{
	if (!queue->doorbell_armed || queue->doorbell_cancelled)
		return;
	queue->doorbell_cancelled = true;
	worker->cancels++; /* until the read's own completion */
	struct io_uring_sqe *sqe = get_sqe(worker);

	while (!sqe) {
		get_and_reap(worker);
		sqe = get_sqe(worker);
	}
	io_uring_prep_cancel64(sqe, doorbell_data(worker, queue->slot), 0);
	io_uring_sqe_set_data64(sqe, CANCEL_DATA);
	io_uring_submit(&worker->wait.ring);
}

static void look(struct worker *worker)
{
	reap(worker); /* peeking enters the kernel where IORING_SQ_TASKRUN says so */
}

/*
 * A poll of the fd and, linked to it, the time that is left; both are handed over at once. The
 * batch stays where it is until the poll's completion, so its address may stand in the request.
 */
static void poll_fence(struct worker *worker, struct batch *batch, int fd, uint32_t events)
{
	while (io_uring_sq_space_left(&worker->wait.ring) < 2) { /* a link must not be cut in two */
		io_uring_submit(&worker->wait.ring);
		if (io_uring_sq_space_left(&worker->wait.ring) < 2)
			get_and_reap(worker);
	}
	struct io_uring_sqe *sqe = io_uring_get_sqe(&worker->wait.ring);

	io_uring_prep_poll_add(sqe, fd, events);
	io_uring_sqe_set_data64(sqe, FENCE_DATA | (uintptr_t)batch);
	if (batch->fence_timeout.tv_sec || batch->fence_timeout.tv_nsec) {
		io_uring_sqe_set_flags(sqe, IOSQE_IO_LINK);
		sqe = io_uring_get_sqe(&worker->wait.ring);
		io_uring_prep_link_timeout(sqe, &batch->fence_timeout, 0);
		io_uring_sqe_set_data64(sqe, CANCEL_DATA);
	}
	batch->fence_armed = true;
	worker->fences++;
	io_uring_submit(&worker->wait.ring);
}

static void cancel_fence(struct worker *worker, struct batch *batch)
{
	struct io_uring_sqe *sqe = get_sqe(worker);

	while (!sqe) {
		get_and_reap(worker);
		sqe = get_sqe(worker);
	}
	io_uring_prep_cancel64(sqe, FENCE_DATA | (uintptr_t)batch, 0);
	io_uring_sqe_set_data64(sqe, CANCEL_DATA);
	io_uring_submit(&worker->wait.ring);
}

/* False where not everything could be armed: then there is no sleeping yet. */
static bool arm(struct worker *worker)
{
	if (!worker->wait.wake_armed) {
		struct io_uring_sqe *sqe = get_sqe(worker);

		if (!sqe)
			return false;
		io_uring_prep_read(sqe, worker->wake_fd, &worker->wait.wake_value,
				   sizeof worker->wait.wake_value, 0);
		io_uring_sqe_set_data64(sqe, WAKE_DATA);
		worker->wait.wake_armed = true;
	}
	for (struct queue *queue = worker->queues; queue; queue = queue->next) {
		if (queue->doorbell_armed || queue->doorbell_closed || queue->stopping ||
		    queue->broken || queue->batch.leaving)
			continue;
		struct io_uring_sqe *sqe = get_sqe(worker);

		if (!sqe)
			return false;
		io_uring_prep_read(sqe, queue->doorbell_fd, queue->doorbell_bytes,
				   sizeof queue->doorbell_bytes, 0);
		io_uring_sqe_set_data64(sqe, doorbell_data(worker, queue->slot));
		queue->doorbell_armed = true;
	}
	return true;
}

static void sleep_in_ring(struct worker *worker)
{
	/* What rang before its read was armed stands in the pipe: nothing is missed. */
	if (arm(worker))
		io_uring_submit_and_wait(&worker->wait.ring, 1);
	else
		io_uring_submit_and_get_events(&worker->wait.ring);
	reap(worker);
}

static const struct worker_wait_ops ops = {
	.free = free_wait,
	.add_queue = add_queue,
	.remove_queue = remove_queue,
	.cancel_doorbell = cancel_doorbell,
	.sleep = sleep_in_ring,
	.reap = get_and_reap,
	.look = look,
	.poll_fence = poll_fence,
	.cancel_fence = cancel_fence,
};

int worker_wait_uring_setup(struct worker *worker)
{
	static const struct uring_use use = {
		.opcodes = {IORING_OP_READ, IORING_OP_POLL_ADD, IORING_OP_LINK_TIMEOUT,
			    IORING_OP_ASYNC_CANCEL},
		.opcode_count = 4,
		.sqe_flags = IOSQE_IO_LINK,
		/*
		 * That completions wait to be asked for stands in memory then, so that looking for
		 * a fence costs no system call.
		 */
		.setup_flags = IORING_SETUP_TASKRUN_FLAG,
	};
	struct uring_made made;
	int r = uring_create(&use, &worker->wait.ring, &made);

	if (r < 0)
		return r;
	worker->wait.ops = &ops;
	worker->wait.kind = LOOP_URING;
	worker->wait.unrestricted = made.unrestricted;
	return 0;
}
