/* SPDX-License-Identifier: MIT */
/* Helpers without threads: a job runs when the target says so. One thread. */
#ifndef TESTS_FUZZ_HELPERS_HERE_H
#define TESTS_FUZZ_HELPERS_HERE_H

#include <stdbool.h>

#include "daemon/helper.h"

/* The job that was submitted first; false where there is none. */
bool helpers_here_run_one(void);

#endif
