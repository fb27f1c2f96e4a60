/* SPDX-License-Identifier: MIT */
/*
 * The chaos run: what its parent and its clients share. The board is shared memory; each slot is
 * written by the client that has it, and outlives that client.
 */
#ifndef TESTS_CHAOS_CHAOS_H
#define TESTS_CHAOS_CHAOS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/histogram.h"

#define CHAOS_CLIENTS 32u

/* How a client goes about its completions. */
enum manner {
	MANNER_WAITS,	       /* spins a little, then sleeps */
	MANNER_SLEEPS,	       /* at once */
	MANNER_PEEKS,	       /* never sleeps in the library */
	MANNER_POLLS,	       /* queue_fd in poll(2) */
	MANNER_SYNCS,	       /* one by one, dmasync_sync() */
	MANNER_CHANGES,	       /* its buffer and its queue come and go */
	MANNER_FALLBACK_WAITS, /* DMASYNC_INLINE_FALLBACK */
	MANNER_FALLBACK_POLLS,
	MANNERS,
};

struct chaos_slot {
	/* of all clients that had the slot; each adds what it has seen completed and checked */
	_Atomic uint64_t batches, replayed, in_process, lost, duplicated, failed, wrong;
	struct histogram latency; /* nanoseconds from submit to completion read */
	char problem[256];	  /* the first one, in words */
};

struct chaos_board {
	_Atomic bool stop; /* no new batches: drain, check, end */
	bool without_sync; /* the run is to fail: some batches sync nothing */
	struct chaos_slot slots[CHAOS_CLIENTS];
};

/* A client's whole life; its exit status. The caller is a process of its own. */
int chaos_client_run(struct chaos_board *board, uint32_t number, uint32_t seed, const char *socket);

#endif
