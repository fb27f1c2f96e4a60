/* SPDX-License-Identifier: MIT */
/*
 * Clients that send fds whose close hangs, against the real daemon: it may hold up more such
 * closes, and nothing else of anybody. One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/connection/requests.h"

/* A TCP socket whose close waits for a peer that does not read. */
static int lingering_socket(int *ret_peer)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct linger linger = {.l_onoff = 1, .l_linger = 600};
	socklen_t size = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	static char bytes[65536];

	check(listener >= 0 && fd >= 0);
	check_int(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
	check_int(listen(listener, 1), 0);
	check_int(getsockname(listener, (struct sockaddr *)&address, &size), 0);
	check_int(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
	*ret_peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	check(*ret_peer >= 0);
	close(listener);
	check_int(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger), 0);
	while (send(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
		;
	return fd;
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
		int fd = lingering_socket(&peers[i]);

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

#define CROWD 10 /* more than there are helper threads, at one hanging close each */

/* What anybody needs a helper thread for. */
static void check_served(int socket)
{
	int fd = harness_memfd(4096, F_SEAL_SHRINK);
	union reply reply;

	check_int(requests_add(socket, fd, 0, DMASYNC_BACKEND_NONE, 0, &reply), 0);
	check_int(requests_remove(socket, reply.buffer.handle), 0);
	close(fd);
}

/* One process that makes many connections has no more of the helper threads for that. */
static void many_clients_whose_closes_hang(void)
{
	struct dmasync_message stats = {.size = sizeof stats, .opcode = DMASYNC_OP_STATS};
	struct harness_daemon daemon;
	int crowd[CROWD], peers[CROWD];

	harness_daemon_start(&daemon, "", NULL);
	int good = requests_connect(&daemon);
	struct requests_holdings before = requests_holdings(&daemon);

	for (int i = 0; i < CROWD; i++)
		crowd[i] = requests_connect(&daemon);
	check_int(kill(daemon.pid, SIGSTOP), 0); /* as above */
	for (int i = 0; i < CROWD; i++) {
		int fd = lingering_socket(&peers[i]);

		check_int(harness_send(crowd[i], &stats, sizeof stats, &fd, 1), 0);
		close(fd);
	}
	check_int(kill(daemon.pid, SIGCONT), 0);
	for (int i = 0; i < CROWD; i++) {
		union reply reply;

		check_int(harness_receive(crowd[i], &reply, sizeof reply, NULL, NULL, 4000),
			  sizeof reply.error);
	}
	check_served(good);
	for (int i = 0; i < CROWD; i++) {
		close(peers[i]);
		close(crowd[i]);
	}
	requests_same_holdings(&daemon, before);
	close(good);
	harness_daemon_stop(&daemon);
}

/* The same by connections that are refused, with the fds in their unread packets. */
static void refused_clients_whose_closes_hang(void)
{
	struct dmasync_message stats = {.size = sizeof stats, .opcode = DMASYNC_OP_STATS};
	struct harness_daemon daemon;
	int crowd[CROWD], peers[CROWD];

	harness_daemon_start(&daemon, "[limits]\nmax_connections=1\n", NULL);
	int good = requests_connect(&daemon);
	struct requests_holdings before = requests_holdings(&daemon);

	check_int(kill(daemon.pid, SIGSTOP), 0);
	for (int i = 0; i < CROWD; i++) {
		int fd = lingering_socket(&peers[i]);

		crowd[i] = harness_connect(daemon.socket);
		check_int(harness_send(crowd[i], &stats, sizeof stats, &fd, 1), 0);
		close(fd);
	}
	check_int(kill(daemon.pid, SIGCONT), 0);
	for (int i = 0; i < CROWD; i++)
		requests_closed_with(crowd[i], -EUSERS);
	check_served(good);
	for (int i = 0; i < CROWD; i++) {
		close(peers[i]);
		close(crowd[i]);
	}
	requests_same_holdings(&daemon, before);
	close(good);
	harness_daemon_stop(&daemon);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(fd_whose_close_blocks),
	HARNESS_CASE(many_clients_whose_closes_hang),
	HARNESS_CASE(refused_clients_whose_closes_hang),
};

HARNESS_MAIN(cases)
