/* SPDX-License-Identifier: MIT */
/*
 * Goes through every state of a scenario, each once: takes one, makes all that can follow from it.
 * A state in which nothing can follow and somebody is not at his end is a lost wake-up. One thread.
 */
#include <stdio.h>
#include <stdlib.h>

#include "model.h"

struct search {
	struct sim_state *todo;
	size_t todos, todo_space;
	struct sim_seen seen;
	struct sim_result *result;
	const struct sim_state *from; /* the state that is being expanded */
	bool moved;		      /* something followed from it */
};

static const char *const kind_names[] = {
	[SIM_STORE] = "store takes effect",
	[SIM_PLAIN_LOAD] = "late load",
	[SIM_SIGNAL] = "signal",
	[SIM_LOAD] = "load",
	[SIM_EXCHANGE] = "exchange",
	[SIM_FENCE] = "fence",
	[SIM_USE] = "use",
	[SIM_DRAIN] = "drain",
	[SIM_SLEEP] = "wakes up",
	[SIM_END] = "end",
};

static void fault(struct search *search, const char *text, const struct sim_state *state)
{
	struct sim_result *result = search->result;
	int at = 0;

	if (result->fault)
		return;
	result->fault = text;
	for (int i = 0; i < state->steps && at < (int)sizeof result->trace; i++) {
		const struct sim_step *step = &state->path[i];

		uint32_t word = 0;

		memcpy(&word, sim.content[step->content].bytes, sizeof word);
		at += snprintf(result->trace + at, sizeof result->trace - (size_t)at,
			       "  thread %d: %s, location %d, first word %#x\n", step->thread,
			       kind_names[step->kind], step->place, word);
	}
}

static void note(struct sim_state *state, int thread, uint8_t kind, uint8_t place, uint16_t content)
{
	if (state->steps == SIM_MAX_PATH)
		sim_die("a path is too long");
	state->path[state->steps++] = (struct sim_step){(uint8_t)thread, kind, place, content};
}

/* What it can do without anybody seeing it, it does at once: a use with nothing to wait for. */
static bool waits_for_loads(const struct sim_thread *thread)
{
	for (int i = 0; i < thread->pendings; i++) {
		if (thread->pending[i].kind == SIM_PLAIN_LOAD)
			return true;
	}
	return false;
}

/* The state after a step of `thread`, which goes on to its next stop if it `runs`. */
static void follow(struct search *search, struct sim_state *state, int t, bool runs)
{
	struct sim_thread *thread = &state->thread[t];
	enum sim_leave left = SIM_STOPPED;

	if (runs)
		left = sim_run(state, t);
	while (left == SIM_STOPPED && thread->next.kind == SIM_USE && !waits_for_loads(thread)) {
		thread->passes = true;
		left = sim_run(state, t);
	}
	if (left == SIM_RETRIED)
		return;
	search->moved = true;
	if (left == SIM_FAULTED) {
		fault(search, sim.fault, state);
		return;
	}
	if (!sim_remember(&search->seen, state))
		return;
	if (search->todos == search->todo_space) {
		search->todo_space = search->todo_space ? 2 * search->todo_space : 256;
		search->todo = realloc(search->todo, search->todo_space * sizeof *search->todo);
		if (!search->todo)
			sim_die("out of memory");
	}
	search->todo[search->todos++] = *state;
}

static void write_place(struct sim_state *state, uint8_t place, uint16_t content)
{
	uint16_t time =
		(uint16_t)(sim.place[place].atomic ? 2 * ++state->clock : 2 * state->clock + 1);

	if (state->versions[place] == SIM_MAX_VERSIONS)
		sim_die("too many versions of a location");
	state->version[place][state->versions[place]++] = (struct sim_version){content, time};
}

/* The oldest version with this content that a load may see: whatever follows from a later one with
 * the same content follows from it too. */
static bool is_candidate(const struct sim_state *state, uint8_t place, int i, uint16_t floor)
{
	const struct sim_version *version = state->version[place];

	if (i + 1 < state->versions[place] && version[i + 1].time <= floor)
		return false;
	for (int j = 0; j < i; j++) {
		if (version[j].content == version[i].content && version[j + 1].time > floor)
			return false;
	}
	return true;
}

static void take_effect(struct search *search, int t, int i)
{
	struct sim_state state = *search->from;
	struct sim_thread *thread = &state.thread[t];
	const int first = thread->pending[i].release ? 0 : i;

	/* A release comes with the plain stores that it waits for. */
	for (int j = first; j <= i; j++) {
		const struct sim_pending *pending = &thread->pending[j];

		note(&state, t, pending->kind, pending->place, pending->content);
		if (pending->kind == SIM_SIGNAL) {
			state.readable[pending->place] = true;
			state.signalled[pending->place] = (uint16_t)(2 * ++state.clock);
			state.signals[pending->place]++;
		} else {
			write_place(&state, pending->place, pending->content);
		}
	}
	memmove(&thread->pending[first], &thread->pending[i + 1],
		(size_t)(thread->pendings - i - 1) * sizeof *thread->pending);
	thread->pendings = (uint8_t)(thread->pendings - (i + 1 - first));
	follow(search, &state, t, false);
}

static void satisfy(struct search *search, int t, int i)
{
	struct sim_pending pending = search->from->thread[t].pending[i];

	for (int v = 0; v < search->from->versions[pending.place]; v++) {
		struct sim_state state = *search->from;
		struct sim_thread *thread = &state.thread[t];
		uint16_t content = state.version[pending.place][v].content;

		if (!is_candidate(&state, pending.place, v, pending.floor))
			continue;
		thread->loaded[pending.load] = content;
		thread->pendings--;
		memmove(&thread->pending[i], &thread->pending[i + 1],
			(size_t)(thread->pendings - i) * sizeof *thread->pending);
		note(&state, t, SIM_PLAIN_LOAD, pending.place, content);
		follow(search, &state, t, false);
	}
}

/* Another thread is about to load the word. */
static bool is_awaited(const struct sim_state *state, int t, uint8_t place)
{
	for (int other = 0; other < SIM_MAX_THREADS; other++) {
		const struct sim_thread *thread = &state->thread[other];

		if (other == t)
			continue;
		if (thread->next.kind == SIM_LOAD && thread->next.place == place)
			return true;
		for (int i = 0; i < thread->pendings; i++) {
			if (thread->pending[i].kind == SIM_PLAIN_LOAD &&
			    thread->pending[i].place == place)
				return true;
		}
	}
	return false;
}

/*
 * Must an access wait for an earlier one of its thread? For one to the same word; and a release for
 * all of them, but it takes plain stores with it.
 */
static bool is_held(const struct sim_thread *thread, int i)
{
	const struct sim_pending *pending = &thread->pending[i];

	for (int j = 0; j < i; j++) {
		const struct sim_pending *earlier = &thread->pending[j];
		bool plain_store = earlier->kind == SIM_STORE && !sim.place[earlier->place].atomic;

		if (pending->release ? !plain_store
				     : earlier->kind != SIM_SIGNAL && pending->kind != SIM_SIGNAL &&
					       earlier->place == pending->place)
			return true;
	}
	return false;
}

/*
 * A plain store is told from a later one only by who loads its word before the next release of its
 * thread. So it takes effect when such a load is near, and else as late as it can: with that
 * release, or when the thread stands at a fence or its end.
 */
static void expand_pending(struct search *search, int t)
{
	const struct sim_thread *thread = &search->from->thread[t];
	bool flushed = thread->next.kind == SIM_FENCE || thread->next.kind == SIM_EXCHANGE ||
		       thread->next.kind == SIM_END;
	bool needed = flushed || thread->next.kind == SIM_USE;
	bool first_load = true;

	for (int i = 0; i < thread->pendings; i++)
		needed = needed || thread->pending[i].release;
	for (int i = 0; i < thread->pendings; i++) {
		const struct sim_pending *pending = &thread->pending[i];

		if (pending->kind == SIM_PLAIN_LOAD) {
			/* A late value is chosen as late as can be, one load after the other. */
			if (needed && first_load)
				satisfy(search, t, i);
			first_load = false;
			continue;
		}
		if (!is_held(thread, i) &&
		    (flushed || pending->kind == SIM_SIGNAL || sim.place[pending->place].atomic ||
		     is_awaited(search->from, t, pending->place)))
			take_effect(search, t, i);
	}
}

static void expand_load(struct search *search, int t)
{
	const struct sim_next next = search->from->thread[t].next;

	for (int i = 0; i < search->from->thread[t].pendings; i++) {
		const struct sim_pending *pending = &search->from->thread[t].pending[i];

		if (pending->kind != SIM_SIGNAL && pending->place == next.place)
			sim_die("a thread loads what it has stored itself: not modelled");
	}
	for (int v = 0; v < search->from->versions[next.place]; v++) {
		struct sim_state state = *search->from;
		struct sim_thread *thread = &state.thread[t];
		struct sim_version version = state.version[next.place][v];

		if (!is_candidate(&state, next.place, v,
				  sim_later(thread->floor, thread->word_floor[next.place])))
			continue;
		if (thread->loads == SIM_MAX_LOADS)
			sim_die("a thread makes too many loads");
		thread->loaded[thread->loads++] = version.content;
		if (next.acquire)
			thread->floor = sim_later(thread->floor, version.time);
		else if (sim.place[next.place].atomic)
			thread->word_floor[next.place] = version.time;
		note(&state, t, SIM_LOAD, next.place, version.content);
		follow(search, &state, t, true);
	}
}

static void expand_exchange(struct search *search, int t)
{
	struct sim_state state = *search->from;
	struct sim_thread *thread = &state.thread[t];
	uint8_t place = thread->next.place;

	thread->loaded[thread->loads++] = state.version[place][state.versions[place] - 1].content;
	note(&state, t, SIM_EXCHANGE, place, thread->next.content);
	write_place(&state, place, thread->next.content);
	thread->floor = (uint16_t)(2 * state.clock);
	follow(search, &state, t, true);
}

static void expand_next(struct search *search, int t)
{
	const struct sim_next next = search->from->thread[t].next;
	struct sim_state state;

	if (next.kind == SIM_LOAD) {
		expand_load(search, t);
		return;
	}
	if (next.kind == SIM_END || next.kind == SIM_USE)
		return;
	if (next.kind == SIM_SLEEP && !search->from->readable[next.place])
		return;
	if (next.kind != SIM_SLEEP && next.kind != SIM_DRAIN &&
	    search->from->thread[t].pendings > 0)
		return;
	if (next.kind == SIM_EXCHANGE) {
		expand_exchange(search, t);
		return;
	}
	state = *search->from;

	struct sim_thread *thread = &state.thread[t];

	note(&state, t, next.kind, next.place, 0);
	thread->passes = true;
	if (next.kind == SIM_FENCE)
		thread->floor = (uint16_t)(2 * ++state.clock);
	if (next.kind == SIM_DRAIN && state.readable[next.place]) {
		thread->floor = sim_later(thread->floor, state.signalled[next.place]);
		state.readable[next.place] = false;
	}
	follow(search, &state, t, true);
}

static void expand(struct search *search, const struct sim_state *from)
{
	bool over = true;

	search->from = from;
	search->moved = false;
	for (int t = 0; t < SIM_MAX_THREADS; t++) {
		over = over && sim_is_over(&from->thread[t]);
		expand_pending(search, t);
		expand_next(search, t);
	}
	if (over) {
		const char *wrong =
			sim.scenario->at_end ? sim.scenario->at_end(from->signals) : NULL;

		search->result->endings++;
		if (wrong)
			fault(search, wrong, from);
	} else if (!search->moved) {
		fault(search, "a wake-up is lost: somebody waits for ever", from);
	}
}

void sim_explore(const struct sim_scenario *scenario, const struct sim_mutant *mutant,
		 struct sim_result *ret)
{
	struct sim_state *first = calloc(1, sizeof *first), *from = calloc(1, sizeof *from);
	struct search search = {.result = ret};

	if (!first || !from)
		sim_die("out of memory");
	*ret = (struct sim_result){0};
	memset(&sim, 0, sizeof sim);
	sim.scenario = scenario;
	sim.mutant = mutant;
	sim.state = first;
	sim.running = -1;
	scenario->set_up();
	for (int t = 0; t < SIM_MAX_THREADS; t++) {
		first->thread[t].next.kind = SIM_END;
		if (scenario->thread[t] && sim_run(first, t) == SIM_FAULTED)
			fault(&search, sim.fault, first);
	}
	follow(&search, first, 0, false);
	while (search.todos > 0 && !ret->fault) {
		*from = search.todo[--search.todos];
		expand(&search, from);
	}
	ret->states = search.seen.count;
	free(search.seen.keys);
	free(search.todo);
	free(first);
	free(from);
}
