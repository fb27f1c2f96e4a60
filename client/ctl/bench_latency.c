/* SPDX-License-Identifier: MIT */
/*
 * dmasyncctl bench latency: one dirty line, one entry, there and back; beside it what no software
 * between the same two CPUs can beat, taking turns in the same run. Main thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/ctl/bench.h"
#include "client/ctl/bench_partner.h"
#include "client/ctl/format.h"
#include "client/ctl/json.h"
#include "client/ctl/names.h"
#include "client/ctl/percentiles.h"

#define BLOCK 1000u /* rounds before the other one has its turn */
#define WARM 100u   /* rounds at the start of a block that do not count */

enum row {
	ROW_ROUND_TRIP,
	ROW_PING_PONG,
	ROW_COLD,
	ROW_WAKE,
	ROW_CLOCK,
	ROWS,
};

static const struct {
	const char *key, *name, *meaning;
} rows[ROWS] = {
	[ROW_ROUND_TRIP] = {"round_trip_ns", "round trip",
			    "one dirty line cleaned by the daemon; worker and client look"},
	[ROW_PING_PONG] = {"ping_pong_ns", "ping-pong",
			   "one line to the worker's CPU and back; two threads look"},
	[ROW_COLD] = {"cold_round_trip_ns", "cold round trip",
		      "the same batch once a period; worker and client sleep"},
	[ROW_WAKE] = {"wake_ns", "pipe wake-up",
		      "a byte there and back once a period; two threads sleep"},
	[ROW_CLOCK] = {"clock_ns", "clock", "reading the clock, which is in all of these"},
};

struct latency {
	struct bench bench;
	uint64_t iterations, cold_iterations, period_ns;
	int memory, backend;

	struct dmasync_buffer *buffer;
	struct dmasync_queue *queue;	  /* whose client looks */
	struct dmasync_queue *cold_queue; /* whose client sleeps at once */
	struct partner *partner;
	volatile uint32_t *word; /* in the line that is made dirty */
	uint64_t line;

	uint64_t *samples[ROWS];
	size_t counts[ROWS];
};

static int prepare(struct latency *l)
{
	const size_t warm = (size_t)l->iterations, cold = (size_t)l->cold_iterations;
	const size_t rooms[ROWS] = {warm, warm, cold, cold, warm};
	struct dmasync_buffer_params buffer;
	struct dmasync_queue_params queue;
	struct dmasync_info info = {.size = sizeof info};
	int r;

	for (int i = 0; i < ROWS; i++) {
		l->samples[i] = calloc(rooms[i], sizeof *l->samples[i]);
		if (!l->samples[i])
			return -ENOMEM;
		l->counts[i] = rooms[i];
	}
	dmasync_buffer_params_init(&buffer);
	buffer.bytes = 4096;
	buffer.memory = (enum dmasync_memory)l->memory;
	buffer.flags = names_backend_flag(l->backend);
	r = dmasync_buffer_alloc(l->bench.ds, &buffer, &l->buffer);
	if (r < 0)
		return r;
	l->word = dmasync_buffer_map(l->buffer);
	if (!l->word)
		return control_error(l->bench.ds, -ENODEV, "the buffer cannot be mapped here");
	r = dmasync_get_info(l->bench.ds, &info);
	if (r < 0)
		return r;
	l->line = info.line_size ? info.line_size : 64;

	dmasync_queue_params_init(&queue);
	queue.spin_us = 1000000;
	r = dmasync_queue_create(l->bench.ds, &queue, &l->queue);
	if (r < 0)
		return r;
	queue.spin_us = 0;
	return dmasync_queue_create(l->bench.ds, &queue, &l->cold_queue);
}

static int round_trip(struct latency *l, struct dmasync_queue *queue, uint64_t *ret_ns)
{
	struct dmasync_completion completion;
	int64_t start;
	int r;

	*l->word += 1;
	start = now_ns();
	r = bench_one_entry(queue, l->buffer, DMASYNC_FOR_DEVICE, l->line, &completion);
	*ret_ns = (uint64_t)(now_ns() - start);
	return r;
}

static int round_trips(struct latency *l, uint32_t rounds, uint64_t *ret_ns)
{
	uint64_t dropped;
	int r = 0;

	for (uint32_t i = 0; r >= 0 && i < WARM; i++)
		r = round_trip(l, l->queue, &dropped);
	for (uint32_t i = 0; r >= 0 && i < rounds; i++)
		r = round_trip(l, l->queue, &ret_ns[i]);
	return r;
}

static void clock_reads(uint32_t rounds, uint64_t *ret_ns)
{
	for (uint32_t i = 0; i < rounds; i++) {
		int64_t start = now_ns();

		ret_ns[i] = (uint64_t)(now_ns() - start);
	}
}

/* Blocks of each in turn. The partner plays on the worker's CPU: never while the worker looks. */
static int measure_warm(struct latency *l)
{
	for (uint64_t done = 0; done < l->iterations;) {
		uint64_t left = l->iterations - done;
		uint32_t rounds = left < BLOCK ? (uint32_t)left : BLOCK;
		int r;

		if (!bench_worker_asleep(l->queue))
			return -EBUSY;
		r = partner_ping_pong(l->partner, WARM, rounds, l->samples[ROW_PING_PONG] + done);
		if (r < 0)
			return r;
		clock_reads(rounds, l->samples[ROW_CLOCK] + done);
		r = round_trips(l, rounds, l->samples[ROW_ROUND_TRIP] + done);
		if (r < 0)
			return r;
		done += rounds;
		if (bench_progress(&l->bench, "round trips", done, l->iterations))
			return -EINTR;
	}
	return 0;
}

static void sleep_until(int64_t ns)
{
	struct timespec when = to_timespec(ns);

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
		;
}

/* One of each in turn, a period apart, so that both find equally sleepy CPUs. */
static int measure_cold(struct latency *l)
{
	int64_t next = now_ns();

	for (uint64_t i = 0; i < 2 * l->cold_iterations; i++) {
		int r;

		next += (int64_t)l->period_ns;
		sleep_until(next);
		if (i % 2 == 0)
			r = round_trip(l, l->cold_queue, &l->samples[ROW_COLD][i / 2]);
		else
			r = partner_wake(l->partner, &l->samples[ROW_WAKE][i / 2]);
		if (r < 0)
			return r;
		if (bench_progress(&l->bench, "sleeping rounds", i + 1, 2 * l->cold_iterations))
			return -EINTR;
	}
	return 0;
}

static void report(struct latency *l)
{
	struct percentiles p[ROWS];
	char client[24], worker[24], period[FORMAT_SIZE];

	for (int i = 0; i < ROWS; i++)
		percentiles_of_samples(l->samples[i], l->counts[i], &p[i]);
	double ratio = (double)p[ROW_ROUND_TRIP].p50 / (double)p[ROW_PING_PONG].p50;
	double cold_ratio = (double)p[ROW_COLD].p50 / (double)p[ROW_WAKE].p50;

	if (l->bench.ctl->json) {
		json *document = json_new_object();

		json_add_int(document, "client_cpu", l->bench.client_cpu);
		json_add_int(document, "worker_cpu", l->bench.worker_cpu);
		json_add_uint(document, "line_bytes", l->line);
		json_add_uint(document, "period_ns", l->period_ns);
		for (int i = 0; i < ROWS; i++)
			json_add_percentiles(document, rows[i].key, &p[i]);
		json_add_decimal(document, "round_trip_vs_ping_pong", ratio, 3);
		json_add_decimal(document, "cold_round_trip_vs_wake", cold_ratio, 3);
		json_print(document);
		return;
	}

	struct table *_table_ table = table_new("lrrrrl");
	static const char *const heads[] = {"", "p50", "p99", "p99.9", "max", ""};
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
		table_cell(table, "%s", heads[i]);
	for (int i = 0; i < ROWS; i++) {
		const uint64_t values[] = {p[i].p50, p[i].p99, p[i].p99_9, p[i].max};

		table_cell(table, "%s", rows[i].name);
		for (size_t n = 0; n < sizeof values / sizeof *values; n++) {
			char text[FORMAT_SIZE];

			table_cell(table, "%s", format_ns(text, values[n]));
		}
		table_cell(table, "%s", rows[i].meaning);
	}
	printf("one line of %" PRIu64
	       " bytes, one entry; client %s, worker %s; %zu rounds, and %zu "
	       "a period of %s apart\n\n",
	       l->line, bench_cpu_text(client, l->bench.client_cpu),
	       bench_cpu_text(worker, l->bench.worker_cpu), l->counts[ROW_ROUND_TRIP],
	       l->counts[ROW_COLD], format_ns(period, l->period_ns));
	table_print(table, stdout);
	printf("\nround trip: %.2f times the ping-pong; asleep: %.2f times the pipe wake-up "
	       "(p50)\n",
	       ratio, cold_ratio);
}

static int run(struct latency *l)
{
	struct bench *bench = &l->bench;
	int status = bench_open(bench);

	if (status != CTL_OK)
		return status;
	int r = prepare(l);
	if (r < 0)
		return connect_explain(bench->ds, "bench latency", r);
	r = bench_pin(bench, l->queue);
	if (r >= 0)
		r = partner_start(bench->worker_cpu, &l->partner);
	if (r < 0)
		return ctl_fail("bench latency: two CPUs are needed, one of them the worker's "
				"(CPU %d): %s",
				bench->worker_cpu, strerror(-r));
	r = measure_warm(l);
	if (r >= 0)
		r = measure_cold(l);
	if (r == -EINTR)
		return ctl_fail("bench latency: stopped by a signal");
	if (r < 0)
		return ctl_fail("bench latency: a round failed: %s", strerror(-r));
	report(l);
	return CTL_OK;
}

static void clear(struct latency *l)
{
	partner_stop(l->partner);
	dmasync_queue_destroy(l->queue);
	dmasync_queue_destroy(l->cold_queue);
	dmasync_buffer_destroy(l->buffer);
	bench_close(&l->bench);
	for (int i = 0; i < ROWS; i++)
		free(l->samples[i]);
}

int bench_latency(struct ctl *ctl, int argc, char **argv)
{
	struct latency l = {
		.bench = {.ctl = ctl},
		.iterations = 100000,
		.cold_iterations = 100,
		.period_ns = 33000000,
		.memory = DMASYNC_MEMORY_MEMFD,
		.backend = DMASYNC_BACKEND_AUTO,
	};
	/* clang-format off */
	const struct option options[] = {
		{.name = "iterations", .argument = "N", .kind = OPTION_COUNT, .value = &l.iterations, .min = 1, .max = 10000000,
		 .help = "round trips with both sides awake (default 100000)"},
		{.name = "cold-iterations", .argument = "N", .kind = OPTION_COUNT, .value = &l.cold_iterations, .min = 1, .max = 1000000,
		 .help = "round trips with both sides asleep (default 100)"},
		{.name = "period", .argument = "TIME", .kind = OPTION_DURATION, .value = &l.period_ns, .min = 1000000, .max = UINT64_C(10000000000),
		 .help = "between these (default 33ms)"},
		{.name = "memory", .argument = "KIND", .kind = OPTION_CHOICE, .value = &l.memory, .choices = names_memories,
		 .help = "of the buffer (default memfd)"},
		{.name = "backend", .argument = "NAME", .kind = OPTION_CHOICE, .value = &l.backend, .choices = names_backends,
		 .help = "of the daemon (default auto)"},
		BENCH_SPAWN_OPTION(&l.bench),
	};
	/* clang-format on */
	const struct option_usage usage = {
		.synopsis = "bench latency [OPTION...]",
		.about = "One dirty line, one entry: the time from submit to the completion read, "
			 "with worker\n"
			 "and client awake, and with both asleep, one batch a period. Beside them, "
			 "between the\n"
			 "same two CPUs in the same run, the ping-pong of one cache line and a "
			 "wake-up by pipe\n"
			 "both ways.\n",
		.options = options,
		.count = sizeof options / sizeof *options,
	};
	int status;

	if (!options_parse(ctl, &usage, argc, argv, NULL, &status))
		return status;
	status = run(&l);
	clear(&l);
	return status;
}
