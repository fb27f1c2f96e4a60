/* SPDX-License-Identifier: MIT */
/*
 * Clients that are processes: each with its own connection, buffer and queue, all told by one
 * parent to dirty their lines and then to have them cleaned. For the parent's thread.
 */
#ifndef TESTS_COMPARE_CREW_H
#define TESTS_COMPARE_CREW_H

#include "tests/compare/compare.h"

struct crew_params {
	uint32_t clients;
	uint32_t batches; /* of one client in a round, all in flight together */
	uint32_t entries; /* of a batch, 4 KiB each, in random order */
};

struct crew;

/* Starts them and waits until all are connected. */
int crew_start(struct rig *rig, const struct crew_params *params, struct crew **ret);
void crew_stop(struct crew *crew);

/*
 * All lines of all clients dirtied, then all batches submitted and awaited by clients that sleep.
 * From the first submission to the last completion.
 */
int crew_round(struct crew *crew, uint64_t *ret_ns);

#endif
