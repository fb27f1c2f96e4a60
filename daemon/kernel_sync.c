/* SPDX-License-Identifier: MIT */
/* DMA_BUF_IOCTL_SYNC for the buffers of one batch. The job runs on a helper thread. */
#include "daemon/kernel_sync.h"

#include <errno.h>
#include <linux/dma-buf.h>
#include <sys/ioctl.h>

#include "daemon/buffer_table.h"

/* Distinct calls remembered. A batch with more of them repeats some, which is slow and harmless. */
#define REMEMBERED 64u

uint64_t kernel_sync_flags(enum dmasync_sync sync, enum dmasync_direction direction)
{
	uint64_t flags = sync == DMASYNC_FOR_CPU ? DMA_BUF_SYNC_START : DMA_BUF_SYNC_END;

	if (direction & DMASYNC_FROM_DEVICE)
		flags |= DMA_BUF_SYNC_READ;
	if (direction & DMASYNC_TO_DEVICE)
		flags |= DMA_BUF_SYNC_WRITE;
	return flags;
}

static int sync_buffer(const struct buffer *buffer, uint32_t what)
{
	struct dma_buf_sync sync = {
		.flags = kernel_sync_flags((enum dmasync_sync)(what >> 2),
					   (enum dmasync_direction)(what & 3)),
	};

	/* Documentation/driver-api/dma-buf.rst: may be interrupted, to be called again. */
	while (ioctl(buffer->fd, DMA_BUF_IOCTL_SYNC, &sync) < 0)
		if (errno != EINTR && errno != EAGAIN)
			return -errno;
	return 0;
}

static void run_job(struct helper_job *job)
{
	struct kernel_sync *sync = (struct kernel_sync *)job;
	const struct cache_batch *batch = sync->batch;
	struct {
		uint64_t buffer;
		uint32_t what;
	} done[REMEMBERED];
	uint32_t count = 0, oldest = 0;

	for (uint32_t i = 0; i < batch->runs; i++) {
		struct cache_run run = batch->units[(batch->first + i) & batch->mask].run;
		uint32_t seen = 0;

		if (run.op & CACHE_RUN_STRIDED)
			i++; /* its rows are no run */
		if (!(run.op & CACHE_RUN_KERNEL))
			continue;
		while (seen < count &&
		       (done[seen].buffer != run.start || done[seen].what != run.amount))
			seen++;
		if (seen < count)
			continue;
		if (count < REMEMBERED)
			seen = count++;
		else
			seen = oldest++ % REMEMBERED;
		done[seen].buffer = run.start;
		done[seen].what = run.amount;

		/* struct cache_buffer is the first member of struct buffer. */
		sync->error = sync_buffer((const struct buffer *)(uintptr_t)run.start, run.amount);
		if (sync->error < 0)
			return;
		sync->calls++;
	}
}

void kernel_sync_prepare(struct kernel_sync *sync, const struct cache_batch *batch,
			 uint64_t client_id, struct mailbox *done, int done_fd)
{
	*sync = (struct kernel_sync){
		.job = {.run = run_job, .client_id = client_id, .done = done, .done_fd = done_fd},
		.batch = batch,
	};
}
