/* SPDX-License-Identifier: MIT */
/* The log on stderr: levels, one line a message, nothing that a client's name could do to it. */
#include "daemon/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int saved_stderr = -1, reader = -1;

static int redirect(void **state)
{
	int fds[2];

	(void)state;
	if (pipe2(fds, O_NONBLOCK) < 0)
		return -1;
	fflush(stderr);
	saved_stderr = dup(STDERR_FILENO);
	dup2(fds[1], STDERR_FILENO);
	close(fds[1]);
	reader = fds[0];
	unsetenv("JOURNAL_STREAM");
	log_open(LOG_INFO);
	return 0;
}

static int restore(void **state)
{
	(void)state;
	dup2(saved_stderr, STDERR_FILENO);
	close(saved_stderr);
	close(reader);
	return 0;
}

static const char *written(void)
{
	static char text[65536];
	ssize_t n = read(reader, text, sizeof(text) - 1);

	text[n < 0 ? 0 : n] = '\0';
	return text;
}

static void test_levels(void **state)
{
	(void)state;
	log_error("broken: %d", 5);
	assert_string_equal(written(), "dmasyncd: err: broken: 5\n");
	log_info("fine");
	assert_string_equal(written(), "dmasyncd: info: fine\n");
	log_debug("not asked for");
	assert_string_equal(written(), "");
	log_set_level(LOG_DEBUG);
	log_debug("asked for");
	assert_string_equal(written(), "dmasyncd: debug: asked for\n");
	log_set_level(LOG_ERR);
	log_warning("no longer");
	assert_string_equal(written(), "");
}

static void test_names(void **state)
{
	(void)state;
	for (int level = LOG_ERR; level <= LOG_DEBUG; level++)
		assert_int_equal(log_level_from_name(log_level_name(level)), level);
	assert_int_equal(log_level_from_name("loud"), -EINVAL);
	assert_int_equal(log_level_from_name(""), -EINVAL);
}

static void test_forged_line(void **state)
{
	(void)state;
	log_notice("client %s", "a\ndmasyncd: err: forged \x1b[31m\x7f");
	assert_string_equal(written(), "dmasyncd: notice: client a?dmasyncd: err: forged ?[31m?\n");
}

static void test_long_message(void **state)
{
	char *name = malloc(5000);
	const char *line;

	(void)state;
	assert_non_null(name);
	memset(name, 'x', 4999);
	name[4999] = '\0';
	log_notice("%s", name);
	line = written();
	assert_true(strlen(line) < 1100);
	assert_int_equal(line[strlen(line) - 1], '\n');
	free(name);
}

static void test_fields_are_for_the_journal(void **state)
{
	static const char *const fields[] = {"DMASYNC_PID=12", NULL};

	(void)state;
	log_fields(LOG_INFO, fields, "client %d", 1);
	assert_string_equal(written(), "dmasyncd: info: client 1\n");
}

static void test_errno_is_kept(void **state)
{
	(void)state;
	errno = EXDEV;
	log_info("%d", 1);
	assert_int_equal(errno, EXDEV);
	written();
}

static void test_stream_of_another(void **state)
{
	(void)state;
	/* Inherited, but stderr was redirected since: the pipe gets the line. */
	setenv("JOURNAL_STREAM", "1:2", 1);
	log_open(LOG_INFO);
	log_info("here");
	assert_string_equal(written(), "dmasyncd: info: here\n");
	setenv("JOURNAL_STREAM", "nonsense", 1);
	log_open(LOG_INFO);
	log_info("here");
	assert_string_equal(written(), "dmasyncd: info: here\n");
}

static void *log_much(void *argument)
{
	for (int i = 0; i < 100; i++)
		log_info("%s %d", (const char *)argument, i);
	return NULL;
}

static void test_threads(void **state)
{
	static char names[4][8] = {"aaaa", "bbbb", "cccc", "dddd"};
	pthread_t threads[4];
	char copy[65536], *save = NULL;
	size_t lines = 0;

	(void)state;
	for (size_t i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, log_much, names[i]), 0);
	for (size_t i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	snprintf(copy, sizeof(copy), "%s", written());
	for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char name[8];
		int number;

		assert_int_equal(sscanf(line, "dmasyncd: info: %4s %d", name, &number), 2);
		lines++;
	}
	assert_int_equal(lines, 400);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_levels, redirect, restore),
		cmocka_unit_test(test_names),
		cmocka_unit_test_setup_teardown(test_forged_line, redirect, restore),
		cmocka_unit_test_setup_teardown(test_long_message, redirect, restore),
		cmocka_unit_test_setup_teardown(test_fields_are_for_the_journal, redirect, restore),
		cmocka_unit_test_setup_teardown(test_errno_is_kept, redirect, restore),
		cmocka_unit_test_setup_teardown(test_stream_of_another, redirect, restore),
		cmocka_unit_test_setup_teardown(test_threads, redirect, restore),
	};

	return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
