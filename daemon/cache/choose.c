/* SPDX-License-Identifier: MIT */
/*
 * Which line operations this CPU says it has, without trying one: what a library may do, whose
 * process has signal handlers of its own. Any thread, at any time.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "daemon/cache/cache.h"

void cache_say(struct cache *cache, const char *format, ...)
{
	size_t length = strlen(cache->why);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(cache->why + length, sizeof cache->why - length, format, arguments);
	va_end(arguments);
}

bool cache_offers(const struct cache_candidate *candidate, const char *cpus, struct cache *ret,
		  size_t *ret_line)
{
	const char *separator = ret->why[0] ? "; " : "";
	const char *name = candidate->ops->name;
	size_t line;

	if (!candidate->present(cpus)) {
		cache_say(ret, "%s%s: not there", separator, name);
		return false;
	}
	line = candidate->line(cpus);
	if (line < 16 || line > CACHE_LINE_MAX || (line & (line - 1)) != 0) {
		cache_say(ret, "%s%s: a line of %zu bytes is none (16 to %u, a power of two)",
			  separator, name, line, CACHE_LINE_MAX);
		return false;
	}
	*ret_line = line;
	return true;
}

void cache_choose(struct cache *ret)
{
	struct cache found = {.line = 0};

	for (const struct cache_candidate *candidate = cache_candidates();
	     candidate->ops && found.line == 0; candidate++) {
		const char *erratum;
		size_t line;

		if (!cache_offers(candidate, NULL, &found, &line))
			continue;
		erratum = candidate->trapping ? candidate->trapping() : NULL;
		found.ops = *candidate->ops;
		found.line = line;
		found.granule = candidate->granule(NULL);
		found.trapped = erratum != NULL;
		found.second_pass = candidate->second_pass && candidate->second_pass();
		cache_say(&found, "%s%s: there, not tried", found.why[0] ? "; " : "",
			  candidate->ops->name);
		if (erratum)
			cache_say(&found, "; each operation may trap into the kernel (%s)",
				  erratum);
	}
	if (!found.why[0])
		cache_say(&found, "%s", CACHE_WHY_NONE);
	*ret = found;
}
