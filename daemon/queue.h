/* SPDX-License-Identifier: MIT */
/*
 * One queue: a shared ring, the private copy of its units, its two pipes, and the batch in work.
 * Made and freed by the control thread; between WORKER_QUEUE_ADD and the answer to
 * WORKER_QUEUE_REMOVE (or _CLIENT_STOP) everything below "worker" is the worker's alone.
 */
#ifndef DMASYNC_QUEUE_H
#define DMASYNC_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/buffer_table.h"
#include "daemon/cache/batch.h"
#include "daemon/mailbox.h"
#include "proto/message.h"
#include "proto/ring_access.h"

struct client; /* connection.h */
struct worker;

enum batch_phase {
	BATCH_FREE,    /* no batch in work */
	BATCH_CHECK,   /* being copied and checked, a chunk at a time */
	BATCH_ISSUE,   /* checked; line operations, a slice at a time */
	BATCH_PARKED,  /* waits for a kernel sync on a helper thread */
	BATCH_PUBLISH, /* complete or failed; its result is to be published */
};

/* A batch in work: of a queue, or of a SYNC message. */
struct batch {
	enum batch_phase phase;
	struct batch *next_runnable, *previous_runnable; /* the worker's runnable list */
	struct cache_batch cache;
	struct queue *queue;	     /* NULL for a SYNC message */
	struct worker_command *sync; /* the SYNC message */
	const struct buffer_table *buffers;
	struct batch_owner *owner; /* of the records and counters */
	uint64_t id;
	uint64_t user_data;
	uint64_t submit_ns; /* as the client said; 0 for "at fetch" */
	uint64_t fetched_ns, issue_start_ns, issue_end_ns, barrier_end_ns;
	uint64_t issued_mark; /* worker's count of lines when this batch was opened */
	int opened_cpu;
	uint32_t flags; /* DMASYNC_COMPLETION_* */
	int32_t status;
};

/* The client's share of the statistics; outlives its queues. One writer per worker is not given:
 * counters are added to atomically, once per batch. */
struct batch_owner {
	uint64_t client_id;
	uint32_t pid;
	_Atomic uint64_t batches, failed, lines;
};

struct queue {
	/* constant after creation */
	struct client *client;
	struct worker *worker;
	const struct buffer_table *buffers; /* of the client */
	struct batch_owner *owner;
	uint32_t id;		  /* on its connection */
	struct dmasync_ring ring; /* the daemon's mapping of the memfd */
	void *memory;
	size_t memory_size;
	union cache_unit *mirror; /* ring.unit_count units, private */
	int doorbell_fd;	  /* read end, blocking: only for IORING_OP_READ */
	int notification_fd;	  /* write end, O_NONBLOCK */

	/* worker */
	struct queue *next, *previous; /* the worker's queues */
	struct batch batch;
	uint32_t fetched;	   /* position of the next submission to fetch */
	uint32_t completed;	   /* position of the next completion to publish */
	uint32_t completions_read; /* last valid value of the client's index */
	uint32_t slot;		   /* in the worker's doorbell table; with a generation it is
				    * the user_data of requests on the ring */
	uint32_t generation;
	bool doorbell_armed;
	bool broken; /* the client broke the ring: fetched from no more */
	bool removing;
	char doorbell_byte;
	struct worker_command *remove; /* answered when nothing is in work or armed */
};

/*
 * Control thread. Makes memfd (sealed against shrinking, growing and further seals), mapping,
 * mirror and pipes; ret_fds are the client's four ends (enum dmasync_queue_fd; the worker page's is
 * a dup), owned by the caller. Errors: negative errno, nothing left behind.
 */
int queue_create(uint32_t depth, uint32_t units, int worker_page_fd, struct queue **ret,
		 int ret_fds[DMASYNC_QUEUE_FDS]);

/* Unmaps and closes; after the worker has let go. NULL is fine. May block briefly (munmap). */
void queue_free(struct queue *queue);

#endif
