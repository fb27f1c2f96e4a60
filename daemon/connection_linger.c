/* SPDX-License-Identifier: MIT */
/*
 * Answers with fds that lie unread in a client's socket, also when the client was dropped and keeps
 * its end of it. Control thread.
 *
 * The kernel lets the daemon's user have as many fds in flight as it may have open; one more, and
 * no client gets a queue. So each connection may leave so many unread, and a socket in which some
 * lie stays open, charged to its user, until they are read or the peer closes its end.
 */
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include "daemon/connection.h"

#define LINGER_TICK_NS UINT64_C(100000000)

static bool answers_are_unread(struct client *client)
{
	int unread = 0;

	if (ioctl(client->fd, SIOCOUTQ, &unread) == 0 && unread == 0)
		client->fd_answers = 0;
	return client->fd_answers > 0;
}

uint32_t linger_answers_max(const struct daemon *daemon)
{
	const struct account_limits *limits = &daemon->accounts.limits;
	uint64_t each = limits->total[ACCOUNT_FILES] / limits->total[ACCOUNT_CONNECTIONS] /
			DMASYNC_QUEUE_FDS;

	if (each > daemon->config.max_queues)
		return daemon->config.max_queues;
	return each ? (uint32_t)each : 1;
}

bool linger_allows_answer(struct client *client)
{
	return !answers_are_unread(client) ||
	       client->fd_answers < linger_answers_max(client->daemon);
}

bool linger_begin(struct client *client)
{
	struct connections *connections = client->daemon->serving;

	if (!answers_are_unread(client) || !connections->linger_timer)
		return false;
	if (connections->lingering == 0 &&
	    loop_timer_set(connections->linger_timer, LINGER_TICK_NS) < 0)
		return false;
	connections->lingering++;
	client->lingers = true;
	return true;
}

static void linger_end(struct client *client)
{
	client->daemon->serving->lingering--;
	client->lingers = false;
	client_close_socket(client);
	client_step(client); /* may free it */
}

void linger_tick(void *context)
{
	struct daemon *daemon = context;

	for (struct client *client = daemon->clients, *next; client; client = next) {
		next = client->next;
		if (client->lingers && !answers_are_unread(client))
			linger_end(client);
	}
	if (daemon->serving->lingering)
		loop_timer_set(daemon->serving->linger_timer, LINGER_TICK_NS);
}

void linger_stop(struct daemon *daemon)
{
	for (struct client *client = daemon->clients, *next; client; client = next) {
		next = client->next;
		if (client->lingers)
			linger_end(client);
	}
	loop_timer_free(daemon->serving->linger_timer);
	daemon->serving->linger_timer = NULL;
}
