/* SPDX-License-Identifier: MIT */
/*
 * Taking over or making the listening socket. Owns the socket's file. Control thread, before any
 * other thread is started.
 */
#include "daemon/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/log.h"
#include "proto/message.h"

#define PATIENCE_NS UINT64_C(1000000000) /* with a daemon that may just have died */
#define PAUSE_MS 10			 /* between two attempts */

static int take_passed(int count, struct listener *ret)
{
	int fd = SD_LISTEN_FDS_START;
	int flags;

	if (count != 1) {
		log_error("systemd passed %d sockets; the socket unit must have exactly one "
			  "ListenSequentialPacket=",
			  count);
		return -EINVAL;
	}
	if (sd_is_socket(fd, AF_UNIX, SOCK_SEQPACKET, 1) <= 0) {
		log_error("the socket that systemd passed is not a listening AF_UNIX socket of "
			  "type SOCK_SEQPACKET; use ListenSequentialPacket= in the socket unit");
		return -EINVAL;
	}
	flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	ret->fd = fd;
	return 0;
}

/* True where a connection was accepted and then not dropped until `end_ns`. */
static bool stays_connected(int fd, uint64_t end_ns)
{
	struct pollfd other = {.fd = fd, .events = 0};
	uint64_t now = clock_ns();

	return poll(&other, 1, now < end_ns ? (int)((end_ns - now) / 1000000) : 0) == 0;
}

/*
 * The kernel takes apart the ring of a process that was killed after the process has gone, and
 * until then the ring holds the listening socket: it still accepts. So a connection that is dropped
 * again proves nothing, and is tried anew.
 */
static bool somebody_answers(const struct sockaddr_un *address)
{
	uint64_t end_ns = clock_ns() + PATIENCE_NS;
	bool answers;

	do {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

		if (fd < 0)
			return false;
		if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0) {
			/* A full queue of waiting connections is EAGAIN: somebody listens. */
			answers = errno == EAGAIN;
			close(fd);
			return answers;
		}
		answers = stays_connected(fd, end_ns);
		close(fd);
		if (!answers)
			poll(NULL, 0, PAUSE_MS);
	} while (!answers && clock_ns() < end_ns);
	return true;
}

/* Removes what a daemon that died has left behind, and nothing else. */
static int clear_path(const struct sockaddr_un *address)
{
	const char *path = address->sun_path;
	struct stat st;

	if (lstat(path, &st) < 0)
		return 0; /* nothing there, or bind says why not */
	if (!S_ISSOCK(st.st_mode)) {
		log_error("%s exists and is not a socket; remove it, or choose another path with "
			  "--socket",
			  path);
		return -EEXIST;
	}
	if (somebody_answers(address)) {
		log_error("another daemon answers on %s; stop it, or choose another path with "
			  "--socket",
			  path);
		return -EADDRINUSE;
	}
	if (unlink(path) < 0 && errno != ENOENT) {
		int error = errno;

		log_error("%s is left from a daemon that died and cannot be removed: %s", path,
			  strerror(error));
		return -error;
	}
	return 0;
}

static int refuse_bind(const char *path, int error)
{
	int directory = (int)(strrchr(path, '/') - path);

	if (directory == 0)
		directory = 1; /* the root */
	if (error == ENOENT)
		log_error("the directory %.*s of the socket does not exist; create it, or choose "
			  "another path with --socket",
			  directory, path);
	else if (error == EACCES || error == EPERM || error == EROFS)
		log_error("no permission to create %s (%s); start dmasyncd.socket, run as a user "
			  "that may write to %.*s, or choose another path with --socket",
			  path, strerror(error), directory, path);
	else
		log_error("the socket %s cannot be created: %s", path, strerror(error));
	return -error;
}

static int make(const char *path, struct listener *ret)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct listener listener = {.fd = -1};
	struct stat st;
	int r;

	if (strlen(path) >= sizeof(address.sun_path)) {
		log_error("%s is too long for a socket; at most %zu bytes", path,
			  sizeof(address.sun_path) - 1);
		return -EINVAL;
	}
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	r = clear_path(&address);
	if (r < 0)
		return r;
	listener.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (listener.fd < 0)
		return refuse_bind(path, errno);

	/* 0660 from its first moment on, not after a chmod that somebody may be faster than. */
	mode_t mask = umask(0117);
	int bound = bind(listener.fd, (const struct sockaddr *)&address, sizeof(address));
	int error = errno;

	umask(mask);
	if (bound < 0) {
		close(listener.fd);
		return refuse_bind(path, error);
	}
	listener.path = strdup(path);
	if (!listener.path || lstat(path, &st) < 0 || listen(listener.fd, SOMAXCONN) < 0) {
		r = listener.path ? -errno : -ENOMEM;
		log_error("no listening socket at %s: %s", path, strerror(-r));
		unlink(path);
		close(listener.fd);
		free(listener.path);
		return r;
	}
	listener.device = st.st_dev;
	listener.inode = st.st_ino;
	*ret = listener;
	return 0;
}

int listener_open(const char *path, struct listener *ret)
{
	struct listener listener = {.fd = -1};
	int count = sd_listen_fds(1);
	int r;

	if (count < 0) {
		log_error("LISTEN_FDS or LISTEN_PID is not understood: %s", strerror(-count));
		return count;
	}
	if (count == 0)
		return make(path ? path : DMASYNC_SOCKET_PATH, ret);
	if (path)
		log_notice("the socket that systemd passed is used, not %s", path);
	r = take_passed(count, &listener);
	if (r == 0)
		*ret = listener;
	return r;
}

void listener_close(struct listener *listener)
{
	struct stat st;

	if (listener->fd >= 0)
		close(listener->fd);
	listener->fd = -1;
	/* Somebody may have put his own there meanwhile. */
	if (listener->path && lstat(listener->path, &st) == 0 && st.st_dev == listener->device &&
	    st.st_ino == listener->inode)
		unlink(listener->path);
	free(listener->path);
	listener->path = NULL;
}
