/* SPDX-License-Identifier: MIT */
/* See scheduler.h. Worker thread only. */
#include "daemon/scheduler.h"

#include <errno.h>
#include <stdlib.h>

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

static void append(struct scheduler_node *node)
{
	struct scheduler_node *parent = node->parent;

	node->next = NULL;
	node->previous = parent->last;
	if (parent->last)
		parent->last->next = node;
	else
		parent->first = node;
	parent->last = node;
}

static void unlink_node(struct scheduler_node *node)
{
	struct scheduler_node *parent = node->parent;

	if (node->previous)
		node->previous->next = node->next;
	else
		parent->first = node->next;
	if (node->next)
		node->next->previous = node->previous;
	else
		parent->last = node->previous;
	node->next = node->previous = NULL;
}

/* Up to the class: whoever had nobody in line joins the line above. */
static void join(struct scheduler *scheduler, struct scheduler_node *node)
{
	for (; node->parent && !node->in_line; node = node->parent) {
		node->in_line = true;
		node->credit += scheduler->quantum;
		append(node);
	}
}

/* Credit is for who waits; a debt is kept. */
static void leave(struct scheduler_node *node)
{
	for (; node->parent && node->in_line && !node->first; node = node->parent) {
		node->in_line = false;
		if (node->credit > 0)
			node->credit = 0;
		unlink_node(node);
	}
}

/* ---- users and connections ---- */

static struct scheduler_group *get_group(struct scheduler_group **list, uint64_t key,
					 struct scheduler_node *parent)
{
	struct scheduler_group *group = *list;

	while (group && group->key != key)
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
static bool put_group(struct scheduler_group **list, struct scheduler_group *group)
{
	if (group->count > 0)
		return false;
	while (*list != group)
		list = &(*list)->next;
	*list = group->next;
	free(group);
	return true;
}

int scheduler_attach(struct scheduler *scheduler, struct scheduler_flow *flow,
		     enum dmasync_class klass, uint32_t uid, const void *client)
{
	struct scheduler_group **users = &scheduler->users[klass];
	struct scheduler_group *user = get_group(users, uid, &scheduler->line[klass]);

	if (!user)
		return -ENOMEM;
	struct scheduler_group *connection =
		get_group(&user->members, (uintptr_t)client, &user->node);

	if (!connection) {
		put_group(users, user);
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
	flow->connection = NULL;
	connection->count--;
	if (put_group(&user->members, connection)) {
		user->count--;
		put_group(&scheduler->users[flow->klass], user);
	}
}

void scheduler_free(struct scheduler *scheduler)
{
	for (int i = 0; i < DMASYNC_CLASSES; i++) {
		for (struct scheduler_group *user = scheduler->users[i], *next; user; user = next) {
			for (struct scheduler_group *connection = user->members; connection;
			     connection = next) {
				next = connection->next;
				free(connection);
			}
			next = user->next;
			free(user);
		}
		scheduler->users[i] = NULL;
	}
}

/* ---- whose turn ---- */

void scheduler_add(struct scheduler *scheduler, struct scheduler_flow *flow, struct batch *batch)
{
	flow->batch = batch;
	join(scheduler, &flow->node);
}

void scheduler_remove(struct scheduler *scheduler, struct scheduler_flow *flow)
{
	flow->batch = NULL;
	leave(&flow->node);
	if (!scheduler->line[flow->klass].first && scheduler->owed[flow->klass] > 0)
		scheduler->owed[flow->klass] = 0;
}

bool scheduler_is_empty(const struct scheduler *scheduler)
{
	for (int i = 0; i < DMASYNC_CLASSES; i++)
		if (scheduler->line[i].first)
			return false;
	return true;
}

/*
 * The first class in line, but for the share of a lower one that waits. Two slices of lower classes
 * never follow one another: what is submitted to the first class during a slice waits for that one
 * alone.
 */
static const struct scheduler_node *choose_class(struct scheduler *scheduler)
{
	uint32_t top = 0;

	while (top < DMASYNC_CLASSES && !scheduler->line[order[top]].first)
		top++;
	if (top == DMASYNC_CLASSES)
		return NULL;

	enum dmasync_class chosen = order[top];

	if (rank(scheduler->last) <= top) {
		for (uint32_t i = top + 1; i < DMASYNC_CLASSES; i++) {
			if (scheduler->line[order[i]].first && scheduler->owed[order[i]] > 0) {
				chosen = order[i];
				break;
			}
		}
	}
	scheduler->last = chosen;
	return &scheduler->line[chosen];
}

static struct scheduler_node *head(const struct scheduler *scheduler,
				   const struct scheduler_node *parent)
{
	while (parent->first->credit <= 0) {
		struct scheduler_node *node = parent->first;

		unlink_node(node);
		append(node);
		node->credit += scheduler->quantum;
	}
	return parent->first;
}

struct scheduler_flow *scheduler_next(struct scheduler *scheduler)
{
	const struct scheduler_node *klass = choose_class(scheduler);

	if (!klass)
		return NULL;
	const struct scheduler_node *user = head(scheduler, klass);
	const struct scheduler_node *connection = head(scheduler, user);

	return (struct scheduler_flow *)head(scheduler, connection);
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
	 * own: of n credit in all it gets s * n. What it had beyond its share while nobody else
	 * wanted it counts as one slice at most.
	 */
	for (uint32_t i = 1; i < DMASYNC_CLASSES; i++) {
		enum dmasync_class klass = order[i];
		int64_t share = scheduler->share[klass], *owed = &scheduler->owed[klass];

		if (klass != flow->klass) {
			if (scheduler->line[klass].first)
				*owed += credit * share;
			continue;
		}
		*owed -= credit * (100 - share);
		if (*owed < -100 * most)
			*owed = -100 * most;
	}
}
