/* SPDX-License-Identifier: MIT */
/*
 * The list of 4 KiB entries taken by two workers, while the client that waits for it sleeps, beside
 * libpmem on the client's CPU alone. One thread.
 */
#include <stdio.h>

#include "tests/compare/compare.h"
#include "tests/compare/peer_pmem.h"

#define SIZE (UINT64_C(10) << 20)

static int by_daemon(struct rig *rig, struct rig_client *client, const struct bench_list *list,
		     bool *ret_split, uint64_t *ret_ns)
{
	const uint64_t lines = list->count * list->entry / list->cache->line;
	struct dmasync_completion completion;
	struct dmasync_batch *batch;
	int64_t start;
	int r = rig_wake(rig, client);

	if (r < 0)
		return r;
	start = now_ns();
	r = dmasync_batch_begin(client->queue, &batch);
	if (r < 0)
		return r;
	dmasync_batch_add_ranges(batch, client->buffer, list->sync, list->direction, list->ranges,
				 list->count);
	r = dmasync_batch_submit(batch, 0);
	if (r >= 0)
		r = rig_reap(rig, client->queue, &completion);
	if (r < 0)
		return r;
	*ret_ns = (uint64_t)(now_ns() - start);
	*ret_split = completion.flags & DMASYNC_COMPLETION_SPLIT;
	if (completion.lines != lines)
		return compare_fail(rig->compare, -EIO,
				    "the workers cleaned %llu lines of %llu; flags %#x",
				    (unsigned long long)completion.lines, (unsigned long long)lines,
				    completion.flags);
	return 0;
}

static int measure(struct compare *compare, struct rig *rig, struct rig_client *client,
		   struct bench_list *list)
{
	uint64_t *_samples_ daemon = samples_new(compare->rounds);
	uint64_t *_samples_ pmem = samples_new(compare->rounds);

	uint32_t split = 0;
	bool one;

	/* The first round only warms up. */
	for (uint64_t i = 0; i <= compare->rounds; i++) {
		uint64_t round = i ? i - 1 : 0;
		int r;

		bench_list_dirty(list, 2 * i);
		r = by_daemon(rig, client, list, &one, &daemon[round]);
		if (r < 0)
			return r;
		split += one;
		bench_list_dirty(list, 2 * i + 1);
		pmem[round] = pmem_flush_each(list);
	}

	double daemon_us = percentiles_median(daemon, compare->rounds) / 1e3;
	double pmem_us = percentiles_median(pmem, compare->rounds) / 1e3;

	row_set(compare, ROW_SPLIT2_E2E_VS_LIBPMEM, daemon_us / pmem_us);
	row_value(compare, ROW_SPLIT2_E2E_VS_LIBPMEM, "daemon end to end", "us", daemon_us);
	row_value(compare, ROW_SPLIT2_E2E_VS_LIBPMEM, "libpmem flush each, one drain", "us",
		  pmem_us);
	row_value(compare, ROW_SPLIT2_E2E_VS_LIBPMEM, "rounds with two workers", "", split);
	return 0;
}

int group_split(struct compare *compare)
{
	struct bench_list list = {
		.cache = &compare->cache,
		.size = SIZE,
		.entry = 4096,
		.seed = compare->seed,
		.random = true,
		.sync = DMASYNC_FOR_DEVICE,
		.direction = DMASYNC_TO_DEVICE,
	};
	struct dmasync_queue_params params;
	struct rig rig = {0};
	struct rig_client client = {0};
	char cpus[32];
	int r = rig_needs_two(compare);

	if (r >= 0 && pmem_missing())
		r = compare_fail(compare, -ENOENT, "%s", pmem_missing());
	if (r >= 0)
		r = bench_list_make(&list);
	if (r < 0)
		return r;
	/* The last two; with two CPUs the second worker has the client's. The queue goes to the
	 * first. */
	snprintf(cpus, sizeof cpus, "%d,%d", compare->worker_cpu, compare->second_cpu);
	r = rig_open_on(compare, &rig, cpus, "split_lines = 16384\nspin_min_us = 50\n");
	if (r >= 0) {
		dmasync_queue_params_init(&params);
		params.units = list.units;
		params.spin_us = 0;
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
