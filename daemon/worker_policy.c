/* SPDX-License-Identifier: MIT */
/*
 * The scheduling policy of a worker: SCHED_FIFO where configured, never for more than its share.
 * Worker thread, but for worker_policy() and worker_take_policy_change(): control thread.
 */
#include <errno.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/worker_internal.h"

/* Looks at the clock are dear beside a short batch, and a slice is far shorter than a step. */
#define TURNS_PER_LOOK 16u
/* Below its share for so long, and it is given the policy back. */
#define RESTORE_NS UINT64_C(1000000000)

/* 0 or a negative errno. RESET_ON_FORK: whatever this thread might start is an ordinary thread. */
static int set_policy(uint32_t priority)
{
	struct sched_param param = {.sched_priority = (int)priority};

	return sched_setscheduler(0, (priority ? SCHED_FIFO : SCHED_OTHER) | SCHED_RESET_ON_FORK,
				  &param) < 0
		       ? -errno
		       : 0;
}

static void change(struct worker *worker, enum worker_policy policy)
{
	atomic_store_explicit(&worker->policy, policy, memory_order_relaxed);
	/* The eventfd's write and read order the two; the exchange pairs with nothing else. */
	atomic_store_explicit(&worker->policy_changed, true, memory_order_relaxed);

	ssize_t n = write(worker->params.events_fd, &(uint64_t){1}, sizeof(uint64_t));

	(void)n;
}

int worker_policy_begin(struct worker *worker)
{
	uint32_t priority = worker->params.priority;
	int r = priority ? set_policy(priority) : 0;

	/* Before the control thread is told that the worker runs: it looks at this itself. */
	if (priority)
		atomic_store_explicit(&worker->policy,
				      r < 0 ? WORKER_POLICY_REFUSED : WORKER_POLICY_FIFO,
				      memory_order_relaxed);
	worker->awake_since_ns = clock_ns();
	return r;
}

void worker_policy_account(struct worker *worker, uint64_t now)
{
	enum worker_policy policy = atomic_load_explicit(&worker->policy, memory_order_relaxed);
	uint64_t limit = worker->params.rt_share * (RT_SHARE_WINDOW_NS / 100);
	bool over = rt_share_use(&worker->share, worker->awake_since_ns, now) > limit;

	worker->awake_since_ns = now;
	if (over)
		worker->over_share_ns = now;
	switch (policy) {
	case WORKER_POLICY_OTHER:
	case WORKER_POLICY_REFUSED:
		return;
	case WORKER_POLICY_FIFO:
		if (over && set_policy(0) == 0) {
			counter_add(&worker->stats.realtime_drops, 1);
			change(worker, WORKER_POLICY_DROPPED);
		}
		return;
	case WORKER_POLICY_DROPPED:
		if (!over && now - worker->over_share_ns > RESTORE_NS)
			change(worker, set_policy(worker->params.priority) < 0
					       ? WORKER_POLICY_REFUSED
					       : WORKER_POLICY_FIFO);
		return;
	}
}

void worker_policy_turn(struct worker *worker)
{
	if (worker->params.priority && ++worker->policy_turns % TURNS_PER_LOOK == 0)
		worker_policy_account(worker, clock_ns());
}

void worker_policy_sleep(struct worker *worker)
{
	if (worker->params.priority)
		worker_policy_account(worker, clock_ns());
}

void worker_policy_awake(struct worker *worker)
{
	if (worker->params.priority)
		worker->awake_since_ns = clock_ns();
}

/* ---- control thread ---- */

enum worker_policy worker_policy(const struct worker *worker)
{
	return atomic_load_explicit(&worker->policy, memory_order_relaxed);
}

int worker_policy_error(const struct worker *worker)
{
	return worker->policy_error;
}

bool worker_take_policy_change(struct worker *worker)
{
	return atomic_exchange_explicit(&worker->policy_changed, false, memory_order_relaxed);
}
