/* SPDX-License-Identifier: MIT */
/*
 * What the benchmarks share: a connection, to a daemon of their own where asked for; pinning;
 * progress; an end by signal that still cleans up. Main thread.
 */
#ifndef DMASYNC_CTL_BENCH_H
#define DMASYNC_CTL_BENCH_H

#include <stdbool.h>
#include <stdint.h>

#include "client/ctl/connect.h"
#include "client/ctl/options.h"
#include "client/ctl/spawn.h"

struct bench {
	const struct ctl *ctl;
	const char *spawn_program; /* --spawn: "" or a path; NULL: the running daemon */
	const char *spawn_config;  /* its configuration file; NULL: empty */
	struct spawn *spawn;
	struct dmasync *ds;
	int client_cpu; /* this thread's, -1: not pinned */
	int worker_cpu; /* of the queue that was looked at, -1: not pinned */
	int64_t start_ns, progress_ns;
};

#define BENCH_SPAWN_OPTION(bench)                                                                  \
	{                                                                                          \
		.name = "spawn", .argument = "PATH", .kind = OPTION_MAYBE,                         \
		.value = &(bench)->spawn_program,                                                  \
		.help = "with a daemon of one's own, started for this"                             \
	}

/* Connects and installs the handlers for SIGINT and SIGTERM. CTL_OK, or all was said. */
int bench_open(struct bench *bench);
void bench_close(struct bench *bench);

/*
 * Pins this thread to a CPU that is not the one of the queue's worker, and remembers both. After
 * all queues were made: the library spins only in a process that has more than one CPU.
 */
int bench_pin(struct bench *bench, const struct dmasync_queue *queue);

/* Pins the calling thread; negative errno. */
int bench_pin_thread(int cpu);

/* A line on a terminal once a benchmark takes longer than a second. True: a signal says stop. */
bool bench_progress(struct bench *bench, const char *what, uint64_t done, uint64_t total);

/* Waits until the worker of this queue sleeps in the kernel; false where it does not within 2 s. */
bool bench_worker_asleep(const struct dmasync_queue *queue);

/* One entry of `length` bytes at the buffer's start, submitted and waited for. */
int bench_one_entry(struct dmasync_queue *queue, struct dmasync_buffer *buffer,
		    enum dmasync_sync sync, uint64_t length, struct dmasync_completion *ret);

/* "CPU 1", "not pinned" */
const char *bench_cpu_text(char text[24], int cpu);

#endif
