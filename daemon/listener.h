/* SPDX-License-Identifier: MIT */
/*
 * The listening socket: passed by systemd, or made at a path of our own. Control thread, before any
 * other thread is started (the umask is changed for a moment).
 */
#ifndef DMASYNC_LISTENER_H
#define DMASYNC_LISTENER_H

#include <sys/types.h>

struct listener {
	int fd;	    /* non-blocking, close-on-exec, listening; -1: none */
	char *path; /* of a socket that we made and remove at the end; NULL: systemd's */
	dev_t device;
	ino_t inode;
};

/*
 * `path` is used where systemd passed none; NULL: DMASYNC_SOCKET_PATH. What went wrong is logged as
 * a sentence. -EADDRINUSE: another daemon answers there. -EINVAL: what systemd passed, or the path,
 * is no use.
 */
int listener_open(const char *path, struct listener *ret);

/* Closes, and removes the path where it still is our socket. */
void listener_close(struct listener *listener);

#endif
