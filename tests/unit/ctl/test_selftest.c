/* SPDX-License-Identifier: MIT */
/*
 * How the selftest judges lines, what it concludes from them, and the map it prints.
 */
#include <stdlib.h>
#include <string.h>

#include "client/ctl/selftest.h"
#include "tests/lib/harness.h"

#define LINE 16u
#define LINES 6u

struct frames {
	char old[LINE * LINES], seen[LINE * LINES], new[LINE * LINES];
	uint8_t lines[LINES];
	struct selftest_way way;
};

/* The device changed every line, and the CPU sees it. */
static void start_frames(struct frames *frames)
{
	memset(frames, 0, sizeof *frames);
	memset(frames->old, 'o', sizeof frames->old);
	memset(frames->new, 'n', sizeof frames->new);
	memset(frames->seen, 'n', sizeof frames->seen);
	frames->way = (struct selftest_way){
		.synced = true,
		.info = {.guarantee = true},
		.line = LINE,
		.lines = frames->lines,
		.count = LINES,
	};
}

static void judge(struct frames *frames)
{
	selftest_judge(&frames->way, frames->old, frames->seen, frames->new);
}

static void each_line_is_judged_by_itself(void)
{
	struct frames f;

	start_frames(&f);
	memset(f.seen + LINE, 'o', LINE);
	f.seen[3 * LINE - 1] = 'o';
	memset(f.new + 3 * LINE, 'o', LINE);
	judge(&f);
	check_int(f.lines[0], SELFTEST_FRESH);
	check_int(f.lines[1], SELFTEST_STALE);
	check_int(f.lines[2], SELFTEST_MIXED);
	check_int(f.lines[3], SELFTEST_UNCHANGED);
	check_int(f.lines[4], SELFTEST_FRESH);
	check_int(f.lines[5], SELFTEST_FRESH);

	/* A later good round does not wash a line clean. */
	start_frames(&f);
	memset(f.seen + 5 * LINE, 'o', LINE);
	judge(&f);
	memset(f.seen + 5 * LINE, 'n', LINE);
	judge(&f);
	check_int(f.lines[5], SELFTEST_STALE);
	check_int((int64_t)f.way.rounds, 2);
	check_int((int64_t)selftest_count(&f.way, SELFTEST_STALE), 1);
	check_int((int64_t)selftest_count(&f.way, SELFTEST_FRESH), 5);

	json *ranges = selftest_json_ranges(&f.way);
	check_text(json_object_to_json_string_ext(ranges, JSON_C_TO_STRING_PLAIN),
		   "[{\"offset\":80,\"bytes\":16}]");
	json_object_put(ranges);
}

static void the_verdict_needs_both_halves(void)
{
	struct frames f[2];
	struct selftest_way ways[2];

#define CONCLUDE() (ways[0] = f[0].way, ways[1] = f[1].way, selftest_conclude(ways, 2))
#define EXPECT_WHY(part)                                                                           \
	check(strstr(selftest_why(ways, 2, selftest_conclude(ways, 2)), part) != NULL)
	start_frames(&f[0]);
	start_frames(&f[1]);
	f[0].way.synced = false;
	check_int(CONCLUDE(), SELFTEST_INCONCLUSIVE); /* nothing was run */
	EXPECT_WHY("did not differ");

	/* Coherent: fresh without sync. */
	judge(&f[0]);
	judge(&f[1]);
	check_int(CONCLUDE(), SELFTEST_INCONCLUSIVE);
	EXPECT_WHY("the device is coherent, or");

	/* A line that was neither is no proof of a cache. */
	f[0].lines[2] = SELFTEST_MIXED;
	check_int(CONCLUDE(), SELFTEST_INCONCLUSIVE);
	f[0].lines[2] = SELFTEST_STALE;
	check_int(CONCLUDE(), SELFTEST_WORKS);

	/* One wrong line of a backend that vouches for itself is enough; else it is only told. */
	f[1].lines[0] = SELFTEST_STALE;
	check_int(CONCLUDE(), SELFTEST_BROKEN);
	f[1].lines[0] = SELFTEST_MIXED;
	check_int(CONCLUDE(), SELFTEST_BROKEN);
	f[1].way.info.guarantee = false;
	check_int(CONCLUDE(), SELFTEST_INCONCLUSIVE);
	EXPECT_WHY("this device is not coherent; but no backend");
	f[1].way.info.guarantee = true;
	f[1].way.refused = true;
	check_int(CONCLUDE(), SELFTEST_INCONCLUSIVE);

	/* Frames that did not differ show nothing about the sync. */
	f[1].way.refused = false;
	memset(f[1].lines, SELFTEST_UNCHANGED, sizeof f[1].lines);
	check_int(CONCLUDE(), SELFTEST_INCONCLUSIVE);
#undef EXPECT_WHY
#undef CONCLUDE
}

static char *map_of(struct selftest_way *way)
{
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	check(file != NULL);
	selftest_print_map(way, file);
	fclose(file);
	return text;
}

static void the_map_shows_where(void)
{
	uint8_t lines[64 * 80];
	struct selftest_way way = {.line = 64, .lines = lines};
	char *map;

	memset(lines, SELFTEST_FRESH, sizeof lines);
	lines[3] = SELFTEST_STALE;
	lines[4] = SELFTEST_MIXED;
	lines[5] = SELFTEST_UNCHANGED;
	way.count = 64 * 3 + 2;
	map = map_of(&way);
	check_text(map,
		   "  map, 1 line a character: # stale, + mixed, . fresh, - unchanged\n"
		   "  0x00000000  ...#+-.........................................................."
		   "\n"
		   "  0x00001000  ................................................................"
		   "\n"
		   "  *\n"
		   "  0x00003000  ..\n");
	free(map);

	/* More than fit: the worst of each group. */
	way.count = sizeof lines;
	map = map_of(&way);
	check(strstr(map, "  map, 4 lines a character") == map);
	check(strstr(map, "  0x00000000  #+......") != NULL);
	check(strstr(map, "  *\n  0x00050000\n") != NULL);
	free(map);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(each_line_is_judged_by_itself),
	HARNESS_CASE(the_verdict_needs_both_halves),
	HARNESS_CASE(the_map_shows_where),
};

HARNESS_MAIN(cases)
