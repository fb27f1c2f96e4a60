/* SPDX-License-Identifier: MIT */
/* The rings of hostile_here.c: made, served, spoiled. One thread. */
#ifndef TESTS_FUZZ_HOSTILE_QUEUES_H
#define TESTS_FUZZ_HOSTILE_QUEUES_H

#include "fuzz.h"
#include "proto/message.h"
#include "proto/ring_access.h"

#define HOSTILE_QUEUES 4u

struct served {
	bool used;
	struct dmasync_ring_layout layout;
	struct dmasync_ring ring;
	void *memory, *page;
	size_t memory_size;
	int doorbell, notification;
	uint32_t fetched, completed;
};

extern struct served hostile_served[HOSTILE_QUEUES]; /* by number, the newest ones */
extern uint32_t hostile_queue_count;

void hostile_queues_begin(struct input *input);
void hostile_queues_end(void);
void hostile_queues_hang_up(void); /* the daemon's ends of their pipes are closed */
/* The four fds of a queue; most are right, and the next byte says what is not. */
bool hostile_queue_make(const struct dmasync_queue_create *create, int fds[DMASYNC_QUEUE_FDS]);
void hostile_queue_notify(struct served *queue);
/* All that is submitted and not yet completed, as it should be, but for what the ring says. */
void hostile_queues_serve(void);
/* A completion of the input's bytes. */
void hostile_queue_complete(struct served *queue);
/* One deed to one queue; `what`: which, in its low four bits, 5 to 10, and how. */
void hostile_queue_spoil(struct served *queue, uint8_t what);

#endif
