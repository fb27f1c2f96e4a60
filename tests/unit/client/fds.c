/* SPDX-License-Identifier: MIT */
/*
 * A test leaves as many fds as it found: see fake_test() in fake.h. The test's thread.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "tests/unit/client/fake.h"

unsigned int open_fds(void)
{
	DIR *directory = opendir("/proc/self/fd");
	unsigned int n = 0;

	assert_non_null(directory);
	while (readdir(directory))
		n++;
	closedir(directory);
	return n;
}

int fds_remember(void **state)
{
	unsigned int *fds = malloc(sizeof *fds);

	*fds = open_fds();
	*state = fds;
	return 0;
}

int fds_compare(void **state)
{
	unsigned int *fds = *state, before = *fds, now = open_fds();

	free(fds);
	if (now != before)
		print_error("%u fds before the test, %u after it\n", before, now);
	return now == before ? 0 : -1;
}
