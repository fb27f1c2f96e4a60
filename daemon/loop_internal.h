/* SPDX-License-Identifier: MIT */
/*
 * What the control loop (loop.c) and its two ways to wait for the kernel (loop_uring.c,
 * loop_epoll.c) share. Control thread.
 */
#ifndef DMASYNC_LOOP_INTERNAL_H
#define DMASYNC_LOOP_INTERNAL_H

#include <linux/time_types.h>
#include <stdbool.h>

#include "daemon/deadlines.h"
#include "daemon/loop.h"

struct io_uring;

enum request_kind { REQUEST_WATCH, REQUEST_TIMER };

/* What a watch and a timer have in common: the kernel, or a heap of deadlines, may know of it. */
struct request {
	struct loop *loop;
	enum request_kind kind;
	bool armed; /* it will become ready */
	bool ready; /* on the ready list */
	int result; /* of a watch: poll(2) events, or a negative errno */
	struct request *next, *previous;
	uint32_t index;	   /* loop_uring.c: its place */
	uint32_t in_epoll; /* loop_epoll.c: the events that are asked for, there */
};

struct loop_watch {
	struct request request; /* first */
	int fd;
	uint32_t events;
	loop_callback callback;
	void *context;
};

struct loop_timer {
	struct request request; /* first */
	uint64_t ns;		/* from the moment it is armed */
	void (*callback)(void *context);
	void *context;
	struct __kernel_timespec timeout; /* loop_uring.c: read by the kernel */
	struct deadline deadline;	  /* loop_epoll.c */
};

/*
 * A way to wait. What breaks it stands in loop->broken. Armed requests become ready by
 * loop_ready(); they are then armed still (epoll tells again what was not dealt with) or no more.
 * arm() is called after each callback of a watch, and when its events are others.
 */
struct loop_backend {
	void (*free)(struct loop *loop);
	int (*add)(struct request *request); /* before all else; may fail */
	void (*remove)(
		struct request *request);     /* disarmed; the kernel then holds its file no more */
	void (*arm)(struct request *request); /* for watch->events, timer->ns */
	void (*disarm)(struct request *request); /* of what is armed */
	void (*wait)(struct loop *loop, bool block);
};

struct loop {
	const struct loop_backend *backend;
	enum loop_kind kind;
	const char *name;
	int refused;	  /* see loop_refused() */
	int unrestricted; /* see loop_unrestricted() */
	struct request *ready_first, *ready_last;
	struct request *current; /* whose callback runs; NULL once it removed itself */
	bool exiting;
	int status;
	int broken; /* a negative errno: the loop can no longer be used */
};

/* `loop` is the first member of what is allocated. */
int loop_uring_create(struct loop **ret);
struct io_uring *loop_uring_ring(struct loop *loop); /* of such a loop, for its test */
int loop_epoll_create(struct loop **ret);

void loop_ready(struct request *request, int result);

#endif
