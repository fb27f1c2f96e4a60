/* SPDX-License-Identifier: MIT */
/*
 * Requests and their answers on the control socket, one at a time under request_lock. Any thread
 * may call; nobody waits longer than the connection's time-out, per request before its own.
 */
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "client/internal.h"

/* The kernel's SCM_MAX_FD: less room would make it drop fds, and say no more than MSG_CTRUNC. */
#define CONTROL_FDS_MAX 253

/* One packet as it came, with the fds that nobody has taken yet. */
struct packet {
	struct dmasync_message header;
	size_t size;
	int fds[CONTROL_FDS_MAX];
	size_t fd_count;
	bool fds_lost; /* there were more, and this process has no room for them */
};

static void packet_close(struct packet *packet)
{
	for (size_t i = 0; i < packet->fd_count; i++)
		close(packet->fds[i]);
	packet->fd_count = 0;
}

int control_error(struct dmasync *ds, int error, const char *format, ...)
{
	va_list arguments;

	pthread_mutex_lock(&ds->text_lock);
	va_start(arguments, format);
	vsnprintf(ds->error_text, sizeof ds->error_text, format, arguments);
	va_end(arguments);
	pthread_mutex_unlock(&ds->text_lock);
	return error;
}

DMASYNC_PUBLIC size_t dmasync_error_text(struct dmasync *ds, char *text, size_t size)
{
	int n;

	if (!fork_guard_ok(ds))
		return dmasync_strerror(-ECHILD, text, size);
	pthread_mutex_lock(&ds->text_lock);
	n = snprintf(text, size, "%s", ds->error_text);
	pthread_mutex_unlock(&ds->text_lock);
	return n < 0 ? 0 : (size_t)n;
}

/* life_lock is held. */
static void end_life(struct dmasync *ds)
{
	/* Nothing is published with it: the next life is (up() in reconnect.c). */
	atomic_fetch_add_explicit(&ds->life, 1, memory_order_relaxed);
	/* Hangs up on both sides: wakes threads that sleep on this socket, and the daemon cleans
	 * up. */
	shutdown(ds->socket, SHUT_RDWR);
}

int control_break(struct dmasync *ds, uint32_t life, int error)
{
	pthread_mutex_lock(&ds->life_lock);
	if (life_is_up(life) && atomic_load_explicit(&ds->life, memory_order_relaxed) == life)
		end_life(ds);
	pthread_mutex_unlock(&ds->life_lock);
	return error;
}

int control_end(struct dmasync *ds, int error)
{
	pthread_mutex_lock(&ds->life_lock);
	/* In-process it goes on: the next daemon may be one of another kind. */
	atomic_store_explicit(&ds->ended, !ds->fallback, memory_order_relaxed);
	if (life_is_up(atomic_load_explicit(&ds->life, memory_order_relaxed)))
		end_life(ds);
	pthread_mutex_unlock(&ds->life_lock);
	return error;
}

bool control_alive(struct dmasync *ds, uint32_t life, int64_t timeout_ns)
{
	/* Not POLLIN: a late answer may lie there unread. Hang-up is reported unasked. */
	struct pollfd p = {.fd = ds->socket, .events = POLLRDHUP};
	struct timespec timeout = to_timespec(timeout_ns);

	if (control_life(ds) != life)
		return false;
	if (ppoll(&p, 1, &timeout, NULL) <= 0)
		return true;
	control_break(ds, life, 0);
	return false;
}

/* The sentence alone. */
static int say_gone(struct dmasync *ds)
{
	return control_error(ds, -ECONNRESET,
			     "dmasyncd at %s has closed the connection; %s, and if it does not "
			     "run: systemctl start dmasyncd.socket",
			     ds->path,
			     control_broken(ds) ? "connect again" : "the library connects again");
}

int control_gone(struct dmasync *ds)
{
	control_break(ds, control_life(ds), 0);
	return say_gone(ds);
}

static int nonsense(struct dmasync *ds, const char *what, uint64_t value, uint64_t expected)
{
	return control_error(ds, control_end(ds, -EPROTO),
			     "what answers at %s does not speak dmasync's protocol: %s is %llu "
			     "instead of %llu; the connection was ended",
			     ds->path, what, (unsigned long long)value,
			     (unsigned long long)expected);
}

static int timed_out(struct dmasync *ds, const char *doing)
{
	return control_error(ds, -ETIMEDOUT,
			     "dmasyncd at %s did not %s within %u ms; look at: "
			     "systemctl status dmasyncd.service",
			     ds->path, doing, ds->timeout_ms);
}

/* Waits for `events` until the deadline. 1, 0 at the deadline, or a negative errno. */
static int wait_for(struct dmasync *ds, short events, int64_t deadline)
{
	for (;;) {
		struct pollfd p = {.fd = ds->socket, .events = events};
		int64_t left = deadline - now_ns();
		struct timespec timeout = to_timespec(left < 0 ? 0 : left);
		int r = ppoll(&p, 1, &timeout, NULL);

		if (r < 0 && errno != EINTR)
			return control_error(ds, -errno, "cannot wait for dmasyncd at %s: %s",
					     ds->path, describe(-errno));
		if (r > 0)
			return 1;
		if (left <= 0)
			return 0;
	}
}

/* 1: the daemon has closed; it may have said why before. */
static int send_packet(struct dmasync *ds, const void *message, size_t size, int fd,
		       int64_t deadline)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec data = {.iov_base = (void *)(uintptr_t)message, .iov_len = size};
	struct msghdr packet = {.msg_iov = &data, .msg_iovlen = 1};

	if (fd >= 0) {
		packet.msg_control = &control;
		packet.msg_controllen = sizeof control;
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof fd);
		memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
	}
	for (;;) {
		ssize_t n = sendmsg(ds->socket, &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
		int r;

		if (n >= 0)
			return 0;
		if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
			return 1;
		if (errno == EINTR)
			continue;
		if (errno != EAGAIN)
			return control_error(ds, -errno, "cannot send to dmasyncd at %s: %s",
					     ds->path, describe(-errno));
		r = wait_for(ds, POLLOUT, deadline);
		if (r < 0)
			return r;
		if (r == 0)
			return timed_out(ds, "take a request");
	}
}

/* Takes the fds of a received packet out of its control data. */
static void collect_fds(struct msghdr *message, struct packet *packet)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
		size_t n;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		if (n > CONTROL_FDS_MAX - packet->fd_count)
			n = CONTROL_FDS_MAX - packet->fd_count;
		memcpy(&packet->fds[packet->fd_count], CMSG_DATA(c), n * sizeof(int));
		packet->fd_count += n;
	}
}

/* Receives one packet into ds->receive. 0, or an error that has ended the connection or the wait.
 */
static int receive_packet(struct dmasync *ds, struct packet *packet, int64_t deadline)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int) * CONTROL_FDS_MAX)];
	} control;

	bool reset = false;

	packet->fd_count = 0;
	for (;;) {
		struct iovec data = {.iov_base = ds->receive, .iov_len = DMASYNC_MESSAGE_MAX};
		struct msghdr message = {
			.msg_iov = &data,
			.msg_iovlen = 1,
			.msg_control = &control,
			.msg_controllen = sizeof control,
		};
		ssize_t n = recvmsg(ds->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

		if (n < 0) {
			int r;

			if (errno == EINTR)
				continue;
			if (errno == ECONNRESET && !reset) {
				/* Our request was not read; what the daemon said comes after. */
				reset = true;
				continue;
			}
			if (errno != EAGAIN)
				return control_gone(ds);
			r = wait_for(ds, POLLIN, deadline);
			if (r < 0)
				return r;
			if (r == 0)
				return timed_out(ds, "answer");
			continue;
		}
		collect_fds(&message, packet);
		if (n == 0) { /* the end, or an empty packet, and that may bring fds */
			packet_close(packet);
			return control_gone(ds);
		}
		packet->size = (size_t)n;
		/* Not for want of room in `control`: there is as much as the kernel can fill. */
		packet->fds_lost = message.msg_flags & MSG_CTRUNC;
		if (message.msg_flags & MSG_TRUNC || packet->size < sizeof packet->header) {
			packet_close(packet);
			return nonsense(ds, "the size of a message", (uint64_t)n,
					sizeof packet->header);
		}
		memcpy(&packet->header, ds->receive, sizeof packet->header);
		if (packet->header.size != packet->size) {
			packet_close(packet);
			return nonsense(ds, "the size in a message's header", packet->header.size,
					packet->size);
		}
		return 0;
	}
}

void control_forget_buffer(struct dmasync *ds, uint32_t handle)
{
	struct dmasync_buffer_remove request = {
		.header = {sizeof request, DMASYNC_OP_BUFFER_REMOVE, 0, ++ds->cookie},
		.handle = handle,
	};

	send(ds->socket, &request, sizeof request, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/*
 * The answer to a request whose caller gave up, or cannot take it. Its fds are closed by the
 * caller; what it made in the daemon is given back, by a request whose own answer nobody waits for.
 */
static void undo(struct dmasync *ds, const struct packet *packet)
{
	if (packet->header.flags & DMASYNC_MESSAGE_ERROR)
		return;
	if (packet->header.opcode == DMASYNC_OP_BUFFER_ADD &&
	    packet->size == sizeof(struct dmasync_buffer_add_reply)) {
		struct dmasync_buffer_add_reply late;

		memcpy(&late, ds->receive, sizeof late);
		control_forget_buffer(ds, late.handle);
	} else if (packet->header.opcode == DMASYNC_OP_QUEUE_CREATE &&
		   packet->size == sizeof(struct dmasync_queue_create_reply)) {
		struct dmasync_queue_create_reply late;
		struct dmasync_queue_remove undo = {
			.header = {sizeof undo, DMASYNC_OP_QUEUE_REMOVE, 0, ++ds->cookie},
		};

		memcpy(&late, ds->receive, sizeof late);
		undo.queue = late.queue;
		send(ds->socket, &undo, sizeof undo, MSG_NOSIGNAL | MSG_DONTWAIT);
	}
}

/* The daemon refused: its errno and its sentence. */
static int refused(struct dmasync *ds, const struct packet *packet)
{
	struct dmasync_error error;

	if (packet->size != sizeof error || packet->fd_count != 0)
		return nonsense(ds, "the size of an error answer", packet->size, sizeof error);
	memcpy(&error, ds->receive, sizeof error);
	if (error.error >= 0 || error.error < -4095)
		return control_error(
			ds, control_end(ds, -EPROTO),
			"dmasyncd at %s refused a request with %d, which is no negative "
			"errno; the connection was ended",
			ds->path, error.error);
	control_text(error.text, sizeof error.text);
	return control_error(ds, error.error, "%s",
			     error.text[0] ? error.text : describe(error.error));
}

static int accept_reply(struct dmasync *ds, uint16_t opcode, struct packet *packet,
			struct control_reply *reply)
{
	if (packet->header.opcode != opcode)
		return nonsense(ds, "the opcode of an answer", packet->header.opcode, opcode);
	if (packet->header.flags == (DMASYNC_MESSAGE_REPLY | DMASYNC_MESSAGE_ERROR))
		return refused(ds, packet);
	if (packet->header.flags != DMASYNC_MESSAGE_REPLY)
		return nonsense(ds, "the flags of an answer", packet->header.flags,
				DMASYNC_MESSAGE_REPLY);
	if (packet->size < reply->size ||
	    packet->size > (reply->size_max ? reply->size_max : reply->size))
		return nonsense(ds, "the size of an answer", packet->size, reply->size);
	if (packet->fd_count != reply->fd_count)
		return nonsense(ds, "the number of fds of an answer", packet->fd_count,
				reply->fd_count);
	reply->size = packet->size;
	memcpy(reply->message, ds->receive, reply->size);
	memcpy(reply->fds, packet->fds, packet->fd_count * sizeof(int));
	packet->fd_count = 0;
	return 0;
}

/* Nobody's fault but this process's own: the connection stays. */
static int no_room(struct dmasync *ds, const struct packet *packet)
{
	undo(ds, packet);
	return control_error(ds, -EMFILE,
			     "this process has no room for the fds of an answer of dmasyncd at %s; "
			     "close some, or raise its RLIMIT_NOFILE (ulimit -n)",
			     ds->path);
}

/* A connection that the daemon does not serve is told so before it has asked: cookie 0. */
static bool refuses_connection(uint16_t opcode, const struct dmasync_message *header)
{
	return opcode == DMASYNC_OP_HELLO && header->opcode == DMASYNC_OP_HELLO &&
	       header->cookie == 0 &&
	       header->flags == (DMASYNC_MESSAGE_REPLY | DMASYNC_MESSAGE_ERROR);
}

int control_send(struct dmasync *ds, enum dmasync_opcode opcode, struct dmasync_message *request,
		 size_t size, int fd, int64_t deadline)
{
	*request = (struct dmasync_message){
		.size = (uint32_t)size,
		.opcode = (uint16_t)opcode,
		.cookie = ++ds->cookie,
	};
	return send_packet(ds, request, size, fd, deadline);
}

int control_await(struct dmasync *ds, enum dmasync_opcode opcode, uint64_t cookie,
		  struct control_reply *reply, int64_t deadline)
{
	struct packet packet;
	int r;

	for (;;) {
		r = receive_packet(ds, &packet, deadline);
		if (r < 0)
			return r;
		if ((packet.header.cookie == cookie &&
		     !(packet.header.flags & DMASYNC_MESSAGE_EVENT)) ||
		    refuses_connection((uint16_t)opcode, &packet.header)) {
			r = packet.fds_lost ? no_room(ds, &packet)
					    : accept_reply(ds, (uint16_t)opcode, &packet, reply);
			packet_close(&packet);
			return r;
		}
		/* An event, which the library never asks for, or an answer that came too late. */
		packet_close(&packet);
		if (packet.header.cookie == 0 || packet.header.cookie > ds->cookie)
			return nonsense(ds, "the cookie of an answer", packet.header.cookie,
					cookie);
		if (packet.header.flags & DMASYNC_MESSAGE_REPLY)
			undo(ds, &packet);
		/* Also while there is always another one to read. */
		if (now_ns() >= deadline)
			return timed_out(ds, "answer");
	}
}

int control_exchange(struct dmasync *ds, enum dmasync_opcode opcode,
		     struct dmasync_message *request, size_t size, int fd,
		     struct control_reply *reply, int64_t deadline)
{
	int r = control_send(ds, opcode, request, size, fd, deadline);

	return r < 0 ? r : control_await(ds, opcode, request->cookie, reply, deadline);
}

int control_call_in(struct dmasync *ds, uint32_t life, enum dmasync_opcode opcode,
		    struct dmasync_message *request, size_t size, int fd,
		    struct control_reply *reply)
{
	int r;

	pthread_mutex_lock(&ds->request_lock);
	if (control_life(ds) != life || !life_is_up(life))
		r = say_gone(ds); /* that one; another may be well */
	else
		r = control_exchange(ds, opcode, request, size, fd, reply,
				     now_ns() + (int64_t)ds->timeout_ms * 1000000);
	pthread_mutex_unlock(&ds->request_lock);
	reply->life = life;
	/* Whoever has a callback hears of a loss now. */
	if (control_life(ds) != life)
		reconnect_step(ds);
	return r;
}

int control_call(struct dmasync *ds, enum dmasync_opcode opcode, struct dmasync_message *request,
		 size_t size, int fd, struct control_reply *reply)
{
	int64_t deadline = now_ns() + (int64_t)ds->timeout_ms * 1000000;
	int r;

	do {
		r = reconnect_until(ds, deadline);
		if (r < 0)
			return r;
		/* What a daemon that went had done for us went with it: asking again is harmless.
		 */
		r = control_call_in(ds, control_life(ds), opcode, request, size, fd, reply);
	} while (r == -ECONNRESET && !control_broken(ds) && now_ns() < deadline);
	return r;
}
