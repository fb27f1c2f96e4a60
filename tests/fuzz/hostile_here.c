/* SPDX-License-Identifier: MIT */
/*
 * See hostile_here.h. The linker puts this in the place of the calls by which the library meets a
 * daemon and its clock (--wrap). One thread.
 */
#include "hostile_here.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "hostile_queues.h"
#include "proto/message_table.h"

#define IDLE_MAX 64 /* waits without an end before it hangs up */

/* How an answer is: low four bits of a byte; 0 to 9 are good. */
enum answer {
	ANSWER_REFUSE = 10,
	ANSWER_ERROR,
	ANSWER_NONE,
	ANSWER_HANG_UP,
	ANSWER_EVENT,
	ANSWER_JUNK
};
#define SPOIL_BYTE 0x10
#define SPOIL_SIZE 0x20
#define SPOIL_FDS 0x40
#define SPOIL_TWICE 0x80

static struct input *input;
static int peer = -1; /* the daemon's end */
static uint32_t handle;
static int64_t now_ns_; /* the library's time */
static int maps, idle;

int __real_connect(int fd, const struct sockaddr *address, socklen_t size);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size);
ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
int __real_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
void *__real_mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *address, size_t size);
int __wrap_munmap(void *address, size_t size);

/* ---- the clock, and mappings ---- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
	(void)clock;
	now_ns_ += 1000; /* who only looks at it gets on, too */
	*ret = (struct timespec){now_ns_ / 1000000000, now_ns_ % 1000000000};
	return 0;
}

static void pass(const struct timespec *time)
{
	now_ns_ += time->tv_sec * INT64_C(1000000000) + time->tv_nsec;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
	(void)left;
	pass(time);
	return 0;
}

void *__wrap_mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
	void *at = __real_mmap64(address, size, protection, flags, fd, offset);

	maps += at != MAP_FAILED && !(flags & MAP_FIXED);
	return at;
}

int __wrap_munmap(void *address, size_t size)
{
	int r = __real_munmap(address, size);

	maps -= r == 0;
	return r;
}

int hostile_maps(void)
{
	return maps;
}

/* ---- answers ---- */

static void close_fd_(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void hang_up(void)
{
	close_fd_(&peer);
	hostile_queues_hang_up();
}

static void send_packet(const void *bytes, size_t size, const int *fds, size_t count)
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(8 * sizeof(int))];
	} control;
	struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (count) {
		memset(&control, 0, sizeof control);
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
	}
	if (peer >= 0)
		(void)!__real_sendmsg(peer, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void send_junk(void)
{
	unsigned char bytes[96];
	size_t size = input_u8(input) % sizeof bytes;

	input_copy(input, bytes, size);
	send_packet(bytes, size, NULL, 0);
}

static void send_error(const struct dmasync_message *request, int error)
{
	struct dmasync_error answer = {
		.header = {.size = sizeof answer,
			   .opcode = request->opcode,
			   .flags = DMASYNC_MESSAGE_REPLY | DMASYNC_MESSAGE_ERROR,
			   .cookie = request->cookie},
		.error = error,
		.bad_entry = DMASYNC_NO_ENTRY,
	};

	memset(answer.text, 'e', error == -ENOSPC ? 20 : sizeof answer.text);
	send_packet(&answer, sizeof answer, NULL, 0);
}

union any_reply {
	struct dmasync_message header;
	struct dmasync_hello_reply hello;
	struct dmasync_buffer_add_reply buffer;
	struct dmasync_queue_create_reply queue;
	unsigned char bytes[512];
};

/* The good answer; its size. */
static size_t make_answer(const void *request, union any_reply *reply, int fds[DMASYNC_QUEUE_FDS],
			  size_t *ret_count)
{
	const struct dmasync_message *header = request;
	const struct dmasync_buffer_add *add = request;
	const struct dmasync_queue_create *create = request;

	switch (header->opcode) {
	case DMASYNC_OP_HELLO:
		reply->hello = (struct dmasync_hello_reply){
			.version = DMASYNC_PROTOCOL_VERSION,
			.line_size = 64,
			.granule = 64,
			.features = DMASYNC_FEATURE_STRIDED | DMASYNC_FEATURE_SIMULATED |
				    DMASYNC_FEATURE_DIRECT,
			.instance = 1,
			.max_buffers = 16,
			.max_queues = HOSTILE_QUEUES,
			.max_depth = 64,
			.max_units = 256,
			.max_requests = 16,
			.max_buffer_bytes = 1 << 30,
			.max_batch_lines = 1 << 20,
		};
		return sizeof reply->hello;
	case DMASYNC_OP_BUFFER_ADD:
		reply->buffer = (struct dmasync_buffer_add_reply){
			.handle = add->handle ? add->handle : 1u << 14 | (++handle & 0x3fff),
			.backend = add->backend ? add->backend : DMASYNC_BACKEND_DIRECT,
			.kind = DMASYNC_KIND_MEMFD,
			.size = add->size ? add->size : 4096,
		};
		return sizeof reply->buffer;
	case DMASYNC_OP_QUEUE_CREATE:
		reply->queue = (struct dmasync_queue_create_reply){.queue = hostile_queue_count + 1,
								   .depth = create->depth,
								   .units = create->units,
								   .cpu = -1,
								   .spin_us = 1};
		if (hostile_queue_make(create, fds))
			*ret_count = DMASYNC_QUEUE_FDS;
		return sizeof reply->queue;
	}
	return sizeof(struct dmasync_done_reply);
}

static void answer(const struct dmasync_message *request)
{
	uint8_t how = input_u8(input);
	union any_reply reply = {0};
	int fds[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
	size_t size, made = 0, count;

	switch (how & 15) {
	case ANSWER_REFUSE:
		send_error(request, -ENOSPC);
		return;
	case ANSWER_ERROR:
		send_error(request, (int)input_u32(input));
		return;
	case ANSWER_NONE:
		return;
	case ANSWER_HANG_UP:
		hang_up();
		return;
	case ANSWER_EVENT:
	case ANSWER_JUNK:
		send_junk();
		break;
	default:
		break;
	}
	size = make_answer(request, &reply, fds, &made);
	reply.header = (struct dmasync_message){.size = (uint32_t)size,
						.opcode = request->opcode,
						.flags = DMASYNC_MESSAGE_REPLY,
						.cookie = request->cookie};
	if (how & SPOIL_BYTE) {
		uint8_t at = input_u8(input);

		reply.bytes[at % size] ^= input_u8(input);
	}
	if (how & SPOIL_SIZE) {
		size = input_u8(input);
		reply.header.size = (uint32_t)size;
	}
	count = how & SPOIL_FDS ? input_u8(input) % 8u : made;
	if (peer >= 0)
		for (size_t i = made; i < count; i++)
			fds[i] = fcntl(peer, F_DUPFD_CLOEXEC,
				       3); /* its own socket: a strange file */
	send_packet(&reply, size, fds, peer >= 0 ? count : 0);
	if (how & SPOIL_TWICE)
		send_packet(&reply, size, fds, peer >= 0 ? count : 0);
	for (size_t i = 0; i < 8; i++)
		close_fd_(&fds[i]);
}

/* Whatever the library has sent. */
static void answer_all(void)
{
	while (peer >= 0) {
		_Alignas(8) unsigned char bytes[4096];
		union {
			struct cmsghdr header;
			char space[CMSG_SPACE(4 * sizeof(int))];
		} control;
		struct iovec part = {.iov_base = bytes, .iov_len = sizeof bytes};
		struct msghdr message = {.msg_iov = &part,
					 .msg_iovlen = 1,
					 .msg_control = &control,
					 .msg_controllen = sizeof control};
		ssize_t n = recvmsg(peer, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		struct cmsghdr *fds = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;

		if (n < (ssize_t)sizeof(struct dmasync_message))
			return;
		for (size_t i = 0; fds && i < (fds->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++)
			close(((int *)CMSG_DATA(fds))[i]);
		claim(((struct dmasync_message *)(void *)bytes)->size == (size_t)n);
		answer((struct dmasync_message *)(void *)bytes);
	}
}

/* ---- what the library calls ---- */

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t size)
{
	static const int errors[] = {ECONNREFUSED, ENOENT, EAGAIN, EACCES};
	uint8_t how = input_u8(input);
	int pair[2];

	(void)address;
	(void)size;
	if (how >= 252) {
		now_ns_ += 1000000; /* what waits for it in a loop has an end */
		errno = errors[how - 252];
		return -1;
	}
	claim(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	claim(dup3(pair[0], fd, O_CLOEXEC) == fd);
	close(pair[0]);
	hang_up();
	peer = pair[1];
	return 0;
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
	ssize_t n = __real_sendmsg(fd, message, flags);
	int error = errno;

	answer_all();
	errno = error;
	return n;
}

int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *timeout,
		 const sigset_t *mask)
{
	const struct timespec none = {0, 0};
	int r = __real_ppoll(fds, count, &none, mask);

	if (r != 0 || (timeout && timeout->tv_sec == 0 && timeout->tv_nsec == 0))
		return r;
	hostile_act();
	r = __real_ppoll(fds, count, &none, mask);
	if (r != 0) {
		idle = 0;
		return r;
	}
	if (timeout) {
		pass(timeout);
		return 0;
	}
	if (++idle > IDLE_MAX) {
		idle = 0;
		hang_up();
	}
	errno = EINTR; /* a signal: it waits on */
	return -1;
}

/* ---- deeds ---- */

void hostile_act(void)
{
	uint8_t what = input_u8(input);
	struct served *queue = &hostile_served[what >> 4 & (HOSTILE_QUEUES - 1)];

	answer_all();
	if (!queue->used && (what & 15) > 4 && (what & 15) < 11)
		what = 0;
	switch (what & 15) {
	case 5:
	case 6:
	case 7:
	case 8:
	case 9:
	case 10:
		hostile_queue_spoil(queue, what);
		break;
	case 11:
		hang_up();
		break;
	case 12:
		send_junk();
		break;
	case 13:
		break;
	default:
		hostile_queues_serve();
		break;
	}
}

void hostile_begin(struct input *from)
{
	input = from;
	now_ns_ = INT64_C(1000000000000);
	handle = 0;
	hostile_queues_begin(from);
	idle = 0;
}

void hostile_end(void)
{
	hang_up();
	hostile_queues_end();
}
