/* SPDX-License-Identifier: MIT */
/*
 * The daemon's control side without threads and without time: its loop, workers and helpers do
 * something when the target says so. One thread, one daemon.
 */
#ifndef TESTS_FUZZ_DAEMON_HERE_H
#define TESTS_FUZZ_DAEMON_HERE_H

#include <stdbool.h>

#include "daemon/connection.h"

/* Listens; small limits, so that an input reaches them. */
struct daemon *daemon_here_start(void);
/* A socket that is connected to it, O_NONBLOCK, or -1. */
int daemon_here_connect(void);

/* Each is true where something was done. */
bool daemon_here_loop(struct daemon *daemon);	 /* once what its watches say */
bool daemon_here_workers(struct daemon *daemon); /* one turn of each */
bool daemon_here_timers(struct daemon *daemon);	 /* all that are set are due */
/* Until nothing is left to do; a worker sleeps once, too. */
void daemon_here_settle(struct daemon *daemon);

#endif
