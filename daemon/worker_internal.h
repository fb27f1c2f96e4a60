/* SPDX-License-Identifier: MIT */
/* What the worker's own files share. Everything here runs on the worker's thread. */
#ifndef DMASYNC_WORKER_INTERNAL_H
#define DMASYNC_WORKER_INTERNAL_H

#include <pthread.h>
#include <sched.h>

#include "daemon/hash.h"
#include "daemon/kill_point.h"
#include "daemon/rt_share.h"
#include "daemon/scheduler.h"
#include "daemon/worker.h"
#include "daemon/worker_wait.h"
#include "proto/spin.h"

/* Units copied at once, while the next ones are on their way. */
#define CHECK_CHUNK 512u

/* A queue among those looked at: worker_watch.c. */
struct watch {
	const uint32_t *word; /* in the queue's ring */
	uint32_t seen;	      /* what stands in it as long as there is nothing to fetch */
	uint32_t entries;     /* worker->work_entries when it was last looked at and empty */
	uint64_t lines;	      /* and work_lines */
	struct queue *queue;
};

struct watches {
	struct watch *watch;
	uint32_t count, size;
	uint32_t next; /* to be looked at */
};

#define WATCH_RECENT 8u

/* What a worker knows of the batch of another one that it helps with (worker_split.c). */
struct split_part {
	int cpu;    /* where its opening fence was executed */
	bool open;  /* it was: something may have been issued, and a barrier is due */
	bool mixed; /* the barrier will wait for lines of its own batches, too */
};

/* Batches that wait for the next barrier, in the order of their issue (worker_barrier.c). */
struct issued {
	struct batch *first, *last;
	uint32_t count;
	uint64_t lines;
	uint64_t since_ns; /* when the first one began to wait */
	bool flushes;
};

struct worker {
	struct worker_params params; /* some of it may be tuned */
	pthread_t thread;
	int start_error; /* of the thread, until it says that it runs */

	/* any thread */
	struct mailbox commands;
	struct mailbox jobs; /* kernel syncs that are done */
	int wake_fd;	     /* eventfd: written when one of the two got something while we sleep */
	struct dmasync_worker_page *page;
	int page_fd;
	_Atomic uint32_t queue_count;
	_Atomic int cpu;	/* that it is pinned to, -1: none; set by the control thread */
	_Atomic bool displaced; /* it is on another one; cleared by the control thread */
	_Atomic enum worker_policy policy;
	_Atomic bool policy_changed; /* cleared by the control thread */
	int policy_error;	     /* why it was refused at start */
	struct worker_stats stats;
	struct records records;

	/* Of other workers: apart from what this one writes as long as none splits. */
	char apart[64];
	_Atomic(struct batch *) help; /* asked to help with; NULL: with none */
	_Atomic bool free;	      /* has nothing runnable and may be asked */
	struct mailbox ended;	      /* splits of ours whose parts are all through */
	char apart_too[64];

	/* the worker's own */
	struct split_part part; /* in `help` */
	uint32_t splits_out;	/* of ours, in which only helpers are at work */
	uint64_t splits_out_ns; /* since when the last of these is */
	struct worker_wait wait;
	uint32_t cancels; /* cancelled doorbell reads whose end has not been seen */
	uint32_t fences;  /* batches whose fence is polled */
	struct queue *queues;
	struct watches urgent, others; /* realtime queues, all others */
	struct queue *recent[WATCH_RECENT];
	uint32_t next_recent;
	struct scheduler scheduler;
	uint32_t slice;	      /* credit of one: line operations and what costs as much */
	uint32_t spent, paid; /* of this slice; and how much of it was charged */
	struct queue *served; /* had the last slice */
	bool fetched;	      /* by the idle loop: the next turn has something to do */
	struct worker_client *clients[HASH_LISTS];
	uint32_t client_count;
	struct worker_client *due;   /* whose requests are to be looked at */
	uint32_t sync_count;	     /* SYNC batches in work */
	struct mailbox_node *taken;  /* commands that are to be handled in later turns */
	struct worker_command *stop; /* WORKER_STOP */
	uint64_t batch_count;	     /* fetched so far */
	uint64_t barriers;	     /* executed so far */
	uint64_t unfinished_lines;   /* issued since the last barrier, of all batches */
	struct issued issued;
	uint64_t work_lines, work_entries;	 /* issued and checked so far, of all batches */
	uint64_t command_lines, command_entries; /* the same when no command was there */
	uint64_t slice_end_ns;			 /* of the last slice */
	uint64_t overrun_ns;			 /* a slice that takes longer is out of order */
	uint64_t woke_ns;			 /* from its last sleep */
	uint64_t suspect_until_ns;		 /* faults of slices are counted; 0: they are not */
	struct dmasync_ring_completion result;	 /* of the batch that ends; its reserved stay 0 */
	bool settle;				 /* worker_settle() is due */
	bool holding_cpu; /* unpinned, and bound to a CPU until the batch is through */
	cpu_set_t home;	  /* the affinity to return to */
	bool running;

	/* worker_policy.c */
	struct rt_share share;
	uint64_t awake_since_ns; /* accounted up to here */
	uint64_t over_share_ns;	 /* when it last was over its share */
	uint32_t policy_turns;

	/* worker_spin.c */
	struct dmasync_spin spin;
	uint64_t idle_since_ns; /* nothing was there, and no batch has come since; 0: one has */
	uint64_t look_until_ns; /* of the look that is on or was the last; 0: none */
	bool worth_looking;	/* since the last look a client on another CPU had work */
	int here;		/* the CPU it was last seen on, as its page says */
};

static inline bool worker_has_commands(const struct worker *worker)
{
	return worker->taken || !mailbox_is_empty(&worker->commands);
}

static inline void counter_add(_Atomic uint64_t *counter, uint64_t n)
{
	histogram_counter_add(counter, n);
}

/* A maximum, written by this thread alone. */
static inline void counter_raise(_Atomic uint64_t *counter, uint64_t n)
{
	if (n > atomic_load_explicit(counter, memory_order_relaxed))
		atomic_store_explicit(counter, n, memory_order_relaxed);
}

/* worker_barrier.c: opening fence and completion barrier */
void worker_open_batch(struct worker *worker, struct batch *batch);
void worker_batch_issued(struct worker *worker, struct batch *batch); /* all of it: wait for it */
void worker_batch_waited_for(struct worker *worker, struct batch *batch); /* on every CPU */
/* Now, and what waits for one completes behind it. Returns the CPU that executed it. */
int worker_execute_barrier(struct worker *worker, bool flushed);
/* The one that batches wait for, where it is due; `more`: another batch is runnable. */
bool worker_share_barrier(struct worker *worker, bool more);

/* worker_split.c: a batch that several workers issue */
bool worker_split_begin(struct worker *worker, struct batch *batch); /* false: ours alone */
void worker_split_slice(struct worker *worker, struct batch *batch); /* of our own batch */
bool worker_split_help(struct worker *worker, bool busy); /* of another's; true: something done */
void worker_split_cancel(struct batch *batch);		  /* of our own batch */
void worker_split_again(struct batch *batch);		  /* the same: by one worker alone */
void worker_split_ended(struct worker *worker);		  /* takes what is in `ended` */
bool worker_split_is_asked(struct worker *worker);
/* Helpers have the rest of a batch of ours, and cannot need long for it. */
bool worker_split_is_awaited(const struct worker *worker);
bool worker_split_close(struct worker *worker); /* helps no more; false: first comes its part */

/* worker_slow.c: slices that overran, and who goes to the slow worker for them */
struct worker_slice {
	struct batch_owner *owner;
	struct queue *queue; /* NULL: a SYNC message, gone when its batch completes */
	uint64_t start_ns;
	uint64_t faults; /* of this thread before it, where `counted` */
	uint32_t syncs;	 /* in work before it */
	bool counted;
};
void worker_slow_begin(struct worker *worker);	     /* of the thread that is to be slow */
uint64_t worker_count_faults(struct worker *worker); /* of this thread; also into its stats */
void worker_slice_begins(struct worker *worker, const struct batch *batch,
			 struct worker_slice *slice);
void worker_slice_ends(struct worker *worker, struct batch *batch,
		       const struct worker_slice *slice);
void worker_suspect(struct worker *worker, uint64_t now);
/* Has a long time passed unseen since the last slice, or since it woke? */
static inline void worker_look_back(struct worker *worker, uint64_t now)
{
	uint64_t since_ns =
		worker->slice_end_ns > worker->woke_ns ? worker->slice_end_ns : worker->woke_ns;

	if (now > since_ns + worker->overrun_ns && !worker->suspect_until_ns)
		worker_suspect(worker, now);
}

/* Took longer than it may. True: one too many of its connection. */
bool worker_slice_counts(struct worker *worker, const struct worker_slice *slice, uint64_t end_ns);
bool worker_batch_is_to_leave(struct worker *worker, struct batch *batch); /* when it resumes */
void worker_batch_leaves(struct worker *worker, struct batch *batch);
void worker_queue_stays(struct worker *worker, struct queue *queue); /* WORKER_STOP: no moves now */
/* It waited for something else than its turn: back in line, or it may leave now. */
void worker_resume_batch(struct worker *worker, struct batch *batch);
/* Nothing of this worker holds the queue but its lists. */
bool worker_queue_may_leave(const struct queue *queue);
/* It is out of the lists: the control thread's from now on. */
void worker_queue_leaves(struct worker *worker, struct queue *queue);
/* What another worker has let go of: the queue before it is looked at, and then its batch. */
void worker_queue_comes(struct queue *queue);
void worker_batch_comes(struct worker *worker, struct batch *batch);

/* worker_commands.c: what the control thread asks for */
void worker_tuned(struct worker *worker);	    /* params were changed */
void worker_handle_commands(struct worker *worker); /* so many in a turn */
void worker_answer(struct worker *worker, struct worker_command *command);
void worker_unlink_queue(struct worker *worker, struct queue *queue);
void worker_settle(struct worker *worker); /* something was let go of: who can be answered? */

/* worker_clients.c: what each client has here, and its requests that wait */
int worker_client_add_queue(struct worker *worker, struct queue *queue);	   /* -ENOMEM */
int worker_client_add_sync(struct worker *worker, struct worker_command *command); /* -ENOMEM */
void worker_sync_done(struct worker *worker, struct worker_command *command);
void worker_client_grace(struct worker *worker, struct worker_command *command);
void worker_client_stop(struct worker *worker, struct worker_command *command);
bool worker_client_has_queue(struct worker *worker, const struct client *client,
			     const struct queue *queue);
void worker_client_let_go(struct worker *worker, const struct batch *batch); /* it is FREE */
void worker_client_due(struct worker *worker, struct worker_client *client);
void worker_clients_cancel_fences(struct worker *worker); /* SYNC batches that wait for one */
void worker_clients_settle(struct worker *worker);
void worker_clients_free(struct worker *worker);

/* worker_publish.c: the end of a batch */
void worker_complete_batch(struct worker *worker, struct batch *batch);
/* error: of the kernel's ioctl, or 0 for the reason's own. */
void worker_fail_batch(struct worker *worker, struct batch *batch, enum dmasync_reason reason,
		       int error);

/* worker_cpu.c: whether the barrier is on the CPU that issued */
int worker_current_cpu(struct worker *worker);
void worker_open_on_cpu(struct worker *worker, struct batch *batch);
/* Since its opening fence, by the CPU that executed the barrier: issue it again. */
bool worker_changed_cpu(struct worker *worker, struct batch *batch, int cpu);
void worker_release_cpu(struct worker *worker);

/* worker_policy.c: SCHED_FIFO, and how much of it */
int worker_policy_begin(struct worker *worker);	 /* 0, or why it was refused */
void worker_policy_turn(struct worker *worker);	 /* after a turn that did something */
void worker_policy_sleep(struct worker *worker); /* before it sleeps ... */
void worker_policy_awake(struct worker *worker); /* ... and after */
void worker_policy_account(struct worker *worker, uint64_t now); /* awake until now */

/* worker_spin.c: how long to look before sleeping */
void worker_spin_tune(struct worker *worker); /* after its bounds in params changed */
void worker_spin_arrival(struct worker *worker, const struct batch *batch, uint32_t client_cpu);
void worker_spin_begin(struct worker *worker); /* nothing is there */
bool worker_spin_goes_on(const struct worker *worker);
void worker_say_cpu(struct worker *worker, int cpu); /* in its page, where that is another one */

/* worker_batch.c: a batch from fetch to barrier */
bool worker_poll_queue(struct worker *worker, struct queue *queue); /* true: a batch was fetched */
bool worker_queue_has_work(struct worker *worker, struct queue *queue);
void worker_start_sync(struct worker *worker, struct worker_command *command);
void worker_run_batch(struct worker *worker, struct batch *batch); /* one slice */
void worker_finish_jobs(struct worker *worker);
void worker_cancel_batch(struct worker *worker, struct batch *batch);
uint32_t worker_credit_left(const struct worker *worker); /* of this slice */
void worker_pay(struct worker *worker, const struct batch *batch);
/* A line operation of it has faulted: it fails and its queue is done with. */
void worker_fault_batch(struct worker *worker, struct batch *batch);

/* worker_watch.c: which queues are looked at */
int worker_watch_add(struct worker *worker, struct queue *queue); /* -ENOMEM */
void worker_watch_remove(struct worker *worker, struct queue *queue);
void worker_watch_free(struct worker *worker);
void worker_watch_again(struct worker *worker, struct queue *queue); /* its batch has completed */
void worker_watch_soon(struct worker *worker,
		       struct queue *queue);   /* from the next turn on, each */
bool worker_watch_look(struct worker *worker); /* true: a batch was fetched */

/* worker_fence.c: the fences of a batch's dma-bufs */
bool worker_await_fences(struct worker *worker, struct batch *batch); /* false: not now */
void worker_fence_polled(struct worker *worker, struct batch *batch, int result);

#endif
