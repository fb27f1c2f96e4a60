/* SPDX-License-Identifier: MIT */
/* A worker that somebody moves to another CPU says so and goes back. One thread. */
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/e2e/support.h"

static bool logged(const struct harness_daemon *daemon, const char *sentence)
{
	char text[16384];
	FILE *file = fopen(daemon->log, "re");

	check(file);
	text[fread(text, 1, sizeof text - 1, file)] = '\0';
	fclose(file);
	return strstr(text, sentence) != NULL;
}

/* The thread of that name. */
static pid_t thread_of(pid_t process, const char *name)
{
	char path[96], line[32];
	pid_t found = 0;
	DIR *threads;

	snprintf(path, sizeof path, "/proc/%d/task", (int)process);
	threads = opendir(path);
	check(threads);
	for (struct dirent *entry = readdir(threads); entry; entry = readdir(threads)) {
		snprintf(path, sizeof path, "/proc/%d/task/%.20s/comm", (int)process,
			 entry->d_name);
		FILE *file = fopen(path, "re");

		if (!file)
			continue;
		if (fgets(line, sizeof line, file) && strncmp(line, name, strlen(name)) == 0)
			found = (pid_t)atoi(entry->d_name);
		fclose(file);
	}
	closedir(threads);
	check(found);
	return found;
}

static int only_cpu(pid_t thread)
{
	cpu_set_t set;

	check_int(sched_getaffinity(thread, sizeof set, &set), 0);
	if (CPU_COUNT(&set) == 1)
		for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
			if (CPU_ISSET((unsigned int)cpu, &set))
				return cpu;
	return -1;
}

static void a_worker_that_was_moved_goes_back(void)
{
	struct range line = {DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, LINE, 0, 0};
	struct harness_daemon server;
	struct client client;
	struct memory memory;
	struct dmasync_completion done;
	cpu_set_t others;
	char sentence[128];

	check_int(sched_getaffinity(0, sizeof others, &others), 0);
	if (CPU_COUNT(&others) < 2)
		harness_skip("one CPU: there is none to be moved to");
	harness_daemon_start(&server, SIMULATED_CONFIG, NULL);
	client_open(&client, server.socket, 4, 4);
	memory_alloc(&memory, client.ds, 4096);
	client_run(&client, memory.buffer, &line, 1, &done);

	pid_t worker = thread_of(server.pid, "worker-0");
	int home = only_cpu(worker);

	check(home >= 0);
	CPU_CLR((unsigned int)home, &others);
	check_int(sched_setaffinity(worker, sizeof others, &others), 0);

	/* Its next batch shows it, and is done. */
	client_run(&client, memory.buffer, &line, 1, &done);
	harness_until(only_cpu(worker) == home, PATIENCE_MS);
	snprintf(sentence, sizeof sentence,
		 "worker 0 was moved off CPU %d, which it may use: it is pinned there again", home);
	harness_until(logged(&server, sentence), PATIENCE_MS);
	client_run(&client, memory.buffer, &line, 1, &done);
	check_int(only_cpu(worker), home);

	memory_free(&memory);
	client_close(&client);
	harness_daemon_stop(&server);
}

/* As after a hotplug or a change of the cpuset that took no worker's CPU: nothing tells of it. */
static void one_cpu_left_ends_the_spinning(void)
{
	struct range line = {DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, LINE, 0, 0};
	struct dmasync_completion done;
	struct harness_daemon server;
	struct client client;
	struct memory memory;
	struct raw observer;
	struct raw_queue queue;
	cpu_set_t all, one;

	check_int(sched_getaffinity(0, sizeof all, &all), 0);
	if (CPU_COUNT(&all) < 2)
		harness_skip("one CPU: there are never more");
	harness_daemon_start(&server, SIMULATED_CONFIG, NULL);
	client_open(&client, server.socket, 4, 4);
	memory_alloc(&memory, client.ds, 4096);
	client_run(&client, memory.buffer, &line, 1, &done);
	check(!logged(&server, "one CPU is left"));

	/* The main thread's are those that the process may use; the worker keeps its own. */
	CPU_ZERO(&one);
	CPU_SET((unsigned int)only_cpu(thread_of(server.pid, "worker-0")), &one);
	check_int(sched_setaffinity(server.pid, sizeof one, &one), 0);
	raw_open(&observer, server.socket);
	raw_queue_open(&queue, &observer, 2, 2);
	harness_until(logged(&server, "one CPU is left to this process"), PATIENCE_MS);
	client_run(&client, memory.buffer, &line, 1, &done);
	raw_queue_close(&queue);

	check_int(sched_setaffinity(server.pid, sizeof all, &all), 0);
	raw_queue_open(&queue, &observer, 2, 2);
	harness_until(logged(&server, "there is more than one CPU again"), PATIENCE_MS);
	client_run(&client, memory.buffer, &line, 1, &done);

	raw_queue_close(&queue);
	raw_close(&observer);
	memory_free(&memory);
	client_close(&client);
	harness_daemon_stop(&server);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(a_worker_that_was_moved_goes_back),
	HARNESS_CASE(one_cpu_left_ends_the_spinning),
};

HARNESS_MAIN(cases)
