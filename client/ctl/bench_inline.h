/* SPDX-License-Identifier: MIT */
/*
 * The library in inline mode beside the daemon, on the same memory. Main thread.
 */
#ifndef DMASYNC_CTL_BENCH_INLINE_H
#define DMASYNC_CTL_BENCH_INLINE_H

#include <dmasync/dmasync.h>

struct bench_inline {
	struct dmasync *ds;
	struct dmasync_buffer *buffer;
	struct dmasync_queue *queue;
};

/*
 * Imports the memory of the daemon's buffer, with the backend that it has there. A failure's
 * sentence becomes the error text of `daemon`.
 */
int bench_inline_open(struct bench_inline *in_process, struct dmasync *daemon,
		      const struct dmasync_buffer_info *info, uint32_t units);
void bench_inline_close(struct bench_inline *in_process);

/* One batch from its first entry written to its completion read; an error, or its status. */
int bench_inline_sync(struct bench_inline *in_process, enum dmasync_sync sync,
		      enum dmasync_direction direction, const struct dmasync_range *ranges,
		      uint32_t count, uint64_t *ret_ns);

#endif
