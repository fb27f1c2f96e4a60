/* SPDX-License-Identifier: MIT */
/*
 * A scatter-gather list in random order, every line dirty: in this process with a barrier per entry
 * and with one, by libpmem in its two ways, by the daemon end to end, whose worker is awake or
 * asleep. They take turns, and who is first changes from round to round. One thread.
 */
#include "client/ctl/bench.h"
#include "tests/compare/compare.h"
#include "tests/compare/peer_pmem.h"

#define SIZE (UINT64_C(10) << 20)

struct sg {
	struct rig rig;
	struct rig_client client;
	struct bench_list list;
	uint64_t *ways[WAYS];
	/* of WAY_DAEMON: issue and barrier; writing and submitting; until it was fetched */
	uint64_t *worker, *submit, *queued;
	bool pmem;
};

/* The entries written, submitted and waited for. */
static int by_daemon(struct sg *sg, enum way way, uint64_t round)
{
	struct dmasync_completion completion;
	struct dmasync_batch *batch;
	int64_t start, submitted;
	int r = 0;

	if (way == WAY_DAEMON)
		r = rig_wake(&sg->rig, &sg->client);
	else if (!bench_worker_asleep(sg->client.queue))
		r = compare_fail(sg->rig.compare, -EBUSY, "the worker does not fall asleep");
	if (r < 0)
		return r;
	start = now_ns();
	r = dmasync_batch_begin(sg->client.queue, &batch);
	if (r < 0)
		return r;
	dmasync_batch_add_ranges(batch, sg->client.buffer, sg->list.sync, sg->list.direction,
				 sg->list.ranges, sg->list.count);
	r = dmasync_batch_submit(batch, round);
	submitted = now_ns();
	if (r >= 0)
		r = rig_reap(&sg->rig, sg->client.queue, &completion);
	if (r < 0)
		return r;
	sg->ways[way][round] = (uint64_t)(now_ns() - start);
	if (way == WAY_DAEMON) {
		sg->submit[round] = (uint64_t)(submitted - start);
		sg->worker[round] = completion.issue_ns + completion.barrier_ns;
		sg->queued[round] = completion.queued_ns;
	}
	if (completion.lines != sg->list.batches[1].lines)
		return compare_fail(sg->rig.compare, -EIO, "the daemon cleaned %llu lines of %llu",
				    (unsigned long long)completion.lines,
				    (unsigned long long)sg->list.batches[1].lines);
	return 0;
}

static int one_way(struct sg *sg, enum way way, uint64_t round)
{
	switch (way) {
	case WAY_PER_ENTRY:
		sg->ways[way][round] = bench_list_per_entry(&sg->list);
		return 0;
	case WAY_ONE:
		sg->ways[way][round] = bench_list_one_barrier(&sg->list);
		return 0;
	case WAY_PERSIST:
		sg->ways[way][round] = pmem_persist_each(&sg->list);
		return 0;
	case WAY_PMEM_FLUSH:
		sg->ways[way][round] = pmem_flush_each(&sg->list);
		return 0;
	case WAY_DAEMON:
	case WAY_ASLEEP:
		return by_daemon(sg, way, round);
	case WAYS:
		break;
	}
	return -EINVAL;
}

static int measure(struct sg *sg, uint32_t rounds)
{
	/* The first round faults pages in and fills tables; it is written over by the next. */
	for (uint64_t i = 0; i <= rounds; i++) {
		uint64_t round = i ? i - 1 : 0;

		for (uint64_t turn = 0; turn < WAYS; turn++) {
			enum way way = (enum way)((turn + i) % WAYS);
			int r;

			if (!sg->pmem && (way == WAY_PERSIST || way == WAY_PMEM_FLUSH))
				continue;
			bench_list_dirty(&sg->list, i * WAYS + turn);
			r = one_way(sg, way, round);
			if (r < 0)
				return r;
		}
	}
	return 0;
}

static void report(struct sg *sg, size_t size, uint32_t rounds)
{
	static const struct {
		uint32_t entry;
		enum row reduction, worker, end_to_end; /* ROWS: none */
	} table[] = {
		{64, ROW_SG64_REDUCTION, ROWS, ROWS},
		{256, ROW_SG256_REDUCTION, ROWS, ROW_SG256_E2E_VS_LIBPMEM},
		{1024, ROW_SG1K_REDUCTION, ROWS, ROWS},
		{4096, ROW_SG4K_REDUCTION, ROW_SG4K_VS_LIBPMEM, ROW_SG4K_E2E_VS_LIBPMEM},
	};
	struct compare *compare = sg->rig.compare;
	double *us = compare->run.way_us[size], worker, submit, queued;

	for (int way = 0; way < WAYS; way++)
		if (sg->pmem || (way != WAY_PERSIST && way != WAY_PMEM_FLUSH))
			us[way] = percentiles_median(sg->ways[way], rounds) / 1e3;
	worker = percentiles_median(sg->worker, rounds) / 1e3;
	submit = percentiles_median(sg->submit, rounds) / 1e3;
	queued = percentiles_median(sg->queued, rounds) / 1e3;

	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		if (table[i].entry != entry_sizes[size])
			continue;
		enum row row = table[i].reduction;

		row_set(compare, row, 100 * (1 - us[WAY_DAEMON] / us[WAY_PER_ENTRY]));
		row_value(compare, row, "barrier per entry", "us", us[WAY_PER_ENTRY]);
		row_value(compare, row, "daemon end to end", "us", us[WAY_DAEMON]);
		row_value(compare, row, "one barrier in-process", "us", us[WAY_ONE]);
		row_value(compare, row, "submit", "us", submit);
		row_value(compare, row, "queued", "us", queued);
		row_value(compare, row, "worker", "us", worker);
		row_value(compare, row, "end to end, worker asleep at first", "us", us[WAY_ASLEEP]);
		row = table[i].worker;
		if (row != ROWS && sg->pmem) {
			row_set(compare, row, worker / us[WAY_PMEM_FLUSH]);
			row_value(compare, row, "worker's issue and barrier", "us", worker);
			row_value(compare, row, "libpmem flush each, one drain", "us",
				  us[WAY_PMEM_FLUSH]);
		}
		row = table[i].end_to_end;
		if (row != ROWS && sg->pmem) {
			row_set(compare, row, us[WAY_DAEMON] / us[WAY_PMEM_FLUSH]);
			row_value(compare, row, "daemon end to end", "us", us[WAY_DAEMON]);
			row_value(compare, row, "libpmem flush each, one drain", "us",
				  us[WAY_PMEM_FLUSH]);
			row_value(compare, row, "libpmem persist per entry", "us", us[WAY_PERSIST]);
			row_value(compare, row, "one barrier in-process", "us", us[WAY_ONE]);
			row_value(compare, row, "submit", "us", submit);
			row_value(compare, row, "queued", "us", queued);
			row_value(compare, row, "worker", "us", worker);
			row_value(compare, row, "end to end, worker asleep at first", "us",
				  us[WAY_ASLEEP]);
		}
	}
}

static int one_size(struct compare *compare, struct sg *sg, size_t size)
{
	struct dmasync_queue_params params;
	int r;

	sg->list = (struct bench_list){
		.cache = &compare->cache,
		.size = SIZE,
		.entry = entry_sizes[size],
		.seed = compare->seed,
		.random = true,
		.sync = DMASYNC_FOR_DEVICE,
		.direction = DMASYNC_TO_DEVICE,
	};
	r = bench_list_make(&sg->list);
	if (r < 0)
		return r;
	dmasync_queue_params_init(&params);
	params.units = sg->list.units;
	params.spin_us = 10000;
	r = rig_client_open(&sg->rig, SIZE, &params, &sg->client);
	if (r >= 0)
		r = bench_list_attach(&sg->list, sg->client.memory, SIZE);
	if (r >= 0)
		r = rig_pin(compare);
	if (r >= 0)
		r = measure(sg, compare->rounds);
	if (r >= 0)
		report(sg, size, compare->rounds);
	rig_client_close(&sg->client);
	bench_list_clear(&sg->list);
	rig_unpin();
	return r;
}

int group_sg(struct compare *compare)
{
	static const enum row beside_pmem[] = {ROW_SG4K_VS_LIBPMEM, ROW_SG4K_E2E_VS_LIBPMEM,
					       ROW_SG256_E2E_VS_LIBPMEM};
	struct sg sg = {.pmem = !pmem_missing()};
	int r = rig_needs_two(compare);

	if (r < 0)
		return r;
	for (size_t i = 0; !sg.pmem && i < sizeof beside_pmem / sizeof *beside_pmem; i++)
		row_why(compare, beside_pmem[i], "%s", pmem_missing());
	for (int way = 0; way < WAYS; way++)
		sg.ways[way] = samples_new(compare->rounds);
	sg.worker = samples_new(compare->rounds);
	sg.submit = samples_new(compare->rounds);
	sg.queued = samples_new(compare->rounds);
	r = rig_open(compare, &sg.rig, RIG_AWAKE);
	for (size_t size = 0; r >= 0 && size < ENTRY_SIZES; size++)
		r = one_size(compare, &sg, size);
	rig_close(&sg.rig);
	for (int way = 0; way < WAYS; way++)
		free(sg.ways[way]);
	free(sg.worker);
	free(sg.submit);
	free(sg.queued);
	return r;
}
