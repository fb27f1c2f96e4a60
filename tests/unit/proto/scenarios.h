/* SPDX-License-Identifier: MIT */
/*
 * The small programs that the simulator runs on the real functions of proto/ring_access.h.
 */
#ifndef DMASYNC_TEST_SCENARIOS_H
#define DMASYNC_TEST_SCENARIOS_H

#include "simulator.h"

/* Client and worker over a ring of 2 batches and 4 units, all used again. */
extern const struct sim_scenario scenario_transfer;
/* The same, with the read index stored as seldom as may be. */
extern const struct sim_scenario scenario_lazy_index;
/* The completion ring alone: as many completions as the read index has room for. */
extern const struct sim_scenario scenario_completions;
/* A worker that sleeps, woken by a doorbell. */
extern const struct sim_scenario scenario_doorbell;
/* A worker with two clients, each with a doorbell of its own. */
extern const struct sim_scenario scenario_two_clients;
/* A client that sleeps, woken by a notification. */
extern const struct sim_scenario scenario_notification;
/* Both sides sleep. */
extern const struct sim_scenario scenario_both;
/* Two publishers, one announcement: one signal. */
extern const struct sim_scenario scenario_one_signal;
/* A worker takes a queue over whose client looks at the page of another one, who is awake. */
extern const struct sim_scenario scenario_move;

/* Rules that a user of ring_access.h must keep; each broken on purpose. */
enum broken_rule {
	RULES_KEPT,
	RULE_LOOK_AFTER_ANNOUNCING,   /* looks, announces, sleeps */
	RULE_DRAIN_BEFORE_ANNOUNCING, /* drains after its look */
	RULE_ANNOUNCE_EVERY_SLEEP,    /* announces once, sleeps twice */
	RULE_ROOM_FOR_THE_COMPLETION, /* completes without a look at the read index */
	RULE_READ_BEFORE_REUSE,	      /* submits over a batch whose completion it has not read */
	RULE_INDEX_BEFORE_REUSE,      /* stores the read index after the slot's next submission */
	RULE_CHECK_FOR_SLEEPER,	      /* publishes and does not look at the flag */
	RULE_MOVE_BEFORE_SLEEP,	      /* takes a queue over and says so after the last look */
	RULE_RING_WHEN_MOVED,	      /* looks at the worker's page alone */
};

extern enum broken_rule broken_rule;

#endif
