/* SPDX-License-Identifier: MIT */
/*
 * dmasync-compare: the daemon beside other software, every row a ratio inside one run. Runs all
 * groups of rows, and all of them again, so that what drifts hits all alike. Main thread.
 */
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "daemon/config.h"
#include "tests/compare/compare.h"

static const struct group {
	const char *name;
	int (*run)(struct compare *compare);
	enum row first, last;
} groups[] = {
	{"sg", group_sg, ROW_SG4K_REDUCTION, ROW_SG256_E2E_VS_LIBPMEM},
	{"split", group_split, ROW_SPLIT2_E2E_VS_LIBPMEM, ROW_SPLIT2_E2E_VS_LIBPMEM},
	{"small", group_small, ROW_SMALL64_VS_INLINE, ROW_SMALL64_VS_INLINE},
	{"round-trip", group_round_trip, ROW_RTT_VS_PINGPONG, ROW_RTT_VS_SOCKET},
	{"submit", group_submit, ROW_SUBMIT_CPU_SHARE, ROW_SUBMIT_CPU_SHARE_STRIDED},
	{"urgent", group_urgent, ROW_URGENT_DELAY, ROW_URGENT_VS_FIFO},
	{"clients", group_clients, ROW_CLIENTS64_THROUGHPUT, ROW_CLIENTS64_THROUGHPUT},
	{"fairness", group_fairness, ROW_FAIRNESS_CLIENTS, ROW_FAIRNESS_USERS},
	{"idle", group_idle, ROW_IDLE_WAKEUPS, ROW_RSS_ANON},
	{"growth", group_growth, ROW_GROWTH_SIZE, ROW_GROWTH_SIZE},
	{"growth-clients", group_growth_clients, ROW_GROWTH_CLIENTS, ROW_GROWTH_CLIENTS},
	{"dma-buf", group_dmabuf, ROW_DMABUF_IOCTL, ROW_DMABUF_IOCTL},
};
#define GROUPS (sizeof groups / sizeof *groups)

static volatile sig_atomic_t stopped;

static void on_signal(int number)
{
	(void)number;
	stopped = 1;
}

bool compare_stopped(void)
{
	return stopped;
}

static void run_group(struct compare *compare, const struct group *group)
{
	int r;

	compare->failure[0] = '\0';
	r = group->run(compare);
	for (enum row row = group->first; row <= group->last; row++) {
		if (compare->run.rows[row].there || compare->why[row][0])
			continue;
		row_why(compare, row, "%s",
			compare->failure[0] ? compare->failure
			: r < 0		    ? strerror(-r)
					    : "the group did not measure it");
	}
	/* A group that fails in one run has no number in the others either. */
	if (r < 0 && r != -EINTR)
		fprintf(stderr, "%s: %s\n", group->name,
			compare->failure[0] ? compare->failure : strerror(-r));
}

static void leave_out(struct compare *compare, const struct group *group, const char *only)
{
	for (enum row row = group->first; row <= group->last; row++)
		row_why(compare, row, "left out: --only=%s", only);
}

static int run_all(struct compare *compare, const char *only)
{
	int64_t start = now_ns();

	for (uint32_t run = 0; run < compare->runs; run++) {
		memset(&compare->run, 0, sizeof compare->run);
		for (size_t i = 0; i < GROUPS; i++) {
			if (only && strcmp(only, groups[i].name) != 0) {
				leave_out(compare, &groups[i], only);
				continue;
			}
			fprintf(stderr, "run %u of %u, %llu s: %s\n", run + 1, compare->runs,
				(unsigned long long)((now_ns() - start) / 1000000000),
				groups[i].name);
			run_group(compare, &groups[i]);
			if (stopped) {
				fputs("dmasync-compare: stopped by a signal\n", stderr);
				return 1;
			}
		}
		compare->all[run] = compare->run;
	}
	return 0;
}

static uint32_t default_slice_us(void)
{
	size_t count;
	const struct config_key *keys = config_keys(&count);

	for (size_t i = 0; i < count; i++)
		if (strcmp(keys[i].key, "slice_us") == 0)
			return (uint32_t)strtoul(keys[i].fallback, NULL, 10);
	return 0;
}

static void usage(FILE *file)
{
	fputs("usage: dmasync-compare [OPTION...]\n"
	      "Measures dmasync beside other software on this machine, now.\n\n"
	      "  --runs=N       all rows so often, the best counts (default 5)\n"
	      "  --rounds=N     rounds of a run, whose median counts (default 31)\n"
	      "  --short        one run of 3 rounds over less memory: does it work at all?\n"
	      "  --only=GROUP   only these rows:",
	      file);
	for (size_t i = 0; i < GROUPS; i++)
		fprintf(file, " %s", groups[i].name);
	fputs("\n"
	      "  --json=PATH    writes what was measured there\n"
	      "  --markdown     the table for a document\n"
	      "  --daemon=PATH  instead of the one of the same build\n",
	      file);
}

static uint32_t number(const char *name, const char *text, uint32_t max)
{
	char *end;
	unsigned long long value = strtoull(text, &end, 10);

	if (end != text && *end == '\0' && value >= 1 && value <= max)
		return (uint32_t)value;
	fprintf(stderr, "dmasync-compare: --%s=%s: a number from 1 to %u is needed\n", name, text,
		max);
	exit(2);
}

static bool is_group(const char *name)
{
	for (size_t i = 0; i < GROUPS; i++)
		if (strcmp(groups[i].name, name) == 0)
			return true;
	fprintf(stderr, "dmasync-compare: --only=%s: no such group; see --help\n", name);
	return false;
}

int main(int argc, char **argv)
{
	/* Zeroed and too large for a stack: all that was measured. */
	static struct compare compare = {.runs = 5, .rounds = 31, .program = "", .seed = 1};
	static const struct option options[] = {
		{"runs", required_argument, NULL, 'r'},
		{"rounds", required_argument, NULL, 'n'},
		{"short", no_argument, NULL, 's'},
		{"only", required_argument, NULL, 'o'},
		{"json", required_argument, NULL, 'j'},
		{"markdown", no_argument, NULL, 'm'},
		{"daemon", required_argument, NULL, 'd'},
		{"help", no_argument, NULL, 'h'},
		{0},
	};
	const struct sigaction action = {.sa_handler = on_signal};
	const char *json = NULL, *only = NULL;
	bool markdown = false;
	int c;

	while ((c = getopt_long(argc, argv, "h", options, NULL)) != -1)
		switch (c) {
		case 'r':
			compare.runs = number("runs", optarg, COMPARE_RUNS_MAX);
			break;
		case 'n':
			compare.rounds = number("rounds", optarg, 10000);
			break;
		case 's':
			compare.short_form = true;
			compare.runs = 1;
			compare.rounds = 3;
			break;
		case 'o':
			only = optarg;
			break;
		case 'j':
			json = optarg;
			break;
		case 'm':
			markdown = true;
			break;
		case 'd':
			compare.program = optarg;
			break;
		case 'h':
			usage(stdout);
			return 0;
		default:
			usage(stderr);
			return 2;
		}
	if (optind < argc) {
		usage(stderr);
		return 2;
	}
	if (only && !is_group(only))
		return 2;

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	cache_select(NULL, &compare.cache);
	if (!compare.cache.line) {
		fprintf(stderr, "dmasync-compare: no line operation works in this process: %s\n",
			compare.cache.why);
		return 77;
	}
	compare.slice_us = default_slice_us();
	if (rig_find_machine(&compare) < 0) {
		fputs("dmasync-compare: sched_getaffinity() failed\n", stderr);
		return 1;
	}
	if (compare.cpu_count < 2)
		fputs("dmasync-compare: only one CPU: most rows need one for the worker and one "
		      "for the client\n",
		      stderr);

	/* 256 clients in one daemon, which inherits this. */
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}

	if (run_all(&compare, only) != 0)
		return 1;
	if (markdown)
		report_markdown(&compare);
	else
		report_table(&compare);
	if (json && report_json(&compare, json) < 0)
		return 1;
	return 0;
}
