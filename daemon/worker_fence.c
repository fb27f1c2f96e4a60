/* SPDX-License-Identifier: MIT */
/*
 * The fences of a batch's dma-bufs: looked at, and where one is not signalled the batch is parked
 * until it is, or the time is up. Holds up its own queue alone. Worker thread only.
 *
 * One poll(2) for up to CACHE_BATCH_FENCES buffers, so a batch of dma-bufs without fences costs one
 * system call; memfds have no fences and cost none.
 */
#include <errno.h>

#include "daemon/buffer/fence.h"
#include "daemon/clock.h"
#include "daemon/worker_internal.h"

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

static void fail(struct worker *worker, struct batch *batch, enum dmasync_reason reason, int error)
{
	batch->cache.bad_entry = DMASYNC_NO_ENTRY;
	worker_fail_batch(worker, batch, reason, error);
}

/*
 * Its queue or the worker is going away: nobody waits then. What follows it in its queue must not
 * be published in its place, so nothing is fetched any more.
 */
static bool must_go(const struct worker *worker, struct batch *batch)
{
	if (batch->queue && worker->stop)
		batch->queue->drain_end = batch->queue->fetched;
	return batch->cancelled || worker->stop || (batch->queue && batch->queue->stopping);
}

bool worker_await_fences(struct worker *worker, struct batch *batch)
{
	struct cache_batch *cache = &batch->cache;
	uint64_t timeout_ns = worker->params.fence_timeout_ms * NS_PER_MS;

	if (cache->fence_count)
		fences_drop_signalled(cache, 0);
	uint64_t now = cache->fence_count || batch->fence_start_ns ? clock_ns() : 0;

	if (batch->fence_start_ns) {
		batch->fence_ns += now - batch->fence_start_ns;
		batch->fence_start_ns = 0;
	}
	if (cache->fence_count == 0 && !batch->cancelled)
		return true;
	if (must_go(worker, batch)) {
		batch->cancelled = true;
		fail(worker, batch, DMASYNC_REASON_CANCELLED, 0);
		return false;
	}
	if (batch->fence_error) {
		fail(worker, batch, DMASYNC_REASON_FENCE, batch->fence_error);
		return false;
	}
	if (!batch->fence_deadline_ns)
		batch->fence_deadline_ns = timeout_ns ? now + timeout_ns : UINT64_MAX;
	if (now >= batch->fence_deadline_ns) {
		fail(worker, batch, DMASYNC_REASON_FENCE, 0);
		return false;
	}

	uint64_t left = batch->fence_deadline_ns - now;

	batch->fence_timeout = (struct __kernel_timespec){0};
	if (batch->fence_deadline_ns != UINT64_MAX) {
		batch->fence_timeout.tv_sec = (int64_t)(left / NS_PER_S);
		batch->fence_timeout.tv_nsec = (int64_t)(left % NS_PER_S);
	}
	batch->phase = BATCH_FENCE;
	scheduler_remove(&worker->scheduler, batch->flow);
	batch->fence_start_ns = now;
	/* One after the other: the last one decides, whatever the order. */
	worker->wait.ops->poll_fence(worker, batch, fence_fd(&cache->fences[0]),
				     (uint32_t)fence_events(&cache->fences[0]));
	return false;
}

/*
 * The poll has ended: signalled, timed out or cancelled (both -ECANCELED). All is looked at anew
 * in worker_await_fences(), so a wake-up for nothing does no harm.
 */
void worker_fence_polled(struct worker *worker, struct batch *batch, int result)
{
	batch->fence_armed = false;
	worker->slice_end_ns = clock_ns(); /* its next slice does not start before */
	worker->fences--;
	if (result < 0 && result != -ECANCELED && result != -EINTR && result != -EAGAIN)
		batch->fence_error = result;
	worker_resume_batch(worker, batch);
}
