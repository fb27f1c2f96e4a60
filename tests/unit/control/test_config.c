/* SPDX-License-Identifier: MIT */
/*
 * The configuration: every refusal says where, what and what is allowed, and leaves everything as
 * it was; the installed default file agrees with the table of keys.
 */
#include "daemon/config.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>
#include <unistd.h>

#include <cmocka.h>

static char *write_file(const char *content)
{
	static char path[] = "/tmp/dmasync-config-XXXXXX";
	size_t length = strlen(content);
	int fd;

	memcpy(path + strlen(path) - 6, "XXXXXX", 6);
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, length), (ssize_t)length);
	close(fd);
	return path;
}

static int read_text(struct config *config, const char *content, char *text)
{
	char *path = write_file(content);
	int r = config_read(config, path, text, CONFIG_TEXT_SIZE);

	unlink(path);
	return r;
}

/* The sentence, without the path before it. */
static void assert_refused(const char *content, const char *sentence)
{
	struct config config;
	char text[CONFIG_TEXT_SIZE] = "";

	assert_int_equal(config_defaults(&config), 0);
	config.spin_us = 123;
	assert_int_equal(read_text(&config, content, text), -EINVAL);
	assert_memory_equal(text, "/tmp/dmasync-config-", 20);
	assert_string_equal(strchr(text, ':'), sentence);
	assert_int_equal(config.spin_us, 123);
	assert_int_equal(config.workers, 1);
	assert_null(config.file);
	config_clear(&config);
}

static void test_defaults(void **state)
{
	struct config config;

	(void)state;
	assert_int_equal(config_defaults(&config), 0);
	assert_null(config.socket);
	assert_null(config.cpus);
	assert_int_equal(config.workers, 1);
	assert_int_equal(config.spin_us, 50);
	assert_int_equal(config.slice_us, 50);
	assert_int_equal(config.slice_lines, 4096);
	assert_int_equal(config.normal_share, 10);
	assert_int_equal(config.bulk_share, 5);
	assert_int_equal(config.split_lines, 32768);
	assert_false(config.share_barrier);
	assert_false(config.share_barrier);
	assert_null(config.realtime_group);
	assert_int_equal(config.log_level, LOG_INFO);
	assert_false(config.allow_simulated);
	assert_true(config.max_buffer_bytes == UINT64_C(1) << 30);
	assert_null(config_exporter(&config, "system"));
	config_clear(&config);
	config_clear(&config); /* twice is fine */
}

static void test_every_type(void **state)
{
	struct config config;
	char text[CONFIG_TEXT_SIZE] = "";

	(void)state;
	assert_int_equal(config_defaults(&config), 0);
	assert_int_equal(read_text(&config,
				   "# a comment\n"
				   "[daemon]\n"
				   "socket = /tmp/s\n"
				   "  cpus=1,4-6 ; and another\n"
				   "log_level = debug\n"
				   "observer_group = root\n"
				   "realtime_group = daemon\n"
				   "allow_simulated = yes\n"
				   "\n"
				   "[limits]\n"
				   "max_buffer_bytes = 64M\n"
				   "max_total_buffer_bytes = 1t\n"
				   "max_batch_lines = 4294967296\n"
				   "[exporter system]\n"
				   "backend = kernel\n"
				   "[exporter linux,cma]\n"
				   "backend = refuse",
				   text),
			 0);
	assert_string_equal(text, "");
	assert_string_equal(config.socket, "/tmp/s");
	assert_string_equal(config.cpus, "1,4-6");
	assert_int_equal(config.log_level, LOG_DEBUG);
	assert_string_equal(config.observer_group, "root");
	assert_string_equal(config.realtime_group, "daemon");
	assert_true(config.allow_simulated);
	assert_true(config.max_buffer_bytes == UINT64_C(64) << 20);
	assert_true(config.max_total_buffer_bytes == UINT64_C(1) << 40);
	assert_true(config.max_batch_lines == UINT64_C(1) << 32);
	assert_int_equal(config_exporter(&config, "system")->backend, DMASYNC_BACKEND_KERNEL);
	assert_true(config_exporter(&config, "linux,cma")->refuse);
	assert_null(config_exporter(&config, "udmabuf"));
	config_clear(&config);
}

static void test_refusals(void **state)
{
	(void)state;
	/* numbers */
	assert_refused("[daemon]\nspin_us = fast\n",
		       ":2: spin_us = fast: not a whole number; allowed: 0 to 10000 microseconds");
	assert_refused("[daemon]\n\nspin_us = 50us\n",
		       ":3: spin_us = 50us: not a whole number: write no unit, it is a part of the "
		       "key's name; allowed: 0 to 10000 microseconds");
	assert_refused("[daemon]\nspin_us = 10001\n",
		       ":2: spin_us = 10001: out of range; allowed: 0 to 10000 microseconds");
	assert_refused("[daemon]\nspin_us = -1\n",
		       ":2: spin_us = -1: not a whole number; allowed: 0 to 10000 microseconds");
	assert_refused("[daemon]\nspin_us =\n",
		       ":2: spin_us = : no value; allowed: 0 to 10000 microseconds");
	assert_refused(
		"[daemon]\nworkers = 18446744073709551617\n",
		":2: workers = 18446744073709551617: out of range; allowed: 1 to 64 threads");
	/* sizes */
	assert_refused("[limits]\nmax_buffer_bytes = 4KB\n",
		       ":2: max_buffer_bytes = 4KB: not a size: only K, M, G or T may follow the "
		       "number; allowed: 4K to 1T bytes");
	assert_refused("[limits]\nmax_buffer_bytes = 18014398509481984K\n",
		       ":2: max_buffer_bytes = 18014398509481984K: out of range; allowed: 4K to 1T "
		       "bytes");
	assert_refused("[limits]\nmax_buffer_bytes = 100\n",
		       ":2: max_buffer_bytes = 100: out of range; allowed: 4K to 1T bytes");
	/* words */
	assert_refused("[daemon]\nallow_simulated = maybe\n",
		       ":2: allow_simulated = maybe: neither yes nor no; allowed: yes or no");
	assert_refused(
		"[daemon]\nlog_level = verbose\n",
		":2: log_level = verbose: not a level; allowed: err, warning, notice, info or "
		"debug");
	assert_refused("[daemon]\nobserver_group = no-such-group\n",
		       ":2: observer_group = no-such-group: there is no such group; allowed: the "
		       "name of a group");
	assert_refused(
		"[daemon]\nsocket = relative\n",
		":2: socket = relative: not an absolute path; allowed: an absolute path of at "
		"most 107 bytes");
	/* CPUs */
	assert_refused("[daemon]\ncpus = 1,1\n",
		       ":2: cpus = 1,1: not a list of CPUs, each named once; allowed: up to 64 CPU "
		       "numbers below 1024, as 2,3 or 4-7");
	assert_refused("[daemon]\ncpus = 1024\n",
		       ":2: cpus = 1024: a CPU number or the list is too large; allowed: up to 64 "
		       "CPU numbers below 1024, as 2,3 or 4-7");
	/* exporters */
	assert_refused("[exporter system]\nbackend = fast\n",
		       ":2: backend = fast: not a backend; allowed: auto, direct, kernel, none or "
		       "refuse");
	assert_refused("[exporter system]\nbackend = none\n[exporter system]\nbackend = kernel\n",
		       ":4: the backend of exporter system is already set; write it once");
	assert_refused("[exporter a-name-of-more-than-31-characters]\nbackend = none\n",
		       ":2: [exporter a-name-of-more-than-31-characters]: the name of an exporter "
		       "has 1 to 31 characters");
}

static void test_unknown_keys(void **state)
{
	(void)state;
	assert_refused("[daemon]\nspinus = 1\n",
		       ":2: unknown key spinus in [daemon]; did you mean spin_us?");
	assert_refused("[daemon]\nmax_queues = 1\n",
		       ":2: unknown key max_queues in [daemon]; did you mean max_queues, which "
		       "belongs into [limits]?");
	assert_refused(
		"[daemon]\ncolour = red\n",
		":2: unknown key colour in [daemon]; its keys are socket workers cpus "
		"policy priority rt_share loop spin_us spin_min_us "
		"slice_us slice_lines normal_share bulk_share overruns_to_move split_lines "
		"share_barrier share_barrier_lines share_barrier_us log_level "
		"observer_group realtime_group allow_simulated helper_threads fence_timeout_ms "
		"second_pass stop_timeout_ms");
	assert_refused("[deamon]\nspin_us = 1\n",
		       ":2: unknown section [deamon]; the sections are [daemon], [limits] and "
		       "[exporter NAME]");
	assert_refused("spin_us = 1\n",
		       ":1: spin_us stands before the first section; write [daemon] above it");
	assert_refused("[daemon]\nspin_us = 1\nworkers = 1\nspin_us = 2\n",
		       ":4: spin_us is already set in line 2; write it once");
}

static void test_syntax(void **state)
{
	static const char head[] = "[daemon]\n#";
	char line[1000];

	(void)state;
	assert_refused("[daemon]\nspin_us 1\n",
		       ":2: neither [section], nor key = value, nor a comment (# or ;)");
	/* The first mistake is told, whatever kind it is. */
	assert_refused("[daemon]\nspin_us 1\nworkers = 0\n",
		       ":2: neither [section], nor key = value, nor a comment (# or ;)");
	assert_refused("[daemon]\nworkers = 0\nspin_us 1\n",
		       ":2: workers = 0: out of range; allowed: 1 to 64 threads");
	/* An indented line does not continue the one above. */
	assert_refused("[daemon]\nworkers = 1\n  2\n",
		       ":3: neither [section], nor key = value, nor a comment (# or ;)");

	struct config config;
	char text[CONFIG_TEXT_SIZE] = "";

	memcpy(line, head, sizeof(head));
	memset(line + sizeof(head) - 1, 'x', sizeof(line) - sizeof(head));
	line[sizeof(line) - 1] = '\0';
	assert_int_equal(config_defaults(&config), 0);
	assert_int_equal(read_text(&config, line, text), -EINVAL);
	assert_non_null(strstr(text, ":2: the line holds a zero byte or is too long"));
	config_clear(&config);
}

static void test_missing_file(void **state)
{
	struct config config;
	char text[CONFIG_TEXT_SIZE] = "";

	(void)state;
	assert_int_equal(config_defaults(&config), 0);
	assert_int_equal(config_read(&config, "/nowhere/at.all", text, sizeof(text)), -ENOENT);
	assert_string_equal(text, "/nowhere/at.all: cannot be opened: No such file or directory");
	assert_int_equal(config_read(&config, "/", text, sizeof(text)), -EIO);
	assert_string_equal(text, "/: cannot be read: Is a directory");
	config_clear(&config);
}

static void test_set(void **state)
{
	struct config config;
	char text[CONFIG_TEXT_SIZE] = "";

	(void)state;
	assert_int_equal(config_defaults(&config), 0);
	assert_int_equal(
		config_set(&config, "daemon", "spin_us", "7", "--spin-us", text, sizeof(text)), 0);
	assert_int_equal(config.spin_us, 7);
	assert_int_equal(
		config_set(&config, "daemon", "spin_us", "x", "--spin-us", text, sizeof(text)),
		-EINVAL);
	assert_string_equal(text, "--spin-us: spin_us = x: not a whole number; allowed: 0 to 10000 "
				  "microseconds");
	assert_int_equal(config.spin_us, 7);
	config_clear(&config);
}

static void test_cpu_lists(void **state)
{
	static const char *const wrong[] = {"",	    ",",   "1,",   "-1", "1-",	 "2-1",
					    "1,,2", "1 2", "0-64", "a",	 "1-2-3"};
	uint32_t cpus[CONFIG_CPUS_MAX], count;

	(void)state;
	assert_int_equal(config_parse_cpus("3,0-2,1023", cpus, &count), 0);
	assert_int_equal(count, 5);
	assert_int_equal(cpus[0], 3);
	assert_int_equal(cpus[3], 2);
	assert_int_equal(cpus[4], 1023);
	assert_int_equal(config_parse_cpus("0-63", cpus, &count), 0);
	assert_int_equal(count, CONFIG_CPUS_MAX);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_true(config_parse_cpus(wrong[i], cpus, &count) < 0);
}

/* Lists of CPUs that differ behind their first 255 characters: compared and copied whole. */
static void test_long_texts(void **state)
{
	struct config config, copy;
	char text[CONFIG_TEXT_SIZE], cpus[512] = "0";

	(void)state;
	for (int cpu = 900; cpu < 963; cpu++)
		snprintf(cpus + strlen(cpus), sizeof cpus - strlen(cpus), ",0%d", cpu);
	assert_true(strlen(cpus) > 300);
	assert_int_equal(config_defaults(&config), 0);
	assert_int_equal(config_set(&config, "daemon", "cpus", cpus, "test", text, sizeof text), 0);
	assert_int_equal(config_copy(&config, &copy), 0);
	assert_string_equal(copy.cpus, cpus);
	assert_int_equal(config_reload(&config, &copy, text, sizeof text), 0);
	assert_string_equal(text, "");
	copy.cpus[strlen(cpus) - 1] = '9';
	assert_int_equal(config_reload(&config, &copy, text, sizeof text), 1);
	assert_non_null(strstr(text, "cpus"));
	config_clear(&copy);
	config_clear(&config);
}

static void test_reload(void **state)
{
	struct config config, fresh;
	char text[CONFIG_TEXT_SIZE] = "", *path;
	FILE *file;

	(void)state;
	assert_int_equal(config_defaults(&config), 0);
	path = write_file(
		"[daemon]\nspin_us = 10\nworkers = 1\n[exporter system]\nbackend = none\n");
	assert_int_equal(config_read(&config, path, text, sizeof(text)), 0);
	assert_int_equal(config_override(&config, "daemon", "slice_lines", "128", "--slice-lines",
					 text, sizeof(text)),
			 0);

	file = fopen(path, "w");
	assert_non_null(file);
	fputs("[daemon]\nspin_us = 20\nworkers = 2\nslice_lines = 256\ncpus = 0\n"
	      "[limits]\nmax_queues = 3\n",
	      file);
	fclose(file);
	assert_int_equal(config_reread(&config, &fresh, text, sizeof(text)), 0);
	assert_int_equal(fresh.workers, 2);
	assert_int_equal(fresh.slice_lines, 128); /* the option goes before the file */
	assert_int_equal(config_reload(&config, &fresh, text, sizeof(text)), 1);
	assert_string_equal(text, "spin_us 10 -> 20, max_queues 16 -> 3, exporter sections; "
				  "a change of workers, cpus needs a restart");
	assert_int_equal(config.workers, 1);
	assert_null(config.cpus);
	assert_int_equal(config.spin_us, 20);
	assert_int_equal(config.slice_lines, 128);
	assert_int_equal(config.max_queues, 3);
	assert_null(config_exporter(&config, "system")); /* back to the default */
	config_clear(&fresh);

	/* A mistake: the sentence, and nothing else. */
	file = fopen(path, "w");
	assert_non_null(file);
	fputs("[daemon]\nspin_us = 20ms\n", file);
	fclose(file);
	assert_int_equal(config_reread(&config, &fresh, text, sizeof(text)), -EINVAL);
	assert_non_null(strstr(text, ":2: spin_us = 20ms: "));
	unlink(path);
	assert_int_equal(config_reread(&config, &fresh, text, sizeof(text)), -ENOENT);
	config_clear(&config);
}

/* Makes a key of every commented one, and reads the whole. */
static void test_default_file(void **state)
{
	struct config config, defaults;
	char text[CONFIG_TEXT_SIZE] = "", line[512], *whole, *path, allowed[128];
	const struct config_key *keys;
	size_t size = 0, count;
	FILE *file = fopen(DMASYNC_DEFAULT_CONFIG, "re"), *active;

	(void)state;
	assert_non_null(file);
	active = open_memstream(&whole, &size);
	while (fgets(line, sizeof(line), file)) {
		bool commented = line[0] == '#' && line[1] != ' ' && line[1] != '\n';

		fputs(commented ? line + 1 : line, active);
	}
	fclose(file);
	fclose(active);
	path = write_file(whole);
	assert_int_equal(config_defaults(&config), 0);
	assert_int_equal(config_defaults(&defaults), 0);
	if (config_read(&config, path, text, sizeof(text)) < 0)
		fail_msg("%s", text);
	unlink(path);

	keys = config_keys(&count);
	for (size_t i = 0; i < count; i++) {
		char value[256], fallback[256];

		snprintf(line, sizeof(line), "\n%s = %s", keys[i].key,
			 keys[i].fallback ? keys[i].fallback : "");
		if (!strstr(whole, line))
			fail_msg("%s does not stand there with its default", keys[i].key);
		config_allowed(&keys[i], allowed, sizeof(allowed));
		snprintf(line, sizeof(line), "\n# %s\n# %s; default: %s\n%s = ", keys[i].help,
			 allowed, keys[i].fallback ? keys[i].fallback : "unset", keys[i].key);
		if (!strstr(whole, line))
			fail_msg("%s is not described as in the table", keys[i].key);
		if (keys[i].type == CONFIG_BACKEND || !keys[i].fallback)
			continue;
		config_value(&config, &keys[i], value, sizeof(value));
		config_value(&defaults, &keys[i], fallback, sizeof(fallback));
		assert_string_equal(value, fallback);
	}
	free(whole);
	config_clear(&config);
	config_clear(&defaults);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),     cmocka_unit_test(test_every_type),
		cmocka_unit_test(test_refusals),     cmocka_unit_test(test_unknown_keys),
		cmocka_unit_test(test_syntax),	     cmocka_unit_test(test_missing_file),
		cmocka_unit_test(test_set),	     cmocka_unit_test(test_cpu_lists),
		cmocka_unit_test(test_long_texts),   cmocka_unit_test(test_reload),
		cmocka_unit_test(test_default_file),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
