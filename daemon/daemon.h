/* SPDX-License-Identifier: MIT */
/* The running daemon: what the control thread's files share. One per process, made by daemon.c. */
#ifndef DMASYNC_DAEMON_H
#define DMASYNC_DAEMON_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/account.h"
#include "daemon/cache/cache.h"
#include "daemon/config.h"
#include "daemon/helper.h"
#include "daemon/listener.h"
#include "daemon/loop.h"
#include "daemon/mailbox.h"
#include "daemon/worker.h"

struct client;
struct connections;
struct notify;
struct repin;

struct daemon {
	struct config config;
	struct cache cache;
	uint32_t errata;       /* DMASYNC_ERRATUM_* in force */
	uint32_t simulated_ps; /* of one simulated line operation, measured at start */
	bool kernel_backend;   /* a dma-heap or udmabuf may exist here, so DMA_BUF_IOCTL_SYNC can */
	struct loop *loop;
	struct helpers *helpers;
	struct helpers *closers; /* of files that clients sent: apart, since these may hang */
	struct notify *notify;	 /* sd_notify: readiness, status, watchdog (notify.c) */

	struct worker **workers;
	uint32_t worker_count;	 /* the slow one included, which is the last */
	uint32_t ordinary_count; /* those that queues are made on */
	struct repin *repin;	 /* where a worker's CPU went away (repin.c) */
	struct mailbox events;	 /* answers of workers */
	struct mailbox jobs;	 /* finished helper jobs */
	int events_fd;		 /* eventfd for both */

	int listen_fd;
	struct connections *serving; /* connection.h: what serving them needs */
	struct client *clients;	     /* connection.c: list by id */
	uint64_t next_client_id;

	uint64_t instance; /* random: tells a restart */
	uint64_t start_ns;
	uint64_t connections, refused; /* since start */
	uint64_t messages;	       /* received since start */
	uint64_t moved;		       /* queues and SYNC batches, to the slow worker */
	struct accounts accounts;
	struct limits_machine machine; /* when the limits were last looked at */
	bool stopping;

	/* daemon.c's own */
	struct listener listener;
	int signal_fd;
	struct loop_watch *signal_watch, *events_watch;
	bool one_cpu;	      /* the worker shares it with everybody: no spinning */
	uint64_t stop_ns;     /* when it was asked to stop */
	bool workers_stopped; /* each has answered WORKER_STOP */
};

/* Takes queues whose slices overran (worker_slow.c); once all workers were started. */
static inline struct worker *daemon_slow_worker(const struct daemon *daemon)
{
	return daemon->workers[daemon->ordinary_count];
}

/* How long a worker may look before it sleeps: not at all where it has the only CPU. */
static inline uint32_t daemon_spin_us(const struct daemon *daemon)
{
	return daemon->one_cpu ? 0 : daemon->config.spin_us;
}

/* Exit statuses of dmasyncd. */
enum daemon_status {
	DAEMON_DRAINED = 0,
	DAEMON_FAILED = 1,
	DAEMON_MISCONFIGURED = 2, /* a restart will not help: RestartPreventExitStatus= */
};

/*
 * daemon.c: everything up to a listening socket, in an order that leaves nothing behind on error.
 * The sentence for the user is logged. Returns an exit status, DAEMON_DRAINED for success.
 * daemon_run() returns one after SIGTERM's drain.
 */
/* Takes over *config. */
enum daemon_status daemon_create(struct config *config, struct daemon **ret);
enum daemon_status daemon_run(struct daemon *daemon);
void daemon_free(struct daemon *daemon);

/* connection.c: the listening socket is ready; its connections are served by the loop. */
int connections_start(struct daemon *daemon);
/*
 * No more accepts, no more requests; the workers drain what is submitted and end (WORKER_STOP is
 * sent here, its answer comes here), until stop_timeout_ms is over, when what is left is dropped;
 * daemon_stopped() once the last client was released. The workers are then to be joined.
 */
void connections_stop(struct daemon *daemon);
/* For the workers: picoseconds, 0 where the configuration allows no simulated buffers. */
uint32_t daemon_simulated_ps(const struct daemon *daemon);
/* After loop, workers and helpers have ended. Safe where they never started. */
void connections_free(struct daemon *daemon);
/* An answer of a worker, from daemon.c's events watch. */
void connections_worker_event(struct daemon *daemon, struct worker_command *command);
/* connection.c calls this when stopping and everything was released. */
void daemon_stopped(struct daemon *daemon);

#endif
