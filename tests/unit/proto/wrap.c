/* SPDX-License-Identifier: MIT */
/*
 * Drives rings of several sizes through the wrap of their positions at 2^32, client and worker in
 * turn in one thread, against plain 64-bit counters that never wrap.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "proto/ring_access.h"
#include "tests/lib/rounds.h"

struct drive {
	struct dmasync_ring ring;
	struct dmasync_unit *mirror;
	uint64_t submitted, fetched, completed, read; /* batches */
	uint64_t units_written, units_read;	      /* units */
	uint64_t entries_wrapped; /* strided entries cut in two by the unit ring's end */
	uint64_t random;
};

/* xorshift64: the same sequence in every run. */
static uint64_t next_random(struct drive *drive)
{
	drive->random ^= drive->random << 13;
	drive->random ^= drive->random >> 7;
	drive->random ^= drive->random << 17;
	return drive->random;
}

static uint32_t position_of(uint64_t count)
{
	return DMASYNC_RING_START + (uint32_t)count;
}

/* What stands at a place follows from its number alone, so that any mix-up shows. */
static struct dmasync_unit plain_unit(uint64_t number)
{
	return (struct dmasync_unit){
		.word = dmasync_unit_word((uint32_t)number, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE,
					  0),
		.length = (uint32_t)(number * 2654435761u),
		.offset = number * UINT64_C(0x9e3779b97f4a7c15),
	};
}

static struct dmasync_unit strided_unit(uint64_t number, struct dmasync_unit *ret_rows)
{
	struct dmasync_unit entry = plain_unit(number);
	struct dmasync_unit_rows rows = {
		.rows = (uint32_t)number | 1,
		.stride = number * UINT64_C(0xd1342543de82ef95),
	};

	entry.word |= DMASYNC_UNIT_STRIDED;
	static_assert(sizeof rows == sizeof *ret_rows, "a unit is a unit");
	memcpy(ret_rows, &rows, sizeof rows);
	return entry;
}

/* Batch n of a drive: an odd number of units, or none at all: one plain entry in place. */
static uint32_t batch_units(const struct drive *drive, uint64_t n)
{
	uint32_t most = (drive->ring.unit_count < 16 ? drive->ring.unit_count : 16) - 1;

	return n % 5 == 0 ? 0 : (uint32_t)((n * 2654435761u >> 11) % most) | 1;
}

/* Entries at odd offsets of a batch are strided where their second unit is still in the batch. */
static bool is_strided(uint32_t index, uint32_t count)
{
	return index % 4 == 1 && index + 1 < count;
}

static bool submit_one(struct drive *drive)
{
	struct dmasync_ring *ring = &drive->ring;
	uint32_t count = batch_units(drive, drive->submitted);

	if (drive->submitted - drive->read == ring->depth ||
	    drive->units_written - drive->units_read + count > ring->unit_count)
		return false;

	struct dmasync_submission submission = {
		.user_data = drive->submitted,
		.submit_ns = ~drive->submitted,
		.unit_position = position_of(drive->units_written),
		.unit_count = count,
	};

	if (count == 0)
		submission.entry = plain_unit(drive->submitted);
	for (uint32_t i = 0; i < count; i++) {
		uint64_t number = drive->units_written + i;
		struct dmasync_unit unit = plain_unit(number), rows;

		if (is_strided(i, count)) {
			unit = strided_unit(number, &rows);
			dmasync_ring_write_unit(ring, position_of(number), &unit);
			i++;
			dmasync_ring_write_unit(ring, position_of(number + 1), &rows);
			if ((position_of(number + 1) & (ring->unit_count - 1)) == 0)
				drive->entries_wrapped++;
		} else {
			dmasync_ring_write_unit(ring, position_of(number), &unit);
		}
	}
	drive->units_written += count;
	dmasync_ring_submit(ring, position_of(drive->submitted), &submission);
	drive->submitted++;
	return true;
}

static void check_units(const struct drive *drive, const struct dmasync_submission *submission,
			uint64_t first)
{
	uint32_t mask = drive->ring.unit_count - 1;

	for (uint32_t i = 0; i < submission->unit_count; i++) {
		const struct dmasync_unit *seen = &drive->mirror[position_of(first + i) & mask];
		struct dmasync_unit expected = plain_unit(first + i), rows;

		if (is_strided(i, submission->unit_count)) {
			expected = strided_unit(first + i, &rows);
			assert_memory_equal(seen, &expected, sizeof expected);
			i++;
			seen = &drive->mirror[position_of(first + i) & mask];
			assert_memory_equal(seen, &rows, sizeof rows);
		} else {
			assert_memory_equal(seen, &expected, sizeof expected);
		}
	}
}

static bool fetch_one(struct drive *drive, uint64_t *units_fetched)
{
	struct dmasync_ring *ring = &drive->ring;
	uint32_t position = position_of(drive->fetched);
	struct dmasync_submission submission;

	if (drive->fetched == drive->submitted) {
		assert_int_equal(dmasync_ring_poll_submission(ring, position), DMASYNC_RING_EMPTY);
		return false;
	}
	assert_int_equal(dmasync_ring_poll_submission(ring, position), DMASYNC_RING_READY);
	assert_true(position - dmasync_ring_completions_read(ring) < ring->depth);
	dmasync_ring_copy_submission(ring, position, &submission);
	assert_int_equal(submission.user_data, drive->fetched);
	assert_int_equal(submission.submit_ns, ~drive->fetched);
	assert_int_equal(submission.unit_count, batch_units(drive, drive->fetched));
	assert_int_equal(submission.unit_position, position_of(*units_fetched));
	if (submission.unit_count == 0) {
		struct dmasync_unit expected = plain_unit(drive->fetched);

		assert_memory_equal(&submission.entry, &expected, sizeof expected);
	}
	memset(drive->mirror, 0xa5, ring->unit_count * sizeof *drive->mirror);
	dmasync_ring_copy_units(ring, submission.unit_position, submission.unit_count,
				drive->mirror);
	check_units(drive, &submission, *units_fetched);
	*units_fetched += submission.unit_count;
	drive->fetched++;
	return true;
}

/* Every third one is extended; the second cache line of the others keeps what it held. */
static struct dmasync_ring_completion completion_of(uint64_t n)
{
	struct dmasync_ring_completion completion = {
		.seq = position_of(n),
		.user_data = n,
		.entries = (uint32_t)n + 1,
		.lines = n * 3,
		.bytes = n * 192,
		.queued_ns = n ^ 0x55,
		.issue_ns = n ^ 0xaa,
		.barrier_ns = ~n,
		.bad_entry = DMASYNC_NO_ENTRY,
	};

	if (n % 3 == 0) {
		completion.flags = DMASYNC_COMPLETION_EXTENDED;
		completion.status = -22;
		completion.batch_id = n << 32;
		completion.bad_entry = (uint32_t)n;
		completion.reason = DMASYNC_REASON_BAD_SYNC;
	}
	return completion;
}

static bool complete_one(struct drive *drive)
{
	struct dmasync_ring_completion completion = completion_of(drive->completed);

	if (drive->completed == drive->fetched)
		return false;
	completion.seq = 0xdeadbeef; /* not the caller's to say: it is the position */
	dmasync_ring_complete(&drive->ring, position_of(drive->completed), &completion);
	drive->completed++;
	return true;
}

static bool read_one(struct drive *drive)
{
	uint32_t position = position_of(drive->read);
	struct dmasync_ring_completion expected = completion_of(drive->read), seen;

	memset(&seen, 0x5a, sizeof seen);
	if (drive->read == drive->completed) {
		struct dmasync_ring_completion untouched = seen;

		assert_int_equal(dmasync_ring_poll_completion(&drive->ring, position, &seen),
				 DMASYNC_RING_EMPTY);
		assert_memory_equal(&seen, &untouched, sizeof seen);
		return false;
	}
	assert_int_equal(dmasync_ring_poll_completion(&drive->ring, position, &seen),
			 DMASYNC_RING_READY);
	assert_memory_equal(&seen, &expected, sizeof seen);
	drive->units_read += batch_units(drive, drive->read);
	drive->read++;
	dmasync_ring_consume_completion(&drive->ring, position_of(drive->read));
	assert_int_equal(dmasync_ring_completions_read(&drive->ring), position_of(drive->read));
	return true;
}

static void drive_ring(uint32_t depth, uint32_t units, uint64_t batches)
{
	struct dmasync_ring_layout layout = {0};
	struct drive drive = {.random = 0x2545f4914f6cdd1d};
	uint64_t units_fetched = 0;

	assert_true(dmasync_ring_layout(depth, units, &layout));
	void *memory = aligned_alloc(DMASYNC_RING_PAGE, layout.size);
	drive.mirror = calloc(units, sizeof *drive.mirror);
	assert_non_null(memory);
	assert_non_null(drive.mirror);
	memset(memory, 0, layout.size); /* as a new memfd */
	dmasync_ring_attach(&drive.ring, memory, &layout);
	dmasync_ring_initialise(&drive.ring, &layout);

	batches = 1000 + rounds(batches); /* past the wrap in any case */
	while (drive.read < batches) {
		uint64_t bits = next_random(&drive);

		for (uint32_t n = bits & 7; n > 0 && submit_one(&drive); n--)
			;
		for (uint32_t n = bits >> 8 & 7; n > 0 && fetch_one(&drive, &units_fetched); n--)
			;
		for (uint32_t n = bits >> 16 & 7; n > 0 && complete_one(&drive); n--)
			;
		for (uint32_t n = bits >> 24 & 7; n > 0 && read_one(&drive); n--)
			;
	}
	/* Positions and units have both crossed 2^32, and entries have straddled the array's end.
	 */
	assert_true(drive.read > UINT64_C(0x100000000) - DMASYNC_RING_START);
	assert_true(drive.units_read > UINT64_C(0x100000000) - DMASYNC_RING_START);
	if (units > 2)
		assert_true(drive.entries_wrapped > 0);
	free(drive.mirror);
	free(memory);
}

static void test_wrap(void **state)
{
	(void)state;
	drive_ring(2, 2, 500000);
	drive_ring(2, 16, 500000);
	drive_ring(4, 32, 500000);
	drive_ring(64, 16, 500000);
	drive_ring(256, 128, 500000); /* the first lap ends exactly at 2^32 */
	drive_ring(4096, 1024, 100000);
}

/* A seq that no correct peer writes is told from an empty slot, on either side of the wrap. */
static void test_broken_seq(void **state)
{
	static const uint32_t positions[] = {DMASYNC_RING_START, UINT32_MAX, 0, 1, 0x80000000u};
	struct dmasync_ring_layout layout = {0};
	struct dmasync_ring ring = {0};
	struct dmasync_ring_completion completion;

	(void)state;
	assert_true(dmasync_ring_layout(8, 8, &layout));
	void *memory = aligned_alloc(DMASYNC_RING_PAGE, layout.size);
	assert_non_null(memory);
	memset(memory, 0, layout.size);
	dmasync_ring_attach(&ring, memory, &layout);
	dmasync_ring_initialise(&ring, &layout);
	for (size_t i = 0; i < sizeof positions / sizeof *positions; i++) {
		uint32_t p = positions[i];
		const uint32_t lies[] = {p + 1, p - 1, p + 8, p - 16, p ^ 0x80000000u};
		uint32_t *submission_seq = &ring.submissions[p & 7].seq;
		uint32_t *completion_seq = &ring.completions[p & 7].seq;

		for (size_t j = 0; j < sizeof lies / sizeof *lies; j++) {
			*submission_seq = *completion_seq = lies[j];
			assert_int_equal(dmasync_ring_poll_submission(&ring, p),
					 DMASYNC_RING_BROKEN);
			assert_int_equal(dmasync_ring_poll_completion(&ring, p, &completion),
					 DMASYNC_RING_BROKEN);
		}
		*submission_seq = *completion_seq = p - 8;
		assert_int_equal(dmasync_ring_poll_submission(&ring, p), DMASYNC_RING_EMPTY);
		assert_int_equal(dmasync_ring_poll_completion(&ring, p, &completion),
				 DMASYNC_RING_EMPTY);
		*submission_seq = *completion_seq = p;
		assert_int_equal(dmasync_ring_poll_submission(&ring, p), DMASYNC_RING_READY);
		assert_int_equal(dmasync_ring_poll_completion(&ring, p, &completion),
				 DMASYNC_RING_READY);
	}
	free(memory);
}

static void test_layout(void **state)
{
	static const uint32_t wrong_depths[] = {0, 1, 3, 6, 4095, 4097, 8192, 0x80000000u};
	static const uint32_t wrong_units[] = {0, 1, 3, 131071, 262144, 0x80000000u, UINT32_MAX};
	struct dmasync_ring_layout layout = {0}, untouched;

	(void)state;
	memset(&layout, 0x77, sizeof layout);
	untouched = layout;
	for (size_t i = 0; i < sizeof wrong_depths / sizeof *wrong_depths; i++)
		assert_false(dmasync_ring_layout(wrong_depths[i], 64, &layout));
	for (size_t i = 0; i < sizeof wrong_units / sizeof *wrong_units; i++)
		assert_false(dmasync_ring_layout(64, wrong_units[i], &layout));
	assert_memory_equal(&layout, &untouched, sizeof layout);

	for (uint32_t depth = DMASYNC_RING_MIN_DEPTH; depth <= DMASYNC_RING_MAX_DEPTH; depth *= 2) {
		for (uint32_t units = DMASYNC_RING_MIN_UNITS; units <= DMASYNC_RING_MAX_UNITS;
		     units *= 2) {
			assert_true(dmasync_ring_layout(depth, units, &layout));
			assert_true(layout.submissions_offset >=
				    sizeof(struct dmasync_ring_header));
			assert_int_equal(layout.completions_offset,
					 layout.submissions_offset + depth * 64);
			assert_int_equal(layout.units_offset,
					 layout.completions_offset + depth * 128);
			assert_true(layout.size >= layout.units_offset + units * 16);
			assert_true(layout.size - (layout.units_offset + units * 16) < 4096);
			assert_int_equal(layout.size % 4096, 0);
			assert_int_equal(layout.units_offset % 64, 0);
			assert_int_equal(layout.completions_offset % 64, 0);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_layout),
		cmocka_unit_test(test_broken_seq),
		cmocka_unit_test(test_wrap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
