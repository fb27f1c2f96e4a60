/* SPDX-License-Identifier: MIT */
/*
 * What a worker has of each client, and which of its requests can be answered: they wait for its
 * own batches alone. So only these are looked at, and only when one of them was let go of: what one
 * client has waiting, however much, costs the batches of others nothing. Worker thread only.
 */
#include <errno.h>
#include <stdlib.h>

#include "daemon/worker_internal.h"

struct worker_client {
	struct worker_client *next; /* in its list of worker->clients */
	const struct client *client;
	struct queue *queues;
	struct worker_command *syncs;		    /* SYNC batches in work */
	struct worker_command *graces, *last_grace; /* WORKER_BUFFER_GRACE, oldest first */
	struct worker_command *stop;		    /* WORKER_CLIENT_STOP */
	struct worker_client *next_due;
	bool due;
};

static struct worker_client **list_of(struct worker *worker, const struct client *client)
{
	return &worker->clients[hash((uintptr_t)client)];
}

static struct worker_client *find(struct worker *worker, const struct client *client)
{
	struct worker_client *at = *list_of(worker, client);

	while (at && at->client != client)
		at = at->next;
	return at;
}

static struct worker_client *get(struct worker *worker, const struct client *client)
{
	struct worker_client *found = find(worker, client);

	if (found)
		return found;
	found = calloc(1, sizeof *found);
	if (!found)
		return NULL;
	struct worker_client **list = list_of(worker, client);

	found->client = client;
	found->next = *list;
	*list = found;
	worker->client_count++;
	return found;
}

static void put(struct worker *worker, struct worker_client *client)
{
	struct worker_client **at = list_of(worker, client->client);

	if (client->queues || client->syncs || client->graces || client->stop)
		return;
	while (*at != client)
		at = &(*at)->next;
	*at = client->next;
	worker->client_count--;
	free(client);
}

void worker_clients_free(struct worker *worker)
{
	for (uint32_t i = 0; i < HASH_LISTS; i++) {
		for (struct worker_client *client = worker->clients[i], *next; client;
		     client = next) {
			next = client->next;
			free(client);
		}
		worker->clients[i] = NULL;
	}
}

int worker_client_add_queue(struct worker *worker, struct queue *queue)
{
	struct worker_client *client = get(worker, queue->client);

	if (!client)
		return -ENOMEM;
	queue->batch.client = client;
	queue->previous_of_client = NULL;
	queue->next_of_client = client->queues;
	if (client->queues)
		client->queues->previous_of_client = queue;
	client->queues = queue;
	return 0;
}

bool worker_client_has_queue(struct worker *worker, const struct client *client,
			     const struct queue *queue)
{
	const struct worker_client *found = find(worker, client);
	const struct queue *at = found ? found->queues : NULL;

	while (at && at != queue) /* by its address: it may be another worker's by now */
		at = at->next_of_client;
	return at;
}

static void remove_queue(struct worker_client *client, struct queue *queue)
{
	if (queue->previous_of_client)
		queue->previous_of_client->next_of_client = queue->next_of_client;
	else
		client->queues = queue->next_of_client;
	if (queue->next_of_client)
		queue->next_of_client->previous_of_client = queue->previous_of_client;
}

int worker_client_add_sync(struct worker *worker, struct worker_command *command)
{
	struct worker_client *client = get(worker, command->client);

	if (!client)
		return -ENOMEM;
	command->batch.client = client;
	command->previous_pending = NULL;
	command->next_pending = client->syncs;
	if (client->syncs)
		client->syncs->previous_pending = command;
	client->syncs = command;
	worker->sync_count++;
	return 0;
}

void worker_sync_done(struct worker *worker, struct worker_command *command)
{
	struct worker_client *client = command->batch.client;

	scheduler_detach(&worker->scheduler, &command->flow);
	if (command->previous_pending)
		command->previous_pending->next_pending = command->next_pending;
	else
		client->syncs = command->next_pending;
	if (command->next_pending)
		command->next_pending->previous_pending = command->previous_pending;
	worker->sync_count--;
	worker_client_due(worker, client);
	worker_answer(worker, command);
}

void worker_client_due(struct worker *worker, struct worker_client *client)
{
	worker->settle = true;
	if (client->due)
		return;
	client->due = true;
	client->next_due = worker->due;
	worker->due = client;
}

void worker_client_let_go(struct worker *worker, const struct batch *batch)
{
	struct worker_client *client = batch->client;

	if (client->graces || client->stop || batch->cancelled || batch->leaving ||
	    (batch->queue && batch->queue->remove))
		worker_client_due(worker, client);
}

void worker_client_grace(struct worker *worker, struct worker_command *command)
{
	struct worker_client *client = find(worker, command->client);

	if (!client) { /* it has nothing here */
		worker_answer(worker, command);
		return;
	}
	command->next_pending = NULL;
	if (client->graces)
		client->last_grace->next_pending = command;
	else
		client->graces = command;
	client->last_grace = command;
	worker_client_due(worker, client);
}

static void cancel_syncs(struct worker *worker, struct worker_client *client, bool all)
{
	for (struct worker_command *sync = client->syncs, *next; sync; sync = next) {
		next = sync->next_pending;
		if (all || sync->batch.phase == BATCH_FENCE)
			worker_cancel_batch(worker, &sync->batch); /* may leave the list */
	}
}

void worker_client_stop(struct worker *worker, struct worker_command *command)
{
	struct worker_client *client = find(worker, command->client);

	if (!client) {
		worker_answer(worker, command);
		return;
	}
	client->stop = command;
	for (struct queue *queue = client->queues; queue; queue = queue->next_of_client) {
		queue->stopping = true;
		worker->wait.ops->cancel_doorbell(worker, queue);
		worker_cancel_batch(worker, &queue->batch);
	}
	cancel_syncs(worker, client, true);
	worker_client_due(worker, client);
}

void worker_clients_cancel_fences(struct worker *worker)
{
	for (uint32_t i = 0; i < HASH_LISTS; i++)
		for (struct worker_client *client = worker->clients[i]; client;
		     client = client->next)
			cancel_syncs(worker, client, false);
}

/* ---- answers ---- */

static bool in_use(const struct queue *queue)
{
	return queue->batch.phase != BATCH_FREE || queue->doorbell_armed;
}

/* The control thread's from the answers on. */
static void settle_queue(struct worker *worker, struct worker_client *client, struct queue *queue)
{
	struct worker_command *remove = queue->remove;
	bool removed = queue->stopping && !in_use(queue);

	/* What is on its way to the slow worker is removed there, but for a client that has gone.
	 */
	if (!removed && (client->stop || !worker_queue_may_leave(queue)))
		return;
	remove_queue(client, queue);
	worker_unlink_queue(worker, queue);
	if (!removed)
		worker_queue_leaves(worker, queue);
	if (remove) {
		remove->elsewhere = !removed;
		worker_answer(worker, remove);
	}
}

static void settle_queues(struct worker *worker, struct worker_client *client)
{
	for (struct queue *queue = client->queues, *next; queue; queue = next) {
		next = queue->next_of_client;
		settle_queue(worker, client, queue);
	}
}

/*
 * A batch fetched before the mark may still use a buffer that was taken out of the table; one
 * fetched after it cannot have found it. Batches with a lower order than the mark are therefore
 * waited for.
 */
static bool grace_over(const struct worker_client *client, uint64_t mark)
{
	for (const struct queue *queue = client->queues; queue; queue = queue->next_of_client)
		if (queue->batch.phase != BATCH_FREE && queue->batch.fetch_order < mark)
			return false;
	for (const struct worker_command *sync = client->syncs; sync; sync = sync->next_pending)
		if (sync->batch.fetch_order < mark)
			return false;
	return true;
}

static void settle(struct worker *worker, struct worker_client *client)
{
	settle_queues(worker, client);
	/* Marks grow: where the oldest has to wait, all have. */
	while (client->graces && grace_over(client, client->graces->grace_mark)) {
		struct worker_command *grace = client->graces;

		client->graces = grace->next_pending;
		worker_answer(worker, grace);
	}
	if (client->stop && !client->queues && !client->syncs) {
		worker_answer(worker, client->stop);
		client->stop = NULL;
	}
	put(worker, client);
}

void worker_clients_settle(struct worker *worker)
{
	worker->settle = false;
	while (worker->due) {
		struct worker_client *client = worker->due;

		worker->due = client->next_due;
		client->due = false;
		settle(worker, client);
	}
}
