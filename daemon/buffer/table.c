/* SPDX-License-Identifier: MIT */
/* The table of buffers and what a buffer is made of, see table.h. Its writer's thread. */
#include "daemon/buffer/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int buffer_table_create(struct buffer_table *table, uint32_t size)
{
	*table = (struct buffer_table){
		.size = size,
		.slot = calloc(size, sizeof *table->slot),
		.generation = calloc(size, sizeof *table->generation),
	};
	if (table->slot && table->generation)
		return 0;
	free(table->slot);
	free(table->generation);
	*table = (struct buffer_table){0};
	return -ENOMEM;
}

void buffer_table_free(struct buffer_table *table)
{
	for (uint32_t i = 0; i < table->size; i++)
		free(atomic_load_explicit(&table->slot[i], memory_order_relaxed));
	free(table->slot);
	free(table->generation);
	*table = (struct buffer_table){0};
}

static bool is_free(const struct buffer_table *table, uint32_t index)
{
	return index < table->size &&
	       !atomic_load_explicit(&table->slot[index], memory_order_relaxed);
}

static void place(struct buffer_table *table, uint32_t index, uint32_t generation,
		  struct buffer *buffer)
{
	table->generation[index] = (uint16_t)generation;
	buffer->handle = generation << BUFFER_INDEX_BITS | index;
	/* Release: the buffer before its place. Pairs with the acquire in buffer_table_get(). */
	atomic_store_explicit(&table->slot[index], buffer, memory_order_release);
}

bool buffer_table_add(struct buffer_table *table, struct buffer *buffer)
{
	uint32_t wanted = buffer->handle & (BUFFER_TABLE_MAX - 1);
	uint32_t wanted_generation = buffer->handle >> BUFFER_INDEX_BITS & BUFFER_GENERATION_MASK;

	if (wanted_generation && is_free(table, wanted)) {
		place(table, wanted, wanted_generation, buffer);
		return true;
	}
	/* The place that has been free for longest is taken first. */
	for (uint32_t i = 0; i < table->size; i++) {
		uint32_t index = table->next_index++ % table->size;
		uint32_t generation = table->generation[index] % BUFFER_GENERATION_MASK + 1u;

		if (!is_free(table, index))
			continue;
		place(table, index, generation, buffer);
		return true;
	}
	return false;
}

struct buffer *buffer_table_remove(struct buffer_table *table, uint32_t handle)
{
	return atomic_exchange_explicit(&table->slot[handle & (BUFFER_TABLE_MAX - 1)], NULL,
					memory_order_acq_rel);
}

const struct cache_buffer *buffer_table_lookup(void *context, uint32_t handle)
{
	const struct buffer *buffer = buffer_table_get(context, handle);

	return buffer ? &buffer->cache : NULL;
}

void buffer_finish(struct buffer *buffer, const struct buffer_mapping *mapping,
		   const struct buffer_facts *facts, bool guarantee, int *fd)
{
	buffer->cache.base = (uintptr_t)mapping->base;
	buffer->cache.size = mapping->size;
	buffer->cache.backend = mapping->backend;
	buffer->cache.guarantee = guarantee;
	buffer->fd = -1;
	buffer->kind = mapping->kind;
	buffer->flags = (mapping->locked ? DMASYNC_BUFFER_LOCKED : 0) |
			(guarantee ? DMASYNC_BUFFER_GUARANTEE : 0);
	buffer->mapped_size = mapping->mapped_size;
	memcpy(buffer->exporter, facts->exporter, sizeof buffer->exporter);
	if (mapping->kind == DMASYNC_KIND_DMABUF) {
		buffer->cache.fenced = true;
		buffer->fd = *fd;
		*fd = -1;
	}
}

void buffer_release(struct buffer *buffer)
{
	buffer_unmap(buffer->cache.backend, (void *)buffer->cache.base, buffer->mapped_size);
	if (buffer->fd >= 0)
		close(buffer->fd);
}
