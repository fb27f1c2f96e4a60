/* SPDX-License-Identifier: MIT */
/*
 * dmasyncctl bench sg: the same ranges of one buffer, every line dirty, synced in four ways: in
 * this process with a completion barrier after each entry, in this process with one, by the daemon,
 * and by the library in inline mode. They take turns, round by round, so that what drifts hits all
 * alike. Main thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/bench.h"
#include "client/ctl/bench_inline.h"
#include "client/ctl/bench_list.h"
#include "client/ctl/format.h"
#include "client/ctl/json.h"
#include "client/ctl/names.h"
#include "client/ctl/percentiles.h"

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
	SAMPLE_INLINE, /* (d) as (c), by the library itself */
	SAMPLES,
};

struct sg {
	struct bench bench;
	/* options */
	uint64_t iterations, spin_ns;
	bool for_cpu, asleep;
	int memory, backend;

	struct cache cache;
	struct bench_list list;

	struct dmasync_buffer *buffer;
	struct dmasync_buffer_info info;
	struct dmasync_queue *queue;
	struct bench_inline in_process; /* (d): the same memory */

	uint64_t *samples[SAMPLES];
	uint64_t daemon_lines;
};

static int open_daemon_side(struct sg *sg)
{
	struct dmasync_buffer_params buffer;
	struct dmasync_queue_params queue;
	int r;

	dmasync_buffer_params_init(&buffer);
	buffer.bytes = sg->list.size;
	buffer.memory = (enum dmasync_memory)sg->memory;
	buffer.flags = names_backend_flag(sg->backend);
	r = dmasync_buffer_alloc(sg->bench.ds, &buffer, &sg->buffer);
	if (r < 0)
		return r;
	sg->info.size = sizeof sg->info;
	r = dmasync_buffer_get_info(sg->buffer, &sg->info);
	if (r < 0)
		return r;
	if (!dmasync_buffer_map(sg->buffer))
		return control_error(sg->bench.ds, -ENODEV, "the buffer cannot be mapped here");

	dmasync_queue_params_init(&queue);
	queue.units = sg->list.units;
	queue.spin_us = (uint32_t)(sg->spin_ns / 1000);
	return dmasync_queue_create(sg->bench.ds, &queue, &sg->queue);
}

static int prepare(struct sg *sg)
{
	int r = bench_list_make(&sg->list);

	for (int i = 0; r >= 0 && i < SAMPLES; i++) {
		sg->samples[i] = calloc((size_t)sg->iterations, sizeof *sg->samples[i]);
		if (!sg->samples[i])
			r = -ENOMEM;
	}
	if (r >= 0)
		r = open_daemon_side(sg);
	if (r >= 0)
		r = bench_inline_open(&sg->in_process, sg->bench.ds, &sg->info, sg->list.units);
	if (r < 0)
		return r;
	return bench_list_attach(&sg->list, dmasync_buffer_map(sg->buffer), sg->info.bytes);
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
		r = bench_one_entry(sg->queue, sg->buffer, sg->list.sync, 0, &completion);
	else
		r = bench_worker_asleep(sg->queue) ? 0 : -EBUSY;
	if (r < 0)
		return r;

	start = now_ns();
	r = dmasync_batch_begin(sg->queue, &batch);
	if (r < 0)
		return r;
	dmasync_batch_add_ranges(batch, sg->buffer, sg->list.sync, sg->list.direction,
				 sg->list.ranges, sg->list.count);
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

		bench_list_dirty(&sg->list, round * 4);
		sg->samples[SAMPLE_PER_ENTRY][round] = bench_list_per_entry(&sg->list);
		bench_list_dirty(&sg->list, round * 4 + 1);
		sg->samples[SAMPLE_ONE][round] = bench_list_one_barrier(&sg->list);
		bench_list_dirty(&sg->list, round * 4 + 2);
		r = sync_by_daemon(sg, round);
		if (r < 0)
			return r;
		bench_list_dirty(&sg->list, round * 4 + 3);
		r = bench_inline_sync(&sg->in_process, sg->list.sync, sg->list.direction,
				      sg->list.ranges, sg->list.count,
				      &sg->samples[SAMPLE_INLINE][round]);
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

	json_add_uint(document, "size_bytes", sg->list.size);
	json_add_uint(document, "entry_bytes", sg->list.entry);
	json_add_uint(document, "entries", sg->list.count);
	json_add_bool(document, "entries_capped", sg->list.capped);
	json_add_uint(document, "lines", sg->list.batches[1].lines);
	json_add_uint(document, "line_bytes", sg->cache.line);
	json_add_uint(document, "iterations", sg->iterations);
	json_add_bool(document, "random", sg->list.random);
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
	json_add_decimal(document, "inline_end_to_end_us", us[SAMPLE_INLINE], 3);
	json_print(document);
}

static void report_table(const struct sg *sg, const double us[SAMPLES], double reduction)
{
	struct table *_table_ table = table_new("lrl");
	char size[FORMAT_SIZE], entry[FORMAT_SIZE], client[24], worker[24];

	printf("%s in entries of %s: %u entries%s, %s order, %" PRIu64 " lines of %zu bytes, all "
	       "dirty\n",
	       format_bytes(size, sg->list.size), format_bytes(entry, sg->list.entry),
	       sg->list.count, sg->list.capped ? " (no more, as in the published run)" : "",
	       sg->list.random ? "random" : "ascending", sg->list.batches[1].lines, sg->cache.line);
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
		{SAMPLE_INLINE, "inline, end to end", "the same calls, DMASYNC_INLINE"},
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
	bench_inline_close(&sg->in_process);
	dmasync_queue_destroy(sg->queue);
	dmasync_buffer_destroy(sg->buffer);
	bench_close(&sg->bench);
	bench_list_clear(&sg->list);
	for (int i = 0; i < SAMPLES; i++)
		free(sg->samples[i]);
}

int bench_sg(struct ctl *ctl, int argc, char **argv)
{
	struct sg sg = {
		.bench = {.ctl = ctl},
		.list = {.size = UINT64_C(10) << 20, .entry = 4096, .seed = 1},
		.iterations = 200,
		.spin_ns = 10000000,
		.memory = DMASYNC_MEMORY_MEMFD,
		.backend = DMASYNC_BACKEND_AUTO,
	};
	/* clang-format off */
	const struct option options[] = {
		{.name = "size", .argument = "SIZE", .kind = OPTION_SIZE, .value = &sg.list.size, .min = 4096, .max = UINT64_C(1) << 34,
		 .help = "bytes of the buffer (default 10M)"},
		{.name = "entry", .argument = "SIZE", .kind = OPTION_SIZE, .value = &sg.list.entry, .min = 1, .max = UINT64_C(1) << 31,
		 .help = "bytes of an entry (default 4K)"},
		{.name = "iterations", .argument = "N", .kind = OPTION_COUNT, .value = &sg.iterations, .min = 1, .max = 1000000,
		 .help = "rounds (default 200)"},
		{.name = "random", .kind = OPTION_FLAG, .value = &sg.list.random,
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
			 "the timing, then synced in four ways that take turns: in this process "
			 "with a\n"
			 "completion barrier per entry; in this process with one; by the daemon, "
			 "from the\n"
			 "first entry written to the completion read; by the library in inline "
			 "mode, alike.\n"
			 "Medians. At most 20480 entries.\n",
		.options = options,
		.count = sizeof options / sizeof *options,
	};
	int status;

	if (!options_parse(ctl, &usage, argc, argv, NULL, &status))
		return status;
	if (sg.list.entry > sg.list.size)
		return ctl_usage("bench sg: an entry of %" PRIu64
				 " bytes is larger than the buffer of %" PRIu64 " bytes",
				 sg.list.entry, sg.list.size);
	if (sg.list.size / sg.list.entry > BUFFER_ENTRIES_MAX)
		return ctl_usage("bench sg: %" PRIu64 " entries; %u are allowed, take larger ones "
				 "or a smaller buffer",
				 sg.list.size / sg.list.entry, BUFFER_ENTRIES_MAX);
	sg.list.sync = sg.for_cpu ? DMASYNC_FOR_CPU : DMASYNC_FOR_DEVICE;
	sg.list.direction = sg.for_cpu ? DMASYNC_FROM_DEVICE : DMASYNC_TO_DEVICE;
	sg.list.cache = &sg.cache;
	cache_select(NULL, &sg.cache);
	if (!sg.cache.line)
		return ctl_fail("bench sg: no line operation works in this process: %s",
				sg.cache.why);
	status = run(&sg);
	clear(&sg);
	return status;
}
