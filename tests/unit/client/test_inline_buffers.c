/* SPDX-License-Identifier: MIT */
/*
 * Buffers of inline mode: what is refused and with which words, the first clean, fences, the
 * kernel's sync, and many threads at once. ioctl(2) is the test's own.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/dma-buf.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/inline.h"
#include "client/internal.h"
#include "tests/lib/rounds.h"
#include "tests/unit/client/fake.h"

/* ---- in the kernel's place ---- */

static uint64_t sync_flags[8];
static unsigned int syncs;
static int sync_error;

int ioctl(int fd, unsigned long request, ...)
{
	va_list arguments;

	(void)fd;
	assert_int_equal(request, DMA_BUF_IOCTL_SYNC);
	va_start(arguments, request);
	sync_flags[syncs++ % 8] = va_arg(arguments, const struct dma_buf_sync *)->flags;
	va_end(arguments);
	if (sync_error) {
		errno = sync_error;
		return -1;
	}
	return 0;
}

/* ---- what the tests start from ---- */

static struct dmasync *connect_inline(uint32_t flags)
{
	struct dmasync *ds;

	assert_int_equal(dmasync_connect(NULL, DMASYNC_INLINE | flags, &ds), 0);
	return ds;
}

static struct dmasync_buffer *allocate(struct dmasync *ds, enum dmasync_memory memory, size_t bytes)
{
	struct dmasync_buffer_params params;
	struct dmasync_buffer *buffer;

	dmasync_buffer_params_init(&params);
	params.bytes = bytes;
	params.memory = memory;
	assert_int_equal(dmasync_buffer_alloc(ds, &params, &buffer), 0);
	return buffer;
}

static struct dmasync_queue *create_queue(struct dmasync *ds)
{
	struct dmasync_queue_params params;
	struct dmasync_queue *queue;

	dmasync_queue_params_init(&params);
	assert_int_equal(dmasync_queue_create(ds, &params, &queue), 0);
	return queue;
}

/* The library's own record of a buffer, for what no fd of this machine would give. */
static struct buffer *record_of(struct dmasync *ds, const struct dmasync_buffer *buffer)
{
	return (struct buffer *)(uintptr_t)buffer_table_get(&ds->in_process->buffers,
							    buffer->handle);
}

static int memfd(size_t size, int seals)
{
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void refused(struct dmasync *ds, int fd, uint32_t flags, int error, const char *words)
{
	struct dmasync_buffer *buffer;
	char text[512];

	assert_int_equal(dmasync_buffer_import(ds, fd, flags, &buffer), error);
	dmasync_error_text(ds, text, sizeof text);
	if (!strstr(text, words))
		fail_msg("\"%s\" does not say \"%s\"", text, words);
}

/* ---- tests ---- */

static void what_cannot_be_a_buffer_is_refused(void **state)
{
	struct dmasync *ds = connect_inline(0);
	int open_memfd = memfd(4096, 0), good = memfd(4096, F_SEAL_SHRINK);
	int empty = memfd(0, F_SEAL_SHRINK), pipes[2];

	(void)state;
	assert_int_equal(pipe(pipes), 0);
	refused(ds, open_memfd, 0, -EINVAL, "sealed against shrinking");
	refused(ds, pipes[0], 0, -EINVAL, "neither a dma-buf nor a memfd");
	refused(ds, empty, 0, -EINVAL, "the file is empty");
	refused(ds, good, DMASYNC_IMPORT_KERNEL, -EOPNOTSUPP, "a memfd has none");
	refused(ds, good, DMASYNC_IMPORT_SIMULATED, -EPERM, "DMASYNC_INLINE_SIMULATED");
	refused(ds, good, 1u << 31, -EINVAL, "buffer flags");
	close(open_memfd);
	close(good);
	close(empty);
	close(pipes[0]);
	close(pipes[1]);
	dmasync_disconnect(ds);
}

static void info_says_what_it_is(void **state)
{
	struct dmasync *ds = connect_inline(0);
	struct dmasync_buffer_info info = {.size = sizeof info};
	struct dmasync_info machine = {.size = sizeof machine};
	struct dmasync_buffer *buffer;
	int fd = memfd(10000, F_SEAL_SHRINK);

	(void)state;
	assert_int_equal(dmasync_get_info(ds, &machine), 0);
	assert_string_equal(machine.daemon_version, "");
	assert_true(machine.features & DMASYNC_FEATURE_STRIDED);
	assert_false(machine.features & (DMASYNC_FEATURE_SIMULATED | DMASYNC_FEATURE_WATCH));
	assert_int_equal(!!(machine.features & DMASYNC_FEATURE_DIRECT), machine.line_size != 0);
	if (machine.line_size) {
		assert_int_equal(dmasync_buffer_import(ds, fd, 0, &buffer), 0);
		assert_int_equal(dmasync_buffer_get_info(buffer, &info), 0);
		assert_int_equal(info.bytes, 10000);
		assert_int_equal(info.backend, DMASYNC_BACKEND_DIRECT);
		assert_int_equal(info.kind, DMASYNC_KIND_MEMFD);
		assert_true(info.guarantee);
		dmasync_buffer_destroy(buffer);
	}
	close(fd);
	dmasync_disconnect(ds);
}

static void required_features_are_there_or_it_fails(void **state)
{
	struct dmasync_connect_params params;
	struct dmasync *ds;
	char text[256] = "";

	(void)state;
	dmasync_connect_params_init(&params);
	params.flags = DMASYNC_INLINE;
	params.features_required = DMASYNC_FEATURE_STRIDED;
	params.error_text = text;
	params.error_text_size = sizeof text;
	assert_int_equal(dmasync_connect_with(&params, &ds), 0);
	dmasync_disconnect(ds);
	params.features_required = DMASYNC_FEATURE_WATCH;
	assert_int_equal(dmasync_connect_with(&params, &ds), -EOPNOTSUPP);
	assert_non_null(strstr(text, "inline mode lacks"));
}

/* A whole way on simulated memory: the first clean, a clean, a flush. */
static void simulated_memory_is_synced(void **state)
{
	enum { BYTES = 8192 };
	struct dmasync *ds = connect_inline(DMASYNC_INLINE_SIMULATED);
	struct dmasync_queue *queue = create_queue(ds);
	struct dmasync_buffer *buffer = allocate(ds, DMASYNC_MEMORY_SIMULATED, BYTES);
	unsigned char *cpu = dmasync_buffer_map(buffer);
	unsigned char *device = dmasync_buffer_map_device(buffer);

	(void)state;
	memset(cpu, 1, BYTES);
	assert_int_equal(device[100], 0);
	assert_int_equal(dmasync_sync(queue, buffer, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 64, 64),
			 0);
	assert_int_equal(device[63], 0);
	assert_int_equal(device[64], 1);
	assert_int_equal(device[127], 1);
	assert_int_equal(device[128], 0);
	assert_int_equal(
		dmasync_sync(queue, buffer, DMASYNC_FOR_DEVICE, DMASYNC_FROM_DEVICE, 0, BYTES), 0);
	memset(device, 2, BYTES);
	assert_int_equal(
		dmasync_sync(queue, buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 4096, 64), 0);
	assert_int_equal(cpu[4095], 1);
	assert_int_equal(cpu[4096], 2);
	assert_int_equal(cpu[4160], 1);
	dmasync_buffer_destroy(buffer);
	/* Dirty before it is registered: cleaned by the registration, unless told not to. */
	for (uint32_t flag = 0; flag <= DMASYNC_IMPORT_NO_CLEAN; flag++) {
		int fd = memfd(3 * BYTES, F_SEAL_SHRINK);
		unsigned char *file =
			mmap(NULL, 2 * BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

		assert_ptr_not_equal(file, MAP_FAILED);
		memset(file, 3, BYTES);
		assert_int_equal(
			dmasync_buffer_import(ds, fd, DMASYNC_IMPORT_SIMULATED | flag, &buffer), 0);
		assert_int_equal(file[2 * BYTES - 1], flag ? 0 : 3);
		munmap(file, 2 * BYTES);
		dmasync_buffer_destroy(buffer);
		close(fd);
	}
	dmasync_queue_destroy(queue);
	dmasync_disconnect(ds);
}

/* A handle is dead once its buffer is destroyed, also where its place is used again. */
static void handles_are_not_used_again(void **state)
{
	struct dmasync *ds = connect_inline(0);
	struct dmasync_buffer *first = allocate(ds, DMASYNC_MEMORY_MEMFD, 4096), *second;
	uint32_t handle = first->handle;

	(void)state;
	dmasync_buffer_destroy(first);
	assert_null(buffer_table_get(&ds->in_process->buffers, handle));
	ds->in_process->buffers.next_index = 0;
	second = allocate(ds, DMASYNC_MEMORY_MEMFD, 4096);
	assert_int_equal(second->handle & (BUFFER_TABLE_MAX - 1), handle & (BUFFER_TABLE_MAX - 1));
	assert_int_not_equal(second->handle, handle);
	dmasync_buffer_destroy(second);
	dmasync_disconnect(ds);
}

/* A pipe in the place of a dma-buf's fd: POLLIN comes when somebody writes. */
static void fences_are_waited_for(void **state)
{
	struct dmasync *ds = connect_inline(DMASYNC_INLINE_SIMULATED);
	struct dmasync_queue *queue = create_queue(ds);
	struct dmasync_buffer *buffer = allocate(ds, DMASYNC_MEMORY_SIMULATED, 4096);
	struct buffer *record = record_of(ds, buffer);
	struct dmasync_completion done;
	struct dmasync_batch *batch;
	unsigned char *device = dmasync_buffer_map_device(buffer),
		      *cpu = dmasync_buffer_map(buffer);
	int pipes[2];

	(void)state;
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	record->fd = pipes[0];
	record->cache.fenced = true;
	ds->in_process->fence_timeout_ms = 20;
	memset(device, 9, 4096);
	for (int signalled = 0; signalled < 2; signalled++) {
		if (signalled)
			assert_int_equal(write(pipes[1], "", 1), 1);
		assert_int_equal(dmasync_batch_begin(queue, &batch), 0);
		assert_int_equal(dmasync_batch_add(batch, buffer, DMASYNC_FOR_CPU,
						   DMASYNC_FROM_DEVICE, 0, 64),
				 0);
		assert_int_equal(dmasync_batch_submit(batch, 1), 0);
		assert_int_equal(dmasync_peek(queue, &done), 1);
		assert_int_equal(done.status, signalled ? 0 : -ETIMEDOUT);
		assert_int_equal(done.reason,
				 signalled ? DMASYNC_REASON_NONE : DMASYNC_REASON_FENCE);
		assert_int_equal(done.bad_entry, DMASYNC_NO_ENTRY);
		assert_int_equal(done.lines, signalled);
		assert_int_equal(cpu[0], signalled ? 9 : 0);
		assert_true(signalled ? done.fence_ns == 0 : done.fence_ns >= 20000000);
	}
	record->fd = -1;
	close(pipes[0]);
	close(pipes[1]);
	dmasync_buffer_destroy(buffer);
	dmasync_queue_destroy(queue);
	dmasync_disconnect(ds);
}

static void *submit_one(void *argument)
{
	struct dmasync_batch *batch = argument;

	return (void *)(intptr_t)dmasync_batch_submit(batch, 1);
}

/* Whoever destroys a buffer waits for the thread that works with it, longer than for a daemon. */
static void a_buffer_in_work_is_not_unmapped(void **state)
{
	struct dmasync *ds = connect_inline(DMASYNC_INLINE_SIMULATED);
	struct dmasync_queue *queue = create_queue(ds);
	struct dmasync_buffer *buffer = allocate(ds, DMASYNC_MEMORY_SIMULATED, 4096);
	struct buffer *record = record_of(ds, buffer);
	struct dmasync_completion done;
	struct dmasync_batch *batch;
	pthread_t thread;
	int pipes[2];
	void *r;

	(void)state;
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	record->fd = pipes[0];
	record->cache.fenced = true;
	ds->in_process->fence_timeout_ms = 200;
	ds->timeout_ms = 20;
	assert_int_equal(dmasync_batch_begin(queue, &batch), 0);
	assert_int_equal(
		dmasync_batch_add(batch, buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, 64), 0);
	assert_int_equal(pthread_create(&thread, NULL, submit_one, batch), 0);
	while (atomic_load(&queue->submitted) == DMASYNC_RING_START)
		sched_yield();
	dmasync_buffer_destroy(buffer); /* closes pipes[0] */
	assert_true(dmasync_ring_completion_reached(&queue->ring, DMASYNC_RING_START));
	pthread_join(thread, &r);
	assert_null(r);
	assert_int_equal(dmasync_peek(queue, &done), 1);
	assert_int_equal(done.reason, DMASYNC_REASON_FENCE);
	close(pipes[1]);
	dmasync_queue_destroy(queue);
	dmasync_disconnect(ds);
}

static void kernel_buffers_are_synced_by_the_kernel(void **state)
{
	struct dmasync *ds = connect_inline(DMASYNC_INLINE_SIMULATED);
	struct dmasync_queue *queue = create_queue(ds);
	struct dmasync_buffer *buffer = allocate(ds, DMASYNC_MEMORY_SIMULATED, 4096);
	struct buffer *record = record_of(ds, buffer);
	struct dmasync_completion done;
	struct dmasync_batch *batch;

	(void)state;
	record->cache.backend = DMASYNC_BACKEND_KERNEL;
	for (int failing = 0; failing < 2; failing++) {
		syncs = 0;
		sync_error = failing ? ENOTTY : 0;
		assert_int_equal(dmasync_batch_begin(queue, &batch), 0);
		for (int i = 0; i < 3; i++)
			assert_int_equal(dmasync_batch_add(batch, buffer, DMASYNC_FOR_CPU,
							   DMASYNC_FROM_DEVICE, 64, 64),
					 0);
		assert_int_equal(dmasync_batch_submit(batch, 1), 0);
		assert_int_equal(syncs, 1); /* one for all three */
		assert_int_equal(sync_flags[0], DMA_BUF_SYNC_START | DMA_BUF_SYNC_READ);
		assert_int_equal(dmasync_peek(queue, &done), 1);
		assert_int_equal(done.status, failing ? -ENOTTY : 0);
		assert_int_equal(done.reason, failing ? DMASYNC_REASON_KERNEL_SYNC : 0);
		assert_int_equal(done.flags, DMASYNC_COMPLETION_INLINE | DMASYNC_COMPLETION_KERNEL);
	}
	record->cache.backend = DMASYNC_BACKEND_SIMULATED;
	dmasync_buffer_destroy(buffer);
	dmasync_queue_destroy(queue);
	dmasync_disconnect(ds);
}

/* Threads with a queue each, and buffers that come and go beside them. */
static void *use(void *argument)
{
	struct dmasync *ds = argument;
	struct dmasync_queue *queue = create_queue(ds);

	for (uint64_t round = rounds(200); round > 0; round--) {
		struct dmasync_buffer *buffer = allocate(ds, DMASYNC_MEMORY_SIMULATED, 4096);
		unsigned char *cpu = dmasync_buffer_map(buffer);
		unsigned char *device = dmasync_buffer_map_device(buffer);

		for (int i = 0; i < 20; i++) {
			cpu[i * 64] = (unsigned char)(round + 1);
			assert_int_equal(dmasync_sync(queue, buffer, DMASYNC_FOR_DEVICE,
						      DMASYNC_TO_DEVICE, (uint64_t)i * 64, 64),
					 0);
			assert_int_equal(device[i * 64], (unsigned char)(round + 1));
		}
		dmasync_buffer_destroy(buffer);
	}
	dmasync_queue_destroy(queue);
	return NULL;
}

static void threads_share_a_connection(void **state)
{
	struct dmasync *ds = connect_inline(DMASYNC_INLINE_SIMULATED);
	pthread_t thread[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, use, ds), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	dmasync_disconnect(ds);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		fake_test(what_cannot_be_a_buffer_is_refused),
		fake_test(info_says_what_it_is),
		fake_test(required_features_are_there_or_it_fails),
		fake_test(simulated_memory_is_synced),
		fake_test(handles_are_not_used_again),
		fake_test(fences_are_waited_for),
		fake_test(a_buffer_in_work_is_not_unmapped),
		fake_test(kernel_buffers_are_synced_by_the_kernel),
		fake_test(threads_share_a_connection),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
