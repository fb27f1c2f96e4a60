/* SPDX-License-Identifier: MIT */
/* See deadlines.h. Owns nothing; the thread that owns the heap. */
#include "daemon/deadlines.h"

#include <limits.h>
#include <stddef.h>

#define NS_PER_MS UINT64_C(1000000)

/* Two heaps become one: the later one the first child of the earlier. */
static struct deadline *merge(struct deadline *a, struct deadline *b)
{
	if (!a)
		return b;
	if (!b)
		return a;
	if (b->ns < a->ns) {
		struct deadline *earlier = b;

		b = a;
		a = earlier;
	}
	b->previous = a;
	b->next = a->child;
	if (a->child)
		a->child->previous = b;
	a->child = b;
	return a;
}

/* The children of one that goes: in pairs, then all pairs, which keeps the heap flat. */
static struct deadline *merge_children(struct deadline *child)
{
	struct deadline *pairs = NULL, *merged = NULL;

	while (child) {
		struct deadline *second = child->next;
		struct deadline *rest = second ? second->next : NULL;
		struct deadline *pair = merge(child, second);

		pair->next = pairs;
		pairs = pair;
		child = rest;
	}
	while (pairs) {
		struct deadline *rest = pairs->next;

		merged = merge(merged, pairs);
		pairs = rest;
	}
	return merged;
}

void deadlines_add(struct deadlines *deadlines, struct deadline *deadline)
{
	deadline->child = deadline->next = deadline->previous = NULL;
	deadlines->first = merge(deadlines->first, deadline);
}

void deadlines_remove(struct deadlines *deadlines, struct deadline *deadline)
{
	struct deadline *children = merge_children(deadline->child);

	if (deadlines->first == deadline) {
		deadlines->first = children;
	} else {
		if (deadline->previous->child == deadline)
			deadline->previous->child = deadline->next;
		else
			deadline->previous->next = deadline->next;
		if (deadline->next)
			deadline->next->previous = deadline->previous;
		deadlines->first = merge(deadlines->first, children);
	}
	/* What stands at the top has no siblings and no parent. */
	if (deadlines->first)
		deadlines->first->next = deadlines->first->previous = NULL;
}

int deadlines_timeout_ms(const struct deadlines *deadlines, uint64_t now_ns)
{
	if (!deadlines->first)
		return -1;
	if (deadlines->first->ns <= now_ns)
		return 0;

	uint64_t ms = (deadlines->first->ns - now_ns - 1) / NS_PER_MS + 1;

	return ms < INT_MAX ? (int)ms : INT_MAX;
}
