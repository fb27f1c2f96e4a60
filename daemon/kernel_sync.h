/* SPDX-License-Identifier: MIT */
/*
 * The kernel backend: DMA_BUF_IOCTL_SYNC for the buffers of one batch, on a helper thread, since it
 * may wait for fences as long as they like.
 */
#ifndef DMASYNC_KERNEL_SYNC_H
#define DMASYNC_KERNEL_SYNC_H

#include <stdint.h>

#include "daemon/cache/batch.h"
#include "daemon/helper.h"

struct kernel_sync {
	struct helper_job job; /* first */
	const struct cache_batch *batch;
	uint64_t calls; /* out: ioctls made */
	int error;	/* out: 0 or the first failure, negative errno */
};

/*
 * Worker: prepares the job; the batch and the buffers it names stay where they are until the job
 * has come back; its runs are overwritten. One call for each distinct buffer, sync and direction
 * among them: those of one buffer in the order of their first entries, buffers in any order. The
 * first failure ends it: what a failed START (for_cpu) leaves undone is not made good by an END,
 * and a later for_device is a batch of its own.
 */
void kernel_sync_prepare(struct kernel_sync *sync, const struct cache_batch *batch,
			 uint64_t client_id, struct mailbox *done, int done_fd);

/* Helper threads: one call; repeated where it was interrupted. 0 or a negative errno. */
int kernel_sync_call(int fd, uint64_t flags);

/* The flags of one call: include/uapi/linux/dma-buf.h. */
uint64_t kernel_sync_flags(enum dmasync_sync sync, enum dmasync_direction direction);

#endif
