/* SPDX-License-Identifier: MIT */
/*
 * Points in time, the earliest first: a pairing heap that lives in its members, so that adding one
 * allocates nothing and cannot fail. One thread at a time.
 */
#ifndef DMASYNC_DEADLINES_H
#define DMASYNC_DEADLINES_H

#include <stdint.h>

struct deadline {
	uint64_t ns; /* CLOCK_MONOTONIC; not to be changed while it is in a heap */
	struct deadline *child, *next;
	struct deadline *previous; /* of the first child: the parent */
};

struct deadlines {
	struct deadline *first; /* the earliest; NULL: there is none */
};

void deadlines_add(struct deadlines *deadlines, struct deadline *deadline);
void deadlines_remove(struct deadlines *deadlines, struct deadline *deadline);

/*
 * For epoll_wait(2): -1 where there is none, 0 where one is over; else rounded up, so that whoever
 * waits so long finds it over.
 */
int deadlines_timeout_ms(const struct deadlines *deadlines, uint64_t now_ns);

#endif
