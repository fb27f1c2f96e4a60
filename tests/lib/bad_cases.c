/* SPDX-License-Identifier: MIT */
/*
 * Cases that go wrong on purpose, one kind each; test_harness.c runs them and looks at what the
 * runner says. Single-threaded.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/lib/harness.h"

static void good(void)
{
	int fd = harness_memfd(4096, F_SEAL_SHRINK);

	check_int(fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK);
	close(fd);
}

static void false_check(void)
{
	check_int(1 + 1, 3);
}

static void hangs(void)
{
	check(fork() >= 0);
	/* Both the case and its child must go. */
	for (;;)
		pause();
}

static void leaks_fd(void)
{
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	check(fd >= 0);
}

static void leaks_mapping(void)
{
	check(mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
}

static void crashes(void)
{
	raise(SIGKILL);
}

static void leaves_process(void)
{
	pid_t child = fork();

	check(child >= 0);
	while (child == 0)
		pause();
}

static void skips(void)
{
	harness_skip("nothing to see");
}

static void prints_directory(void)
{
	char *path = harness_write_file("written.txt", harness_directory());

	check(write(1, path, 0) == 0);
	fail_case("directory=%s", harness_directory());
}

static const struct harness_case cases[] = {
	HARNESS_CASE(good),
	HARNESS_CASE(false_check),
	HARNESS_CASE(hangs, .timeout_s = 1),
	HARNESS_CASE(leaks_fd),
	HARNESS_CASE(leaks_mapping),
	HARNESS_CASE(crashes),
	HARNESS_CASE(leaves_process),
	HARNESS_CASE(skips),
	HARNESS_CASE(prints_directory),
};

HARNESS_MAIN(cases)
