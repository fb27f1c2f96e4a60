/* SPDX-License-Identifier: MIT */
/*
 * What is used today: DMA_BUF_IOCTL_SYNC on a udmabuf of 10 MB of which 256 lines were touched,
 * which syncs all of it, beside the daemon syncing these lines. One thread.
 */
#include <linux/dma-buf.h>
#include <sys/ioctl.h>

#include "tests/compare/compare.h"

#define SIZE (UINT64_C(10) << 20)
#define LINES 256u

static int by_daemon(struct rig *rig, struct dmasync_queue *queue, struct dmasync_buffer *buffer,
		     const struct bench_list *list, uint64_t *ret_ns)
{
	struct dmasync_completion completion;
	struct dmasync_batch *batch;
	int64_t start = now_ns();
	int r = dmasync_batch_begin(queue, &batch);

	if (r < 0)
		return r;
	dmasync_batch_add_ranges(batch, buffer, list->sync, list->direction, list->ranges,
				 list->count);
	r = dmasync_batch_submit(batch, 0);
	if (r >= 0)
		r = rig_reap(rig, queue, &completion);
	*ret_ns = (uint64_t)(now_ns() - start);
	return r;
}

/* for_device is the END of what the CPU did. */
static int by_ioctl(int fd, uint64_t *ret_ns)
{
	struct dma_buf_sync sync = {.flags = DMA_BUF_SYNC_START | DMA_BUF_SYNC_WRITE};
	int64_t start;

	if (ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync) < 0)
		return -errno;
	sync.flags = DMA_BUF_SYNC_END | DMA_BUF_SYNC_WRITE;
	start = now_ns();
	if (ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync) < 0)
		return -errno;
	*ret_ns = (uint64_t)(now_ns() - start);
	return 0;
}

static int measure(struct compare *compare, struct rig *rig, struct dmasync_queue *queue,
		   struct dmasync_buffer *buffer, struct bench_list *list)
{
	uint64_t *_samples_ daemon = samples_new(compare->rounds);
	uint64_t *_samples_ kernel = samples_new(compare->rounds);
	struct dmasync_buffer_info info = {.size = sizeof info};
	int r = dmasync_buffer_get_info(buffer, &info);

	for (uint32_t i = 0; r >= 0 && i < compare->rounds; i++) {
		bench_list_dirty(list, 2 * i);
		r = by_ioctl(info.fd, &kernel[i]);
		bench_list_dirty(list, 2 * i + 1);
		if (r >= 0)
			r = by_daemon(rig, queue, buffer, list, &daemon[i]);
	}
	if (r < 0)
		return r;

	double daemon_us = percentiles_median(daemon, compare->rounds) / 1e3;
	double kernel_us = percentiles_median(kernel, compare->rounds) / 1e3;

	row_set(compare, ROW_DMABUF_IOCTL, daemon_us / kernel_us);
	row_value(compare, ROW_DMABUF_IOCTL, "daemon end to end", "us", daemon_us);
	row_value(compare, ROW_DMABUF_IOCTL, "DMA_BUF_IOCTL_SYNC", "us", kernel_us);
	return 0;
}

int group_dmabuf(struct compare *compare)
{
	struct bench_list list = {
		.cache = &compare->cache,
		.size = SIZE,
		.entry = compare->cache.line,
		.seed = compare->seed,
		.random = true,
		.sync = DMASYNC_FOR_DEVICE,
		.direction = DMASYNC_TO_DEVICE,
	};
	struct dmasync_buffer_params params;
	struct dmasync_queue_params queue_params;
	struct dmasync_buffer *buffer = NULL;
	struct dmasync_queue *queue = NULL;
	struct dmasync *ds = NULL;
	struct rig rig = {0};
	int r = rig_needs_two(compare);

	if (r >= 0 && access(memory_places_default.udmabuf, R_OK | W_OK) < 0)
		r = compare_fail(compare, -ENODEV,
				 "in the VM only: %s is not here; see make check-vm "
				 "CASES=exporters, which counts its operations on arm64",
				 memory_places_default.udmabuf);
	if (r >= 0)
		r = bench_list_make(&list);
	if (r < 0)
		return r;
	list.count = LINES;
	r = rig_open(compare, &rig, "");
	if (r >= 0)
		r = rig_connect(&rig, &ds);
	if (r >= 0) {
		dmasync_buffer_params_init(&params);
		params.bytes = SIZE;
		params.memory = DMASYNC_MEMORY_UDMABUF;
		r = dmasync_buffer_alloc(ds, &params, &buffer);
		if (r < 0)
			compare_fail(compare, r, "a udmabuf of 10 MB: %s", strerror(-r));
	}
	if (r >= 0) {
		dmasync_queue_params_init(&queue_params);
		queue_params.spin_us = 10000;
		r = rig_queue(&rig, ds, &queue_params, &queue);
	}
	if (r >= 0)
		r = bench_list_attach(&list, dmasync_buffer_map(buffer), SIZE);
	if (r >= 0)
		r = rig_pin(compare);
	if (r >= 0)
		r = measure(compare, &rig, queue, buffer, &list);
	dmasync_queue_destroy(queue);
	dmasync_buffer_destroy(buffer);
	dmasync_disconnect(ds);
	rig_close(&rig);
	bench_list_clear(&list);
	return r;
}
