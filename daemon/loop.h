/* SPDX-License-Identifier: MIT */
/*
 * The control loop: watches on fds and timers, on one thread. loop_uring.c is io_uring with
 * single-shot polls, re-armed after each callback (level-triggered to the callback); another
 * implementation can stand behind the same calls.
 */
#ifndef DMASYNC_LOOP_H
#define DMASYNC_LOOP_H

#include <stdint.h>

struct loop;
struct loop_watch;
struct loop_timer;

/* -EPERM, -ENOSYS, -ENOMEM where the kernel refuses io_uring. */
int loop_create(struct loop **ret);
/* After every watch and timer. */
void loop_free(struct loop *loop);

/* What it runs on, for `probe`, under 32 bytes: "io_uring defer-taskrun". */
const char *loop_description(const struct loop *loop);

/*
 * Calls back with the poll(2) events that are there, POLLHUP and POLLERR always included. The
 * callback may remove its own watch or any other. The fd stays the caller's and must stay open
 * until loop_unwatch().
 */
typedef void (*loop_callback)(void *context, uint32_t events);
int loop_watch(struct loop *loop, int fd, uint32_t events, loop_callback callback, void *context,
	       struct loop_watch **ret);
void loop_rewatch(struct loop_watch *watch, uint32_t events); /* other events; 0 pauses it */
/* No callback after this, and the loop holds the file no more: close(fd) closes. NULL is fine. */
void loop_unwatch(struct loop_watch *watch);

/* One-shot, CLOCK_MONOTONIC, `ns` from now; set again to repeat. The callback may free it. */
int loop_timer_create(struct loop *loop, void (*callback)(void *context), void *context,
		      struct loop_timer **ret);
int loop_timer_set(struct loop_timer *timer, uint64_t ns);
void loop_timer_cancel(struct loop_timer *timer);
void loop_timer_free(struct loop_timer *timer);

/* Until loop_exit(). Returns its status, or a negative errno where the loop itself broke. */
int loop_run(struct loop *loop);
void loop_exit(struct loop *loop, int status);

#endif
