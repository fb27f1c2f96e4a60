/* SPDX-License-Identifier: MIT */
/* See loop_here.h. */
#include "loop_here.h"

#include <errno.h>
#include <poll.h>

#include "daemon/loop_internal.h"
#include "fuzz.h"

#define REQUESTS_MAX 64u

static struct request *requests[REQUESTS_MAX];
static uint32_t request_count;
static bool looked, called_back, timers_due;

static int add(struct request *request)
{
	claim(request_count < REQUESTS_MAX);
	requests[request_count++] = request;
	return 0;
}

static void remove_request(struct request *request)
{
	for (uint32_t i = 0; i < request_count; i++) {
		if (requests[i] != request)
			continue;
		requests[i] = requests[--request_count];
		return;
	}
	claim(false); /* it is none of the loop's */
}

static void arm(struct request *request)
{
	request->armed = true;
}

static void disarm(struct request *request)
{
	request->armed = false;
}

/* Looks once in loop_run(), and ends it the second time. */
static void look(struct loop *base, bool block)
{
	struct pollfd polled[REQUESTS_MAX];

	(void)block;
	if (looked) {
		loop_exit(base, 0);
		return;
	}
	looked = true;
	for (uint32_t i = 0; i < request_count; i++) {
		const struct loop_watch *watch = (struct loop_watch *)requests[i];
		bool waits = requests[i]->armed && requests[i]->kind == REQUEST_WATCH;

		polled[i] = (struct pollfd){.fd = waits ? watch->fd : -1,
					    .events = waits ? (short)watch->events : (short)0};
	}
	claim(poll(polled, request_count, 0) >= 0 || errno == EINTR);
	for (uint32_t i = 0; i < request_count; i++) {
		bool timer = requests[i]->kind == REQUEST_TIMER;

		if (!requests[i]->armed || !(timer ? timers_due : polled[i].revents != 0))
			continue;
		claim(!(polled[i].revents & POLLNVAL)); /* closed while it was watched */
		requests[i]->armed = !timer;
		loop_ready(requests[i], timer ? 0 : polled[i].revents);
		called_back = true;
	}
}

static void keep_loop(struct loop *base)
{
	(void)base;
}

struct loop *loop_here_make(void)
{
	static const struct loop_backend backend = {
		.free = keep_loop,
		.add = add,
		.remove = remove_request,
		.arm = arm,
		.disarm = disarm,
		.wait = look,
	};
	static struct loop loop = {.backend = &backend, .kind = LOOP_EPOLL, .name = "fuzz"};

	return &loop;
}

bool loop_here_run(struct loop *loop, bool timers)
{
	looked = called_back = false;
	timers_due = timers;
	claim(loop_run(loop) == 0);
	return called_back;
}
