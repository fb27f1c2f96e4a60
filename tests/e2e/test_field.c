/* SPDX-License-Identifier: MIT */
/*
 * What went wrong for people in the field, each as the sequence that they ran, with the right
 * outcome. On simulated memory, one thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/e2e/support.h"

enum { SIZE = 16384, OLD = 0x01, CPU_WROTE = 0x02, DEVICE_WROTE = 0x03 };

static struct harness_daemon server;
static struct client client;

static void begin(void)
{
	harness_daemon_start(&server, SIMULATED_CONFIG, NULL);
	client_open(&client, server.socket, 8, 32);
}

static void end(void)
{
	client_close(&client);
	harness_daemon_stop(&server);
}

static void sync_range(struct dmasync_buffer *buffer, enum dmasync_sync sync,
		       enum dmasync_direction direction, uint64_t offset, uint64_t length)
{
	check_int(dmasync_sync(client.queue, buffer, sync, direction, offset, length), 0);
}

static void check_all(const uint8_t *side, size_t size, int value)
{
	for (size_t i = 0; i < size; i++)
		if (side[i] != value)
			fail_case("byte %zu is %d, expected %d", i, side[i], value);
}

/* A simulated buffer that the CPU has dirtied before anybody registered it. */
static void import_dirty(struct memory *memory, uint32_t flags)
{
	int fd = harness_memfd(3 * SIZE, F_SEAL_SHRINK);
	uint8_t *cpu = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	check(cpu != MAP_FAILED);
	memset(cpu, CPU_WROTE, SIZE);
	munmap(cpu, SIZE);
	check_int(dmasync_buffer_import(client.ds, fd, DMASYNC_IMPORT_SIMULATED | flags,
					&memory->buffer),
		  0);
	close(fd);
	memory->cpu = dmasync_buffer_map(memory->buffer);
	memory->device = dmasync_buffer_map_device(memory->buffer);
	memory->size = SIZE;
	check(memory->cpu && memory->device);
}

/* raspberrypi/linux 6995: the CPU touches a buffer, the device writes, first sync is for_cpu. */
static void registering_cleans_what_was_dirty_before(void)
{
	struct memory memory;

	begin();
	import_dirty(&memory, 0);
	check_all(memory.device, SIZE, CPU_WROTE);
	memset(memory.device, DEVICE_WROTE, SIZE);
	sync_range(memory.buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, SIZE);
	check_all(memory.cpu, SIZE, DEVICE_WROTE);
	memory_free(&memory);
	end();
}

/* The flag that turns it off: then the dirty lines win, as they do in hardware. */
static void without_that_clean_the_dirty_lines_win(void)
{
	struct memory memory;

	begin();
	import_dirty(&memory, DMASYNC_IMPORT_NO_CLEAN);
	check_all(memory.device, SIZE, 0);
	memset(memory.device, DEVICE_WROTE, SIZE);
	sync_range(memory.buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, SIZE);
	check_all(memory.cpu, SIZE, CPU_WROTE);
	check_all(memory.device, SIZE, CPU_WROTE);
	memory_free(&memory);
	end();
}

/* amd/xdna-driver 1439: memset, then DMA into the buffer; its dirty zeroes must not land later. */
static void for_device_from_device_cleans(void)
{
	struct memory memory;

	begin();
	memory_alloc(&memory, client.ds, SIZE);
	memset(memory.cpu, CPU_WROTE, SIZE);
	sync_range(memory.buffer, DMASYNC_FOR_DEVICE, DMASYNC_FROM_DEVICE, 0, SIZE);
	memset(memory.device, DEVICE_WROTE, SIZE);
	sync_range(memory.buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, SIZE);
	check_all(memory.cpu, SIZE, DEVICE_WROTE);
	check_all(memory.device, SIZE, DEVICE_WROTE);
	memory_free(&memory);
	end();
}

/* nuttx 19506, openmv 1610: only the first half was done; lines fetched meanwhile are stale. */
static void both_halves_are_needed(void)
{
	struct memory memory;

	begin();
	memory_alloc(&memory, client.ds, SIZE);
	memset(memory.cpu, OLD, SIZE);
	sync_range(memory.buffer, DMASYNC_FOR_DEVICE, DMASYNC_FROM_DEVICE, 0, SIZE);
	memset(memory.device, DEVICE_WROTE, SIZE);
	check_all(memory.cpu, SIZE, OLD);
	sync_range(memory.buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, SIZE);
	check_all(memory.cpu, SIZE, DEVICE_WROTE);
	memory_free(&memory);
	end();
}

/* ikwzm/udmabuf 136: more is read than was synced. The completion says what was covered. */
static void the_completion_says_what_was_covered(void)
{
	struct range part = {DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 32, 4096, 0, 0};
	struct dmasync_completion done;
	struct memory memory;

	begin();
	memory_alloc(&memory, client.ds, SIZE);
	memset(memory.device, DEVICE_WROTE, SIZE);
	client_run(&client, memory.buffer, &part, 1, &done);
	check_int(done.lines, 4096 / LINE + 1);
	check_int(done.bytes, 4096 + LINE);
	check_all(memory.cpu, 4096 + LINE, DEVICE_WROTE);
	check_all(memory.cpu + 4096 + LINE, SIZE - 4096 - LINE, 0);
	memory_free(&memory);
	end();
}

/* STM32CubeF7 95 and others: a flush keeps the CPU's bytes of a line that is shared. */
static void a_flush_keeps_the_neighbours_bytes(void)
{
	struct memory memory;

	begin();
	memory_alloc(&memory, client.ds, SIZE);
	memory.cpu[40] = CPU_WROTE;
	memset(memory.device, DEVICE_WROTE, LINE);
	sync_range(memory.buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, 32);
	check_int(memory.cpu[40], CPU_WROTE);
	check_int(memory.device[40], CPU_WROTE);
	memory_free(&memory);
	end();
}

/* VulkanMemoryAllocator 27: the last byte, rounded out, stays inside. */
static void the_end_is_rounded_out_and_clamped(void)
{
	struct range last = {DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, SIZE - 1, 1, 0, 0};
	struct range whole = {DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, SIZE, 0, 0};
	struct dmasync_completion done;
	struct memory memory;

	begin();
	memory_alloc(&memory, client.ds, SIZE);
	memset(memory.cpu, CPU_WROTE, SIZE);
	client_run(&client, memory.buffer, &last, 1, &done);
	check_int(done.lines, 1);
	check_all(memory.device, SIZE - LINE, 0);
	check_all(memory.device + SIZE - LINE, LINE, CPU_WROTE);
	client_run(&client, memory.buffer, &whole, 1, &done);
	check_int(done.lines, SIZE / LINE);
	memory_free(&memory);
	end();
}

/* The same on the real instructions, with a buffer that ends in the middle of a line. */
static void a_buffer_may_end_inside_a_line(void)
{
	enum { BYTES = 4096 + 100 };
	struct dmasync_ring_completion done;
	struct raw raw;
	struct raw_queue queue;

	harness_daemon_start(&server, SIMULATED_CONFIG, NULL);
	raw_open(&raw, server.socket);
	if (raw.hello.line_size == 0)
		harness_skip("no line operation works on this CPU");

	int fd = harness_memfd(2 * 4096, F_SEAL_SHRINK);
	uint32_t handle = raw_add_buffer(&raw, fd, DMASYNC_BACKEND_DIRECT, BYTES);
	struct dmasync_unit unit =
		raw_unit(handle, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, BYTES);

	raw_queue_open(&queue, &raw, 2, 2);
	raw_submit(&queue, &unit, 1, 0);
	raw_wait(&queue, &done);
	check_int(done.status, 0);
	check_int(done.lines, (BYTES + raw.hello.line_size - 1) / raw.hello.line_size);
	unit.length++;
	raw_submit(&queue, &unit, 1, 0);
	raw_wait(&queue, &done);
	check_int(done.status, -ERANGE);
	raw_queue_close(&queue);
	close(fd);
	raw_close(&raw);
	harness_daemon_stop(&server);
}

/* fullerene 219, 1bit-MONSTER 1536: the library refuses before anything is published. */
static void offsets_that_wrap_are_refused(void)
{
	static const struct {
		uint64_t offset, length, rows, stride;
		int error;
	} bad[] = {
		{SIZE, 1, 1, 0, -ERANGE},
		{SIZE - 1, 2, 1, 0, -ERANGE},
		{0, SIZE + 1, 1, 0, -ERANGE},
		{UINT64_MAX - 62, 64, 1, 0, -EOVERFLOW},
		{0, 64, UINT32_MAX, UINT64_MAX / 4, -EOVERFLOW},
		{0, 64, 2, 63, -EINVAL},
		{0, 64, 0, 64, -EINVAL},
		{64, 64, SIZE / 64, 64, -ERANGE},
	};
	struct dmasync_batch *batch;
	struct memory memory;

	begin();
	memory_alloc(&memory, client.ds, SIZE);
	memset(memory.cpu, CPU_WROTE, SIZE);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		check_int(dmasync_batch_begin(client.queue, &batch), 0);
		check_int(dmasync_batch_add(batch, memory.buffer, DMASYNC_FOR_DEVICE,
					    DMASYNC_TO_DEVICE, 0, SIZE),
			  0);
		check_int(dmasync_batch_add_rows(batch, memory.buffer, DMASYNC_FOR_DEVICE,
						 DMASYNC_TO_DEVICE, bad[i].offset, bad[i].length,
						 bad[i].rows, bad[i].stride),
			  bad[i].error);
		check_int(dmasync_batch_submit(batch, 0), bad[i].error);
	}
	check_all(memory.device, SIZE, 0);
	sync_range(memory.buffer, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, SIZE, 0);
	check_all(memory.device, SIZE, 0);
	memory_free(&memory);
	end();
}

/* amd/xdna-driver 1541: the cost is that of the range, not of the buffer. */
static void cost_follows_the_range(void)
{
	enum { LARGE = 32 << 20 };
	struct range page = {DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, LARGE / 2, 4096, 0, 0};
	struct dmasync_completion done;
	struct memory memory;

	begin();
	memory_alloc(&memory, client.ds, LARGE);
	client_run(&client, memory.buffer, &page, 1, &done);
	check_int(done.lines, 4096 / LINE);
	memory_free(&memory);
	end();
}

static const struct harness_case cases[] = {
	HARNESS_CASE(registering_cleans_what_was_dirty_before),
	HARNESS_CASE(without_that_clean_the_dirty_lines_win),
	HARNESS_CASE(for_device_from_device_cleans),
	HARNESS_CASE(both_halves_are_needed),
	HARNESS_CASE(the_completion_says_what_was_covered),
	HARNESS_CASE(a_flush_keeps_the_neighbours_bytes),
	HARNESS_CASE(the_end_is_rounded_out_and_clamped),
	HARNESS_CASE(a_buffer_may_end_inside_a_line),
	HARNESS_CASE(offsets_that_wrap_are_refused),
	HARNESS_CASE(cost_follows_the_range),
};

HARNESS_MAIN(cases)
