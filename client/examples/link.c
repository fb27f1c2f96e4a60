/* SPDX-License-Identifier: MIT */
/*
 * Socket pairs between the demo's processes. They trust one another: all come from one program.
 * One thread at each end.
 */
#include "link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum { MAX_FDS = 16 };

int link_create(int ret_ends[2])
{
	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret_ends) < 0 ? -errno : 0;
}

int link_send(int link, const struct frame_message *message)
{
	return send(link, message, sizeof *message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int link_receive(int link, struct frame_message *ret)
{
	struct frame_message message;
	ssize_t n = recv(link, &message, sizeof message, 0);

	if (n == 0 || (n < 0 && errno == ECONNRESET))
		return 0;
	if (n < 0)
		return -errno;
	if ((size_t)n != sizeof message)
		return -EPROTO;
	*ret = message;
	return 1;
}

int link_send_fds(int link, const int *fds, uint32_t count)
{
	char byte = 0;
	struct iovec vector = {.iov_base = &byte, .iov_len = 1};
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(MAX_FDS * sizeof(int))];
	} control = {0};
	struct msghdr message = {
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = control.space,
		.msg_controllen = CMSG_SPACE(count * sizeof(int)),
	};

	if (count > MAX_FDS)
		return -E2BIG;
	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(&control.header), fds, count * sizeof(int));
	return sendmsg(link, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int link_receive_fds(int link, int *ret_fds, uint32_t count)
{
	char byte;
	struct iovec vector = {.iov_base = &byte, .iov_len = 1};
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(MAX_FDS * sizeof(int))];
	} control;
	struct msghdr message = {
		.msg_iov = &vector,
		.msg_iovlen = 1,
		.msg_control = control.space,
		.msg_controllen = sizeof control.space,
	};
	ssize_t n = recvmsg(link, &message, MSG_CMSG_CLOEXEC);

	if (n < 0)
		return -errno;
	if (n == 0)
		return -ECONNRESET;

	const struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	if (!header || header->cmsg_type != SCM_RIGHTS ||
	    header->cmsg_len != CMSG_LEN(count * sizeof(int)))
		return -EPROTO;
	memcpy(ret_fds, CMSG_DATA(header), count * sizeof(int));
	return 0;
}
