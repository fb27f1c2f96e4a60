/* SPDX-License-Identifier: MIT */
/*
 * One entry of 1 MB to 1 GB, every line dirty, end to end by the daemon and in this process with
 * one barrier: does the ratio stay the same? One thread.
 */
#include "tests/compare/compare.h"

#define SIZES 4u

static const uint64_t sizes[SIZES] = {UINT64_C(1) << 20, UINT64_C(10) << 20, UINT64_C(100) << 20,
				      UINT64_C(1) << 30};
static const uint64_t short_sizes[SIZES] = {UINT64_C(1) << 20, UINT64_C(2) << 20, UINT64_C(4) << 20,
					    UINT64_C(8) << 20};

static int by_daemon(struct rig *rig, struct rig_client *client, uint64_t bytes, uint64_t *ret_ns)
{
	struct dmasync_completion completion;
	int64_t start;
	int r = rig_wake(rig, client);

	if (r < 0)
		return r;
	start = now_ns();
	r = rig_submit(client, 0, bytes, 0);
	if (r >= 0)
		r = rig_reap(rig, client->queue, &completion);
	*ret_ns = (uint64_t)(now_ns() - start);
	return r;
}

static int one_size(struct compare *compare, struct rig *rig, struct rig_client *client,
		    uint64_t size, double *ret_daemon, double *ret_inline)
{
	uint64_t *_samples_ daemon = samples_new(compare->rounds);
	uint64_t *_samples_ in_process = samples_new(compare->rounds);
	struct bench_list list = {
		.cache = &compare->cache,
		.size = size,
		.entry = size,
		.sync = DMASYNC_FOR_DEVICE,
		.direction = DMASYNC_TO_DEVICE,
	};
	int r = bench_list_make(&list);

	if (r >= 0)
		r = bench_list_attach(&list, client->memory, client->bytes);
	for (uint32_t i = 0; r >= 0 && i < compare->rounds; i++) {
		bench_list_dirty(&list, 2 * i);
		in_process[i] = bench_list_one_barrier(&list);
		bench_list_dirty(&list, 2 * i + 1);
		r = by_daemon(rig, client, size, &daemon[i]);
	}
	bench_list_clear(&list);
	*ret_daemon = percentiles_median(daemon, compare->rounds);
	*ret_inline = percentiles_median(in_process, compare->rounds);
	return r;
}

int group_growth(struct compare *compare)
{
	static const char *const names[SIZES] = {"1 MB", "10 MB", "100 MB", "1 GB"};
	static const char *const short_names[SIZES] = {"1 MB", "2 MB", "4 MB", "8 MB"};
	const uint64_t *all = compare->short_form ? short_sizes : sizes;
	struct dmasync_queue_params params;
	struct rig rig = {0};
	struct rig_client client = {0};
	double least = 0, most = 0, daemon, in_process;
	int r = rig_needs_two(compare);

	if (r < 0)
		return r;
	r = rig_open(compare, &rig,
		     RIG_AWAKE "[limits]\nmax_buffer_bytes = 2G\nmax_total_buffer_bytes = 8G\n"
			       "max_batch_lines = 1073741824\n");
	if (r >= 0) {
		dmasync_queue_params_init(&params);
		params.spin_us = 10000;
		r = rig_client_open(&rig, all[SIZES - 1], &params, &client);
	}
	if (r >= 0)
		r = rig_pin(compare);
	for (size_t i = 0; r >= 0 && i < SIZES; i++) {
		r = one_size(compare, &rig, &client, all[i], &daemon, &in_process);
		if (r < 0)
			break;

		double ratio = daemon / in_process;

		least = i == 0 || ratio < least ? ratio : least;
		most = ratio > most ? ratio : most;
		row_value(compare, ROW_GROWTH_SIZE, compare->short_form ? short_names[i] : names[i],
			  "", ratio);
		if (i == 0 || i == SIZES - 1) {
			row_value(compare, ROW_GROWTH_SIZE,
				  i ? "daemon, the largest" : "daemon, the smallest", "us",
				  daemon / 1e3);
			row_value(compare, ROW_GROWTH_SIZE,
				  i ? "in-process, the largest" : "in-process, the smallest", "us",
				  in_process / 1e3);
		}
	}
	if (r >= 0)
		row_set(compare, ROW_GROWTH_SIZE, most / least);
	rig_client_close(&client);
	rig_close(&rig);
	return r;
}
