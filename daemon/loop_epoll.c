/* SPDX-License-Identifier: MIT */
/*
 * The control loop on epoll, for kernels that refuse io_uring: level-triggered watches, and timers
 * in a heap whose earliest one bounds the wait. Owns the epoll. Control thread.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/loop_internal.h"

#define EVENTS 64

static_assert(POLLIN == EPOLLIN && POLLPRI == EPOLLPRI && POLLOUT == EPOLLOUT &&
		      POLLERR == EPOLLERR && POLLHUP == EPOLLHUP,
	      "events go through as they are");

struct epoll_loop {
	struct loop loop; /* first */
	int fd;
	struct deadlines deadlines;
};

static struct epoll_loop *epoll_of(struct request *request)
{
	return (struct epoll_loop *)request->loop;
}

static void free_loop(struct loop *base)
{
	struct epoll_loop *loop = (struct epoll_loop *)base;

	close(loop->fd);
	free(loop);
}

/*
 * One without events is paused. Epoll tells a hang-up even then, and with EPOLLONESHOT once at
 * most. It stays registered, since to register it again might fail.
 */
static int control(struct loop_watch *watch, int operation)
{
	struct epoll_event event = {
		.events = watch->events ? watch->events : EPOLLONESHOT,
		.data.ptr = watch,
	};

	if (epoll_ctl(epoll_of(&watch->request)->fd, operation, watch->fd, &event) < 0)
		return -errno;
	watch->request.armed = watch->events != 0;
	watch->request.in_epoll = watch->events;
	return 0;
}

static int add(struct request *request)
{
	switch (request->kind) {
	case REQUEST_WATCH:
		return control((struct loop_watch *)request, EPOLL_CTL_ADD);
	case REQUEST_TIMER:
		break;
	}
	return 0;
}

static void modify(struct request *request)
{
	int r = control((struct loop_watch *)request, EPOLL_CTL_MOD);

	if (r < 0)
		request->loop->broken = r;
}

static void arm(struct request *request)
{
	switch (request->kind) {
	case REQUEST_WATCH:
		if (request->in_epoll != ((struct loop_watch *)request)->events)
			modify(request);
		break;
	case REQUEST_TIMER: {
		struct loop_timer *timer = (struct loop_timer *)request;

		if (__builtin_add_overflow(clock_ns(), timer->ns, &timer->deadline.ns))
			timer->deadline.ns = UINT64_MAX;
		deadlines_add(&epoll_of(request)->deadlines, &timer->deadline);
		request->armed = true;
		break;
	}
	}
}

static void disarm(struct request *request)
{
	switch (request->kind) {
	case REQUEST_WATCH: /* paused, or about to be removed */
		if (((struct loop_watch *)request)->events == 0)
			modify(request);
		break;
	case REQUEST_TIMER:
		deadlines_remove(&epoll_of(request)->deadlines,
				 &((struct loop_timer *)request)->deadline);
		request->armed = false;
		break;
	}
}

static void remove_request(struct request *request)
{
	switch (request->kind) {
	case REQUEST_WATCH:
		/* Not left to close(): what was received from a client may be open elsewhere. */
		epoll_ctl(epoll_of(request)->fd, EPOLL_CTL_DEL, ((struct loop_watch *)request)->fd,
			  NULL);
		break;
	case REQUEST_TIMER:
		break;
	}
}

static void expire(struct epoll_loop *loop)
{
	uint64_t now = loop->deadlines.first ? clock_ns() : 0;

	while (loop->deadlines.first && loop->deadlines.first->ns <= now) {
		struct deadline *deadline = loop->deadlines.first;
		struct loop_timer *timer =
			(struct loop_timer *)((char *)deadline -
					      offsetof(struct loop_timer, deadline));

		deadlines_remove(&loop->deadlines, deadline);
		timer->request.armed = false;
		loop_ready(&timer->request, 0);
	}
}

static void wait_for_kernel(struct loop *base, bool block)
{
	struct epoll_loop *loop = (struct epoll_loop *)base;
	struct epoll_event events[EVENTS];
	int timeout_ms = 0;

	if (block)
		timeout_ms = loop->deadlines.first
				     ? deadlines_timeout_ms(&loop->deadlines, clock_ns())
				     : -1;

	int n = epoll_wait(loop->fd, events, EVENTS, timeout_ms);

	if (n < 0 && errno != EINTR)
		base->broken = -errno;
	for (int i = 0; i < n; i++) {
		struct loop_watch *watch = events[i].data.ptr;

		if (watch->request.armed)
			loop_ready(&watch->request, (int)events[i].events);
	}
	expire(loop);
}

static const struct loop_backend backend = {
	.free = free_loop,
	.add = add,
	.remove = remove_request,
	.arm = arm,
	.disarm = disarm,
	.wait = wait_for_kernel,
};

int loop_epoll_create(struct loop **ret)
{
	struct epoll_loop *loop = calloc(1, sizeof(*loop));

	if (!loop)
		return -ENOMEM;
	loop->fd = epoll_create1(EPOLL_CLOEXEC);
	if (loop->fd < 0) {
		int r = -errno;

		free(loop);
		return r;
	}
	loop->loop = (struct loop){.backend = &backend, .kind = LOOP_EPOLL, .name = "epoll"};
	*ret = &loop->loop;
	return 0;
}
