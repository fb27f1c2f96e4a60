/* SPDX-License-Identifier: MIT */
/*
 * One dirty line of a realtime queue among 256 MB batches of two bulk clients, all of whose lines
 * are dirty; the same on a quiet daemon; and the line in FIFO order behind the same batches: in
 * their own queue. One thread, which is all of these clients: dirtying must not run beside the
 * urgent one on its CPU.
 */
#include "client/ctl/bench.h"
#include "tests/compare/compare.h"

#define BULK 2u
#define ENTRY 4096u	 /* of the list of the second bulk client */
#define GAP_MAX_NS 60000 /* between two urgent batches: less than the worker looks */
#define PER_ROUND 1000u	 /* urgent batches of a round, at most */
#define FLOOR_NS 60000	 /* a window of the bare gap floor: about what an urgent batch takes */

struct urgent {
	struct compare *compare;
	struct rig rig;
	struct rig_client bulk[BULK], urgent;
	struct dmasync_queue *fifo;    /* one more queue of the first bulk client: ... */
	struct dmasync_buffer *buffer; /* ... both batches, and the line in a buffer of its own */
	struct dmasync_buffer *second; /* what the FIFO's second batch names */
	struct bench_list list;
	uint64_t bytes; /* of a bulk batch */
	uint64_t *samples[SERIES];
	uint32_t counts[SERIES];
	uint64_t *floors;
	uint64_t bulk_ns;
};

static void wait_ns(int64_t ns)
{
	int64_t end = now_ns() + ns;

	while (now_ns() < end)
		;
}

static void dirty(const struct urgent *u, char *memory, uint64_t value)
{
	for (uint64_t at = 0; at < u->bytes; at += u->compare->cache.line)
		*(volatile char *)(memory + at) = (char)value;
}

static int submit_list(struct dmasync_queue *queue, struct dmasync_buffer *buffer,
		       const struct bench_list *list)
{
	struct dmasync_batch *batch;
	int r = dmasync_batch_begin(queue, &batch);

	if (r < 0)
		return r;
	dmasync_batch_add_ranges(batch, buffer, list->sync, list->direction, list->ranges,
				 list->count);
	return dmasync_batch_submit(batch, 0);
}

static int one(struct urgent *u, struct dmasync_queue *queue, struct dmasync_buffer *buffer,
	       uint64_t *ret_ns)
{
	struct dmasync_completion completion;
	int64_t start;
	int r;

	*(volatile char *)dmasync_buffer_map(buffer) += 1;
	start = now_ns();
	r = bench_one_entry(queue, buffer, DMASYNC_FOR_DEVICE, u->compare->cache.line, &completion);
	*ret_ns = (uint64_t)(now_ns() - start);
	return r;
}

static int quiet_round(struct urgent *u)
{
	int r = rig_wake(&u->rig, &u->urgent);

	for (uint32_t i = 0; r >= 0 && i < 200; i++) {
		wait_ns((int64_t)(bench_random(&u->compare->seed) % GAP_MAX_NS));
		r = one(u, u->urgent.queue, u->urgent.buffer,
			&u->samples[SERIES_URGENT_QUIET][u->counts[SERIES_URGENT_QUIET]++]);
	}
	return r;
}

/* Urgent batches as long as a bulk batch is unfinished. */
static int bulk_round(struct urgent *u, uint64_t round)
{
	struct dmasync_completion completion;
	uint32_t left = BULK;
	int64_t start;
	int r;

	for (uint32_t i = 0; i < BULK; i++)
		dirty(u, u->bulk[i].memory, round);
	start = now_ns();
	r = rig_submit(&u->bulk[0], 0, u->bytes, 0);
	if (r >= 0)
		r = submit_list(u->bulk[1].queue, u->bulk[1].buffer, &u->list);
	for (uint32_t i = 0; r >= 0 && left > 0; i++) {
		uint64_t ns = 0;

		wait_ns((int64_t)(bench_random(&u->compare->seed) % GAP_MAX_NS));
		if (i < PER_ROUND)
			r = one(u, u->urgent.queue, u->urgent.buffer, &ns);
		for (uint32_t n = 0; r >= 0 && n < BULK; n++) {
			int there = dmasync_peek(u->bulk[n].queue, &completion);

			if (there > 0 && completion.status < 0)
				return completion.status;
			r = there < 0 ? there : r;
			left -= there > 0;
		}
		/* The last one ended when the worker may have been free already. */
		if (left > 0 && ns)
			u->samples[SERIES_URGENT][u->counts[SERIES_URGENT]++] = ns;
	}
	u->bulk_ns = (uint64_t)(now_ns() - start);
	return r;
}

static int fifo_round(struct urgent *u, uint64_t round)
{
	struct dmasync_completion completion;
	uint64_t *ns = &u->samples[SERIES_FIFO][u->counts[SERIES_FIFO]];
	struct dmasync_batch *batch;
	int r;

	dirty(u, u->bulk[0].memory, round);
	dirty(u, dmasync_buffer_map(u->second), round);
	r = dmasync_batch_begin(u->fifo, &batch);
	if (r < 0)
		return r;
	dmasync_batch_add(batch, u->bulk[0].buffer, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0,
			  u->bytes);
	r = dmasync_batch_submit(batch, 1);
	if (r >= 0)
		r = submit_list(u->fifo, u->second, &u->list);
	if (r < 0)
		return r;
	wait_ns((int64_t)(bench_random(&u->compare->seed) % GAP_MAX_NS));
	*(volatile char *)dmasync_buffer_map(u->buffer) += 1;

	int64_t start = now_ns();

	r = dmasync_batch_begin(u->fifo, &batch);
	if (r < 0)
		return r;
	dmasync_batch_add(batch, u->buffer, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0,
			  u->compare->cache.line);
	r = dmasync_batch_submit(batch, 3);
	for (uint32_t i = 0; r >= 0 && i <= BULK; i++)
		r = rig_reap(&u->rig, u->fifo, &completion);
	*ns = (uint64_t)(now_ns() - start);
	u->counts[SERIES_FIFO]++;
	return r;
}

/* A thread that only reads the clock: the longest it is kept from it, window by window. */
static void gaps(struct urgent *u, uint32_t windows, uint64_t *ret)
{
	for (uint64_t i = 0; i < windows; i++) {
		int64_t now = now_ns(), end = now + FLOOR_NS, last;

		ret[i] = 0;
		while (now < end) {
			last = now;
			now = now_ns();
			if ((uint64_t)(now - last) > ret[i])
				ret[i] = (uint64_t)(now - last);
		}
	}
	(void)u;
}

static int measure_floor(struct urgent *u, struct percentiles *ret)
{
	const uint32_t windows = u->compare->rounds * 100;
	int r;

	/* Half on the client's CPU, half on the worker's, which sleeps. */
	gaps(u, windows, u->floors);
	if (!bench_worker_asleep(u->urgent.queue))
		return compare_fail(u->compare, -EBUSY, "the worker does not fall asleep");
	r = bench_pin_thread(u->compare->worker_cpu);
	if (r < 0)
		return r;
	gaps(u, windows, u->floors + windows);
	percentiles_of_samples(u->floors, 2 * windows, ret);
	return rig_pin(u->compare);
}

static int measure(struct urgent *u)
{
	struct compare *compare = u->compare;
	struct percentiles *p = compare->run.series, floor;
	int r = 0;

	for (uint32_t i = 0; r >= 0 && i < compare->rounds; i++) {
		r = quiet_round(u);
		if (r >= 0)
			r = bulk_round(u, 2 * i);
		if (r >= 0)
			r = fifo_round(u, 2 * i + 1);
	}
	if (r >= 0)
		r = measure_floor(u, &floor);
	if (r < 0)
		return r;
	if (!u->counts[SERIES_URGENT])
		return compare_fail(compare, -ENODATA,
				    "every urgent batch ended after the last bulk batch");
	for (int i = 0; i < SERIES; i++)
		if (u->counts[i])
			percentiles_of_samples(u->samples[i], u->counts[i], &p[i]);

	const double quiet = (double)p[SERIES_URGENT_QUIET].p99 / 1e3;
	const double urgent = (double)p[SERIES_URGENT].p99 / 1e3;
	const double fifo = (double)p[SERIES_FIFO].p99 / 1e3;

	row_set(compare, ROW_URGENT_DELAY, urgent - quiet);
	row_value(compare, ROW_URGENT_DELAY, "p99 under bulk", "us", urgent);
	row_value(compare, ROW_URGENT_DELAY, "p99 quiet", "us", quiet);
	row_value(compare, ROW_URGENT_DELAY, "p50 under bulk", "us",
		  (double)p[SERIES_URGENT].p50 / 1e3);
	row_value(compare, ROW_URGENT_DELAY, "p50 quiet", "us",
		  (double)p[SERIES_URGENT_QUIET].p50 / 1e3);
	row_value(compare, ROW_URGENT_DELAY, "gap floor p99", "us", (double)floor.p99 / 1e3);
	row_value(compare, ROW_URGENT_DELAY, "gap floor p99.9", "us", (double)floor.p99_9 / 1e3);
	row_value(compare, ROW_URGENT_DELAY, "slice", "us", compare->slice_us);
	row_value(compare, ROW_URGENT_DELAY, "batches", "", (double)p[SERIES_URGENT].count);
	row_set(compare, ROW_URGENT_VS_FIFO, urgent / fifo);
	row_value(compare, ROW_URGENT_VS_FIFO, "p99 under bulk", "us", urgent);
	row_value(compare, ROW_URGENT_VS_FIFO, "p99 in FIFO order", "us", fifo);
	row_value(compare, ROW_URGENT_VS_FIFO, "both bulk batches", "us", (double)u->bulk_ns / 1e3);
	return 0;
}

static int prepare(struct urgent *u)
{
	struct compare *compare = u->compare;
	struct dmasync_queue_params params;
	/* A worker that looks on all the time: without bulk too nobody has to be woken. */
	int r = rig_open(compare, &u->rig,
			 "spin_us = 10000\nspin_min_us = 10000\n"
			 "[limits]\nmax_buffer_bytes = 2G\nmax_total_buffer_bytes = 8G\n");

	if (r < 0)
		return r;
	u->list = (struct bench_list){
		.cache = &compare->cache,
		.size = u->bytes,
		.entry = ENTRY,
		.seed = compare->seed,
		.random = true,
		.sync = DMASYNC_FOR_DEVICE,
		.direction = DMASYNC_TO_DEVICE,
	};
	r = bench_list_make(&u->list);
	if (r < 0)
		return r;
	/* All of them: the batch is to cover the whole buffer. */
	u->list.count = (uint32_t)(u->bytes / ENTRY);
	dmasync_queue_params_init(&params);
	params.spin_us = 1000000;
	params.units = u->list.count;
	params.klass = DMASYNC_CLASS_BULK;
	for (uint32_t i = 0; r >= 0 && i < BULK; i++)
		r = rig_client_open(&u->rig, u->bytes, &params, &u->bulk[i]);
	if (r >= 0)
		r = rig_queue(&u->rig, u->bulk[0].ds, &params, &u->fifo);
	if (r >= 0)
		r = rig_buffer(&u->rig, u->bulk[0].ds, 4096, &u->buffer);
	if (r >= 0)
		r = rig_buffer(&u->rig, u->bulk[0].ds, u->bytes, &u->second);
	params.units = 16;
	params.klass = DMASYNC_CLASS_REALTIME;
	if (r >= 0)
		r = rig_client_open(&u->rig, 4096, &params, &u->urgent);
	return r < 0 ? r : rig_pin(compare);
}

int group_urgent(struct compare *compare)
{
	struct urgent u = {
		.compare = compare,
		.bytes = (compare->short_form ? UINT64_C(32) : UINT64_C(256)) << 20,
	};
	int r = rig_needs_two(compare);

	if (r < 0)
		return r;
	for (int i = 0; i < SERIES; i++)
		u.samples[i] = samples_new(compare->rounds * PER_ROUND);
	u.floors = samples_new(2 * compare->rounds * 100);
	r = prepare(&u);
	if (r >= 0)
		r = measure(&u);
	for (uint32_t i = 0; i < BULK; i++)
		if (i > 0)
			rig_client_close(&u.bulk[i]);
	dmasync_queue_destroy(u.fifo);
	dmasync_buffer_destroy(u.buffer);
	dmasync_buffer_destroy(u.second);
	rig_client_close(&u.bulk[0]);
	rig_client_close(&u.urgent);
	rig_close(&u.rig);
	bench_list_clear(&u.list);
	for (int i = 0; i < SERIES; i++)
		free(u.samples[i]);
	free(u.floors);
	return r;
}
