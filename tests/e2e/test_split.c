/* SPDX-License-Identifier: MIT */
/*
 * Several workers that share batches: what reaches memory when all of them are home and helper at
 * once, and what is left of clients that are killed in the middle. Parent and forked clients, one
 * thread each.
 */
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/support.h"

enum { SIZE = 1 << 20, CLIENTS = 3 };

/* Small slices, so that a batch has many parts; a second client finds other ones in line. */
#define SPLIT_CONFIG                                                                               \
	SIMULATED_CONFIG                                                                           \
	"workers = 2\nsplit_lines = 1024\nslice_lines = 256\nshare_barrier = yes\n"

static struct harness_daemon server;

static const struct range to_device = {DMASYNC_FOR_DEVICE, DMASYNC_BIDIRECTIONAL, 0, SIZE, 0, 0};
static const struct range from_device = {DMASYNC_FOR_CPU, DMASYNC_BIDIRECTIONAL, 0, SIZE, 0, 0};

static void start(void)
{
	struct dmasync_stats_reply stats;
	struct raw observer;

	harness_daemon_start(&server, SPLIT_CONFIG, NULL);
	raw_open(&observer, server.socket);
	raw_stats(&observer, &stats);
	raw_close(&observer);
	if (stats.workers < 2) {
		harness_daemon_stop(&server);
		harness_skip("one CPU: no second worker to share a batch with");
	}
}

static struct dmasync_stats_reply stats_of_server(void)
{
	struct dmasync_stats_reply stats;
	struct raw observer;

	raw_open(&observer, server.socket);
	raw_stats(&observer, &stats);
	raw_close(&observer);
	return stats;
}

/* A whole buffer to the device and back, every line looked at. */
static void round_trip(struct client *client, struct memory *memory)
{
	struct dmasync_completion done;
	struct stripes stripes;

	stripes_begin(&stripes, SIZE);
	stripe(&stripes, memory->cpu);
	client_run(client, memory->buffer, &to_device, 1, &done);
	check_int(done.lines, SIZE / LINE);
	stripes_expect(&stripes, &to_device);
	stripes_check(&stripes, memory->device, &to_device);

	stripe(&stripes, memory->device);
	client_run(client, memory->buffer, &from_device, 1, &done);
	check_int(done.lines, SIZE / LINE);
	stripes_expect(&stripes, &from_device);
	stripes_check(&stripes, memory->cpu, &from_device);
	stripes_end(&stripes);
}

static void contents_of_clients_side_by_side(void)
{
	pid_t children[CLIENTS];
	int status;

	start();
	for (int i = 0; i < CLIENTS; i++) {
		children[i] = fork();
		check(children[i] >= 0);
		if (children[i] == 0) {
			struct client client;
			struct memory memory;

			client_open(&client, server.socket, 4, 4);
			memory_alloc(&memory, client.ds, SIZE);
			for (uint64_t n = 0; n < rounds(40); n++)
				round_trip(&client, &memory);
			memory_free(&memory);
			client_close(&client);
			_exit(0);
		}
	}
	for (int i = 0; i < CLIENTS; i++) {
		check_int(waitpid(children[i], &status, 0), children[i]);
		check(WIFEXITED(status));
		check_int(WEXITSTATUS(status), 0);
	}

	struct dmasync_stats_reply stats = stats_of_server();

	check_int(stats.failed, 0);
	check_int(stats.lines, CLIENTS * rounds(40) * 2 * SIZE / LINE);
	harness_daemon_stop(&server);
}

/* It submits more than can be done until it is killed. */
static _Noreturn void run_victim(int ready)
{
	struct client client;
	struct memory memory;

	client_open(&client, server.socket, 8, 8);
	memory_alloc(&memory, client.ds, SIZE);
	for (uint64_t i = 0; i < 8; i++)
		client_submit(&client, memory.buffer, i % 2 ? &from_device : &to_device, 1, i);
	check_int(write(ready, "", 1), 1);
	for (;;)
		pause();
}

static void kill_in_the_middle(long after_us)
{
	int ready[2], status;
	char byte;

	check_int(pipe(ready), 0);

	pid_t victim = fork();

	check(victim >= 0);
	if (victim == 0)
		run_victim(ready[1]);
	close(ready[1]);
	check_int(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	poll(NULL, 0, (int)(after_us / 1000));
	kill(victim, SIGKILL);
	check_int(waitpid(victim, &status, 0), victim);
	check(WIFSIGNALED(status));
}

static void clients_killed_in_the_middle(void)
{
	struct client bystander;
	struct memory memory;
	struct holdings before;

	start();
	client_open(&bystander, server.socket, 4, 4);
	memory_alloc(&memory, bystander.ds, SIZE);
	/* Until one was shared: which worker has nothing to do is the machine's affair. */
	do
		round_trip(&bystander, &memory);
	while (stats_of_server().batches_split == 0);
	before = holdings_of(&server);
	srandom(1);
	for (uint64_t i = 0; i < rounds(60); i++) {
		kill_in_the_middle(random() % 4000);
		if (i % 4 == 0)
			round_trip(&bystander, &memory);
	}
	holdings_await(&server, &before);
	check_int(stats_of_server().faults, 0);
	round_trip(&bystander, &memory);
	memory_free(&memory);
	client_close(&bystander);
	harness_daemon_stop(&server);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(contents_of_clients_side_by_side, .timeout_s = 60),
	HARNESS_CASE(clients_killed_in_the_middle, .timeout_s = 60),
};

HARNESS_MAIN(cases)
