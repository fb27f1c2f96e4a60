/* SPDX-License-Identifier: MIT */
/*
 * The control loop, whatever it waits in: its watches and timers, which of them are ready, and
 * their callbacks. Owns both. Everything here is called on the thread that made the loop.
 */
#include "daemon/loop.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/loop_internal.h"

static const char *const kind_names[] = {
	[LOOP_AUTO] = "auto",
	[LOOP_URING] = "uring",
	[LOOP_EPOLL] = "epoll",
};

int loop_kind_from_name(const char *name)
{
	for (size_t i = 0; i < sizeof(kind_names) / sizeof(kind_names[0]); i++) {
		if (strcmp(name, kind_names[i]) == 0)
			return (int)i;
	}
	return -EINVAL;
}

const char *loop_kind_name(enum loop_kind kind)
{
	return kind_names[kind];
}

int loop_create(enum loop_kind kind, struct loop **ret)
{
	int refused = 0;

	if (kind != LOOP_EPOLL) {
		int r = loop_uring_create(ret);

		if (r == 0 || kind == LOOP_URING)
			return r;
		refused = r;
	}

	int r = loop_epoll_create(ret);

	if (r == 0)
		(*ret)->refused = refused;
	return r;
}

void loop_free(struct loop *loop)
{
	if (loop)
		loop->backend->free(loop);
}

const char *loop_name(const struct loop *loop)
{
	return loop->name;
}

enum loop_kind loop_kind(const struct loop *loop)
{
	return loop->kind;
}

int loop_refused(const struct loop *loop)
{
	return loop->refused;
}

int loop_unrestricted(const struct loop *loop)
{
	return loop->unrestricted;
}

void loop_ready(struct request *request, int result)
{
	struct loop *loop = request->loop;

	request->result = result;
	if (request->ready)
		return; /* not called back yet since it was told last */
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

static int request_add(struct loop *loop, struct request *request, enum request_kind kind)
{
	request->loop = loop;
	request->kind = kind;

	int r = loop->broken ? loop->broken : loop->backend->add(request);

	if (r < 0)
		free(request);
	return r;
}

static void request_disarm(struct request *request)
{
	ready_remove(request);
	if (request->armed)
		request->loop->backend->disarm(request);
}

static void request_free(struct request *request)
{
	request_disarm(request);
	request->loop->backend->remove(request);
	if (request->loop->current == request)
		request->loop->current = NULL;
	free(request);
}

static void watch_arm(struct loop_watch *watch)
{
	struct loop *loop = watch->request.loop;

	if (watch->events)
		loop->backend->arm(&watch->request);
	else if (watch->request.armed)
		loop->backend->disarm(&watch->request);
}

int loop_watch(struct loop *loop, int fd, uint32_t events, loop_callback callback, void *context,
	       struct loop_watch **ret)
{
	struct loop_watch *watch = calloc(1, sizeof(*watch));

	if (!watch)
		return -ENOMEM;
	watch->fd = fd;
	watch->events = events;
	watch->callback = callback;
	watch->context = context;

	int r = request_add(loop, &watch->request, REQUEST_WATCH);

	if (r < 0)
		return r;
	watch_arm(watch);
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
	ready_remove(request);
	watch_arm(watch);
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
	timer->callback = callback;
	timer->context = context;

	int r = request_add(loop, &timer->request, REQUEST_TIMER);

	if (r < 0)
		return r;
	*ret = timer;
	return 0;
}

int loop_timer_set(struct loop_timer *timer, uint64_t ns)
{
	struct request *request = &timer->request;

	request_disarm(request);
	if (request->loop->broken)
		return request->loop->broken;
	timer->ns = ns;
	request->loop->backend->arm(request);
	return request->armed ? 0 : request->loop->broken;
}

void loop_timer_cancel(struct loop_timer *timer)
{
	request_disarm(&timer->request);
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

		/* Cancelled, and not by us: we would not have heard of it. */
		if (request->result != -ECANCELED)
			watch->callback(watch->context, poll_result(request->result));
		if (loop->current)
			watch_arm(watch);
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
		loop->backend->wait(loop, !loop->ready_first);

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
