/* SPDX-License-Identifier: MIT */
/*
 * A lock-free mailbox: any thread posts, one thread takes everything at once. Neither ever waits.
 * A node belongs to the mailbox from post to take. Nothing is allocated.
 */
#ifndef DMASYNC_MAILBOX_H
#define DMASYNC_MAILBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct mailbox_node {
	struct mailbox_node *next;
};

struct mailbox {
	_Atomic(struct mailbox_node *) newest;
};

/* True where the mailbox was empty before: its owner may have to be woken. */
static inline bool mailbox_post(struct mailbox *box, struct mailbox_node *node)
{
	struct mailbox_node *newest = atomic_load_explicit(&box->newest, memory_order_relaxed);

	do
		node->next = newest;
	/* Release: the message before the node. Pairs with the acquire in mailbox_take(). */
	while (!atomic_compare_exchange_weak_explicit(&box->newest, &newest, node,
						      memory_order_release, memory_order_relaxed));
	return newest == NULL;
}

static inline bool mailbox_is_empty(const struct mailbox *box)
{
	return atomic_load_explicit(&box->newest, memory_order_relaxed) == NULL;
}

/* Everything posted so far, oldest first. */
static inline struct mailbox_node *mailbox_take(struct mailbox *box)
{
	/* Acquire: pairs with the release in mailbox_post(). */
	struct mailbox_node *node =
		atomic_exchange_explicit(&box->newest, NULL, memory_order_acquire);
	struct mailbox_node *oldest = NULL;

	while (node) {
		struct mailbox_node *next = node->next;

		node->next = oldest;
		oldest = node;
		node = next;
	}
	return oldest;
}

#endif
