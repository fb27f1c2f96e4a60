/* SPDX-License-Identifier: MIT */
/*
 * The same 64 MB in 64 batches of 1 MB, by one client and by 64; and 256 such batches by 1, 16 and
 * 256 clients. Each client is a process. One thread.
 */
#include "tests/compare/crew.h"

#define PAIRS_MAX 3u

/* Room for 256 connections of one user, each with one small ring. */
static const char config[] = "[limits]\n"
			     "max_connections = 1024\nmax_buffers = 4\nmax_queues = 2\n"
			     "max_total_buffer_bytes = 8G\n";

static int measure(struct compare *compare, const struct crew_params *params, size_t count,
		   double medians[])
{
	struct crew *crews[PAIRS_MAX] = {NULL};
	uint64_t *samples[PAIRS_MAX];
	struct rig rig;
	int r = rig_open(compare, &rig, config);

	for (size_t i = 0; i < count; i++)
		samples[i] = samples_new(compare->rounds);
	for (size_t i = 0; r >= 0 && i < count; i++)
		r = crew_start(&rig, &params[i], &crews[i]);
	/* The first round only warms up. */
	for (uint64_t round = 0; r >= 0 && round <= compare->rounds; round++)
		for (size_t i = 0; r >= 0 && i < count; i++)
			r = crew_round(crews[i], &samples[i][round ? round - 1 : 0]);
	for (size_t i = 0; i < count; i++) {
		medians[i] = percentiles_median(samples[i], compare->rounds);
		free(samples[i]);
		crew_stop(crews[i]);
	}
	rig_close(&rig);
	return r;
}

static int throughput(struct compare *compare)
{
	const uint32_t entries = compare->short_form ? 32 : 256;
	const struct crew_params params[] = {{1, 64, entries}, {64, 1, entries}};
	const double lines = 64.0 * entries * 4096 / (double)compare->cache.line;
	double ns[2];
	int r = measure(compare, params, 2, ns);

	if (r < 0)
		return r;
	row_set(compare, ROW_CLIENTS64_THROUGHPUT, ns[0] / ns[1]);
	row_value(compare, ROW_CLIENTS64_THROUGHPUT, "64 clients, lines per us", "",
		  lines / ns[1] * 1e3);
	row_value(compare, ROW_CLIENTS64_THROUGHPUT, "one client, lines per us", "",
		  lines / ns[0] * 1e3);
	return 0;
}

static int growth(struct compare *compare)
{
	const uint32_t entries = compare->short_form ? 8 : 256;
	const struct crew_params params[] = {
		{1, 256, entries}, {16, 16, entries}, {256, 1, entries}};
	static const char *const names[] = {"a batch, 1 client", "a batch, 16 clients",
					    "a batch, 256 clients"};
	double ns[3], least, most;
	int r = measure(compare, params, 3, ns);

	if (r < 0)
		return r;
	least = most = ns[0];
	for (size_t i = 0; i < 3; i++) {
		least = ns[i] < least ? ns[i] : least;
		most = ns[i] > most ? ns[i] : most;
		row_value(compare, ROW_GROWTH_CLIENTS, names[i], "us", ns[i] / 256 / 1e3);
	}
	row_set(compare, ROW_GROWTH_CLIENTS, most / least);
	return 0;
}

int group_clients(struct compare *compare)
{
	int r = rig_needs_two(compare);

	return r < 0 ? r : throughput(compare);
}

int group_growth_clients(struct compare *compare)
{
	int r = rig_needs_two(compare);

	return r < 0 ? r : growth(compare);
}
