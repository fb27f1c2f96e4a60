/* SPDX-License-Identifier: MIT */
/*
 * The kernel backend's calls, with an ioctl(2) of the test's own: which are made, how often, in
 * which order, and what follows from an error.
 */
#include <errno.h>
#include <linux/dma-buf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include <cmocka.h>

#include "daemon/buffer/table.h"
#include "daemon/kernel_sync.h"

#define CALLS 4096u
#define UNITS 4096u

static struct {
	int fd;
	uint64_t flags;
} calls[CALLS];
static uint32_t call_count;
static int failures[4]; /* errnos of the first calls; 0 ends them */
static uint32_t failures_used;

int __wrap_ioctl(int fd, unsigned long request, void *argument);

int __wrap_ioctl(int fd, unsigned long request, void *argument)
{
	assert_int_equal(request, DMA_BUF_IOCTL_SYNC);
	assert_true(call_count < CALLS);
	calls[call_count].fd = fd;
	calls[call_count].flags = ((struct dma_buf_sync *)argument)->flags;
	call_count++;
	if (failures_used < 4 && failures[failures_used]) {
		errno = failures[failures_used++];
		return -1;
	}
	return 0;
}

static struct buffer buffers[1000];
static union cache_unit units[UNITS];

static const struct cache_buffer *look_up(void *context, uint32_t handle)
{
	(void)context;
	return &buffers[handle].cache;
}

/* A mirror that wraps in the middle of the batch. */
static void run(uint32_t count, struct kernel_sync *sync)
{
	static struct cache_batch batch;
	uint32_t first = UNITS - count / 2;

	cache_batch_begin(&batch, units, UNITS - 1, first, count);
	assert_int_equal(cache_batch_check(&batch, count, 64, UINT32_MAX, look_up, NULL),
			 CACHE_CHECK_DONE);
	kernel_sync_prepare(sync, &batch, 1, 1, NULL, -1);
	sync->job.run(&sync->job);
}

static void add(uint32_t count, uint32_t at, uint32_t buffer, enum dmasync_sync sync,
		enum dmasync_direction direction)
{
	units[(UNITS - count / 2 + at) & (UNITS - 1)].entry = (struct dmasync_unit){
		.word = dmasync_unit_word(buffer, sync, direction, 0), .length = 64};
}

static int start(void **state)
{
	(void)state;
	call_count = failures_used = 0;
	for (int i = 0; i < 4; i++)
		failures[i] = 0;
	for (uint32_t i = 0; i < 1000; i++)
		buffers[i] = (struct buffer){
			.cache = {.size = 4096, .backend = DMASYNC_BACKEND_KERNEL},
			.fd = (int)(1000 + i),
		};
	return 0;
}

static void one_call_for_each_buffer_sync_and_direction(void **state)
{
	(void)state;
	struct kernel_sync sync;
	enum { COUNT = 4000 };
	uint32_t seen[1000] = {0};

	/* Every buffer four times, far apart; the odd ones in another direction in between. */
	for (uint32_t i = 0; i < COUNT; i++)
		add(COUNT, i, i % 1000, DMASYNC_FOR_CPU,
		    i / 1000 % 2 && i % 2 ? DMASYNC_BIDIRECTIONAL : DMASYNC_FROM_DEVICE);
	run(COUNT, &sync);
	assert_int_equal(sync.error, 0);
	assert_int_equal(sync.calls, 1500);
	assert_int_equal(call_count, 1500);
	for (uint32_t i = 0; i < call_count; i++) {
		uint32_t bit = calls[i].flags == DMA_BUF_SYNC_READ ? 1 : 2;

		assert_true(bit == 1 || calls[i].flags == DMA_BUF_SYNC_RW);
		assert_false(seen[calls[i].fd - 1000] & bit);
		seen[calls[i].fd - 1000] |= bit;
	}
	for (uint32_t i = 0; i < 1000; i++)
		assert_int_equal(seen[i], i % 2 ? 3 : 1);
}

static void calls_of_one_buffer_keep_their_order(void **state)
{
	(void)state;
	struct kernel_sync sync;

	buffers[2].cache.backend = DMASYNC_BACKEND_DIRECT; /* its runs lie in between */
	buffers[2].cache.base = 1 << 20;
	add(8, 0, 1, DMASYNC_FOR_CPU, DMASYNC_BIDIRECTIONAL);
	add(8, 1, 2, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE);
	add(8, 2, 0, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE);
	add(8, 3, 1, DMASYNC_FOR_DEVICE, DMASYNC_FROM_DEVICE);
	add(8, 4, 2, DMASYNC_FOR_DEVICE, DMASYNC_FROM_DEVICE);
	add(8, 5, 1, DMASYNC_FOR_CPU, DMASYNC_BIDIRECTIONAL);
	add(8, 6, 1, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE);
	add(8, 7, 0, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE);
	run(8, &sync);

	static const struct {
		int fd;
		uint64_t flags;
	} wanted[] = {
		{1000, DMA_BUF_SYNC_END | DMA_BUF_SYNC_WRITE},
		{1000, DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ},
		{1001, DMA_BUF_SYNC_START | DMA_BUF_SYNC_RW},
		{1001, DMA_BUF_SYNC_END | DMA_BUF_SYNC_READ},
		{1001, DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ},
	};

	assert_int_equal(call_count, 5);
	for (uint32_t i = 0; i < 5; i++) {
		assert_int_equal(calls[i].fd, wanted[i].fd);
		assert_int_equal(calls[i].flags, wanted[i].flags);
	}
}

static void interrupted_calls_are_made_again(void **state)
{
	(void)state;
	struct kernel_sync sync;

	failures[0] = EINTR;
	failures[1] = EAGAIN;
	add(2, 0, 1, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE);
	add(2, 1, 3, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE);
	run(2, &sync);
	assert_int_equal(sync.error, 0);
	assert_int_equal(sync.calls, 2);
	assert_int_equal(call_count, 4);
	assert_true(calls[0].fd == 1001 && calls[2].fd == 1001 && calls[3].fd == 1003);
}

static void a_failed_start_ends_the_batch(void **state)
{
	(void)state;
	struct kernel_sync sync;

	failures[0] = ENODEV;
	add(2, 0, 1, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE);
	add(2, 1, 1, DMASYNC_FOR_DEVICE, DMASYNC_FROM_DEVICE);
	run(2, &sync);
	assert_int_equal(sync.error, -ENODEV);
	assert_int_equal(sync.calls, 0);
	assert_int_equal(call_count, 1); /* no END for a START that was none */

	/* The next for_device is made all the same. */
	add(2, 0, 1, DMASYNC_FOR_DEVICE, DMASYNC_FROM_DEVICE);
	add(2, 1, 1, DMASYNC_FOR_DEVICE, DMASYNC_FROM_DEVICE);
	run(2, &sync);
	assert_int_equal(sync.error, 0);
	assert_int_equal(sync.calls, 1);
}

/* udmabuf: the END is made again behind a START that only writes, which invalidates nothing. */
static void an_end_without_a_start(void **state)
{
	(void)state;
	struct kernel_sync sync;

	failures[0] = EINVAL;
	add(2, 0, 1, DMASYNC_FOR_DEVICE, DMASYNC_BIDIRECTIONAL);
	add(2, 1, 3, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE);
	run(2, &sync);
	assert_int_equal(sync.error, 0);
	assert_int_equal(call_count, 4);
	assert_int_equal(calls[0].flags, DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW);
	assert_int_equal(calls[1].flags, DMA_BUF_SYNC_START | DMA_BUF_SYNC_WRITE);
	assert_int_equal(calls[2].flags, DMA_BUF_SYNC_END | DMA_BUF_SYNC_RW);
	assert_int_equal(calls[2].fd, 1001);
	assert_int_equal(calls[3].fd, 1003);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(one_call_for_each_buffer_sync_and_direction, start),
		cmocka_unit_test_setup(calls_of_one_buffer_keep_their_order, start),
		cmocka_unit_test_setup(interrupted_calls_are_made_again, start),
		cmocka_unit_test_setup(a_failed_start_ends_the_batch, start),
		cmocka_unit_test_setup(an_end_without_a_start, start),
	};

	return cmocka_run_group_tests_name("worker-kernel", tests, NULL, NULL);
}
