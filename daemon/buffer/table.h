/* SPDX-License-Identifier: MIT */
/*
 * The registered buffers of one connection, by handle. One thread at a time writes (the daemon's
 * control thread), any reads without a lock; a buffer that was taken out stays in memory until
 * nobody works with it any more (WORKER_BUFFER_GRACE in worker.h).
 */
#ifndef DMASYNC_BUFFER_TABLE_H
#define DMASYNC_BUFFER_TABLE_H

#include <stdatomic.h>
#include <stdint.h>

#include "daemon/buffer/map.h"
#include "daemon/cache/batch.h"

/* A handle is 24 bits: the place in the table, and above it a generation that is never 0. */
#define BUFFER_INDEX_BITS 14u
#define BUFFER_TABLE_MAX (1u << BUFFER_INDEX_BITS)
#define BUFFER_GENERATION_MASK 0x3ffu

struct buffer {
	struct cache_buffer cache; /* first: the workers' part; constant while in the table */
	uint32_t handle;
	int fd; /* of a dma-buf: for its fences and for the kernel backend; else -1 */

	/* The rest is the table's writer's. */
	struct client *client; /* the daemon's */
	enum dmasync_buffer_kind kind;
	uint32_t flags; /* DMASYNC_BUFFER_LOCKED, _GUARANTEE */
	uint64_t mapped_size;
	char exporter[DMASYNC_NAME_SIZE];
};

struct buffer_table {
	uint32_t size; /* entries */
	_Atomic(struct buffer *) *slot;
	/* the writer's */
	uint16_t *generation;
	uint32_t next_index;
};

/* `size` buffers, at most BUFFER_TABLE_MAX. -ENOMEM: *table is then empty. */
int buffer_table_create(struct buffer_table *table, uint32_t size);
/* Frees the table, and the buffers that are still in it as buffer_release() left them. */
void buffer_table_free(struct buffer_table *table);

/*
 * Gives the buffer its handle and its place; false where none is free. Where the buffer carries a
 * handle already, it becomes that very one if its place is free, else another as for 0.
 */
bool buffer_table_add(struct buffer_table *table, struct buffer *buffer);
/* Takes it out; the handle is one of the table's. */
struct buffer *buffer_table_remove(struct buffer_table *table, uint32_t handle);

/*
 * Fills in a buffer that buffer_map() has mapped. A dma-buf's fd becomes the buffer's and *fd -1:
 * its fences are waited for by it.
 */
void buffer_finish(struct buffer *buffer, const struct buffer_mapping *mapping,
		   const struct buffer_facts *facts, bool guarantee, int *fd);

/* Unmaps it and closes its fd. May block. */
void buffer_release(struct buffer *buffer);

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

/* The same for cache_batch_check(); `context` is the table. */
const struct cache_buffer *buffer_table_lookup(void *context, uint32_t handle);

#endif
