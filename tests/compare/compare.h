/* SPDX-License-Identifier: MIT */
/*
 * What the files of dmasync-compare share: the rows of its table, what one run measured of them,
 * and a daemon with clients for a group of rows. One process, one thread, unless a file says so.
 */
#ifndef TESTS_COMPARE_COMPARE_H
#define TESTS_COMPARE_COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "client/ctl/bench_list.h"
#include "client/ctl/percentiles.h"
#include "client/ctl/spawn.h"
#include "client/internal.h"
#include "daemon/cache/cache.h"

#define COMPARE_WAIT_NS INT64_C(30000000000)
#define COMPARE_RUNS_MAX 99u

/* ---- the rows (rows.c) ---- */

enum row {
	ROW_SG4K_REDUCTION,
	ROW_SG1K_REDUCTION,
	ROW_SG256_REDUCTION,
	ROW_SG64_REDUCTION,
	ROW_SG4K_VS_LIBPMEM,
	ROW_SG4K_E2E_VS_LIBPMEM,
	ROW_SG256_E2E_VS_LIBPMEM,
	ROW_SPLIT2_E2E_VS_LIBPMEM,
	ROW_SMALL64_VS_INLINE,
	ROW_RTT_VS_PINGPONG,
	ROW_COLD_RTT_VS_WAKE,
	ROW_RTT_VS_SOCKET,
	ROW_SUBMIT_CPU_SHARE,
	ROW_SUBMIT_CPU_SHARE_STRIDED,
	ROW_URGENT_DELAY,
	ROW_URGENT_VS_FIFO,
	ROW_CLIENTS64_THROUGHPUT,
	ROW_FAIRNESS_CLIENTS,
	ROW_FAIRNESS_USERS,
	ROW_IDLE_WAKEUPS,
	ROW_RSS_ANON,
	ROW_GROWTH_SIZE,
	ROW_GROWTH_CLIENTS,
	ROW_DMABUF_IOCTL,
	ROWS,
};

enum better { BETTER_LESS, BETTER_MORE };

struct row_info {
	const char *key, *what;
	enum better better;
	bool has_goal;
	double goal;
	const char *unit; /* "" of a ratio */
};
extern const struct row_info row_infos[ROWS];
struct compare;
double row_goal(const struct compare *compare, enum row row); /* where it has one */

/* An absolute value beside a ratio. */
struct value {
	const char *name, *unit; /* constants */
	double value;
};
#define ROW_VALUES 10u

/* What one run measured of a row. */
struct measured {
	bool there;
	double ratio;
	struct value values[ROW_VALUES];
	uint32_t value_count;
};

/* For the pictures: 10 MB in random order at one entry size, microseconds. */
#define ENTRY_SIZES 6u
extern const uint32_t entry_sizes[ENTRY_SIZES];
enum way {
	WAY_PER_ENTRY,	/* in this process, a barrier per entry */
	WAY_ONE,	/* in this process, one barrier */
	WAY_PERSIST,	/* libpmem, pmem_persist() per entry */
	WAY_PMEM_FLUSH, /* libpmem, pmem_flush() each and one pmem_drain() */
	WAY_DAEMON,	/* the daemon, end to end, its worker awake */
	WAY_ASLEEP,	/* the same, its worker asleep when the batch comes */
	WAYS,
};
extern const char *const way_keys[WAYS];

/* For the pictures: distributions of one batch's latency. */
enum series {
	SERIES_PING_PONG,
	SERIES_ROUND_TRIP,
	SERIES_SOCKET_SPINNING,
	SERIES_SOCKET,
	SERIES_WAKE,
	SERIES_COLD,
	SERIES_URGENT_QUIET,
	SERIES_URGENT,
	SERIES_FIFO,
	SERIES,
};
extern const char *const series_keys[SERIES], *const series_names[SERIES];

struct run {
	struct measured rows[ROWS];
	double way_us[ENTRY_SIZES][WAYS]; /* 0: not measured */
	struct percentiles series[SERIES];
};

struct compare {
	/* options */
	uint32_t rounds, runs;
	bool short_form;
	const char *program; /* of the daemon; "" for the one of this build */

	/* the machine */
	struct cache cache;
	int client_cpu, second_cpu, worker_cpu; /* the first, the last but one, the last allowed */
	int cpu_count;
	uint32_t slice_us; /* the daemon's default */
	double load;	   /* average of the last minute before the start */

	struct run run;			  /* the one going on */
	struct run all[COMPARE_RUNS_MAX]; /* those that are over */
	char why[ROWS][200];		  /* "", or why a row has no number */
	char failure[200];		  /* of compare_fail() */
	uint64_t seed;			  /* of the random orders: the same in every run */
};

/* A signal asks for the end. */
bool compare_stopped(void);

void row_set(struct compare *compare, enum row row, double ratio);
void row_value(struct compare *compare, enum row row, const char *name, const char *unit,
	       double value);
/* Why this row has no number here. */
void row_why(struct compare *compare, enum row row, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Remembers the sentence for all rows of the group; returns `error`. */
int compare_fail(struct compare *compare, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- the groups: each measures some rows in one run ---- */

int group_sg(struct compare *compare);
int group_split(struct compare *compare);
int group_small(struct compare *compare);
int group_round_trip(struct compare *compare);
int group_submit(struct compare *compare);
int group_urgent(struct compare *compare);
int group_clients(struct compare *compare);
int group_fairness(struct compare *compare);
int group_idle(struct compare *compare);
int group_growth(struct compare *compare);
int group_growth_clients(struct compare *compare);
int group_dmabuf(struct compare *compare);

/* ---- the machine (machine.c) ---- */

struct machine {
	char cpu[128], kernel[128], governor[64];
};
void machine_read(const struct compare *compare, struct machine *ret);

/* ---- reports (report.c, report_json.c) ---- */

/* What stands in a report of a row, of all runs. */
struct summary {
	bool there;
	double best, noise;		 /* the best ratio, and how far the worst is from it */
	const struct measured *measured; /* of the best run */
	bool met;
};
void summarize(const struct compare *compare, enum row row, struct summary *ret);

void report_table(const struct compare *compare);
void report_markdown(const struct compare *compare);
int report_json(const struct compare *compare, const char *path);

/* ---- a daemon of a group's own and its clients (rig.c) ---- */

struct rig {
	struct compare *compare;
	struct spawn *spawn;
};

struct rig_client {
	struct dmasync *ds;
	struct dmasync_buffer *buffer;
	struct dmasync_queue *queue;
	char *memory;
	uint64_t bytes;
};

/*
 * Starts a daemon with one worker on the last CPU, and with `config`, more lines: keys of [daemon],
 * then perhaps "[limits]" with its keys. Pins nobody.
 */
int rig_open(struct compare *compare, struct rig *rig, const char *config);
/* The same with the workers where `cpus` says. */
int rig_open_on(struct compare *compare, struct rig *rig, const char *cpus, const char *config);
void rig_close(struct rig *rig);

/* Lets other users of this machine connect. */
int rig_admit_all(struct rig *rig);
/* Only a connection. */
int rig_connect(struct rig *rig, struct dmasync **ret);
/* A connection with one memfd buffer of `bytes` and one queue. */
int rig_client_open(struct rig *rig, uint64_t bytes, const struct dmasync_queue_params *params,
		    struct rig_client *ret);
/* One more buffer, one more queue of a connection. */
int rig_buffer(struct rig *rig, struct dmasync *ds, uint64_t bytes, struct dmasync_buffer **ret);
int rig_queue(struct rig *rig, struct dmasync *ds, const struct dmasync_queue_params *params,
	      struct dmasync_queue **ret);
void rig_client_close(struct rig_client *client);

/* Submits one plain entry of for_device, to_device. */
int rig_submit(const struct rig_client *client, uint64_t offset, uint64_t length, uint64_t tag);
/* Waits for one completion, which must have succeeded. */
int rig_reap(struct rig *rig, struct dmasync_queue *queue, struct dmasync_completion *ret);
/* Of a daemon whose worker, once awake, looks for a millisecond, whatever it has learnt. */
#define RIG_AWAKE "spin_us = 1000\nspin_min_us = 1000\n"
/* The worker wakes up and looks on: an entry without bytes, submitted and awaited. */
int rig_wake(struct rig *rig, const struct rig_client *client);

/*
 * Pins this thread to the client's CPU. After all queues of a group were made: the library spins
 * only in a process that has more than one CPU.
 */
int rig_pin(struct compare *compare);
/* To every CPU but the worker's. */
void rig_pin_beside(const struct compare *compare);
/* To every CPU that was allowed at the start. */
void rig_unpin(void);

/* Fills in the CPUs and the load. Once, before the groups. */
int rig_find_machine(struct compare *compare);

/* -EINVAL with a sentence where there is one CPU. */
int rig_needs_two(struct compare *compare);

/* calloc() of 64-bit samples; aborts the program where there is no memory. */
uint64_t *samples_new(uint32_t count);

static inline void samples_free(uint64_t **samples)
{
	free(*samples);
}
#define _samples_ __attribute__((cleanup(samples_free)))

#endif
