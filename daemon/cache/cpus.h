/* SPDX-License-Identifier: MIT */
/*
 * Lists of CPUs as the kernel writes them: "0-3,5". Any thread.
 */
#ifndef DMASYNC_CACHE_CPUS_H
#define DMASYNC_CACHE_CPUS_H

#include <sched.h>

/* Returns 0; -EINVAL: empty, malformed or backwards; -ERANGE: a CPU beyond CPU_SETSIZE - 1. */
int cache_cpus_parse(const char *list, cpu_set_t *ret);

#endif
