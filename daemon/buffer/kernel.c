/* SPDX-License-Identifier: MIT */
/* DMA_BUF_IOCTL_SYNC for the buffers of one batch, see kernel.h. Whoever may block; no state. */
#include "daemon/buffer/kernel.h"

#include <errno.h>
#include <linux/dma-buf.h>
#include <sys/ioctl.h>

#include "daemon/buffer/table.h"

/* Of a run's op, above its bits: its place in the batch, while runs are sorted by buffer. */
#define PLACE_SHIFT 8u

static_assert(DMASYNC_RING_MAX_UNITS <= UINT32_MAX >> PLACE_SHIFT, "every place has room");
static_assert(CACHE_RUN_KERNEL < 1u << PLACE_SHIFT, "a place is not taken for an operation");

uint64_t kernel_sync_flags(enum dmasync_sync sync, enum dmasync_direction direction)
{
	uint64_t flags = sync == DMASYNC_FOR_CPU ? DMA_BUF_SYNC_START : DMA_BUF_SYNC_END;

	if (direction & DMASYNC_FROM_DEVICE)
		flags |= DMA_BUF_SYNC_READ;
	if (direction & DMASYNC_TO_DEVICE)
		flags |= DMA_BUF_SYNC_WRITE;
	return flags;
}

static int call(int fd, uint64_t flags)
{
	struct dma_buf_sync sync = {.flags = flags};

	/* Documentation/driver-api/dma-buf.rst: may be interrupted, to be called again. */
	while (ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync) < 0)
		if (errno != EINTR && errno != EAGAIN)
			return -errno;
	return 0;
}

/*
 * udmabuf refuses an END that no START came before (end_cpu_udmabuf() in
 * drivers/dma-buf/udmabuf.c). The one it gets here says that the CPU only writes: that invalidates
 * nothing.
 */
int kernel_sync_call(int fd, uint64_t flags)
{
	int r = call(fd, flags);

	if (r != -EINVAL || !(flags & DMA_BUF_SYNC_END))
		return r;
	r = call(fd, DMA_BUF_SYNC_START | DMA_BUF_SYNC_WRITE);
	return r < 0 ? r : call(fd, flags);
}

/* ---- the batch's runs of the kernel backend, sorted by buffer, in place ---- */

static struct cache_run *run_at(const struct cache_batch *batch, uint32_t index)
{
	return &batch->units[(batch->first + index) & batch->mask].run;
}

/* Moves them to the front: the line operations are done and nobody needs the other runs. */
static uint32_t gather(const struct cache_batch *batch)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < batch->runs; i++) {
		struct cache_run run = *run_at(batch, i);

		if (run.op & CACHE_RUN_STRIDED)
			i++; /* its rows are no run */
		if (!(run.op & CACHE_RUN_KERNEL))
			continue;
		run.op |= count << PLACE_SHIFT;
		*run_at(batch, count++) = run;
	}
	return count;
}

static bool comes_before(const struct cache_run *a, const struct cache_run *b)
{
	return a->start != b->start ? a->start < b->start : a->op < b->op;
}

static void sink(const struct cache_batch *batch, uint32_t at, uint32_t count)
{
	struct cache_run run = *run_at(batch, at);

	for (uint32_t child = 2 * at + 1; child < count; child = 2 * at + 1) {
		if (child + 1 < count &&
		    comes_before(run_at(batch, child), run_at(batch, child + 1)))
			child++;
		if (!comes_before(&run, run_at(batch, child)))
			break;
		*run_at(batch, at) = *run_at(batch, child);
		at = child;
	}
	*run_at(batch, at) = run;
}

/* Heapsort: in place, no recursion, and a client cannot make it slow. */
static void sort(const struct cache_batch *batch, uint32_t count)
{
	for (uint32_t i = count / 2; i-- > 0;)
		sink(batch, i, count);
	for (uint32_t end = count; end-- > 1;) {
		struct cache_run largest = *run_at(batch, 0);

		*run_at(batch, 0) = *run_at(batch, end);
		*run_at(batch, end) = largest;
		sink(batch, 0, end);
	}
}

int kernel_sync_runs(const struct cache_batch *batch, uint64_t *calls)
{
	uint32_t count = gather(batch), seen = 0;
	uint64_t last = 0;

	*calls = 0;
	sort(batch, count);
	for (uint32_t i = 0; i < count; i++) {
		const struct cache_run *run = run_at(batch, i);
		uint32_t what = 1u << run->amount;
		int r;

		if (run->start != last)
			seen = 0;
		last = run->start;
		if (seen & what)
			continue;
		seen |= what;

		/* struct cache_buffer is the first member of struct buffer. */
		r = kernel_sync_call(((const struct buffer *)(uintptr_t)run->start)->fd,
				     kernel_sync_flags((enum dmasync_sync)(run->amount >> 2),
						       (enum dmasync_direction)(run->amount & 3)));
		if (r < 0)
			return r;
		++*calls;
	}
	return 0;
}
