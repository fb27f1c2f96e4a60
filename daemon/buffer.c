/* SPDX-License-Identifier: MIT */
/*
 * The buffers of a client: their table, handles, charges, and how one leaves. buffer_add.c has how
 * they come. Control thread, but for what runs as a helper job.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/buffer_map.h"
#include "daemon/connection.h"

int buffers_create(struct client *client)
{
	struct buffer_table *table = &client->buffers;
	uint32_t size = client->daemon->config.max_buffers;

	if (size > BUFFER_TABLE_MAX)
		size = BUFFER_TABLE_MAX;
	table->slot = calloc(size, sizeof *table->slot);
	table->generation = calloc(size, sizeof *table->generation);
	if (!table->slot || !table->generation) {
		free(table->slot);
		free(table->generation);
		table->slot = NULL;
		table->generation = NULL;
		return -ENOMEM;
	}
	table->size = size;
	return 0;
}

/* ---- charges and handles ---- */

void buffer_charge(struct client *client, uint64_t bytes)
{
	client->mapped_bytes += bytes;
	client->daemon->mapped_bytes += bytes;
}

void buffer_uncharge(struct client *client, uint64_t bytes)
{
	client->mapped_bytes -= bytes;
	client->daemon->mapped_bytes -= bytes;
}

void buffer_count(struct client *client)
{
	client->buffer_count++;
	client->daemon->buffer_count++;
}

void buffer_uncount(struct client *client)
{
	client->buffer_count--;
	client->daemon->buffer_count--;
}

static uint32_t take_index(struct client *client)
{
	struct buffer_table *table = &client->buffers;

	/* There is a free one: buffer_count is at most the size. The longest free is taken first.
	 */
	for (;;) {
		uint32_t index = client->next_index++ % table->size;

		if (!atomic_load_explicit(&table->slot[index], memory_order_relaxed))
			return index;
	}
}

void buffer_publish(struct client *client, struct buffer *buffer)
{
	struct buffer_table *table = &client->buffers;
	uint32_t index = take_index(client);
	uint32_t generation = table->generation[index] % BUFFER_GENERATION_MASK + 1u;

	table->generation[index] = (uint16_t)generation;
	buffer->handle = generation << BUFFER_INDEX_BITS | index;
	/* Release: the buffer before its place. Pairs with the acquire in buffer_table_get(). */
	atomic_store_explicit(&table->slot[index], buffer, memory_order_release);
}

/* ---- removal ---- */

struct removal {
	struct helper_job job; /* first */
	struct client *client;
	uint64_t cookie;
	struct buffer *buffer;
	uint32_t waiting; /* workers that have not answered */
	struct worker_command graces[];
};

static void release_buffer(struct buffer *buffer)
{
	buffer_unmap(buffer->cache.backend, (void *)buffer->cache.base, buffer->mapped_size);
	if (buffer->fd >= 0)
		close(buffer->fd);
}

static void unmap_run(struct helper_job *job)
{
	release_buffer(((struct removal *)job)->buffer);
}

static void unmap_finished(struct helper_job *job)
{
	struct removal *removal = (struct removal *)job;
	struct client *client = removal->client;

	client->jobs--;
	buffer_uncharge(client, removal->buffer->mapped_size);
	buffer_uncount(client);
	client_done(client, DMASYNC_OP_BUFFER_REMOVE, removal->cookie);
	free(removal->buffer);
	free(removal);
	request_end(client);
	client_step(client);
}

static void start_unmapping(struct removal *removal)
{
	struct client *client = removal->client;

	client->jobs++;
	client_submit(client, client->id, &removal->job, unmap_run, unmap_finished);
}

void buffer_grace_answered(struct worker_command *command)
{
	struct removal *removal = command->context;

	if (--removal->waiting == 0)
		start_unmapping(removal);
}

void handle_buffer_remove(struct client *client, struct request *request)
{
	const struct dmasync_buffer_remove *remove = request->message;
	struct daemon *daemon = client->daemon;

	if (remove->reserved) {
		client_error(client, request->opcode, request->cookie, -EINVAL,
			     "the reserved field must be 0 and is %u", remove->reserved);
		return;
	}
	if (!buffer_table_get(&client->buffers, remove->handle)) {
		client_error(client, request->opcode, request->cookie, -ENOENT,
			     "no buffer of this connection has handle %u; it was never registered "
			     "here, or "
			     "is removed already",
			     remove->handle);
		return;
	}
	if (!request_begin(client, request))
		return;

	struct removal *removal =
		calloc(1, sizeof *removal + daemon->worker_count * sizeof removal->graces[0]);

	if (!removal) {
		client_error(client, request->opcode, request->cookie, -ENOMEM,
			     "the daemon has no memory for the request; try again");
		request_end(client);
		return;
	}
	/* Handled here and now: a batch fetched from here on does not find it. */
	removal->buffer = atomic_exchange_explicit(
		&client->buffers.slot[remove->handle & (BUFFER_TABLE_MAX - 1)], NULL,
		memory_order_acq_rel);
	removal->client = client;
	removal->cookie = request->cookie;
	for (uint32_t i = 0; i < daemon->worker_count; i++) {
		if (!client->stops || !client->stops[i])
			continue;
		removal->graces[i].type = WORKER_BUFFER_GRACE;
		removal->graces[i].client = client;
		removal->graces[i].context = removal;
		removal->waiting++;
		client->commands++;
		worker_post(daemon->workers[i], &removal->graces[i]);
	}
	if (!removal->waiting)
		start_unmapping(removal);
}

/* ---- the end ---- */

void buffers_release(struct client *client)
{
	for (uint32_t i = 0; i < client->buffers.size; i++) {
		struct buffer *buffer =
			atomic_load_explicit(&client->buffers.slot[i], memory_order_relaxed);

		if (buffer)
			release_buffer(buffer);
	}
}

void buffers_free(struct client *client)
{
	for (uint32_t i = 0; i < client->buffers.size; i++)
		free(atomic_load_explicit(&client->buffers.slot[i], memory_order_relaxed));
	free(client->buffers.slot);
	free(client->buffers.generation);
}
