/* SPDX-License-Identifier: MIT */
/*
 * A model of weakly ordered memory that runs the real functions of proto/ring_access.h: every
 * interleaving of a few small threads, and every order in which their accesses may take effect.
 *
 * The model is that of a machine whose memory is one for all (as of Armv8 and RISC-V) and whose
 * CPUs are as lazy and as eager as their barriers let them be:
 *
 *	- a store waits in its thread's buffer and takes effect at any later time, in any order
 *	  with the thread's other stores to other words (store-store, store-load), except that a
 *	  store-release waits for every earlier access of its thread;
 *	- a load may take its value early, any that the word held since the thread's last acquire
 *	  load or fence (load-load), or late, after later stores have taken effect (load-store),
 *	  until its value is needed or a release or fence waits for it;
 *	- a full fence waits for every earlier access, and holds back every later one.
 *
 * A state is what memory holds, what is buffered, and what each thread has loaded so far: a thread
 * is run again from its start with the values it loaded, so its C code needs no help, but must keep
 * everything in locals. A value that was read from plain memory may be looked at only after
 * sim_use().
 */
#ifndef DMASYNC_TEST_SIMULATOR_H
#define DMASYNC_TEST_SIMULATOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint32_t sim_load(const uint32_t *word, bool acquire, const char *function);
void sim_store(uint32_t *word, uint32_t value, bool release, const char *function);
uint32_t sim_exchange(uint32_t *word, uint32_t value, const char *function);
void sim_fence(const char *function);
void sim_read(void *destination, const void *source, size_t size);
void sim_write(void *destination, const void *source, size_t size);

#define RING_LOAD_ACQUIRE(word) sim_load((word), true, __func__)
#define RING_LOAD_RELAXED(word) sim_load((word), false, __func__)
#define RING_STORE_RELEASE(word, value) sim_store((word), (value), true, __func__)
#define RING_STORE_RELAXED(word, value) sim_store((word), (value), false, __func__)
#define RING_EXCHANGE(word, value) sim_exchange((word), (value), __func__)
#define RING_FENCE() sim_fence(__func__)
#define RING_READ(destination, source, size) sim_read((destination), (source), (size))
#define RING_WRITE(destination, source, size) sim_write((destination), (source), (size))
#define RING_WRITE_BODY(destination, source, size) sim_write((destination), (source), (size))

#include "proto/ring_access.h"

/* ---- for the threads ---- */

/* Everything read so far is needed now. */
void sim_use(void);
/* Nothing has come yet: this look never happened, the thread waits for another value. */
_Noreturn void sim_retry(void);
/* What must hold; `text` says what did not. */
void sim_check(bool good, const char *text);

/* A pipe: a signal is never lost, any number is one. */
void sim_signal(uint32_t pipe);
void sim_drain(uint32_t pipe);
void sim_sleep(uint32_t pipe); /* until it is readable; takes nothing out */

/* ---- for the scenarios ---- */

enum sim_mutation {
	SIM_NONE,
	SIM_RELEASE_TO_RELAXED,
	SIM_ACQUIRE_TO_RELAXED,
	SIM_NO_FENCE,
	SIM_SPLIT_EXCHANGE, /* a load and a store */
};

/* A weakened copy of ring_access.h: in one function, or nowhere. */
struct sim_mutant {
	enum sim_mutation mutation;
	const char *function;
};

#define SIM_MAX_THREADS 3
#define SIM_MAX_PIPES 2

struct sim_scenario {
	/* Says which memory there is (sim_location) and fills it through ring_access.h. */
	void (*set_up)(void);
	void (*thread[SIM_MAX_THREADS])(void);
	/* Where all is over: what is wrong, from the signals sent through each pipe. May be NULL.
	 */
	const char *(*at_end)(const uint32_t signals[SIM_MAX_PIPES]);
};

/*
 * From set_up: `size` bytes that are read and written as one, at most 64. Atomic words are found by
 * their address; `branched` is plain memory that ring_access.h itself looks at. Memory that is no
 * location is not modelled.
 */
void sim_location(const void *address, size_t size, bool atomic, bool branched);

struct sim_result {
	uint64_t states;   /* distinct ones visited */
	uint64_t endings;  /* of them: every thread at its end and nothing buffered */
	const char *fault; /* NULL: none. What was violated, first */
	char trace[8192];  /* how it came to the fault */
};

/* Explores all there is, or to the first fault. */
void sim_explore(const struct sim_scenario *scenario, const struct sim_mutant *mutant,
		 struct sim_result *ret);

#endif
