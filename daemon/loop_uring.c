/* SPDX-License-Identifier: MIT */
/*
 * The control loop on io_uring: single-shot polls and timeouts, re-armed after each callback.
 * Owns the ring and its requests. Control thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/loop_internal.h"
#include "daemon/uring.h"

#define NS_PER_SECOND UINT64_C(1000000000)

/*
 * A place in the table. Each arming takes a new generation, also when the place was given to
 * another request: a completion of an older one belongs to nobody and is dropped.
 */
struct place {
	struct request *request;
	uint32_t generation; /* of the last arming, never 0 */
	uint32_t next_free;
};

#define NO_PLACE UINT32_MAX

struct uring_loop {
	struct loop loop; /* first */
	struct io_uring ring;
	struct place *places;
	uint32_t place_count, free_place;
};

static const struct uring_use use = {
	.opcodes = {IORING_OP_POLL_ADD, IORING_OP_POLL_REMOVE, IORING_OP_TIMEOUT,
		    IORING_OP_TIMEOUT_REMOVE},
	.opcode_count = 4,
};

static struct uring_loop *uring_of(struct request *request)
{
	return (struct uring_loop *)request->loop;
}

static void free_loop(struct loop *base)
{
	struct uring_loop *loop = (struct uring_loop *)base;

	io_uring_queue_exit(&loop->ring);
	free(loop->places);
	free(loop);
}

static int place_take(struct request *request)
{
	struct uring_loop *loop = uring_of(request);

	if (loop->free_place == NO_PLACE) {
		uint32_t count = loop->place_count ? loop->place_count * 2 : 64;
		struct place *places = reallocarray(loop->places, count, sizeof(*places));

		if (!places)
			return -ENOMEM;
		for (uint32_t i = loop->place_count; i < count; i++)
			places[i] = (struct place){
				.generation = 1,
				.next_free = i + 1 < count ? i + 1 : NO_PLACE,
			};
		loop->free_place = loop->place_count;
		loop->places = places;
		loop->place_count = count;
	}

	struct place *place = &loop->places[loop->free_place];

	request->index = loop->free_place;
	loop->free_place = place->next_free;
	place->request = request;
	return 0;
}

static void place_give_back(struct request *request)
{
	struct uring_loop *loop = uring_of(request);
	struct place *place = &loop->places[request->index];

	place->request = NULL;
	place->next_free = loop->free_place;
	loop->free_place = request->index;
}

/* Never 0, since the generation is not: 0 marks completions that nobody waits for. */
static uint64_t request_user_data(const struct uring_loop *loop, const struct request *request)
{
	return (uint64_t)loop->places[request->index].generation << 32 | request->index;
}

/* Takes every completion out of the ring; calls nobody back. */
static void reap(struct uring_loop *loop)
{
	struct io_uring_cqe *cqe;
	unsigned int head, seen = 0;

	io_uring_for_each_cqe(&loop->ring, head, cqe)
	{
		uint32_t index = (uint32_t)cqe->user_data;
		uint32_t generation = (uint32_t)(cqe->user_data >> 32);

		seen++;
		if (cqe->user_data == 0 || index >= loop->place_count)
			continue;

		struct request *request = loop->places[index].request;

		if (!request || loop->places[index].generation != generation || !request->armed)
			continue;
		request->armed = false;
		loop_ready(request, cqe->res);
	}
	io_uring_cq_advance(&loop->ring, seen);
}

/* Submits what is queued and runs what the kernel has deferred; waits for nothing. */
static void submit(struct uring_loop *loop)
{
	while (!loop->loop.broken) {
		int r = io_uring_submit_and_get_events(&loop->ring);

		if (r == -EBUSY || r == -EAGAIN)
			reap(loop); /* completions overflowed: make room */
		else if (r < 0 && r != -EINTR)
			loop->loop.broken = r;
		else if (io_uring_sq_ready(&loop->ring) == 0)
			return;
	}
}

static struct io_uring_sqe *sqe_take(struct uring_loop *loop)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&loop->ring);

	if (!sqe) {
		submit(loop);
		sqe = io_uring_get_sqe(&loop->ring);
	}
	return sqe; /* NULL: the ring broke, loop_run() says so */
}

/*
 * Afterwards the kernel holds neither the request's file nor its timeout: the removal was
 * submitted, and the deferred work that lets go of the file was run.
 */
static void disarm(struct request *request)
{
	struct uring_loop *loop = uring_of(request);

	request->armed = false; /* before the ring is reaped */

	struct io_uring_sqe *sqe = sqe_take(loop);

	if (!sqe)
		return;
	switch (request->kind) {
	case REQUEST_WATCH:
		io_uring_prep_poll_remove(sqe, request_user_data(loop, request));
		break;
	case REQUEST_TIMER:
		io_uring_prep_timeout_remove(sqe, request_user_data(loop, request), 0);
		break;
	}
	sqe->user_data = 0;
	submit(loop);
	reap(loop);
}

static void arm(struct request *request)
{
	struct uring_loop *loop = uring_of(request);

	if (request->armed) /* for other events */
		disarm(request);

	struct io_uring_sqe *sqe = sqe_take(loop);
	struct place *place = &loop->places[request->index];

	if (!sqe)
		return;
	if (++place->generation == 0)
		place->generation = 1;
	switch (request->kind) {
	case REQUEST_WATCH: {
		const struct loop_watch *watch = (const struct loop_watch *)request;

		io_uring_prep_poll_add(sqe, watch->fd, watch->events);
		break;
	}
	case REQUEST_TIMER: {
		struct loop_timer *timer = (struct loop_timer *)request;

		timer->timeout.tv_sec = (int64_t)(timer->ns / NS_PER_SECOND);
		timer->timeout.tv_nsec = (long long)(timer->ns % NS_PER_SECOND);
		io_uring_prep_timeout(sqe, &timer->timeout, 0, 0);
		break;
	}
	}
	sqe->user_data = request_user_data(loop, request);
	request->armed = true;
}

static void wait_for_kernel(struct loop *base, bool block)
{
	struct uring_loop *loop = (struct uring_loop *)base;

	if (!block) {
		submit(loop);
	} else {
		int r = io_uring_submit_and_wait(&loop->ring, 1);

		if (r < 0 && r != -EINTR && r != -EBUSY && r != -EAGAIN)
			base->broken = r;
	}
	reap(loop);
}

struct io_uring *loop_uring_ring(struct loop *loop)
{
	return &((struct uring_loop *)loop)->ring;
}

static const struct loop_backend backend = {
	.free = free_loop,
	.add = place_take,
	.remove = place_give_back,
	.arm = arm,
	.disarm = disarm,
	.wait = wait_for_kernel,
};

int loop_uring_create(struct loop **ret)
{
	struct uring_loop *loop = calloc(1, sizeof(*loop));
	struct uring_made made;

	if (!loop)
		return -ENOMEM;

	int r = uring_create(&use, &loop->ring, &made);

	if (r < 0) {
		free(loop);
		return r;
	}
	loop->free_place = NO_PLACE;
	loop->loop = (struct loop){
		.backend = &backend,
		.kind = LOOP_URING,
		.name = made.name,
		.unrestricted = made.unrestricted,
	};
	*ret = &loop->loop;
	return 0;
}
