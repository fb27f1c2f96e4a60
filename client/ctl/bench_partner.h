/* SPDX-License-Identifier: MIT */
/*
 * A thread on the worker's CPU that answers as fast as a thread can: what a round trip through the
 * daemon is measured beside. It sleeps in read(2) unless it plays. Made and used by one thread.
 */
#ifndef DMASYNC_CTL_BENCH_PARTNER_H
#define DMASYNC_CTL_BENCH_PARTNER_H

#include <stdint.h>

struct partner;

/* `cpu`: -1 for any. Negative errno. */
int partner_start(int cpu, struct partner **ret);
void partner_stop(struct partner *partner);

/*
 * `rounds` times: one word written by this thread, seen by the partner, answered in the same cache
 * line, seen here. The first `warm` rounds are not recorded.
 */
int partner_ping_pong(struct partner *partner, uint32_t warm, uint32_t rounds, uint64_t *ret_ns);

/* One byte through a pipe to the sleeping partner and one back to this sleeping thread. */
int partner_wake(struct partner *partner, uint64_t *ret_ns);

#endif
