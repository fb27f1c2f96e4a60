/* SPDX-License-Identifier: MIT */
/*
 * Percentiles by nearest rank, of histograms and of single values. Owns nothing.
 * Pure functions, any thread.
 */
#include <stdlib.h>
#include <string.h>

#include "client/ctl/percentiles.h"
#include "daemon/histogram.h"

static const uint32_t permilles[] = {500, 900, 990, 999};
#define PERMILLES (sizeof permilles / sizeof *permilles)

/* How many values, counted from the smallest, reach that share: ceil(count * permille / 1000). */
static uint64_t rank_of(uint64_t count, uint32_t permille)
{
	/* In two parts: count * permille need not fit 64 bits. */
	return count / 1000 * permille + (count % 1000 * permille + 999) / 1000;
}

static void store(struct percentiles *ret, const uint64_t values[PERMILLES])
{
	ret->p50 = values[0];
	ret->p90 = values[1];
	ret->p99 = values[2];
	ret->p99_9 = values[3];
}

void percentiles_of_histogram(const struct dmasync_histogram_reply *histogram,
			      struct percentiles *ret)
{
	uint64_t values[PERMILLES] = {0}, count = 0, seen = 0;
	size_t next = 0;

	/* Not histogram->count: the workers go on counting while the daemon reads. */
	for (uint32_t i = 0; i < DMASYNC_HISTOGRAM_BUCKETS; i++)
		count += histogram->bucket[i];

	for (uint32_t i = 0; i < DMASYNC_HISTOGRAM_BUCKETS && next < PERMILLES; i++) {
		seen += histogram->bucket[i];
		while (next < PERMILLES && seen > 0 && seen >= rank_of(count, permilles[next])) {
			uint64_t end = histogram_bucket_end(i);

			values[next++] = end < histogram->max_ns ? end : histogram->max_ns;
		}
	}

	memset(ret, 0, sizeof *ret);
	if (count == 0)
		return;
	ret->count = count;
	ret->mean = histogram->sum_ns / count;
	ret->max = histogram->max_ns;
	store(ret, values);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

void percentiles_of_samples(uint64_t *samples, size_t count, struct percentiles *ret)
{
	uint64_t values[PERMILLES], sum = 0;

	memset(ret, 0, sizeof *ret);
	if (count == 0)
		return;
	qsort(samples, count, sizeof *samples, compare);
	for (size_t i = 0; i < count; i++)
		sum += samples[i];
	for (size_t i = 0; i < PERMILLES; i++)
		values[i] = samples[rank_of(count, permilles[i]) - 1];
	ret->count = count;
	ret->mean = sum / count;
	ret->max = samples[count - 1];
	store(ret, values);
}

double percentiles_median(uint64_t *samples, size_t count)
{
	if (count == 0)
		return 0;
	qsort(samples, count, sizeof *samples, compare);
	return ((double)samples[(count - 1) / 2] + (double)samples[count / 2]) / 2;
}
