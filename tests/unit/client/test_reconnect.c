/* SPDX-License-Identifier: MIT */
/*
 * A daemon that goes and another that comes, both fakes: what is handed out, what is submitted
 * again, who may take over, what the application is told.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/internal.h"
#include "tests/unit/client/bench.h"

#define PATIENCE_NS INT64_C(10000000000)

static struct dmasync *connect_for_ever(struct fake *fake, uint32_t give_up_ms)
{
	struct dmasync_connect_params params;
	struct dmasync *ds = NULL;

	dmasync_connect_params_init(&params);
	params.socket = fake->path;
	params.timeout_ms = 10000;
	params.give_up_ms = give_up_ms;
	assert_int_equal(dmasync_connect_with(&params, &ds), 0);
	return ds;
}

static struct bench start_with(uint32_t depth, uint32_t units, uint32_t give_up_ms)
{
	struct bench b = {.fake = fake_start()};

	b.ds = connect_for_ever(b.fake, give_up_ms);
	b.queue = fake_queue_create(b.ds, depth, units, 0);
	b.fq = fake_queue(b.fake);
	b.buffer = fake_buffer(b.ds, 1 << 20);
	return b;
}

static struct bench start(uint32_t depth, uint32_t units)
{
	return start_with(depth, units, 0);
}

static enum dmasync_state state_of(struct dmasync *ds)
{
	struct dmasync_state_info info = {.size = sizeof info};

	assert_int_equal(dmasync_get_state(ds, &info), 0);
	return info.state;
}

/* Steps by peek until the queue is attached to the fake's newest one; nothing may be read. */
static void attach(struct bench *b)
{
	struct dmasync_completion c;
	uint32_t queues = b->fake->queue_count;

	while (fake_requests(b->fake, DMASYNC_OP_QUEUE_CREATE) == queues ||
	       !queue_current(b->queue))
		assert_int_equal(dmasync_peek(b->queue, &c), 0);
	b->fq = fake_queue(b->fake);
}

static void restart(struct bench *b)
{
	fake_die(b->fake);
	fake_live(b->fake);
}

static void expect(struct bench *b, uint64_t user_data, bool replayed)
{
	struct dmasync_completion c;

	assert_int_equal(dmasync_wait(b->queue, &c, PATIENCE_NS), 0);
	assert_true(c.user_data == user_data);
	assert_int_equal(c.status, 0);
	assert_int_equal(!!(c.flags & DMASYNC_COMPLETION_REPLAYED), replayed);
}

/* ---- once each ---- */

/* Three completed and read by nobody, one fetched, two not: at every place of a ring. */
static void each_batch_once(void **state)
{
	struct dmasync_completion c;
	struct fake_batch fetched;

	(void)state;
	for (int round = 0; round < 5; round++) {
		struct bench b = start(8, 8);

		for (int i = 0; i < round; i++) {
			bench_submit(&b, 100);
			fake_serve(b.fq, 1);
			expect(&b, 100, false);
		}
		for (uint64_t i = 0; i < 6; i++)
			bench_submit(&b, i);
		fake_serve(b.fq, 3);
		assert_true(fake_fetch(b.fq, &fetched));
		restart(&b);
		for (uint64_t i = 0; i < 3; i++)
			expect(&b, i, false);
		attach(&b);
		/* The oldest first, with their entries, and later ones behind them. */
		bench_submit(&b, 6);
		for (uint64_t i = 3; i < 7; i++) {
			assert_true(fake_fetch(b.fq, &fetched));
			assert_true(fetched.submission.user_data == i);
			assert_int_equal(fetched.submission.entry.length, 64);
			fake_complete(b.fq, &(struct dmasync_ring_completion){.user_data = i});
		}
		assert_false(fake_fetch(b.fq, &fetched));
		for (uint64_t i = 3; i < 7; i++)
			expect(&b, i, i < 6);
		assert_int_equal(dmasync_peek(b.queue, &c), 0);
		assert_int_equal(dmasync_wait(b.queue, &c, -1), -ENODATA);
		bench_stop(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		fake_test(each_batch_once),
	};

	(void)state_of;
	return cmocka_run_group_tests_name("client reconnect", tests, NULL, NULL);
}
