/* SPDX-License-Identifier: MIT */
/* Which CPU each worker is pinned to. Control thread. */
#ifndef DMASYNC_PLACEMENT_H
#define DMASYNC_PLACEMENT_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/config.h"

/*
 * From cpus= in its order; without it, the last CPUs of `allowed`, one for each of workers=. The
 * last, because the first ones are where interrupts and most processes are found.
 * -EINVAL, with a sentence in text, where cpus= names a CPU that is not allowed. 0 with a sentence
 * in text where there are fewer CPUs than workers=: as many workers as CPUs.
 */
int placement_choose(const struct config *config, const cpu_set_t *allowed,
		     int cpus[CONFIG_CPUS_MAX], uint32_t *ret_count, char *text, size_t text_size);

/*
 * For a worker that lost its CPU: that one where it is allowed again, else the last of `allowed`
 * that no other worker has (`taken`), else -1.
 */
int placement_again(int home, const cpu_set_t *allowed, const cpu_set_t *taken);

/* For the slow worker: all of `allowed` but what is `taken`, where that leaves any. */
void placement_beside(const cpu_set_t *allowed, const cpu_set_t *taken, cpu_set_t *ret);

#endif
