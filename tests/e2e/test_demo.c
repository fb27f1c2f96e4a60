/* SPDX-License-Identifier: MIT */
/* The demo as a user runs it, and what it leaves behind. One thread. */
#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
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

/* At least as many as the demo has buffers, so that each comes round again. */
#define FRAMES ((unsigned int)(5 + rounds(25)))

static void run_demo(struct harness_output *output, const char *backend)
{
	char *demo = harness_built("client/examples/dmasync-demo");
	char frames[16];
	const char *argv[] = {demo, "--frames", frames, "--backend", backend, NULL};

	snprintf(frames, sizeof frames, "%u", FRAMES);
	setenv("XDG_RUNTIME_DIR", harness_directory(), 1);
	harness_run(output, 60000, argv);
	free(demo);
	if (output->status != 0)
		fail_case("exit status %d\n%s%s", output->status, output->out, output->err);
	check_int(count_left_directories(), 0);
}

__attribute__((format(printf, 2, 3))) static void contains(const struct harness_output *output,
							   const char *format, ...)
{
	char text[256];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	if (!strstr(output->out, text))
		fail_case("\"%s\" is not in:\n%s", text, output->out);
}

static void on_simulated_memory_each_omission_is_found(void)
{
	struct harness_output output;

	run_demo(&output, "simulated");
	contains(&output, "frame %u of %u, 0 wrong", FRAMES, FRAMES);
	contains(&output, "%u of %u frames wrong; %u lines wrong (%u of them in the overlay)",
		 FRAMES, FRAMES, FRAMES * 384, FRAMES * 384);
	contains(&output, "%u of %u measurements wrong", FRAMES, FRAMES);
	/* dmasyncctl batches: whoever runs the daemon sees them. */
	contains(&output, " 804  50.2 KiB");
	contains(&output, "Every frame was right where every sync was made.");
	harness_output_clear(&output);
}

/* Its stderr may hold the daemon's warning that an unprivileged user can lock no more memory. */
static void on_real_instructions_nothing_is_wrong(void)
{
	struct harness_output output;

	run_demo(&output, "direct");
	contains(&output, "frame %u of %u, 0 wrong", FRAMES, FRAMES);
	contains(&output, "No difference");
	harness_output_clear(&output);
}

/* On a daemon that runs already, which must allow simulated memory. */
static void on_a_running_daemon(void)
{
	char *demo = harness_built("client/examples/dmasync-demo");
	char *minimal = harness_built("client/examples/dmasync-minimal");
	struct harness_daemon server;
	struct harness_output output;
	struct holdings before;

	harness_daemon_start(&server, SIMULATED_CONFIG, NULL);
	before = holdings_of(&server);

	const char *argv[] = {demo, "--frames", "8", "--socket", server.socket, NULL};

	harness_run(&output, 60000, argv);
	check_int(output.status, 0);
	harness_output_clear(&output);

	const char *minimal_argv[] = {minimal, NULL, NULL};

	setenv("DMASYNC_SOCKET", server.socket, 1);
	harness_run(&output, 10000, minimal_argv);
	unsetenv("DMASYNC_SOCKET");
	check_text(output.err, "");
	check_int(output.status, 0);
	contains(&output, "2 entries, 80 lines");
	harness_output_clear(&output);
	minimal_argv[1] = "--inline";
	setenv("DMASYNC_SOCKET", "/nonexistent", 1);
	harness_run(&output, 10000, minimal_argv);
	unsetenv("DMASYNC_SOCKET");
	check_text(output.err, "");
	check_int(output.status, 0);
	contains(&output, "2 entries, 80 lines");
	harness_output_clear(&output);
	holdings_await(&server, &before);
	harness_daemon_stop(&server);

	harness_daemon_start(&server, "", NULL);
	argv[4] = server.socket;
	harness_run(&output, 60000, argv);
	check_int(output.status, 1);
	check(strstr(output.err, "allow_simulated=yes") != NULL);
	harness_output_clear(&output);
	harness_daemon_stop(&server);
	free(minimal);
	free(demo);
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

/*
 * One of its children with that name; 0 where there is none. By looking through all processes: not
 * every kernel has /proc/PID/task/TID/children.
 */
static pid_t child_of(pid_t parent, const char *name)
{
	pid_t found = 0;
	DIR *processes = opendir("/proc");

	check(processes);
	for (struct dirent *entry; (entry = readdir(processes));) {
		char path[300], text[32];
		int pid, its_parent;

		snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);

		FILE *stat = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' ? fopen(path, "re")
										: NULL;

		if (!stat)
			continue;
		if (fscanf(stat, "%d (%31[^)]) %*c %d", &pid, text, &its_parent) == 3 &&
		    its_parent == (int)parent && strncmp(text, name, strlen(name)) == 0)
			found = pid;
		fclose(stat);
	}
	closedir(processes);
	return found;
}

struct running_demo {
	pid_t pid;
	int out;
};

/* A demo that would run for hours, as soon as its first stage does. */
static struct running_demo start_demo(void)
{
	char *path = harness_built("client/examples/dmasync-demo");
	struct running_demo demo;
	int out[2];

	setenv("XDG_RUNTIME_DIR", harness_directory(), 1);
	check_int(pipe(out), 0);
	demo.pid = fork();
	check(demo.pid >= 0);
	if (demo.pid == 0) {
		dup2(out[1], 1);
		dup2(out[1], 2);
		close(out[0]);
		close(out[1]);
		execl(path, path, "--frames", "1000000", (char *)NULL);
		_exit(127);
	}
	free(path);
	close(out[1]);
	demo.out = out[0];
	harness_until(child_of(demo.pid, "dmasyncd") > 0, PATIENCE_MS);
	harness_until(child_of(demo.pid, "dmasync-demo") > 0, PATIENCE_MS);
	check_int(count_left_directories(), 1);
	return demo;
}

/* No process, socket or directory stays. The harness looks for processes. */
static void end_demo(struct running_demo *demo)
{
	int status;

	check_int(waitpid(demo->pid, &status, 0), demo->pid);
	check(WIFEXITED(status) && WEXITSTATUS(status) == 1);
	check_int(count_left_directories(), 0);
	close(demo->out);
}

static void an_interrupted_demo_cleans_up(void)
{
	struct running_demo demo = start_demo();

	kill(demo.pid, SIGINT);
	end_demo(&demo);
}

static void a_failed_process_ends_the_demo(void)
{
	static const char *const names[] = {"dmasyncd", "dmasync-demo"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		struct running_demo demo = start_demo();
		pid_t child = child_of(demo.pid, names[i]);

		check(child > 0);
		kill(child, SIGKILL);
		end_demo(&demo);
	}
}

static const struct harness_case cases[] = {
	HARNESS_CASE(on_simulated_memory_each_omission_is_found, .timeout_s = 60),
	HARNESS_CASE(on_real_instructions_nothing_is_wrong, .timeout_s = 60),
	HARNESS_CASE(on_a_running_daemon),
	HARNESS_CASE(wrong_options_are_refused),
	HARNESS_CASE(an_interrupted_demo_cleans_up),
	HARNESS_CASE(a_failed_process_ends_the_demo),
};

HARNESS_MAIN(cases)
