/* SPDX-License-Identifier: MIT */
/*
 * Children and signals of the demo's parent: signals are blocked and waited for, so that nothing
 * runs in a handler. One thread.
 */
#include "process.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static sigset_t awaited, original;
static bool interrupted;

void process_init(void)
{
	sigemptyset(&awaited);
	sigaddset(&awaited, SIGINT);
	sigaddset(&awaited, SIGTERM);
	sigaddset(&awaited, SIGHUP);
	sigaddset(&awaited, SIGCHLD);
	sigprocmask(SIG_BLOCK, &awaited, &original);
	signal(SIGPIPE, SIG_IGN); /* `demo | head` must not keep us from cleaning up */
	fflush(NULL);
}

pid_t process_fork(void)
{
	pid_t parent = getpid();

	fflush(NULL); /* or the child would print it a second time */

	pid_t child = fork();

	if (child < 0)
		return -errno;
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != parent)
			_exit(EXIT_FAILURE);
		signal(SIGPIPE, SIG_DFL);
		sigprocmask(SIG_SETMASK, &original, NULL);
	}
	return child;
}

pid_t process_spawn(const char *const *arguments, bool background)
{
	pid_t child = process_fork();

	if (child != 0)
		return child;
	if (background)
		setpgid(0, 0);
	execvp(arguments[0], (char *const *)arguments); /* which does not write to them */
	fprintf(stderr, "demo: cannot run %s: %s\n", arguments[0], strerror(errno));
	_exit(127);
}

/* Waits for one signal at most so long; true where it was one to stop. */
static bool take_signal(const struct timespec *timeout)
{
	int number = sigtimedwait(&awaited, NULL, timeout);

	if (number > 0 && number != SIGCHLD)
		interrupted = true;
	return interrupted;
}

int process_wait_all(const pid_t *children, int count, bool terminate)
{
	/* A signal may come before its child can be waited for: look again without one. */
	const struct timespec look_again = {.tv_nsec = 100000000};
	bool ended[8] = {false};
	bool told = false;
	int r = 0;

	if (count > 8)
		return -E2BIG;
	for (;;) {
		int running = 0;

		for (int i = 0; i < count; i++) {
			int status;

			if (children[i] <= 0 || ended[i])
				continue;
			if (waitpid(children[i], &status, WNOHANG) == 0) {
				running++;
				continue;
			}
			ended[i] = true;
			if (WIFSIGNALED(status) && !told)
				fprintf(stderr, "demo: process %d was killed: %s\n",
					(int)children[i], strsignal(WTERMSIG(status)));
			if (r == 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
				r = -ECHILD;
		}
		if (running == 0)
			return interrupted ? -EINTR : r;
		if ((terminate || interrupted || r < 0) && !told) {
			told = true;
			for (int i = 0; i < count; i++)
				if (children[i] > 0 && !ended[i])
					kill(children[i], SIGTERM);
		}
		take_signal(&look_again);
	}
}

bool process_has_ended(pid_t child)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) < 0 ||
	       info.si_pid == child;
}

bool process_interrupted(void)
{
	return interrupted;
}

bool process_pause(unsigned milliseconds)
{
	const struct timespec timeout = {
		.tv_sec = (time_t)(milliseconds / 1000),
		.tv_nsec = (long)(milliseconds % 1000) * 1000000,
	};

	return take_signal(&timeout);
}
