/* SPDX-License-Identifier: MIT */
/*
 * What a sync does to memory, line by line, through a whole daemon: on simulated memory, where the
 * CPU's and the device's side can be compared. One thread.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/support.h"

enum { TWO_PAGES = 8192 };

/* Clean: the device's lines of the range become the CPU's, and no other. */
static void check_clean(struct client *client, struct memory *memory, struct stripes *device,
			const struct range *range)
{
	struct dmasync_completion done;

	stripe(device, memory->cpu);

	uint64_t lines = stripes_expect(device, range);

	client_run(client, memory->buffer, range, 1, &done);
	check_int(done.lines, lines);
	stripes_check(device, memory->device, range);
}

/* Flush: the CPU's lines of the range become the device's, and no other. */
static void check_flush(struct client *client, struct memory *memory, struct stripes *cpu,
			const struct range *range)
{
	struct dmasync_completion done;

	stripe(cpu, memory->device);

	uint64_t lines = stripes_expect(cpu, range);

	client_run(client, memory->buffer, range, 1, &done);
	check_int(done.lines, lines);
	stripes_check(cpu, memory->cpu, range);
}

typedef void (*check_range)(struct client *client, struct memory *memory, struct stripes *stripes,
			    const struct range *range);

/*
 * Every offset with some lengths, every length at some offsets: one after the other through the
 * daemon. All combinations are tests/unit/cache's, by recorded operations.
 */
static void for_each_range(check_range check_one, struct client *client, struct memory *memory,
			   struct stripes *stripes, struct range range)
{
	static const uint64_t lengths[] = {0, 1, 64, 65, 4096};
	static const uint64_t offsets[] = {0, 1, 63, 64, 4097};
	uint64_t step = rounds_step(TWO_PAGES);

	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
		range.length = lengths[i];
		for (range.offset = 0; range.offset + range.length <= TWO_PAGES;
		     range.offset += step)
			check_one(client, memory, stripes, &range);
	}
	for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
		range.offset = offsets[i];
		for (range.length = 0; range.offset + range.length <= TWO_PAGES;
		     range.length += step)
			check_one(client, memory, stripes, &range);
	}
}

/* Rows that overlap a line, fill it, leave gaps; always inside the two pages. */
static void for_random_rows(check_range check_one, struct client *client, struct memory *memory,
			    struct stripes *stripes, struct range range)
{
	unsigned short seed[3] = {1, 2, 3};

	for (uint64_t i = rounds(5000); i > 0; i--) {
		range.length = 1 + (uint64_t)nrand48(seed) % 300;
		range.stride = range.length + (uint64_t)nrand48(seed) % 300;
		range.rows = 2 + (uint64_t)nrand48(seed) % 12;

		uint64_t span = (range.rows - 1) * range.stride + range.length;

		range.offset = (uint64_t)nrand48(seed) % (TWO_PAGES - span + 1);
		check_one(client, memory, stripes, &range);
	}
}

static void run_ranges(enum dmasync_sync sync, enum dmasync_direction direction,
		       check_range check_one)
{
	struct range range = {.sync = sync, .direction = direction};
	struct harness_daemon daemon;
	struct client client;
	struct memory memory;
	struct stripes stripes;

	harness_daemon_start(&daemon, SIMULATED_CONFIG, NULL);
	client_open(&client, daemon.socket, 4, 4);
	memory_alloc(&memory, client.ds, TWO_PAGES);
	stripes_begin(&stripes, TWO_PAGES);
	for_each_range(check_one, &client, &memory, &stripes, range);
	for_random_rows(check_one, &client, &memory, &stripes, range);
	stripes_end(&stripes);
	memory_free(&memory);
	client_close(&client);
	harness_daemon_stop(&daemon);
}

static void every_range_is_cleaned_to_the_line(void)
{
	run_ranges(DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, check_clean);
}

static void every_range_is_flushed_to_the_line(void)
{
	run_ranges(DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, check_flush);
}

/* Batches of many ranges that overlap and touch: the union of their lines, at least once each. */
static void many_ranges_are_their_union(void)
{
	enum { RANGES = 64, SIZE = 65536 };
	struct harness_daemon daemon;
	struct client client;
	struct memory memory;
	struct stripes stripes;
	struct range ranges[RANGES];
	struct dmasync_completion done;
	unsigned short seed[3] = {4, 5, 6};

	harness_daemon_start(&daemon, SIMULATED_CONFIG, NULL);
	client_open(&client, daemon.socket, 2, 2 * RANGES);
	memory_alloc(&memory, client.ds, SIZE);
	stripes_begin(&stripes, SIZE);
	for (uint64_t round = rounds(500); round > 0; round--) {
		uint64_t lines = 0;

		stripe(&stripes, memory.cpu);
		for (int i = 0; i < RANGES; i++) {
			struct range *range = &ranges[i];

			*range = (struct range){
				.sync = DMASYNC_FOR_DEVICE,
				.direction = DMASYNC_TO_DEVICE,
				.length = (uint64_t)nrand48(seed) % 700,
			};
			/* Every other one begins where the last one ended, or a little before. */
			if (i % 2 == 1)
				range->offset = ranges[i - 1].offset +
						ranges[i - 1].length * (uint64_t)(i % 3) / 2;
			else
				range->offset = (uint64_t)nrand48(seed) % (SIZE - 2100);
			lines += stripes_expect(&stripes, range);
		}
		client_run(&client, memory.buffer, ranges, RANGES, &done);
		check(done.lines >= lines);
		stripes_check(&stripes, memory.device, &ranges[0]);
	}
	stripes_end(&stripes);
	memory_free(&memory);
	client_close(&client);
	harness_daemon_stop(&daemon);
}

/* The table of syncs and directions: who gets whose bytes, and what costs nothing. */
static void each_direction_does_what_the_kernel_does(void)
{
	static const struct {
		enum dmasync_sync sync;
		enum dmasync_direction direction;
		bool cleans, flushes;
	} table[] = {
		{DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, true, false},
		{DMASYNC_FOR_DEVICE, DMASYNC_FROM_DEVICE, true, false},
		{DMASYNC_FOR_DEVICE, DMASYNC_BIDIRECTIONAL, true, false},
		{DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE, false, false},
		{DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, false, true},
		{DMASYNC_FOR_CPU, DMASYNC_BIDIRECTIONAL, false, true},
	};
	enum { SIZE = 4096 };
	struct harness_daemon daemon;
	struct client client;
	struct memory memory;
	struct dmasync_completion done;

	harness_daemon_start(&daemon, SIMULATED_CONFIG, NULL);
	client_open(&client, daemon.socket, 2, 2);
	memory_alloc(&memory, client.ds, SIZE);
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		struct range all = {table[i].sync, table[i].direction, 0, SIZE, 0, 0};
		struct range clean = {DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, SIZE, 0, 0};
		bool elided = !table[i].cleans && !table[i].flushes;

		/* The first half is dirty, the second clean and newer on the device's side. */
		memset(memory.cpu, 0x10, SIZE);
		client_run(&client, memory.buffer, &clean, 1, &done);
		memset(memory.cpu, 0x11, SIZE / 2);
		memset(memory.device + SIZE / 2, 0x12, SIZE / 2);

		client_run(&client, memory.buffer, &all, 1, &done);
		check_int(done.elided, elided);
		check_int(done.lines, elided ? 0 : SIZE / LINE);
		check_int(memory.cpu[0], 0x11);
		check_int(memory.device[0], elided ? 0x10 : 0x11);
		check_int(memory.cpu[SIZE - 1], table[i].flushes ? 0x12 : 0x10);
		check_int(memory.device[SIZE - 1], 0x12);
	}
	memory_free(&memory);
	client_close(&client);
	harness_daemon_stop(&daemon);
}

/* A batch with nothing to do is counted as elided and keeps its fence and barrier. */
static void elided_work_still_has_its_barrier(void)
{
	enum { BATCHES = 10, SIZE = 65536 };
	struct range nothing[] = {
		{DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE, 0, SIZE, 0, 0},
		{DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 64, 0, 0, 0},
	};
	struct range lines[] = {
		{DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, 64, 0, 0},
		{DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 1024, 64, 0, 0},
		{DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 4096, 128, 16, 1024},
	};
	struct dmasync_stats_reply before, after;
	struct harness_daemon daemon;
	struct client client;
	struct memory memory;
	struct raw observer;
	struct dmasync_completion done;

	harness_daemon_start(&daemon, SIMULATED_CONFIG, NULL);
	client_open(&client, daemon.socket, 4, 8);
	memory_alloc(&memory, client.ds, SIZE);
	raw_open(&observer, daemon.socket);
	raw_stats(&observer, &before);
	for (int i = 0; i < BATCHES; i++) {
		client_run(&client, memory.buffer, nothing, 2, &done);
		check_int(done.lines, 0);
		check_int(done.elided, 2);
		client_run(&client, memory.buffer, lines, 3, &done);
		check_int(done.lines, 2 + 16 * 2);
		check_int(done.elided, 0);
	}
	/* One barrier a batch, however many entries and rows it has. */
	raw_stats(&observer, &after);
	check_int(after.batches - before.batches, 2 * BATCHES);
	check_int(after.barriers - before.barriers, 2 * BATCHES);
	check_int(after.entries - before.entries, BATCHES * (2 + 3));
	check_int(after.elided - before.elided, BATCHES * 2);
	check_int(after.lines - before.lines, BATCHES * (2 + 16 * 2));
	check_int(after.failed, before.failed);
	raw_close(&observer);
	memory_free(&memory);
	client_close(&client);
	harness_daemon_stop(&daemon);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(every_range_is_cleaned_to_the_line, .timeout_s = 60),
	HARNESS_CASE(every_range_is_flushed_to_the_line, .timeout_s = 60),
	HARNESS_CASE(many_ranges_are_their_union),
	HARNESS_CASE(each_direction_does_what_the_kernel_does),
	HARNESS_CASE(elided_work_still_has_its_barrier),
};

HARNESS_MAIN(cases)
