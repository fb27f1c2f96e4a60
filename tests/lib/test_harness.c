/* SPDX-License-Identifier: MIT */
/*
 * The runner and its helpers, tested with themselves: a case that hangs, leaks or crashes must be
 * found, a good one must not. Single-threaded.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/lib/harness.h"

static void run_bad(const char *name, int status, const char *sentence)
{
	struct harness_output output;
	char *program = harness_built("tests/lib/bad-cases");

	harness_run(&output, 15000, (const char *const[]){program, name, NULL});
	check_int(output.status, status);
	if (sentence && !strstr(output.err, sentence))
		fail_case("\"%s\" is not in: %s", sentence, output.err);
	harness_output_clear(&output);
	free(program);
}

static void good_passes(void)
{
	run_bad("good", 0, NULL);
}

static void failed_check_is_told(void)
{
	run_bad("false_check", 1, "1 + 1 is 2, expected 3");
}

static void hanging_case_is_killed(void)
{
	run_bad("hangs", 1, "hangs: killed after");
}

static void leaked_fd_is_found(void)
{
	run_bad("leaks_fd", 1, "leaks_fd leaked 1 fd(s)");
}

static void leaked_mapping_is_found(void)
{
	run_bad("leaks_mapping", 1, "leaks_mapping leaked 1 shared mapping(s)");
}

static void crash_is_told(void)
{
	run_bad("crashes", 1, "killed by signal 9");
}

static void left_process_is_found(void)
{
	run_bad("leaves_process", 1, "left a process behind");
}

static void all_skipped_is_77(void)
{
	run_bad("skips", 77, "skipped: nothing to see");
}

static void unknown_case_fails(void)
{
	run_bad("no_such_case", 1, NULL);
}

static void directory_is_removed(void)
{
	struct harness_output output;
	char *program = harness_built("tests/lib/bad-cases");

	harness_run(&output, 15000, (const char *const[]){program, "prints_directory", NULL});

	char *path = strstr(output.err, "directory=");

	check(path != NULL);
	path += strlen("directory=");
	path[strcspn(path, "\n")] = '\0';
	check(access(path, F_OK) < 0 && errno == ENOENT);
	harness_output_clear(&output);
	free(program);
}

static void counts_follow(void)
{
	unsigned int fds = harness_count_fds(0), maps = harness_count_shared_maps(getpid());
	int fd = harness_memfd(8192, 0);
	void *memory = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);

	check(memory != MAP_FAILED);
	check_int(harness_count_fds(getpid()), fds + 1);
	check_int(harness_count_shared_maps(0), maps + 1);
	check(harness_count_maps(0) > maps + 1);
	check(harness_count_threads(0) >= 1);

	uint64_t sleeps = harness_count_sleeps(0);

	harness_pause();
	check(harness_count_sleeps(0) > sleeps);
	munmap(memory, 8192);
	close(fd);
}

static void packets_carry_fds(void)
{
	int pair[2], fds[3], got[4];
	size_t count = 4;
	char data[16];

	check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	check_int(harness_receive(pair[1], data, sizeof data, NULL, NULL, 1), -ETIMEDOUT);
	for (size_t i = 0; i < 3; i++)
		fds[i] = harness_memfd(4096 * (i + 1), 0);
	check_int(harness_send(pair[0], "frame", 5, fds, 3), 0);
	check_int(harness_receive(pair[1], data, sizeof data, got, &count, 1000), 5);
	check(memcmp(data, "frame", 5) == 0);
	check_int(count, 3);
	for (size_t i = 0; i < 3; i++) {
		check_int(lseek(got[i], 0, SEEK_END), 4096 * (i + 1));
		check(fcntl(got[i], F_GETFD) & FD_CLOEXEC);
		close(got[i]);
		close(fds[i]);
	}
	close(pair[0]);
	check_int(harness_receive(pair[1], data, sizeof data, NULL, NULL, 1000), 0);
	check_int(harness_send(pair[1], "frame", 5, NULL, 0), -EPIPE);
	close(pair[1]);
}

static void output_is_captured(void)
{
	struct harness_output output;

	harness_run(&output, 5000,
		    (const char *const[]){"sh", "-c", "echo out; echo err >&2; exit 3", NULL});
	check_int(output.status, 3);
	check_text(output.out, "out\n");
	check_text(output.err, "err\n");
	harness_output_clear(&output);

	harness_run(&output, 5000, (const char *const[]){"sh", "-c", "kill -9 $$", NULL});
	check_int(output.status, -9);
	harness_output_clear(&output);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(good_passes),
	HARNESS_CASE(failed_check_is_told),
	HARNESS_CASE(hanging_case_is_killed),
	HARNESS_CASE(leaked_fd_is_found),
	HARNESS_CASE(leaked_mapping_is_found),
	HARNESS_CASE(crash_is_told),
	HARNESS_CASE(left_process_is_found),
	HARNESS_CASE(all_skipped_is_77),
	HARNESS_CASE(unknown_case_fails),
	HARNESS_CASE(directory_is_removed),
	HARNESS_CASE(counts_follow),
	HARNESS_CASE(packets_carry_fds),
	HARNESS_CASE(output_is_captured),
};

HARNESS_MAIN(cases)
