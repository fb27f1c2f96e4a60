/* SPDX-License-Identifier: MIT */
/* See bench.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/client/bench.h"

struct bench bench_start(uint32_t depth, uint32_t units, uint64_t bytes, uint32_t spin_us)
{
	struct bench b = {.fake = fake_start()};

	b.ds = fake_connect(b.fake);
	b.queue = fake_queue_create(b.ds, depth, units, spin_us);
	b.fq = fake_queue(b.fake);
	b.buffer = fake_buffer(b.ds, bytes);
	return b;
}

void bench_stop(struct bench *b)
{
	dmasync_buffer_destroy(b->buffer);
	dmasync_queue_destroy(b->queue);
	dmasync_disconnect(b->ds);
	fake_stop(b->fake);
}

void bench_submit(struct bench *b, uint64_t user_data)
{
	struct dmasync_batch *batch;

	assert_int_equal(dmasync_batch_begin(b->queue, &batch), 0);
	assert_int_equal(
		dmasync_batch_add(batch, b->buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, 64),
		0);
	assert_int_equal(dmasync_batch_submit(batch, user_data), 0);
}
