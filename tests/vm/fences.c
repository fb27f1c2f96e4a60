/* SPDX-License-Identifier: MIT */
/*
 * Real fences on real dma-bufs: vgem's own on its buffers, sw_sync's on a heap's. A batch waits for
 * them and holds up its own queue alone. Runs in a guest of tests/vm against a daemon whose
 * fence_timeout_ms is 2000; one thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <drm/drm.h>
#include <drm/vgem_drm.h>

#include <dmasync/dmasync.h>

#include "tests/vm/exporter_buffers.h"

#define SW_SYNC_PATH "/sys/kernel/debug/sync/sw_sync"

/* drivers/dma-buf/sw_sync.c; in no installed header. */
struct sw_sync_create_fence {
	uint32_t value;
	char name[32];
	int32_t fence;
};
#define SW_SYNC_CREATE_FENCE _IOWR('W', 0, struct sw_sync_create_fence)
#define SW_SYNC_INC _IOW('W', 1, uint32_t)

static struct dmasync *ds;
static struct dmasync_queue *waiting, *other;
static struct dmasync_buffer *free_buffer; /* without fences */
static const char *what;

__attribute__((format(printf, 2, 3))) static _Noreturn void die(int error, const char *format, ...)
{
	va_list arguments;

	printf("VM-RESULT fence fail %s: ", what);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf(": %s\n", strerror(-error));
	exit(1);
}

static void check(const char *name, bool good, const char *text)
{
	printf("VM-RESULT %s-%s %s %s\n", what, name, good ? "pass" : "fail", text);
}

static void submit(struct dmasync_queue *queue, struct dmasync_buffer *buffer,
		   enum dmasync_sync sync, enum dmasync_direction direction)
{
	struct dmasync_batch *batch;
	int r = dmasync_batch_begin(queue, &batch);

	if (r == 0) {
		dmasync_batch_add(batch, buffer, sync, direction, 0, 4096);
		r = dmasync_batch_submit(batch, 0);
	}
	if (r < 0)
		die(r, "submit");
}

static struct dmasync_completion wait_for(struct dmasync_queue *queue)
{
	struct dmasync_completion done;
	int r = dmasync_wait(queue, &done, 10000000000);

	if (r < 0)
		die(r, "dmasync_wait");
	return done;
}

/* Another queue's batches run, and what waits still waits. */
static void expect_parked(void)
{
	struct dmasync_completion done;
	bool good = true;

	for (int i = 0; i < 5; i++) {
		submit(other, free_buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE);
		good &= wait_for(other).status == 0;
	}
	check("holds-up-its-queue-alone", good, "");
	check("waits", dmasync_peek(waiting, &done) == 0, "");
}

static void expect_done(void)
{
	struct dmasync_completion done = wait_for(waiting);
	char text[64];

	snprintf(text, sizeof text, "fence_ns %llu", (unsigned long long)done.fence_ns);
	check("then-completes", done.status == 0 && done.fence_ns > 0, text);
}

static struct dmasync_buffer *import(const struct exporter_buffer *memory)
{
	struct dmasync_buffer *buffer;
	int r = dmasync_buffer_import(ds, memory->fd, 0, &buffer);

	if (r < 0)
		die(r, "dmasync_buffer_import");
	return buffer;
}

/* ---- vgem: the kernel backend, whose ioctl would wait without a limit ---- */

static void vgem(void)
{
	struct exporter_buffer memory;
	int r = exporter_buffer_make("drm:vgem", 65536, &memory);

	what = "vgem-fence";
	if (r < 0) {
		printf("VM-RESULT %s skip no vgem: %s\n", what, strerror(-r));
		return;
	}
	struct dmasync_buffer *buffer = import(&memory);
	struct drm_vgem_fence_attach attach = {.handle = memory.handle, .flags = VGEM_FENCE_WRITE};

	if (ioctl(memory.device, DRM_IOCTL_VGEM_FENCE_ATTACH, &attach) < 0)
		die(-errno, "DRM_IOCTL_VGEM_FENCE_ATTACH");
	submit(waiting, buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE);
	expect_parked();

	struct drm_vgem_fence_signal signal = {.fence = attach.out_fence};

	if (ioctl(memory.device, DRM_IOCTL_VGEM_FENCE_SIGNAL, &signal) < 0)
		die(-errno, "DRM_IOCTL_VGEM_FENCE_SIGNAL");
	expect_done();
	dmasync_buffer_destroy(buffer);
	exporter_buffer_free(&memory);
}

/* ---- sw_sync: on a buffer that is maintained by line operations ---- */

/* A fence of the timeline, left on the buffer as a driver leaves that of its writer or reader. */
static void add_fence(int timeline, uint32_t value, int fd, uint32_t flags)
{
	struct sw_sync_create_fence create = {.value = value, .name = "test"};

	if (ioctl(timeline, SW_SYNC_CREATE_FENCE, &create) < 0)
		die(-errno, "SW_SYNC_CREATE_FENCE");
	struct dma_buf_import_sync_file add = {.flags = flags, .fd = create.fence};

	if (ioctl(fd, DMA_BUF_IOCTL_IMPORT_SYNC_FILE, &add) < 0)
		die(-errno, "DMA_BUF_IOCTL_IMPORT_SYNC_FILE");
	close(create.fence);
}

static void advance(int timeline)
{
	if (ioctl(timeline, SW_SYNC_INC, &(uint32_t){1}) < 0)
		die(-errno, "SW_SYNC_INC");
}

static void sw_sync(void)
{
	struct exporter_buffer memory;
	struct dmasync_completion done;
	int timeline = open(SW_SYNC_PATH, O_RDWR | O_CLOEXEC);
	int r = exporter_buffer_make("heap:system", 65536, &memory);

	what = "sw-sync";
	if (timeline < 0 || r < 0) {
		printf("VM-RESULT %s skip no sw_sync or no system heap\n", what);
		return;
	}
	struct dmasync_buffer *buffer = import(&memory);

	what = "writer";
	add_fence(timeline, 1, memory.fd, DMA_BUF_SYNC_WRITE);
	submit(waiting, buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE);
	expect_parked();
	advance(timeline);
	expect_done();

	what = "reader";
	add_fence(timeline, 2, memory.fd, DMA_BUF_SYNC_READ);
	submit(waiting, buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE);
	done = wait_for(waiting);
	check("is-not-waited-for-to-read", done.status == 0 && done.fence_ns == 0, "");
	submit(waiting, buffer, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE);
	expect_parked();
	advance(timeline);
	expect_done();

	what = "two-writers";
	add_fence(timeline, 3, memory.fd, DMA_BUF_SYNC_WRITE);
	add_fence(timeline, 4, memory.fd, DMA_BUF_SYNC_WRITE);
	submit(waiting, buffer, DMASYNC_FOR_CPU, DMASYNC_BIDIRECTIONAL);
	advance(timeline);
	expect_parked();
	advance(timeline);
	expect_done();

	what = "no-signal";
	add_fence(timeline, 5, memory.fd, DMA_BUF_SYNC_WRITE);
	submit(waiting, buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE);
	expect_parked();
	done = wait_for(waiting);
	check("times-out", done.status == -ETIMEDOUT && done.fence_ns >= 2000000000, "");

	/* Left behind: the daemon drops it with its client. */
	submit(waiting, buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE);
	expect_parked();
}

int main(void)
{
	struct dmasync_queue_params params;
	struct dmasync_buffer_params memfd;
	int r;

	setvbuf(stdout, NULL, _IOLBF, 0);
	what = "connect";
	r = dmasync_connect(NULL, 0, &ds);
	dmasync_queue_params_init(&params);
	if (r == 0)
		r = dmasync_queue_create(ds, &params, &waiting);
	if (r == 0)
		r = dmasync_queue_create(ds, &params, &other);
	dmasync_buffer_params_init(&memfd);
	memfd.bytes = 65536;
	memfd.memory = DMASYNC_MEMORY_MEMFD;
	if (r == 0)
		r = dmasync_buffer_alloc(ds, &memfd, &free_buffer);
	if (r < 0)
		die(r, "connection, queues or a memfd");
	vgem();
	sw_sync();
	_exit(0); /* as a client that is killed */
}
