/* SPDX-License-Identifier: MIT */
/* Clients that come, look around, misbehave and die: the daemon ends up holding what it held. */
#include <dmasync/dmasync.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/connection/requests.h"

static const char simulated[] = "[daemon]\nallow_simulated=yes\n";

/* ---- death ---- */

/* A client with all there is, which then waits to be killed. */
static _Noreturn void hold_everything(const struct harness_daemon *daemon, int stage, int ready)
{
	int socket = harness_connect(daemon->socket);
	struct dmasync_hello_reply hello;
	int fds[DMASYNC_QUEUE_FDS];
	union reply reply;

	if (stage > 0)
		harness_hello(socket, &hello);
	if (stage > 1) {
		for (int i = 0; i < 3; i++) {
			int fd = harness_memfd(3 * 65536, F_SEAL_SHRINK);

			check_int(requests_add(socket, fd, 0, DMASYNC_BACKEND_SIMULATED, 0, &reply),
				  0);
			close(fd);
		}
	}
	if (stage > 2) {
		check_int(requests_queue(socket, 8, 64, &reply, fds), 0);
		check_int(requests_queue(socket, 8, 64, &reply, fds), 0);
	}
	if (stage > 3) {
		struct dmasync_watch watch = {.enable = 1};

		check_int(requests_call(socket, DMASYNC_OP_WATCH, &watch, sizeof watch, NULL, 0,
					&reply),
			  0);
	}
	if (stage > 4) { /* unanswered requests */
		static unsigned char bytes[sizeof(struct dmasync_sync_request) + 4000 * 16];
		struct dmasync_sync_request *sync = (void *)bytes;
		struct dmasync_buffer_remove remove = {
			.header = {.size = sizeof remove, .opcode = DMASYNC_OP_BUFFER_REMOVE},
			.handle = 1u << 14,
		};
		struct dmasync_unit *units = (void *)(sync + 1);

		sync->header.size = sizeof bytes;
		sync->header.opcode = DMASYNC_OP_SYNC;
		sync->count = 4000;
		for (int i = 0; i < 4000; i++)
			units[i] = requests_unit(1u << 14, 0, 65536);
		for (int i = 0; i < 4; i++)
			check_int(harness_send(socket, bytes, sizeof bytes, NULL, 0), 0);
		check_int(harness_send(socket, &remove, sizeof remove, NULL, 0), 0);
	}
	check_int(write(ready, "x", 1), 1);
	for (;;)
		pause();
}

static pid_t start_holder(const struct harness_daemon *daemon, int stage)
{
	int ready[2];
	char byte;

	check_int(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();

	check(pid >= 0);
	if (pid == 0)
		hold_everything(daemon, stage, ready[1]);
	close(ready[1]);
	check_int(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

static void killed_clients(void)
{
	struct harness_daemon daemon;
	struct dmasync_stats_reply stats;

	harness_daemon_start(&daemon, simulated, NULL);
	int socket = requests_connect(&daemon);
	struct requests_holdings before = requests_holdings(&daemon);

	for (int round = 0; round < 3; round++) {
		for (int stage = 0; stage <= 5; stage++) {
			pid_t pid = start_holder(&daemon, stage);

			check_int(kill(pid, SIGKILL), 0);
			check_int(waitpid(pid, NULL, 0), pid);
			requests_same_holdings(&daemon, before);
			harness_until((requests_stats(socket, &stats), stats.clients == 1), 5000);
			check_int(stats.buffers, 0);
			check_int(stats.queues, 0);
			check_int(stats.mapped_bytes, 0);
		}
	}
	check_int(stats.connections, 1 + 3 * 6);
	close(socket);
	harness_daemon_stop(&daemon);
}

/* The daemon stops while clients hold all of it. */
static void stop_with_clients(void)
{
	struct harness_daemon daemon;
	pid_t pids[6];

	harness_daemon_start(&daemon, simulated, NULL);
	for (int stage = 0; stage <= 5; stage++)
		pids[stage] = start_holder(&daemon, stage);
	harness_daemon_stop(&daemon);
	for (int stage = 0; stage <= 5; stage++) {
		kill(pids[stage], SIGKILL);
		check_int(waitpid(pids[stage], NULL, 0), pids[stage]);
	}
}

/* The socket stays open in the child: only the parent's death tells. */
static void forked_child_holds_the_socket(void)
{
	struct harness_daemon daemon;
	int child_pid[2];
	pid_t child;

	harness_daemon_start(&daemon, simulated, NULL);
	struct requests_holdings before = requests_holdings(&daemon);

	check_int(pipe2(child_pid, O_CLOEXEC), 0);
	pid_t parent = fork();

	check(parent >= 0);
	if (parent == 0) {
		int fds[DMASYNC_QUEUE_FDS], socket = requests_connect(&daemon);
		union reply reply;

		check_int(requests_queue(socket, 8, 64, &reply, fds), 0);
		child = fork();
		if (child == 0)
			for (;;)
				pause();
		check(write(child_pid[1], &child, sizeof child) == sizeof child);
		_exit(0);
	}
	check(read(child_pid[0], &child, sizeof child) == sizeof child);
	check_int(waitpid(parent, NULL, 0), parent);
	requests_same_holdings(&daemon, before);
	check_int(kill(child, SIGKILL), 0);
	close(child_pid[0]);
	close(child_pid[1]);
	harness_daemon_stop(&daemon);
}

static void half_closed(void)
{
	static const int sides[] = {SHUT_RD, SHUT_WR, SHUT_RDWR};
	struct harness_daemon daemon;
	struct dmasync_message request = {.size = sizeof request, .opcode = DMASYNC_OP_STATS};

	harness_daemon_start(&daemon, simulated, NULL);
	struct requests_holdings before = requests_holdings(&daemon);

	for (size_t i = 0; i < 3; i++) {
		int socket = requests_connect(&daemon);

		check_int(shutdown(socket, sides[i]), 0);
		/* Its answer finds nobody: an error of send, no signal, the end. */
		if (sides[i] == SHUT_RD)
			check_int(harness_send(socket, &request, sizeof request, NULL, 0), 0);
		requests_same_holdings(&daemon, before);
		close(socket);
	}
	/* Gone before the answers: they find nobody either. */
	for (int i = 0; i < 20; i++) {
		int socket = requests_connect(&daemon);

		for (int j = 0; j < 5; j++)
			check_int(harness_send(socket, &request, sizeof request, NULL, 0), 0);
		close(socket);
	}
	requests_same_holdings(&daemon, before);
	harness_daemon_stop(&daemon);
}

/* ---- those that come and do not behave ---- */

static void silent_client(void)
{
	struct harness_daemon daemon;

	harness_daemon_start(&daemon, "[limits]\nhandshake_timeout_ms=50\n", NULL);
	struct requests_holdings before = requests_holdings(&daemon);
	int greeted = requests_connect(&daemon), silent = harness_connect(daemon.socket);
	struct dmasync_stats_reply stats;

	requests_closed_with(silent, -ETIMEDOUT);
	requests_stats(greeted, &stats); /* whose own time is long over */
	close(silent);
	close(greeted);
	requests_same_holdings(&daemon, before);
	harness_daemon_stop(&daemon);
}

static void too_many_connections(void)
{
	struct harness_daemon daemon;
	struct dmasync_stats_reply stats;

	harness_daemon_start(&daemon, "[limits]\nmax_connections=2\n", NULL);
	int first = requests_connect(&daemon), second = requests_connect(&daemon);

	for (int i = 0; i < 10; i++) {
		int third = harness_connect(daemon.socket);

		requests_closed_with(third, -EUSERS);
		close(third);

		/* The library says why, whether the refusal or its HELLO came first. */
		struct dmasync_connect_params params;
		struct dmasync *library;
		char reason[256] = "";

		dmasync_connect_params_init(&params);
		params.socket = daemon.socket;
		params.error_text = reason;
		params.error_text_size = sizeof reason;
		check_int(dmasync_connect_with(&params, &library), -EUSERS);
		check(strstr(reason, "max_connections=2"));
	}
	close(second);
	harness_until((requests_stats(first, &stats), stats.clients == 1), 5000);
	second = requests_connect(&daemon);
	requests_stats(second, &stats);
	check_int(stats.clients, 2);
	close(second);
	close(first);
	harness_daemon_stop(&daemon);
}

#define WAITING 8

static unsigned long cpu_ticks(pid_t pid)
{
	char path[64], text[1024];
	unsigned long user, system;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	FILE *file = fopen(path, "re");

	check(file);
	check(fgets(text, sizeof text, file));
	fclose(file);
	const char *after = strrchr(text, ')');

	check(after);
	check_int(sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
			 &system),
		  2);
	return user + system;
}

/* No fd for one more: somebody is told, nobody spins, and it goes on once there are fds again. */
static void no_fds_for_accept(void)
{
	struct harness_daemon daemon;
	struct rlimit limit, low;
	struct dmasync_stats_reply stats;
	struct pollfd waiting[WAITING];
	union reply reply;
	int told = 0;

	harness_daemon_start(&daemon, "", NULL);
	int first = requests_connect(&daemon);

	check_int(prlimit(daemon.pid, RLIMIT_NOFILE, NULL, &limit), 0);
	low = limit;
	low.rlim_cur = harness_count_fds(daemon.pid); /* or one more, where there is a gap */
	check_int(prlimit(daemon.pid, RLIMIT_NOFILE, &low, NULL), 0);
	for (int i = 0; i < WAITING; i++)
		waiting[i] =
			(struct pollfd){.fd = harness_connect(daemon.socket), .events = POLLIN};
	check(poll(waiting, WAITING, (int)harness_scaled_ms(4000)) > 0);
	for (int i = 0; i < WAITING; i++) {
		if (!(waiting[i].revents & POLLIN))
			continue;
		check_int(harness_receive(waiting[i].fd, &reply, sizeof reply, NULL, NULL, 1000),
			  sizeof reply.error);
		check_int(reply.error.error, -EMFILE);
		told++;
	}
	check(told > 0);
	requests_stats(first, &stats); /* who is there is served meanwhile */

	unsigned long before = cpu_ticks(daemon.pid);

	for (int i = 0; i < 300; i++)
		harness_pause();
	/* 0.3 s of a spin are 30 ticks of CPU time; a rest every 0.1 s is none. */
	check(cpu_ticks(daemon.pid) - before < 10);
	check_int(prlimit(daemon.pid, RLIMIT_NOFILE, &limit, NULL), 0);
	for (int i = 0; i < WAITING; i++)
		close(waiting[i].fd);
	int late = requests_connect(&daemon);

	requests_stats(late, &stats);
	close(late);
	close(first);
	harness_daemon_stop(&daemon);
}

/* A reader that does not read stalls itself alone, and finds every answer when it does. */
static void slow_reader(void)
{
	struct harness_daemon daemon;
	struct dmasync_stats_reply stats;
	union reply reply;

	harness_daemon_start(&daemon, "", NULL);
	int slow = requests_connect(&daemon), other = requests_connect(&daemon);
	struct dmasync_histogram request = {
		.header = {.size = sizeof request, .opcode = DMASYNC_OP_HISTOGRAM}};
	unsigned int sent = 0;

	check_int(fcntl(slow, F_SETFL, O_NONBLOCK), 0);
	for (int idle = 0; idle < 50; idle++) {
		while (harness_send(slow, &request, sizeof request, NULL, 0) == 0) {
			request.header.cookie = ++sent;
			idle = 0;
		}
		harness_pause();
	}
	check(sent > 100);
	requests_stats(other, &stats);
	for (unsigned int i = 0; i < sent; i++) {
		check_int(harness_receive(slow, &reply, sizeof reply, NULL, NULL, 5000),
			  sizeof reply.histogram);
		check_int(reply.header.cookie, i);
	}
	close(slow);
	close(other);
	harness_daemon_stop(&daemon);
}

static void too_many_requests(void)
{
	struct harness_daemon daemon;
	struct dmasync_sync_request sync = {
		.header = {.size = sizeof sync, .opcode = DMASYNC_OP_SYNC}};
	struct dmasync_stats_reply stats;
	unsigned int done = 0, refused = 0;

	harness_daemon_start(&daemon, "[limits]\nmax_requests=2\n", NULL);
	int socket = requests_connect(&daemon);

	/* Stopped, so that all of them lie there at once. */
	check_int(kill(daemon.pid, SIGSTOP), 0);
	for (int i = 0; i < 6; i++)
		check_int(harness_send(socket, &sync, sizeof sync, NULL, 0), 0);
	check_int(kill(daemon.pid, SIGCONT), 0);
	for (int i = 0; i < 6; i++) {
		union reply reply;

		check(harness_receive(socket, &reply, sizeof reply, NULL, NULL, 5000) > 0);
		if (reply.header.flags & DMASYNC_MESSAGE_ERROR) {
			check_int(reply.error.error, -EBUSY);
			check(strstr(reply.error.text, "max_requests=2"));
			refused++;
		} else {
			done++;
		}
	}
	check_int(done, 2);
	check_int(refused, 4);
	requests_stats(socket, &stats);
	close(socket);
	harness_daemon_stop(&daemon);
}

/* The close of what it sent hangs; the loop answers meanwhile, and so do its own requests. */
static void fd_whose_close_blocks(void)
{
	struct harness_daemon daemon;
	struct dmasync_buffer_add add = {
		.header = {.size = sizeof add, .opcode = DMASYNC_OP_BUFFER_ADD}};
	struct dmasync_stats_reply stats;
	union reply reply;
	int peers[3];

	harness_daemon_start(&daemon, "", NULL);
	int socket = requests_connect(&daemon), other = requests_connect(&daemon);
	struct requests_holdings before = requests_holdings(&daemon);

	/* Stopped, so that the daemon's copies are the last ones and its close the one that waits.
	 */
	check_int(kill(daemon.pid, SIGSTOP), 0);
	for (int i = 0; i < 3; i++) {
		int fd = requests_lingering_socket(&peers[i]);

		check_int(harness_send(socket, &add, sizeof add, (const int[]){fd, fd}, 2), 0);
		close(fd);
	}
	check_int(kill(daemon.pid, SIGCONT), 0);
	for (int i = 0; i < 3; i++) {
		check_int(harness_receive(socket, &reply, sizeof reply, NULL, NULL, 4000),
			  sizeof reply.error);
		check_int(reply.error.error, -EINVAL);
	}
	requests_stats(other, &stats);
	requests_stats(socket, &stats);
	/* Answered while the fds are still being closed. */
	check(harness_count_fds(daemon.pid) > before.fds);
	for (int i = 0; i < 3; i++)
		close(peers[i]);
	requests_same_holdings(&daemon, before);
	close(socket);
	close(other);
	harness_daemon_stop(&daemon);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(killed_clients, .timeout_s = 60),
	HARNESS_CASE(stop_with_clients),
	HARNESS_CASE(forked_child_holds_the_socket),
	HARNESS_CASE(half_closed),
	HARNESS_CASE(silent_client),
	HARNESS_CASE(too_many_connections),
	HARNESS_CASE(no_fds_for_accept),
	HARNESS_CASE(slow_reader),
	HARNESS_CASE(too_many_requests),
	HARNESS_CASE(fd_whose_close_blocks),
};

HARNESS_MAIN(cases)
