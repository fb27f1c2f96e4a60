/* SPDX-License-Identifier: MIT */
/*
 * The pollable descriptor of a queue: readable while completions are unread, and when the daemon is
 * gone. It outlives the daemon. The queue's thread. Costs nothing until it is first asked for.
 *
 * An epoll fd over three: the notification pipe, which the worker writes to when client_sleeping is
 * set; a dup of the control socket, for its hang-up; and an eventfd of our own for what no
 * notification will come for: completions that were there before the flag was set, or that wait in
 * the stash. The worker's byte stays in the pipe until the ring was seen empty, so a flag that is
 * taken while more completions follow keeps the descriptor readable. It may also come late, for a
 * completion that was read meanwhile.
 *
 * While no daemon answers, there is neither pipe nor socket to watch: a timer makes the descriptor
 * readable when the next step back to one is due, which the application's next peek does.
 */
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

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
	if (queue->lost != LOST_NONE && queue_in_flight(queue))
		return true;
	return queue->read != atomic_load_explicit(&queue->submitted, memory_order_relaxed) &&
	       dmasync_ring_completion_reached(&queue->ring, queue->read);
}

static int watch(int epoll_fd, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events};

	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* 0: never. Also makes it unreadable until then. */
static void set_timer(struct dmasync_queue *queue, int64_t when)
{
	struct itimerspec timer = {.it_value = to_timespec(when)};

	timerfd_settime(queue->timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
}

void queue_fd_leave(struct dmasync_queue *queue)
{
	if (queue->watch_fd < 0)
		return;
	/* Asked for, not left to close(): a forked child may hold the same files. */
	epoll_ctl(queue->epoll_fd, EPOLL_CTL_DEL, queue->notification_fd, NULL);
	epoll_ctl(queue->epoll_fd, EPOLL_CTL_DEL, queue->watch_fd, NULL);
	queue->watch_fd = close_fd(queue->watch_fd);
}

/*
 * Watches the ends of the daemon that the queue is attached to. The socket by a number of its own:
 * the other one may stand for a new socket at any moment, put there by another thread. The old one
 * is shut down then, so that a dup of it keeps nothing alive.
 */
static int enter(struct dmasync_queue *queue)
{
	/* Inline, there is no socket, and the pipe alone is watched: its number stands for both. */
	int fd = fcntl(queue->in_process ? queue->notification_fd : queue->ds->socket,
		       F_DUPFD_CLOEXEC, 3);
	int r = fd < 0 ? -errno : 0;

	if (r == 0 && !queue->in_process)
		r = watch(queue->epoll_fd, fd, EPOLLRDHUP);

	if (r == 0)
		r = watch(queue->epoll_fd, queue->notification_fd, EPOLLIN);
	if (r < 0) {
		if (fd >= 0)
			epoll_ctl(queue->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
		close_fd(fd);
		return r;
	}
	queue->watch_fd = fd;
	queue->notify_armed = false;
	set_timer(queue, 0);
	return 0;
}

/* No daemon. Readable when there is something to read, or a step to be done. */
static void settle_away(struct dmasync_queue *queue)
{
	bool set = unread(queue) || control_broken(queue->ds);

	queue_fd_leave(queue);
	event_set(queue, set);
	set_timer(queue, set ? 0 : queue_next_look(queue));
}

void queue_fd_settle(struct dmasync_queue *queue, bool found)
{
	uint32_t *flag = &queue->ring.header->client_sleeping;

	if (queue->epoll_fd < 0)
		return;
	if (!queue_current(queue) || (queue->watch_fd < 0 && enter(queue) < 0)) {
		settle_away(queue);
		return;
	}
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
		control_break(queue->ds, queue->life, 0);
	dmasync_ring_announce_sleep(flag);
	queue->notify_armed = true;
	if (unread(queue))
		event_set(queue, true);
}

DMASYNC_PUBLIC int dmasync_queue_fd(struct dmasync_queue *queue)
{
	int r;

	if (!fork_guard_ok(queue->ds))
		return -ECHILD;
	if (queue->epoll_fd >= 0)
		return queue->epoll_fd;
	queue->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	queue->event_fd = queue->epoll_fd < 0 ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	queue->timer_fd = queue->event_fd < 0
				  ? -1
				  : timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	r = queue->timer_fd < 0 ? -errno : watch(queue->epoll_fd, queue->event_fd, EPOLLIN);
	if (r == 0)
		r = watch(queue->epoll_fd, queue->timer_fd, EPOLLIN);
	if (r == 0 && queue_current(queue))
		r = enter(queue);
	if (r < 0) {
		queue_fd_close(queue);
		return r;
	}
	queue_fd_settle(queue, false);
	return queue->epoll_fd;
}

void queue_fd_close(struct dmasync_queue *queue)
{
	queue->epoll_fd = close_fd(queue->epoll_fd);
	queue->event_fd = close_fd(queue->event_fd);
	queue->timer_fd = close_fd(queue->timer_fd);
	queue->watch_fd = close_fd(queue->watch_fd);
}
