/* SPDX-License-Identifier: MIT */
/*
 * The choice of line operations on another architecture, under user emulation: it must be made, or
 * declined, without dying. show_choice NAME wants those operations, "none" wants none, and "any"
 * takes what the emulator offers.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/cache/cache.h"

#define BYTES 8192u

static unsigned char memory[BYTES] __attribute__((aligned(4096)));

static int fault(const char *text)
{
	printf("FAILED: %s\n", text);
	return 1;
}

static int use(const struct cache *cache)
{
	uintptr_t start = (uintptr_t)memory;

	if (cache->line < 16 || (cache->line & (cache->line - 1)) != 0 ||
	    cache->granule < cache->line)
		return fault("line or granule make no sense");
	memset(memory, 0x5a, sizeof memory);
	cache->ops.open();
	cache->ops.clean(start, start + BYTES, cache->line);
	cache->ops.flush(start, start + BYTES, cache->line);
	cache->ops.complete(true);
	for (size_t i = 0; i < BYTES; i++) {
		if (memory[i] != 0x5a)
			return fault("memory has changed");
	}
	return 0;
}

int main(int argc, char **argv)
{
	const char *wanted = argc == 2 ? argv[1] : "any";
	struct cache cache, chosen;

	if (cache_select(NULL, &cache) != 0)
		return fault("cache_select() failed");
	printf("line %zu, granule %zu: %s\n", cache.line, cache.granule, cache.why);
	if (cache.why[0] == '\0')
		return fault("no reason given");
	if (strcmp(wanted, "any") != 0 && strcmp(wanted, cache.line ? cache.ops.name : "none") != 0)
		return fault("another choice was expected");
	/* Without trying, as libdmasync's inline mode does: the same choice. */
	cache_choose(&chosen);
	if (chosen.line != cache.line || chosen.granule != cache.granule ||
	    (cache.line && strcmp(chosen.ops.name, cache.ops.name) != 0))
		return fault("another choice where nothing is tried");
	if (cache.line)
		return use(&cache);
	return cache.ops.open || cache.ops.clean || cache.ops.flush || cache.ops.complete
		       ? fault("no line, but operations")
		       : 0;
}
