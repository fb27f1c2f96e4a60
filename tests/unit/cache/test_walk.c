/* SPDX-License-Identifier: MIT */
/*
 * The loop of every architecture over a recording operation: each line of the range once, in order,
 * and no other.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/cache/walk.h"

#define PAGES 8192u

static uintptr_t recorded[PAGES / 16];
static size_t recorded_count, recorded_line;

static void record(uintptr_t address, size_t line)
{
	assert_true(recorded_count < PAGES / 16);
	recorded[recorded_count++] = address;
	recorded_line = line;
}

static void check_range(uintptr_t start, uintptr_t end, size_t line)
{
	uintptr_t expected = start;

	recorded_count = 0;
	cache_walk(start, end, line, record);
	assert_int_equal(recorded_count, (end - start) / line);
	assert_int_equal(recorded_line, line);
	for (size_t i = 0; i < recorded_count; i++, expected += line) {
		if (recorded[i] != expected)
			fail_msg("[%#zx, %#zx) by %zu: line %zu is %#zx, not %#zx", start, end,
				 line, i, recorded[i], expected);
	}
}

static void every_range_of_two_pages(void **state)
{
	static const size_t lines[] = {16, 32, 64, 128};
	uintptr_t base = 0x7f0000000000 & UINTPTR_MAX;

	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
		for (uintptr_t start = 0; start < PAGES; start += lines[i]) {
			for (uintptr_t end = start + lines[i]; end <= PAGES; end += lines[i])
				check_range(base + start, base + end, lines[i]);
		}
	}
}

/* The last turn of sixteen must not step over the top of the address space. */
static void ranges_at_either_end(void **state)
{
	(void)state;
	for (uintptr_t lines = 1; lines <= 40; lines++) {
		uintptr_t top = UINTPTR_MAX - 63;

		check_range(0, lines * 64, 64);
		check_range(top - lines * 64, top, 64);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_range_of_two_pages),
		cmocka_unit_test(ranges_at_either_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
