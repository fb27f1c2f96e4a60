/* SPDX-License-Identifier: MIT */
/* The demo as a user runs it, and what it leaves behind. One thread. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/support.h"

/* The demo puts its directory there. */
static unsigned int count_left_directories(void)
{
	unsigned int count = 0;
	DIR *directory = opendir(harness_directory());

	check(directory);
	for (struct dirent *entry; (entry = readdir(directory));)
		count += strncmp(entry->d_name, "dmasync-", 8) == 0;
	closedir(directory);
	return count;
}

static void run_demo(struct harness_output *output, const char *backend)
{
	char *demo = harness_built("client/examples/dmasync-demo");
	const char *argv[] = {demo, "--frames", "30", "--backend", backend, NULL};

	setenv("XDG_RUNTIME_DIR", harness_directory(), 1);
	harness_run(output, 60000, argv);
	free(demo);
	if (output->status != 0)
		fail_case("exit status %d\n%s%s", output->status, output->out, output->err);
	check_text(output->err, "");
	check_int(count_left_directories(), 0);
}

static void contains(const struct harness_output *output, const char *text)
{
	if (!strstr(output->out, text))
		fail_case("\"%s\" is not in:\n%s", text, output->out);
}

static void on_simulated_memory_each_omission_is_found(void)
{
	struct harness_output output;

	run_demo(&output, "simulated");
	contains(&output, "frame 30 of 30, 0 wrong");
	contains(&output,
		 "30 of 30 frames wrong; 11520 lines wrong (11520 of them in the overlay)");
	contains(&output, "30 of 30 measurements wrong");
	contains(&output, "Every frame was right where every sync was made.");
	harness_output_clear(&output);
}

static void on_real_instructions_nothing_is_wrong(void)
{
	struct harness_output output;

	run_demo(&output, "direct");
	contains(&output, "frame 30 of 30, 0 wrong");
	contains(&output, "No difference");
	harness_output_clear(&output);
}

static void wrong_options_are_refused(void)
{
	static const char *const wrong[][2] = {
		{"--frames", "0"}, {"--frames", "12x"}, {"--backend", "coherent"}};
	char *demo = harness_built("client/examples/dmasync-demo");

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		const char *argv[] = {demo, wrong[i][0], wrong[i][1], NULL};
		struct harness_output output;

		harness_run(&output, 10000, argv);
		check_int(output.status, 2);
		check(strstr(output.err, wrong[i][1]) != NULL);
		harness_output_clear(&output);
	}
	free(demo);
}

/* Ctrl-C, as late as the pipeline runs: no process, socket or directory stays. */
static void an_interrupted_demo_cleans_up(void)
{
	char *demo = harness_built("client/examples/dmasync-demo");
	int out[2], status;
	char text[4096];

	setenv("XDG_RUNTIME_DIR", harness_directory(), 1);
	check_int(pipe(out), 0);

	pid_t pid = fork();

	check(pid >= 0);
	if (pid == 0) {
		dup2(out[1], 1);
		dup2(out[1], 2);
		close(out[0]);
		close(out[1]);
		execl(demo, demo, "--frames", "1000000", (char *)NULL);
		_exit(127);
	}
	close(out[1]);

	size_t length = 0;

	while (length < sizeof text - 1) {
		ssize_t n = read(out[0], text + length, sizeof text - 1 - length);

		check(n > 0);
		length += (size_t)n;
		text[length] = '\0';
		if (strstr(text, "frame 100 of"))
			break;
	}
	check_int(count_left_directories(), 1);
	kill(pid, SIGINT);
	check_int(waitpid(pid, &status, 0), pid);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	check_int(count_left_directories(), 0);
	close(out[0]);
	free(demo);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(on_simulated_memory_each_omission_is_found, .timeout_s = 60),
	HARNESS_CASE(on_real_instructions_nothing_is_wrong, .timeout_s = 60),
	HARNESS_CASE(wrong_options_are_refused),
	HARNESS_CASE(an_interrupted_demo_cleans_up),
};

HARNESS_MAIN(cases)
