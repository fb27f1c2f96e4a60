/* SPDX-License-Identifier: MIT */
/*
 * What a capture thread pays: its own CPU time to submit a 10 MB batch and to reap it, asleep in
 * between, beside the CPU time of doing the same itself. One thread.
 */
#include "tests/compare/compare.h"

#define ENTRY 4096u
#define ENTRIES 2560u
#define STRIDE (2 * ENTRY) /* of the strided entry: every other page, so that rows stay rows */
#define BYTES ((uint64_t)ENTRIES * STRIDE)

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_daemon(struct rig *rig, struct rig_client *client, const struct bench_list *list,
		     bool strided, uint64_t *ret_submit, uint64_t *ret_all)
{
	struct dmasync_completion completion;
	struct dmasync_batch *batch;
	uint64_t start = cpu_ns();
	int r = dmasync_batch_begin(client->queue, &batch);

	if (r < 0)
		return r;
	if (strided)
		dmasync_batch_add_rows(batch, client->buffer, list->sync, list->direction, 0, ENTRY,
				       ENTRIES, STRIDE);
	else
		dmasync_batch_add_ranges(batch, client->buffer, list->sync, list->direction,
					 list->ranges, list->count);
	r = dmasync_batch_submit(batch, 0);
	*ret_submit = cpu_ns() - start;
	if (r >= 0)
		r = rig_reap(rig, client->queue, &completion);
	*ret_all = cpu_ns() - start;
	if (r >= 0 && completion.lines != (uint64_t)ENTRIES * ENTRY / list->cache->line)
		r = -EIO;
	return r;
}

static uint64_t strided_inline(const struct bench_list *list)
{
	const struct cache *cache = list->cache;
	uint64_t start = cpu_ns();

	cache->ops.open();
	for (uint32_t row = 0; row < ENTRIES; row++) {
		uintptr_t at = (uintptr_t)list->memory + (uintptr_t)row * STRIDE;

		cache->ops.clean(at, at + ENTRY, cache->line);
	}
	cache->ops.complete(false);
	return cpu_ns() - start;
}

static uint64_t list_inline(struct bench_list *list)
{
	uint64_t start = cpu_ns();

	bench_list_one_barrier(list);
	return cpu_ns() - start;
}

/* Both ways take every other page, so that the lines dirtied are those of the rows too. */
static int measure(struct compare *compare, struct rig *rig, struct rig_client *client,
		   struct bench_list *list, bool strided)
{
	const enum row row = strided ? ROW_SUBMIT_CPU_SHARE_STRIDED : ROW_SUBMIT_CPU_SHARE;
	uint64_t *_samples_ submit = samples_new(compare->rounds);
	uint64_t *_samples_ all = samples_new(compare->rounds);
	uint64_t *_samples_ in_process = samples_new(compare->rounds);

	/* The first round only warms up. */
	for (uint64_t i = 0; i <= compare->rounds; i++) {
		uint64_t round = i ? i - 1 : 0;
		int r;

		bench_list_dirty(list, 2 * i);
		r = by_daemon(rig, client, list, strided, &submit[round], &all[round]);
		if (r < 0)
			return r;
		bench_list_dirty(list, 2 * i + 1);
		in_process[round] = strided ? strided_inline(list) : list_inline(list);
	}

	double all_us = percentiles_median(all, compare->rounds) / 1e3;
	double inline_us = percentiles_median(in_process, compare->rounds) / 1e3;
	double submit_us = percentiles_median(submit, compare->rounds) / 1e3;

	row_set(compare, row, all_us / inline_us);
	row_value(compare, row, "submit and reap", "us", all_us);
	row_value(compare, row, "of it submit", "us", submit_us);
	row_value(compare, row, "in-process", "us", inline_us);
	return 0;
}

int group_submit(struct compare *compare)
{
	struct bench_list list = {
		.cache = &compare->cache,
		.size = BYTES,
		.entry = ENTRY,
		.seed = compare->seed,
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
	/* Every other entry, then in random order. */
	list.count = ENTRIES;
	for (uint32_t i = 0; i < ENTRIES; i++)
		list.ranges[i].offset = (uint64_t)i * STRIDE;
	for (uint32_t i = ENTRIES - 1; i > 0; i--) {
		uint64_t other = bench_random(&list.seed) % (i + 1);
		struct dmasync_range range = list.ranges[i];

		list.ranges[i] = list.ranges[other];
		list.ranges[other] = range;
	}
	r = rig_open(compare, &rig, "");
	if (r >= 0) {
		dmasync_queue_params_init(&params);
		params.units = list.units;
		params.spin_us = 0;
		r = rig_client_open(&rig, BYTES, &params, &client);
	}
	if (r >= 0)
		r = bench_list_attach(&list, client.memory, BYTES);
	if (r >= 0)
		r = rig_pin(compare);
	if (r >= 0)
		r = measure(compare, &rig, &client, &list, false);
	if (r >= 0)
		r = measure(compare, &rig, &client, &list, true);
	rig_client_close(&client);
	rig_close(&rig);
	bench_list_clear(&list);
	return r;
}
