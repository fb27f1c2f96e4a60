/* SPDX-License-Identifier: MIT */
/*
 * What is known of the machine the test runs on: its own candidates, the lists of CPUs, and the
 * MIDR table on a copy of sysfs.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/cache/cache.h"
#include "daemon/cache/cpus.h"

static void choice_of_this_machine_holds_together(void **state)
{
	struct cache cache;

	(void)state;
	assert_int_equal(cache_select(NULL, &cache), 0);
	print_message("%s; line %zu, granule %zu, clean %u ps, flush %u ps, barrier %u ps\n",
		      cache.why, cache.line, cache.granule, cache.clean_ps, cache.flush_ps,
		      cache.barrier_ps);
	assert_true(cache.why[0] != '\0');
	if (cache.line == 0) {
		assert_null(cache.ops.open);
		return;
	}
	assert_true(cache.line >= 16 && (cache.line & (cache.line - 1)) == 0);
	assert_true(cache.granule >= cache.line);
	assert_true(cache.ops.open && cache.ops.clean && cache.ops.flush && cache.ops.complete);
}

/* Every candidate that is there, not only the best: each is what some machine will run. */
static void every_candidate_that_is_there_keeps_memory(void **state)
{
	static unsigned char memory[65536] __attribute__((aligned(4096)));
	uintptr_t start = (uintptr_t)memory, end = start + sizeof memory;

	(void)state;
	for (const struct cache_candidate *c = cache_candidates(); c->ops; c++) {
		size_t line;

		if (!c->present(NULL))
			continue;
		line = c->line(NULL);
		assert_true(line >= 16 && (line & (line - 1)) == 0);
		for (size_t i = 0; i < sizeof memory; i++)
			memory[i] = (unsigned char)(i * 31 + i / 256);
		c->ops->open();
		c->ops->clean(start, end, line);
		c->ops->flush(start + line, end - line, line);
		c->ops->complete(true);
		c->ops->clean(start, end, line);
		c->ops->complete(false);
		for (size_t i = 0; i < sizeof memory; i++)
			assert_int_equal(memory[i], (unsigned char)(i * 31 + i / 256));
	}
}

static void lists_of_cpus(void **state)
{
	cpu_set_t set;

	(void)state;
	assert_int_equal(cache_cpus_parse("0-3,5,1023", &set), 0);
	assert_int_equal(CPU_COUNT(&set), 6);
	assert_true(CPU_ISSET(0, &set) && CPU_ISSET(3, &set) && CPU_ISSET(5, &set));
	assert_true(CPU_ISSET(1023, &set) && !CPU_ISSET(4, &set));
	assert_int_equal(cache_cpus_parse("7-7", &set), 0);
	assert_int_equal(CPU_COUNT(&set), 1);
	assert_int_equal(cache_cpus_parse("8-7", &set), -EINVAL);
	assert_int_equal(cache_cpus_parse("1024", &set), -ERANGE);
	assert_true(CPU_ISSET(7, &set));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(choice_of_this_machine_holds_together),
		cmocka_unit_test(every_candidate_that_is_there_keeps_memory),
		cmocka_unit_test(lists_of_cpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
