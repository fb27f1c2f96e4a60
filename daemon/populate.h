/* SPDX-License-Identifier: MIT */
/*
 * Memory that is to fault now and not on a batch's way. By whoever makes it, before anybody else
 * sees it.
 */
#ifndef DMASYNC_POPULATE_H
#define DMASYNC_POPULATE_H

#include <stddef.h>

#define POPULATE_STEP 4096u /* the smallest page there is */
#define POPULATE_STACK (64u * 1024)

/* Its content stays. MADV_POPULATE_WRITE would do, but is younger than the kernels we run on. */
static inline void populate(void *memory, size_t size)
{
	volatile char *bytes = memory;

	for (size_t at = 0; at < size; at += POPULATE_STEP)
		bytes[at] = bytes[at];
	if (size)
		bytes[size - 1] = bytes[size - 1];
}

/* So much of the calling thread's stack, deeper than a worker ever goes. */
static __attribute__((noinline, unused)) void populate_stack(void)
{
	volatile char bytes[POPULATE_STACK];

	for (size_t at = 0; at < sizeof bytes; at += POPULATE_STEP)
		bytes[at] = 0;
}

#endif
