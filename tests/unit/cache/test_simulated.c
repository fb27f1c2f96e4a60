/* SPDX-License-Identifier: MIT */
/*
 * The simulated non-coherent memory behaves as the hardware it stands for: what is lost without a
 * sync is lost, and what the sync promises holds.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/cache/batch.h"
#include "tests/lib/rounds.h"

#define LINE CACHE_SIMULATED_LINE
#define SIZE 8192u

struct memory {
	int fd;
	unsigned char *cpu, *device;
};

static int setup(void **state)
{
	static struct memory memory;
	void *cpu;

	memory.fd = memfd_create("simulated", MFD_CLOEXEC);
	if (memory.fd < 0 || ftruncate(memory.fd, CACHE_SIMULATED_REGIONS * SIZE) < 0 ||
	    cache_simulated_map(memory.fd, SIZE, &cpu) < 0)
		return -1;
	memory.cpu = cpu;
	memory.device = memory.cpu + CACHE_SIMULATED_DEVICE * CACHE_SIMULATED_SPAN;
	*state = &memory;
	return 0;
}

static int teardown(void **state)
{
	struct memory *memory = *state;

	cache_simulated_unmap(memory->cpu);
	close(memory->fd);
	return 0;
}

static void clean(const struct memory *memory, size_t start, size_t end)
{
	uintptr_t base = (uintptr_t)memory->cpu;

	cache_simulated_ops.open();
	cache_simulated_ops.clean(base + start, base + end, LINE);
	cache_simulated_ops.complete(false);
}

static void flush(const struct memory *memory, size_t start, size_t end)
{
	uintptr_t base = (uintptr_t)memory->cpu;

	cache_simulated_ops.open();
	cache_simulated_ops.flush(base + start, base + end, LINE);
	cache_simulated_ops.complete(true);
}

static void device_sees_stores_only_after_clean(void **state)
{
	struct memory *memory = *state;

	memset(memory->cpu, 'c', 3 * LINE);
	assert_int_equal(memory->device[LINE], 0);
	clean(memory, LINE, 2 * LINE);
	assert_int_equal(memory->device[LINE - 1], 0);
	assert_int_equal(memory->device[LINE], 'c');
	assert_int_equal(memory->device[2 * LINE - 1], 'c');
	assert_int_equal(memory->device[2 * LINE], 0);
}

static void cpu_sees_the_device_only_after_flush(void **state)
{
	struct memory *memory = *state;

	memset(memory->device, 'd', 3 * LINE);
	clean(memory, 0, 3 * LINE);
	assert_int_equal(memory->cpu[LINE], 0);
	flush(memory, LINE, 2 * LINE);
	assert_int_equal(memory->cpu[LINE - 1], 0);
	assert_int_equal(memory->cpu[LINE], 'd');
	assert_int_equal(memory->cpu[2 * LINE - 1], 'd');
	assert_int_equal(memory->cpu[2 * LINE], 0);
}

static void clean_of_a_clean_line_leaves_the_device_alone(void **state)
{
	struct memory *memory = *state;

	memset(memory->cpu, 'c', LINE);
	clean(memory, 0, LINE);
	memset(memory->device, 'd', LINE);
	clean(memory, 0, LINE);
	assert_int_equal(memory->device[0], 'd');
}

/* The rule behind for_device in every direction: dirty when the device writes is lost to it. */
static void line_dirty_when_the_device_writes_is_lost(void **state)
{
	struct memory *memory = *state;

	memset(memory->cpu, 'c', LINE);
	memset(memory->device, 'd', LINE);
	flush(memory, 0, LINE);
	assert_int_equal(memory->cpu[0], 'c');
	assert_int_equal(memory->device[0], 'c');
}

static void clean_before_the_device_writes_makes_it_right(void **state)
{
	struct memory *memory = *state;

	memset(memory->cpu, 'c', LINE);
	clean(memory, 0, LINE);
	memset(memory->device, 'd', LINE);
	flush(memory, 0, LINE);
	assert_int_equal(memory->cpu[0], 'd');
	assert_int_equal(memory->device[0], 'd');
}

static void one_dirty_byte_costs_the_device_its_line(void **state)
{
	struct memory *memory = *state;

	memset(memory->device, 'd', 2 * LINE);
	memory->cpu[LINE - 1] = 'c';
	flush(memory, 0, 2 * LINE);
	assert_int_equal(memory->device[0], 0);
	assert_int_equal(memory->cpu[0], 0);
	assert_int_equal(memory->device[LINE - 1], 'c');
	assert_int_equal(memory->cpu[LINE], 'd');
}

/* Line for line beside a model that has words for it: value in the cache, in memory, and dirty. */
static void random_work_matches_the_model(void **state)
{
	struct memory *memory = *state;
	struct {
		unsigned char cached, behind;
		bool dirty;
	} model[SIZE / LINE] = {0};
	const size_t lines = SIZE / LINE;
	unsigned char next = 0;

	srandom(1);
	for (unsigned int step = 0; step < rounds(20000); step++) {
		size_t first = (size_t)random() % lines;
		size_t end = first + 1 + (size_t)random() % (lines - first);

		/* Never the byte that stands there: writing it again is no write here. */
		do {
			next++;
		} while (next == model[first].cached || next == model[first].behind);
		switch (random() % 4) {
		case 0:
			memset(memory->cpu + first * LINE, next, LINE);
			model[first].cached = next;
			model[first].dirty = true;
			break;
		case 1:
			memset(memory->device + first * LINE, next, LINE);
			model[first].behind = next;
			break;
		case 2:
			clean(memory, first * LINE, end * LINE);
			for (size_t i = first; i < end; i++) {
				if (model[i].dirty)
					model[i].behind = model[i].cached;
				model[i].dirty = false;
			}
			break;
		case 3:
			flush(memory, first * LINE, end * LINE);
			for (size_t i = first; i < end; i++) {
				if (model[i].dirty)
					model[i].behind = model[i].cached;
				model[i].cached = model[i].behind;
				model[i].dirty = false;
			}
			break;
		}
		for (size_t i = 0; i < lines; i++) {
			assert_int_equal(memory->cpu[i * LINE], model[i].cached);
			assert_int_equal(memory->cpu[i * LINE + LINE - 1], model[i].cached);
			assert_int_equal(memory->device[i * LINE], model[i].behind);
			assert_int_equal(memory->device[i * LINE + LINE - 1], model[i].behind);
		}
	}
}

static const struct cache_buffer *the_buffer(void *context, uint32_t handle)
{
	return handle == 1 ? context : NULL;
}

/*
 * Stripes: what a batch says it has synced is new, and every byte of the lines beside it old. With
 * no line operation of the machine's own: a simulated buffer needs none, and has its own line.
 */
static void batch_syncs_its_lines_and_no_other(void **state)
{
	struct memory *memory = *state;
	const struct cache_buffer buffer = {.base = (uintptr_t)memory->cpu,
					    .size = SIZE,
					    .backend = DMASYNC_BACKEND_SIMULATED,
					    .guarantee = true};
	const struct cache none = {.line = 0};
	unsigned char old = 0, new = 1;

	for (uint32_t offset = 0; offset < 4 * LINE; offset++) {
		for (uint32_t length = 1; length < 3 * LINE; length += 7, old++, new ++) {
			union cache_unit units[2] = {0};
			struct cache_batch batch;
			uint64_t first = offset / LINE * LINE;
			uint64_t end = ((uint64_t)offset + length - 1) / LINE * LINE + LINE;
			bool done;

			flush(memory, 0, SIZE);
			memset(memory->device, old, SIZE);
			flush(memory, 0, SIZE);
			memset(memory->device, new, SIZE);
			units[0].entry = (struct dmasync_unit){
				dmasync_unit_word(1, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0),
				length, offset};
			cache_batch_begin(&batch, units, 1, 0, 1);
			assert_int_equal(cache_batch_check(&batch, 1, none.line, SIZE, the_buffer,
							   (void *)&buffer),
					 CACHE_CHECK_DONE);
			cache_simulated_ops.open();
			cache_batch_issue(&batch, &none, UINT32_MAX, &done);
			cache_simulated_ops.complete(batch.flushes);
			assert_true(done);
			assert_int_equal(batch.lines, (end - first) / LINE);
			for (uint32_t byte = 0; byte < 8 * LINE; byte++)
				assert_int_equal(memory->cpu[byte],
						 byte >= first && byte < end ? new : old);
		}
	}
}

static void regions_follow_one_another_in_the_file(void **state)
{
	struct memory *memory = *state;
	unsigned char byte;

	memory->cpu[5] = 'c';
	memory->device[SIZE - 1] = 'd';
	assert_int_equal(pread(memory->fd, &byte, 1, 5), 1);
	assert_int_equal(byte, 'c');
	assert_int_equal(pread(memory->fd, &byte, 1, 2 * SIZE - 1), 1);
	assert_int_equal(byte, 'd');
	clean(memory, 0, LINE);
	assert_int_equal(pread(memory->fd, &byte, 1, 2 * SIZE + 5), 1);
	assert_int_equal(byte, 'c');
}

static void map_refuses_impossible_sizes(void **state)
{
	struct memory *memory = *state;
	void *untouched = memory;

	assert_int_equal(cache_simulated_map(memory->fd, 0, &untouched), -EINVAL);
	assert_int_equal(cache_simulated_map(memory->fd, 100, &untouched), -EINVAL);
	assert_int_equal(cache_simulated_map(memory->fd, CACHE_SIMULATED_SPAN + SIZE, &untouched),
			 -EINVAL);
	assert_int_equal(cache_simulated_map(-1, SIZE, &untouched), -EBADF);
	assert_ptr_equal(untouched, memory);
	cache_simulated_unmap(NULL);
}

/* A cost, and nothing is left behind: the fd that is free is the same before and after. */
static void cost_is_measured(void **state)
{
	uint32_t ps = 0;
	int before = dup(0), after;

	(void)state;
	close(before);
	assert_int_equal(cache_simulated_measure(&ps), 0);
	after = dup(0);
	close(after);
	assert_int_equal(before, after);
	assert_true(ps > 0);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cost_is_measured),
		CASE(device_sees_stores_only_after_clean),
		CASE(cpu_sees_the_device_only_after_flush),
		CASE(clean_of_a_clean_line_leaves_the_device_alone),
		CASE(line_dirty_when_the_device_writes_is_lost),
		CASE(clean_before_the_device_writes_makes_it_right),
		CASE(one_dirty_byte_costs_the_device_its_line),
		CASE(random_work_matches_the_model),
		CASE(batch_syncs_its_lines_and_no_other),
		CASE(regions_follow_one_another_in_the_file),
		CASE(map_refuses_impossible_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
