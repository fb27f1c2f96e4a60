/* SPDX-License-Identifier: MIT */
/*
 * Workers whose CPU went away get another one, and return when it is back; those that lose their
 * scheduling policy or get it back are reported. Control thread.
 */
#ifndef DMASYNC_REPIN_H
#define DMASYNC_REPIN_H

#include <stdint.h>

struct daemon;
struct repin;

/* `cpus`: of each worker, in order; copied. */
int repin_create(struct daemon *daemon, const int *cpus, uint32_t count, struct repin **ret);
void repin_free(struct repin *repin); /* NULL is fine */

/*
 * Is there still more than one CPU, or again? Nothing tells of a CPU that went without taking a
 * worker's; so it is asked when a queue is made.
 */
void repin_count_cpus(struct repin *repin);

/* After an event of the workers: has one of them been moved, or changed its policy? */
void repin_look(struct repin *repin);

#endif
