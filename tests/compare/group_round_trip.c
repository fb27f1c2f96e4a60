/* SPDX-License-Identifier: MIT */
/*
 * One dirty line there and back: with worker and client awake beside the ping-pong of one line and
 * the socket server, with all asleep beside a pipe wake-up. Blocks take turns. One thread, and a
 * partner thread on the worker's CPU.
 */
#include "client/ctl/bench.h"
#include "client/ctl/bench_partner.h"
#include "tests/compare/compare.h"
#include "tests/compare/peer_socket.h"

#define BLOCK 1000u	 /* rounds before the next one has its turn */
#define SOCKET_BLOCK 50u /* these take a hundred times as long where both sides sleep */
#define WARM 20u	 /* rounds at the start of a block that do not count */
#define PERIOD_NS 33000000
#define BYTES 4096u

struct round_trip {
	struct compare *compare;
	struct rig rig;
	struct rig_client warm;	    /* whose client looks */
	struct dmasync_queue *cold; /* whose client sleeps at once */
	struct partner *partner;
	struct socket_peer *server;
	volatile uint32_t *word; /* in the line that is made dirty */
	uint64_t *samples[SERIES];
	uint32_t counts[SERIES];
};

static int by_daemon(struct round_trip *t, struct dmasync_queue *queue, uint64_t *ret_ns)
{
	struct dmasync_completion completion;
	int64_t start;
	int r;

	*t->word += 1;
	start = now_ns();
	r = bench_one_entry(queue, t->warm.buffer, DMASYNC_FOR_DEVICE, t->compare->cache.line,
			    &completion);
	*ret_ns = (uint64_t)(now_ns() - start);
	return r;
}

static int by_server(struct round_trip *t, bool spin, uint64_t *ret_ns)
{
	int64_t start;
	int r;

	*t->word += 1;
	start = now_ns();
	r = socket_peer_sync(t->server, 0, t->compare->cache.line, spin);
	*ret_ns = (uint64_t)(now_ns() - start);
	return r;
}

static int one(struct round_trip *t, enum series series, uint64_t *ret_ns)
{
	switch (series) {
	case SERIES_ROUND_TRIP:
		return by_daemon(t, t->warm.queue, ret_ns);
	case SERIES_COLD:
		return by_daemon(t, t->cold, ret_ns);
	case SERIES_SOCKET_SPINNING:
		return by_server(t, true, ret_ns);
	case SERIES_SOCKET:
		return by_server(t, false, ret_ns);
	case SERIES_WAKE:
		return partner_wake(t->partner, ret_ns);
	case SERIES_PING_PONG: /* a block at once */
	case SERIES_URGENT_QUIET:
	case SERIES_URGENT:
	case SERIES_FIFO:
	case SERIES:
		break;
	}
	return -EINVAL;
}

static int block(struct round_trip *t, enum series series, uint32_t rounds)
{
	uint64_t *samples = t->samples[series] + t->counts[series], dropped;
	int r = 0;

	if (series == SERIES_PING_PONG) {
		r = partner_ping_pong(t->partner, WARM, rounds, samples);
	} else {
		for (uint32_t i = 0; r >= 0 && i < WARM; i++)
			r = one(t, series, &dropped);
		for (uint32_t i = 0; r >= 0 && i < rounds; i++)
			r = one(t, series, &samples[i]);
		/* The server sleeps again, and leaves the CPU to the worker. */
		if (r >= 0 && series == SERIES_SOCKET_SPINNING)
			r = one(t, SERIES_SOCKET, &dropped);
	}
	t->counts[series] += rounds;
	return r;
}

/* Partner and server run on the worker's CPU: never while the worker looks. */
static int measure_warm(struct round_trip *t)
{
	for (uint64_t i = 0; i < t->compare->rounds; i++) {
		int r;

		if (!bench_worker_asleep(t->warm.queue))
			return compare_fail(t->compare, -EBUSY, "the worker does not fall asleep");
		r = block(t, SERIES_PING_PONG, BLOCK);
		if (r >= 0)
			r = block(t, SERIES_SOCKET_SPINNING, BLOCK);
		if (r >= 0)
			r = block(t, SERIES_SOCKET, SOCKET_BLOCK);
		if (r >= 0)
			r = block(t, SERIES_ROUND_TRIP, BLOCK);
		if (r < 0)
			return r;
	}
	return 0;
}

static void sleep_until(int64_t ns)
{
	struct timespec when = to_timespec(ns);

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL) == EINTR)
		;
}

/* One of each in turn, a period apart, so that both find equally sleepy CPUs. */
static int measure_cold(struct round_trip *t)
{
	int64_t next = now_ns();
	int r = 0;

	for (uint64_t i = 0; r >= 0 && i < 2 * t->compare->rounds; i++) {
		enum series series = i % 2 == 0 ? SERIES_COLD : SERIES_WAKE;

		next += PERIOD_NS;
		sleep_until(next);
		r = one(t, series, &t->samples[series][t->counts[series]++]);
	}
	return r;
}

static void report(struct round_trip *t)
{
	struct compare *compare = t->compare;
	struct percentiles *p = compare->run.series;

	for (int i = 0; i < SERIES; i++)
		if (t->counts[i])
			percentiles_of_samples(t->samples[i], t->counts[i], &p[i]);

	const double warm = (double)p[SERIES_ROUND_TRIP].p50;

	row_set(compare, ROW_RTT_VS_PINGPONG, warm / (double)p[SERIES_PING_PONG].p50);
	row_value(compare, ROW_RTT_VS_PINGPONG, "round trip", "ns", warm);
	row_value(compare, ROW_RTT_VS_PINGPONG, "ping-pong", "ns", (double)p[SERIES_PING_PONG].p50);
	row_value(compare, ROW_RTT_VS_PINGPONG, "round trip p99", "ns",
		  (double)p[SERIES_ROUND_TRIP].p99);
	row_value(compare, ROW_RTT_VS_PINGPONG, "ping-pong p99", "ns",
		  (double)p[SERIES_PING_PONG].p99);

	row_set(compare, ROW_COLD_RTT_VS_WAKE,
		(double)p[SERIES_COLD].p50 / (double)p[SERIES_WAKE].p50);
	row_value(compare, ROW_COLD_RTT_VS_WAKE, "cold round trip", "us",
		  (double)p[SERIES_COLD].p50 / 1e3);
	row_value(compare, ROW_COLD_RTT_VS_WAKE, "pipe wake-up", "us",
		  (double)p[SERIES_WAKE].p50 / 1e3);

	row_set(compare, ROW_RTT_VS_SOCKET, warm / (double)p[SERIES_SOCKET].p50);
	row_value(compare, ROW_RTT_VS_SOCKET, "round trip", "ns", warm);
	row_value(compare, ROW_RTT_VS_SOCKET, "socket server", "ns", (double)p[SERIES_SOCKET].p50);
	/* Not what one would write, but what the socket alone costs where nobody sleeps. */
	row_value(compare, ROW_RTT_VS_SOCKET, "socket server, both spinning", "ns",
		  (double)p[SERIES_SOCKET_SPINNING].p50);
	row_value(compare, ROW_RTT_VS_SOCKET, "round trip against that", "",
		  warm / (double)p[SERIES_SOCKET_SPINNING].p50);
}

static int prepare(struct round_trip *t)
{
	struct compare *compare = t->compare;
	struct dmasync_buffer_info info = {.size = sizeof info};
	struct dmasync_queue_params params;
	int r = rig_open(compare, &t->rig, "");

	if (r < 0)
		return r;
	dmasync_queue_params_init(&params);
	params.spin_us = 1000000;
	r = rig_client_open(&t->rig, BYTES, &params, &t->warm);
	if (r < 0)
		return r;
	t->word = (volatile uint32_t *)(void *)t->warm.memory;
	params.spin_us = 0;
	r = rig_queue(&t->rig, t->warm.ds, &params, &t->cold);
	if (r >= 0)
		r = dmasync_buffer_get_info(t->warm.buffer, &info);
	if (r >= 0)
		r = rig_pin(compare);
	if (r >= 0)
		r = partner_start(compare->worker_cpu, &t->partner);
	if (r >= 0)
		r = socket_peer_start(compare->worker_cpu, info.fd, BYTES, &compare->cache,
				      &t->server);
	return r;
}

int group_round_trip(struct compare *compare)
{
	struct round_trip t = {.compare = compare};
	int r = rig_needs_two(compare);

	if (r < 0)
		return r;
	for (int i = 0; i < SERIES; i++)
		t.samples[i] = samples_new(compare->rounds * BLOCK);
	r = prepare(&t);
	if (r >= 0)
		r = measure_warm(&t);
	if (r >= 0)
		r = measure_cold(&t);
	if (r >= 0)
		report(&t);
	socket_peer_stop(t.server);
	partner_stop(t.partner);
	dmasync_queue_destroy(t.cold);
	rig_client_close(&t.warm);
	rig_close(&t.rig);
	for (int i = 0; i < SERIES; i++)
		free(t.samples[i]);
	return r;
}
