/* SPDX-License-Identifier: MIT */
/*
 * Which states the simulator has seen: one key for all that can no longer be told apart. One
 * thread.
 */
#include <stdlib.h>

#include "model.h"

uint16_t sim_later(uint16_t a, uint16_t b)
{
	return a > b ? a : b;
}

bool sim_is_over(const struct sim_thread *thread)
{
	return thread->next.kind == SIM_END && thread->pendings == 0;
}

/* What nobody can see any more: nothing reads below the lowest floor. */
static uint16_t lowest_floor(const struct sim_state *state)
{
	uint16_t lowest = (uint16_t)(2 * state->clock + 1);

	for (int t = 0; t < SIM_MAX_THREADS; t++) {
		const struct sim_thread *thread = &state->thread[t];

		if (sim_is_over(thread))
			continue;
		if (thread->floor < lowest)
			lowest = thread->floor;
		for (int i = 0; i < thread->pendings; i++) {
			if (thread->pending[i].kind == SIM_PLAIN_LOAD &&
			    thread->pending[i].floor < lowest)
				lowest = thread->pending[i].floor;
		}
	}
	return lowest;
}

static void forget(struct sim_state *state)
{
	uint16_t lowest = lowest_floor(state);

	for (int i = 0; i < sim.places; i++) {
		struct sim_version *version = state->version[i];
		uint8_t drop = 0;

		while (drop + 1 < state->versions[i] && version[drop + 1].time <= lowest)
			drop++;
		state->versions[i] = (uint8_t)(state->versions[i] - drop);
		memmove(version, version + drop, state->versions[i] * sizeof *version);
		version[0].time = sim_later(version[0].time, lowest);
	}
	for (int i = 0; i < SIM_MAX_PIPES; i++)
		state->signalled[i] = sim_later(state->signalled[i], lowest);
}

struct key {
	uint64_t a, b;
};

static void mix(struct key *key, uint64_t value)
{
	key->a = (key->a ^ value) * UINT64_C(0x9e3779b97f4a7c15);
	key->a ^= key->a >> 29;
	key->b = (key->b + value) * UINT64_C(0xd1342543de82ef95);
	key->b ^= key->b >> 31;
}

/* Only the order of times counts: they are numbered anew, from 0, without gaps. */
struct ranks {
	uint16_t of[4 * SIM_MAX_EVENTS * SIM_MAX_THREADS];
};

static void rank_times(const struct sim_state *state, struct ranks *ranks)
{
	const size_t end = 2u * state->clock + 2;

	if (end > sizeof ranks->of / sizeof *ranks->of)
		sim_die("the clock is too late");
	memset(ranks->of, 0, end * sizeof *ranks->of);
	for (int i = 0; i < sim.places; i++) {
		for (int j = 0; j < state->versions[i]; j++)
			ranks->of[state->version[i][j].time] = 1;
	}
	for (int i = 0; i < SIM_MAX_PIPES; i++) {
		if (state->readable[i])
			ranks->of[state->signalled[i]] = 1;
	}
	for (int t = 0; t < SIM_MAX_THREADS; t++) {
		const struct sim_thread *thread = &state->thread[t];

		if (sim_is_over(thread))
			continue;
		ranks->of[thread->floor] = 1;
		for (int i = 0; i < sim.places; i++)
			ranks->of[sim_later(thread->word_floor[i], thread->floor)] = 1;
		for (int i = 0; i < thread->pendings; i++) {
			if (thread->pending[i].kind == SIM_PLAIN_LOAD)
				ranks->of[thread->pending[i].floor] = 1;
		}
	}

	uint16_t rank = 0;

	for (size_t time = 0; time < end; time++) {
		if (ranks->of[time])
			ranks->of[time] = rank++;
	}
}

static struct key key_of(const struct sim_state *state)
{
	struct key key = {UINT64_C(0x243f6a8885a308d3), UINT64_C(0x13198a2e03707344)};
	struct ranks ranks;

	rank_times(state, &ranks);
	for (int i = 0; i < sim.places; i++) {
		mix(&key, state->versions[i]);
		for (int j = 0; j < state->versions[i]; j++)
			mix(&key, (uint64_t)state->version[i][j].content << 16 |
					  ranks.of[state->version[i][j].time]);
	}
	for (int i = 0; i < SIM_MAX_PIPES; i++) {
		uint64_t signals = sim.scenario->at_end ? state->signals[i] : 0;

		mix(&key, signals << 32 | (uint64_t)state->readable[i] << 16 |
				  (state->readable[i] ? ranks.of[state->signalled[i]] : 0));
	}
	for (int t = 0; t < SIM_MAX_THREADS; t++) {
		const struct sim_thread *thread = &state->thread[t];

		if (sim_is_over(thread)) {
			mix(&key, UINT64_MAX);
			continue;
		}
		mix(&key, (uint64_t)thread->events << 32 | (uint64_t)thread->loads << 16 |
				  ranks.of[thread->floor]);
		for (int i = 0; i < thread->loads; i++)
			mix(&key, thread->loaded[i]);
		for (int i = 0; i < sim.places; i++) {
			if (thread->word_floor[i] > thread->floor)
				mix(&key, (uint64_t)i << 16 | ranks.of[thread->word_floor[i]]);
		}
		mix(&key, thread->pendings);
		for (int i = 0; i < thread->pendings; i++) {
			const struct sim_pending *p = &thread->pending[i];

			mix(&key, (uint64_t)p->kind << 56 | (uint64_t)p->place << 48 |
					  (uint64_t)p->release << 40 | (uint64_t)p->load << 32 |
					  (uint64_t)p->content << 16 |
					  (p->kind == SIM_PLAIN_LOAD ? ranks.of[p->floor] : 0));
		}
	}
	return key;
}

static bool is_free(const uint64_t key[2])
{
	return key[0] == 0 && key[1] == 0;
}

static void grow(struct sim_seen *seen)
{
	struct sim_seen larger = {.space = seen->space ? 2 * seen->space : 1u << 16};

	larger.keys = calloc(larger.space, sizeof *larger.keys);
	if (!larger.keys)
		sim_die("out of memory");
	for (size_t i = 0; i < seen->space; i++) {
		size_t at = (size_t)(seen->keys[i][0] & (larger.space - 1));

		if (is_free(seen->keys[i]))
			continue;
		while (!is_free(larger.keys[at]))
			at = (at + 1) & (larger.space - 1);
		memcpy(larger.keys[at], seen->keys[i], sizeof larger.keys[at]);
	}
	larger.count = seen->count;
	free(seen->keys);
	*seen = larger;
}

bool sim_remember(struct sim_seen *seen, struct sim_state *state)
{
	if (2 * seen->count >= seen->space)
		grow(seen);
	forget(state);

	struct key key = key_of(state);
	size_t at = (size_t)(key.a & (seen->space - 1));

	for (; !is_free(seen->keys[at]); at = (at + 1) & (seen->space - 1)) {
		if (seen->keys[at][0] == key.a && seen->keys[at][1] == key.b)
			return false;
	}
	seen->keys[at][0] = key.a;
	seen->keys[at][1] = key.b;
	seen->count++;
	return true;
}
