/* SPDX-License-Identifier: MIT */
/*
 * What a process holds, told by /proc, and programs run to their end with their output. For the
 * thread of a test.
 */
#include "tests/lib/harness.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static void proc_path(char *path, size_t size, pid_t pid, const char *name)
{
	if (pid)
		snprintf(path, size, "/proc/%d/%s", (int)pid, name);
	else
		snprintf(path, size, "/proc/self/%s", name);
}

static unsigned int count_entries(pid_t pid, const char *name)
{
	char path[64];
	unsigned int count = 0;

	proc_path(path, sizeof path, pid, name);

	DIR *directory = opendir(path);

	if (!directory)
		fail_case("%s: %s", path, strerror(errno));
	for (struct dirent *entry; (entry = readdir(directory));)
		count += entry->d_name[0] != '.';
	closedir(directory);
	return count;
}

unsigned int harness_count_fds(pid_t pid)
{
	/* The caller's own list contains the fd it is read through. */
	return count_entries(pid, "fd") - (pid == 0 || pid == getpid() ? 1 : 0);
}

unsigned int harness_count_threads(pid_t pid)
{
	return count_entries(pid, "task");
}

static unsigned int count_maps(pid_t pid, bool shared_only)
{
	char path[64], permissions[8], *line = NULL;
	size_t size = 0;
	unsigned int count = 0;

	proc_path(path, sizeof path, pid, "maps");

	FILE *file = fopen(path, "re");

	if (!file)
		fail_case("%s: %s", path, strerror(errno));
	while (getline(&line, &size, file) > 0) {
		if (sscanf(line, "%*s %7s", permissions) == 1)
			count += !shared_only || permissions[3] == 's';
	}
	free(line);
	fclose(file);
	return count;
}

unsigned int harness_count_maps(pid_t pid)
{
	return count_maps(pid, false);
}

unsigned int harness_count_shared_maps(pid_t pid)
{
	return count_maps(pid, true);
}

uint64_t harness_count_sleeps(pid_t pid)
{
	char path[64], line[256];
	uint64_t sum = 0;

	proc_path(path, sizeof path, pid, "task");

	DIR *directory = opendir(path);

	if (!directory)
		fail_case("%s: %s", path, strerror(errno));
	for (struct dirent *entry; (entry = readdir(directory));) {
		char status[352];
		uint64_t count;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(status, sizeof status, "%s/%s/status", path, entry->d_name);

		FILE *file = fopen(status, "re");

		if (!file)
			continue; /* the thread has ended */
		while (fgets(line, sizeof line, file)) {
			/*
			 * A thread of the kernel's own: Linux 5.10 and 6.1 give a read of a pipe to
			 * one, which looks every 5 s whether it is still needed.
			 */
			if (strncmp(line, "Name:\tiou-wrk-", 14) == 0)
				break;
			if (sscanf(line, "voluntary_ctxt_switches: %" SCNu64, &count) == 1)
				sum += count;
		}
		fclose(file);
	}
	closedir(directory);
	return sum;
}

/* Appends what is there; false at the end. */
static bool read_some(int fd, char **text, size_t *length)
{
	char chunk[4096];
	ssize_t n = read(fd, chunk, sizeof chunk);

	if (n < 0 && errno == EINTR)
		return true;
	if (n <= 0)
		return false;

	char *grown = realloc(*text, *length + (size_t)n + 1);

	if (!grown)
		fail_case("out of memory");
	memcpy(grown + *length, chunk, (size_t)n);
	*length += (size_t)n;
	grown[*length] = '\0';
	*text = grown;
	return true;
}

void harness_run(struct harness_output *output, int timeout_ms, const char *const *argv)
{
	int64_t end = harness_now_ms() + harness_scaled_ms(timeout_ms);
	int out[2], err[2], status;
	size_t out_length = 0, err_length = 0;
	posix_spawn_file_actions_t actions;
	pid_t pid;

	if (pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0)
		fail_case("pipe: %s", strerror(errno));
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, out[1], 1);
	posix_spawn_file_actions_adddup2(&actions, err[1], 2);

	int r = posix_spawnp(&pid, argv[0], &actions, NULL, (char *const *)argv, environ);

	posix_spawn_file_actions_destroy(&actions);
	close(out[1]);
	close(err[1]);
	if (r != 0)
		fail_case("%s: %s", argv[0], strerror(r));

	*output = (struct harness_output){.out = strdup(""), .err = strdup("")};

	struct pollfd fds[2] = {
		{.fd = out[0], .events = POLLIN},
		{.fd = err[0], .events = POLLIN},
	};

	while (fds[0].fd >= 0 || fds[1].fd >= 0) {
		int64_t left = end - harness_now_ms();

		if (left <= 0 || poll(fds, 2, (int)left) == 0) {
			kill(pid, SIGKILL);
			fail_case("%s did not end in time; stdout:\n%sstderr:\n%s", argv[0],
				  output->out, output->err);
		}
		if (fds[0].revents && !read_some(out[0], &output->out, &out_length))
			fds[0].fd = -1;
		if (fds[1].revents && !read_some(err[0], &output->err, &err_length))
			fds[1].fd = -1;
	}
	close(out[0]);
	close(err[0]);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	output->status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void harness_output_clear(struct harness_output *output)
{
	free(output->out);
	free(output->err);
	*output = (struct harness_output){0};
}

char *harness_built(const char *path)
{
	char *full;

	if (asprintf(&full, "%s/%s", DMASYNC_BUILD_ROOT, path) < 0)
		fail_case("out of memory");
	return full;
}
