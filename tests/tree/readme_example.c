/* SPDX-License-Identifier: MIT */
/*
 * The README's example, built from its text against an installed library and run with a daemon.
 * Single-threaded.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/harness.h"

static void example_builds_and_runs(void)
{
	struct harness_daemon daemon;
	struct harness_output output;
	char program[128];

	harness_run(&output, 60000,
		    (const char *const[]){"sh", README_SCRIPT, README, BUILD_DIRECTORY,
					  harness_directory(), NULL});
	if (output.status != 0)
		fail_case("the example does not build:\n%s%s", output.out, output.err);
	output.out[strcspn(output.out, "\n")] = '\0';
	setenv("LD_LIBRARY_PATH", output.out, 1);
	harness_output_clear(&output);

	harness_daemon_start(&daemon, "", NULL);
	setenv("DMASYNC_SOCKET", daemon.socket, 1);
	snprintf(program, sizeof program, "%s/frame", harness_directory());
	harness_run(&output, 10000, (const char *const[]){program, NULL});
	if (output.status != 0 || !strstr(output.out, " ns for the barrier\n"))
		fail_case("the example ended with %d:\n%s%s", output.status, output.out,
			  output.err);
	harness_output_clear(&output);
	harness_daemon_stop(&daemon);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(example_builds_and_runs, .timeout_s = 90),
};

HARNESS_MAIN(cases)
