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
 * has come back. One call for each distinct buffer, sync and direction among the batch's runs, in
 * the order of their first entry; the first failure ends it.
 */
void kernel_sync_prepare(struct kernel_sync *sync, const struct cache_batch *batch,
			 uint64_t client_id, struct mailbox *done, int done_fd);

/* The flags of one call: include/uapi/linux/dma-buf.h. */
uint64_t kernel_sync_flags(enum dmasync_sync sync, enum dmasync_direction direction);

#endif
