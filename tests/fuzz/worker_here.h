/* SPDX-License-Identifier: MIT */
/*
 * A worker without a thread: the daemon's own, turned by hand, so that an input always takes the
 * same way. All of it on one thread.
 */
#ifndef TESTS_FUZZ_WORKER_HERE_H
#define TESTS_FUZZ_WORKER_HERE_H

#include <stdbool.h>

#include "daemon/worker_internal.h"

/* As worker_start(); params->cpu is not looked at. */
int worker_here_start(const struct worker_params *params, struct worker **ret);
/* One turn; true where there was something to do. */
bool worker_here_turn(struct worker *worker);
/* Goes to sleep and is woken at once: doorbells are armed, and what has come is seen. */
void worker_here_nap(struct worker *worker);
/* It knows no queue and no client any more. */
bool worker_here_is_empty(const struct worker *worker);

#endif
