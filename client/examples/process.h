/* SPDX-License-Identifier: MIT */
/*
 * Child processes of the demo: none of them is left behind, whatever ends first. The parent's one
 * thread calls all of this.
 */
#ifndef DEMO_PROCESS_H
#define DEMO_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * Blocks the signals that this file waits for: SIGINT, SIGTERM, SIGHUP and SIGCHLD. Once, before
 * the first child.
 */
void process_init(void);

/* fork() whose child has the signals unblocked and dies with its parent. Negative errno. */
pid_t process_fork(void);

/* The same, and runs a program, with `arguments` as of execvp(), in a process group of its own
 * where `background`: Ctrl-C on the terminal then does not reach it. */
pid_t process_spawn(const char *const *arguments, bool background);

/*
 * Waits until all have ended; ids below 1 are passed over. 0: all ended with status 0. The first
 * that ends otherwise (-ECHILD), or a signal to us (-EINTR), or `terminate`, sends SIGTERM to the
 * rest.
 */
int process_wait_all(const pid_t *children, int count, bool terminate);

/* Did it end meanwhile? */
bool process_has_ended(pid_t child);

/* A signal asked the demo to stop. Stays true. */
bool process_interrupted(void);

/* The same, after waiting so long for one. */
bool process_pause(unsigned milliseconds);

#endif
