/* SPDX-License-Identifier: MIT */
/* A client of the fake daemon, see fake.h. The test's thread. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "tests/unit/client/fake.h"

struct dmasync *fake_connect(struct fake *fake)
{
	struct dmasync_connect_params params;
	struct dmasync *ds = NULL;

	dmasync_connect_params_init(&params);
	params.socket = fake->path;
	params.timeout_ms = 10000;
	params.flags = DMASYNC_NO_RECONNECT;
	assert_int_equal(dmasync_connect_with(&params, &ds), 0);
	return ds;
}

struct dmasync_queue *fake_queue_create(struct dmasync *ds, uint32_t depth, uint32_t units,
					uint32_t spin_us)
{
	struct dmasync_queue_params params;
	struct dmasync_queue *queue = NULL;

	dmasync_queue_params_init(&params);
	params.depth = depth;
	params.units = units;
	params.spin_us = spin_us;
	assert_int_equal(dmasync_queue_create(ds, &params, &queue), 0);
	return queue;
}

struct dmasync_buffer *fake_buffer(struct dmasync *ds, uint64_t bytes)
{
	struct dmasync_buffer_params params;
	struct dmasync_buffer *buffer = NULL;

	dmasync_buffer_params_init(&params);
	params.bytes = bytes;
	params.memory = DMASYNC_MEMORY_MEMFD;
	assert_int_equal(dmasync_buffer_alloc(ds, &params, &buffer), 0);
	return buffer;
}
