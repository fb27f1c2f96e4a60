/* SPDX-License-Identifier: MIT */
/*
 * A worker: a pinned thread that serves its queues. This header is all that the control thread
 * knows of it: commands go in, each comes back as an answer, and neither side ever waits.
 */
#ifndef DMASYNC_WORKER_H
#define DMASYNC_WORKER_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "daemon/cache/cache.h"
#include "daemon/histogram.h"
#include "daemon/loop.h"
#include "daemon/mailbox.h"
#include "daemon/queue.h"
#include "daemon/records.h"

struct helpers; /* helper.h */

enum worker_command_type {
	WORKER_QUEUE_ADD,    /* queue: the worker owns it from now on */
	WORKER_QUEUE_REMOVE, /* queue: fetch no more; answered when its batch is done; one that
			      * waits for a fence is dropped */
	WORKER_CLIENT_STOP,  /* client: drop all it has in work; answered when let go of */
	WORKER_BUFFER_GRACE, /* client: answered when all its batches fetched so far are done */
	WORKER_SYNC,	     /* units[count]: a batch of a SYNC message; answered with result */
	WORKER_TUNE,	     /* rt_share to max_batch_lines */
	WORKER_STOP,	     /* drain what is submitted, answer, end the thread; not what waits
			      * for a fence, nor what comes behind it in its queue */
	/* what nobody asked for, in queue->event: the queue's own memory, not to be freed */
	WORKER_QUEUE_BROKEN, /* queue: the client broke the ring's rules; text says how */
	WORKER_FAULT,	     /* client: SIGBUS or SIGSEGV on its memory; that client is to go */
	WORKER_QUEUE_MOVED,  /* in queue->move. queue: let go of, in the middle of its batch, for
			      * the slow worker to go on with: worker_slow.c */
};

/*
 * Allocated and freed by the control thread; the worker's from worker_post() until it comes back
 * through the events mailbox. Commands of one worker are handled in the order of posting.
 */
struct worker_command {
	struct mailbox_node node; /* first */
	enum worker_command_type type;
	struct worker *worker; /* set by worker_post() */
	struct queue *queue;
	struct client *client;
	uint32_t rt_share, spin_us, spin_min_us, slice_us, slice_lines, normal_share, bulk_share,
		simulated_ps;
	uint32_t fence_timeout_ms;
	uint64_t max_batch_lines, split_lines;
	uint32_t share_barrier_lines, share_barrier_us;
	uint32_t overruns_to_move;
	int error; /* of the answer: 0 or a negative errno (ADD: -ENOMEM, -ENOSPC) */
	/* REMOVE: the worker has no such queue. SYNC: not done; for the slow worker to go on with,
	 * who is given it with this still set. */
	bool elsewhere;
	const char *text; /* BROKEN: a constant sentence */

	/* SYNC: the batch, of class normal. The control thread fills client, uid, buffers, owner,
	 * user_data, submit_ns, units, units_size, count. error: -ENOMEM, nothing was done. */
	struct batch batch;	    /* the worker's */
	struct scheduler_flow flow; /* the worker's */
	uint32_t uid;
	const struct buffer_table *buffers;
	struct batch_owner *owner;
	uint64_t user_data;
	uint64_t submit_ns;	 /* CLOCK_MONOTONIC when the message was received */
	union cache_unit *units; /* a power of two of them, at least count; owned by the poster */
	uint32_t units_size;
	uint32_t count;
	struct dmasync_ring_completion result;

	/* the poster's own: never looked at by the worker */
	void *context;
	uint64_t cookie;
	struct worker_command *next_command;

	/* the worker's own */
	struct worker_command *next_pending, *previous_pending;
	uint64_t grace_mark;
};

/* What the worker counts. Written by the worker alone; read by anybody (relaxed). */
struct worker_stats {
	struct histogram phase[DMASYNC_PHASES];
	_Atomic uint64_t batches, failed, entries, elided, lines, bytes, barriers, kernel_syncs;
	/* batches of its own queues, workers that issued these; barriers behind which several were
	 */
	_Atomic uint64_t batches_split, parts, barriers_shared;
	_Atomic uint64_t reissued, suspect_times, faults, sleeps;
	_Atomic uint64_t slice_overruns; /* slices that took far longer than one may */
	struct worker_class_stats {
		_Atomic uint64_t batches, lines, slices;
		_Atomic uint64_t waited_lines, waited_entries; /* the most of any batch */
	} klass[DMASYNC_CLASSES];
	_Atomic uint64_t realtime_drops; /* SCHED_FIFO lost for more than rt_share */
	_Atomic uint64_t page_faults;	 /* of its thread, when it last went to sleep */
	_Atomic uint64_t spins;		 /* times that it looked on before sleeping */
	_Atomic uint64_t alive; /* grows with every turn of the loop: the watchdog's proof */
	_Atomic uint32_t busy;	/* 1: has work; 0: sleeps in its ring and may rightly stand still */
};

enum worker_policy {
	WORKER_POLICY_OTHER,   /* as configured */
	WORKER_POLICY_FIFO,    /* as configured */
	WORKER_POLICY_REFUSED, /* fifo is configured, and the kernel said no */
	WORKER_POLICY_DROPPED, /* fifo is configured, and it used more than rt_share */
};

struct worker_params {
	uint32_t index; /* of `count` workers, whose batch numbers interleave; a count of 0 is 1 */
	uint32_t count;
	enum loop_kind loop;	   /* what it waits in */
	int cpu;		   /* at start; -1: not pinned */
	const struct cache *cache; /* outlives the worker */
	uint32_t spin_us;	   /* longest look before sleeping; 0: never spins */
	uint32_t priority;	   /* of SCHED_FIFO; 0: SCHED_OTHER */
	uint32_t rt_share;	   /* percent of any 100 ms that it may be awake under it */
	uint32_t spin_min_us;	   /* shortest one */
	uint32_t slice_us;    /* of one slice, by the cost measured at start; 0: no such limit */
	uint32_t slice_lines; /* line operations before another queue's turn, at most */
	uint32_t normal_share, bulk_share; /* percent, guaranteed */
	uint32_t simulated_ps;		   /* of one simulated line operation; 0: there are none */
	uint64_t max_batch_lines;
	/*
	 * A batch of more lines is shared with the workers of `peers` that are free; 0: none is.
	 * `count` of them, this one included, by index; filled in when the first queue is added
	 * anywhere. None is joined before all have answered WORKER_STOP. NULL: there is no other.
	 */
	uint64_t split_lines;
	struct worker *const *peers;
	/* Batches wait for one barrier up to so many lines or microseconds; 0 lines: none does. */
	uint32_t share_barrier_lines, share_barrier_us;
	uint32_t fence_timeout_ms; /* of one batch; 0: waits as long as it takes */
	uint32_t
		overruns_to_move; /* of a connection's slices, then its queue moves; 0: none does */
	bool slow;		  /* takes what others let go of; is nice, and lets go of nothing */
	struct mailbox *events;	  /* answers and events go here ... */
	int events_fd;		  /* ... and this eventfd is then written */
	struct helpers *helpers;  /* for DMA_BUF_IOCTL_SYNC */
};

/*
 * Starts the thread. Errors: negative errno; with LOOP_URING -EPERM, -ENOSYS, -ENOMEM: no io_uring
 * for us here.
 */
int worker_start(const struct worker_params *params, struct worker **ret);

/* Any number of commands, from the control thread alone; never blocks. */
void worker_post(struct worker *worker, struct worker_command *command);

/*
 * After the answer to WORKER_STOP, after which no command is handled any more: joins and frees. The
 * queues that it still had are then the control thread's to free. After helpers_free(): a helper
 * posts its job first and writes the worker's eventfd after. NULL is fine.
 */
void worker_join(struct worker *worker);

uint32_t worker_index(const struct worker *worker);
int worker_cpu(const struct worker *worker); /* the CPU it is pinned to, -1 where not */
/* True once after it found itself on another CPU; it has written the eventfd of the events. */
bool worker_take_displaced(struct worker *worker);
enum worker_policy worker_policy(const struct worker *worker);
int worker_policy_error(const struct worker *worker); /* why it was refused at start, or 0 */
/* True once after the policy changed; it has written the eventfd of the events. */
bool worker_take_policy_change(struct worker *worker);
/* Pins it to a CPU; with -1 it may use all of `others`. */
int worker_pin(struct worker *worker, int cpu, const cpu_set_t *others);
/* What it waits in: LOOP_URING or LOOP_EPOLL; and why LOOP_AUTO became that: a negative errno, or
 * 0. */
enum loop_kind worker_loop(const struct worker *worker);
int worker_loop_refused(const struct worker *worker);
int worker_page_fd(const struct worker *worker);	  /* memfd of struct dmasync_worker_page */
uint32_t worker_queue_count(const struct worker *worker); /* queues posted to it, for balancing */
const struct worker_stats *worker_stats(const struct worker *worker);
const struct records *worker_records(const struct worker *worker);

#endif
