/* SPDX-License-Identifier: MIT */
/*
 * The buffers of a client: their table, charges, and how one leaves. buffer_add.c has how
 * they come. Control thread, but for what runs as a helper job.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/buffer/map.h"
#include "daemon/connection.h"

int buffers_create(struct client *client)
{
	uint32_t size = client->daemon->config.max_buffers;

	if (size > BUFFER_TABLE_MAX)
		size = BUFFER_TABLE_MAX;
	return buffer_table_create(&client->buffers, size);
}

/* What a registered buffer was charged on its way through buffer_add.c. */
static void add_cost(const struct buffer *buffer, struct account_cost *cost)
{
	cost->amount[ACCOUNT_BUFFERS]++;
	cost->amount[ACCOUNT_BUFFER_BYTES] += buffer->mapped_size;
	cost->amount[ACCOUNT_MAPS] += buffer_map_count(buffer->cache.backend);
	cost->amount[ACCOUNT_FILES] += buffer->fd >= 0;
}

/* ---- removal ---- */

struct removal {
	struct helper_job job; /* first */
	struct client *client;
	uint64_t cookie;
	struct buffer *buffer;
	uint32_t waiting; /* workers that have not answered */
	uint32_t moved;	  /* the client's when they were asked */
	struct removal *next;
	struct worker_command graces[];
};

static void unmap_run(struct helper_job *job)
{
	buffer_release(((struct removal *)job)->buffer);
}

static void unmap_finished(struct helper_job *job)
{
	struct removal *removal = (struct removal *)job;
	struct client *client = removal->client;
	struct account_cost cost = {0};

	client->jobs--;
	add_cost(removal->buffer, &cost);
	client_uncharge(client, &cost);
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
	client_submit(client, LANE_CLIENT, &removal->job, unmap_run, unmap_finished);
}

static void ask_workers(struct removal *removal)
{
	struct client *client = removal->client;
	struct daemon *daemon = client->daemon;

	removal->moved = client->moved;
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

/*
 * What moved meanwhile may have been with no worker when it was asked: the slow one, who had not
 * been given it yet, or the one before, who had let go of it. (Who lets go says so before he
 * answers, so it is known here.) All are asked again then; what moved is in its place by now. Where
 * the workers end, what they had in work is not gone on with, and the buffer goes with its client.
 */
void buffer_grace_answered(struct worker_command *command)
{
	struct removal *removal = command->context;
	struct client *client = removal->client;

	if (--removal->waiting)
		return;
	if (removal->moved == client->moved) {
		start_unmapping(removal);
	} else if (!client->daemon->serving->workers_stopping) {
		ask_workers(removal);
	} else {
		removal->next = client->unfinished;
		client->unfinished = removal;
		request_end(client);
	}
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
	removal->buffer = buffer_table_remove(&client->buffers, remove->handle);
	removal->client = client;
	removal->cookie = request->cookie;
	ask_workers(removal);
}

/* ---- the end ---- */

void buffers_release(struct client *client, struct account_cost *cost)
{
	for (uint32_t i = 0; i < client->buffers.size; i++) {
		struct buffer *buffer =
			atomic_load_explicit(&client->buffers.slot[i], memory_order_relaxed);

		if (!buffer)
			continue;
		add_cost(buffer, cost);
		buffer_release(buffer);
	}
	while (client->unfinished) {
		struct removal *removal = client->unfinished;

		client->unfinished = removal->next;
		add_cost(removal->buffer, cost);
		buffer_release(removal->buffer);
		free(removal->buffer);
		free(removal);
	}
}

void buffers_free(struct client *client)
{
	buffer_table_free(&client->buffers);
}
