/* SPDX-License-Identifier: MIT */
/*
 * The end of serving: what was submitted is drained for so long, then dropped, then left. Control
 * thread.
 */
#include <inttypes.h>

#include "daemon/connection.h"
#include "daemon/log.h"

/* For workers to let go of what was dropped; an ioctl that hangs on a helper holds one up. */
#define LET_GO_NS UINT64_C(1000000000)

/* Called again after LET_GO_NS. */
void connections_stop_timed_out(void *context)
{
	struct daemon *daemon = context;
	struct connections *connections = daemon->serving;

	if (connections->stopped)
		return;
	if (connections->dropping) {
		log_warning("a worker does not let go of its batch (an ioctl of an exporter that "
			    "hangs?): leaving without it");
		loop_exit(daemon->loop, DAEMON_FAILED);
		return;
	}
	connections->dropping = true;
	log_warning("not all that was submitted is finished after stop_timeout_ms=%" PRIu32
		    ": the rest is dropped",
		    daemon->config.stop_timeout_ms);
	for (struct client *client = daemon->clients; client; client = client->next)
		client_drop(client);
	if (loop_timer_set(connections->stop_timer, LET_GO_NS) < 0)
		loop_exit(daemon->loop, DAEMON_FAILED);
}

void connections_stop(struct daemon *daemon)
{
	struct connections *connections = daemon->serving;

	if (connections->workers_stopping)
		return;
	daemon->stopping = true;
	connections->workers_stopping = true;
	connections_stop_listening(connections);
	linger_stop(daemon);
	for (struct client *client = daemon->clients; client; client = client->next) {
		/* The next daemon gets what this one leaves. Whose end has come is a helper's. */
		if (client->state < CLIENT_RELEASING)
			client->keep_rings = true;
		client_rewatch(client); /* nothing is read any more */
	}
	for (uint32_t i = 0; i < daemon->worker_count; i++) {
		connections->worker_stops[i].type = WORKER_STOP;
		worker_post(daemon->workers[i], &connections->worker_stops[i]);
	}
	if (daemon->config.stop_timeout_ms &&
	    loop_timer_set(connections->stop_timer,
			   daemon->config.stop_timeout_ms * UINT64_C(1000000)) < 0)
		connections_stop_timed_out(daemon);
}

void connections_worker_stopped(struct daemon *daemon, struct worker_command *command)
{
	struct connections *connections = daemon->serving;
	uint32_t index = worker_index(command->worker);

	command->context = daemon; /* it has ended */
	/* What was posted to it after its last look is answered by nobody. */
	for (struct client *client = daemon->clients; client; client = client->next) {
		if (!client->stops || !client->stops[index] || !client->stops[index]->context)
			continue;
		client->stops[index]->context = NULL;
		client->commands--;
	}
	if (++connections->workers_stopped < daemon->worker_count)
		return;
	for (struct client *client = daemon->clients; client; client = client->next) {
		client_drop(client);
		client_step(client); /* one that was leaving already waited for the workers */
	}
	connections_check_stopped(daemon);
}

void connections_check_stopped(struct daemon *daemon)
{
	struct connections *connections = daemon->serving;

	if (!connections->workers_stopping || connections->stopped ||
	    connections->workers_stopped < daemon->worker_count)
		return;
	/* One whose fds hang in close has nothing else left: the end does not wait for them. */
	for (struct client *client = daemon->clients; client; client = client->next)
		if (client->state != CLIENT_RELEASED)
			return;
	connections->stopped = true;
	daemon_stopped(daemon);
}
