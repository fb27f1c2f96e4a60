/* SPDX-License-Identifier: MIT */
/*
 * SIGBUS and SIGSEGV on a client's mapping become an error of that client: code that touches
 * client memory runs under guard_run(). Any thread; each has its own guard.
 */
#ifndef DMASYNC_GUARD_H
#define DMASYNC_GUARD_H

#include <stdbool.h>

/* Installs the process-wide handlers, once, before threads start. Negative errno. */
int guard_install(void);

/*
 * Runs fn(argument). False where it faulted: it was left in the middle, at the faulting access, so
 * it must own nothing (no lock, no fd). Not nested. A fault outside a guard kills the process as
 * it would without one.
 */
bool guard_run(void (*fn)(void *argument), void *argument);

#endif
