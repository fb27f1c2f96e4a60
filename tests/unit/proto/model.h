/* SPDX-License-Identifier: MIT */
/*
 * What simulator.c (the accesses) and explore.c (the search) share: the state of the model and the
 * figures of a scenario. One thread.
 */
#ifndef DMASYNC_TEST_MODEL_H
#define DMASYNC_TEST_MODEL_H

#include <setjmp.h>

#include "simulator.h"

#define SIM_MAX_PLACES 40
#define SIM_MAX_CONTENTS 512
#define SIM_CONTENT_SIZE 64
#define SIM_MAX_VERSIONS 10
#define SIM_MAX_EVENTS 140
#define SIM_MAX_LOADS 80
#define SIM_MAX_PENDING 40
#define SIM_MAX_PATH 250
#define SIM_UNKNOWN UINT16_MAX

enum sim_kind {
	SIM_STORE,
	SIM_PLAIN_LOAD,
	SIM_SIGNAL,
	SIM_LOAD,
	SIM_EXCHANGE,
	SIM_FENCE,
	SIM_USE,
	SIM_DRAIN,
	SIM_SLEEP,
	SIM_END,
};

struct sim_place {
	uintptr_t address;
	uint8_t size;
	bool atomic, branched;
};

/*
 * A word's value and the time it came. Time counts the writes to atomic words and the fences:
 * 2 * n for the nth of them, 2 * n + 1 for whatever plain memory was written after it and before
 * the next. Plain writes need no order among each other, only with what others may synchronise
 * with.
 */
struct sim_version {
	uint16_t content, time;
};

struct sim_pending {
	uint8_t kind, place;
	bool release;
	uint16_t content;
	uint8_t load;	/* PLAIN_LOAD: where its value goes */
	uint16_t floor; /* PLAIN_LOAD: of its thread when it was issued */
};

/* Where a thread has stopped. */
struct sim_next {
	uint8_t kind, place;
	uint16_t content;
	bool acquire;
};

struct sim_thread {
	uint32_t sign[SIM_MAX_EVENTS];
	uint16_t loaded[SIM_MAX_LOADS];
	struct sim_pending pending[SIM_MAX_PENDING];
	struct sim_next next;
	uint16_t floor; /* loads see nothing that was overwritten at or before this time */
	/* The same for one word, which a relaxed load of it has seen: no going back. */
	uint16_t word_floor[SIM_MAX_PLACES];
	uint8_t events, loads, pendings;
	bool passes; /* may go on from its next, which is no load */
};

struct sim_step {
	uint8_t thread, kind, place;
	uint16_t content;
};

struct sim_state {
	struct sim_thread thread[SIM_MAX_THREADS];
	struct sim_version version[SIM_MAX_PLACES][SIM_MAX_VERSIONS]; /* oldest first */
	uint8_t versions[SIM_MAX_PLACES];
	uint16_t clock;
	bool readable[SIM_MAX_PIPES];
	uint16_t signalled[SIM_MAX_PIPES]; /* when last */
	uint32_t signals[SIM_MAX_PIPES];
	uint16_t steps;
	struct sim_step path[SIM_MAX_PATH];
};

enum sim_leave {
	SIM_STOPPED = 1,
	SIM_RETRIED,
	SIM_FAULTED,
};

struct sim_model {
	const struct sim_scenario *scenario;
	const struct sim_mutant *mutant;
	struct sim_state *state; /* of the run */
	int running;		 /* thread, or -1 while setting up */
	uint32_t event, load;	 /* of the run: how many came so far */
	jmp_buf leave;
	const char *fault;
	struct sim_place place[SIM_MAX_PLACES];
	uint8_t places;
	struct {
		uint8_t size;
		char bytes[SIM_CONTENT_SIZE];
	} content[SIM_MAX_CONTENTS];
	uint16_t contents;
};

extern struct sim_model sim;

_Noreturn void sim_die(const char *what);

uint16_t sim_later(uint16_t a, uint16_t b);

/* At its end, with nothing left in its buffer. */
bool sim_is_over(const struct sim_thread *thread);

/* Keys of the states seen so far, in open addressing; {0, 0} is free. */
struct sim_seen {
	uint64_t (*keys)[2];
	size_t count, space;
};

/* Forgets what nobody can see any more. True where such a state was not seen before. */
bool sim_remember(struct sim_seen *seen, struct sim_state *state);

/* Runs a thread up to its next stop. */
enum sim_leave sim_run(struct sim_state *state, int thread);

#endif
