/* SPDX-License-Identifier: MIT */
/*
 * The memory model: what a thread's accesses do to a state, and the replay of a thread from its
 * start. simulator.h says what is modelled, explore.c goes through the states. One thread.
 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

struct sim_model sim;

_Noreturn void sim_die(const char *what)
{
	fprintf(stderr, "simulator: %s\n", what);
	exit(2);
}

/* Contents are numbered once and for all, so that states compare by number. */
static uint16_t intern(const void *bytes, size_t size)
{
	for (uint16_t i = 0; i < sim.contents; i++) {
		if (sim.content[i].size == size && memcmp(sim.content[i].bytes, bytes, size) == 0)
			return i;
	}
	if (sim.contents == SIM_MAX_CONTENTS || size > SIM_CONTENT_SIZE)
		sim_die("too many contents, or too large");
	sim.content[sim.contents].size = (uint8_t)size;
	memcpy(sim.content[sim.contents].bytes, bytes, size);
	return sim.contents++;
}

static uint32_t word_of(uint16_t content)
{
	uint32_t word;

	memcpy(&word, sim.content[content].bytes, sizeof word);
	return word;
}

void sim_location(const void *address, size_t size, bool atomic, bool branched)
{
	struct sim_place *place = &sim.place[sim.places];

	if (sim.places == SIM_MAX_PLACES || size > SIM_CONTENT_SIZE)
		sim_die("too many locations, or too large");
	*place = (struct sim_place){(uintptr_t)address, (uint8_t)size, atomic, branched};
	sim.state->version[sim.places][0].content = intern(&(char[SIM_CONTENT_SIZE]){0}, size);
	sim.state->versions[sim.places] = 1;
	sim.places++;
}

static uint8_t place_of(const void *address)
{
	for (uint8_t i = 0; i < sim.places; i++) {
		if (sim.place[i].address == (uintptr_t)address)
			return i;
	}
	sim_die("an atomic access outside of every location");
}

static bool is_mutated(enum sim_mutation mutation, const char *function)
{
	return sim.mutant->mutation == mutation && strcmp(sim.mutant->function, function) == 0;
}

/* ---- a thread's run: what it did before is replayed, then it goes on to its next stop ---- */

/* True while replaying. Every access has a number; the same one must come again. */
static bool replayed(uint8_t kind, uint8_t place, uint16_t content)
{
	struct sim_thread *thread = &sim.state->thread[sim.running];
	uint32_t sign = (uint32_t)kind << 24 | (uint32_t)place << 16 | content;

	if (sim.event < thread->events) {
		if (thread->sign[sim.event++] != sign)
			sim_die("a value was used before sim_use()");
		return true;
	}
	if (thread->events == SIM_MAX_EVENTS)
		sim_die("a thread makes too many accesses");
	thread->sign[thread->events++] = sign;
	sim.event++;
	return false;
}

static _Noreturn void stop(uint8_t kind, uint8_t place, uint16_t content, bool acquire)
{
	struct sim_thread *thread = &sim.state->thread[sim.running];

	thread->next = (struct sim_next){kind, place, content, acquire};
	longjmp(sim.leave, SIM_STOPPED);
}

static void buffer(uint8_t kind, uint8_t place, uint16_t content, bool release)
{
	struct sim_thread *thread = &sim.state->thread[sim.running];

	if (thread->pendings == SIM_MAX_PENDING)
		sim_die("too many buffered accesses");
	thread->pending[thread->pendings++] =
		(struct sim_pending){kind, place, release, content, thread->loads, thread->floor};
}

/* A load that is needed at once stops the run; explore.c chooses its value and runs it again. */
static uint16_t load_now(uint8_t place, bool acquire)
{
	struct sim_thread *thread = &sim.state->thread[sim.running];

	if (sim.load < thread->loads) {
		replayed(SIM_LOAD, place, acquire);
		return thread->loaded[sim.load++];
	}
	stop(SIM_LOAD, place, 0, acquire);
}

uint32_t sim_load(const uint32_t *word, bool acquire, const char *function)
{
	if (is_mutated(SIM_ACQUIRE_TO_RELAXED, function))
		acquire = false;
	return word_of(load_now(place_of(word), acquire));
}

void sim_store(uint32_t *word, uint32_t value, bool release, const char *function)
{
	uint8_t place = place_of(word);
	uint16_t content = intern(&value, sizeof value);

	if (sim.running < 0) {
		sim.state->version[place][0].content = content;
		return;
	}
	if (is_mutated(SIM_RELEASE_TO_RELAXED, function))
		release = false;
	if (!replayed(SIM_STORE, place, content))
		buffer(SIM_STORE, place, content, release);
}

uint32_t sim_exchange(uint32_t *word, uint32_t value, const char *function)
{
	struct sim_thread *thread = &sim.state->thread[sim.running];
	uint8_t place = place_of(word);

	if (is_mutated(SIM_SPLIT_EXCHANGE, function)) {
		uint32_t before = word_of(load_now(place, false));

		sim_store(word, value, false, "");
		return before;
	}
	if (sim.load < thread->loads) {
		replayed(SIM_EXCHANGE, place, intern(&value, sizeof value));
		return word_of(thread->loaded[sim.load++]);
	}
	stop(SIM_EXCHANGE, place, intern(&value, sizeof value), true);
}

/* Stops the run unless explore.c has let it pass: then it is among the events. */
static void stop_once(uint8_t kind, uint8_t place)
{
	struct sim_thread *thread = &sim.state->thread[sim.running];

	if (sim.event < thread->events) {
		replayed(kind, place, 0);
	} else if (thread->passes) {
		thread->passes = false;
		replayed(kind, place, 0);
	} else {
		stop(kind, place, 0, false);
	}
}

void sim_fence(const char *function)
{
	if (!is_mutated(SIM_NO_FENCE, function))
		stop_once(SIM_FENCE, 0);
}

void sim_use(void)
{
	stop_once(SIM_USE, 0);
}

void sim_drain(uint32_t pipe)
{
	stop_once(SIM_DRAIN, (uint8_t)pipe);
}

void sim_sleep(uint32_t pipe)
{
	stop_once(SIM_SLEEP, (uint8_t)pipe);
}

/* write(2) on a pipe takes and gives a lock: what came before is seen by who reads the byte. */
void sim_signal(uint32_t pipe)
{
	if (!replayed(SIM_SIGNAL, (uint8_t)pipe, 0))
		buffer(SIM_SIGNAL, (uint8_t)pipe, 0, true);
}

/* A plain load is buffered: its value is chosen when something waits for it. */
static uint16_t load_later(uint8_t place)
{
	struct sim_thread *thread = &sim.state->thread[sim.running];

	if (!replayed(SIM_PLAIN_LOAD, place, 0)) {
		buffer(SIM_PLAIN_LOAD, place, 0, false);
		if (thread->loads == SIM_MAX_LOADS)
			sim_die("a thread makes too many loads");
		thread->loaded[thread->loads++] = SIM_UNKNOWN;
	}
	return thread->loaded[sim.load++];
}

void sim_read(void *destination, const void *source, size_t size)
{
	uintptr_t start = (uintptr_t)source;

	memset(destination, 0xee, size);
	for (uint8_t i = 0; i < sim.places; i++) {
		const struct sim_place *place = &sim.place[i];

		/* The seq was loaded already; that it lies inside what is copied is of no use. */
		if (place->atomic || place->address < start || place->address >= start + size)
			continue;
		if (place->address + place->size > start + size)
			sim_die("a read ends inside a location");

		uint16_t content = place->branched ? load_now(i, false) : load_later(i);

		if (content != SIM_UNKNOWN)
			memcpy((char *)destination + (place->address - start),
			       sim.content[content].bytes, place->size);
	}
}

void sim_write(void *destination, const void *source, size_t size)
{
	uintptr_t start = (uintptr_t)destination;

	for (uint8_t i = 0; i < sim.places; i++) {
		const struct sim_place *place = &sim.place[i];

		if (place->address < start || place->address >= start + size)
			continue;
		if (place->address + place->size > start + size)
			sim_die("a write ends inside a location");

		uint16_t content =
			intern((const char *)source + (place->address - start), place->size);

		if (sim.running < 0)
			sim.state->version[i][0].content = content;
		else if (!replayed(SIM_STORE, i, content))
			buffer(SIM_STORE, i, content, false);
	}
}

void sim_retry(void)
{
	longjmp(sim.leave, SIM_RETRIED);
}

void sim_check(bool good, const char *text)
{
	if (good)
		return;
	sim.fault = text;
	longjmp(sim.leave, SIM_FAULTED);
}

enum sim_leave sim_run(struct sim_state *state, int thread)
{
	sim.state = state;
	sim.running = thread;
	sim.event = 0;
	sim.load = 0;

	int left = setjmp(sim.leave);

	if (left == 0) {
		sim.scenario->thread[thread]();
		state->thread[thread].next = (struct sim_next){.kind = SIM_END};
		left = SIM_STOPPED;
	}
	sim.running = -1;
	return (enum sim_leave)left;
}
