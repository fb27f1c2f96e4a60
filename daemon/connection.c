/* SPDX-License-Identifier: MIT */
/*
 * The life of a client, from accept to the last byte of its memory. connection_accept.c makes them,
 * connection_io.c talks to them. Control thread only.
 */
#include "daemon/connection.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/log.h"
#include "daemon/notify.h"

/* Of the lines that clients can cause, however many clients they make. */
#define LOG_WINDOW_NS UINT64_C(10000000000)
#define LOG_LINES_PER_WINDOW 20u

bool connection_log_allowed(struct connections *connections)
{
	uint64_t now = clock_ns();

	if (now - connections->log_window_ns > LOG_WINDOW_NS) {
		if (connections->log_suppressed)
			log_notice("%u more lines about clients were left out",
				   connections->log_suppressed);
		connections->log_window_ns = now;
		connections->log_lines = 0;
		connections->log_suppressed = 0;
	}
	if (connections->log_lines < LOG_LINES_PER_WINDOW) {
		connections->log_lines++;
		return true;
	}
	connections->log_suppressed++;
	return false;
}

void client_log(struct client *client, int level, const char *format, ...)
{
	char id[40], pid[32], uid[32], text[512];
	const char *fields[] = {id, pid, uid, NULL};
	va_list arguments;

	bool *logged = level < LOG_INFO ? &client->misdeed_logged : &client->refusal_logged;

	if (*logged || !connection_log_allowed(client->daemon->serving))
		return;
	*logged = true;
	snprintf(id, sizeof id, "DMASYNC_CLIENT=%llu", (unsigned long long)client->id);
	snprintf(pid, sizeof pid, "DMASYNC_PID=%d", (int)client->pid);
	snprintf(uid, sizeof uid, "DMASYNC_UID=%u", (unsigned)client->account.user->uid);
	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	log_fields(level, fields, "client %llu (pid %d, uid %u, \"%s\"): %s",
		   (unsigned long long)client->id, (int)client->pid,
		   (unsigned)client->account.user->uid, client->name, text);
}

/* ---- charges ---- */

bool client_afford(struct client *client, uint16_t opcode, uint64_t cookie,
		   const struct account_cost *cost)
{
	struct account_refusal refusal;

	if (account_charge(&client->daemon->accounts, &client->account, cost, &refusal) == 0)
		return true;
	client_refuse(client, opcode, cookie, &refusal);
	return false;
}

void client_uncharge(struct client *client, const struct account_cost *cost)
{
	account_uncharge(&client->daemon->accounts, &client->account, cost);
}

bool client_keeps_files(struct client *client, const struct request *request)
{
	struct account_refusal refusal;

	if (!account_over(&client->daemon->accounts, &client->account, ACCOUNT_FILES, &refusal))
		return true;
	client_refuse(client, request->opcode, request->cookie, &refusal);
	return false;
}

/* ---- helpers ---- */

void client_submit(struct client *client, enum client_lane lane, struct helper_job *job,
		   void (*run)(struct helper_job *job), void (*finished)(struct helper_job *job))
{
	struct daemon *daemon = client->daemon;
	struct helpers *helpers = lane == LANE_CLOSE ? daemon->closers : daemon->helpers;
	bool own = lane == LANE_DAEMON;

	job->run = run;
	job->client_id = own ? 0 : client->id;
	job->user_id = own ? 0 : helper_user_id(client->account.user->uid);
	job->done = &daemon->jobs;
	job->done_fd = daemon->events_fd;
	job->finished = finished;
	if (helpers) {
		helpers_submit(helpers, job);
		return;
	}
	/* The daemon is being taken apart, and what may block may do so. */
	run(job);
	finished(job);
}

struct close_job {
	struct helper_job job; /* first */
	struct client *client;
	uint32_t count;
	int fds[];
};

static void close_run(struct helper_job *job)
{
	struct close_job *closing = (struct close_job *)job;

	for (uint32_t i = 0; i < closing->count; i++)
		close(closing->fds[i]);
}

static void close_finished(struct helper_job *job)
{
	struct close_job *closing = (struct close_job *)job;
	struct client *client = closing->client;

	client->closing -= closing->count;
	client->account.user->closing -= closing->count;
	client->close_jobs--;
	client_uncharge(client, ACCOUNT_COST([ACCOUNT_FILES] = closing->count));
	free(closing);
	clients_resume(client->daemon);
	if (client_alive(client))
		client_rewatch(client);
	client_step(client);
}

static void close_in_lane(struct client *client, enum client_lane lane, const int *fds,
			  uint32_t count)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < count; i++)
		if (fds[i] >= 0)
			left++;
	if (!left)
		return;

	struct close_job *closing = calloc(1, sizeof *closing + left * sizeof *fds);

	if (!closing) {
		for (uint32_t i = 0; i < count; i++)
			if (fds[i] >= 0)
				close(fds[i]); /* may block, but the fd must not leak */
		client_uncharge(client, ACCOUNT_COST([ACCOUNT_FILES] = left));
		return;
	}
	closing->client = client;
	for (uint32_t i = 0; i < count; i++)
		if (fds[i] >= 0)
			closing->fds[closing->count++] = fds[i];
	client->closing += left;
	client->account.user->closing += left;
	client->close_jobs++;
	client_submit(client, lane, &closing->job, close_run, close_finished);
}

void client_close_fds(struct client *client, int *fds, uint32_t count)
{
	close_in_lane(client, LANE_CLOSE, fds, count);
}

void client_close_buffer(struct client *client, int fd)
{
	close_in_lane(client, LANE_DAEMON, &fd, 1);
}

void client_close_socket(struct client *client)
{
	if (connection_drain(client->fd)) {
		close(client->fd);
		client_uncharge(client, ACCOUNT_COST([ACCOUNT_FILES] = 1));
	} else {
		client_close_fds(client, &client->fd, 1);
	}
	client->fd = -1;
}

/* ---- the end of a client ---- */

static void release_run(struct helper_job *job)
{
	struct client *client = (struct client *)job;

	buffers_release(client, &client->release_cost);
	for (struct client_queue *queue = client->queues; queue; queue = queue->next) {
		if (!client->keep_rings)
			queue_discard(queue->queue);
		queue_free(queue->queue);
	}
}

static void client_free(struct client *client)
{
	struct daemon *daemon = client->daemon;

	if (client->previous)
		client->previous->next = client->next;
	else
		daemon->clients = client->next;
	if (client->next)
		client->next->previous = client->previous;
	else
		daemon->serving->last_client = client->previous;
	client_uncharge(client, ACCOUNT_COST([ACCOUNT_CONNECTIONS] = 1));
	account_close(&daemon->accounts, &client->account);
	notify_changed(daemon->notify);

	while (client->queues) {
		struct client_queue *queue = client->queues;

		client->queues = queue->next;
		free(queue);
	}
	if (client->stops)
		for (uint32_t i = 0; i < daemon->worker_count; i++)
			free(client->stops[i]);
	free(client->stops);
	buffers_free(client);
	free(client);
}

static void release_finished(struct helper_job *job)
{
	struct client *client = (struct client *)job;
	struct daemon *daemon = client->daemon;

	client_uncharge(client, &client->release_cost);
	for (const struct client_queue *queue = client->queues; queue; queue = queue->next)
		client_uncharge(client, &queue->cost);
	client->state = CLIENT_RELEASED;
	client_step(client);
	connections_check_stopped(daemon);
}

void client_step(struct client *client)
{
	const struct daemon *daemon = client->daemon;
	bool workers_drain = daemon->serving->workers_stopping &&
			     daemon->serving->workers_stopped < daemon->worker_count;

	if (client->state == CLIENT_LEAVING && client->commands == 0 && client->jobs == 0 &&
	    !workers_drain) {
		client->state = CLIENT_RELEASING;
		/* Our account: what still hangs in this client's own jobs must not hold it up. */
		client_submit(client, LANE_DAEMON, &client->release_job, release_run,
			      release_finished);
	} else if (client->state == CLIENT_RELEASED && client->close_jobs == 0 &&
		   !client->lingers) {
		client_free(client);
	}
}

/*
 * What its workers have in hand for it is dropped; each one answers when it has let go. Also while
 * they drain: what a client that has gone had submitted is drained for nobody.
 */
static void stop_at_workers(struct client *client)
{
	struct daemon *daemon = client->daemon;

	if (!client->stops)
		return;
	for (uint32_t i = 0; i < daemon->worker_count; i++) {
		/* A worker that has ended has let go of everything. */
		if (!client->stops[i] || daemon->serving->worker_stops[i].context)
			continue;
		client->stops[i]->context = client; /* until it is answered */
		client->commands++;
		worker_post(daemon->workers[i], client->stops[i]);
	}
}

void client_drop(struct client *client)
{
	if (!client_alive(client))
		return;
	log_debug("client %llu (pid %d) leaves", (unsigned long long)client->id, (int)client->pid);
	client->state = CLIENT_LEAVING;
	watch_stop(client);
	client_drop_output(client);
	loop_unwatch(client->watch);
	loop_unwatch(client->pid_watch);
	loop_timer_free(client->handshake);
	client->watch = client->pid_watch = NULL;
	client->handshake = NULL;

	if (client->pid_fd >= 0) {
		close(client->pid_fd);
		client_uncharge(client, ACCOUNT_COST([ACCOUNT_FILES] = 1));
	}
	client->pid_fd = -1;
	stop_at_workers(client);
	shutdown(client->fd, SHUT_RDWR);
	if (!linger_begin(client))
		client_close_socket(client);
	client_step(client);
}

/* ---- what workers say ---- */

static void queue_broken(struct worker_command *event)
{
	struct client *client = event->queue->client;

	/* A client that is leaving: WORKER_CLIENT_STOP has taken the queue from its worker already.
	 */
	if (!client_alive(client))
		return;
	client_log(client, LOG_WARNING, "queue %u ends: %s", event->queue->id, event->text);
	for (struct client_queue *queue = client->queues; queue; queue = queue->next)
		if (queue->queue == event->queue)
			queue_remove(queue);
}

void client_faulted(struct client *client)
{
	client_log(
		client, LOG_WARNING,
		"its buffer's memory faulted during a batch (was it punched out?); the client is "
		"dropped");
	client->keep_rings = true;
	client_drop(client);
}

void connections_worker_event(struct daemon *daemon, struct worker_command *command)
{
	struct client *client = command->client;

	switch (command->type) {
	case WORKER_QUEUE_BROKEN: /* the queue's own memory, as the next */
		queue_broken(command);
		return;
	case WORKER_FAULT:
		client_faulted(client);
		return;
	case WORKER_QUEUE_MOVED:
		queue_moved(command->context);
		return;
	case WORKER_TUNE:
		free(command);
		return;
	case WORKER_STOP:
		connections_worker_stopped(daemon, command);
		return;
	case WORKER_QUEUE_ADD:
		client->commands--;
		queue_added(command->context);
		break;
	case WORKER_QUEUE_REMOVE:
		client->commands--;
		queue_removed(command->context);
		break;
	case WORKER_CLIENT_STOP:
		client->commands--;
		command->context = NULL;
		break;
	case WORKER_BUFFER_GRACE:
		client->commands--;
		buffer_grace_answered(command);
		break;
	case WORKER_SYNC:
		client->commands--;
		sync_answered(command);
		break;
	}
	client_step(client);
}
