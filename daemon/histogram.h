/* SPDX-License-Identifier: MIT */
/*
 * Log-linear histograms of nanoseconds: written by one worker on its hot path, read at any time by
 * the control thread. Counters only grow; a reader sees each one whole (relaxed atomics), not all
 * of one moment.
 *
 * Values below 16 have a bucket each; above, each power of two is cut into 16 equal buckets, so a
 * bucket is at most 6.25 % wide. Values above 2^40 - 1 fall into the last one.
 */
#ifndef DMASYNC_HISTOGRAM_H
#define DMASYNC_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

#include "proto/message.h"

struct histogram {
	_Atomic uint64_t bucket[DMASYNC_HISTOGRAM_BUCKETS];
	_Atomic uint64_t count, sum, max;
};

static inline uint32_t histogram_bucket(uint64_t value)
{
	const uint32_t sub = DMASYNC_HISTOGRAM_SUB_BITS;

	if (value >> DMASYNC_HISTOGRAM_MAX_EXPONENT)
		return DMASYNC_HISTOGRAM_BUCKETS - 1;
	if (value >> sub == 0)
		return (uint32_t)value;
	uint32_t exponent = 63u - (uint32_t)__builtin_clzll(value);
	uint32_t within = (uint32_t)(value >> (exponent - sub)) & ((1u << sub) - 1);

	return ((exponent - sub + 1) << sub) + within;
}

/* The largest value that falls into a bucket: what a percentile is reported as. */
static inline uint64_t histogram_bucket_end(uint32_t bucket)
{
	const uint32_t sub = DMASYNC_HISTOGRAM_SUB_BITS;

	if (bucket < 1u << sub)
		return bucket;
	uint32_t shift = (bucket >> sub) - 1;
	uint64_t start = (uint64_t)((1u << sub) + (bucket & ((1u << sub) - 1))) << shift;

	return start + (UINT64_C(1) << shift) - 1;
}

/* One writer: a plain load and store, which no reader can see half of. */
static inline void histogram_counter_add(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
			      memory_order_relaxed);
}

static inline void histogram_add(struct histogram *histogram, uint64_t value)
{
	histogram_counter_add(&histogram->bucket[histogram_bucket(value)], 1);
	histogram_counter_add(&histogram->count, 1);
	histogram_counter_add(&histogram->sum, value);
	if (value > atomic_load_explicit(&histogram->max, memory_order_relaxed))
		atomic_store_explicit(&histogram->max, value, memory_order_relaxed);
}

#endif
