/* SPDX-License-Identifier: MIT */
/* See scheduler.h. Worker thread only. */
#include "daemon/scheduler.h"

#include <errno.h>
#include <stdlib.h>

#define LEVELS 3 /* users, connections, flows */

/* In order of priority. */
static const enum dmasync_class order[DMASYNC_CLASSES] = {
	DMASYNC_CLASS_REALTIME,
	DMASYNC_CLASS_NORMAL,
	DMASYNC_CLASS_BULK,
};

static uint32_t rank(enum dmasync_class klass)
{
	switch (klass) {
	case DMASYNC_CLASS_REALTIME:
		return 0;
	case DMASYNC_CLASS_NORMAL:
		return 1;
	case DMASYNC_CLASS_BULK:
		return 2;
	}
	return 1;
}

void scheduler_tune(struct scheduler *scheduler, uint32_t quantum, uint32_t normal_share,
		    uint32_t bulk_share)
{
	scheduler->quantum = quantum;
	scheduler->share[DMASYNC_CLASS_NORMAL] = normal_share;
	scheduler->share[DMASYNC_CLASS_BULK] = bulk_share;
}

/* ---- lines ---- */

static struct scheduler_line *current_line(struct scheduler_node *parent)
{
	return &parent->lines[parent->current];
}

static struct scheduler_line *next_line(struct scheduler_node *parent)
{
	return &parent->lines[1 - parent->current];
}

static bool has_waiting(const struct scheduler_node *parent)
{
	return parent->lines[0].first || parent->lines[1].first;
}

static void append(struct scheduler_line *line, struct scheduler_node *node)
{
	node->line = line;
	node->next = NULL;
	node->previous = line->last;
	if (line->last)
		line->last->next = node;
	else
		line->first = node;
	line->last = node;
}

static void take_out(struct scheduler_node *node)
{
	struct scheduler_line *line = node->line;

	if (node->previous)
		node->previous->next = node->next;
	else
		line->first = node->next;
	if (node->next)
		node->next->previous = node->previous;
	else
		line->last = node->previous;
	node->next = node->previous = NULL;
	node->line = NULL;
}

/* The only place where credit is to be had. */
static void wait_for_next_round(const struct scheduler *scheduler, struct scheduler_node *node)
{
	node->credit += scheduler->quantum;
	append(next_line(node->parent), node);
}

/* Up to the class: whoever had nobody in line joins the line above. */
static void join(struct scheduler *scheduler, struct scheduler_node *node)
{
	for (; node->parent && !node->line; node = node->parent) {
		if (node->credit > 0)
			append(current_line(node->parent), node);
		else
			wait_for_next_round(scheduler, node);
		scheduler->waiting += !node->parent->parent;
	}
}

/* The next round's credit is not to be carried into this one. */
static void leave(struct scheduler *scheduler, struct scheduler_node *node)
{
	for (; node->parent && node->line && !has_waiting(node); node = node->parent) {
		if (node->line == next_line(node->parent))
			node->credit -= scheduler->quantum;
		scheduler->waiting -= !node->parent->parent;
		take_out(node);
	}
}

/* ---- users and connections ---- */

/*
 * Found in much the same time however many there are: each SYNC message looks for its own, and
 * others' batches wait meanwhile.
 */
static struct scheduler_group **list_of(struct scheduler *scheduler,
					const struct scheduler_node *parent, uint64_t key)
{
	return &scheduler->groups[hash((uintptr_t)parent ^ hash(key))];
}

static struct scheduler_group *get_group(struct scheduler *scheduler, struct scheduler_node *parent,
					 uint64_t key)
{
	struct scheduler_group **list = list_of(scheduler, parent, key), *group = *list;

	while (group && (group->key != key || group->node.parent != parent))
		group = group->next;
	if (group)
		return group;
	group = calloc(1, sizeof *group);
	if (!group)
		return NULL;
	group->key = key;
	group->node.parent = parent;
	group->next = *list;
	*list = group;
	return group;
}

/* True where it was the last one's and is gone. */
static bool put_group(struct scheduler *scheduler, struct scheduler_group *group)
{
	struct scheduler_group **at = list_of(scheduler, group->node.parent, group->key);

	if (group->count > 0)
		return false;
	while (*at != group)
		at = &(*at)->next;
	*at = group->next;
	free(group);
	return true;
}

int scheduler_attach(struct scheduler *scheduler, struct scheduler_flow *flow,
		     enum dmasync_class klass, uint32_t uid, const void *client)
{
	struct scheduler_group *user = get_group(scheduler, &scheduler->classes[klass], uid);

	if (!user)
		return -ENOMEM;
	struct scheduler_group *connection = get_group(scheduler, &user->node, (uintptr_t)client);

	if (!connection) {
		put_group(scheduler, user);
		return -ENOMEM;
	}
	user->count += connection->count == 0;
	connection->count++;
	*flow = (struct scheduler_flow){
		.node = {.parent = &connection->node},
		.connection = connection,
		.klass = klass,
	};
	return 0;
}

void scheduler_detach(struct scheduler *scheduler, struct scheduler_flow *flow)
{
	struct scheduler_group *connection = flow->connection;

	if (!connection)
		return;
	struct scheduler_group *user = (struct scheduler_group *)connection->node.parent;

	scheduler_remove(scheduler, flow);
	if (scheduler->served == flow)
		scheduler->served = NULL;
	flow->connection = NULL;
	connection->count--;
	if (put_group(scheduler, connection)) {
		user->count--;
		put_group(scheduler, user);
	}
}

void scheduler_free(struct scheduler *scheduler)
{
	for (uint32_t i = 0; i < HASH_LISTS; i++) {
		for (struct scheduler_group *group = scheduler->groups[i], *next; group;
		     group = next) {
			next = group->next;
			free(group);
		}
		scheduler->groups[i] = NULL;
	}
}

/* ---- whose turn ---- */

bool scheduler_is_empty(const struct scheduler *scheduler)
{
	return !scheduler->only && !scheduler->waiting;
}

/*
 * Most of the time there is one flow and no choice. It is kept out of the lines then, which makes a
 * short batch's way a good part shorter, and joins them when somebody else comes: where it has had
 * the last slice, in this round whatever its credit, as if it had been there all the time.
 */
static void join_after_all(struct scheduler *scheduler)
{
	struct scheduler_node *node = &scheduler->only->node;

	if (scheduler->served == scheduler->only)
		for (; node->parent; node = node->parent) {
			append(current_line(node->parent), node);
			scheduler->waiting += !node->parent->parent;
		}
	else
		join(scheduler, node);
	scheduler->only = NULL;
}

void scheduler_add(struct scheduler *scheduler, struct scheduler_flow *flow, struct batch *batch)
{
	flow->batch = batch;
	if (flow == scheduler->only || flow->node.line)
		return;
	if (scheduler_is_empty(scheduler)) {
		scheduler->only = flow;
		return;
	}
	if (scheduler->only)
		join_after_all(scheduler);
	join(scheduler, &flow->node);
}

void scheduler_remove(struct scheduler *scheduler, struct scheduler_flow *flow)
{
	flow->batch = NULL;
	if (flow == scheduler->only)
		scheduler->only = NULL;
	else
		leave(scheduler, &flow->node);
	if (!has_waiting(&scheduler->classes[flow->klass]) && scheduler->owed[flow->klass] > 0)
		scheduler->owed[flow->klass] = 0;
}

/*
 * A class below the first one in line that is to have its share now; where both are, in turns: what
 * the shorter slices of one do not make up for must not cost the other its own.
 */
static enum dmasync_class choose_lower(const struct scheduler *scheduler, uint32_t top)
{
	enum dmasync_class chosen = order[top];

	for (uint32_t i = top + 1; i < DMASYNC_CLASSES; i++) {
		if (!has_waiting(&scheduler->classes[order[i]]) || scheduler->owed[order[i]] <= 0)
			continue;
		if (chosen == order[top] || chosen == scheduler->last_lower)
			chosen = order[i];
	}
	return chosen;
}

/*
 * The first class in line, but for the share of a lower one that waits. Two slices of lower classes
 * never follow one another: what is submitted to the first class during a slice waits for that one
 * alone.
 */
static struct scheduler_node *choose_class(struct scheduler *scheduler)
{
	uint32_t top = 0;

	while (top < DMASYNC_CLASSES && !has_waiting(&scheduler->classes[order[top]]))
		top++;
	if (top == DMASYNC_CLASSES)
		return NULL;

	enum dmasync_class chosen = order[top];

	if (rank(scheduler->last) <= top) {
		chosen = choose_lower(scheduler, top);
		if (chosen != order[top])
			scheduler->last_lower = chosen;
	}
	scheduler->last = chosen;
	return &scheduler->classes[chosen];
}

/* The first in line; it goes to the line's end at once, so that turns are of one slice or batch. */
static struct scheduler_node *take_turn(const struct scheduler *scheduler,
					struct scheduler_node *parent)
{
	for (;;) {
		struct scheduler_line *line = current_line(parent);
		struct scheduler_node *node = line->first;

		if (!node) { /* the next round */
			parent->current = 1 - parent->current;
			continue;
		}
		take_out(node);
		if (node->credit > 0) {
			append(line, node);
			return node;
		}
		/* Overdrawn by a slice, or the flow whose turn it was is gone. */
		wait_for_next_round(scheduler, node);
	}
}

/*
 * Who has used up his credit is sent to the next round: not before the next turn, so that who
 * joined meanwhile stands before him.
 */
static void end_turn(struct scheduler *scheduler)
{
	struct scheduler_flow *flow = scheduler->served;

	scheduler->served = NULL;
	for (struct scheduler_node *node = flow ? &flow->node : NULL; node && node->parent;
	     node = node->parent) {
		if (node->credit > 0 || node->line != current_line(node->parent))
			continue;
		take_out(node);
		wait_for_next_round(scheduler, node);
	}
}

static struct scheduler_flow *serve_only(struct scheduler *scheduler)
{
	struct scheduler_flow *flow = scheduler->only;

	/* Nobody else is in the round: it is over when he says so. */
	for (struct scheduler_node *node = &flow->node; node->parent; node = node->parent)
		if (node->credit <= 0)
			node->credit += scheduler->quantum;
	scheduler->served = flow;
	scheduler->last = flow->klass;
	return flow;
}

struct scheduler_flow *scheduler_next(struct scheduler *scheduler)
{
	if (scheduler->only)
		return serve_only(scheduler);
	end_turn(scheduler);
	struct scheduler_node *node = choose_class(scheduler);

	if (!node)
		return NULL;
	for (int level = 0; level < LEVELS; level++)
		node = take_turn(scheduler, node);
	scheduler->served = (struct scheduler_flow *)node;
	return scheduler->served;
}

void scheduler_charge(struct scheduler *scheduler, struct scheduler_flow *flow, uint32_t credit)
{
	/* A slice overdraws by less than a quantum and a fetch; the bound is for a tuned quantum.
	 */
	int64_t most = 2 * scheduler->quantum;

	for (struct scheduler_node *node = &flow->node; node->parent; node = node->parent) {
		node->credit -= credit;
		if (node->credit < -most)
			node->credit = -most;
	}
	/*
	 * A class with share s is owed s of what others have while it waits, and pays 1 - s of its
	 * own: of n credit in all it gets s * n. Neither what it had beyond its share while nobody
	 * else wanted it, nor what its slices were too short to make up for, counts as more than
	 * two slices.
	 */
	for (uint32_t i = 1; i < DMASYNC_CLASSES; i++) {
		enum dmasync_class klass = order[i];
		int64_t share = scheduler->share[klass], *owed = &scheduler->owed[klass];

		if (klass == flow->klass)
			*owed -= credit * (100 - share);
		else if (has_waiting(&scheduler->classes[klass]))
			*owed += credit * share;
		if (*owed < -100 * most)
			*owed = -100 * most;
		if (*owed > 100 * most)
			*owed = 100 * most;
	}
}
