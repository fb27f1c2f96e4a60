/* SPDX-License-Identifier: MIT */
/*
 * The pollable descriptor of a queue: readable while completions are unread, and when the daemon is
 * gone. The queue's thread. Costs nothing until it is first asked for.
 *
 * An epoll fd over three: the notification pipe, which the worker writes to when client_sleeping is
 * set; the control socket, for its hang-up; and an eventfd of our own for what no notification
 * will come for: completions that were there before the flag was set, or that wait in the stash.
 * The worker's byte stays in the pipe until the ring was seen empty, so a flag that is taken while
 * more completions follow keeps the descriptor readable. It may also come late, for a completion
 * that was read meanwhile.
 */
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "client/internal.h"

static void event_set(struct dmasync_queue *queue, bool set)
{
	uint64_t one = 1;

	if (queue->event_set == set)
		return;
	/* Neither can fail: the counter goes from 0 to 1 and back. */
	if (set)
		(void)!write(queue->event_fd, &one, sizeof one);
	else
		(void)!read(queue->event_fd, &one, sizeof one);
	queue->event_set = set;
}

/* Is there anything that the next peek would return? A damaged ring counts: peek says so. */
static bool unread(const struct dmasync_queue *queue)
{
	if (queue->stash_count || queue->error)
		return true;
	return queue->read != atomic_load_explicit(&queue->submitted, memory_order_relaxed) &&
	       dmasync_ring_completion_reached(&queue->ring, queue->read);
}

void queue_fd_settle(struct dmasync_queue *queue, bool found)
{
	uint32_t *flag = &queue->ring.header->client_sleeping;

	if (queue->epoll_fd < 0)
		return;
	if (unread(queue)) {
		event_set(queue, true);
		return;
	}
	event_set(queue, false);
	/*
	 * Whoever found something will look again, and is spared the system calls while the flag
	 * stands. Whoever found nothing may have come for a late byte, which would bring him back
	 * for ever.
	 */
	if (found && queue->notify_armed && !dmasync_ring_sleep_was_taken(flag))
		return;
	/*
	 * As a sleeper would: announce, look once more. The pipe is emptied before, never after: a
	 * byte that comes once the flag is set belongs to a completion that nobody has read. Where
	 * that byte goes with the others, the flag is set anew and the look finds the completion.
	 */
	if (!notification_drain(queue))
		control_break(queue->ds, 0);
	dmasync_ring_announce_sleep(flag);
	queue->notify_armed = true;
	if (unread(queue))
		event_set(queue, true);
}

static int watch(int epoll_fd, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events};

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

DMASYNC_PUBLIC int dmasync_queue_fd(struct dmasync_queue *queue)
{
	int epoll_fd, event_fd, r;

	if (!fork_guard_ok(queue->ds))
		return -ECHILD;
	if (queue->epoll_fd >= 0)
		return queue->epoll_fd;
	epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (epoll_fd < 0)
		return -errno;
	event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	r = event_fd < 0 ? -errno : watch(epoll_fd, event_fd, EPOLLIN);
	if (r == 0)
		r = watch(epoll_fd, queue->notification_fd, EPOLLIN);
	if (r == 0 && queue->ds->socket >= 0)
		r = watch(epoll_fd, queue->ds->socket, EPOLLRDHUP);
	if (r < 0) {
		close_fd(event_fd);
		close(epoll_fd);
		return r;
	}
	queue->epoll_fd = epoll_fd;
	queue->event_fd = event_fd;
	queue_fd_settle(queue, false);
	return epoll_fd;
}

void queue_fd_close(struct dmasync_queue *queue)
{
	queue->epoll_fd = close_fd(queue->epoll_fd);
	queue->event_fd = close_fd(queue->event_fd);
}
