/* SPDX-License-Identifier: MIT */
/* SYNC: a batch in the message itself. Control thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/clock.h"
#include "daemon/connection.h"

static const struct account_cost cost = {{[ACCOUNT_REQUESTS] = 1, [ACCOUNT_BATCHES] = 1}};

/* Few SYNC batches in work, and where that says nothing, few queues. */
static struct worker *least_loaded(struct daemon *daemon)
{
	const uint32_t *syncs = daemon->serving->syncs;
	uint32_t best = 0;

	for (uint32_t i = 1; i < daemon->ordinary_count; i++) {
		if (syncs[i] < syncs[best] ||
		    (syncs[i] == syncs[best] && worker_queue_count(daemon->workers[i]) <
							worker_queue_count(daemon->workers[best])))
			best = i;
	}
	return daemon->workers[best];
}

static uint32_t power_of_two(uint32_t at_least)
{
	uint32_t n = 1;

	while (n < at_least)
		n *= 2;
	return n;
}

static void free_sync(struct worker_command *command)
{
	if (command)
		free(command->units);
	free(command);
}

/* The worker works in its own copy of the units, and in place. */
static struct worker_command *make_sync(const struct dmasync_sync_request *sync)
{
	struct worker_command *command = calloc(1, sizeof *command);

	if (!command)
		return NULL;
	command->type = WORKER_SYNC;
	command->count = sync->count;
	command->units_size = power_of_two(sync->count);
	command->units = calloc(command->units_size, sizeof *command->units);
	if (!command->units) {
		free_sync(command);
		return NULL;
	}
	memcpy(command->units, sync + 1, sync->count * sizeof *command->units);
	command->user_data = sync->user_data;
	return command;
}

static void post(struct worker_command *command, struct worker *worker)
{
	command->client->commands++;
	command->client->daemon->serving->syncs[worker_index(worker)]++;
	worker_post(worker, command);
}

void handle_sync(struct client *client, struct request *request)
{
	const struct dmasync_sync_request *sync = request->message;
	uint32_t units =
		(request->size - (uint32_t)sizeof *sync) / (uint32_t)sizeof(struct dmasync_unit);

	if (sync->reserved) {
		client_error(client, request->opcode, request->cookie, -EINVAL,
			     "the reserved field must be 0 and is %u", sync->reserved);
		return;
	}
	if (sync->count != units) {
		client_error(client, request->opcode, request->cookie, -EINVAL,
			     "count is %u and %u units follow", sync->count, units);
		return;
	}
	if (!client_afford(client, request->opcode, request->cookie, &cost))
		return;

	struct worker *worker = least_loaded(client->daemon);
	struct worker_command *command = make_sync(sync);

	if (!command || client_serve(client, worker) < 0) {
		free_sync(command);
		client_error(client, request->opcode, request->cookie, -ENOMEM,
			     "the daemon has no memory for the batch; try again");
		client_uncharge(client, &cost);
		return;
	}
	command->client = client;
	command->uid = client->account.user->uid;
	command->buffers = &client->buffers;
	command->owner = &client->owner;
	command->submit_ns = clock_ns();
	command->cookie = request->cookie;
	post(command, worker);
}

void sync_answered(struct worker_command *command)
{
	struct client *client = command->client;
	struct dmasync_sync_reply reply = {.completion = command->result};

	reply.completion.flags &=
		~DMASYNC_COMPLETION_EXTENDED; /* of a ring's slot: here all is sent */
	client->daemon->serving->syncs[worker_index(command->worker)]--;
	if (command->elsewhere && client_moves(client, "a SYNC batch")) {
		post(command, daemon_slow_worker(client->daemon));
		return;
	}
	client_uncharge(client, &cost);
	if (command->elsewhere) {
		client_error(client, DMASYNC_OP_SYNC, command->cookie, -ECANCELED,
			     "the daemon ends, and the batch with it");
		free_sync(command);
		return;
	}
	if (command->error < 0) {
		client_error(client, DMASYNC_OP_SYNC, command->cookie, command->error,
			     "the daemon has no memory for the batch; try again");
		free_sync(command);
		return;
	}
	client_reply(client, DMASYNC_OP_SYNC, command->cookie, &reply, sizeof reply, NULL, 0);
	if (reply.completion.reason == DMASYNC_REASON_FAULT)
		client_faulted(client);
	free_sync(command);
}
