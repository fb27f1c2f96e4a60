/* SPDX-License-Identifier: MIT */
/*
 * What most attacks begin with: a raw client with a simulated buffer and a queue. For the thread of
 * an attack.
 */
#ifndef TESTS_HOSTILE_TARGET_H
#define TESTS_HOSTILE_TARGET_H

#include <poll.h>

#include "tests/hostile/attack.h"

struct target {
	struct raw raw;
	struct raw_memory memory;
	struct raw_queue queue;
};

static inline void target_open(struct target *target, const struct attack *attack, size_t bytes,
			       uint32_t depth, uint32_t units)
{
	raw_open(&target->raw, attack->socket);
	raw_memory_alloc(&target->memory, &target->raw, bytes);
	raw_queue_open(&target->queue, &target->raw, depth, units);
}

static inline void target_close(struct target *target)
{
	raw_queue_close(&target->queue);
	raw_memory_free(&target->memory);
	raw_close(&target->raw);
}

/* The daemon's end of the pipe is closed: it has done with this queue. */
static inline void target_await_end(const struct target *target)
{
	struct pollfd hangup = {.fd = target->queue.notification};

	check_int(poll(&hangup, 1, (int)harness_scaled_ms(PATIENCE_MS)), 1);
	check(hangup.revents & POLLHUP);
}

static inline struct dmasync_unit target_unit(const struct target *target, uint64_t offset,
					      uint32_t length)
{
	return raw_unit(target->memory.handle, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, offset,
			length);
}

#endif
