/* SPDX-License-Identifier: MIT */
/* The log on stderr: levels, one line a message, nothing that a client's name could do to it. */
#include "daemon/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
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

/* What journald would receive. In a mount namespace, where its socket is the test's. */
static int log_to_journal(void)
{
	static const char *const fields[] = {"DMASYNC_PID=12", "DMASYNC_NAME=isp", NULL};
	struct sockaddr_un address = {.sun_family = AF_UNIX,
				      .sun_path = "/run/systemd/journal/socket"};
	int fds[2], journal = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	char stream[64], text[4096], line[64] = "";
	struct stat st;

	if (unshare(CLONE_NEWNS | (geteuid() ? CLONE_NEWUSER : 0)) < 0 ||
	    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tmpfs", "/run", "tmpfs", 0, NULL) < 0 || mkdir("/run/systemd", 0755) < 0 ||
	    mkdir("/run/systemd/journal", 0755) < 0)
		return 77;
	if (bind(journal, (struct sockaddr *)&address, sizeof(address)) < 0 ||
	    pipe2(fds, O_NONBLOCK) < 0 || fstat(fds[1], &st) < 0)
		return 1;
	dup2(fds[1], STDERR_FILENO);
	snprintf(stream, sizeof(stream), "%ju:%ju", (uintmax_t)st.st_dev, (uintmax_t)st.st_ino);
	setenv("JOURNAL_STREAM", stream, 1);
	log_open(LOG_INFO);
	log_fields(LOG_WARNING, fields, "client %d", 1);

	ssize_t n = recv(journal, text, sizeof(text) - 1, 0);

	if (n < 0)
		return 2;
	text[n] = '\0';
	if (strcmp(text, "MESSAGE=client 1\nPRIORITY=4\nSYSLOG_IDENTIFIER=dmasyncd\n"
			 "DMASYNC_PID=12\nDMASYNC_NAME=isp\n"))
		return 3;
	if (read(fds[0], line, sizeof(line)) >= 0)
		return 4; /* not twice */
	/* Nobody receives any more: the line is not lost. */
	close(journal);
	log_info("still here");
	if (read(fds[0], line, sizeof(line) - 1) < 0 ||
	    strcmp(line, "dmasyncd: info: still here\n"))
		return 5;
	return 0;
}

static void test_journal(void **state)
{
	int status;
	pid_t pid = fork();

	(void)state;
	assert_true(pid >= 0);
	if (pid == 0)
		_exit(log_to_journal());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip(); /* no namespaces here */
	assert_int_equal(WEXITSTATUS(status), 0);
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
		cmocka_unit_test(test_journal),
	};

	return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
