/* SPDX-License-Identifier: MIT */
/*
 * What a worker waits for, whatever it waits in: doorbells, its wake-up eventfd, fences. In an
 * io_uring (worker_wait_uring.c) or, where the kernel refuses one, in epoll (worker_wait_epoll.c).
 * An awake worker makes no system call for any of them, but for fences with epoll. Worker thread
 * only.
 */
#ifndef DMASYNC_WORKER_WAIT_H
#define DMASYNC_WORKER_WAIT_H

#include <liburing.h>

#include "daemon/deadlines.h"
#include "daemon/loop.h"

struct batch;
struct queue;
struct worker;

struct worker_wait_ops {
	void (*free)(struct worker *worker); /* any thread, when the worker's has ended */
	/* queue->doorbell_armed: it will ring, or the kernel may still write into the queue. */
	int (*add_queue)(struct worker *worker, struct queue *queue);	  /* -ENOMEM, -ENOSPC */
	void (*remove_queue)(struct worker *worker, struct queue *queue); /* not armed any more */
	void (*cancel_doorbell)(struct worker *worker, struct queue *queue);
	void (*sleep)(struct worker *worker); /* until something comes */
	void (*reap)(struct worker *worker);  /* what has come meanwhile; never waits */
	void (*look)(struct worker *worker);  /* the same; fences at least */
	/* Ends in worker_fence_polled(), perhaps at once. */
	void (*poll_fence)(struct worker *worker, struct batch *batch, int fd, uint32_t events);
	void (*cancel_fence)(struct worker *worker, struct batch *batch);
};

/* By fd: how many lists the batches that wait for a fence are spread over. */
#define WORKER_FENCE_LISTS 256u

struct worker_wait {
	const struct worker_wait_ops *ops;
	enum loop_kind kind; /* LOOP_URING or LOOP_EPOLL */
	int refused;	     /* why LOOP_AUTO became epoll: a negative errno; else 0 */

	/* worker_wait_uring.c */
	int unrestricted; /* as loop_unrestricted() */
	struct io_uring ring;
	bool wake_armed;
	uint64_t wake_value;
	struct queue **slots; /* by queue->slot, for the user_data of requests */
	uint32_t *generations;
	uint32_t slot_count;

	/* worker_wait_epoll.c */
	int epoll_fd;  /* doorbells, wake-ups, and the fences' epoll */
	int fences_fd; /* epoll of the fences alone: an awake worker looks at nothing else */
	struct deadlines deadlines; /* of the batches that wait for fences */
	struct batch *fences[WORKER_FENCE_LISTS];
};

/* On the worker's thread. Errors: negative errno, nothing left behind. */
int worker_wait_setup(struct worker *worker, enum loop_kind kind);
int worker_wait_uring_setup(struct worker *worker);
int worker_wait_epoll_setup(struct worker *worker);

#endif
