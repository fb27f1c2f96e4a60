/* SPDX-License-Identifier: MIT */
/*
 * A dmasyncd of the demo's own: its socket and configuration stand in a directory that is made for
 * it and removed with it. The parent's one thread.
 */
#ifndef DEMO_PRIVATE_DAEMON_H
#define DEMO_PRIVATE_DAEMON_H

#include <sys/types.h>

struct private_daemon {
	pid_t process;
	char directory[64];
	char configuration[96];
	char socket[96];
};

/* The path of a program built beside this one, else its bare name, for $PATH. */
void built_program(const char *relative, char *path, size_t size);

/* Starts it and waits until it answers. On error a sentence, and nothing left behind. */
int private_daemon_start(struct private_daemon *daemon);

/* Asks it to stop, waits until it has, removes the directory. 0: it ended well. */
int private_daemon_stop(struct private_daemon *daemon);

#endif
