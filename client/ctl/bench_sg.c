/* SPDX-License-Identifier: MIT */
/*
 * dmasyncctl bench sg: the same ranges of one buffer, every line dirty, synced in three ways: in
 * this process with a completion barrier after each entry, in this process with one, and by the
 * daemon. The three take turns, round by round, so that what drifts hits all alike. Main thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/bench.h"
#include "client/ctl/format.h"
#include "client/ctl/json.h"
#include "client/ctl/names.h"
#include "client/ctl/percentiles.h"
#include "daemon/cache/batch.h"

#define ENTRIES_MAX 20480u /* as in the published run: smaller entries cover less of the buffer */
#define BUFFER_ENTRIES_MAX (1u << 24) /* that random order chooses from */
#define WAIT_NS INT64_C(10000000000)

enum sample {
	SAMPLE_PER_ENTRY,  /* (a) */
	SAMPLE_ONE,	   /* (b) */
	SAMPLE_END_TO_END, /* (c) as this thread sees it ... */
	SAMPLE_SUBMIT,	   /* ... writing and submitting the entries */
	SAMPLE_QUEUED,	   /* ... and as the completion tells */
	SAMPLE_ISSUE,
	SAMPLE_BARRIER,
	SAMPLES,
};

struct sg {
	struct bench bench;
	/* options */
	uint64_t size, entry, iterations, spin_ns, seed;
	bool random, for_cpu, asleep;
	int memory, backend;

	struct cache cache;
	enum dmasync_sync sync;
	enum dmasync_direction direction;
	struct dmasync_range *ranges; /* the entries, in their order */
	uint32_t count;
	bool capped;

	struct dmasync_buffer *buffer;
	struct dmasync_buffer_info info;
	struct dmasync_queue *queue;
	char *memory_start;

	/* The runs of (a), one an entry, and of (b), where neighbours are merged as the daemon
	 * merges them. */
	union cache_unit *units[2];
	struct cache_batch batches[2];
	struct cache_buffer cache_buffer;

	uint64_t *samples[SAMPLES];
	uint64_t daemon_lines;
};

/* Knuth's MMIX generator: the same order in every run, the better to compare. */
static uint64_t next_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *state >> 33;
}

static int make_entries(struct sg *sg)
{
	uint64_t all = sg->size / sg->entry;

	sg->ranges = calloc((size_t)all, sizeof *sg->ranges);
	if (!sg->ranges)
		return -ENOMEM;
	for (uint64_t i = 0; i < all; i++)
		sg->ranges[i] = (struct dmasync_range){i * sg->entry, sg->entry};
	for (uint64_t i = all - 1; sg->random && i > 0; i--) {
		uint64_t other = next_random(&sg->seed) % (i + 1);
		struct dmasync_range range = sg->ranges[i];

		sg->ranges[i] = sg->ranges[other];
		sg->ranges[other] = range;
	}
	sg->capped = all > ENTRIES_MAX;
	sg->count = sg->capped ? ENTRIES_MAX : (uint32_t)all;
	return 0;
}

static const struct cache_buffer *only_buffer(void *context, uint32_t handle)
{
	(void)handle;
	return context;
}

/* The check that the daemon does of a batch, done once: in-process nothing has to be checked. */
static int prepare_runs(struct sg *sg, int which, bool merge, uint32_t size)
{
	struct cache_batch *batch = &sg->batches[which];
	union cache_unit *units = calloc(size, sizeof *units);

	sg->units[which] = units;
	if (!units)
		return -ENOMEM;
	for (uint32_t i = 0; i < sg->count; i++)
		units[i].entry = (struct dmasync_unit){
			.word = dmasync_unit_word(1, sg->sync, sg->direction, 0),
			.length = (uint32_t)sg->entry,
			.offset = sg->ranges[i].offset,
		};
	cache_batch_begin(batch, units, size - 1, 0, sg->count);
	for (uint32_t i = 1; i <= sg->count; i++) {
		enum cache_check check = cache_batch_check(batch, i, sg->cache.line, UINT64_MAX,
							   only_buffer, &sg->cache_buffer);

		if (check == CACHE_CHECK_FAILED)
			return -EINVAL;
		if (!merge)
			batch->last_run = UINT32_MAX;
	}
	return merge || batch->runs == sg->count ? 0 : -EINVAL;
}

static int open_daemon_side(struct sg *sg, uint32_t units)
{
	struct dmasync_buffer_params buffer;
	struct dmasync_queue_params queue;
	int r;

	dmasync_buffer_params_init(&buffer);
	buffer.bytes = sg->size;
	buffer.memory = (enum dmasync_memory)sg->memory;
	buffer.flags = names_backend_flag(sg->backend);
	r = dmasync_buffer_alloc(sg->bench.ds, &buffer, &sg->buffer);
	if (r < 0)
		return r;
	sg->info.size = sizeof sg->info;
	r = dmasync_buffer_get_info(sg->buffer, &sg->info);
	if (r < 0)
		return r;
	sg->memory_start = dmasync_buffer_map(sg->buffer);
	if (!sg->memory_start)
		return control_error(sg->bench.ds, -ENODEV, "the buffer cannot be mapped here");

	dmasync_queue_params_init(&queue);
	queue.units = units;
	queue.spin_us = (uint32_t)(sg->spin_ns / 1000);
	return dmasync_queue_create(sg->bench.ds, &queue, &sg->queue);
}

static int prepare(struct sg *sg)
{
	uint32_t size = 2;
	int r = make_entries(sg);

	while (size < sg->count)
		size *= 2;
	for (int i = 0; r >= 0 && i < SAMPLES; i++) {
		sg->samples[i] = calloc((size_t)sg->iterations, sizeof *sg->samples[i]);
		if (!sg->samples[i])
			r = -ENOMEM;
	}
	if (r >= 0)
		r = open_daemon_side(sg, size);
	if (r < 0)
		return r;
	sg->cache_buffer = (struct cache_buffer){
		.base = (uintptr_t)sg->memory_start,
		.size = sg->info.bytes,
		.backend = DMASYNC_BACKEND_DIRECT,
		.guarantee = true,
	};
	r = prepare_runs(sg, 0, false, size);
	return r < 0 ? r : prepare_runs(sg, 1, true, size);
}

/* Every line of every entry, by a store of this CPU. */
static void dirty(const struct sg *sg, uint64_t value)
{
	for (uint32_t i = 0; i < sg->count; i++) {
		char *entry = sg->memory_start + sg->ranges[i].offset;

		for (uint64_t at = 0; at < sg->entry; at += sg->cache.line)
			*(volatile char *)(entry + at) = (char)value;
		/* One that does not start with a line ends in one more. */
		*(volatile char *)(entry + sg->entry - 1) = (char)value;
	}
}

/* (a) The walk of the daemon, one run at a time with its barrier. */
static uint64_t sync_per_entry(struct sg *sg)
{
	struct cache_batch *batch = &sg->batches[0];
	int64_t start;
	bool done = false;

	cache_batch_rewind(batch);
	start = now_ns();
	sg->cache.ops.open();
	while (!done) {
		/* What one run costs: one for its beginning and one for each line. */
		uint32_t budget = batch->units[batch->run].run.amount + 1;

		cache_batch_issue(batch, &sg->cache, budget, &done);
		sg->cache.ops.complete(batch->flushes);
	}
	return (uint64_t)(now_ns() - start);
}

/* (b) The walk of the daemon, one barrier. */
static uint64_t sync_one_barrier(struct sg *sg)
{
	struct cache_batch *batch = &sg->batches[1];
	int64_t start;
	bool done = false;

	cache_batch_rewind(batch);
	start = now_ns();
	sg->cache.ops.open();
	while (!done)
		cache_batch_issue(batch, &sg->cache, UINT32_MAX, &done);
	sg->cache.ops.complete(batch->flushes);
	return (uint64_t)(now_ns() - start);
}

/* (c) The entries written, submitted and waited for. */
static int sync_by_daemon(struct sg *sg, uint64_t round)
{
	struct dmasync_completion completion;
	struct dmasync_batch *batch;
	int64_t start, submitted;
	int r;

	/* An entry without bytes touches no line: it only wakes the worker. */
	if (!sg->asleep)
		r = bench_one_entry(sg->queue, sg->buffer, sg->sync, 0, &completion);
	else
		r = bench_worker_asleep(sg->queue) ? 0 : -EBUSY;
	if (r < 0)
		return r;

	start = now_ns();
	r = dmasync_batch_begin(sg->queue, &batch);
	if (r < 0)
		return r;
	dmasync_batch_add_ranges(batch, sg->buffer, sg->sync, sg->direction, sg->ranges, sg->count);
	r = dmasync_batch_submit(batch, round);
	submitted = now_ns();
	if (r >= 0)
		r = dmasync_wait(sg->queue, &completion, WAIT_NS);
	if (r < 0)
		return r;
	sg->samples[SAMPLE_END_TO_END][round] = (uint64_t)(now_ns() - start);
	sg->samples[SAMPLE_SUBMIT][round] = (uint64_t)(submitted - start);
	sg->samples[SAMPLE_QUEUED][round] = completion.queued_ns;
	sg->samples[SAMPLE_ISSUE][round] = completion.issue_ns;
	sg->samples[SAMPLE_BARRIER][round] = completion.barrier_ns;
	sg->daemon_lines = completion.lines;
	return completion.status;
}

static int measure(struct sg *sg)
{
	for (uint64_t round = 0; round < sg->iterations; round++) {
		int r;

		dirty(sg, round * 3);
		sg->samples[SAMPLE_PER_ENTRY][round] = sync_per_entry(sg);
		dirty(sg, round * 3 + 1);
		sg->samples[SAMPLE_ONE][round] = sync_one_barrier(sg);
		dirty(sg, round * 3 + 2);
		r = sync_by_daemon(sg, round);
		if (r < 0)
			return r;
		if (bench_progress(&sg->bench, "rounds", round + 1, sg->iterations))
			return -EINTR;
	}
	return 0;
}

static void report_json(const struct sg *sg, const double us[SAMPLES], double reduction)
{
	json *document = json_new_object();

	json_add_uint(document, "size_bytes", sg->size);
	json_add_uint(document, "entry_bytes", sg->entry);
	json_add_uint(document, "entries", sg->count);
	json_add_bool(document, "entries_capped", sg->capped);
	json_add_uint(document, "lines", sg->batches[1].lines);
	json_add_uint(document, "line_bytes", sg->cache.line);
	json_add_uint(document, "iterations", sg->iterations);
	json_add_bool(document, "random", sg->random);
	json_add_string(document, "sync", sg->for_cpu ? "for_cpu" : "for_device");
	json_add_bool(document, "worker_asleep", sg->asleep);
	json_add_string(document, "cache_ops", sg->cache.ops.name);
	json_add_string(document, "memory", names_of(names_memories, (int)sg->info.memory));
	json_add_string(document, "backend", names_of(names_backends, (int)sg->info.backend));
	json_add_int(document, "client_cpu", sg->bench.client_cpu);
	json_add_int(document, "worker_cpu", sg->bench.worker_cpu);
	json_add_decimal(document, "per_entry_barrier_us", us[SAMPLE_PER_ENTRY], 3);
	json_add_decimal(document, "one_barrier_us", us[SAMPLE_ONE], 3);
	json_add_decimal(document, "reduction_pct", reduction, 2);
	json_add_uint(document, "daemon_lines", sg->daemon_lines);
	json_add_decimal(document, "daemon_submit_us", us[SAMPLE_SUBMIT], 3);
	json_add_decimal(document, "daemon_queued_us", us[SAMPLE_QUEUED], 3);
	json_add_decimal(document, "daemon_issue_us", us[SAMPLE_ISSUE], 3);
	json_add_decimal(document, "daemon_barrier_us", us[SAMPLE_BARRIER], 3);
	json_add_decimal(document, "daemon_end_to_end_us", us[SAMPLE_END_TO_END], 3);
	json_print(document);
}

static void report_table(const struct sg *sg, const double us[SAMPLES], double reduction)
{
	struct table *_table_ table = table_new("lrl");
	char size[FORMAT_SIZE], entry[FORMAT_SIZE], client[24], worker[24];

	printf("%s in entries of %s: %u entries%s, %s order, %" PRIu64 " lines of %zu bytes, all "
	       "dirty\n",
	       format_bytes(size, sg->size), format_bytes(entry, sg->entry), sg->count,
	       sg->capped ? " (no more, as in the published run)" : "",
	       sg->random ? "random" : "ascending", sg->batches[1].lines, sg->cache.line);
	printf("%s memory, backend %s; %s; client %s, worker %s, %s\n",
	       names_of(names_memories, (int)sg->info.memory),
	       names_of(names_backends, (int)sg->info.backend), sg->cache.ops.name,
	       bench_cpu_text(client, sg->bench.client_cpu),
	       bench_cpu_text(worker, sg->bench.worker_cpu),
	       sg->asleep ? "asleep when the batch comes" : "awake");
	printf("medians of %" PRIu64 " rounds\n\n", sg->iterations);

	static const struct {
		enum sample sample;
		const char *name, *meaning;
	} rows[] = {
		{SAMPLE_PER_ENTRY, "a barrier per entry", "in this process"},
		{SAMPLE_ONE, "one barrier", "in this process"},
		{SAMPLE_END_TO_END, "daemon, end to end", "entries written, submitted, waited for"},
		{SAMPLE_SUBMIT, "  submit", "this thread: entries written and submitted"},
		{SAMPLE_QUEUED, "  queued", "submitted until the worker fetched it"},
		{SAMPLE_ISSUE, "  issue", "the worker: line operations"},
		{SAMPLE_BARRIER, "  barrier", "the worker: one completion barrier"},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		table_cell(table, "%s", rows[i].name);
		table_cell(table, "%.1f us", us[rows[i].sample]);
		table_cell(table, "%s", rows[i].meaning);
	}
	table_print(table, stdout);
	printf("\n%.1f %% less than a barrier per entry; %.2f times one barrier in this process\n",
	       reduction, us[SAMPLE_END_TO_END] / us[SAMPLE_ONE]);
}

static void report(struct sg *sg)
{
	double us[SAMPLES];

	for (int i = 0; i < SAMPLES; i++)
		us[i] = percentiles_median(sg->samples[i], (size_t)sg->iterations) / 1e3;
	double reduction = 100 * (1 - us[SAMPLE_END_TO_END] / us[SAMPLE_PER_ENTRY]);

	if (sg->bench.ctl->json)
		report_json(sg, us, reduction);
	else
		report_table(sg, us, reduction);
}

static int run(struct sg *sg)
{
	struct bench *bench = &sg->bench;
	int status = bench_open(bench);

	if (status != CTL_OK)
		return status;
	int r = prepare(sg);
	if (r < 0)
		return connect_explain(bench->ds, "bench sg", r);
	r = bench_pin(bench, sg->queue);
	if (r < 0)
		return ctl_fail("bench sg: this thread must run on another CPU than the worker "
				"(CPU %d): %s",
				bench->worker_cpu, strerror(-r));
	r = measure(sg);
	if (r == -EINTR)
		return ctl_fail("bench sg: stopped by a signal");
	if (r < 0)
		return ctl_fail("bench sg: a batch failed: %s", strerror(-r));
	report(sg);
	return CTL_OK;
}

static void clear(struct sg *sg)
{
	dmasync_queue_destroy(sg->queue);
	dmasync_buffer_destroy(sg->buffer);
	bench_close(&sg->bench);
	free(sg->ranges);
	free(sg->units[0]);
	free(sg->units[1]);
	for (int i = 0; i < SAMPLES; i++)
		free(sg->samples[i]);
}

int bench_sg(struct ctl *ctl, int argc, char **argv)
{
	struct sg sg = {
		.bench = {.ctl = ctl},
		.size = UINT64_C(10) << 20,
		.entry = 4096,
		.iterations = 200,
		.spin_ns = 10000000,
		.seed = 1,
		.memory = DMASYNC_MEMORY_MEMFD,
		.backend = DMASYNC_BACKEND_AUTO,
	};
	/* clang-format off */
	const struct option options[] = {
		{.name = "size", .argument = "SIZE", .kind = OPTION_SIZE, .value = &sg.size, .min = 4096, .max = UINT64_C(1) << 34,
		 .help = "bytes of the buffer (default 10M)"},
		{.name = "entry", .argument = "SIZE", .kind = OPTION_SIZE, .value = &sg.entry, .min = 1, .max = UINT64_C(1) << 31,
		 .help = "bytes of an entry (default 4K)"},
		{.name = "iterations", .argument = "N", .kind = OPTION_COUNT, .value = &sg.iterations, .min = 1, .max = 1000000,
		 .help = "rounds (default 200)"},
		{.name = "random", .kind = OPTION_FLAG, .value = &sg.random,
		 .help = "entries in random order: neighbours are not merged"},
		{.name = "for-cpu", .kind = OPTION_FLAG, .value = &sg.for_cpu,
		 .help = "flush (for_cpu, from_device) instead of clean (for_device, to_device)"},
		{.name = "asleep", .kind = OPTION_FLAG, .value = &sg.asleep,
		 .help = "let the worker fall asleep before each batch"},
		{.name = "spin", .argument = "TIME", .kind = OPTION_DURATION, .value = &sg.spin_ns, .max = 10000000,
		 .help = "this thread looks so long before it sleeps (default 10ms)"},
		{.name = "memory", .argument = "KIND", .kind = OPTION_CHOICE, .value = &sg.memory, .choices = names_memories,
		 .help = "of the buffer (default memfd)"},
		{.name = "backend", .argument = "NAME", .kind = OPTION_CHOICE, .value = &sg.backend, .choices = names_backends,
		 .help = "of the daemon (default auto)"},
		BENCH_SPAWN_OPTION(&sg.bench),
	};
	/* clang-format on */
	const struct option_usage usage = {
		.synopsis = "bench sg [OPTION...]",
		.about = "One scatter-gather list, every line dirtied before each round by this "
			 "CPU, outside\n"
			 "the timing, then synced in three ways that take turns: in this process "
			 "with a\n"
			 "completion barrier per entry; in this process with one; by the daemon, "
			 "from the\n"
			 "first entry written to the completion read. Medians. At most 20480 "
			 "entries.\n",
		.options = options,
		.count = sizeof options / sizeof *options,
	};
	int status;

	if (!options_parse(ctl, &usage, argc, argv, NULL, &status))
		return status;
	if (sg.entry > sg.size)
		return ctl_usage("bench sg: an entry of %" PRIu64
				 " bytes is larger than the buffer of %" PRIu64 " bytes",
				 sg.entry, sg.size);
	if (sg.size / sg.entry > BUFFER_ENTRIES_MAX)
		return ctl_usage("bench sg: %" PRIu64 " entries; %u are allowed, take larger ones "
				 "or a smaller buffer",
				 sg.size / sg.entry, BUFFER_ENTRIES_MAX);
	sg.sync = sg.for_cpu ? DMASYNC_FOR_CPU : DMASYNC_FOR_DEVICE;
	sg.direction = sg.for_cpu ? DMASYNC_FROM_DEVICE : DMASYNC_TO_DEVICE;
	cache_select(NULL, &sg.cache);
	if (!sg.cache.line)
		return ctl_fail("bench sg: no line operation works in this process: %s",
				sg.cache.why);
	status = run(&sg);
	clear(&sg);
	return status;
}
