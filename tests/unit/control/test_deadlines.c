/* SPDX-License-Identifier: MIT */
/*
 * The heap of deadlines against a plain array, over many orders of adding and removing; and what a
 * wait of whole milliseconds is rounded to.
 */
#include "daemon/deadlines.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define COUNT 64u

static uint32_t next_random(uint32_t *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static void check_first(const struct deadlines *deadlines, const struct deadline *all,
			const bool *in)
{
	uint64_t earliest = UINT64_MAX;

	for (unsigned int i = 0; i < COUNT; i++)
		if (in[i] && all[i].ns < earliest)
			earliest = all[i].ns;
	if (earliest == UINT64_MAX)
		assert_null(deadlines->first);
	else
		assert_int_equal(deadlines->first->ns, earliest);
}

static void test_any_order(void **state)
{
	uint32_t random = 1;

	(void)state;
	for (unsigned int round = 0; round < 200; round++) {
		struct deadlines deadlines = {0};
		struct deadline all[COUNT];
		bool in[COUNT] = {false};

		for (unsigned int step = 0; step < 1000; step++) {
			unsigned int i = next_random(&random) % COUNT;

			/* Few values, so that many are equal. */
			if (in[i]) {
				deadlines_remove(&deadlines, &all[i]);
			} else {
				all[i].ns = next_random(&random) % (round + 1);
				deadlines_add(&deadlines, &all[i]);
			}
			in[i] = !in[i];
			check_first(&deadlines, all, in);
		}
		/* Out in order: the first one each time. */
		for (uint64_t last = 0; deadlines.first;) {
			assert_true(deadlines.first->ns >= last);
			last = deadlines.first->ns;
			in[deadlines.first - all] = false;
			deadlines_remove(&deadlines, deadlines.first);
			check_first(&deadlines, all, in);
		}
	}
}

static void test_timeout(void **state)
{
	struct deadlines deadlines = {0};
	struct deadline deadline = {.ns = 5000000};

	(void)state;
	assert_int_equal(deadlines_timeout_ms(&deadlines, 0), -1);
	deadlines_add(&deadlines, &deadline);
	assert_int_equal(deadlines_timeout_ms(&deadlines, 0), 5);
	assert_int_equal(deadlines_timeout_ms(&deadlines, 1), 5);
	assert_int_equal(deadlines_timeout_ms(&deadlines, 1000000), 4);
	assert_int_equal(deadlines_timeout_ms(&deadlines, 4999999), 1);
	assert_int_equal(deadlines_timeout_ms(&deadlines, 5000000), 0);
	assert_int_equal(deadlines_timeout_ms(&deadlines, UINT64_MAX), 0);
	deadlines_remove(&deadlines, &deadline);
	deadline.ns = UINT64_MAX;
	deadlines_add(&deadlines, &deadline);
	assert_int_equal(deadlines_timeout_ms(&deadlines, 0), INT_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_any_order),
		cmocka_unit_test(test_timeout),
	};

	return cmocka_run_group_tests_name("deadlines", tests, NULL, NULL);
}
