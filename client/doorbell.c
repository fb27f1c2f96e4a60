/* SPDX-License-Identifier: MIT */
/*
 * The doorbell: one byte into a pipe, when the worker said that it sleeps. The queue's thread.
 *
 * A pipe whose reader is gone raises SIGPIPE in the writer, and the daemon may die at any moment.
 * A library must not touch the process's handlers, and MSG_NOSIGNAL is for sockets. Linux 6.18 has
 * RWF_NOSIGNAL for this very case; before it, the signal is blocked for this thread, and one that
 * the write has made pending is taken back. SIGPIPE from write() is sent to the writing thread, so
 * no other thread can see it in between.
 */
#include <signal.h>
#include <sys/uio.h>

#include "client/internal.h"

#ifndef RWF_NOSIGNAL
#define RWF_NOSIGNAL 0x00000100
#endif

static const char doorbell_byte = 1;

/* Returns 0, or the errno of write(), positive. */
static int write_masked(int fd)
{
	struct timespec now = {0};
	sigset_t sigpipe, before, pending;
	bool was_blocked, was_pending = false;
	int error = 0;

	sigemptyset(&sigpipe);
	sigaddset(&sigpipe, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &sigpipe, &before);
	/* Only a blocked signal can have been pending; that one is the application's to keep. */
	was_blocked = sigismember(&before, SIGPIPE) == 1;
	if (was_blocked && sigpending(&pending) == 0)
		was_pending = sigismember(&pending, SIGPIPE) == 1;
	if (write(fd, &doorbell_byte, 1) < 0)
		error = errno;
	if (error == EPIPE && !was_pending)
		while (sigtimedwait(&sigpipe, NULL, &now) < 0 && errno == EINTR)
			;
	if (!was_blocked)
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

void doorbell_ring(struct dmasync_queue *queue)
{
	int error = EOPNOTSUPP;

	if (!queue->plain_doorbell) {
		struct iovec byte = {.iov_base = (void *)(uintptr_t)&doorbell_byte, .iov_len = 1};

		if (pwritev2(queue->doorbell_fd, &byte, 1, -1, RWF_NOSIGNAL) == 1)
			error = 0;
		else
			error = errno;
		/* Unknown flags are EOPNOTSUPP; EINVAL and ENOSYS come from seccomp and emulators.
		 */
		if (error == EOPNOTSUPP || error == EINVAL || error == ENOSYS || error == EPERM)
			queue->plain_doorbell = true;
	}
	if (queue->plain_doorbell)
		error = write_masked(queue->doorbell_fd);
	/* A full pipe has been rung already. The batch stays in flight: peek and wait tell the
	 * rest. */
	if (error != 0 && error != EAGAIN)
		control_break(queue->ds, queue->life, 0);
}
