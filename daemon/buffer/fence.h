/* SPDX-License-Identifier: MIT */
/*
 * The fences of dma-bufs that a batch has to wait for, as cache_batch_check() noted them. No state.
 *
 * A dma-buf says by poll(2) what its fences do (dma_buf_poll() in drivers/dma-buf/dma-buf.c):
 * POLLIN once those of all writers are signalled, POLLOUT once those of all readers are, too. What
 * a driver adds afterwards is the client's affair: whoever hands a buffer to a device while a batch
 * names it has a race of his own.
 */
#ifndef DMASYNC_BUFFER_FENCE_H
#define DMASYNC_BUFFER_FENCE_H

#include <stdint.h>

#include "daemon/cache/batch.h"

/* How long a batch waits for its fences, where no configuration says so (fence_timeout_ms=). */
#define FENCE_TIMEOUT_MS 5000

int fence_fd(const struct cache_fence *fence);
int16_t fence_events(const struct cache_fence *fence); /* of poll(2) */

/*
 * Keeps those of the batch that are not signalled, after waiting for the first change at most
 * timeout_ms; 0 only looks. 0, or the negative errno of poll(2), where all are kept: with 0
 * interruptions are not told.
 */
int fences_drop_signalled(struct cache_batch *cache, int timeout_ms);

#endif
