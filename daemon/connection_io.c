/* SPDX-License-Identifier: MIT */
/*
 * Packets in and out of a client's socket. Never blocks, receives with room for every fd the kernel
 * lets through, and reads nothing more from a client that does not read its answers. Control
 * thread.
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/connection.h"
#include "daemon/log.h"

/*
 * In one turn of the loop: packets of one user, shared by its connections, but one for each of
 * them; packets of one connection; and bytes of its answers.
 */
#define PACKETS_PER_USER 64u
#define PACKETS_PER_CLIENT 16u
#define ANSWER_BYTES DMASYNC_MESSAGE_MAX

void client_rewatch(struct client *client)
{
	uint32_t events = POLLIN;

	if (!client->watch)
		return;
	if (client->out_first)
		events = POLLOUT;
	else if (client->daemon->stopping)
		events = POLLRDHUP; /* nothing is read any more, and who has gone is let go */
	else if (client->closing >= CONNECTION_FDS_MAX || client->waits_for_fds)
		events = POLLRDHUP;
	loop_rewatch(client->watch, events);
}

/* ---- out ---- */

/* 0: sent. -EAGAIN: the socket is full. Others: it is broken. */
static int send_packet(int fd, const void *bytes, uint32_t size, const int *fds, uint32_t fd_count)
{
	struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(DMASYNC_MESSAGE_FDS * sizeof(int))];
	} control;
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	ssize_t n;

	if (fd_count > 0) {
		memset(&control, 0, sizeof control);
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);

		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
	}
	do
		n = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static void close_own(int *fds, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		close(fds[i]); /* pipes and memfds of the daemon: never blocks */
}

/*
 * Bounded without a limit of its own: nothing is read while it is not empty, so that besides one
 * answer it holds those of requests already accepted, at most max_requests.
 */
static int queue_packet(struct client *client, const void *bytes, uint32_t size, int *fds,
			uint32_t fd_count)
{
	struct daemon *daemon = client->daemon;
	struct account_refusal refusal;
	struct account_cost cost = {{[ACCOUNT_ANSWERS] = 1}};

	if (account_charge(&daemon->accounts, &client->account, &cost, &refusal) < 0) {
		if (connection_log_allowed(daemon->serving))
			account_log(&client->account, client->pid, &refusal);
		return refusal.error;
	}
	struct out_message *out = malloc(sizeof *out + size);

	if (!out) {
		client_uncharge(client, &cost);
		return -ENOMEM;
	}
	account_force(&daemon->accounts, &client->account,
		      ACCOUNT_COST([ACCOUNT_FILES] = fd_count));
	out->next = NULL;
	out->size = size;
	out->fd_count = fd_count;
	for (uint32_t i = 0; i < fd_count; i++)
		out->fds[i] = fds[i];
	memcpy(out->bytes, bytes, size);
	if (client->out_last)
		client->out_last->next = out;
	else
		client->out_first = out;
	client->out_last = out;
	client_rewatch(client);
	return 0;
}

static void drop_after_send(struct client *client, int error)
{
	if (error != -EPIPE && error != -ECONNRESET)
		client_log(client, LOG_WARNING,
			   "an answer could not be sent: %s; the client is dropped",
			   strerror(-error));
	client_drop(client);
}

static void send_or_queue(struct client *client, const void *bytes, uint32_t size, int *fds,
			  uint32_t fd_count)
{
	int r = client->out_first ? -EAGAIN : send_packet(client->fd, bytes, size, fds, fd_count);

	client->turn_bytes += size;
	if (r == -EAGAIN) {
		r = queue_packet(client, bytes, size, fds, fd_count);
		if (r == 0)
			return;
	}
	close_own(fds, fd_count);
	if (r < 0)
		drop_after_send(client, r);
}

static void pop_output(struct client *client)
{
	struct out_message *out = client->out_first;

	client->out_first = out->next;
	if (!out->next)
		client->out_last = NULL;
	close_own(out->fds, out->fd_count);
	client_uncharge(client,
			ACCOUNT_COST([ACCOUNT_ANSWERS] = 1, [ACCOUNT_FILES] = out->fd_count));
	free(out);
}

void client_drop_output(struct client *client)
{
	while (client->out_first)
		pop_output(client);
}

static void flush_output(struct client *client)
{
	while (client->out_first) {
		struct out_message *out = client->out_first;
		int r = send_packet(client->fd, out->bytes, out->size, out->fds, out->fd_count);

		if (r == -EAGAIN)
			return;
		if (r < 0) {
			drop_after_send(client, r);
			return;
		}
		pop_output(client);
	}
	client_rewatch(client);
}

static void fill_header(void *message, uint32_t size, uint16_t opcode, uint16_t flags,
			uint64_t cookie)
{
	struct dmasync_message *header = message;

	header->size = size;
	header->opcode = opcode;
	header->flags = flags;
	header->cookie = cookie;
}

void client_reply(struct client *client, uint16_t opcode, uint64_t cookie, void *message,
		  uint32_t size, int *fds, uint32_t fd_count)
{
	if (!client_alive(client)) {
		close_own(fds, fd_count);
		return;
	}
	fill_header(message, size, opcode, DMASYNC_MESSAGE_REPLY, cookie);
	send_or_queue(client, message, size, fds, fd_count);
}

void client_done(struct client *client, uint16_t opcode, uint64_t cookie)
{
	struct dmasync_done_reply reply = {0};

	client_reply(client, opcode, cookie, &reply, sizeof reply, NULL, 0);
}

static void send_error(struct client *client, uint16_t opcode, uint64_t cookie,
		       struct dmasync_error *answer)
{
	client->daemon->refused++;
	if (!client_alive(client))
		return;
	answer->bad_entry = DMASYNC_NO_ENTRY;
	fill_header(answer, sizeof *answer, opcode, DMASYNC_MESSAGE_REPLY | DMASYNC_MESSAGE_ERROR,
		    cookie);
	send_or_queue(client, answer, sizeof *answer, NULL, 0);
}

void client_error(struct client *client, uint16_t opcode, uint64_t cookie, int error,
		  const char *format, ...)
{
	struct dmasync_error answer = {.error = error};
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(answer.text, sizeof answer.text, format, arguments);
	va_end(arguments);
	if (client_alive(client))
		client_log(client, LOG_INFO, "refused: %s", answer.text);
	send_error(client, opcode, cookie, &answer);
}

void client_refuse(struct client *client, uint16_t opcode, uint64_t cookie,
		   const struct account_refusal *refusal)
{
	struct dmasync_error answer = {.error = refusal->error};

	snprintf(answer.text, sizeof answer.text, "%s", refusal->text);
	if (client_alive(client) && connection_log_allowed(client->daemon->serving))
		account_log(&client->account, client->pid, refusal);
	send_error(client, opcode, cookie, &answer);
}

int client_event(struct client *client, uint16_t opcode, uint64_t cookie, void *message,
		 uint32_t size)
{
	if (client->out_first)
		return -EAGAIN;
	fill_header(message, size, opcode, DMASYNC_MESSAGE_EVENT, cookie);
	int r = send_packet(client->fd, message, size, NULL, 0);

	if (r < 0 && r != -EAGAIN)
		drop_after_send(client, r);
	return r;
}

void connection_refuse(int fd, int error, const char *text)
{
	struct dmasync_error answer = {.error = error, .bad_entry = DMASYNC_NO_ENTRY};

	snprintf(answer.text, sizeof answer.text, "%s", text);
	fill_header(&answer, sizeof answer, DMASYNC_OP_HELLO,
		    DMASYNC_MESSAGE_REPLY | DMASYNC_MESSAGE_ERROR, 0);
	(void)send_packet(fd, &answer, sizeof answer, NULL, 0); /* a new socket has room */
	shutdown(fd, SHUT_RDWR);
}

/* ---- in ---- */

/* A look at the next packet, which stays where it is; its fds, if it has any, are MSG_CTRUNC. */
static ssize_t peek(int fd, int *ret_flags)
{
	char byte;
	struct iovec part = {.iov_base = &byte, .iov_len = sizeof byte};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	ssize_t n;

	do
		n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_PEEK);
	while (n < 0 && errno == EINTR);
	*ret_flags = message.msg_flags;
	return n;
}

/*
 * Credentials tell an empty packet, which has them, from the end, which has not; behind them there
 * is no room for fds.
 */
static bool peek_whether_fds(int fd, bool *ret_end)
{
	char byte;
	struct iovec part = {.iov_base = &byte, .iov_len = sizeof byte};
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof control};
	ssize_t n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_PEEK);

	*ret_end = n < 0 || (message.msg_controllen == 0 && !(message.msg_flags & MSG_CTRUNC));
	return n >= 0 && message.msg_flags & MSG_CTRUNC;
}

bool connection_drain(int fd)
{
	const int on = 1;
	bool end;
	char byte;

	if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof on) < 0)
		return false;
	while (!peek_whether_fds(fd, &end)) {
		if (end)
			return true;
		(void)recv(fd, &byte, sizeof byte, MSG_DONTWAIT);
	}
	return false;
}

void clients_resume(struct daemon *daemon)
{
	struct connections *connections = daemon->serving;

	if (!connections->reads_paused)
		return;
	connections->reads_paused = false;
	for (struct client *client = daemon->clients; client; client = client->next) {
		if (!client->waits_for_fds)
			continue;
		client->waits_for_fds = false;
		client_rewatch(client);
	}
}

/*
 * The daemon's table of files must have room for all fds that one packet can bring: what finds none
 * is closed inside recvmsg, and that may block. So a packet with fds stays in the socket while all
 * clients have more open than is theirs, or while many of this user's are still being closed.
 */
static bool must_wait_for_fds(struct client *client)
{
	struct daemon *daemon = client->daemon;
	int flags;

	if (client->account.user->closing < CONNECTION_FDS_MAX &&
	    !accounts_over(&daemon->accounts, ACCOUNT_FILES))
		return false;
	if (peek(client->fd, &flags) < 0 || !(flags & MSG_CTRUNC))
		return false;
	client->waits_for_fds = true;
	daemon->serving->reads_paused = true;
	return true;
}

/* Every fd of every SCM_RIGHTS part; at most CONNECTION_FDS_MAX, by the size of the control data.
 */
static uint32_t take_fds(struct msghdr *message, int *fds)
{
	uint32_t count = 0;

	for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part;
	     part = CMSG_NXTHDR(message, part)) {
		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
			continue;
		size_t bytes = part->cmsg_len - CMSG_LEN(0);

		for (size_t i = 0; i < bytes / sizeof(int) && count < CONNECTION_FDS_MAX; i++)
			memcpy(&fds[count++], CMSG_DATA(part) + i * sizeof(int), sizeof(int));
	}
	return count;
}

/* One packet. 0: there was one. -EAGAIN: none is there. Others: the client is to go. */
static int receive_packet(struct client *client)
{
	struct connections *connections = client->daemon->serving;
	struct iovec part = {.iov_base = connections->in, .iov_len = sizeof connections->in};
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(CONNECTION_FDS_MAX * sizeof(int))];
	} control;
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof control,
	};
	int fds[CONNECTION_FDS_MAX];
	ssize_t n;

	if (must_wait_for_fds(client))
		return -EAGAIN;
	do
		n = recvmsg(client->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return -errno;

	uint32_t fd_count = take_fds(&message, fds);

	account_force(&client->daemon->accounts, &client->account,
		      ACCOUNT_COST([ACCOUNT_FILES] = fd_count));
	if (n == 0) { /* the end, or an empty packet, which SEQPACKET cannot tell from it */
		client_close_fds(client, fds, fd_count);
		return -ECONNRESET;
	}
	client->daemon->messages++;
	dispatch(client, (uint32_t)n, message.msg_flags, fds, fd_count);
	return 0;
}

static uint32_t packets_per_turn(const struct client *client)
{
	uint64_t share = PACKETS_PER_USER / client->account.user->used[ACCOUNT_CONNECTIONS];

	if (share == 0)
		return 1;
	return share < PACKETS_PER_CLIENT ? (uint32_t)share : PACKETS_PER_CLIENT;
}

void client_readable(void *context, uint32_t events)
{
	struct client *client = context;

	if (events & (POLLHUP | POLLRDHUP | POLLERR | POLLNVAL)) {
		client_drop(client);
		return;
	}
	if (client->out_first) {
		flush_output(client);
		return;
	}
	if (client->daemon->stopping)
		return;
	client->turn_bytes = 0;
	for (uint32_t i = packets_per_turn(client); i > 0; i--) {
		int r = receive_packet(client);

		if (!client_alive(client))
			return;
		if (r == -EAGAIN)
			break;
		if (r < 0) {
			client_drop(client);
			return;
		}
		if (client->out_first || client->closing >= CONNECTION_FDS_MAX ||
		    client->turn_bytes >= ANSWER_BYTES)
			break;
	}
	client_rewatch(client);
}
