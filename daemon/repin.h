/* SPDX-License-Identifier: MIT */
/* Workers whose CPU went away get another one, and return when it is back. Control thread. */
#ifndef DMASYNC_REPIN_H
#define DMASYNC_REPIN_H

#include <stdint.h>

struct daemon;
struct repin;

/* `cpus`: of each worker, in order; copied. */
int repin_create(struct daemon *daemon, const int *cpus, uint32_t count, struct repin **ret);
void repin_free(struct repin *repin); /* NULL is fine */

/* After an event of the workers: has one of them been moved? */
void repin_look(struct repin *repin);

#endif
