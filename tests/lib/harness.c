/* SPDX-License-Identifier: MIT */
/*
 * The runner: one forked process a case, a time limit, counts before and after, a directory of its
 * own. Single-threaded; the statics below are set before the fork or belong to one case.
 */
#include "tests/lib/harness.h"

#include <errno.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SKIPPED 77
#define DEFAULT_TIMEOUT_S 20
#define GRACE_MS 2000

static char directory[96];
static bool forked; /* in a case of the runner, not in a test with a main() of its own */

bool harness_text_equal(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

int64_t harness_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t harness_scaled_ms(int64_t timeout_ms)
{
	const char *text = getenv("HARNESS_TIMEOUT_FACTOR");
	long factor = text ? strtol(text, NULL, 10) : 1;

	return factor > 1 ? timeout_ms * factor : timeout_ms;
}

void harness_pause(void)
{
	nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static int remove_entry(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	(void)stat;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void remove_directory(void)
{
	if (directory[0] && nftw(directory, remove_entry, 16, FTW_DEPTH | FTW_PHYS) < 0)
		fprintf(stderr, "%s: not removed: %s\n", directory, strerror(errno));
	directory[0] = '\0';
}

static void make_directory(void)
{
	const char *parent = getenv("TMPDIR");

	/* A socket's path has 108 bytes: a long TMPDIR would not fit. */
	if (!parent || strlen(parent) > 48)
		parent = "/tmp";
	snprintf(directory, sizeof directory, "%s/dmasync-test.XXXXXX", parent);
	if (!mkdtemp(directory)) {
		fprintf(stderr, "%s: %s\n", directory, strerror(errno));
		exit(1);
	}
}

const char *harness_directory(void)
{
	/* Outside of the runner (a cmocka test) the process removes it itself. */
	if (!directory[0]) {
		make_directory();
		atexit(remove_directory);
	}
	return directory;
}

char *harness_write_file(const char *name, const char *text)
{
	char *path;

	if (asprintf(&path, "%s/%s", harness_directory(), name) < 0)
		fail_case("out of memory");

	FILE *file = fopen(path, "we");

	if (!file || fputs(text, file) < 0 || fclose(file) != 0)
		fail_case("%s: %s", path, strerror(errno));
	return path;
}

void harness_fail(const char *file, int line, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fprintf(stderr, "%s:%d: ", file, line);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	fflush(NULL);
	/* No leak report of a failed case; the runner cleans up. */
	if (forked)
		_exit(1);
	exit(1);
}

void harness_skip(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("skipped: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	fflush(NULL);
	if (forked)
		_exit(SKIPPED);
	exit(SKIPPED);
}

/* In the child. */
static _Noreturn void run_case(const struct harness_case *test)
{
	unsigned int fds = harness_count_fds(0);
	unsigned int maps = harness_count_shared_maps(0);

	forked = true;
	test->run();

	unsigned int fds_after = harness_count_fds(0);
	unsigned int maps_after = harness_count_shared_maps(0);

	if (fds_after > fds)
		fail_case("%s leaked %u fd(s)", test->name, fds_after - fds);
	if (maps_after > maps)
		fail_case("%s leaked %u shared mapping(s)", test->name, maps_after - maps);
	/* exit, not _exit: LeakSanitizer reports here. */
	exit(0);
}

/*
 * What is left of a case's process group: waits a little for processes that are about to end, then
 * kills. The runner is their subreaper, so that an ended one does not count as alive.
 */
static bool left_processes(pid_t group)
{
	int64_t end = harness_now_ms() + harness_scaled_ms(GRACE_MS);

	for (;;) {
		while (waitpid(-group, NULL, WNOHANG) > 0)
			;
		if (kill(-group, 0) < 0)
			return false;
		if (harness_now_ms() > end)
			break;
		harness_pause();
	}
	kill(-group, SIGKILL);
	while (waitpid(-group, NULL, 0) > 0)
		;
	return true;
}

static int print_log(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
	const char *end = strrchr(path, '.');
	char line[1024];
	FILE *file;

	(void)stat;
	(void)ftw;
	if (type != FTW_F || !end || strcmp(end, ".log") != 0)
		return 0;
	file = fopen(path, "re");
	if (!file)
		return 0;
	fprintf(stderr, "---- %s\n", path);
	while (fgets(line, sizeof line, file))
		fprintf(stderr, "    %s", line);
	fclose(file);
	return 0;
}

/* 0, 1 or 77. */
static int fork_case(const struct harness_case *test)
{
	unsigned int timeout_s = test->timeout_s ? test->timeout_s : DEFAULT_TIMEOUT_S;
	int64_t timeout_ms = harness_scaled_ms((int64_t)timeout_s * 1000);
	int64_t start = harness_now_ms();
	bool timed_out = false;
	int status = 0;

	make_directory();
	fflush(NULL);

	pid_t pid = fork();

	if (pid < 0) {
		fprintf(stderr, "fork: %s\n", strerror(errno));
		exit(1);
	}
	if (pid == 0) {
		setpgid(0, 0);
		run_case(test);
	}
	setpgid(pid, pid); /* by both: neither may be late */

	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd ended = {.fd = pidfd, .events = POLLIN};

	if (pidfd < 0) {
		fprintf(stderr, "pidfd_open: %s\n", strerror(errno));
		exit(1);
	}
	if (poll(&ended, 1, (int)timeout_ms) == 0) {
		timed_out = true;
		kill(-pid, SIGKILL);
	}
	close(pidfd);
	waitpid(pid, &status, 0);

	bool left = left_processes(pid) && !timed_out;
	int result = WIFEXITED(status) ? WEXITSTATUS(status) : 1;

	if (result == 0 && left)
		result = 1;
	if (result != 0 && result != SKIPPED)
		result = 1;

	if (timed_out)
		fprintf(stderr, "%s: killed after %lld ms\n", test->name, (long long)timeout_ms);
	else if (WIFSIGNALED(status))
		fprintf(stderr, "%s: killed by signal %d (%s)\n", test->name, WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	else if (left)
		fprintf(stderr, "%s: left a process behind\n", test->name);
	if (result == 1)
		nftw(directory, print_log, 16, FTW_PHYS);
	remove_directory();

	printf("%s %s (%lld ms)\n",
	       result == 0	   ? "ok  "
	       : result == SKIPPED ? "skip"
				   : "FAIL",
	       test->name, (long long)(harness_now_ms() - start));
	return result;
}

static bool wanted(int argc, char **argv, const char *name)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], name) == 0)
			return true;
	}
	return argc < 2;
}

int harness_main(int argc, char **argv, const struct harness_case *cases, size_t count)
{
	size_t ran = 0, failed = 0, skipped = 0;

	if (argc == 2 && strcmp(argv[1], "--list") == 0) {
		for (size_t i = 0; i < count; i++)
			puts(cases[i].name);
		return 0;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	/* A peer that has closed is a result of write(), not the end of the test. */
	signal(SIGPIPE, SIG_IGN);

	for (size_t i = 0; i < count; i++) {
		if (!wanted(argc, argv, cases[i].name))
			continue;

		int result = fork_case(&cases[i]);

		ran++;
		failed += result == 1;
		skipped += result == SKIPPED;
	}
	printf("%zu passed, %zu failed, %zu skipped\n", ran - failed - skipped, failed, skipped);
	if (failed || ran == 0)
		return 1;
	return skipped == ran ? SKIPPED : 0;
}
