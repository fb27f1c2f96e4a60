/* SPDX-License-Identifier: MIT */
/*
 * What the configuration grants to the members of a group: root and the daemon's own user have it
 * always. Control thread.
 */
#ifndef DMASYNC_PRIVILEGE_H
#define DMASYNC_PRIVILEGE_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

struct privilege {
	bool known; /* the group is there */
	gid_t gid;
};

/*
 * Once, at start: it may ask the network. `name` NULL: no group. `key` and `consequence` are for
 * the warning where there is no such group.
 */
void privilege_look_up(const char *key, const char *name, const char *consequence,
		       struct privilege *ret);

/* For the peer of this socket: its groups are those it had when it connected. */
bool privilege_granted(const struct privilege *privilege, int fd, const struct ucred *peer);

#endif
