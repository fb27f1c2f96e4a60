/* SPDX-License-Identifier: MIT */
/*
 * Class: what the daemon checks is changed before it is used. As test_rewritten.c, on a real worker
 * whose line operations are recorded: every one of them lies in its buffer. Two threads and the
 * worker's.
 */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/unit/worker/fixture.h"

enum { UNITS = 32, ROWS = 4, PAUSE = 500 };

static struct fixture fixture;
static struct dmasync_unit *units; /* a mapping of its own, as a client has it */
static bool stop_rewriting;

static void store_words(void *at, const void *words, size_t size)
{
	for (size_t i = 0; i < size / 4; i++) {
		uint32_t word;

		memcpy(&word, (const char *)words + 4 * i, 4);
		__atomic_store_n((uint32_t *)at + i, word, __ATOMIC_RELAXED);
	}
}

/* Strided entries: two units each, of which either may change. */
static void write_entry(struct dmasync_unit *at, uint64_t offset, uint32_t length,
			const struct dmasync_unit_rows *rows)
{
	struct dmasync_unit unit =
		entry(fixture.buffer.handle, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, offset, length);

	unit.word |= DMASYNC_UNIT_STRIDED;
	store_words(&at[0], &unit, sizeof unit);
	store_words(&at[1], rows, sizeof *rows);
}

static const struct dmasync_unit_rows good_rows = {.rows = ROWS, .stride = 4096};

static void *rewrite(void *argument)
{
	unsigned short seed[3] = {7, 8, 9};

	(void)argument;
	while (!__atomic_load_n(&stop_rewriting, __ATOMIC_RELAXED)) {
		uint32_t i = (uint32_t)nrand48(seed) % (UNITS / 2) * 2;
		struct dmasync_unit *at = &units[i];
		struct dmasync_unit_rows bad_rows = {
			.rows = (uint32_t)jrand48(seed),
			.stride = (uint64_t)jrand48(seed) << (nrand48(seed) % 33),
		};

		write_entry(at, (uint64_t)jrand48(seed), (uint32_t)jrand48(seed), &bad_rows);
		write_entry(at, (uint64_t)i * LINE, LINE, &good_rows);
		/* Right for most of the time: a batch has a chance to get through the check. */
		for (int pause = 0; pause < PAUSE; pause++)
			__atomic_signal_fence(__ATOMIC_SEQ_CST);
	}
	return NULL;
}

static void map_units(struct dmasync_ring_layout *ret)
{
	assert_true(
		dmasync_ring_layout(fixture.first.ring.depth, fixture.first.ring.unit_count, ret));
	char *memory = mmap(NULL, ret->size, PROT_READ | PROT_WRITE, MAP_SHARED,
			    fixture.first.fds[DMASYNC_QUEUE_RING], 0);

	assert_ptr_not_equal(memory, MAP_FAILED);
	units = (struct dmasync_unit *)(void *)(memory + ret->units_offset);
}

static void every_line_lies_in_its_buffer(void **state)
{
	struct dmasync_ring_layout layout = {0};
	pthread_t thread;
	struct dmasync_ring_completion done;
	uint64_t lines = 0, succeeded = 0;
	size_t recorded = 0;

	(void)state;
	fixture_start(&fixture, 50, 256, -1);
	map_units(&layout);
	for (uint32_t i = 0; i < UNITS; i += 2)
		write_entry(&units[i], (uint64_t)i * LINE, LINE, &good_rows);
	assert_int_equal(pthread_create(&thread, NULL, rewrite, NULL), 0);
	for (uint64_t i = 0; i < rounds(2000); i++) {
		struct dmasync_submission submission = {
			.unit_position = 0,
			.unit_count = UNITS,
		};

		dmasync_ring_submit(&fixture.first.ring, fixture.first.submitted++, &submission);
		ring_if_asleep(&fixture.first);
		reap(&fixture.first, &done);
		assert_true(done.status == 0 || done.lines == 0);
		succeeded += done.status == 0;
		lines += done.lines;
		/* The next batch's lines have room in the trace, and are all looked at. */
		for (; recorded < trace.count; recorded++) {
			const struct trace_event *event = &trace.event[recorded];

			if (event->kind != TRACE_CLEAN && event->kind != TRACE_FLUSH)
				continue;
			assert_in_range(event->address, fixture.buffer.cache.base,
					fixture.buffer.cache.base + BUFFER_SIZE - LINE);
		}
		recorded = trace.count = 0;
	}
	__atomic_store_n(&stop_rewriting, true, __ATOMIC_RELAXED);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_true(succeeded > 0);
	print_message("%llu batches succeeded, with %llu lines\n", (unsigned long long)succeeded,
		      (unsigned long long)lines);
	munmap((char *)units - layout.units_offset, layout.size);
	fixture_stop(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_line_lies_in_its_buffer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
