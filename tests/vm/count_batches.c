/* SPDX-License-Identifier: MIT */
/*
 * What the daemon, the library's own line operations and the kernel's ioctl execute for the same
 * work, between marks that tests/arm64/count_plugin.c knows. Runs in a guest of tests/vm on one
 *CPU, so that nothing else is counted; tests/vm/check_counts.py compares. One thread.
 *
 * For the n-th pair of mark 0 and mark 1 it prints one line with what must be executed in between:
 *
 *	VM-COUNT <tab> name <tab> CVAC <tab> CIVAC <tab> DSB SY of user mode <tab> the kernel's CVAC
 *	<tab> its CIVAC <tab> its IVAC <tab> its DSB SY ("-": not compared)
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

#include <dmasync/dmasync.h>

#include "daemon/cache/cache.h"
#include "tests/vm/labdev.h"

#define MARK(number) __asm__ volatile("hint #%c0" ::"i"(96 + (number)) : "memory")

/* 64 entries of 16 lines, every other KiB: neighbours that cannot be merged. */
enum { LINE = 64, ENTRIES = 64, ENTRY = 1024, STEP = 2048, LINES = 1024, SIZE = 131072 };

#define CLEAN DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE
#define FLUSH DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE
#define NOTHING DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE

__attribute__((format(printf, 2, 3))) static _Noreturn void die(int error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fprintf(stderr, ": %s\n", strerror(-error));
	exit(1);
}

/* ---- expected numbers ---- */

struct expected {
	unsigned int clean, flush, barriers; /* user mode */
	unsigned int kernel_clean, kernel_flush, kernel_invalidate;
	int kernel_barriers; /* -1: the scheduler's and the idle loop's are among them */
};

static void expect(const char *where, const char *name, const struct expected *is)
{
	char barriers[16] = "-";

	if (is->kernel_barriers >= 0)
		snprintf(barriers, sizeof barriers, "%d", is->kernel_barriers);
	printf("VM-COUNT\t%s: %s\t%u\t%u\t%u\t%u\t%u\t%u\t%s\n", where, name, is->clean, is->flush,
	       is->barriers, is->kernel_clean, is->kernel_flush, is->kernel_invalidate, barriers);
}

static void expect_user(const char *where, const char *name, unsigned int clean, unsigned int flush,
			unsigned int barriers)
{
	expect(where, name, &(struct expected){clean, flush, barriers, .kernel_barriers = -1});
}

/* ---- through the daemon ---- */

struct client {
	struct dmasync *ds;
	struct dmasync_queue *queue;
	struct dmasync_batch *batch;
	const char *where; /* the memory, for the name of a case */
};

static void begin(struct client *client)
{
	int r = dmasync_batch_begin(client->queue, &client->batch);

	if (r < 0)
		die(r, "dmasync_batch_begin");
}

static void add(struct client *client, struct dmasync_buffer *buffer, enum dmasync_sync sync,
		enum dmasync_direction direction, uint64_t offset, uint64_t length)
{
	dmasync_batch_add(client->batch, buffer, sync, direction, offset, length);
}

/* Submits and waits. -errno of the batch. */
static int run(struct client *client)
{
	struct dmasync_completion done;
	int r = dmasync_batch_submit(client->batch, 0);

	if (r == 0)
		r = dmasync_wait(client->queue, &done, -1);
	return r < 0 ? r : done.status;
}

static void measure(struct client *client, const char *name, unsigned int clean, unsigned int flush)
{
	int r;

	MARK(0);
	r = run(client);
	MARK(1);
	if (r < 0)
		die(r, "%s: %s", client->where, name);
	expect_user(client->where, name, clean, flush, 1);
}

static void spread(struct client *client, struct dmasync_buffer *buffer, enum dmasync_sync sync,
		   enum dmasync_direction direction)
{
	begin(client);
	for (uint64_t i = 0; i < ENTRIES; i++)
		add(client, buffer, sync, direction, i * STEP, ENTRY);
}

static struct dmasync_buffer *allocate(struct client *client, enum dmasync_memory memory,
				       uint32_t flags)
{
	struct dmasync_buffer_params params;
	struct dmasync_buffer *buffer;
	char text[512];
	int r;

	dmasync_buffer_params_init(&params);
	params.bytes = SIZE;
	params.memory = memory;
	params.flags = flags;
	r = dmasync_buffer_alloc(client->ds, &params, &buffer);
	if (r < 0) {
		dmasync_error_text(client->ds, text, sizeof text);
		die(r, "%s: %s", client->where, text);
	}
	return buffer;
}

/* The batches whose counts do not depend on what the buffer is. */
static void run_batches(struct client *client, struct dmasync_buffer *buffer)
{
	spread(client, buffer, CLEAN);
	measure(client, "64 entries, for_device, to_device", LINES, 0);
	spread(client, buffer, DMASYNC_FOR_DEVICE, DMASYNC_FROM_DEVICE);
	measure(client, "64 entries, for_device, from_device", LINES, 0);
	spread(client, buffer, DMASYNC_FOR_DEVICE, DMASYNC_BIDIRECTIONAL);
	measure(client, "64 entries, for_device, bidirectional", LINES, 0);
	spread(client, buffer, FLUSH);
	measure(client, "64 entries, for_cpu, from_device", 0, LINES);
	spread(client, buffer, DMASYNC_FOR_CPU, DMASYNC_BIDIRECTIONAL);
	measure(client, "64 entries, for_cpu, bidirectional", 0, LINES);
	spread(client, buffer, NOTHING);
	measure(client, "64 entries, for_cpu, to_device (elided)", 0, 0);

	begin(client);
	for (uint64_t i = 0; i < ENTRIES; i++)
		add(client, buffer, CLEAN, i * STEP, 0);
	measure(client, "64 entries of length 0", 0, 0);

	begin(client);
	for (uint64_t i = 0; i < ENTRIES; i++)
		add(client, buffer, CLEAN, i * ENTRY, ENTRY);
	measure(client, "64 neighbours (merged)", LINES, 0);

	begin(client);
	for (uint64_t i = 0; i < ENTRIES; i++)
		add(client, buffer, CLEAN, i * STEP + 60, 8);
	measure(client, "64 entries of 8 bytes over 2 lines", 128, 0);

	begin(client);
	for (uint64_t i = 0; i < ENTRIES / 2; i++) {
		add(client, buffer, CLEAN, i * STEP, ENTRY);
		add(client, buffer, FLUSH, SIZE / 2 + i * STEP, ENTRY);
	}
	measure(client, "32 entries cleaned, 32 flushed", LINES / 2, LINES / 2);

	begin(client);
	dmasync_batch_add_rows(client->batch, buffer, FLUSH, 0, ENTRY, ENTRIES, STEP);
	measure(client, "1 entry of 64 rows", 0, LINES);

	begin(client);
	add(client, buffer, CLEAN, 0, SIZE);
	measure(client, "1 entry, the whole buffer", SIZE / LINE, 0);

	MARK(0);
	for (uint64_t i = 0; i < ENTRIES; i++) {
		int r;

		begin(client);
		add(client, buffer, CLEAN, i * STEP, ENTRY);
		r = run(client);
		if (r < 0)
			die(r, "a batch of one entry");
	}
	MARK(1);
	expect_user(client->where, "64 batches of 1 entry", LINES, 0, ENTRIES);
}

static void run_memory(struct client *client, enum dmasync_memory memory, const char *where,
		       unsigned int touched, unsigned int barriers)
{
	struct dmasync_buffer *buffer;

	client->where = where;
	MARK(0);
	buffer = allocate(client, memory, 0);
	MARK(1);
	expect_user(where, "registration", touched + SIZE / LINE, 0, barriers);
	run_batches(client, buffer);
	dmasync_buffer_destroy(buffer);

	MARK(0);
	buffer = allocate(client, memory, DMASYNC_IMPORT_COHERENT);
	MARK(1);
	expect_user(where, "registration as coherent", 0, 0, 0);
	spread(client, buffer, CLEAN);
	measure(client, "64 entries, coherent (elided)", 0, 0);
	dmasync_buffer_destroy(buffer);
}

/* ---- in this process: the daemon's line operations, one barrier or one for each entry ---- */

static void run_in_process(struct client *client)
{
	struct dmasync_buffer *buffer = allocate(client, DMASYNC_MEMORY_SYSTEM, 0);
	uintptr_t base = (uintptr_t)dmasync_buffer_map(buffer);
	struct cache cache;

	if (!base || cache_select(NULL, &cache) < 0 || cache.line != LINE)
		die(-ENODEV, "line operations in this process");
	MARK(0);
	cache.ops.open();
	for (uintptr_t i = 0; i < ENTRIES; i++)
		cache.ops.clean(base + i * STEP, base + i * STEP + ENTRY, LINE);
	cache.ops.complete(false);
	MARK(1);
	expect_user("in process", "64 ranges, one barrier", LINES, 0, 1);

	MARK(0);
	for (uintptr_t i = 0; i < ENTRIES; i++) {
		cache.ops.open();
		cache.ops.clean(base + i * STEP, base + i * STEP + ENTRY, LINE);
		cache.ops.complete(false);
	}
	MARK(1);
	expect_user("in process", "64 ranges, a barrier each", LINES, 0, ENTRIES);
	dmasync_buffer_destroy(buffer);
}

/* ---- the kernel's ioctl: the whole buffer, and what its importers make of it ---- */

static void ioctl_sync(int fd, uint64_t flags, const char *where, const char *name,
		       const struct expected *expected)
{
	struct dma_buf_sync sync = {.flags = flags};
	int r;

	MARK(0);
	r = ioctl(fd, DMA_BUF_IOCTL_SYNC, &sync);
	MARK(1);
	if (r < 0)
		die(-errno, "%s: %s", where, name);
	expect(where, name, expected);
}

static void ioctl_both(int fd, const char *where, unsigned int importers)
{
	struct expected start = {.kernel_invalidate = importers * SIZE / LINE,
				 .kernel_barriers = (int)importers};
	struct expected end = {.kernel_clean = importers * SIZE / LINE,
			       .kernel_barriers = (int)importers};

	ioctl_sync(fd, DMA_BUF_SYNC_START | DMA_BUF_SYNC_RW, where, "START, RW", &start);
	ioctl_sync(fd, DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW, where, "END, RW", &end);
}

static int import(int fd)
{
	struct labdev_attach attach = {.fd = fd};
	int device = open(LABDEV_PATH, O_RDWR | O_CLOEXEC);

	if (device < 0)
		die(-errno, LABDEV_PATH);
	if (ioctl(device, LABDEV_ATTACH, &attach) < 0)
		die(-errno, "LABDEV_ATTACH");
	return device;
}

static void run_ioctl(struct client *client)
{
	struct dmasync_buffer *buffer = allocate(client, DMASYNC_MEMORY_SYSTEM, 0);
	struct dmasync_buffer_info info = {.size = sizeof info};
	int first, second, r = dmasync_buffer_get_info(buffer, &info);

	if (r < 0)
		die(r, "dmasync_buffer_get_info");
	ioctl_both(info.fd, "ioctl, no importer", 0);
	if (access(LABDEV_PATH, F_OK) < 0) {
		printf("VM-RESULT importers skip no %s: the kernel has no labdev module\n",
		       LABDEV_PATH);
	} else {
		first = import(info.fd);
		ioctl_both(info.fd, "ioctl, 1 importer", 1);
		second = import(info.fd);
		ioctl_both(info.fd, "ioctl, 2 importers", 2);
		close(second);
		client->where = "system heap, 1 importer";
		spread(client, buffer, FLUSH);
		measure(client, "64 entries, for_cpu, from_device", 0, LINES);
		close(first);
	}
	dmasync_buffer_destroy(buffer);
}

int main(void)
{
	struct dmasync_queue_params params;
	struct client client = {0};
	int r = dmasync_connect(NULL, 0, &client.ds);

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (r < 0)
		die(r, "dmasync_connect");
	dmasync_queue_params_init(&params);
	r = dmasync_queue_create(client.ds, &params, &client.queue);
	if (r < 0)
		die(r, "dmasync_queue_create");

	/* A dma-buf's pages are touched by a clean each; a memfd's are filled by the kernel. */
	run_memory(&client, DMASYNC_MEMORY_SYSTEM, "system heap", SIZE / 4096, 2);
	run_memory(&client, DMASYNC_MEMORY_MEMFD, "memfd", 0, 1);
	run_in_process(&client);
	run_ioctl(&client);
	dmasync_queue_destroy(client.queue);
	dmasync_disconnect(client.ds);
	return 0;
}
