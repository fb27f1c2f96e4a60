/* SPDX-License-Identifier: MIT */
/*
 * A scatter-gather list for benchmarks. Owns its entries and their runs, not the memory they lie
 * in. One thread.
 */
#include <errno.h>
#include <stdlib.h>

#include "client/ctl/bench_list.h"
#include "client/internal.h"

int bench_list_make(struct bench_list *list)
{
	uint64_t all = list->size / list->entry;

	if (all == 0)
		return -EINVAL;
	list->ranges = calloc((size_t)all, sizeof *list->ranges);
	if (!list->ranges)
		return -ENOMEM;
	for (uint64_t i = 0; i < all; i++)
		list->ranges[i] = (struct dmasync_range){i * list->entry, list->entry};
	for (uint64_t i = all - 1; list->random && i > 0; i--) {
		uint64_t other = bench_random(&list->seed) % (i + 1);
		struct dmasync_range range = list->ranges[i];

		list->ranges[i] = list->ranges[other];
		list->ranges[other] = range;
	}
	list->capped = all > BENCH_LIST_ENTRIES_MAX;
	list->count = list->capped ? BENCH_LIST_ENTRIES_MAX : (uint32_t)all;
	list->units = 2;
	while (list->units < list->count)
		list->units *= 2;
	return 0;
}

static const struct cache_buffer *only_buffer(void *context, uint32_t handle)
{
	(void)handle;
	return context;
}

/* The check that the daemon does of a batch, done once: in-process nothing has to be checked. */
static int prepare_runs(struct bench_list *list, int which, bool merge)
{
	struct cache_batch *batch = &list->batches[which];
	union cache_unit *units = calloc(list->units, sizeof *units);

	list->run_units[which] = units;
	if (!units)
		return -ENOMEM;
	for (uint32_t i = 0; i < list->count; i++)
		units[i].entry = (struct dmasync_unit){
			.word = dmasync_unit_word(1, list->sync, list->direction, 0),
			.length = (uint32_t)list->entry,
			.offset = list->ranges[i].offset,
		};
	cache_batch_begin(batch, units, list->units - 1, 0, list->count);
	for (uint32_t i = 1; i <= list->count; i++) {
		enum cache_check check = cache_batch_check(batch, i, list->cache->line, UINT64_MAX,
							   only_buffer, &list->cache_buffer);

		if (check == CACHE_CHECK_FAILED)
			return -EINVAL;
		if (!merge)
			batch->last_run = UINT32_MAX;
	}
	return merge || batch->runs == list->count ? 0 : -EINVAL;
}

int bench_list_attach(struct bench_list *list, void *memory, uint64_t bytes)
{
	int r;

	list->memory = memory;
	list->cache_buffer = (struct cache_buffer){
		.base = (uintptr_t)memory,
		.size = bytes,
		.backend = DMASYNC_BACKEND_DIRECT,
		.guarantee = true,
	};
	r = prepare_runs(list, 0, false);
	return r < 0 ? r : prepare_runs(list, 1, true);
}

void bench_list_clear(struct bench_list *list)
{
	free(list->ranges);
	free(list->run_units[0]);
	free(list->run_units[1]);
	list->ranges = NULL;
	list->run_units[0] = list->run_units[1] = NULL;
}

void bench_list_dirty(const struct bench_list *list, uint64_t value)
{
	for (uint32_t i = 0; i < list->count; i++) {
		char *entry = list->memory + list->ranges[i].offset;

		for (uint64_t at = 0; at < list->entry; at += list->cache->line)
			*(volatile char *)(entry + at) = (char)value;
		/* One that does not start with a line ends in one more. */
		*(volatile char *)(entry + list->entry - 1) = (char)value;
	}
}

uint64_t bench_list_per_entry(struct bench_list *list)
{
	struct cache_batch *batch = &list->batches[0];
	int64_t start;
	bool done = false;

	cache_batch_rewind(batch);
	start = now_ns();
	list->cache->ops.open();
	while (!done) {
		/* What one run costs: one for its beginning and one for each line. */
		uint32_t budget = batch->units[batch->run].run.amount + 1;

		cache_batch_issue(batch, list->cache, budget, &done);
		list->cache->ops.complete(batch->flushes);
	}
	return (uint64_t)(now_ns() - start);
}

uint64_t bench_list_one_barrier(struct bench_list *list)
{
	struct cache_batch *batch = &list->batches[1];
	int64_t start;
	bool done = false;

	cache_batch_rewind(batch);
	start = now_ns();
	list->cache->ops.open();
	while (!done)
		cache_batch_issue(batch, list->cache, UINT32_MAX, &done);
	list->cache->ops.complete(batch->flushes);
	return (uint64_t)(now_ns() - start);
}
