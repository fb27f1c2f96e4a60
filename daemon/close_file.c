/* SPDX-License-Identifier: MIT */
/* See close_file.h. Owns nothing but the handler. Helper threads. */
#include "daemon/close_file.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#ifndef sigev_notify_thread_id /* glibc before 2.38 */
#define sigev_notify_thread_id _sigev_un._tid
#endif

/*
 * Ordinary closes take microseconds. Again and again: each of the files that go with a socket may
 * wait.
 */
#define PATIENCE_NS 1000000

static void on_alarm(int signal)
{
	(void)signal; /* that it came is all */
}

int close_file_install(void)
{
	struct sigaction action = {.sa_handler = on_alarm}; /* no SA_RESTART */

	sigemptyset(&action.sa_mask);
	return sigaction(SIGALRM, &action, NULL) < 0 ? -errno : 0;
}

void close_file(int fd)
{
	struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM};
	struct itimerspec interval = {.it_value.tv_nsec = PATIENCE_NS,
				      .it_interval.tv_nsec = PATIENCE_NS};
	sigset_t alarms, before;
	timer_t timer;

	event.sigev_notify_thread_id = gettid();
	if (timer_create(CLOCK_MONOTONIC, &event, &timer) < 0) {
		close(fd); /* waits, which this thread may */
		return;
	}
	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	pthread_sigmask(SIG_UNBLOCK, &alarms, &before);
	timer_settime(timer, 0, &interval, NULL);
	close(fd); /* the fd is gone whatever it returns */
	timer_delete(timer);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}
