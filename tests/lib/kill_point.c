/* SPDX-License-Identifier: MIT */
/*
 * The daemon's kill points: DMASYNC_KILL_AT=NAME:N has it die when it comes to NAME for the Nth
 * time. Worker threads.
 */
#include "daemon/kill_point.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

void kill_point(const char *name)
{
	static _Atomic unsigned long passed;
	const char *at = getenv("DMASYNC_KILL_AT");
	size_t length = strlen(name);

	if (!at || strncmp(at, name, length) != 0 || at[length] != ':')
		return;
	if (atomic_fetch_add(&passed, 1) + 1 == strtoul(at + length + 1, NULL, 10))
		raise(SIGKILL);
}
