/* SPDX-License-Identifier: MIT */
/* See privilege.h. Owns nothing. Control thread. */
#include "daemon/privilege.h"

#include <errno.h>
#include <grp.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/log.h"

#define GROUPS_MAX 65536u /* NGROUPS_MAX */

void privilege_look_up(const char *key, const char *name, const char *consequence,
		       struct privilege *ret)
{
	const struct group *group = name ? getgrnam(name) : NULL;

	*ret = (struct privilege){.known = group != NULL, .gid = group ? group->gr_gid : 0};
	if (name && !group) /* config.c has seen it there when it read the file */
		log_warning("%s=%s: there is no such group, so %s", key, name, consequence);
}

bool privilege_granted(const struct privilege *privilege, int fd, const struct ucred *peer)
{
	gid_t few[64], *groups = few;
	socklen_t size = sizeof few;

	/* Who runs the daemon could look into its memory anyway. */
	if (peer->uid == 0 || peer->uid == geteuid())
		return true;
	if (!privilege->known)
		return false;
	if (peer->gid == privilege->gid)
		return true;
	int r = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, few, &size);

	if (r < 0 && errno == ERANGE && size <= GROUPS_MAX * sizeof(gid_t)) {
		groups = malloc(size);
		if (!groups)
			return false;
		r = getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size);
	}
	bool found = false;

	for (size_t i = 0; r == 0 && i < size / sizeof(gid_t); i++)
		found |= groups[i] == privilege->gid;
	if (groups != few)
		free(groups);
	return found;
}
