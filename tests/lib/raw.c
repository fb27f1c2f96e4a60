/* SPDX-License-Identifier: MIT */
/*
 * Raw clients: they speak bytes and may say anything, also what the library would never send. For
 * the thread of a test.
 */
#include "tests/lib/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FDS_MAX 253 /* of one message: the kernel's SCM_MAX_FD */
#define REPLY_MS 10000

int harness_try_connect(const char *socket_path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -errno;
	snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
	if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
		int error = errno;

		close(fd);
		return -error;
	}
	return fd;
}

int harness_connect(const char *socket_path)
{
	int fd = harness_try_connect(socket_path);

	if (fd < 0)
		fail_case("%s: %s", socket_path, strerror(-fd));
	return fd;
}

union control {
	struct cmsghdr header;
	char space[CMSG_SPACE(FDS_MAX * sizeof(int))];
};

int harness_send(int socket, const void *data, size_t size, const int *fds, size_t fd_count)
{
	union control control = {0};
	struct iovec part = {.iov_base = (void *)data, .iov_len = size};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (fd_count > FDS_MAX)
		return -EINVAL;
	if (fd_count) {
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(fd_count * sizeof *fds);
		memcpy(CMSG_DATA(&control.header), fds, fd_count * sizeof *fds);
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(fd_count * sizeof *fds);
	}

	ssize_t n = sendmsg(socket, &message, MSG_NOSIGNAL);

	if (n < 0)
		return -errno;
	return (size_t)n == size ? 0 : -EIO;
}

ssize_t harness_receive(int socket, void *data, size_t size, int *fds, size_t *fd_count,
			int timeout_ms)
{
	struct pollfd ready = {.fd = socket, .events = POLLIN};
	union control control;
	struct iovec part = {.iov_base = data, .iov_len = size};
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof control,
	};
	size_t room = fd_count ? *fd_count : 0, got = 0;

	int n = poll(&ready, 1, (int)harness_scaled_ms(timeout_ms));

	if (n == 0)
		return -ETIMEDOUT;
	if (n < 0)
		return -errno;

	ssize_t length = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);

	if (length < 0)
		return -errno;
	if (message.msg_flags & MSG_TRUNC)
		fail_case("a message is larger than the %zu bytes there are for it", size);
	for (struct cmsghdr *part_of = CMSG_FIRSTHDR(&message); part_of;
	     part_of = CMSG_NXTHDR(&message, part_of)) {
		if (part_of->cmsg_level != SOL_SOCKET || part_of->cmsg_type != SCM_RIGHTS)
			continue;

		size_t here = (part_of->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (got + here > room)
			fail_case("%zu fds came, at most %zu may", got + here, room);
		memcpy(fds + got, CMSG_DATA(part_of), here * sizeof(int));
		got += here;
	}
	if (fd_count)
		*fd_count = got;
	return length;
}

size_t harness_call(int socket, const void *request, size_t size, const int *fds, size_t fd_count,
		    void *reply, size_t reply_size, int *reply_fds, size_t *reply_fd_count)
{
	struct dmasync_message sent, header;
	int r = harness_send(socket, request, size, fds, fd_count);

	if (r < 0)
		fail_case("send: %s", strerror(-r));

	ssize_t length =
		harness_receive(socket, reply, reply_size, reply_fds, reply_fd_count, REPLY_MS);

	if (length < 0)
		fail_case("receive: %s", strerror((int)-length));
	if ((size_t)length < sizeof header)
		fail_case("the reply has %zd bytes", length);
	memcpy(&sent, request, sizeof sent);
	memcpy(&header, reply, sizeof header);
	check_int(header.size, length);
	check_int(header.opcode, sent.opcode);
	check_int(header.cookie, sent.cookie);
	check(header.flags & DMASYNC_MESSAGE_REPLY);
	return (size_t)length;
}

void harness_hello(int socket, struct dmasync_hello_reply *ret)
{
	struct dmasync_hello hello = {
		.header = {.size = sizeof hello, .opcode = 1, .cookie = 1},
		.version_min = DMASYNC_PROTOCOL_VERSION,
		.version_max = DMASYNC_PROTOCOL_VERSION,
		.name = "harness",
	};
	union {
		struct dmasync_hello_reply hello;
		struct dmasync_error error;
	} reply = {0};
	size_t length = harness_call(socket, &hello, sizeof hello, NULL, 0, &reply, sizeof reply,
				     NULL, NULL);

	if (reply.hello.header.flags & DMASYNC_MESSAGE_ERROR)
		fail_case("HELLO: %s", reply.error.text);
	check_int(length, sizeof reply.hello);
	*ret = reply.hello;
}

int harness_memfd(size_t size, unsigned int seals)
{
	int fd = memfd_create("harness", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || ftruncate(fd, (off_t)size) < 0 ||
	    (seals && fcntl(fd, F_ADD_SEALS, (int)seals) < 0))
		fail_case("memfd: %s", strerror(errno));
	return fd;
}
