/* SPDX-License-Identifier: MIT */
/*
 * Inline mode: the daemon's work done in this process, by the daemon's own code (daemon/cache,
 * daemon/buffer), inside dmasync_batch_submit(). No thread, no signal handler.
 */
#ifndef DMASYNC_CLIENT_INLINE_H
#define DMASYNC_CLIENT_INLINE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/buffer/table.h"
#include "daemon/cache/batch.h"
#include "proto/message.h"
#include "proto/ring_access.h"

struct dmasync;

/* What a connection has in the daemon's place. */
struct inline_side {
	/* constant */
	struct cache cache;
	bool allow_simulated;
	bool compact; /* the lowest free place for a handle, as a small daemon could give too */
	uint64_t max_batch_lines;
	uint32_t fence_timeout_ms;

	/* Batches look buffers up without a lock; whoever adds or removes one holds it. */
	pthread_mutex_t lock;
	struct buffer_table buffers;
};

/* What a queue has in the worker's place. The queue's thread. */
struct inline_worker {
	struct inline_side *side;
	struct dmasync_ring ring;
	union cache_unit *mirror; /* ring.unit_count units, as the daemon's */
	union cache_unit alone;	  /* of a batch of one plain entry */
	struct cache_batch batch; /* in work */
	struct cache_fence fences[CACHE_BATCH_FENCES];
	uint32_t fetched;    /* position of the next submission to fetch, and to complete */
	int notification_fd; /* write end, O_NONBLOCK: queue_fd becomes readable by it */
};

/* ---- inline_side.c: any thread ---- */

int inline_side_create(bool allow_simulated, struct inline_side **ret);
void inline_side_free(struct inline_side *side);

/* What a daemon would have answered to HELLO. */
void inline_hello(const struct inline_side *side, struct dmasync_hello_reply *ret);

/*
 * As a daemon handles BUFFER_ADD, with the same answer, a handle that is asked for included; the
 * sentence of a failure goes into the connection's error text. The fd stays the caller's.
 */
int inline_buffer_add(struct dmasync *ds, struct inline_side *side, int fd,
		      const struct dmasync_buffer_add *request,
		      struct dmasync_buffer_add_reply *ret);
/* No batch names it any more. */
void inline_buffer_remove(struct inline_side *side, uint32_t handle);

/* ---- inline.c: the queue's thread ---- */

/* For a ring that was just initialised. notification_fd becomes the worker's on success. */
int inline_worker_create(struct inline_side *side, const struct dmasync_ring *ring,
			 int notification_fd, struct inline_worker **ret);
void inline_worker_free(struct inline_worker *worker);

/*
 * Fetches every submitted batch, does it and publishes its completion. False where the ring is
 * damaged. Waits for fences of dma-bufs, and for the kernel where a buffer needs its sync.
 */
bool inline_worker_run(struct inline_worker *worker);

#endif
