/* SPDX-License-Identifier: MIT */
/* What the daemon charges to whom, to the last file, and what it refuses whom. */
#include <errno.h>
#include <fcntl.h>
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

/* ---- exactly what there is ---- */

static void exact_counts(void)
{
	struct harness_daemon daemon;
	struct dmasync_client_record client;
	struct dmasync_user_record user;
	struct dmasync_stats_reply stats;
	struct dmasync_watch watch = {.enable = 1};
	union reply reply;
	int fds[DMASYNC_QUEUE_FDS];

	harness_daemon_start(&daemon, simulated, NULL);
	int socket = requests_connect(&daemon), other = requests_connect(&daemon);

	for (int i = 0; i < 3; i++) {
		int fd = harness_memfd(3 * 65536, F_SEAL_SHRINK);

		check_int(requests_add(other, fd, 0, DMASYNC_BACKEND_SIMULATED, 0, &reply), 0);
		close(fd);
	}
	uint32_t handle = reply.buffer.handle;

	/* header, submissions, completions, units; and the units once more */
	struct dmasync_ring_layout layout;

	check(dmasync_ring_layout(8, 64, &layout));
	for (int i = 0; i < 2; i++) {
		check_int(requests_queue(other, 8, 64, &reply, fds), 0);
		for (int j = 0; j < DMASYNC_QUEUE_FDS; j++)
			close(fds[j]);
	}
	check_int(requests_call(other, DMASYNC_OP_WATCH, &watch, sizeof watch, NULL, 0, &reply), 0);

	/* The fds of memfds are closed by helpers. */
	harness_until((requests_client(socket, 2, &client), client.files == 2 + 2 * 2), 5000);
	check_int(client.buffers, 3);
	check_int(client.mapped_bytes, 3 * 3 * 65536);
	check_int(client.queues, 2);
	check_int(client.queue_bytes, 2 * (layout.size + 64 * 16));
	check_int(client.maps, 3 * 6 + 2 * 2);
	check_int(client.places, 2 * 8);
	check_int(client.requests, 0);
	check_int(client.answers, 0);
	check_int(client.watches, 1);

	requests_user(socket, getuid(), &user);
	check_int(user.connections, 2);
	check_int(user.files, client.files + 2);
	check_int(user.maps, client.maps);
	check_int(user.places, client.places);
	check_int(user.mapped_bytes, client.mapped_bytes);
	check_int(user.queue_bytes, client.queue_bytes);
	check_int(user.watches, 1);
	check_int(user.over_limit, 0);

	check_int(requests_remove(other, handle), 0);
	check_int(requests_queue_remove(other, 1), 0);
	requests_client(socket, 2, &client);
	check_int(client.buffers, 2);
	check_int(client.mapped_bytes, 2 * 3 * 65536);
	check_int(client.queues, 1);
	check_int(client.maps, 2 * 6 + 2);
	check_int(client.files, 2 + 2);
	check_int(client.places, 8);

	/* All the daemon has open beside its own is charged to somebody. */
	requests_stats(socket, &stats);
	struct requests_holdings with = requests_holdings(&daemon);

	close(other);
	harness_until(requests_alone(socket), 5000);
	check_int(with.fds - harness_count_fds(daemon.pid), stats.files - 2);
	close(socket);
	harness_daemon_stop(&daemon);
}

/* Refusals of all kinds leave nothing charged. */
static void refusals_cost_nothing(void)
{
	struct harness_daemon daemon;
	union reply reply;
	int fds[DMASYNC_QUEUE_FDS];
	struct dmasync_message probe = {0};

	harness_daemon_start(&daemon,
			     "[daemon]\nallow_simulated=yes\n[limits]\nmax_buffers=2\n"
			     "max_buffer_bytes=1M\nmax_queues=1\n",
			     NULL);
	int socket = requests_connect(&daemon);
	int small = harness_memfd(3 * 4096, F_SEAL_SHRINK), null = open("/dev/null", O_RDONLY);
	int large = harness_memfd(3 << 20, F_SEAL_SHRINK);

	check(requests_alone(socket));
	for (int i = 0; i < 20; i++) {
		check(requests_add(socket, null, 0, DMASYNC_BACKEND_AUTO, 0, &reply) < 0);
		check_int(requests_add(socket, large, 0, DMASYNC_BACKEND_SIMULATED, 0, &reply),
			  -ENOSPC);
		check(requests_add(socket, small, 0, DMASYNC_BACKEND_KERNEL, 0, &reply) < 0);
		check_int(requests_call(socket, DMASYNC_OP_PROBE, &probe, sizeof probe, &null, 1,
					&reply),
			  0);
		check_int(requests_queue(socket, 3, 64, &reply, fds), -EINVAL);
		struct dmasync_unit unit = requests_unit(4711, 0, 64);

		check_int(requests_sync(socket, &unit, 1, &reply), 0);
		/* and fds that nothing takes */
		check(requests_call(socket, DMASYNC_OP_STATS, &probe, sizeof probe,
				    (const int[]){null, small}, 2, &reply) < 0);
		check(requests_call(socket, 999, &probe, sizeof probe,
				    (const int[]){null, small, large}, 3, &reply) < 0);
	}
	harness_until(requests_alone(socket), 5000);
	close(small);
	close(large);
	close(null);
	close(socket);
	harness_daemon_stop(&daemon);
}

/* ---- limits of a user over all its connections ---- */

static void limits_of_a_user(void)
{
	struct harness_daemon daemon;
	struct dmasync_user_record user;
	union reply reply;
	int fds[DMASYNC_QUEUE_FDS];

	harness_daemon_start(&daemon,
			     "[daemon]\nallow_simulated=yes\n[limits]\nuser_connections=3\n"
			     "user_buffers=3\nuser_queues=2\nuser_batches=48\n",
			     NULL);
	int first = requests_connect(&daemon), second = requests_connect(&daemon);
	int memfd = harness_memfd(3 * 4096, F_SEAL_SHRINK);

	for (int i = 0; i < 3; i++)
		check_int(requests_add(i % 2 ? first : second, memfd, 0, DMASYNC_BACKEND_SIMULATED,
				       0, &reply),
			  0);
	struct dmasync_buffer_add add = {.backend = DMASYNC_BACKEND_SIMULATED};

	requests_refused(first, DMASYNC_OP_BUFFER_ADD, &add, sizeof add, &memfd, 1, -ENOSPC,
			 "user_buffers=3");

	struct dmasync_queue_create create = {.depth = 64, .units = 64};

	requests_refused(first, DMASYNC_OP_QUEUE_CREATE, &create, sizeof create, NULL, 0, -ENOSPC,
			 "user_batches=48");
	check_int(requests_queue(first, 32, 64, &reply, fds), 0);
	for (int j = 0; j < DMASYNC_QUEUE_FDS; j++)
		close(fds[j]);
	check_int(requests_queue(second, 16, 64, &reply, fds), 0);
	for (int j = 0; j < DMASYNC_QUEUE_FDS; j++)
		close(fds[j]);
	create.depth = 2;
	requests_refused(first, DMASYNC_OP_QUEUE_CREATE, &create, sizeof create, NULL, 0, -ENOSPC,
			 "user_");
	check_int(requests_queue_remove(first, 1), 0);
	requests_refused(first, DMASYNC_OP_QUEUE_CREATE,
			 &(struct dmasync_queue_create){.depth = 64, .units = 64}, sizeof create,
			 NULL, 0, -ENOSPC, "user_batches=48");
	check_int(requests_queue(second, 32, 64, &reply, fds), 0);
	for (int j = 0; j < DMASYNC_QUEUE_FDS; j++)
		close(fds[j]);

	int third = requests_connect(&daemon), fourth = harness_connect(daemon.socket);

	requests_closed_with(fourth, -EUSERS);
	requests_user(first, getuid(), &user);
	check_int(user.connections, 3);
	check_int(user.over_limit, 5);
	close(fourth);
	close(third);
	close(second);
	close(memfd);
	check_int(requests_remove(first, 1u << 14), 0);
	harness_until(requests_alone(first), 5000);
	close(first);
	harness_daemon_stop(&daemon);
}

/* ---- refused connections ---- */

/*
 * Sends, before it is accepted, an fd whose close hangs, and is refused: nothing waits, and
 * nothing is left.
 */
static void refused_with_fds(void)
{
	struct harness_daemon daemon;
	struct dmasync_stats_reply stats;
	struct dmasync_message message = {.size = sizeof message, .opcode = DMASYNC_OP_STATS};
	int peers[4];

	harness_daemon_start(&daemon, "[limits]\nmax_connections=1\n", NULL);
	int socket = requests_connect(&daemon);

	check_int(kill(daemon.pid, SIGSTOP), 0);
	for (int i = 0; i < 4; i++) {
		int refused = harness_connect(daemon.socket);
		int fd = requests_lingering_socket(&peers[i]);

		/* Empty packets look like the end. */
		for (int j = 0; j < i; j++)
			check_int(harness_send(refused, &message, 0, NULL, 0), 0);
		check_int(harness_send(refused, &message, i % 2 ? sizeof message : 0, &fd, 1), 0);
		close(fd);
		close(refused);
	}
	/* One without fds, and with a packet: closed at once. */
	int refused = harness_connect(daemon.socket);

	check_int(harness_send(refused, &message, sizeof message, NULL, 0), 0);
	check_int(kill(daemon.pid, SIGCONT), 0);
	requests_closed_with(refused, -EUSERS);
	close(refused);
	/* The closes do not wait for the peers, which would take 5 s each. */
	harness_until(requests_alone(socket), 4000);
	requests_stats(socket, &stats);
	check_int(stats.files, 2);
	for (int i = 0; i < 4; i++)
		close(peers[i]);
	close(socket);
	harness_daemon_stop(&daemon);
}

/*
 * While 253 fds of a user are being closed, a message with fds waits in its socket; one without is
 * answered; and so is another client whose own fds are few.
 */
static void fds_wait_for_fds(void)
{
	struct harness_daemon daemon;
	struct dmasync_stats_reply stats;
	struct dmasync_message probe = {.size = sizeof probe, .opcode = DMASYNC_OP_PROBE};
	union reply reply;
	int peer, fd = requests_lingering_socket(&peer), null = open("/dev/null", O_RDONLY);
	int fds[253];

	harness_daemon_start(&daemon, "", NULL);
	int socket = requests_connect(&daemon), other = requests_connect(&daemon);

	/* The one that hangs comes first, and the job of closing has them all. */
	fds[0] = fd;
	for (int i = 1; i < 253; i++)
		fds[i] = null;
	check_int(kill(daemon.pid, SIGSTOP), 0);
	check_int(harness_send(socket, &probe, sizeof probe, fds, 253), 0);
	close(fd);
	check_int(kill(daemon.pid, SIGCONT), 0);
	check(harness_receive(socket, &reply, sizeof reply, NULL, NULL, 5000) > 0);
	check_int(reply.error.error, -EINVAL);
	requests_stats(other, &stats);
	check_int(stats.files, 2 * 2 + 253);

	/* Of the same user: with an fd it waits, and nothing behind it is read. */
	check_int(harness_send(other, &probe, sizeof probe, &null, 1), 0);
	int third = requests_connect(&daemon);

	for (int i = 0; i < 3; i++)
		requests_stats(third, &stats);
	check_int(stats.files, 3 * 2 + 253);
	check_int(harness_receive(other, &reply, sizeof reply, NULL, NULL, 0), -ETIMEDOUT);
	close(peer);
	check(harness_receive(other, &reply, sizeof reply, NULL, NULL, 5000) > 0);
	check_int(reply.header.opcode, DMASYNC_OP_PROBE);
	check_int(reply.header.flags, DMASYNC_MESSAGE_REPLY);
	close(null);
	close(other);
	close(third);
	harness_until(requests_alone(socket), 5000);
	close(socket);
	harness_daemon_stop(&daemon);
}

/*
 * Answers with fds that nobody reads count against what the daemon may have in flight: a client
 * that was dropped and keeps its end of the socket keeps its connection charged.
 */
static void unread_fds_stay_charged(void)
{
	struct harness_daemon daemon;
	struct dmasync_user_record user;
	struct dmasync_queue_create create = {
		.header = {.size = sizeof create, .opcode = DMASYNC_OP_QUEUE_CREATE},
		.depth = 2,
		.units = 16};
	union reply reply;
	int sockets[3];

	harness_daemon_start(&daemon, "[limits]\nuser_connections=4\n", NULL);
	int socket = requests_connect(&daemon);

	for (int i = 0; i < 3; i++) {
		sockets[i] = requests_connect(&daemon);
		check_int(harness_send(sockets[i], &create, sizeof create, NULL, 0), 0);
		/* No message, and the end of the connection. */
		check_int(harness_send(sockets[i], "x", 1, NULL, 0), 0);
	}
	/* The last of them is gone but for its socket. */
	harness_until((requests_user(socket, getuid(), &user), user.files == 2 + 3), 5000);
	harness_until((requests_user(socket, getuid(), &user), user.queues == 0), 5000);
	check_int(user.connections, 4);
	int refused = harness_connect(daemon.socket);

	requests_closed_with(refused, -EUSERS);
	close(refused);

	/* Read, one is free. */
	int fds[DMASYNC_QUEUE_FDS];
	size_t count = DMASYNC_QUEUE_FDS;

	check(harness_receive(sockets[0], &reply, sizeof reply, fds, &count, 5000) > 0);
	check_int(count, DMASYNC_QUEUE_FDS);
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
	requests_closed_with(sockets[0], -EPROTO);
	harness_until((requests_user(socket, getuid(), &user), user.connections == 3), 5000);
	/* Closed, all are. */
	for (int i = 0; i < 3; i++)
		close(sockets[i]);
	harness_until(requests_alone(socket), 5000);

	/* Nor does one that lingers hold up the end. */
	int last = requests_connect(&daemon);

	check_int(harness_send(last, &create, sizeof create, NULL, 0), 0);
	check_int(harness_send(last, "x", 1, NULL, 0), 0);
	harness_until((requests_user(socket, getuid(), &user), user.files == 2 + 1), 5000);
	close(socket);
	harness_daemon_stop(&daemon);
	close(last);
}

/*
 * The last fds are not for connections: what is refused is refused with room left for all fds that
 * one packet can bring, which then bring nobody in distress.
 */
static void room_for_a_packet(void)
{
	/* The daemon's own, its worker's, its helpers', one packet's; and ten connections. */
	const struct rlimit limit = {32 + 4 + 8 + 253 + 20, 32 + 4 + 8 + 253 + 20};
	struct harness_daemon daemon;
	struct dmasync_stats_reply stats;
	struct dmasync_message probe = {.size = sizeof probe, .opcode = DMASYNC_OP_PROBE};
	union reply reply;
	int sockets[10], fds[253], null = open("/dev/null", O_RDONLY);

	check_int(setrlimit(RLIMIT_NOFILE, &limit), 0);
	harness_daemon_start(&daemon, "", NULL);
	for (int i = 0; i < 10; i++)
		sockets[i] = requests_connect(&daemon);
	for (int i = 0; i < 5; i++) {
		int refused = harness_connect(daemon.socket);

		requests_closed_with(refused, -EMFILE);
		close(refused);
	}
	/* A queue would need two more; and so would a buffer, one. */
	struct dmasync_queue_create create = {.depth = 2, .units = 16};
	struct dmasync_buffer_add add = {0};

	requests_refused(sockets[0], DMASYNC_OP_QUEUE_CREATE, &create, sizeof create, NULL, 0,
			 -EMFILE, "open files");
	requests_refused(sockets[0], DMASYNC_OP_BUFFER_ADD, &add, sizeof add, &null, 1, -EMFILE,
			 "open files");
	for (int i = 0; i < 253; i++)
		fds[i] = null;
	for (int i = 0; i < 10; i++)
		check_int(harness_send(sockets[i], &probe, sizeof probe, fds, 253), 0);
	for (int i = 0; i < 10; i++) {
		check(harness_receive(sockets[i], &reply, sizeof reply, NULL, NULL, 5000) > 0);
		check_int(reply.header.opcode, DMASYNC_OP_PROBE);
		/* Not: "did not all arrive". */
		check_int(reply.error.error, -EINVAL);
	}
	harness_until((requests_stats(sockets[0], &stats), stats.files == 20), 5000);
	for (int i = 1; i < 10; i++)
		close(sockets[i]);
	harness_until(requests_alone(sockets[0]), 5000);
	close(sockets[0]);
	close(null);
	harness_daemon_stop(&daemon);
}

/* A reader that does not read is charged what is kept for it, and one turn later no more than that.
 */
static void unread_answers_are_charged(void)
{
	struct harness_daemon daemon;
	struct dmasync_client_record client;
	struct dmasync_histogram request = {
		.header = {.size = sizeof request, .opcode = DMASYNC_OP_HISTOGRAM}};
	union reply reply;
	unsigned int sent = 0;

	harness_daemon_start(&daemon, "", NULL);
	int socket = requests_connect(&daemon), slow = requests_connect(&daemon);

	check_int(fcntl(slow, F_SETFL, O_NONBLOCK), 0);
	for (int idle = 0; idle < 50; idle++) {
		while (harness_send(slow, &request, sizeof request, NULL, 0) == 0) {
			sent++;
			idle = 0;
		}
		harness_pause();
	}
	requests_client(socket, 2, &client);
	check_int(client.answers, 1);
	for (unsigned int i = 0; i < sent; i++)
		check_int(harness_receive(slow, &reply, sizeof reply, NULL, NULL, 5000),
			  sizeof reply.histogram);
	harness_until((requests_client(socket, 2, &client), client.answers == 0), 5000);
	close(slow);
	harness_until(requests_alone(socket), 5000);
	close(socket);
	harness_daemon_stop(&daemon);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(exact_counts),
	HARNESS_CASE(refusals_cost_nothing),
	HARNESS_CASE(limits_of_a_user),
	HARNESS_CASE(refused_with_fds),
	HARNESS_CASE(fds_wait_for_fds),
	HARNESS_CASE(room_for_a_packet),
	HARNESS_CASE(unread_fds_stay_charged),
	HARNESS_CASE(unread_answers_are_charged),
};

HARNESS_MAIN(cases)
