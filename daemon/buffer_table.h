/* SPDX-License-Identifier: MIT */
/*
 * The registered buffers of one connection, by handle. The control thread writes, workers read
 * without a lock; a buffer that was taken out stays in memory until every worker has answered
 * WORKER_BUFFER_GRACE (worker.h).
 */
#ifndef DMASYNC_BUFFER_TABLE_H
#define DMASYNC_BUFFER_TABLE_H

#include <stdatomic.h>
#include <stdint.h>

#include "daemon/cache/batch.h"

/* A handle is 24 bits: the place in the table, and above it a generation that is never 0. */
#define BUFFER_INDEX_BITS 14u
#define BUFFER_TABLE_MAX (1u << BUFFER_INDEX_BITS)
#define BUFFER_GENERATION_MASK 0x3ffu

struct buffer {
	struct cache_buffer cache; /* first: the workers' part; constant while in the table */
	uint32_t handle;
	int fd; /* of a dma-buf: for its fences and for the kernel backend; else -1 */

	/* The rest is the control thread's (buffer.c). */
	struct client *client;
	enum dmasync_buffer_kind kind;
	uint32_t flags; /* DMASYNC_BUFFER_LOCKED, _GUARANTEE */
	uint64_t mapped_size;
	char exporter[32];
};

struct buffer_table {
	uint32_t size; /* entries */
	_Atomic(struct buffer *) *slot;
	uint16_t *generation; /* control thread only */
};

static inline const struct buffer *buffer_table_get(const struct buffer_table *table,
						    uint32_t handle)
{
	uint32_t index = handle & (BUFFER_TABLE_MAX - 1);

	if (index >= table->size)
		return NULL;
	/* Acquire: pairs with the control thread's release store of a finished buffer. */
	const struct buffer *buffer =
		atomic_load_explicit(&table->slot[index], memory_order_acquire);

	return buffer && buffer->handle == handle ? buffer : NULL;
}

#endif
