/* SPDX-License-Identifier: MIT */
/*
 * What most tests of a queue start from: a fake daemon, a connection, one queue and one buffer. The
 * fake's worker is stepped by hand, so nothing may be in flight at the end.
 */
#ifndef DMASYNC_TESTS_CLIENT_BENCH_H
#define DMASYNC_TESTS_CLIENT_BENCH_H

#include "tests/unit/client/fake.h"

struct bench {
	struct fake *fake;
	struct dmasync *ds;
	struct dmasync_queue *queue;
	struct fake_queue *fq;
	struct dmasync_buffer *buffer;
};

struct bench bench_start(uint32_t depth, uint32_t units, uint64_t bytes, uint32_t spin_us);
void bench_stop(struct bench *b);

/* One batch of one line of the buffer. */
void bench_submit(struct bench *b, uint64_t user_data);

#endif
