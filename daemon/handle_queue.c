/* SPDX-License-Identifier: MIT */
/* QUEUE_CREATE and QUEUE_REMOVE: queues between their client and their worker. Control thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/connection.h"
#include "daemon/log.h"
#include "daemon/repin.h"

int client_serve(struct client *client, struct worker *worker)
{
	struct daemon *daemon = client->daemon;
	uint32_t index = worker_index(worker);

	if (!client->stops) {
		client->stops = calloc(daemon->worker_count, sizeof *client->stops);
		if (!client->stops)
			return -ENOMEM;
	}
	if (client->stops[index])
		return 0;
	/* Made now, so that telling the worker of the client's end cannot fail. */
	struct worker_command *stop = calloc(1, sizeof *stop);

	if (!stop)
		return -ENOMEM;
	stop->type = WORKER_CLIENT_STOP;
	stop->client = client;
	client->stops[index] = stop;
	return 0;
}

static struct worker *choose_worker(struct daemon *daemon)
{
	struct worker *best = daemon->workers[0];

	for (uint32_t i = 1; i < daemon->ordinary_count; i++)
		if (worker_queue_count(daemon->workers[i]) < worker_queue_count(best))
			best = daemon->workers[i];
	return best;
}

static struct client_queue *find_queue(struct client *client, uint32_t id)
{
	for (struct client_queue *queue = client->queues; queue; queue = queue->next)
		if (queue->queue->id == id)
			return queue;
	return NULL;
}

/* 0 stands for SYNC in batch records. */
uint32_t queue_take_id(struct client *client)
{
	do
		client->next_queue_id++;
	while (client->next_queue_id == 0 || find_queue(client, client->next_queue_id));
	return client->next_queue_id;
}

static bool sizes_are_right(struct client *client, const struct request *request)
{
	const struct dmasync_queue_create *create = request->message;
	const struct config *config = &client->daemon->config;
	uint32_t max_depth = config->max_depth < DMASYNC_RING_MAX_DEPTH ? config->max_depth
									: DMASYNC_RING_MAX_DEPTH;
	uint32_t max_units = config->max_units < DMASYNC_RING_MAX_UNITS ? config->max_units
									: DMASYNC_RING_MAX_UNITS;

	if (!dmasync_ring_is_power_of_two(create->depth) ||
	    create->depth < DMASYNC_RING_MIN_DEPTH || create->depth > max_depth) {
		client_error(client, request->opcode, request->cookie, -EINVAL,
			     "depth is %u; it must be a power of two from %u to max_depth=%u",
			     create->depth, DMASYNC_RING_MIN_DEPTH, max_depth);
		return false;
	}
	if (!dmasync_ring_is_power_of_two(create->units) ||
	    create->units < DMASYNC_RING_MIN_UNITS || create->units > max_units) {
		client_error(client, request->opcode, request->cookie, -EINVAL,
			     "units is %u; it must be a power of two from %u to max_units=%u",
			     create->units, DMASYNC_RING_MIN_UNITS, max_units);
		return false;
	}
	return true;
}

static bool may_create(struct client *client, const struct request *request)
{
	const struct dmasync_queue_create *create = request->message;

	if (create->flags) {
		client_error(client, request->opcode, request->cookie, -EINVAL,
			     "flags are %#x; layout 1 knows none", create->flags);
		return false;
	}
	if (create->klass > DMASYNC_CLASS_BULK) {
		client_error(client, request->opcode, request->cookie, -EINVAL,
			     "class is %u; it must be 0 (normal), 1 (realtime) or 2 (bulk)",
			     create->klass);
		return false;
	}
	if (create->klass == DMASYNC_CLASS_REALTIME && !client->realtime) {
		const char *group = client->daemon->config.realtime_group;

		client_error(
			client, request->opcode, request->cookie, -EPERM,
			"class realtime is not granted to user %u: it is for root, the daemon's "
			"own user and the members of realtime_group in [daemon], which is %s",
			(unsigned)client->account.user->uid, group ? group : "not set");
		return false;
	}
	if (!sizes_are_right(client, request))
		return false;
	if (!linger_allows_answer(client)) {
		client_error(client, request->opcode, request->cookie, -EBUSY,
			     "%u answers to QUEUE_CREATE are unread; read them first",
			     client->fd_answers);
		return false;
	}
	return true;
}

/* Its ends of the two pipes stay with the daemon; those of the client go out with the answer. */
static void queue_cost(uint32_t depth, uint32_t units, struct account_cost *ret)
{
	*ret = (struct account_cost){{
		[ACCOUNT_QUEUES] = 1,
		[ACCOUNT_QUEUE_BYTES] = queue_bytes(depth, units),
		[ACCOUNT_BATCHES] = depth,
		[ACCOUNT_FILES] = QUEUE_FILES,
		[ACCOUNT_MAPS] = QUEUE_MAPS,
	}};
}

static int create(struct client *client, const struct dmasync_queue_create *request,
		  struct client_queue **ret, int fds[DMASYNC_QUEUE_FDS])
{
	struct worker *worker = choose_worker(client->daemon);
	struct client_queue *queue;
	int r = client_serve(client, worker);

	if (r < 0)
		return r;
	queue = calloc(1, sizeof *queue);
	if (!queue)
		return -ENOMEM;
	r = queue_create(request->depth, request->units, worker_page_fd(worker), &queue->queue,
			 fds);
	if (r < 0) {
		free(queue);
		return r;
	}
	queue->client = client;
	queue->queue->move->context = queue;
	queue->worker = worker;
	queue->queue->client = client;
	queue->queue->worker = worker;
	queue->queue->buffers = &client->buffers;
	queue->queue->owner = &client->owner;
	queue->queue->id = queue_take_id(client);
	queue->queue->uid = client->account.user->uid;
	queue->klass = queue->queue->klass = (enum dmasync_class)request->klass;
	client->class_queues[queue->klass]++;
	queue->next = client->queues;
	client->queues = queue;
	*ret = queue;
	return 0;
}

void handle_queue_create(struct client *client, struct request *request)
{
	const struct dmasync_queue_create *asked = request->message;
	struct daemon *daemon = client->daemon;
	struct client_queue *queue;
	struct account_cost cost;
	int fds[DMASYNC_QUEUE_FDS];

	if (!may_create(client, request))
		return;
	queue_cost(asked->depth, asked->units, &cost);
	if (!client_afford(client, request->opcode, request->cookie, &cost))
		return;
	repin_count_cpus(daemon->repin);
	int r = create(client, asked, &queue, fds);

	if (r < 0) {
		client_error(client, request->opcode, request->cookie, r,
			     "the queue's memory and pipes cannot be made: %s%s", strerror(-r),
			     r == -EMFILE || r == -ENFILE
				     ? "; the daemon has no file descriptors left (LimitNOFILE)"
				     : "");
		client_uncharge(client, &cost);
		return;
	}
	queue->cost = cost;
	queue->add.type = WORKER_QUEUE_ADD;
	queue->add.queue = queue->queue;
	queue->add.client = client;
	queue->add.context = queue;
	client->commands++;
	worker_post(queue->worker, &queue->add);

	struct dmasync_queue_create_reply reply = {
		.queue = queue->queue->id,
		.worker = worker_index(queue->worker),
		.depth = asked->depth,
		.units = asked->units,
		.cpu = worker_cpu(queue->worker),
		.spin_us = daemon_spin_us(daemon),
	};

	client->fd_answers++;
	client_reply(client, request->opcode, request->cookie, &reply, sizeof reply, fds,
		     DMASYNC_QUEUE_FDS);
}

/* The answer went out before, so a worker without memory for it ends the connection. */
void queue_added(struct client_queue *queue)
{
	if (queue->add.error == 0)
		return;
	client_log(queue->client, LOG_WARNING,
		   "queue %u cannot be served: %s; the client is dropped", queue->queue->id,
		   strerror(-queue->add.error));
	queue->client->keep_rings = true;
	client_drop(queue->client);
}

/* ---- to the slow worker ---- */

bool client_moves(struct client *client, const char *what)
{
	struct daemon *daemon = client->daemon;

	client->moved++;
	daemon->moved++;
	if (!client_alive(client) || daemon->serving->workers_stopping)
		return false;
	client_log(client, LOG_WARNING,
		   "%s takes far longer than its size allows, page fault by page fault (is the "
		   "buffer's memory punched out?): the slow worker goes on with it, and others of "
		   "this client that do so follow",
		   what);
	if (client_serve(client, daemon_slow_worker(daemon)) == 0)
		return true;
	client->keep_rings = true;
	client_drop(client);
	return false;
}

/*
 * Its worker has let go of it. Where a REMOVE is under way, that worker answers it after this, and
 * queue_removed() goes on from there; WORKER_CLIENT_STOP likewise.
 */
void queue_moved(struct client_queue *queue)
{
	struct client *client = queue->client;
	char what[sizeof "queue 4294967295"];

	snprintf(what, sizeof what, "queue %u", queue->queue->id);
	queue->nowhere = !client_moves(client, what);
	if (queue->nowhere)
		return;
	queue->worker = queue->queue->worker = daemon_slow_worker(client->daemon);
	client->commands++;
	worker_post(queue->worker, &queue->add);
}

/* ---- removal ---- */

static void free_run(struct helper_job *job)
{
	struct queue *queue = ((struct client_queue *)job)->queue;

	queue_discard(queue); /* its client is done with it, or has broken it */
	queue_free(queue);
}

static void free_finished(struct helper_job *job)
{
	struct client_queue *queue = (struct client_queue *)job;
	struct client *client = queue->client;

	client->jobs--;
	if (queue->answer) {
		client_done(client, DMASYNC_OP_QUEUE_REMOVE, queue->cookie);
		request_end(client);
	}
	client->class_queues[queue->klass]--;
	client_uncharge(client, &queue->cost);
	free(queue);
	client_step(client);
}

/*
 * The worker has let go: the queue is nobody's but ours, unless it was given to another one
 * meanwhile, who is asked in turn. While the workers end nobody is: it goes with its client.
 */
void queue_removed(struct client_queue *queue)
{
	struct client *client = queue->client;

	if (queue->remove.worker != queue->worker && !queue->nowhere) {
		if (!client->daemon->serving->workers_stopping) {
			client->commands++;
			worker_post(queue->worker, &queue->remove);
		} else if (queue->answer) {
			queue->answer = false;
			request_end(client);
		}
		return;
	}
	for (struct client_queue **at = &client->queues; *at; at = &(*at)->next) {
		if (*at == queue) {
			*at = queue->next;
			break;
		}
	}
	client->jobs++;
	client_submit(client, LANE_DAEMON, &queue->free_job, free_run, free_finished);
}

void queue_remove(struct client_queue *queue)
{
	if (queue->removing || queue->client->daemon->serving->workers_stopping)
		return;
	queue->removing = true;
	queue->remove.type = WORKER_QUEUE_REMOVE;
	queue->remove.queue = queue->queue;
	queue->remove.client = queue->client;
	queue->remove.context = queue;
	queue->client->commands++;
	worker_post(queue->worker, &queue->remove);
}

void handle_queue_remove(struct client *client, struct request *request)
{
	const struct dmasync_queue_remove *remove = request->message;
	struct client_queue *queue = find_queue(client, remove->queue);

	if (remove->reserved) {
		client_error(client, request->opcode, request->cookie, -EINVAL,
			     "the reserved field must be 0 and is %u", remove->reserved);
		return;
	}
	if (!queue || queue->answer) {
		client_error(
			client, request->opcode, request->cookie, -ENOENT,
			"this connection has no queue %u; it was removed already, or ended because "
			"its ring was broken",
			remove->queue);
		return;
	}
	if (!request_begin(client, request))
		return;
	queue->answer = true;
	queue->cookie = request->cookie;
	queue_remove(queue);
}
