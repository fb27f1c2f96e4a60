/* SPDX-License-Identifier: MIT */
/* The buffers that a command line names. Owns nothing: fds are the caller's. Main thread. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "client/ctl/files.h"

static int open_path(const char *path, int *ret_fd)
{
	/* O_NONBLOCK: the path of a FIFO must not keep us waiting for its other end. */
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0 && (errno == EACCES || errno == EROFS || errno == EISDIR))
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return ctl_fail("%s: %s", path, strerror(errno));
	*ret_fd = fd;
	return CTL_OK;
}

static int duplicate(int fd, int *ret_fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	if (copy < 0)
		return ctl_fail("--fd %d: %s; pass an open one, as in `dmasyncctl probe --fd 3 "
				"3<>FILE`",
				fd, strerror(errno));
	*ret_fd = copy;
	return CTL_OK;
}

int files_choose(const char *path, uint64_t fd, int *ret_fd)
{
	if (path && fd != FILES_NO_FD)
		return ctl_usage("--fd %d and the path %s exclude each other", (int)fd, path);
	if (path)
		return open_path(path, ret_fd);
	if (fd != FILES_NO_FD)
		return duplicate((int)fd, ret_fd);
	*ret_fd = -1;
	return CTL_OK;
}
