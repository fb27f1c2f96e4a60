/* SPDX-License-Identifier: MIT */
/*
 * The control loop on io_uring: single-shot polls and timeouts, re-armed after each callback.
 * Owns the ring and its requests. Everything here is called on the thread that made the loop.
 */
#include "daemon/loop.h"

#include <errno.h>
#include <liburing.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>

#define RING_ENTRIES 256u /* small: kernels up to 5.11 charge rings to RLIMIT_MEMLOCK */
#define RING_ENTRIES_MIN 8u
#define NS_PER_SECOND UINT64_C(1000000000)

enum request_kind { REQUEST_WATCH, REQUEST_TIMER };

/*
 * What a watch and a timer have in common: at most one request in the kernel that still counts.
 * Each arming takes a new generation; a completion of an older one belongs to nobody and is
 * dropped.
 */
struct request {
	struct loop *loop;
	enum request_kind kind;
	uint32_t index;
	bool in_flight;
	bool ready; /* on the ready list */
	int result;
	struct request *next, *previous;
};

struct loop_watch {
	struct request request; /* first */
	int fd;
	uint32_t events;
	loop_callback callback;
	void *context;
};

struct loop_timer {
	struct request request;		  /* first */
	struct __kernel_timespec timeout; /* read by the kernel when the request is submitted */
	void (*callback)(void *context);
	void *context;
};

/* A place in the table. Its generation goes on when the place is given to another request. */
struct place {
	struct request *request;
	uint32_t generation; /* of the last arming, never 0 */
	uint32_t next_free;
};

#define NO_PLACE UINT32_MAX

struct loop {
	struct io_uring ring;
	const char *description;
	struct place *places;
	uint32_t place_count, free_place;
	struct request *ready_first, *ready_last;
	struct request *current; /* whose callback runs; NULL once it removed itself */
	bool exiting;
	int status;
	int broken; /* a negative errno: the ring can no longer be used */
};

static const struct {
	unsigned int flags;
	const char *description;
} setups[] = {
#if defined(IORING_SETUP_SINGLE_ISSUER) && defined(IORING_SETUP_DEFER_TASKRUN)
	{IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL,
	 "io_uring defer-taskrun"},
#endif
	{IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL, "io_uring coop-taskrun"},
	{0, "io_uring"},
};

int loop_create(struct loop **ret)
{
	struct loop *loop = calloc(1, sizeof(*loop));
	int r = -ENOSYS;

	if (!loop)
		return -ENOMEM;
	loop->free_place = NO_PLACE;
	for (unsigned int entries = RING_ENTRIES; entries >= RING_ENTRIES_MIN; entries /= 2) {
		for (size_t i = 0; i < sizeof(setups) / sizeof(setups[0]); i++) {
			r = io_uring_queue_init(entries, &loop->ring, setups[i].flags);
			if (r == 0) {
				loop->description = setups[i].description;
				*ret = loop;
				return 0;
			}
			if (r != -EINVAL) /* not for want of the flags */
				break;
		}
		if (r != -ENOMEM)
			break;
	}
	free(loop);
	return r;
}

void loop_free(struct loop *loop)
{
	if (!loop)
		return;
	io_uring_queue_exit(&loop->ring);
	free(loop->places);
	free(loop);
}

const char *loop_description(const struct loop *loop)
{
	return loop->description;
}

static int place_take(struct loop *loop, struct request *request)
{
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

	request->loop = loop;
	request->index = loop->free_place;
	loop->free_place = place->next_free;
	place->request = request;
	return 0;
}

static void place_give_back(struct request *request)
{
	struct loop *loop = request->loop;
	struct place *place = &loop->places[request->index];

	place->request = NULL;
	place->next_free = loop->free_place;
	loop->free_place = request->index;
}

/* Never 0, since the generation is not: 0 marks completions that nobody waits for. */
static uint64_t request_user_data(const struct request *request)
{
	return (uint64_t)request->loop->places[request->index].generation << 32 | request->index;
}

static void ready_add(struct request *request)
{
	struct loop *loop = request->loop;

	request->ready = true;
	request->next = NULL;
	request->previous = loop->ready_last;
	if (loop->ready_last)
		loop->ready_last->next = request;
	else
		loop->ready_first = request;
	loop->ready_last = request;
}

static void ready_remove(struct request *request)
{
	struct loop *loop = request->loop;

	if (!request->ready)
		return;
	if (request->previous)
		request->previous->next = request->next;
	else
		loop->ready_first = request->next;
	if (request->next)
		request->next->previous = request->previous;
	else
		loop->ready_last = request->previous;
	request->ready = false;
}

/* Takes every completion out of the ring; calls nobody back. */
static void reap(struct loop *loop)
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

		if (!request || loop->places[index].generation != generation || !request->in_flight)
			continue;
		request->in_flight = false;
		request->result = cqe->res;
		ready_add(request);
	}
	io_uring_cq_advance(&loop->ring, seen);
}

/* Submits what is queued and runs what the kernel has deferred; waits for nothing. */
static void submit(struct loop *loop)
{
	while (!loop->broken) {
		int r = io_uring_submit_and_get_events(&loop->ring);

		if (r == -EBUSY || r == -EAGAIN)
			reap(loop); /* completions overflowed: make room */
		else if (r < 0 && r != -EINTR)
			loop->broken = r;
		else if (io_uring_sq_ready(&loop->ring) == 0)
			return;
	}
}

static struct io_uring_sqe *sqe_take(struct loop *loop)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(&loop->ring);

	if (!sqe) {
		submit(loop);
		sqe = io_uring_get_sqe(&loop->ring);
	}
	return sqe; /* NULL: the ring broke, loop_run() says so */
}

static void arm(struct request *request)
{
	struct io_uring_sqe *sqe = sqe_take(request->loop);
	struct place *place = &request->loop->places[request->index];

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

		io_uring_prep_timeout(sqe, &timer->timeout, 0, 0);
		break;
	}
	}
	sqe->user_data = request_user_data(request);
	request->in_flight = true;
}

/*
 * Afterwards the request will not call back, and the kernel holds neither its file nor its
 * timeout: the removal was submitted, and the deferred work that lets go of the file was run.
 */
static void disarm(struct request *request)
{
	struct loop *loop = request->loop;

	ready_remove(request);
	if (!request->in_flight)
		return;
	request->in_flight = false;

	struct io_uring_sqe *sqe = sqe_take(loop);

	if (!sqe)
		return;
	switch (request->kind) {
	case REQUEST_WATCH:
		io_uring_prep_poll_remove(sqe, request_user_data(request));
		break;
	case REQUEST_TIMER:
		io_uring_prep_timeout_remove(sqe, request_user_data(request), 0);
		break;
	}
	sqe->user_data = 0;
	submit(loop);
	reap(loop);
}

static void request_free(struct request *request)
{
	disarm(request);
	place_give_back(request);
	if (request->loop->current == request)
		request->loop->current = NULL;
	free(request);
}

int loop_watch(struct loop *loop, int fd, uint32_t events, loop_callback callback, void *context,
	       struct loop_watch **ret)
{
	if (loop->broken)
		return loop->broken;

	struct loop_watch *watch = calloc(1, sizeof(*watch));

	if (!watch)
		return -ENOMEM;
	*watch = (struct loop_watch){
		.request.kind = REQUEST_WATCH,
		.fd = fd,
		.events = events,
		.callback = callback,
		.context = context,
	};

	int r = place_take(loop, &watch->request);

	if (r < 0) {
		free(watch);
		return r;
	}
	if (events)
		arm(&watch->request);
	*ret = watch;
	return 0;
}

void loop_rewatch(struct loop_watch *watch, uint32_t events)
{
	struct request *request = &watch->request;

	if (events == watch->events)
		return;
	watch->events = events;
	if (request->loop->current == request)
		return; /* armed after its callback */
	disarm(request);
	if (events)
		arm(request);
}

void loop_unwatch(struct loop_watch *watch)
{
	if (watch)
		request_free(&watch->request);
}

int loop_timer_create(struct loop *loop, void (*callback)(void *context), void *context,
		      struct loop_timer **ret)
{
	struct loop_timer *timer = calloc(1, sizeof(*timer));

	if (!timer)
		return -ENOMEM;
	*timer = (struct loop_timer){
		.request.kind = REQUEST_TIMER,
		.callback = callback,
		.context = context,
	};

	int r = place_take(loop, &timer->request);

	if (r < 0) {
		free(timer);
		return r;
	}
	*ret = timer;
	return 0;
}

int loop_timer_set(struct loop_timer *timer, uint64_t ns)
{
	struct request *request = &timer->request;

	disarm(request);
	if (request->loop->broken)
		return request->loop->broken;
	timer->timeout.tv_sec = (int64_t)(ns / NS_PER_SECOND);
	timer->timeout.tv_nsec = (long long)(ns % NS_PER_SECOND);
	arm(request);
	return request->in_flight ? 0 : request->loop->broken;
}

void loop_timer_cancel(struct loop_timer *timer)
{
	disarm(&timer->request);
}

void loop_timer_free(struct loop_timer *timer)
{
	if (timer)
		request_free(&timer->request);
}

/* Why a poll failed, in the words of poll(2). */
static uint32_t poll_result(int result)
{
	if (result >= 0)
		return (uint32_t)result;
	return result == -EBADF ? POLLNVAL : POLLERR;
}

static void call_back(struct request *request)
{
	struct loop *loop = request->loop;

	loop->current = request;
	switch (request->kind) {
	case REQUEST_WATCH: {
		struct loop_watch *watch = (struct loop_watch *)request;

		/* Cancelled, and not by us (that would have taken another generation). */
		if (request->result != -ECANCELED)
			watch->callback(watch->context, poll_result(request->result));
		if (loop->current && watch->events)
			arm(request);
		break;
	}
	case REQUEST_TIMER: {
		struct loop_timer *timer = (struct loop_timer *)request;

		timer->callback(timer->context);
		break;
	}
	}
	loop->current = NULL;
}

int loop_run(struct loop *loop)
{
	loop->exiting = false;
	while (!loop->exiting && !loop->broken) {
		if (loop->ready_first) {
			submit(loop);
		} else {
			int r = io_uring_submit_and_wait(&loop->ring, 1);

			if (r < 0 && r != -EINTR && r != -EBUSY && r != -EAGAIN)
				loop->broken = r;
		}
		reap(loop);

		/* No further than here in this turn: what becomes ready meanwhile waits for the
		 * next, after a look at the kernel. */
		struct request *last = loop->ready_last;

		while (last && loop->ready_first && !loop->exiting) {
			struct request *request = loop->ready_first;

			if (request == last)
				last = NULL;
			ready_remove(request);
			call_back(request);
		}
	}
	return loop->broken ? loop->broken : loop->status;
}

void loop_exit(struct loop *loop, int status)
{
	loop->exiting = true;
	loop->status = status;
}
