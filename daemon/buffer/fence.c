/* SPDX-License-Identifier: MIT */
/* See fence.h. Any thread that owns the batch. */
#include "daemon/buffer/fence.h"

#include <errno.h>
#include <poll.h>

#include "daemon/buffer/table.h"

int16_t fence_events(const struct cache_fence *fence)
{
	return fence->readers ? POLLOUT : POLLIN;
}

int fence_fd(const struct cache_fence *fence)
{
	/* struct cache_buffer is the first member of struct buffer. */
	return ((const struct buffer *)fence->buffer)->fd;
}

/* POLLERR and POLLHUP count as signalled: nothing to wait for will ever come. */
int fences_drop_signalled(struct cache_batch *cache, int timeout_ms)
{
	struct pollfd polled[CACHE_BATCH_FENCES];
	uint32_t left = 0;
	int r;

	for (uint32_t i = 0; i < cache->fence_count; i++)
		polled[i] = (struct pollfd){.fd = fence_fd(&cache->fences[i]),
					    .events = fence_events(&cache->fences[i])};
	do
		r = poll(polled, cache->fence_count, timeout_ms);
	while (r < 0 && errno == EINTR && timeout_ms == 0);
	if (r < 0)
		return -errno;
	for (uint32_t i = 0; i < cache->fence_count; i++)
		if (!polled[i].revents)
			cache->fences[left++] = cache->fences[i];
	cache->fence_count = left;
	return 0;
}
