/* SPDX-License-Identifier: MIT */
/*
 * Whether block writes to device memory need a barrier on this machine. Any thread.
 *
 * Found out once. The answer is the one thing of this library that outlives a call without an
 * object of the caller's: a constant of the machine. Threads that ask at the same time look at the
 * same files, come to the same answer and store the same word, so nothing but the word itself has
 * to be atomic: relaxed, it carries no other data with it, and has no partner.
 */
#include <stdlib.h>

#include "client/iomem.h"
#include "daemon/cache/errata.h"

enum decision { UNDECIDED = 0, NO_BARRIER = 1, BARRIER = 2 };

static _Atomic int decision = UNDECIDED;

#if defined(__aarch64__)
#define HERE_IS_ARM64 true
#else
#define HERE_IS_ARM64 false
#endif

/* A MIDR in words of C, all of the text. */
static bool parse_midr(const char *text, uint32_t *ret)
{
	unsigned long long value;
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	value = strtoull(text, &end, 0);
	if (errno || *end || value > UINT32_MAX)
		return false;
	*ret = (uint32_t)value;
	return true;
}

bool io_barrier_decide(const char *root, const char *midr, bool arm64)
{
	unsigned int cpus;
	uint32_t value, errata;

	if (midr && parse_midr(midr, &value))
		return cache_errata_of(value) & DMASYNC_ERRATUM_OLYMPUS_T410_1027;
	if (!arm64)
		return false;
	errata = cache_errata_here(root, &cpus);
	/* A container without /sys: a barrier too many costs time, one too few a wrong value. */
	return cpus == 0 || errata & DMASYNC_ERRATUM_OLYMPUS_T410_1027;
}

static __attribute__((noinline, cold)) int decide(void)
{
	int found = io_barrier_decide("", secure_getenv("DMASYNC_IO_MIDR"), HERE_IS_ARM64)
			    ? BARRIER
			    : NO_BARRIER;

	atomic_store_explicit(&decision, found, memory_order_relaxed);
	return found;
}

DMASYNC_PUBLIC bool dmasync_io_needs_barrier(void)
{
	int found = atomic_load_explicit(&decision, memory_order_relaxed);

	if (found == UNDECIDED)
		found = decide();
	return found == BARRIER;
}
