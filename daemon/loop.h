/* SPDX-License-Identifier: MIT */
/*
 * The control loop: watches on fds and timers, on one thread. It waits in an io_uring
 * (loop_uring.c) or, where the kernel refuses one, in epoll (loop_epoll.c).
 */
#ifndef DMASYNC_LOOP_H
#define DMASYNC_LOOP_H

#include <stddef.h>
#include <stdint.h>

struct loop;
struct loop_watch;
struct loop_timer;

/* What the daemon waits in; the workers have the same choice (worker_wait.c). */
enum loop_kind {
	LOOP_AUTO, /* io_uring where the kernel has it for us, else epoll */
	LOOP_URING,
	LOOP_EPOLL,
};

/* "auto", "uring", "epoll"; -EINVAL for any other. */
int loop_kind_from_name(const char *name);
const char *loop_kind_name(enum loop_kind kind);

/* LOOP_URING: -EPERM, -ENOSYS, -ENOMEM where io_uring is refused; uring_refusal() says why. */
int loop_create(enum loop_kind kind, struct loop **ret);
/* After every watch and timer. */
void loop_free(struct loop *loop);

/* What it runs on, for `probe`, under 32 bytes: "io_uring defer-taskrun", "epoll". */
const char *loop_name(const struct loop *loop);
/* LOOP_URING or LOOP_EPOLL. */
enum loop_kind loop_kind(const struct loop *loop);
/* Why LOOP_AUTO became epoll: a negative errno of io_uring; else 0. */
int loop_refused(const struct loop *loop);
/* Why its ring is not restricted to the opcodes it uses: a negative errno; 0: it is, or is none. */
int loop_unrestricted(const struct loop *loop);

/*
 * Calls back with the poll(2) events that are there, POLLHUP and POLLERR always included; again as
 * long as they are there. The callback may remove its own watch or any other. The fd stays the
 * caller's and must stay open until loop_unwatch(). One watch for each fd.
 */
typedef void (*loop_callback)(void *context, uint32_t events);
int loop_watch(struct loop *loop, int fd, uint32_t events, loop_callback callback, void *context,
	       struct loop_watch **ret);
void loop_rewatch(struct loop_watch *watch, uint32_t events); /* other events; 0 pauses it */
/* No callback after this, and the loop holds the file no more: close(fd) closes. NULL is fine. */
void loop_unwatch(struct loop_watch *watch);

/*
 * One-shot, CLOCK_MONOTONIC, `ns` from now; set again to repeat. Never early; up to a millisecond
 * late with epoll. The callback may free it.
 */
int loop_timer_create(struct loop *loop, void (*callback)(void *context), void *context,
		      struct loop_timer **ret);
int loop_timer_set(struct loop_timer *timer, uint64_t ns);
void loop_timer_cancel(struct loop_timer *timer);
void loop_timer_free(struct loop_timer *timer);

/* Until loop_exit(). Returns its status, or a negative errno where the loop itself broke. */
int loop_run(struct loop *loop);
void loop_exit(struct loop *loop, int status);

#endif
