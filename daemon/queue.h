/* SPDX-License-Identifier: MIT */
/*
 * One queue: a shared ring, the private copy of its units, its two pipes, and the batch in work.
 * queue_create() and queue_free() are the control thread's.
 */
#ifndef DMASYNC_QUEUE_H
#define DMASYNC_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/batch.h"
#include "daemon/buffer/table.h"
#include "daemon/scheduler.h"
#include "proto/message.h"
#include "proto/ring_access.h"

struct client; /* connection.h */
struct worker;
struct worker_command;

/*
 * Made and freed by the control thread; between WORKER_QUEUE_ADD and the answer to
 * WORKER_QUEUE_REMOVE (or _CLIENT_STOP), or WORKER_QUEUE_MOVED, everything below "worker" is the
 * worker's alone.
 */
struct queue {
	/* constant after creation */
	struct client *client;
	struct worker *worker;
	const struct buffer_table *buffers; /* of the client */
	struct batch_owner *owner;
	uint32_t id;  /* on its connection */
	uint32_t uid; /* of the client */
	enum dmasync_class klass;
	uint64_t created_ns;	  /* no submission can be older */
	struct dmasync_ring ring; /* the daemon's mapping of the memfd */
	void *memory;
	size_t memory_size;
	union cache_unit *mirror;     /* ring.unit_count units, private */
	int doorbell_fd;	      /* read end, blocking: for IORING_OP_READ; not with epoll */
	int notification_fd;	      /* write end, O_NONBLOCK */
	struct worker_command *event; /* what the worker has to say unasked, once at most */
	struct worker_command *move;  /* WORKER_QUEUE_MOVED, the same */

	/* worker */
	struct queue *next, *previous; /* the worker's queues */
	struct queue *next_of_client, *previous_of_client;
	struct batch batch;
	struct scheduler_flow flow;
	uint32_t fetched;	   /* position of the next submission to fetch */
	uint32_t completed;	   /* position of the next completion to publish */
	uint32_t completions_read; /* last valid value of the client's index */
	uint32_t drain_end;	   /* while draining: position to fetch up to */
	uint32_t slot;		   /* in the worker's table of queues, for requests on its ring */
	uint32_t watch;		   /* its place among those looked at: worker_watch.c */
	bool recent;		   /* among those served last */
	bool moved;		   /* let go of by its first worker */
	bool doorbell_armed;	   /* read on the worker's ring, or in its epoll */
	bool doorbell_cancelled;
	bool doorbell_closed; /* end of file: the client has closed its end */
	bool broken;	      /* the client broke the ring: fetched from no more */
	bool stopping;	      /* fetched from no more */
	bool draining;	      /* fetched up to drain_end */
	char doorbell_bytes[64];
	struct worker_command *remove; /* answered when nothing is in work or armed */
};

/*
 * Control thread. Makes memfd (sealed against shrinking, growing and further seals), mapping,
 * mirror and pipes; ret_fds are the client's four ends (enum dmasync_queue_fd; the worker page's is
 * a dup), owned by the caller. Errors: negative errno, nothing left behind.
 */
int queue_create(uint32_t depth, uint32_t units, int worker_page_fd, struct queue **ret,
		 int ret_fds[DMASYNC_QUEUE_FDS]);

/* What it costs the daemon: mappings, files, and the bytes of ring and mirror. */
#define QUEUE_MAPS 2u
#define QUEUE_FILES 2u
uint64_t queue_bytes(uint32_t depth, uint32_t units);

/*
 * Gives the ring's pages back, whoever else still has it mapped: they are charged to the daemon.
 * Only once nobody will take what is in it: what the client finds there then is zeroes.
 */
void queue_discard(struct queue *queue);

/* Unmaps and closes; after the worker has let go. NULL is fine. May block briefly (munmap). */
void queue_free(struct queue *queue);

#endif
