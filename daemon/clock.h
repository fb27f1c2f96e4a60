/* SPDX-License-Identifier: MIT */
/* The one clock: CLOCK_MONOTONIC in nanoseconds, as clients stamp their submissions. Any thread. */
#ifndef DMASYNC_CLOCK_H
#define DMASYNC_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now); /* vdso: no system call */
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

#endif
