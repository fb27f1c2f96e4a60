/* SPDX-License-Identifier: MIT */
/* The command line: each option sets its key and is checked as the key, help tells the table. */
#include "daemon/options.h"

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

#define EMPTY "--config", "/dev/null"

static enum options_result load(const char *const *arguments, struct config *config, char **ret_out,
				char *text)
{
	char *argv[20] = {(char *)(uintptr_t) "dmasyncd"}, *printed = NULL;
	size_t size = 0;
	int argc = 1;
	FILE *out = open_memstream(&printed, &size);

	for (; arguments[argc - 1]; argc++)
		argv[argc] = (char *)(uintptr_t)arguments[argc - 1];
	*text = '\0';

	enum options_result result = options_load(argc, argv, out, config, text, CONFIG_TEXT_SIZE);

	fclose(out);
	if (ret_out)
		*ret_out = printed;
	else
		free(printed);
	return result;
}

static void test_keys(void **state)
{
	const char *arguments[] = {EMPTY,	  "--socket", "/tmp/a",	     "--workers",     "3",
				   "--cpus",	  "0,1",      "--spin-us=9", "--slice-lines", "77",
				   "--log-level", "warning",  NULL};
	struct config config;
	char text[CONFIG_TEXT_SIZE];

	(void)state;
	assert_int_equal(load(arguments, &config, NULL, text), OPTIONS_RUN);
	assert_string_equal(config.socket, "/tmp/a");
	assert_int_equal(config.workers, 3);
	assert_string_equal(config.cpus, "0,1");
	assert_int_equal(config.spin_us, 9);
	assert_int_equal(config.slice_lines, 77);
	assert_int_equal(config.log_level, LOG_WARNING);
	assert_int_equal(config.override_count, 6);
	config_clear(&config);
}

static void test_option_before_file(void **state)
{
	char path[] = "/tmp/dmasync-options-XXXXXX";
	/* The option goes before the file wherever it stands. */
	const char *arguments[] = {"--spin-us", "5", "--config", path, NULL};
	static const char content[] = "[daemon]\nspin_us = 6\nslice_lines = 99\n";
	struct config config;
	char text[CONFIG_TEXT_SIZE];
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(write(fd, content, sizeof(content) - 1), sizeof(content) - 1);
	close(fd);
	assert_int_equal(load(arguments, &config, NULL, text), OPTIONS_RUN);
	assert_int_equal(config.spin_us, 5);
	assert_int_equal(config.slice_lines, 99);
	assert_string_equal(config.file, path);
	config_clear(&config);
	unlink(path);
}

static void assert_refused(const char *const *arguments, const char *sentence)
{
	struct config config;
	char text[CONFIG_TEXT_SIZE];

	assert_int_equal(load(arguments, &config, NULL, text), OPTIONS_REFUSED);
	assert_string_equal(text, sentence);
}

static void test_refusals(void **state)
{
	(void)state;
	assert_refused((const char *[]){EMPTY, "--workers", "0", NULL},
		       "--workers: workers = 0: out of range; allowed: 1 to 64 threads");
	assert_refused((const char *[]){EMPTY, "--spin-us", NULL},
		       "--spin-us: no value; allowed: 0 to 10000 microseconds");
	assert_refused((const char *[]){"--config", NULL},
		       "--config: no value; a file is expected");
	assert_refused((const char *[]){"--colour", NULL},
		       "--colour: unknown option; dmasyncd --help lists them");
	assert_refused((const char *[]){"-x", NULL},
		       "-x: unknown option; dmasyncd --help lists them");
	assert_refused((const char *[]){EMPTY, "start", NULL},
		       "start: not an option, and no other argument is expected; dmasyncd --help "
		       "lists them");
	assert_refused((const char *[]){"--config", "/nowhere/x", NULL},
		       "/nowhere/x: cannot be opened: No such file or directory");
}

static void test_version(void **state)
{
	const char *arguments[] = {"--version", NULL};
	char *out;
	struct config config;
	char text[CONFIG_TEXT_SIZE];

	(void)state;
	assert_int_equal(load(arguments, &config, &out, text), OPTIONS_DONE);
	assert_string_equal(out, "dmasyncd " DMASYNC_VERSION "\n");
	free(out);
}

static void test_help(void **state)
{
	static const char *const options[] = {"--config",  "--socket",	  "--workers",
					      "--cpus",	   "--spin-us",	  "--slice-lines",
					      "--version", "--log-level", "--help"};
	const char *arguments[] = {"--help", NULL};
	char *out, allowed[128], line[256];
	const struct config_key *keys;
	struct config config;
	char text[CONFIG_TEXT_SIZE];
	size_t count;

	(void)state;
	assert_int_equal(load(arguments, &config, &out, text), OPTIONS_DONE);
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		assert_non_null(strstr(out, options[i]));
	keys = config_keys(&count);
	for (size_t i = 0; i < count; i++) {
		if (strcmp(keys[i].key, "spin_us") && strcmp(keys[i].key, "slice_lines") &&
		    strcmp(keys[i].key, "log_level") && strcmp(keys[i].key, "workers"))
			continue;
		config_allowed(&keys[i], allowed, sizeof(allowed));
		snprintf(line, sizeof(line), "%s; default: %s\n", allowed, keys[i].fallback);
		assert_non_null(strstr(out, line));
		assert_non_null(strstr(out, keys[i].help));
	}
	free(out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_keys),	 cmocka_unit_test(test_option_before_file),
		cmocka_unit_test(test_refusals), cmocka_unit_test(test_version),
		cmocka_unit_test(test_help),
	};

	return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
