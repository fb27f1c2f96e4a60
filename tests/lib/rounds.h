/* SPDX-License-Identifier: MIT */
/*
 * How often a test repeats what it repeats: in full, or less on a slow machine. Any thread; needs
 * no library, so that every kind of test can use it.
 */
#ifndef TESTS_LIB_ROUNDS_H
#define TESTS_LIB_ROUNDS_H

#include <stdint.h>
#include <stdlib.h>

/* `full`, or what $DMASYNC_TEST_ROUNDS allows: an emulated machine is a hundred times slower. */
static inline uint64_t rounds(uint64_t full)
{
	const char *text = getenv("DMASYNC_TEST_ROUNDS");
	uint64_t most = text ? strtoull(text, NULL, 10) : 0;

	return most > 0 && most < full ? most : full;
}

/* Of `full` cases in a row, how far it is from one to the next that is tried; never a power of 2.
 */
static inline uint64_t rounds_step(uint64_t full)
{
	uint64_t step = full / rounds(full);

	return step < 2 ? 1 : step | 1;
}

#endif
