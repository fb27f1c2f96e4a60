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

/* One normal queue by raw bytes and one of class realtime over the library. */
pid_t honest_start(const char *socket, struct honest *honest);

#endif
