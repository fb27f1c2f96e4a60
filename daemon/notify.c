/* SPDX-License-Identifier: MIT */
/*
 * Messages to the service manager, none of which may hold up the loop. Owns the socket and two
 * timers that exist only where somebody listens. Control thread.
 */
#include "daemon/notify.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/daemon.h"
#include "daemon/log.h"

#define STATUS_INTERVAL_NS UINT64_C(2000000000) /* between two status lines */
#define PAUSE_MS 10
#define PATIENCE_MS 1000 /* for messages that must arrive: READY, RELOADING, STOPPING */

struct notify {
	struct daemon *daemon;
	int fd; /* -1: nobody listens */
	struct sockaddr_un address;
	socklen_t address_size;

	struct loop_timer *status_timer;
	bool status_waits;  /* the timer runs */
	uint64_t status_ns; /* when the last one was sent */
	char status[160];

	struct loop_timer *watchdog_timer;
	uint64_t watchdog_ns; /* between two looks; 0: no watchdog */
	uint64_t *alive;      /* of each worker at the last look */
	bool complained;
};

/*
 * sd_notify() waits while the receiver's queue is full. Here a status line is then lost, and the
 * others wait for a moment at most.
 */
static void send_text(const struct notify *notify, const char *text, int patience_ms)
{
	if (notify->fd < 0)
		return;
	while (sendto(notify->fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL,
		      (const struct sockaddr *)&notify->address, notify->address_size) < 0) {
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN || patience_ms <= 0)
			return;
		/* An unconnected socket is always writable: nothing to poll for. */
		poll(NULL, 0, PAUSE_MS);
		patience_ms -= PAUSE_MS;
	}
}

static int open_socket(struct notify *notify)
{
	const char *path = getenv("NOTIFY_SOCKET");
	size_t length = path ? strlen(path) : 0;

	notify->fd = -1;
	if (!length)
		return 0;
	if ((path[0] != '/' && path[0] != '@') || length >= sizeof(notify->address.sun_path)) {
		log_warning("NOTIFY_SOCKET=%s is neither a path nor an abstract address: the "
			    "service manager hears nothing of this daemon",
			    path);
		return 0;
	}
	notify->address.sun_family = AF_UNIX;
	memcpy(notify->address.sun_path, path, length);
	if (path[0] == '@')
		notify->address.sun_path[0] = '\0';
	notify->address_size =
		(socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + (path[0] == '/'));
	notify->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	return notify->fd < 0 ? -errno : 0;
}

static void format_status(const struct daemon *daemon, char *text, size_t text_size)
{
	const uint64_t *used = daemon->accounts.used;

	snprintf(text, text_size,
		 "STATUS=%s%" PRIu64 " clients, %" PRIu64 " buffers (%" PRIu64 " MiB), %" PRIu64
		 " queues; %" PRIu32 " workers, %s",
		 daemon->stopping ? "Stopping: " : "", used[ACCOUNT_CONNECTIONS],
		 used[ACCOUNT_BUFFERS], used[ACCOUNT_BUFFER_BYTES] >> 20, used[ACCOUNT_QUEUES],
		 daemon->ordinary_count,
		 daemon->cache.line ? daemon->cache.ops.name : "no line operations");
}

static void send_status(struct notify *notify)
{
	char status[sizeof(notify->status)];

	format_status(notify->daemon, status, sizeof(status));
	if (strcmp(status, notify->status) == 0)
		return;
	memcpy(notify->status, status, sizeof(status));
	notify->status_ns = clock_ns();
	send_text(notify, status, 0);
}

static void status_due(void *context)
{
	struct notify *notify = context;

	notify->status_waits = false;
	send_status(notify);
}

void notify_changed(struct notify *notify)
{
	if (!notify || notify->fd < 0 || notify->status_waits)
		return;

	uint64_t age = clock_ns() - notify->status_ns;

	if (age >= STATUS_INTERVAL_NS)
		send_status(notify);
	else
		notify->status_waits =
			loop_timer_set(notify->status_timer, STATUS_INTERVAL_NS - age) == 0;
}

/*
 * That this runs proves that the loop moves. A worker moves, or it sleeps in its ring and nobody
 * has given it anything to do. Without the message the service manager kills the daemon.
 */
static void watchdog_due(void *context)
{
	struct notify *notify = context;
	struct daemon *daemon = notify->daemon;
	bool all_move = true;

	/* The slow one may stand still for as long as a client makes it. */
	for (uint32_t i = 0; i < daemon->ordinary_count; i++) {
		const struct worker_stats *stats = worker_stats(daemon->workers[i]);
		/* Relaxed: only whether it changed is asked, a look later sees it. */
		uint64_t alive = atomic_load_explicit(&stats->alive, memory_order_relaxed);
		bool busy = atomic_load_explicit(&stats->busy, memory_order_relaxed) != 0;

		if (busy && alive == notify->alive[i]) {
			all_move = false;
			if (!notify->complained)
				log_error("worker %" PRIu32 " has not moved for %" PRIu64
					  " ms: no sign of life for the watchdog until it does",
					  i, notify->watchdog_ns / 1000000);
			notify->complained = true;
		}
		notify->alive[i] = alive;
	}
	if (all_move) {
		notify->complained = false;
		send_text(notify, "WATCHDOG=1", 0);
	}
	if (loop_timer_set(notify->watchdog_timer, notify->watchdog_ns) < 0)
		log_error("the watchdog's timer cannot be set");
}

static int start_watchdog(struct notify *notify)
{
	uint64_t usec;
	int r = sd_watchdog_enabled(0, &usec);

	if (r <= 0 || notify->fd < 0)
		return 0; /* not asked for, or not of this process: no timer at all */
	notify->watchdog_ns = usec * 1000 / 2;
	notify->alive = calloc(CONFIG_CPUS_MAX, sizeof(*notify->alive));
	if (!notify->alive)
		return -ENOMEM;
	r = loop_timer_create(notify->daemon->loop, watchdog_due, notify, &notify->watchdog_timer);
	return r < 0 ? r : loop_timer_set(notify->watchdog_timer, notify->watchdog_ns);
}

int notify_create(struct daemon *daemon, struct notify **ret)
{
	struct notify *notify = calloc(1, sizeof(*notify));
	int r;

	if (!notify)
		return -ENOMEM;
	notify->daemon = daemon;
	r = open_socket(notify);
	if (r == 0 && notify->fd >= 0)
		r = loop_timer_create(daemon->loop, status_due, notify, &notify->status_timer);
	if (r == 0)
		r = start_watchdog(notify);
	if (r < 0) {
		notify_free(notify);
		return r;
	}
	*ret = notify;
	return 0;
}

void notify_free(struct notify *notify)
{
	if (!notify)
		return;
	loop_timer_free(notify->status_timer);
	loop_timer_free(notify->watchdog_timer);
	if (notify->fd >= 0)
		close(notify->fd);
	free(notify->alive);
	free(notify);
}

void notify_ready(struct notify *notify)
{
	char text[sizeof("READY=1\n") + sizeof(notify->status)];

	format_status(notify->daemon, notify->status, sizeof(notify->status));
	notify->status_ns = clock_ns();
	snprintf(text, sizeof(text), "READY=1\n%s", notify->status);
	send_text(notify, text, PATIENCE_MS);
}

void notify_reloading(struct notify *notify)
{
	char text[64];

	snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64, clock_ns() / 1000);
	send_text(notify, text, PATIENCE_MS);
}

void notify_stopping(struct notify *notify)
{
	send_text(notify, "STOPPING=1", PATIENCE_MS);
	notify_changed(notify);
}
