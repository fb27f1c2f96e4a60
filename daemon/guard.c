/* SPDX-License-Identifier: MIT */
/* Faults on client mappings, see guard.h. Any thread. */
#include "daemon/guard.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>

static _Thread_local sigjmp_buf *guard;

static void on_fault(int signal, siginfo_t *info, void *context)
{
	(void)info;
	(void)context;
	if (guard)
		siglongjmp(*guard, 1);

	/* Not ours: die of it, with the core dump pointing at the access, which is executed again.
	 */
	struct sigaction action = {.sa_handler = SIG_DFL};

	sigaction(signal, &action, NULL);
}

int guard_install(void)
{
	/*
	 * SA_NODEFER: the handler leaves by siglongjmp() without restoring the mask (which would
	 * cost a system call per guard), so the signal must not have been blocked.
	 */
	struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER};

	sigemptyset(&action.sa_mask);
	if (sigaction(SIGBUS, &action, NULL) < 0 || sigaction(SIGSEGV, &action, NULL) < 0)
		return -errno;
	return 0;
}

bool guard_run(void (*fn)(void *argument), void *argument)
{
	sigjmp_buf here;

	if (sigsetjmp(here, 0)) {
		guard = NULL;
		return false;
	}
	guard = &here;
	/* The handler runs on this thread: only the compiler could move the accesses out. */
	__asm__ volatile("" ::: "memory");
	fn(argument);
	__asm__ volatile("" ::: "memory");
	guard = NULL;
	return true;
}
