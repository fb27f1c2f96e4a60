/* SPDX-License-Identifier: MIT */
/*
 * What a worker waits for, in epoll: doorbells and its wake-up eventfd, registered once, and the
 * fences in an epoll of their own, so that a worker at work looks at these alone. Worker thread
 * only.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/worker_internal.h"

#define EVENTS 64
#define WAKE_DATA UINT64_MAX
#define FENCES_DATA (UINT64_MAX - 1) /* else the address of a queue */

static int control(int epoll_fd, int operation, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event event = {.events = events, .data.u64 = data};

	return epoll_ctl(epoll_fd, operation, fd, &event) < 0 ? -errno : 0;
}

/* ---- doorbells ---- */

static int add_queue(struct worker *worker, struct queue *queue)
{
	/*
	 * This end's description is ours alone, and so is its flag. A client can open a read end of
	 * its own through /proc/self/fd and take the bytes before us: the read must not wait then.
	 */
	if (fcntl(queue->doorbell_fd, F_SETFL, O_NONBLOCK) < 0)
		return -errno;

	int r = control(worker->wait.epoll_fd, EPOLL_CTL_ADD, queue->doorbell_fd, EPOLLIN,
			(uintptr_t)queue);

	if (r == 0)
		queue->doorbell_armed = true;
	return r;
}

static void cancel_doorbell(struct worker *worker, struct queue *queue)
{
	if (!queue->doorbell_armed)
		return;
	control(worker->wait.epoll_fd, EPOLL_CTL_DEL, queue->doorbell_fd, 0, 0);
	queue->doorbell_armed = false;
}

static void remove_queue(struct worker *worker, struct queue *queue)
{
	cancel_doorbell(worker, queue);
}

/*
 * The pipe is emptied, else it would ring for ever. At its end nobody can ring any more, and it
 * would tell so for ever: it is looked at no more. The control thread learns of the client's death
 * by the socket; a living client that closed its end is served while the worker happens to be
 * awake.
 */
static void doorbell_rang(struct worker *worker, struct queue *queue)
{
	ssize_t n = read(queue->doorbell_fd, queue->doorbell_bytes, sizeof queue->doorbell_bytes);

	worker_watch_soon(worker, queue);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		queue->doorbell_closed = true;
	if (queue->doorbell_closed || queue->stopping || queue->broken)
		cancel_doorbell(worker, queue);
}

/* ---- fences ---- */

static struct batch **list_of(struct worker *worker, int fd)
{
	return &worker->wait.fences[(uint32_t)fd % WORKER_FENCE_LISTS];
}

/* What all batches that wait for this file wait for: an epoll has each file once. */
static uint32_t events_of(struct worker *worker, int fd)
{
	uint32_t events = 0;

	for (const struct batch *batch = *list_of(worker, fd); batch; batch = batch->fence_next)
		if (batch->fence_fd == fd)
			events |= batch->fence_events;
	return events;
}

static int ask_for(struct worker *worker, int fd, uint32_t before)
{
	uint32_t events = events_of(worker, fd);
	int operation = EPOLL_CTL_MOD;

	if (events == before)
		return 0;
	if (events == 0)
		operation = EPOLL_CTL_DEL;
	else if (before == 0)
		operation = EPOLL_CTL_ADD;
	return control(worker->wait.fences_fd, operation, fd, events, (uint64_t)fd);
}

static void take_out(struct worker *worker, struct batch *batch)
{
	if (batch->fence_previous)
		batch->fence_previous->fence_next = batch->fence_next;
	else
		*list_of(worker, batch->fence_fd) = batch->fence_next;
	if (batch->fence_next)
		batch->fence_next->fence_previous = batch->fence_previous;
	if (batch->fence_deadline_ns != UINT64_MAX)
		deadlines_remove(&worker->wait.deadlines, &batch->fence_timer);
}

static void cancel_fence(struct worker *worker, struct batch *batch)
{
	int fd = batch->fence_fd;
	uint32_t before = events_of(worker, fd);

	take_out(worker, batch);
	ask_for(worker, fd, before);
	worker_fence_polled(worker, batch, -ECANCELED);
}

/*
 * The file is out of the epoll again before its batch ends, and its buffer keeps it open until
 * then: kernels before 6.10 ("epoll: be better about file lifetimes") must not look at a dma-buf
 * whose last descriptor is being closed.
 */
static void poll_fence(struct worker *worker, struct batch *batch, int fd, uint32_t events)
{
	struct batch **list = list_of(worker, fd);
	uint32_t before = events_of(worker, fd);

	batch->fence_fd = fd;
	batch->fence_events = events;
	batch->fence_next = *list;
	batch->fence_previous = NULL;
	if (*list)
		(*list)->fence_previous = batch;
	*list = batch;
	if (batch->fence_deadline_ns != UINT64_MAX) {
		batch->fence_timer.ns = batch->fence_deadline_ns;
		deadlines_add(&worker->wait.deadlines, &batch->fence_timer);
	}
	batch->fence_armed = true;
	worker->fences++;

	int r = ask_for(worker, fd, before);

	if (r < 0) {
		take_out(worker, batch);
		worker_fence_polled(worker, batch, r);
	}
}

static void fence_signalled(struct worker *worker, int fd, uint32_t events)
{
	uint32_t before = events_of(worker, fd);

	for (struct batch *batch = *list_of(worker, fd), *next; batch; batch = next) {
		next = batch->fence_next;
		if (batch->fence_fd != fd ||
		    !(events & (batch->fence_events | EPOLLERR | EPOLLHUP)))
			continue;
		take_out(worker, batch);
		worker_fence_polled(worker, batch, (int)events);
	}
	ask_for(worker, fd, before);
}

static void expire(struct worker *worker)
{
	struct deadlines *deadlines = &worker->wait.deadlines;
	uint64_t now = deadlines->first ? clock_ns() : 0;

	while (deadlines->first && deadlines->first->ns <= now)
		cancel_fence(worker, (struct batch *)((char *)deadlines->first -
						      offsetof(struct batch, fence_timer)));
}

static void look(struct worker *worker)
{
	struct epoll_event events[EVENTS];
	int n = epoll_wait(worker->wait.fences_fd, events, EVENTS, 0);

	for (int i = 0; i < n; i++)
		fence_signalled(worker, (int)events[i].data.u64, events[i].events);
	expire(worker);
}

/* ---- both ---- */

/* Nothing is let go of in here, so the queues of all events are still there. */
static void sleep_in_epoll(struct worker *worker)
{
	struct epoll_event events[EVENTS];
	const struct deadlines *deadlines = &worker->wait.deadlines;
	uint64_t now = deadlines->first ? clock_ns() : 0;
	/* What rang before stands in the pipe, and is told at once: nothing is missed. */
	int n = epoll_wait(worker->wait.epoll_fd, events, EVENTS,
			   deadlines_timeout_ms(deadlines, now));

	for (int i = 0; i < n; i++) {
		uint64_t data = events[i].data.u64;

		if (data == WAKE_DATA) {
			uint64_t value;
			/* Told readable, and ours alone to read: this does not wait. */
			ssize_t r = read(worker->wake_fd, &value, sizeof value);

			(void)r;
		} else if (data != FENCES_DATA) {
			doorbell_rang(worker, (struct queue *)(uintptr_t)data);
		}
	}
	if (worker->fences)
		look(worker);
}

static void free_wait(struct worker *worker)
{
	close(worker->wait.fences_fd);
	close(worker->wait.epoll_fd);
}

static const struct worker_wait_ops ops = {
	.free = free_wait,
	.add_queue = add_queue,
	.remove_queue = remove_queue,
	.cancel_doorbell = cancel_doorbell,
	.sleep = sleep_in_epoll,
	.reap = look, /* nothing else is outstanding: cancelling a doorbell takes effect at once */
	.look = look,
	.poll_fence = poll_fence,
	.cancel_fence = cancel_fence,
};

int worker_wait_epoll_setup(struct worker *worker)
{
	struct worker_wait *wait = &worker->wait;
	int r;

	wait->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (wait->epoll_fd < 0)
		return -errno;
	wait->fences_fd = epoll_create1(EPOLL_CLOEXEC);
	r = wait->fences_fd < 0 ? -errno : 0;
	if (r == 0)
		r = control(wait->epoll_fd, EPOLL_CTL_ADD, worker->wake_fd, EPOLLIN, WAKE_DATA);
	if (r == 0)
		r = control(wait->epoll_fd, EPOLL_CTL_ADD, wait->fences_fd, EPOLLIN, FENCES_DATA);
	if (r < 0) {
		if (wait->fences_fd >= 0)
			close(wait->fences_fd);
		close(wait->epoll_fd);
		return r;
	}
	wait->ops = &ops;
	wait->kind = LOOP_EPOLL;
	return 0;
}
