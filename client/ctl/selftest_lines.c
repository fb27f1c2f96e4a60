/* SPDX-License-Identifier: MIT */
/*
 * How the selftest judges what the CPU read: line by line, and what follows from all ways together.
 * Owns nothing. Any thread.
 */
#include <inttypes.h>
#include <string.h>

#include "client/ctl/selftest.h"

#define MAP_COLUMNS 64u
#define MAP_ROWS 32u

static enum selftest_line judge(const void *old, const void *seen, const void *new, size_t line)
{
	if (memcmp(old, new, line) == 0)
		return SELFTEST_UNCHANGED;
	if (memcmp(seen, new, line) == 0)
		return SELFTEST_FRESH;
	return memcmp(seen, old, line) == 0 ? SELFTEST_STALE : SELFTEST_MIXED;
}

void selftest_judge(struct selftest_way *way, const void *old, const void *seen, const void *new)
{
	const char *o = old, *s = seen, *n = new;

	for (size_t i = 0; i < way->count; i++) {
		size_t at = i * way->line;
		enum selftest_line found = judge(o + at, s + at, n + at, way->line);

		if (found > way->lines[i])
			way->lines[i] = (uint8_t)found;
	}
	way->rounds++;
}

size_t selftest_count(const struct selftest_way *way, enum selftest_line kind)
{
	size_t count = 0;

	for (size_t i = 0; i < way->count; i++)
		count += way->lines[i] == (uint8_t)kind;
	return count;
}

static bool is_wrong(uint8_t line)
{
	return line == SELFTEST_STALE || line == SELFTEST_MIXED;
}

static size_t count_wrong(const struct selftest_way *way)
{
	return selftest_count(way, SELFTEST_STALE) + selftest_count(way, SELFTEST_MIXED);
}

enum selftest_verdict selftest_conclude(const struct selftest_way *ways, size_t count)
{
	bool shown = false, judged = false;

	for (size_t i = 0; i < count; i++) {
		const struct selftest_way *way = &ways[i];

		if (way->refused)
			continue;
		if (!way->synced) {
			/* Mixed lines alone may be a device that was still writing. */
			shown = shown || selftest_count(way, SELFTEST_STALE) > 0;
			continue;
		}
		if (way->info.guarantee && count_wrong(way) > 0)
			return SELFTEST_BROKEN;
		judged = judged || (way->info.guarantee &&
				    selftest_count(way, SELFTEST_UNCHANGED) < way->count);
	}
	return shown && judged ? SELFTEST_WORKS : SELFTEST_INCONCLUSIVE;
}

const char *selftest_verdict_name(enum selftest_verdict verdict)
{
	switch (verdict) {
	case SELFTEST_WORKS:
		return "works";
	case SELFTEST_BROKEN:
		return "broken";
	case SELFTEST_INCONCLUSIVE:
		return "coherent or inconclusive";
	}
	return "unknown";
}

static const char *why_inconclusive(const struct selftest_way *ways, size_t count)
{
	bool changed = false;

	for (size_t i = 0; i < count; i++) {
		if (ways[i].refused)
			continue;
		if (!ways[i].synced && selftest_count(&ways[i], SELFTEST_STALE) > 0)
			return "without sync the CPU saw old bytes: this device is not coherent; "
			       "but no backend that guarantees its sync could be judged";
		changed = changed || selftest_count(&ways[i], SELFTEST_UNCHANGED) < ways[i].count;
	}
	if (!changed)
		return "the frames did not differ, so nothing could be seen; give the camera "
		       "something that changes";
	return "no old bytes were seen without sync: the device is coherent, or the kernel syncs "
	       "by itself, or the old bytes had left the caches, or this is an emulator without a "
	       "cache";
}

const char *selftest_why(const struct selftest_way *ways, size_t count,
			 enum selftest_verdict verdict)
{
	switch (verdict) {
	case SELFTEST_WORKS:
		return "without sync the CPU saw old bytes, with it none: this device is not "
		       "coherent, and the sync works for it";
	case SELFTEST_BROKEN:
		return "a backend that guarantees its sync left bytes that the device did not "
		       "write: do not rely on it for this device";
	case SELFTEST_INCONCLUSIVE:
		return why_inconclusive(ways, count);
	}
	return "";
}

/* The worst of each group of lines. */
static void map_row(const struct selftest_way *way, size_t first, size_t group,
		    char row[MAP_COLUMNS + 1])
{
	static const char letters[] = {
		[SELFTEST_UNCHANGED] = '-',
		[SELFTEST_FRESH] = '.',
		[SELFTEST_MIXED] = '+',
		[SELFTEST_STALE] = '#',
	};
	size_t column = 0;

	for (; column < MAP_COLUMNS && first < way->count; column++) {
		uint8_t worst = SELFTEST_UNCHANGED;

		for (size_t i = 0; i < group && first < way->count; i++, first++)
			if (way->lines[first] > worst)
				worst = way->lines[first];
		row[column] = letters[worst];
	}
	row[column] = '\0';
}

void selftest_print_map(const struct selftest_way *way, FILE *file)
{
	char row[MAP_COLUMNS + 1], last[MAP_COLUMNS + 1] = "";
	size_t group = 1;
	bool repeated = false;

	while (way->count > group * MAP_COLUMNS * MAP_ROWS)
		group *= 2;
	fprintf(file, "  map, %zu line%s a character: # stale, + mixed, . fresh, - unchanged\n",
		group, group == 1 ? "" : "s");
	for (size_t first = 0; first < way->count; first += group * MAP_COLUMNS) {
		map_row(way, first, group, row);
		if (strcmp(row, last) == 0) {
			if (!repeated)
				fputs("  *\n", file);
			repeated = true;
			continue;
		}
		repeated = false;
		memcpy(last, row, sizeof last);
		fprintf(file, "  0x%08zx  %s\n", first * way->line, row);
	}
	if (repeated)
		fprintf(file, "  0x%08zx\n", way->count * way->line);
}

json *selftest_json_ranges(const struct selftest_way *way)
{
	json *ranges = json_new_array();

	for (size_t i = 0; i < way->count;) {
		size_t first = i;

		while (i < way->count && is_wrong(way->lines[i]))
			i++;
		if (i > first) {
			json *range = json_new_object();

			json_add_uint(range, "offset", first * way->line);
			json_add_uint(range, "bytes", (i - first) * way->line);
			json_append(ranges, range);
		} else {
			i++;
		}
	}
	return ranges;
}
