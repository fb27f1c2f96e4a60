/* SPDX-License-Identifier: MIT */
/*
 * What the benchmarks share, and their table. Owns the connection and the daemon of a benchmark.
 * Main thread.
 */
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/bench.h"

#define WAIT_NS INT64_C(10000000000)

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
	(void)number;
	stopped = 1;
}

int bench_open(struct bench *bench)
{
	const struct sigaction action = {.sa_handler = on_signal};
	struct ctl ctl = *bench->ctl;
	int status;

	bench->client_cpu = bench->worker_cpu = -1;
	bench->start_ns = now_ns();
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	if (bench->spawn_program) {
		status = spawn_start(bench->spawn_program, bench->spawn_config, &bench->spawn);
		if (status != CTL_OK)
			return status;
		ctl.socket = spawn_socket(bench->spawn);
	}
	char text[CLIENT_ERROR_TEXT_SIZE];
	if (connect_quietly(&ctl, &bench->ds, text, sizeof text) >= 0)
		return CTL_OK;
	return ctl_fail("%s%s", text,
			bench->spawn ? "" : "; or use a daemon of your own with --spawn");
}

void bench_close(struct bench *bench)
{
	dmasync_disconnect(bench->ds);
	spawn_stop(bench->spawn);
}

int bench_pin_thread(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	return sched_setaffinity(0, sizeof set, &set) < 0 ? -errno : 0;
}

int bench_pin(struct bench *bench, const struct dmasync_queue *queue)
{
	cpu_set_t allowed;
	int r;

	bench->worker_cpu = queue->worker_cpu;
	if (sched_getaffinity(0, sizeof allowed, &allowed) < 0)
		return -errno;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET((size_t)cpu, &allowed) || cpu == bench->worker_cpu)
			continue;
		r = bench_pin_thread(cpu);
		if (r == 0)
			bench->client_cpu = cpu;
		return r;
	}
	return -EBUSY;
}

bool bench_progress(struct bench *bench, const char *what, uint64_t done, uint64_t total)
{
	int64_t now;

	if (stopped || !isatty(STDERR_FILENO))
		return stopped;
	now = now_ns();
	if (done >= total && bench->progress_ns) {
		fprintf(stderr, "\r%60s\r", "");
		bench->progress_ns = 0;
	} else if (now - bench->start_ns > 1000000000 && now - bench->progress_ns > 100000000) {
		fprintf(stderr, "\r%s: %llu of %llu ", what, (unsigned long long)done,
			(unsigned long long)total);
		bench->progress_ns = now;
	}
	return false;
}

bool bench_worker_asleep(const struct dmasync_queue *queue)
{
	const struct timespec step = {.tv_nsec = 100000};

	for (int i = 0; i < 20000; i++) {
		if (RING_LOAD_RELAXED(&queue->worker_page->sleeping))
			return true;
		nanosleep(&step, NULL);
	}
	return false;
}

int bench_one_entry(struct dmasync_queue *queue, struct dmasync_buffer *buffer,
		    enum dmasync_sync sync, uint64_t length, struct dmasync_completion *ret)
{
	struct dmasync_batch *batch;
	int r = dmasync_batch_begin(queue, &batch);

	if (r < 0)
		return r;
	/* A failed add is remembered and comes back from submit. */
	dmasync_batch_add(batch, buffer, sync, DMASYNC_BIDIRECTIONAL, 0, length);
	r = dmasync_batch_submit(batch, 0);
	if (r >= 0)
		r = dmasync_wait(queue, ret, WAIT_NS);
	return r < 0 ? r : ret->status;
}

const char *bench_cpu_text(char text[24], int cpu)
{
	if (cpu < 0)
		return "not pinned";
	snprintf(text, 24, "on CPU %d", cpu);
	return text;
}

static const struct ctl_command benches[] = {
	{"sg", "a scatter-gather list: a barrier per entry, one barrier, the daemon", bench_sg},
	{"latency", "one dirty line: the round trip, beside what no software can beat",
	 bench_latency},
	{"iomem", "block writes to device memory: a barrier per store, one barrier, none",
	 bench_iomem},
};

int cmd_bench(struct ctl *ctl, int argc, char **argv)
{
	return ctl_dispatch(ctl, "dmasyncctl bench", benches, sizeof benches / sizeof *benches,
			    "Measures on this machine, now; nothing is estimated.\n", argc, argv);
}
