/* SPDX-License-Identifier: MIT */
/*
 * Which loop the daemon runs on, and saying why: to the log, and to whoever asks with PROBE.
 * Control thread, at the start.
 */
#ifndef DMASYNC_LOOP_CHOICE_H
#define DMASYNC_LOOP_CHOICE_H

#include "daemon/daemon.h"

/* Makes daemon->loop as the configuration says. An error is logged. */
enum daemon_status loop_choose(struct daemon *daemon);

/* What the workers are to try: no io_uring where the control loop has none. */
enum loop_kind loop_choice_of_workers(const struct daemon *daemon);
/* After worker_start(): says where it runs on another loop than the control thread. */
void loop_choice_worker_started(const struct worker *worker);
/* Where worker_start() failed. */
enum daemon_status loop_choice_worker_failed(const struct daemon *daemon, int error);

/* "restricted to the operations it uses", or why it is epoll: for PROBE. */
void loop_choice_text(const struct daemon *daemon, char *text, size_t text_size);

#endif
