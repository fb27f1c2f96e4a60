/* SPDX-License-Identifier: MIT */
/*
 * A daemon of one's own for a benchmark or selftest: on a private socket, gone with all its files
 * when the benchmark ends. Main thread.
 */
#ifndef DMASYNC_CTL_SPAWN_H
#define DMASYNC_CTL_SPAWN_H

#include <sys/types.h>

struct spawn;

/*
 * Starts dmasyncd and waits until it answers. `program`: its path; "" for the one beside this
 * program, of the same build tree, or in $PATH. `config`: its configuration, NULL: none. CTL_OK, or
 * CTL_FAILED with all said.
 */
int spawn_start(const char *program, const char *config, struct spawn **ret);

const char *spawn_socket(const struct spawn *spawn);
pid_t spawn_pid(const struct spawn *spawn);

/* SIGTERM, at last SIGKILL; removes what it left. NULL is fine. */
void spawn_stop(struct spawn *spawn);

#endif
