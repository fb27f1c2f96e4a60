/* SPDX-License-Identifier: MIT */
/*
 * What one would write first: a server that flushes the range a request on a SEQPACKET socket names
 * and answers. A process of its own on the worker's CPU. One thread on this side.
 */
#ifndef TESTS_COMPARE_PEER_SOCKET_H
#define TESTS_COMPARE_PEER_SOCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/cache/cache.h"

struct socket_peer;

/* `fd`: the memory, mapped by the server too. Negative errno. */
int socket_peer_start(int cpu, int fd, uint64_t bytes, const struct cache *cache,
		      struct socket_peer **ret);
void socket_peer_stop(struct socket_peer *peer);

/*
 * One range cleaned, there and back. spin: this side looks and does not sleep, and the server looks
 * for the request after this one; else both sleep in the kernel. Negative errno.
 */
int socket_peer_sync(struct socket_peer *peer, uint64_t offset, uint64_t length, bool spin);

#endif
