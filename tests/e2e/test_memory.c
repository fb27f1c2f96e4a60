/* SPDX-License-Identifier: MIT */
/*
 * No page fault on a batch's way, on either side: what batches touch was there when buffer and
 * queue were made. And a worker under SCHED_FIFO. One thread.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/e2e/support.h"
#include "tests/lib/sanitizer.h"

enum { SIZE = 4 << 20, DEPTH = 8, UNITS = 4096, ROUNDS = 300 };

static struct range ranges[UNITS];

static uint64_t own_faults(void)
{
	struct rusage usage;

	check_int(getrusage(RUSAGE_THREAD, &usage), 0);
	return (uint64_t)(usage.ru_minflt + usage.ru_majflt);
}

static uint64_t workers_faults(struct raw *observer, const struct raw_queue *queue)
{
	struct dmasync_stats_reply stats;

	raw_await_sleep(queue); /* it counts before it sleeps */
	raw_stats(observer, &stats);
	return stats.page_faults;
}

/* One entry, few, all units, rows, the whole buffer: through every slot and every unit. */
static void run_all_kinds(struct client *client, struct dmasync_buffer *buffer, int round,
			  size_t most)
{
	struct range whole = {DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, SIZE, 0, 0};
	struct range rows = {DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 64, 64, 100, 4096};
	struct dmasync_completion done;

	client_run(client, buffer, &ranges[round % UNITS], 1, &done);
	client_run(client, buffer, ranges, (size_t)(round % 200) + 2, &done);
	client_run(client, buffer, &rows, 1, &done);
	client_run(client, buffer, ranges, most, &done);
	client_run(client, buffer, &whole, 1, &done);
}

static void no_batch_faults(void)
{
	struct dmasync_buffer_params params;
	struct dmasync_buffer *buffer;
	struct harness_daemon daemon;
	struct client client;
	struct raw observer;
	struct raw_queue idle;
	uint64_t worker, client_before, client_after;

	if (UNDER_ASAN || UNDER_TSAN)
		harness_skip("a sanitizer's shadow has page faults of its own");
	for (size_t i = 0; i < UNITS; i++)
		ranges[i] = (struct range){DMASYNC_FOR_DEVICE,
					   DMASYNC_TO_DEVICE,
					   i * 7919 % (SIZE / LINE) * LINE,
					   LINE,
					   0,
					   0};
	harness_daemon_start(&daemon, "[daemon]\nworkers = 1\n", NULL);
	client_open(&client, daemon.socket, DEPTH, UNITS);
	raw_open(&observer, daemon.socket);
	raw_queue_open(&idle, &observer, 2, 2);
	dmasync_buffer_params_init(&params);
	params.bytes = SIZE;
	params.memory = DMASYNC_MEMORY_MEMFD;
	check_int(dmasync_buffer_alloc(client.ds, &params, &buffer), 0);

	/* Once, for the pages of the two programs themselves; most units are not touched by it. */
	run_all_kinds(&client, buffer, 0, 8);
	worker = workers_faults(&observer, &idle);
	check(worker > 0); /* they are counted: a thread cannot begin without */
	client_before = own_faults();
	for (int i = 0; i < ROUNDS; i++)
		run_all_kinds(&client, buffer, i, UNITS);
	client_after = own_faults();
	check_int(client_after - client_before, 0);
	check_int(workers_faults(&observer, &idle) - worker, 0);

	dmasync_buffer_destroy(buffer);
	raw_queue_close(&idle);
	raw_close(&observer);
	client_close(&client);
	harness_daemon_stop(&daemon);
}

/* ---- SCHED_FIFO ---- */

static bool may_be_realtime(void)
{
	struct sched_param fifo = {.sched_priority = 49}, other = {0};

	if (sched_setscheduler(0, SCHED_FIFO, &fifo) < 0)
		return false;
	check_int(sched_setscheduler(0, SCHED_OTHER, &other), 0);
	return true;
}

static int first_cpu(void)
{
	cpu_set_t set;
	int cpu = 0;

	check_int(sched_getaffinity(0, sizeof set, &set), 0);
	while (!CPU_ISSET((unsigned int)cpu, &set))
		cpu++;
	return cpu;
}

static void a_worker_under_fifo_says_so(void)
{
	struct range line = {DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, LINE, 0, 0};
	struct dmasync_stats_reply stats;
	struct dmasync_completion done;
	struct harness_daemon daemon;
	struct client client;
	struct memory memory;
	struct raw observer;
	char config[256], text[16384];
	FILE *log;

	/* A share that this test cannot use up in 100 ms on its way. */
	snprintf(config, sizeof config,
		 SIMULATED_CONFIG "policy = fifo\npriority = 49\nrt_share = 95\ncpus = %d\n",
		 first_cpu());
	harness_daemon_start(&daemon, config, NULL);
	client_open(&client, daemon.socket, 4, 4);
	memory_alloc(&memory, client.ds, 4096);
	client_run(&client, memory.buffer, &line, 1, &done);
	raw_open(&observer, daemon.socket);
	raw_stats(&observer, &stats);
	check_int(stats.realtime_workers, may_be_realtime() ? 1 : 0);
	check_int(stats.realtime_drops, 0);

	log = fopen(daemon.log, "re");
	check(log);
	text[fread(text, 1, sizeof text - 1, log)] = '\0';
	fclose(log);
	check_int(strstr(text, "is refused policy = fifo") != NULL, !may_be_realtime());
	raw_close(&observer);
	memory_free(&memory);
	client_close(&client);
	harness_daemon_stop(&daemon);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(no_batch_faults, .timeout_s = 120),
	HARNESS_CASE(a_worker_under_fifo_says_so),
};

HARNESS_MAIN(cases)
