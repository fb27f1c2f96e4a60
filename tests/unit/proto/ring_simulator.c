/* SPDX-License-Identifier: MIT */
/*
 * Runs every scenario on proto/ring_access.h as it is, which must show no fault in any state, and
 * on each weakened copy of it and with each rule broken, which must.
 */
#include <stdio.h>
#include <string.h>

#include "scenarios.h"

static const struct sim_mutant none = {SIM_NONE, ""};

struct named {
	const char *name;
	const struct sim_scenario *scenario;
};

static const struct named all[] = {
	{"completions", &scenario_completions},
	{"transfer", &scenario_transfer},
	{"lazy index", &scenario_lazy_index},
	{"doorbell", &scenario_doorbell},
	{"two clients", &scenario_two_clients},
	{"notification", &scenario_notification},
	{"both", &scenario_both},
	{"one signal", &scenario_one_signal},
	{"move", &scenario_move},
};

static const struct {
	struct sim_mutant mutant;
	const struct sim_scenario *scenario;
} mutants[] = {
	{{SIM_RELEASE_TO_RELAXED, "dmasync_ring_submit"}, &scenario_transfer},
	{{SIM_ACQUIRE_TO_RELAXED, "dmasync_ring_poll_submission"}, &scenario_transfer},
	{{SIM_RELEASE_TO_RELAXED, "dmasync_ring_complete"}, &scenario_transfer},
	{{SIM_ACQUIRE_TO_RELAXED, "dmasync_ring_poll_completion"}, &scenario_transfer},
	{{SIM_RELEASE_TO_RELAXED, "dmasync_ring_consume_completion"}, &scenario_completions},
	{{SIM_NO_FENCE, "dmasync_ring_announce_sleep"}, &scenario_doorbell},
	{{SIM_NO_FENCE, "dmasync_ring_is_sleeping"}, &scenario_doorbell},
	{{SIM_NO_FENCE, "dmasync_ring_announce_sleep"}, &scenario_notification},
	{{SIM_NO_FENCE, "dmasync_ring_is_sleeping"}, &scenario_notification},
	{{SIM_NO_FENCE, "dmasync_ring_is_sleeping"}, &scenario_two_clients},
	{{SIM_NO_FENCE, "dmasync_ring_announce_sleep"}, &scenario_move},
	{{SIM_NO_FENCE, "dmasync_ring_is_sleeping"}, &scenario_move},
	{{SIM_SPLIT_EXCHANGE, "dmasync_ring_take_sleeper"}, &scenario_one_signal},
};

/*
 * Weaker and still right, where both sides keep the rules: a CPU does not let a store pass the
 * branch that decides on it, and the client's next submission is a release too. The language asks
 * for them all the same. Listed so that nobody counts on a fault being found here.
 */
static const struct {
	struct sim_mutant mutant;
	const struct sim_scenario *scenario;
} equivalents[] = {
	{{SIM_ACQUIRE_TO_RELAXED, "dmasync_ring_completions_read"}, &scenario_completions},
	{{SIM_RELEASE_TO_RELAXED, "dmasync_ring_consume_completion"}, &scenario_transfer},
};

static const struct {
	enum broken_rule rule;
	const char *name;
	const struct sim_scenario *scenario;
} rules[] = {
	{RULE_LOOK_AFTER_ANNOUNCING, "look after announcing", &scenario_doorbell},
	{RULE_DRAIN_BEFORE_ANNOUNCING, "drain before announcing", &scenario_notification},
	{RULE_ANNOUNCE_EVERY_SLEEP, "announce every sleep", &scenario_notification},
	{RULE_CHECK_FOR_SLEEPER, "check for a sleeper", &scenario_notification},
	{RULE_ROOM_FOR_THE_COMPLETION, "room for the completion", &scenario_completions},
	{RULE_READ_BEFORE_REUSE, "read before reuse", &scenario_transfer},
	{RULE_INDEX_BEFORE_REUSE, "index before reuse", &scenario_transfer},
	{RULE_MOVE_BEFORE_SLEEP, "move before sleep", &scenario_move},
	{RULE_RING_WHEN_MOVED, "ring when moved", &scenario_move},
};

static const char *mutation_name(enum sim_mutation mutation)
{
	switch (mutation) {
	case SIM_NONE:
		return "nothing";
	case SIM_RELEASE_TO_RELAXED:
		return "release to relaxed";
	case SIM_ACQUIRE_TO_RELAXED:
		return "acquire to relaxed";
	case SIM_NO_FENCE:
		return "fence removed";
	case SIM_SPLIT_EXCHANGE:
		return "exchange split";
	}
	return "?";
}

static struct sim_result result;

int main(int argc, char **argv)
{
	bool verbose = argc > 1 && strcmp(argv[1], "--traces") == 0;
	int wrong = 0;

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		sim_explore(all[i].scenario, &none, &result);
		printf("%-13s %8llu states, %4llu endings: %s\n", all[i].name,
		       (unsigned long long)result.states, (unsigned long long)result.endings,
		       result.fault ? result.fault : "no fault");
		if (result.fault || result.endings == 0) {
			printf("%s", result.trace);
			wrong++;
		}
	}
	for (size_t i = 0; i < sizeof mutants / sizeof *mutants; i++) {
		sim_explore(mutants[i].scenario, &mutants[i].mutant, &result);
		printf("%s in %s: %s\n", mutation_name(mutants[i].mutant.mutation),
		       mutants[i].mutant.function, result.fault ? result.fault : "NOT FOUND");
		if (verbose)
			printf("%s", result.trace);
		wrong += !result.fault;
	}
	for (size_t i = 0; i < sizeof equivalents / sizeof *equivalents; i++) {
		sim_explore(equivalents[i].scenario, &equivalents[i].mutant, &result);
		printf("%s in %s: %s, as expected\n", mutation_name(equivalents[i].mutant.mutation),
		       equivalents[i].mutant.function, result.fault ? result.fault : "no fault");
		wrong += result.fault != NULL;
	}
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
		broken_rule = rules[i].rule;
		sim_explore(rules[i].scenario, &none, &result);
		printf("broken rule, %s: %s\n", rules[i].name,
		       result.fault ? result.fault : "NOT FOUND");
		if (verbose)
			printf("%s", result.trace);
		wrong += !result.fault;
	}
	return wrong > 0;
}
