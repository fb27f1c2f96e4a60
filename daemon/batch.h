/* SPDX-License-Identifier: MIT */
/*
 * A batch in work: of a queue, or of a SYNC message. Owned by one worker from fetch to publish;
 * worker_batch.c takes it through its phases.
 */
#ifndef DMASYNC_BATCH_H
#define DMASYNC_BATCH_H

#include <linux/time_types.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/buffer/table.h"
#include "daemon/cache/batch.h"
#include "daemon/deadlines.h"
#include "daemon/kernel_sync.h"

struct queue;
struct scheduler_flow;
struct worker_client;
struct worker_command;

enum batch_phase {
	BATCH_FREE,  /* no batch in work */
	BATCH_CHECK, /* being copied and checked, a chunk at a time */
	BATCH_FENCE, /* in the middle of the check, or after it: waits for fences of its dma-bufs */
	BATCH_ISSUE, /* checked; line operations, a slice at a time */
	BATCH_SPLIT, /* the same, shared with other workers; until all of them are through */
	BATCH_ISSUED, /* all of it; waits for a barrier that it shares with others */
	BATCH_PARKED, /* waits for its kernel syncs on a helper thread */
};

/* Whose batch it is, for records and counters. Outlives its queues; several workers add to it. */
struct batch_owner {
	uint64_t client_id;
	uint64_t user_id; /* helper_user_id() */
	uint32_t pid;
	_Atomic uint64_t batches, failed, lines;
	/* worker_slow.c: slices that overran, each close upon the one before, which was then. */
	_Atomic uint32_t overruns;
	_Atomic uint64_t overran_ns;
};

/*
 * What the workers that share a batch share of it (worker_split.c): this, and the cursor in
 * batch->cache, which who has `moving` moves. All else of the batch is constant meanwhile, or its
 * home worker's: that of its queue, who alone publishes it.
 */
struct split {
	struct mailbox_node node; /* first: to the home worker, from who ended last */
	struct worker *home;
	_Atomic bool moving;	/* somebody moves the cursor */
	_Atomic uint32_t parts; /* workers asked and not yet through, the home worker included */
	_Atomic uint32_t flags; /* enum split_flag */
	bool all_taken;		/* with the cursor: nothing is left to take */
	uint64_t takers;	/* with the cursor: workers that took something, a bit each */
};

struct batch {
	enum batch_phase phase;
	struct cache_batch cache;     /* the cursor */
	union cache_unit inline_unit; /* of a batch of one plain entry */
	struct queue *queue;	      /* NULL for a SYNC message */
	struct worker_command *sync;  /* the SYNC message, else NULL */
	const struct buffer_table *buffers;
	struct batch_owner *owner;
	struct scheduler_flow *flow;  /* its queue's, or its message's */
	struct worker_client *client; /* worker_clients.c */
	uint64_t id;		      /* unique over all workers */
	uint64_t fetch_order;	      /* of this worker: a grace period compares these */
	uint64_t user_data;
	uint64_t submit_ns; /* when it was handed over: the client's word, checked */
	uint64_t fetched_ns, issue_start_ns, issue_end_ns, barrier_end_ns;
	uint64_t end_ns;       /* its kernel syncs included */
	uint64_t barrier_mark; /* the worker's barriers when own_lines was last 0 */
	uint64_t own_lines;    /* issued since that barrier */
	/*
	 * Of other batches, by this worker: done before, when it was not there yet; from its first
	 * slice on, done while it waited for that.
	 */
	uint64_t waited_lines;
	uint32_t waited_entries; /* modulo 2^32 */
	int cpu;		 /* where its opening fence was executed */
	uint32_t reissues;
	uint32_t copied;    /* units copied so far */
	uint32_t flags;	    /* DMASYNC_COMPLETION_* */
	uint32_t workers;   /* that issued it; 0 for one */
	uint32_t shared_by; /* batches behind the same barrier; 0 for one */
	bool begun;	    /* had its first slice */
	bool suspect_time;
	bool cancelled; /* its queue or client goes away: nothing is published */
	bool leaving; /* its queue (also one without a batch) or message goes to the slow worker */

	/* worker_fence.c */
	struct cache_fence fences[CACHE_BATCH_FENCES]; /* cache.fence_count of them */
	struct __kernel_timespec fence_timeout;	       /* read by the kernel when submitted */
	uint64_t fence_start_ns;		       /* of the wait that is on; 0: none is */
	uint64_t fence_deadline_ns;		       /* of all waits; 0: none was begun */
	uint64_t fence_ns;			       /* waited so far */
	int fence_error;			       /* of the last poll: 0 or a negative errno */
	bool fence_armed;			       /* it is polled */

	/* worker_wait_epoll.c, while fence_armed */
	int fence_fd;
	uint32_t fence_events;
	struct batch *fence_next, *fence_previous;
	struct deadline fence_timer;

	struct batch *next_issued; /* worker_barrier.c */
	struct kernel_sync kernel;
	struct split split;
};

#endif
