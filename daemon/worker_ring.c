/* SPDX-License-Identifier: MIT */
/*
 * What a worker waits for, in one io_uring: doorbells, its wake-up eventfd, fences. Reads are armed
 * only when going to sleep, so that an awake worker makes no system call. Worker thread only.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker_internal.h"

#define RING_ENTRIES 256u
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
	return (uint64_t)(worker->generations[slot] & GENERATION_MASK) << 32 | slot;
}

int worker_ring_setup(struct worker *worker)
{
	/*
	 * Tried in turn: 6.1 and later, 5.19 and later, any. TASKRUN_FLAG: that completions wait to
	 * be asked for stands in memory, so that looking for a fence costs no system call.
	 */
	static const unsigned flags[] = {
		IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN |
			IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
		IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_SUBMIT_ALL,
		0,
	};
	int r = -EINVAL;

	for (unsigned entries = RING_ENTRIES; entries >= 8; entries /= 2) {
		for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
			r = io_uring_queue_init(entries, &worker->ring, flags[i]);
			if (r != -EINVAL)
				break;
		}
		if (r != -ENOMEM) /* charged to RLIMIT_MEMLOCK up to 5.11: halve */
			break;
	}
	return r;
}

void worker_ring_free(struct worker *worker)
{
	io_uring_queue_exit(&worker->ring);
}

int worker_ring_add_queue(struct worker *worker, struct queue *queue)
{
	for (uint32_t i = 0; i < worker->slot_count; i++) {
		if (!worker->slots[i]) {
			worker->slots[i] = queue;
			worker->generations[i]++;
			queue->slot = i;
			return 0;
		}
	}

	uint32_t count = worker->slot_count ? worker->slot_count * 2 : 16;
	struct queue **slots = realloc(worker->slots, count * sizeof *slots);

	if (!slots)
		return -ENOMEM;
	worker->slots = slots;
	uint32_t *generations = realloc(worker->generations, count * sizeof *generations);

	if (!generations)
		return -ENOMEM;
	worker->generations = generations;
	memset(slots + worker->slot_count, 0, (count - worker->slot_count) * sizeof *slots);
	memset(generations + worker->slot_count, 0,
	       (count - worker->slot_count) * sizeof *generations);
	queue->slot = worker->slot_count;
	slots[queue->slot] = queue;
	worker->slot_count = count;
	return 0;
}

void worker_ring_remove_queue(struct worker *worker, struct queue *queue)
{
	worker->slots[queue->slot] = NULL;
}

/* NULL where the kernel takes no more until its completions were reaped (-EBUSY, -EAGAIN). */
static struct io_uring_sqe *get_sqe(struct worker *worker)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&worker->ring);

	if (!sqe) { /* full: hand over what is there */
		io_uring_submit(&worker->ring);
		sqe = io_uring_get_sqe(&worker->ring);
	}
	return sqe;
}

void worker_ring_cancel_doorbell(struct worker *worker, struct queue *queue)
{
	if (!queue->doorbell_armed || queue->doorbell_cancelled)
		return;
	queue->doorbell_cancelled = true;
	worker->cancels++; /* until the read's own completion */
	struct io_uring_sqe *sqe = get_sqe(worker);

	while (!sqe) {
		worker_ring_reap(worker);
		sqe = get_sqe(worker);
	}
	io_uring_prep_cancel64(sqe, doorbell_data(worker, queue->slot), 0);
	io_uring_sqe_set_data64(sqe, CANCEL_DATA);
	io_uring_submit(&worker->ring);
}

static void doorbell_rang(struct worker *worker, uint64_t data, int result)
{
	uint32_t slot = (uint32_t)data;
	struct queue *queue = slot < worker->slot_count ? worker->slots[slot] : NULL;

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

	while (io_uring_peek_cqe(&worker->ring, &cqe) == 0) {
		uint64_t data = io_uring_cqe_get_data64(cqe);
		int result = cqe->res;

		io_uring_cqe_seen(&worker->ring, cqe);
		if (data == WAKE_DATA)
			worker->wake_armed = false;
		else if (data == CANCEL_DATA)
			continue;
		else if (data & FENCE_DATA)
			worker_fence_polled(worker, (struct batch *)(uintptr_t)(data & ~FENCE_DATA),
					    result);
		else
			doorbell_rang(worker, data, result);
	}
}

void worker_ring_reap(struct worker *worker)
{
	/* With DEFER_TASKRUN completions appear only when the thread asks for them. */
	io_uring_get_events(&worker->ring);
	reap(worker);
}

void worker_ring_look(struct worker *worker)
{
	reap(worker); /* peeking enters the kernel where IORING_SQ_TASKRUN says so */
}

/*
 * A poll of the fd and, linked to it, the time that is left; both are handed over at once. The
 * batch stays where it is until the poll's completion, so its address may stand in the request.
 */
void worker_ring_poll_fence(struct worker *worker, struct batch *batch, int fd, uint32_t events)
{
	while (io_uring_sq_space_left(&worker->ring) < 2) { /* a link must not be cut in two */
		io_uring_submit(&worker->ring);
		if (io_uring_sq_space_left(&worker->ring) < 2)
			worker_ring_reap(worker);
	}
	struct io_uring_sqe *sqe = io_uring_get_sqe(&worker->ring);

	io_uring_prep_poll_add(sqe, fd, events);
	io_uring_sqe_set_data64(sqe, FENCE_DATA | (uintptr_t)batch);
	if (batch->fence_timeout.tv_sec || batch->fence_timeout.tv_nsec) {
		io_uring_sqe_set_flags(sqe, IOSQE_IO_LINK);
		sqe = io_uring_get_sqe(&worker->ring);
		io_uring_prep_link_timeout(sqe, &batch->fence_timeout, 0);
		io_uring_sqe_set_data64(sqe, CANCEL_DATA);
	}
	batch->fence_armed = true;
	worker->fences++;
	io_uring_submit(&worker->ring);
}

void worker_ring_cancel_fence(struct worker *worker, struct batch *batch)
{
	struct io_uring_sqe *sqe = get_sqe(worker);

	while (!sqe) {
		worker_ring_reap(worker);
		sqe = get_sqe(worker);
	}
	io_uring_prep_cancel64(sqe, FENCE_DATA | (uintptr_t)batch, 0);
	io_uring_sqe_set_data64(sqe, CANCEL_DATA);
	io_uring_submit(&worker->ring);
}

/* False where not everything could be armed: then there is no sleeping yet. */
static bool arm(struct worker *worker)
{
	if (!worker->wake_armed) {
		struct io_uring_sqe *sqe = get_sqe(worker);

		if (!sqe)
			return false;
		io_uring_prep_read(sqe, worker->wake_fd, &worker->wake_value,
				   sizeof worker->wake_value, 0);
		io_uring_sqe_set_data64(sqe, WAKE_DATA);
		worker->wake_armed = true;
	}
	for (struct queue *queue = worker->queues; queue; queue = queue->next) {
		if (queue->doorbell_armed || queue->doorbell_closed || queue->stopping ||
		    queue->broken)
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

void worker_ring_sleep(struct worker *worker)
{
	/* What rang before its read was armed stands in the pipe: nothing is missed. */
	if (arm(worker))
		io_uring_submit_and_wait(&worker->ring, 1);
	else
		io_uring_submit_and_get_events(&worker->ring);
	reap(worker);
}
