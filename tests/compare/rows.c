/* SPDX-License-Identifier: MIT */
/* The rows of the table, and what a run notes of them. Owns only constants. One thread. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/compare/compare.h"

#define LESS(goal_) .better = BETTER_LESS, .has_goal = true, .goal = (goal_)
#define MORE(goal_) .better = BETTER_MORE, .has_goal = true, .goal = (goal_)

const struct row_info row_infos[ROWS] = {
	[ROW_SG4K_REDUCTION] = {"sg4k_reduction_pct",
				"10 MB in 4 KiB entries: daemon end to end, less than a barrier "
				"per entry in-process",
				MORE(43), "%"},
	[ROW_SG1K_REDUCTION] = {"sg1k_reduction_pct", "the same in 1 KiB entries", MORE(74), "%"},
	[ROW_SG256_REDUCTION] = {"sg256_reduction_pct", "the same, 20480 entries of 256 B",
				 MORE(90), "%"},
	[ROW_SG64_REDUCTION] = {"sg64_reduction_pct", "the same, 20480 entries of 64 B", MORE(95),
				"%"},
	[ROW_SG4K_VS_LIBPMEM] = {"sg4k_vs_libpmem",
				 "4 KiB entries: the worker's issue and barrier against "
				 "pmem_flush each, one pmem_drain",
				 LESS(1.0), ""},
	[ROW_SG4K_E2E_VS_LIBPMEM] = {"sg4k_e2e_vs_libpmem",
				     "4 KiB entries: the same end to end as the client sees it",
				     LESS(1.06), ""},
	[ROW_SG256_E2E_VS_LIBPMEM] = {"sg256_e2e_vs_libpmem", "256 B entries: the same end to end",
				      LESS(1.25), ""},
	[ROW_SPLIT2_E2E_VS_LIBPMEM] = {"split2_e2e_vs_libpmem",
				       "4 KiB entries shared by two workers, client asleep; end to "
				       "end against libpmem",
				       LESS(0.60), ""},
	[ROW_SMALL64_VS_INLINE] = {"small64_vs_inline",
				   "batches of 64 scattered lines, pipelined: entries per second "
				   "against in-process",
				   MORE(0.80), ""},
	[ROW_RTT_VS_PINGPONG] = {"rtt_vs_pingpong",
				 "one dirty line there and back, p50, against one-line ping-pong",
				 LESS(2.2), ""},
	[ROW_COLD_RTT_VS_WAKE] = {"cold_rtt_vs_wake",
				  "one batch every 33 ms, all asleep, p50, against a pipe wake-up "
				  "both ways",
				  LESS(1.3), ""},
	[ROW_RTT_VS_SOCKET] = {"rtt_vs_socket",
			       "the round trip, p50, against the same work by a SEQPACKET server",
			       LESS(0.10), ""},
	[ROW_SUBMIT_CPU_SHARE] = {"submit_cpu_share",
				  "CPU time to submit and reap 2560 entries of 4 KiB against doing "
				  "it oneself",
				  LESS(0.04), ""},
	[ROW_SUBMIT_CPU_SHARE_STRIDED] = {"submit_cpu_share_strided",
					  "the same as one strided entry of 2560 rows", LESS(0.02),
					  ""},
	[ROW_URGENT_DELAY] = {"urgent_delay_us",
			      "realtime line among queued 256 MB bulk batches: p99 less p99 of a "
			      "quiet daemon",
			      .better = BETTER_LESS, .has_goal = true, .unit = "us"},
	[ROW_URGENT_VS_FIFO] = {"urgent_vs_fifo", "that p99 against FIFO order", LESS(0.01), ""},
	[ROW_CLIENTS64_THROUGHPUT] = {"clients64_throughput",
				      "64 clients against one, total lines per second", MORE(0.90),
				      ""},
	[ROW_FAIRNESS_CLIENTS] = {"fairness_clients", "Jain index of 16 equal clients", MORE(0.95),
				  ""},
	[ROW_FAIRNESS_USERS] = {"fairness_users",
				"Jain index of two users, one with 1 queue and one with 64",
				MORE(0.95), ""},
	[ROW_IDLE_WAKEUPS] = {"idle_wakeups", "wake-ups of a daemon with 16 idle clients in 10 s",
			      LESS(0), ""},
	[ROW_RSS_ANON] = {"rss_anon_mib", "RssAnon of a daemon with 16 clients of 64 buffers",
			  LESS(8), "MiB"},
	[ROW_GROWTH_SIZE] = {"growth_size",
			     "one entry end to end against in-process at 1 MB to 1 GB: largest by "
			     "smallest ratio",
			     LESS(1.10), ""},
	[ROW_GROWTH_CLIENTS] = {"growth_clients",
				"time per batch with 1, 16, 256 clients: largest by smallest",
				LESS(1.10), ""},
	[ROW_DMABUF_IOCTL] = {"dmabuf_vs_ioctl",
			      "udmabuf of 10 MB, 256 lines touched: round trip against "
			      "DMA_BUF_IOCTL_SYNC",
			      .better = BETTER_LESS, .unit = ""},
};

const uint32_t entry_sizes[ENTRY_SIZES] = {64, 256, 1024, 4096, 16384, 65536};

const char *const way_keys[WAYS] = {
	[WAY_PER_ENTRY] = "per_entry_us",     [WAY_ONE] = "one_barrier_us",
	[WAY_PERSIST] = "libpmem_persist_us", [WAY_PMEM_FLUSH] = "libpmem_flush_drain_us",
	[WAY_DAEMON] = "daemon_us",	      [WAY_ASLEEP] = "daemon_asleep_us",
};

const char *const series_keys[SERIES] = {
	[SERIES_PING_PONG] = "ping_pong",
	[SERIES_ROUND_TRIP] = "round_trip",
	[SERIES_SOCKET_SPINNING] = "socket_spinning",
	[SERIES_SOCKET] = "socket",
	[SERIES_WAKE] = "wake",
	[SERIES_COLD] = "cold_round_trip",
	[SERIES_URGENT_QUIET] = "urgent_quiet",
	[SERIES_URGENT] = "urgent_under_bulk",
	[SERIES_FIFO] = "fifo_under_bulk",
};

const char *const series_names[SERIES] = {
	[SERIES_PING_PONG] = "ping-pong of one line",
	[SERIES_ROUND_TRIP] = "round trip",
	[SERIES_SOCKET_SPINNING] = "socket server that spins",
	[SERIES_SOCKET] = "socket server",
	[SERIES_WAKE] = "pipe wake-up both ways",
	[SERIES_COLD] = "cold round trip",
	[SERIES_URGENT_QUIET] = "realtime, quiet daemon",
	[SERIES_URGENT] = "realtime, under bulk",
	[SERIES_FIFO] = "FIFO order, under bulk",
};

double row_goal(const struct compare *compare, enum row row)
{
	/* One slice, and 5 us for what it issued to drain. */
	return row == ROW_URGENT_DELAY ? compare->slice_us + 5 : row_infos[row].goal;
}

void row_set(struct compare *compare, enum row row, double ratio)
{
	compare->run.rows[row].there = true;
	compare->run.rows[row].ratio = ratio;
}

void row_value(struct compare *compare, enum row row, const char *name, const char *unit,
	       double value)
{
	struct measured *measured = &compare->run.rows[row];

	if (measured->value_count < ROW_VALUES)
		measured->values[measured->value_count++] = (struct value){name, unit, value};
}

void row_why(struct compare *compare, enum row row, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(compare->why[row], sizeof compare->why[row], format, arguments);
	va_end(arguments);
}

int compare_fail(struct compare *compare, int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(compare->failure, sizeof compare->failure, format, arguments);
	va_end(arguments);
	return error;
}

uint64_t *samples_new(uint32_t count)
{
	uint64_t *samples = calloc(count, sizeof *samples);

	if (!samples) {
		fputs("dmasync-compare: no memory for samples\n", stderr);
		exit(1);
	}
	return samples;
}

void summarize(const struct compare *compare, enum row row, struct summary *ret)
{
	const struct row_info *info = &row_infos[row];
	double worst = 0;

	*ret = (struct summary){0};
	for (uint64_t i = 0; i < compare->runs; i++) {
		const struct measured *measured = &compare->all[i].rows[row];
		double ratio = measured->ratio;
		bool less = info->better == BETTER_LESS;

		if (!measured->there)
			continue;
		if (!ret->there || (less ? ratio < ret->best : ratio > ret->best)) {
			ret->best = ratio;
			ret->measured = measured;
		}
		if (!ret->there || (less ? ratio > worst : ratio < worst))
			worst = ratio;
		ret->there = true;
	}
	ret->noise = ret->best < worst ? worst - ret->best : ret->best - worst;
	if (ret->there && info->has_goal)
		ret->met = info->better == BETTER_LESS ? ret->best <= row_goal(compare, row)
						       : ret->best >= row_goal(compare, row);
}
