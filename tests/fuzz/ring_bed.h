/* SPDX-License-Identifier: MIT */
/*
 * What the files of the ring's target share: the worker of this input (ring_worker.c), and what a
 * client does to its ring (ring_client.c). One thread, and the one that flips.
 */
#ifndef TESTS_FUZZ_RING_BED_H
#define TESTS_FUZZ_RING_BED_H

#include "fuzz.h"
#include "worker_here.h"

#define RING_LINE 64u
#define RING_BUFFERS 7u
#define RING_QUEUES 2u

/* One batch as it was submitted, for the result it must have. */
struct submitted {
	uint64_t user_data;
	uint32_t first_unit;
	uint32_t broken, entries, elided; /* as struct model_entry; entries before the bad one */
	bool must_fail, may_fail;
};

struct end {
	struct queue *queue;
	int fds[DMASYNC_QUEUE_FDS];
	struct dmasync_ring ring;
	uint32_t submitted, reaped, units;
	uint32_t completed; /* of the queue, when it was last looked at */
	bool honest;	    /* all that was written into it is right */
	struct worker_command remove;
	struct submitted batch[64];
};

extern struct end ring_ends[RING_QUEUES];

/* ---- ring_worker.c ---- */

extern struct worker *ring_worker; /* of this input */
extern struct buffer ring_buffers[RING_BUFFERS];
extern struct buffer_table ring_table;
extern struct batch_owner ring_owner;
extern uint64_t ring_turn_lines;   /* recorded since it was set to 0 */
extern struct client *ring_client; /* never looked into */

/* The one of two that waits in epoll, or the other; all buffers are there. */
void ring_worker_begin(bool epoll);
void ring_worker_tune(struct input *input);
void ring_worker_set_fence(uint8_t how);
void ring_worker_take_events(void); /* a command that has come back has a context */

/* ---- ring_client.c ---- */

void ring_submit(struct end *end, struct input *input);
/* Writes what no client should. */
void ring_rewrite(struct end *end, struct input *input);
/* What a rewrite has left for the next line operation: behind the check. */
void ring_be_late(bool now); /* false: forgets it */
/* The second thread turns bits of it from now on; NULL: it rests. */
void ring_flip(struct end *end);

#endif
