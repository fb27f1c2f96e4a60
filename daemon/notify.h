/* SPDX-License-Identifier: MIT */
/*
 * What the service manager hears of the daemon: readiness, a status line, the watchdog. Everything
 * is a no-op where nobody listens ($NOTIFY_SOCKET unset). Control thread.
 */
#ifndef DMASYNC_NOTIFY_H
#define DMASYNC_NOTIFY_H

struct daemon;
struct notify;

/* Reads $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID. `daemon` has its loop; its workers may
 * come later. */
int notify_create(struct daemon *daemon, struct notify **ret);
void notify_free(struct notify *notify);

void notify_ready(struct notify *notify);
void notify_reloading(struct notify *notify); /* notify_ready() ends it */
void notify_stopping(struct notify *notify);

/*
 * Something changed that the status line tells (connections, buffers, queues): it is sent again,
 * soon but not often. Without a change nothing is ever sent. NULL is fine.
 */
void notify_changed(struct notify *notify);

#endif
