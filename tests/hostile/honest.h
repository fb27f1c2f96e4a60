/* SPDX-License-Identifier: MIT */
/*
 * The well-behaved clients beside an attack: a process of its own, which counts what it has done in
 * shared memory. For the process that starts it, and those it forks.
 */
#ifndef TESTS_HOSTILE_HONEST_H
#define TESTS_HOSTILE_HONEST_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct honest {
	_Atomic uint64_t rounds; /* completed, with the right contents */
	_Atomic bool stop;
	/* Of the records of its normal batches: */
	_Atomic uint64_t records, waited_lines, waited_entries;
};

/* The group it is in, for realtime_group; NULL: the daemon grants it anyway. */
const char *honest_group(void);

/* One normal queue by raw bytes and one of class realtime over the library; as root, as this user.
 */
pid_t honest_start(const char *socket, uid_t uid, struct honest *honest);

/* As root: another user and group, in this group alone (or in none: NULL). Else nothing. */
void honest_become(uid_t uid, const gid_t *group);

#endif
