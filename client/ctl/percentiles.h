/* SPDX-License-Identifier: MIT */
/*
 * p50, p90, p99, p99.9 and the maximum, by nearest rank: the smallest value that at least so
 * many of all values do not exceed. Pure functions, any thread.
 */
#ifndef DMASYNC_CTL_PERCENTILES_H
#define DMASYNC_CTL_PERCENTILES_H

#include <stddef.h>
#include <stdint.h>

#include "proto/message.h"

struct percentiles {
	uint64_t count, mean, p50, p90, p99, p99_9, max; /* all 0 where count is */
};

/*
 * Of the daemon's buckets: the end of the bucket the rank falls into, but never more than the
 * maximum, which the daemon keeps exactly.
 */
void percentiles_of_histogram(const struct dmasync_histogram_reply *histogram,
			      struct percentiles *ret);

/* Of single values; sorts them. */
void percentiles_of_samples(uint64_t *samples, size_t count, struct percentiles *ret);

/* The value in the middle, the mean of the two where there are two; sorts. 0 of none. */
double percentiles_median(uint64_t *samples, size_t count);

#endif
