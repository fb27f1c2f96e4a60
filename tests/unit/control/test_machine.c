/* SPDX-License-Identifier: MIT */
/* What follows from the machine: limits that fit its files, mappings and memory; workers' CPUs. */
#include "daemon/machine_limits.h"
#include "daemon/placement.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

static const struct limits_machine large = {
	.files = 524288, .maps = 1048576, .memory = UINT64_C(64) << 30};

static void fit(struct config *config, struct limits_machine machine, char *text)
{
	assert_int_equal(config_defaults(config), 0);
	limits_fit(config, &machine, text, CONFIG_TEXT_SIZE);
}

static void test_large_machine(void **state)
{
	struct config config, defaults;
	char text[CONFIG_TEXT_SIZE];

	(void)state;
	assert_int_equal(config_defaults(&defaults), 0);
	fit(&config, large, text);
	assert_string_equal(text, "");
	assert_int_equal(config.max_connections, defaults.max_connections);
	assert_int_equal(config.max_buffers, defaults.max_buffers);
	assert_int_equal(config.max_queues, defaults.max_queues);
	assert_true(config.max_total_buffer_bytes == defaults.max_total_buffer_bytes);
	config_clear(&config);
	config_clear(&defaults);
}

/* However little there is: what is allowed never costs more than there is, and never is nothing. */
static void test_few_files(void **state)
{
	struct config config;
	char text[CONFIG_TEXT_SIZE];

	(void)state;
	for (uint64_t files = 600; files < 100000; files += files / 7) {
		struct limits_machine machine = large;

		machine.files = files;
		fit(&config, machine, text);
		assert_true(config.max_connections >= 16);
		assert_true(config.max_queues >= 1);
		assert_true(config.max_buffers >= 1);
		/* One connection with all it may have fits into a user's share, half: socket,
		 * pidfd, an answer's four; two pipes each queue; one file each buffer. */
		uint64_t left = limits_client_files(&config, &machine);

		assert_true(left <= files - 253);
		assert_true(2 + 4 + 2 * config.max_queues + config.max_buffers <= left / 2);
		/* Each connection could have one queue and eight buffers. */
		assert_true(config.max_connections == 16 ||
			    (uint64_t)config.max_connections * (2 + 4 + 2 + 8) <= left);
		config_clear(&config);
	}
	struct limits_machine machine = large;

	/* What is left of these is 16 for each: 32 of the daemon, 4 of its worker, 8 of its
	 * helpers, 253 of one packet. */
	machine.files = 32 + 4 + 8 + 253 + 200 * 16;
	fit(&config, machine, text);
	assert_non_null(strstr(text, "max_connections from 4096 to 200"));
	assert_non_null(strstr(text, "3497 files"));
	config_clear(&config);
	/* Not even enough for one: the least there is. */
	machine.files = 10;
	fit(&config, machine, text);
	assert_int_equal(config.max_queues, 1);
	assert_int_equal(config.max_buffers, 1);
	config_clear(&config);
}

static void test_few_maps(void **state)
{
	struct config config;
	char text[CONFIG_TEXT_SIZE];
	struct limits_machine machine = large;

	(void)state;
	/* A queue has two, a buffer one: a connection with one and eight, ten. */
	machine.maps = 1024 + 200 * 10;
	fit(&config, machine, text);
	assert_non_null(strstr(text, "max_connections from 4096 to 200"));
	assert_non_null(strstr(text, "3024 mappings"));
	assert_int_equal(config.max_queues, 16);
	assert_int_equal(config.max_buffers, 256);
	config_clear(&config);
	/* A simulated buffer has three, and three of what is reserved behind them. */
	assert_int_equal(config_defaults(&config), 0);
	config.allow_simulated = true;
	limits_fit(&config, &machine, text, sizeof text);
	assert_non_null(strstr(text, "max_connections from 4096 to 40"));
	assert_int_equal(config.max_queues, 16);
	assert_int_equal(config.max_buffers, (1000 - 32) / 6);
	config_clear(&config);
}

static void test_little_memory(void **state)
{
	struct config config;
	char text[CONFIG_TEXT_SIZE];
	struct limits_machine machine = large;

	(void)state;
	machine.memory = UINT64_C(1) << 30;
	fit(&config, machine, text);
	assert_true(config.max_total_buffer_bytes == UINT64_C(1) << 29);
	assert_true(config.max_buffer_bytes == UINT64_C(1) << 29);
	assert_non_null(strstr(text, "half of the memory"));
	config_clear(&config);
}

static void test_read(void **state)
{
	struct limits_machine machine;
	struct rlimit limit;

	(void)state;
	limits_read(&machine);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_true(limit.rlim_cur == limit.rlim_max); /* raised */
	assert_true(machine.files == limit.rlim_cur);
	assert_true(machine.maps >= 1024);
	assert_true(machine.memory >= UINT64_C(1) << 24);
}

static void choose(const char *named, uint32_t workers, const char *allowed, int expected_r,
		   const char *expected, const char *sentence)
{
	struct config config = {.cpus = (char *)(uintptr_t)named, .workers = workers};
	uint32_t list[CONFIG_CPUS_MAX], count;
	int cpus[CONFIG_CPUS_MAX];
	char text[CONFIG_TEXT_SIZE], found[512] = "";
	cpu_set_t set;

	assert_int_equal(config_parse_cpus(allowed, list, &count), 0);
	CPU_ZERO(&set);
	for (uint32_t i = 0; i < count; i++)
		CPU_SET(list[i], &set);
	assert_int_equal(placement_choose(&config, &set, cpus, &count, text, sizeof(text)),
			 expected_r);
	assert_string_equal(text, sentence);
	if (expected_r < 0)
		return;
	for (uint32_t i = 0; i < count; i++)
		snprintf(found + strlen(found), sizeof(found) - strlen(found), "%s%d", i ? "," : "",
			 cpus[i]);
	assert_string_equal(found, expected);
}

static void test_placement(void **state)
{
	(void)state;
	choose(NULL, 1, "0-7", 0, "7", "");
	choose(NULL, 3, "0-3,8-9", 0, "3,8,9", "");
	choose(NULL, 1, "5", 0, "5", "");
	choose(NULL, 4, "2,3", 0, "2,3",
	       "workers = 4, but only 2 CPUs are allowed for this process: one worker for each of "
	       "these");
	/* In the order of the list, whatever workers= says. */
	choose("6,2", 5, "0-7", 0, "6,2", "");
	choose("2,9", 1, "0-7", -EINVAL, NULL,
	       "cpus = 2,9: CPU 9 is offline or not allowed for this process; see "
	       "Cpus_allowed_list in /proc/self/status");
}

static void again(int home, const char *allowed, const char *taken, int expected)
{
	uint32_t list[CONFIG_CPUS_MAX], count;
	cpu_set_t sets[2];

	CPU_ZERO(&sets[0]);
	CPU_ZERO(&sets[1]);
	for (int set = 0; set < 2; set++) {
		const char *text = set ? taken : allowed;

		if (!text)
			continue;
		assert_int_equal(config_parse_cpus(text, list, &count), 0);
		for (uint32_t i = 0; i < count; i++)
			CPU_SET(list[i], &sets[set]);
	}
	assert_int_equal(placement_again(home, &sets[0], &sets[1]), expected);
}

static void test_placement_again(void **state)
{
	(void)state;
	again(3, "0-7", "6,7", 3);
	again(3, "0-2", NULL, 2);
	again(3, "0-2", "2", 1);
	again(3, "0-1", "0,1", -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_large_machine),
		cmocka_unit_test(test_few_files),
		cmocka_unit_test(test_few_maps),
		cmocka_unit_test(test_little_memory),
		cmocka_unit_test(test_read),
		cmocka_unit_test(test_placement),
		cmocka_unit_test(test_placement_again),
	};

	return cmocka_run_group_tests_name("machine", tests, NULL, NULL);
}
