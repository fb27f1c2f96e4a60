/* SPDX-License-Identifier: MIT */
/*
 * One scatter-gather list over one buffer, for benchmarks: its entries in their order, its lines
 * made dirty, and the same list synced in this process by the walk of the daemon. One thread.
 */
#ifndef DMASYNC_CTL_BENCH_LIST_H
#define DMASYNC_CTL_BENCH_LIST_H

#include <stdbool.h>
#include <stdint.h>

#include <dmasync/dmasync.h>

#include "daemon/cache/batch.h"

/* As in the published run: smaller entries cover less of the buffer. */
#define BENCH_LIST_ENTRIES_MAX 20480u

struct bench_list {
	/* set by the caller before bench_list_make() */
	const struct cache *cache;
	uint64_t size, entry; /* bytes of the buffer and of an entry */
	uint64_t seed;
	bool random; /* else ascending */
	enum dmasync_sync sync;
	enum dmasync_direction direction;

	struct dmasync_range *ranges; /* the entries, in their order */
	uint32_t count;
	bool capped;
	uint32_t units; /* of a queue that takes the list whole */

	/*
	 * The runs of the list, one an entry in [0], and in [1] where neighbours are merged as the
	 * daemon merges them.
	 */
	union cache_unit *run_units[2];
	struct cache_batch batches[2];
	struct cache_buffer cache_buffer;
	char *memory;
};

/* The entries: -ENOMEM, -EINVAL where no entry fits. */
int bench_list_make(struct bench_list *list);

/* Where the buffer is mapped in this process, `bytes` of it; prepares the runs. */
int bench_list_attach(struct bench_list *list, void *memory, uint64_t bytes);

void bench_list_clear(struct bench_list *list);

/* Every line of every entry, by a store of this CPU. */
void bench_list_dirty(const struct bench_list *list, uint64_t value);

/* Synced here; nanoseconds. With a completion barrier after each entry, and with one in all. */
uint64_t bench_list_per_entry(struct bench_list *list);
uint64_t bench_list_one_barrier(struct bench_list *list);

/* Knuth's MMIX generator: the same order in every run, the better to compare. */
static inline uint64_t bench_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *state >> 33;
}

#endif
