/* SPDX-License-Identifier: MIT */
/*
 * Architectures whose cache operations are the kernel's alone (armhf, and all that has no file of
 * its own here): no candidates, so cache_select() finds none. Any thread.
 */
#include "daemon/cache/cache.h"

static const struct cache_candidate candidates[] = {
	{.ops = NULL},
};

const struct cache_candidate *cache_candidates(void)
{
	return candidates;
}
