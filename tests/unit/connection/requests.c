/* SPDX-License-Identifier: MIT */
/* Requests by raw bytes: see requests.h. */
#include "tests/unit/connection/requests.h"

#include <arpa/inet.h>
#include <grp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int requests_connect(const struct harness_daemon *daemon)
{
	struct dmasync_hello_reply hello;
	int socket = harness_connect(daemon->socket);

	harness_hello(socket, &hello);
	return socket;
}

static int call_with_fds(int socket, uint16_t opcode, void *request, size_t size, const int *fds,
			 size_t fd_count, union reply *ret, int *reply_fds, size_t *reply_fd_count)
{
	static uint64_t cookie = 1000;
	struct dmasync_message *header = request;

	header->size = (uint32_t)size;
	header->opcode = opcode;
	header->cookie = ++cookie;
	harness_call(socket, request, size, fds, fd_count, ret, sizeof *ret, reply_fds,
		     reply_fd_count);
	if (!(ret->header.flags & DMASYNC_MESSAGE_ERROR))
		return 0;
	check_int(ret->header.size, sizeof ret->error);
	check(ret->error.error < 0);
	check(ret->error.text[0] != 0);
	check(ret->error.text[sizeof ret->error.text - 1] == 0);
	return ret->error.error;
}

int requests_call(int socket, uint16_t opcode, void *request, size_t size, const int *fds,
		  size_t fd_count, union reply *ret)
{
	return call_with_fds(socket, opcode, request, size, fds, fd_count, ret, NULL, NULL);
}

void requests_refused(int socket, uint16_t opcode, void *request, size_t size, const int *fds,
		      size_t fd_count, int error, const char *text)
{
	union reply reply;

	check_int(requests_call(socket, opcode, request, size, fds, fd_count, &reply), error);
	if (!strstr(reply.error.text, text))
		fail_case("opcode %u: \"%s\" does not say \"%s\"", opcode, reply.error.text, text);
}

void requests_stats(int socket, struct dmasync_stats_reply *ret)
{
	struct dmasync_message request = {0};
	union reply reply;

	check_int(
		requests_call(socket, DMASYNC_OP_STATS, &request, sizeof request, NULL, 0, &reply),
		0);
	*ret = reply.stats;
}

int requests_add(int socket, int fd, uint32_t flags, enum dmasync_backend backend, uint64_t size,
		 union reply *ret)
{
	struct dmasync_buffer_add add = {.flags = flags, .backend = backend, .size = size};

	return requests_call(socket, DMASYNC_OP_BUFFER_ADD, &add, sizeof add, &fd, 1, ret);
}

int requests_remove(int socket, uint32_t handle)
{
	struct dmasync_buffer_remove remove = {.handle = handle};
	union reply reply;

	return requests_call(socket, DMASYNC_OP_BUFFER_REMOVE, &remove, sizeof remove, NULL, 0,
			     &reply);
}

int requests_queue_of_class(int socket, enum dmasync_class klass, uint32_t depth, uint32_t units,
			    union reply *ret, int fds[DMASYNC_QUEUE_FDS])
{
	struct dmasync_queue_create create = {
		.depth = depth, .units = units, .klass = (uint32_t)klass};
	size_t count = DMASYNC_QUEUE_FDS;
	int r = call_with_fds(socket, DMASYNC_OP_QUEUE_CREATE, &create, sizeof create, NULL, 0, ret,
			      fds, &count);

	check_int(count, r == 0 ? DMASYNC_QUEUE_FDS : 0);
	return r;
}

int requests_queue(int socket, uint32_t depth, uint32_t units, union reply *ret,
		   int fds[DMASYNC_QUEUE_FDS])
{
	return requests_queue_of_class(socket, DMASYNC_CLASS_NORMAL, depth, units, ret, fds);
}

int requests_queue_remove(int socket, uint32_t queue)
{
	struct dmasync_queue_remove remove = {.queue = queue};
	union reply reply;

	return requests_call(socket, DMASYNC_OP_QUEUE_REMOVE, &remove, sizeof remove, NULL, 0,
			     &reply);
}

int requests_sync(int socket, const struct dmasync_unit *units, uint32_t count, union reply *ret)
{
	static unsigned char bytes[DMASYNC_MESSAGE_MAX];
	struct dmasync_sync_request request = {.count = count, .user_data = 77};
	size_t size = sizeof request + count * sizeof *units;

	check(size <= sizeof bytes);
	memcpy(bytes, &request, sizeof request);
	if (count)
		memcpy(bytes + sizeof request, units, count * sizeof *units);
	return requests_call(socket, DMASYNC_OP_SYNC, bytes, size, NULL, 0, ret);
}

struct dmasync_unit requests_unit(uint32_t buffer, uint64_t offset, uint32_t length)
{
	return (struct dmasync_unit){
		.word = dmasync_unit_word(buffer, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0),
		.offset = offset,
		.length = length,
	};
}

void requests_closed_with(int socket, int error)
{
	union reply reply;
	ssize_t n = harness_receive(socket, &reply, sizeof reply, NULL, NULL, 5000);

	check_int(n, sizeof reply.error);
	check_int(reply.header.flags, DMASYNC_MESSAGE_REPLY | DMASYNC_MESSAGE_ERROR);
	check_int(reply.error.error, error);
	check(reply.error.text[0] != 0);
	check_int(harness_receive(socket, &reply, sizeof reply, NULL, NULL, 5000), 0);
}

int requests_lingering_socket(int *ret_peer)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct linger linger = {.l_onoff = 1, .l_linger = 5};
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

bool requests_alone(int socket)
{
	struct dmasync_stats_reply stats;

	requests_stats(socket, &stats);
	check_int(stats.sum_errors, 0);
	return stats.clients == 1 && stats.users == 1 && stats.files == 2 && stats.maps == 0 &&
	       stats.buffers == 0 && stats.mapped_bytes == 0 && stats.queues == 0 &&
	       stats.queue_bytes == 0 && stats.places == 0 && stats.requests == 0 &&
	       stats.answers == 0 && stats.watches == 0;
}

void requests_client(int socket, uint64_t id, struct dmasync_client_record *ret)
{
	struct dmasync_clients request = {.after = id - 1};
	union reply reply;

	check_int(requests_call(socket, DMASYNC_OP_CLIENTS, &request, sizeof request, NULL, 0,
				&reply),
		  0);
	check(reply.clients.count >= 1);
	memcpy(ret, &reply.clients + 1, sizeof *ret);
	check_int(ret->id, id);
}

void requests_user(int socket, uint32_t uid, struct dmasync_user_record *ret)
{
	struct dmasync_users request = {.from = uid};
	union reply reply;

	check_int(
		requests_call(socket, DMASYNC_OP_USERS, &request, sizeof request, NULL, 0, &reply),
		0);
	check(reply.users.count >= 1);
	memcpy(ret, &reply.users + 1, sizeof *ret);
	check_int(ret->uid, uid);
}

struct requests_holdings requests_holdings(const struct harness_daemon *daemon)
{
	return (struct requests_holdings){
		.fds = harness_count_fds(daemon->pid),
		.shared_maps = harness_count_shared_maps(daemon->pid),
	};
}

void requests_same_holdings(const struct harness_daemon *daemon, struct requests_holdings before)
{
	harness_until(harness_count_fds(daemon->pid) == before.fds, 5000);
	harness_until(harness_count_shared_maps(daemon->pid) == before.shared_maps, 5000);
}

int requests_connect_as_nobody(const struct harness_daemon *daemon, const gid_t *groups,
			       size_t count)
{
	int socket;

	check_int(setgroups(count, groups), 0);
	check_int(setegid(65534), 0);
	check_int(seteuid(65534), 0);
	socket = requests_connect(daemon);
	check_int(seteuid(0), 0);
	check_int(setegid(0), 0);
	return socket;
}
