/* SPDX-License-Identifier: MIT */
/*
 * Places where the tests of restarts have the daemon die, as by SIGKILL. Nothing in a normal build:
 * tests/e2e builds one with DMASYNC_KILL_POINTS (tests/lib/kill_point.c). Worker thread.
 */
#ifndef DMASYNC_DAEMON_KILL_POINT_H
#define DMASYNC_DAEMON_KILL_POINT_H

#ifdef DMASYNC_KILL_POINTS
void kill_point(const char *name);
#define KILL_POINT(name) kill_point(name)
#else
#define KILL_POINT(name) ((void)0)
#endif

#endif
