/* SPDX-License-Identifier: MIT */
/*
 * dmasyncctl stats: totals since the daemon started, and percentiles of the four phases.
 * Main thread.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/ctl/connect.h"
#include "client/ctl/format.h"
#include "client/ctl/json.h"
#include "client/ctl/names.h"
#include "client/ctl/options.h"
#include "client/ctl/percentiles.h"

static const char *const phase_names[DMASYNC_PHASES] = {
	[DMASYNC_PHASE_QUEUED] = "queued",
	[DMASYNC_PHASE_ISSUE] = "issue",
	[DMASYNC_PHASE_BARRIER] = "barrier",
	[DMASYNC_PHASE_TOTAL] = "total",
};

struct total {
	const char *key;
	const char *meaning;
	size_t offset; /* of a uint64_t in struct dmasync_stats_reply */
};

/* clang-format off */
static const struct total totals[] = {
	{"batches",       "completed, failed ones included",    offsetof(struct dmasync_stats_reply, batches)},
	{"failed",        "completed with an error",            offsetof(struct dmasync_stats_reply, failed)},
	{"entries",       "in these batches",                   offsetof(struct dmasync_stats_reply, entries)},
	{"elided",        "entries that needed no operation",   offsetof(struct dmasync_stats_reply, elided)},
	{"lines",         "line operations issued",             offsetof(struct dmasync_stats_reply, lines)},
	{"bytes",         "covered by them",                    offsetof(struct dmasync_stats_reply, bytes)},
	{"barriers",      "completion barriers",                offsetof(struct dmasync_stats_reply, barriers)},
	{"barriers_shared", "of them, behind which more than one batch waited", offsetof(struct dmasync_stats_reply, barriers_shared)},
	{"batches_split", "issued by several workers",          offsetof(struct dmasync_stats_reply, batches_split)},
	{"parts",         "workers that issued these, summed",  offsetof(struct dmasync_stats_reply, parts)},
	{"kernel_syncs",  "DMA_BUF_IOCTL_SYNC calls",           offsetof(struct dmasync_stats_reply, kernel_syncs)},
	{"reissued",      "batches issued again, CPU changed",  offsetof(struct dmasync_stats_reply, reissued)},
	{"suspect_times", "impossible submit times, left out",  offsetof(struct dmasync_stats_reply, suspect_times)},
	{"faults",        "client memory that went away",       offsetof(struct dmasync_stats_reply, faults)},
	{"worker_sleeps", "times a worker went to sleep",       offsetof(struct dmasync_stats_reply, worker_sleeps)},
	{"slice_overruns", "slices that took far too long",    offsetof(struct dmasync_stats_reply, slice_overruns)},
	{"moved_queues", "queues and SYNC batches that went to the slow worker", offsetof(struct dmasync_stats_reply, moved_queues)},
	{"page_faults",   "of the workers, to their last sleep", offsetof(struct dmasync_stats_reply, page_faults)},
	{"realtime_drops", "SCHED_FIFO lost, over rt_share",    offsetof(struct dmasync_stats_reply, realtime_drops)},
	{"connections",   "accepted",                           offsetof(struct dmasync_stats_reply, connections)},
	{"messages",      "received from clients",              offsetof(struct dmasync_stats_reply, messages)},
	{"refused",       "requests answered with an error",    offsetof(struct dmasync_stats_reply, refused)},
	{"over_limit",    "of these, for a limit or a share",   offsetof(struct dmasync_stats_reply, over_limit)},
	{"sum_errors",    "sums of accounts that were wrong",   offsetof(struct dmasync_stats_reply, sum_errors)},
};
/* clang-format on */

static uint64_t total_value(const struct dmasync_stats_reply *stats, const struct total *total)
{
	return *(const uint64_t *)((const char *)stats + total->offset);
}

static void add_classes(json *document, const struct dmasync_stats_reply *stats)
{
	json *classes = json_new_object();

	for (int i = 0; i < DMASYNC_CLASSES; i++) {
		json *klass = json_new_object();

		json_add_uint(klass, "batches", stats->class_batches[i]);
		json_add_uint(klass, "lines", stats->class_lines[i]);
		json_add_uint(klass, "slices", stats->class_slices[i]);
		json_add_uint(klass, "max_waited_lines", stats->class_waited_lines[i]);
		json_add_uint(klass, "max_waited_entries", stats->class_waited_entries[i]);
		json_add(classes, names_of(names_classes, i), klass);
	}
	json_add(document, "classes", classes);
}

static int print_classes(const struct dmasync_stats_reply *stats)
{
	struct table *_table_ table = table_new("lrrrrr");
	static const char *const heads[] = {"class",  "batches",	  "lines",
					    "slices", "max waited lines", "max waited entries"};

	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
		table_cell(table, "%s", heads[i]);
	for (int i = 0; i < DMASYNC_CLASSES; i++) {
		table_cell(table, "%s", names_of(names_classes, i));
		table_cell(table, "%" PRIu64, stats->class_batches[i]);
		table_cell(table, "%" PRIu64, stats->class_lines[i]);
		table_cell(table, "%" PRIu64, stats->class_slices[i]);
		table_cell(table, "%" PRIu64, stats->class_waited_lines[i]);
		table_cell(table, "%" PRIu64, stats->class_waited_entries[i]);
	}
	return table_print(table, stdout);
}

static void print_json(const struct dmasync_stats_reply *stats,
		       const struct percentiles phases[DMASYNC_PHASES], const char *daemon)
{
	json *document = json_new_object(), *latency = json_new_object();

	json_add_field(document, "daemon", daemon, DMASYNC_NAME_SIZE);
	json_add_uint(document, "uptime_ns", stats->uptime_ns);
	json_add_uint(document, "clients", stats->clients);
	json_add_uint(document, "buffers", stats->buffers);
	json_add_uint(document, "queues", stats->queues);
	json_add_uint(document, "workers", stats->workers);
	json_add_uint(document, "realtime_workers", stats->realtime_workers);
	json_add_uint(document, "mapped_bytes", stats->mapped_bytes);
	json_add_uint(document, "users", stats->users);
	json_add_uint(document, "queue_bytes", stats->queue_bytes);
	json_add_uint(document, "files", stats->files);
	json_add_uint(document, "maps", stats->maps);
	json_add_uint(document, "places", stats->places);
	json_add_uint(document, "requests", stats->requests);
	json_add_uint(document, "answers", stats->answers);
	json_add_uint(document, "watches", stats->watches);
	for (size_t i = 0; i < sizeof totals / sizeof *totals; i++)
		json_add_uint(document, totals[i].key, total_value(stats, &totals[i]));
	add_classes(document, stats);
	for (int phase = 0; phase < DMASYNC_PHASES; phase++)
		json_add_percentiles(latency, phase_names[phase], &phases[phase]);
	json_add(document, "latency_ns", latency);
	json_print(document);
}

static int print_tables(const struct dmasync_stats_reply *stats,
			const struct percentiles phases[DMASYNC_PHASES], const char *daemon)
{
	struct table *_table_ counts = table_new("lrl");
	struct table *_table_ latency = table_new("lrrrrrrr");
	char age[FORMAT_SIZE], mapped[FORMAT_SIZE], rings[FORMAT_SIZE];
	char version[DMASYNC_NAME_SIZE], fifo[48] = "";

	if (stats->realtime_workers)
		snprintf(fifo, sizeof fifo, " (%u under SCHED_FIFO)", stats->realtime_workers);
	printf("dmasyncd %s, up %s: %u client%s, %u queue%s, %u buffer%s (%s mapped), "
	       "%u worker%s%s\n"
	       "held for %u user%s: %u files, %u mappings, %s of rings, %u places for batches, "
	       "%u unanswered requests, %u unread answers, %u watches\n\n",
	       format_text(version, sizeof version, daemon, DMASYNC_NAME_SIZE),
	       format_age(age, stats->uptime_ns), stats->clients, stats->clients == 1 ? "" : "s",
	       stats->queues, stats->queues == 1 ? "" : "s", stats->buffers,
	       stats->buffers == 1 ? "" : "s", format_bytes(mapped, stats->mapped_bytes),
	       stats->workers, stats->workers == 1 ? "" : "s", fifo, stats->users,
	       stats->users == 1 ? "" : "s", stats->files, stats->maps,
	       format_bytes(rings, stats->queue_bytes), stats->places, stats->requests,
	       stats->answers, stats->watches);

	for (size_t i = 0; i < sizeof totals / sizeof *totals; i++) {
		table_cell(counts, "%s", totals[i].key);
		table_cell(counts, "%" PRIu64, total_value(stats, &totals[i]));
		table_cell(counts, "%s", totals[i].meaning);
	}
	int r = table_print(counts, stdout);
	if (r < 0)
		return r;
	putchar('\n');

	r = print_classes(stats);
	if (r < 0)
		return r;
	putchar('\n');

	static const char *const heads[] = {"phase", "batches", "mean",	 "p50",
					    "p90",   "p99",	"p99.9", "max"};
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
		table_cell(latency, "%s", heads[i]);
	for (int phase = 0; phase < DMASYNC_PHASES; phase++) {
		const struct percentiles *p = &phases[phase];
		const uint64_t values[] = {p->mean, p->p50, p->p90, p->p99, p->p99_9, p->max};

		table_cell(latency, "%s", phase_names[phase]);
		table_cell(latency, "%" PRIu64, p->count);
		for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
			char text[FORMAT_SIZE];

			table_cell(latency, "%s", p->count ? format_ns(text, values[i]) : "-");
		}
	}
	return table_print(latency, stdout);
}

static int fetch_histogram(struct dmasync *ds, enum dmasync_phase phase, struct percentiles *ret)
{
	struct dmasync_histogram request = {.phase = phase};
	struct dmasync_histogram_reply *reply = calloc(1, sizeof *reply);
	size_t size;

	if (!reply)
		return -ENOMEM;
	int r = connect_request(ds, DMASYNC_OP_HISTOGRAM, &request.header, sizeof request, -1,
				reply, sizeof *reply, sizeof *reply, &size);
	if (r >= 0 && (reply->buckets != DMASYNC_HISTOGRAM_BUCKETS || reply->phase != phase))
		r = control_error(ds, -EPROTO,
				  "the daemon answered with %u buckets of phase %u; %d of phase %d "
				  "were expected",
				  reply->buckets, reply->phase, DMASYNC_HISTOGRAM_BUCKETS, phase);
	if (r >= 0)
		percentiles_of_histogram(reply, ret);
	free(reply);
	return r;
}

int cmd_stats(struct ctl *ctl, int argc, char **argv)
{
	static const struct option_usage usage = {
		.synopsis = "stats [OPTION...]",
		.about = "Totals of the daemon since it started, and how long the phases of a "
			 "batch took:\n"
			 "queued (submit until fetched), issue (its line operations), barrier (the "
			 "wait for\n"
			 "them), total (submit until completed). Percentiles come from histograms "
			 "whose\n"
			 "buckets are at most 6.25 % wide; a bucket counts with its upper end.\n",
	};
	struct dmasync *_connection_ ds = NULL;
	struct dmasync_message request = {0};
	struct dmasync_stats_reply stats;
	struct percentiles phases[DMASYNC_PHASES];
	size_t size;
	int status;

	if (!connect_command(ctl, &usage, argc, argv, &ds, &status))
		return status;

	int r = connect_request(ds, DMASYNC_OP_STATS, &request, sizeof request, -1, &stats,
				sizeof stats, sizeof stats, &size);
	for (int phase = 0; r >= 0 && phase < DMASYNC_PHASES; phase++)
		r = fetch_histogram(ds, (enum dmasync_phase)phase, &phases[phase]);
	if (r < 0)
		return connect_explain(ds, "stats", r);

	if (ctl->json)
		print_json(&stats, phases, ds->hello.daemon);
	else if (print_tables(&stats, phases, ds->hello.daemon) < 0)
		return ctl_fail("stats: no memory for the table");
	return CTL_OK;
}
