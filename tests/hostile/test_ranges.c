/* SPDX-License-Identifier: MIT */
/*
 * Class: numbers at the ends of their types. Offsets, lengths, rows and strides near 0, a page,
 * 2^32 and 2^64; the first byte inside and the last one outside; batches of entries that do
 * nothing. One thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/hostile/target.h"

enum { SIZE = 64 << 10, DEPTH = 8, UNITS = 256, UNTOUCHED = 0x11, MANY = 65536 };

static const uint64_t corners[] = {
	0,
	1,
	LINE - 1,
	LINE,
	LINE + 1,
	4095,
	4096,
	4097,
	SIZE - LINE,
	SIZE - 1,
	SIZE,
	SIZE + 1,
	INT32_MAX,
	UINT64_C(1) << 31,
	UINT32_MAX - LINE,
	UINT32_MAX,
	UINT64_C(1) << 32,
	(UINT64_C(1) << 32) + 1,
	INT64_MAX,
	UINT64_C(1) << 63,
	UINT64_MAX - 4096,
	UINT64_MAX - LINE,
	UINT64_MAX - 1,
	UINT64_MAX,
};

#define CORNERS (sizeof corners / sizeof corners[0])

/* In 128 bits, where nothing overflows. */
static bool lies_inside(uint64_t offset, uint64_t length, uint64_t rows, uint64_t stride)
{
	__extension__ typedef unsigned __int128 wide;

	return (wide)offset + (wide)(rows - 1) * stride + length <= SIZE;
}

static void expect(struct target *target, const struct dmasync_unit *units, uint32_t count,
		   bool inside)
{
	struct dmasync_ring_completion done;

	raw_submit(&target->queue, units, count, 0);
	raw_wait(&target->queue, &done);
	if (inside) {
		check_int(done.status, 0);
		check(done.lines <= SIZE / LINE * 2);
	} else {
		check(done.status == -ERANGE || done.status == -EOVERFLOW ||
		      done.status == -EINVAL);
		check_int(done.lines, 0);
	}
}

ATTACK(every_pair_of_corners, .connections = 1, .queues = 1)
{
	struct target target;

	target_open(&target, attack, SIZE, DEPTH, UNITS);
	for (size_t i = 0; i < CORNERS; i++) {
		for (size_t k = 0; k < CORNERS && corners[k] <= UINT32_MAX; k++) {
			struct dmasync_unit unit =
				target_unit(&target, corners[i], (uint32_t)corners[k]);

			expect(&target, &unit, 1, lies_inside(corners[i], corners[k], 1, 0));
		}
	}
	others_go_on(attack);
	target_close(&target);
}

static void stride_unit(struct dmasync_unit units[2], uint64_t rows, uint64_t stride)
{
	struct dmasync_unit_rows second = {.rows = (uint32_t)rows, .stride = stride};

	units[0].word |= DMASYNC_UNIT_STRIDED;
	memcpy(&units[1], &second, sizeof second);
}

ATTACK(every_pair_of_rows_and_stride, .connections = 1, .queues = 1)
{
	static const uint32_t lengths[] = {0, LINE, UINT32_MAX};
	struct target target;

	target_open(&target, attack, SIZE, DEPTH, UNITS);
	for (size_t i = 0; i < CORNERS && corners[i] <= UINT32_MAX; i++) {
		for (size_t k = 0; k < CORNERS; k++) {
			for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
				struct dmasync_unit units[2] = {
					target_unit(&target, LINE, lengths[l])};
				bool inside = corners[i] > 0 &&
					      (corners[i] == 1 || corners[k] >= lengths[l]) &&
					      lies_inside(LINE, lengths[l], corners[i], corners[k]);

				stride_unit(units, corners[i], corners[k]);
				expect(&target, units, 2, inside);
			}
		}
	}
	others_go_on(attack);
	target_close(&target);
}

/* The first byte inside, the last one outside, by each of the ways there: no byte is touched. */
ATTACK(the_last_byte_outside, .connections = 1, .queues = 1)
{
	struct target target;
	struct dmasync_unit units[4];

	target_open(&target, attack, SIZE, DEPTH, UNITS);
	memset(target.memory.cpu, 0x22, SIZE);
	memset(target.memory.device, UNTOUCHED, SIZE);
	for (uint32_t beyond = 1; beyond <= SIZE; beyond *= 2) {
		units[0] = target_unit(&target, 0, SIZE);
		units[1] = target_unit(&target, SIZE - LINE, LINE + beyond);
		expect(&target, units, 2, false);
		expect(&target, &units[1], 1, false);
		units[1] = target_unit(&target, SIZE - LINE - 4096, LINE);
		stride_unit(&units[1], 2, 4096 + beyond);
		expect(&target, units, 3, false);
	}
	others_go_on(attack);
	for (size_t i = 0; i < SIZE; i++)
		check_int(target.memory.device[i], UNTOUCHED);
	target_close(&target);
}

/* 65536 entries that are counted and do nothing, again and again: they cost who sends them. */
ATTACK(many_entries_that_do_nothing, .connections = 1, .queues = 1, .peak_bytes = 8 << 20)
{
	struct target target;
	struct dmasync_ring_completion done;
	struct dmasync_unit *units = calloc(MANY, sizeof *units);

	check(units);
	target_open(&target, attack, SIZE, DEPTH, MANY);
	for (uint32_t i = 0; i < MANY; i++) {
		units[i] = target_unit(&target, 0, i % 2 ? LINE : 0);
		if (i % 2) /* elided */
			units[i].word = dmasync_unit_word(target.memory.handle, DMASYNC_FOR_CPU,
							  DMASYNC_TO_DEVICE, 0);
	}
	for (int round = 0; round < 10; round++) {
		raw_submit(&target.queue, units, MANY, 0);
		raw_wait(&target.queue, &done);
		check_int(done.status, 0);
		check_int(done.lines, 0);
		check_int(done.entries, MANY);
	}
	others_go_on(attack);
	free(units);
	target_close(&target);
}

/* 2^32 - 1 rows of no byte: nothing is walked. */
ATTACK(many_rows_of_nothing, .connections = 1, .queues = 1)
{
	struct target target;

	target_open(&target, attack, SIZE, DEPTH, UNITS);
	for (uint32_t i = 0; i < 100; i++) {
		struct dmasync_unit units[2] = {target_unit(&target, i, 0)};

		stride_unit(units, UINT32_MAX, i % 2 ? 0 : 1);
		expect(&target, units, 2, i % 2 || lies_inside(i, 0, UINT32_MAX, 1));
	}
	others_go_on(attack);
	target_close(&target);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(every_pair_of_corners), HARNESS_CASE(every_pair_of_rows_and_stride),
	HARNESS_CASE(the_last_byte_outside), HARNESS_CASE(many_entries_that_do_nothing),
	HARNESS_CASE(many_rows_of_nothing),
};

HARNESS_MAIN(cases)
