/* SPDX-License-Identifier: MIT */
/*
 * Class: file descriptors nobody asked for. Every message with none to as many as the kernel lets
 * through, in either state of the connection; answers that carry some and are not read. One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/hostile/target.h"

enum { MOST = 253 /* SCM_MAX_FD */, BYTES = 4096 };

static const struct row {
	uint16_t opcode;
	uint32_t size;
} rows[] = {
#define ROW_(name, opcode, handler, type, ...) {opcode, sizeof(type)},
	DMASYNC_MESSAGES(ROW_)
#undef ROW_
		{0, 16},
	{14, 16},
	{UINT16_MAX, 16}};

#define ROWS (sizeof rows / sizeof rows[0])

static void send_with_fds(struct raw *raw, const struct row *row, const int *fds, size_t count)
{
	unsigned char bytes[256] = {0};
	union reply reply;

	check(row->size <= sizeof bytes);
	(void)requests_call(raw->socket, row->opcode, bytes, row->size, fds, count, &reply);
}

static void with_every_count(struct attack *attack, bool greeted)
{
	static const size_t counts[] = {0, 1, 2, 3, 4, 5, 16, 64, MOST - 1, MOST};
	int fds[MOST], fd = harness_memfd(BYTES, F_SEAL_SHRINK);

	for (size_t i = 0; i < MOST; i++)
		fds[i] = fd;
	for (size_t i = 0; i < ROWS; i++) {
		struct raw raw;

		raw_open(&raw, attack->socket);
		if (!greeted) {
			raw_close(&raw);
			raw.socket = harness_connect(attack->socket);
		}
		for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++)
			send_with_fds(&raw, &rows[i], fds, counts[k]);
		raw_close(&raw);
	}
	close(fd);
	others_go_on(attack);
}

ATTACK(every_message_with_every_count, .connections = 1)
{
	with_every_count(attack, true);
}

ATTACK(before_hello, .connections = 1)
{
	with_every_count(attack, false);
}

/* Fds of each kind there is, where one is taken. */
ATTACK(fds_of_every_kind, .connections = 1)
{
	struct raw raw;
	union reply reply;
	int ends[2], own[2];

	raw_open(&raw, attack->socket);
	check_int(pipe2(ends, O_CLOEXEC), 0);
	check_int(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, own), 0);
	int fds[] = {
		ends[0],
		ends[1],
		own[0],
		raw.socket, /* the connection itself */
		open("/", O_RDONLY | O_CLOEXEC),
		open("/", O_PATH | O_CLOEXEC),
		open("/dev/null", O_RDWR | O_CLOEXEC),
		open("/proc/self/maps", O_RDONLY | O_CLOEXEC),
		epoll_create1(EPOLL_CLOEXEC),
		eventfd(0, EFD_CLOEXEC),
		(int)syscall(SYS_pidfd_open, getpid(), 0),
	};

	for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
		struct dmasync_message probe;

		check(fds[i] >= 0);
		check(requests_add(raw.socket, fds[i], 0, DMASYNC_BACKEND_AUTO, 0, &reply) < 0);
		check_int(requests_call(raw.socket, DMASYNC_OP_PROBE, &probe, sizeof probe, &fds[i],
					1, &reply),
			  0);
		check(reply.probe.error < 0);
	}
	others_go_on(attack);
	for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
		close(fds[i]);
	close(own[1]);
}

/* Packets full of fds that lie in the socket, unread, when their sender goes. */
ATTACK(fds_left_in_the_socket, .connections = 8)
{
	int fds[MOST], sockets[8], fd = harness_memfd(BYTES, F_SEAL_SHRINK);
	struct dmasync_message stats = {.size = sizeof stats, .opcode = DMASYNC_OP_STATS};

	for (size_t i = 0; i < MOST; i++)
		fds[i] = fd;
	for (uint64_t round = 0; round < rounds(10); round++) {
		for (size_t i = 0; i < 8; i++) {
			sockets[i] = harness_connect(attack->socket);
			for (int k = 0; k < 3; k++) {
				/* Too many in flight for one user: the kernel's own bound. */
				int r = harness_send(sockets[i], &stats, sizeof stats, fds, MOST);

				check(r == 0 || r == -ETOOMANYREFS || r == -EPIPE ||
				      r == -ECONNRESET);
			}
		}
		for (size_t i = 0; i < 8; i++)
			close(sockets[i]);
	}
	close(fd);
	others_go_on(attack);
}

/*
 * A connection whose own fd lies unread in its own socket: closing it is not the end of it, and
 * only the end of its process tells.
 */
static void hold_itself(struct attack *attack, void *argument)
{
	struct dmasync_histogram histogram = {
		.header = {.size = sizeof histogram, .opcode = DMASYNC_OP_HISTOGRAM}};
	struct raw raw;

	(void)argument;
	raw_open(&raw, attack->socket);
	check_int(fcntl(raw.socket, F_SETFL, O_NONBLOCK), 0);
	/* Answers unread: then the daemon reads nothing, either. */
	while (harness_send(raw.socket, &histogram, sizeof histogram, &raw.socket, 1) == 0)
		;
	raw_close(&raw);
}

ATTACK(connections_that_hold_themselves, .connections = 1)
{
	for (int i = 0; i < 8; i++) {
		pid_t victim = victim_start(hold_itself, attack, NULL);

		others_go_on(attack);
		victim_kill(victim);
	}
}

/* Answers to QUEUE_CREATE carry four each. */
ATTACK(answers_with_fds_unread, .connections = 1)
{
	struct dmasync_queue_create create = {
		.header = {.size = sizeof create, .opcode = DMASYNC_OP_QUEUE_CREATE},
		.depth = 2,
		.units = 2,
	};

	for (uint64_t round = 0; round < rounds(5); round++) {
		struct raw raw;

		raw_open(&raw, attack->socket);
		for (int i = 0; i < 40; i++)
			check_int(harness_send(raw.socket, &create, sizeof create, NULL, 0), 0);
		others_go_on(attack);
		raw_close(&raw);
	}
}

static const struct harness_case cases[] = {
	HARNESS_CASE(every_message_with_every_count),
	HARNESS_CASE(before_hello),
	HARNESS_CASE(fds_of_every_kind),
	HARNESS_CASE(fds_left_in_the_socket),
	HARNESS_CASE(answers_with_fds_unread),
	HARNESS_CASE(connections_that_hold_themselves),
};

HARNESS_MAIN(cases)
