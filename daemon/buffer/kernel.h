/* SPDX-License-Identifier: MIT */
/*
 * The kernel backend: DMA_BUF_IOCTL_SYNC. Called by whoever may wait for fences as long as they
 * like: the daemon's helper threads, and the caller itself in libdmasync's inline mode.
 */
#ifndef DMASYNC_BUFFER_KERNEL_H
#define DMASYNC_BUFFER_KERNEL_H

#include <stdint.h>

#include "daemon/cache/batch.h"

/*
 * Every sync of a checked batch whose line operations are done; its runs are overwritten. One call
 * for each distinct buffer, sync and direction among them: those of one buffer in the order of
 * their first entries, buffers in any order. The first failure ends it: what a failed START
 * (for_cpu) leaves undone is not made good by an END, and a later for_device is a batch of its own.
 * 0 or that failure; *calls is how many succeeded.
 */
int kernel_sync_runs(const struct cache_batch *batch, uint64_t *calls);

/* One call; repeated where it was interrupted. 0 or a negative errno. */
int kernel_sync_call(int fd, uint64_t flags);

/* The flags of one call: include/uapi/linux/dma-buf.h. */
uint64_t kernel_sync_flags(enum dmasync_sync sync, enum dmasync_direction direction);

#endif
