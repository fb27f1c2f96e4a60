/* SPDX-License-Identifier: MIT */
/*
 * Which batch has its slice next: classes in order, each with a guaranteed share; within a class
 * deficit round-robin over users, their connections and their queues. One worker's own; only
 * scheduler_attach() allocates, and a batch never waits for it.
 *
 * Work is counted in credit, one for what takes about as long as a line operation. A round gives
 * each who wants it a slice's worth of credit. Turns are of one slice, or of one batch that is
 * shorter, so that short batches do not wait for a slice of each other. Who has credit left stays
 * in the round, who has none waits for the next, which begins when nobody is left in this one. A
 * slice is not cut to what is left: who overdraws pays in the next round. Who leaves the line keeps
 * credit and debt: he that waits for each batch before he submits another gets as much as he that
 * submits ahead, and nobody gets more than a slice's worth in a round.
 */
#ifndef DMASYNC_SCHEDULER_H
#define DMASYNC_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/hash.h"
#include "proto/types.h"

struct batch;

struct scheduler_line {
	struct scheduler_node *first, *last;
};

/* A class, a user, a connection or a flow. The first three have the next ones in their lines. */
struct scheduler_node {
	struct scheduler_node *parent;		/* NULL: a class */
	struct scheduler_line *line;		/* of the parent; NULL: in none */
	struct scheduler_node *next, *previous; /* in it */
	int64_t credit;
	struct scheduler_line lines[2]; /* this round's and the next one's */
	uint32_t current;		/* which is this round's */
};

/* A user or a connection of one class. */
struct scheduler_group {
	struct scheduler_node node;   /* first */
	struct scheduler_group *next; /* in its list of `groups` */
	uint64_t key;		      /* uid, or the address of the client */
	uint32_t count;		      /* of a user's connections, or a connection's flows */
};

/* What has one batch at a time in line: a queue, or a SYNC message. */
struct scheduler_flow {
	struct scheduler_node node;	    /* first */
	struct batch *batch;		    /* NULL: none is runnable */
	struct scheduler_group *connection; /* NULL: not attached */
	enum dmasync_class klass;
};

struct scheduler {
	struct scheduler_node classes[DMASYNC_CLASSES];
	struct scheduler_group *groups[HASH_LISTS]; /* by parent and key */
	uint32_t share[DMASYNC_CLASSES]; /* percent, guaranteed; REALTIME's is not looked at */
	int64_t owed[DMASYNC_CLASSES];	 /* of its share, in hundredths of credit */
	int64_t quantum;		 /* credit of one slice */
	enum dmasync_class last;	 /* that had a slice */
	enum dmasync_class last_lower;	 /* the last that had one of its share */
	uint32_t waiting;		 /* users in the classes' lines */
	struct scheduler_flow *served;	 /* whose turn it is */
	struct scheduler_flow *only;	 /* the only one with a batch, and then in no line */
};

/* 0 < quantum; shares in percent, at most SCHEDULER_SHARE_MAX. Also while batches are in line. */
#define SCHEDULER_SHARE_MAX 25u
void scheduler_tune(struct scheduler *scheduler, uint32_t quantum, uint32_t normal_share,
		    uint32_t bulk_share);

/* -ENOMEM. The client's address is compared, never followed. */
int scheduler_attach(struct scheduler *scheduler, struct scheduler_flow *flow,
		     enum dmasync_class klass, uint32_t uid, const void *client);
void scheduler_detach(struct scheduler *scheduler, struct scheduler_flow *flow);
/* What flows that were never detached leave behind. */
void scheduler_free(struct scheduler *scheduler);

/*
 * Puts the flow in line with this batch, unless it is in line already: in this round where it has
 * credit left, else in the next.
 */
void scheduler_add(struct scheduler *scheduler, struct scheduler_flow *flow, struct batch *batch);
/* Out of line. Fine where it is not in line. */
void scheduler_remove(struct scheduler *scheduler, struct scheduler_flow *flow);

/*
 * Who has the next slice; NULL where nobody is in line. It stays in line. In constant time: at each
 * of three levels the first one in line has credit, unless it has overdrawn by a whole slice.
 */
struct scheduler_flow *scheduler_next(struct scheduler *scheduler);

/* What was done for it. */
void scheduler_charge(struct scheduler *scheduler, struct scheduler_flow *flow, uint32_t credit);

bool scheduler_is_empty(const struct scheduler *scheduler);

#endif
