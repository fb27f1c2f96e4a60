/* SPDX-License-Identifier: MIT */
/*
 * Batches of 64 scattered dirty lines, pipelined, beside the same list in this process with one
 * barrier for every 64. One thread.
 */
#include "tests/compare/compare.h"

#define SIZE (UINT64_C(10) << 20)
#define ENTRIES 64u /* of a batch */

static uint64_t inline_ns(const struct bench_list *list)
{
	const struct cache_ops *ops = &list->cache->ops;
	const size_t line = list->cache->line;
	int64_t start = now_ns();

	for (uint32_t first = 0; first < list->count; first += ENTRIES) {
		ops->open();
		for (uint32_t i = first; i < first + ENTRIES; i++) {
			uintptr_t at = (uintptr_t)(list->memory + list->ranges[i].offset);

			ops->clean(at, at + line, line);
		}
		ops->complete(false);
	}
	return (uint64_t)(now_ns() - start);
}

static int daemon_ns(struct rig *rig, struct rig_client *client, const struct bench_list *list,
		     uint64_t *ret_ns)
{
	const uint32_t batches = list->count / ENTRIES;
	struct dmasync_completion completion;
	uint32_t submitted = 0, reaped = 0;
	int64_t start;
	int r = rig_wake(rig, client);

	if (r < 0)
		return r;
	start = now_ns();
	while (reaped < batches) {
		struct dmasync_batch *batch;

		r = submitted < batches ? dmasync_batch_begin(client->queue, &batch) : -EAGAIN;
		if (r >= 0) {
			dmasync_batch_add_ranges(batch, client->buffer, list->sync, list->direction,
						 list->ranges + submitted * ENTRIES, ENTRIES);
			r = dmasync_batch_submit(batch, submitted++);
			if (r < 0)
				return r;
			continue;
		}
		if (r != -EAGAIN)
			return r;
		/* The ring is full, or all is submitted. */
		r = rig_reap(rig, client->queue, &completion);
		if (r < 0)
			return r;
		reaped++;
	}
	*ret_ns = (uint64_t)(now_ns() - start);
	return 0;
}

static int measure(struct compare *compare, struct rig *rig, struct rig_client *client,
		   struct bench_list *list)
{
	uint64_t *_samples_ daemon = samples_new(compare->rounds);
	uint64_t *_samples_ in_process = samples_new(compare->rounds);
	const double entries = list->count;

	/* The first round only warms up. */
	for (uint64_t i = 0; i <= compare->rounds; i++) {
		uint64_t round = i ? i - 1 : 0;
		int r;

		bench_list_dirty(list, 2 * i);
		in_process[round] = inline_ns(list);
		bench_list_dirty(list, 2 * i + 1);
		r = daemon_ns(rig, client, list, &daemon[round]);
		if (r < 0)
			return r;
	}

	double daemon_median = percentiles_median(daemon, compare->rounds);
	double inline_median = percentiles_median(in_process, compare->rounds);

	row_set(compare, ROW_SMALL64_VS_INLINE, inline_median / daemon_median);
	row_value(compare, ROW_SMALL64_VS_INLINE, "daemon, entries per us", "",
		  entries / daemon_median * 1e3);
	row_value(compare, ROW_SMALL64_VS_INLINE, "in-process, entries per us", "",
		  entries / inline_median * 1e3);
	row_value(compare, ROW_SMALL64_VS_INLINE, "daemon, a batch", "ns",
		  daemon_median / entries * ENTRIES);
	row_value(compare, ROW_SMALL64_VS_INLINE, "in-process, a batch", "ns",
		  inline_median / entries * ENTRIES);
	return 0;
}

int group_small(struct compare *compare)
{
	struct bench_list list = {
		.cache = &compare->cache,
		.size = SIZE,
		.entry = compare->cache.line,
		.seed = compare->seed,
		.random = true,
		.sync = DMASYNC_FOR_DEVICE,
		.direction = DMASYNC_TO_DEVICE,
	};
	struct dmasync_queue_params params;
	struct rig rig = {0};
	struct rig_client client = {0};
	int r = rig_needs_two(compare);

	if (r >= 0)
		r = bench_list_make(&list);
	if (r < 0)
		return r;
	list.count -= list.count % ENTRIES;
	r = rig_open(compare, &rig, RIG_AWAKE);
	if (r >= 0) {
		dmasync_queue_params_init(&params);
		params.spin_us = 10000;
		r = rig_client_open(&rig, SIZE, &params, &client);
	}
	if (r >= 0)
		r = bench_list_attach(&list, client.memory, SIZE);
	if (r >= 0)
		r = rig_pin(compare);
	if (r >= 0)
		r = measure(compare, &rig, &client, &list);
	rig_client_close(&client);
	rig_close(&rig);
	bench_list_clear(&list);
	return r;
}
