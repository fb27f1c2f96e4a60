/* SPDX-License-Identifier: MIT */
/*
 * The kernel backend: DMA_BUF_IOCTL_SYNC for the buffers of one batch, on a helper thread, since it
 * may wait for fences as long as they like.
 */
#ifndef DMASYNC_KERNEL_SYNC_H
#define DMASYNC_KERNEL_SYNC_H

#include <stdint.h>

#include "daemon/buffer/kernel.h"
#include "daemon/helper.h"

struct kernel_sync {
	struct helper_job job; /* first */
	const struct cache_batch *batch;
	uint64_t calls; /* out: ioctls made */
	int error;	/* out: 0 or the first failure, negative errno */
};

/*
 * Worker: prepares the job; the batch and the buffers it names stay where they are until the job
 * has come back; its runs are overwritten (kernel_sync_runs()).
 */
void kernel_sync_prepare(struct kernel_sync *sync, const struct cache_batch *batch,
			 uint64_t client_id, uint64_t user_id, struct mailbox *done, int done_fd);

#endif
