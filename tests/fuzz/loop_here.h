/* SPDX-License-Identifier: MIT */
/* The control loop (daemon/loop.c) on a way to wait that does not wait. One loop, one thread. */
#ifndef TESTS_FUZZ_LOOP_HERE_H
#define TESTS_FUZZ_LOOP_HERE_H

#include <stdbool.h>

#include "daemon/loop.h"

struct loop *loop_here_make(void);
/* Calls back once what is ready; where `timers`, all timers that are set are due. True: some was.
 */
bool loop_here_run(struct loop *loop, bool timers);

#endif
