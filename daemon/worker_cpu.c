/* SPDX-License-Identifier: MIT */
/*
 * The CPU a worker runs on: whether it is still the one that a batch began on, and the one it is
 * pinned to. Worker thread, but for worker_pin() and worker_take_displaced(): control thread.
 */
#include <errno.h>
#include <unistd.h>

#include "daemon/worker_internal.h"

/* After so many changes of CPU under one batch an unpinned worker holds on to the CPU it is on. */
#define REISSUES_BEFORE_HOLD 2u

/*
 * The kernel moves a pinned thread, and unpins it, where its CPU goes offline or leaves its
 * cpuset; anybody with the right to can move it, too. The control thread finds it another place.
 */
static void look_at_cpu(struct worker *worker, int cpu)
{
	int pinned = atomic_load_explicit(&worker->cpu, memory_order_relaxed);

	if (pinned < 0 || cpu == pinned ||
	    atomic_load_explicit(&worker->displaced, memory_order_relaxed))
		return;
	/* The eventfd's write and read order the flag; the exchange pairs with nothing else. */
	atomic_store_explicit(&worker->displaced, true, memory_order_relaxed);

	ssize_t n = write(worker->params.events_fd, &(uint64_t){1}, sizeof(uint64_t));

	(void)n;
}

int worker_current_cpu(struct worker *worker)
{
	int cpu = sched_getcpu();

	worker_say_cpu(worker, cpu);
	look_at_cpu(worker, cpu);
	return cpu;
}

void worker_open_on_cpu(struct worker *worker, struct batch *batch)
{
	batch->cpu = worker_current_cpu(worker);
}

/*
 * The barrier waits for what its own CPU issued. A pinned worker never changes CPU unless that one
 * goes offline; where it has, nothing is known about the lines issued on the other one, and
 * the batch is issued again. (arm64 Linux also completes maintenance in __switch_to.) The look
 * comes after the barrier, so a change between the last operation and the barrier is seen too.
 */
bool worker_changed_cpu(struct worker *worker, struct batch *batch, int cpu)
{
	if (cpu == batch->cpu)
		return false;
	if (++batch->reissues > REISSUES_BEFORE_HOLD && cpu >= 0 &&
	    atomic_load_explicit(&worker->cpu, memory_order_relaxed) < 0) {
		cpu_set_t here;

		CPU_ZERO(&here);
		CPU_SET((unsigned)cpu, &here);
		if (!worker->holding_cpu &&
		    sched_getaffinity(0, sizeof worker->home, &worker->home) == 0 &&
		    sched_setaffinity(0, sizeof here, &here) == 0)
			worker->holding_cpu = true;
	}
	counter_add(&worker->stats.reissued, 1);
	batch->flags |= DMASYNC_COMPLETION_REISSUED;
	return true;
}

/* Undoes a pin that came meanwhile: look_at_cpu() then asks for another one. */
void worker_release_cpu(struct worker *worker)
{
	if (!worker->holding_cpu)
		return;
	sched_setaffinity(0, sizeof worker->home, &worker->home);
	worker->holding_cpu = false;
}

/* ---- control thread ---- */

int worker_cpu(const struct worker *worker)
{
	return atomic_load_explicit(&worker->cpu, memory_order_relaxed);
}

bool worker_take_displaced(struct worker *worker)
{
	return atomic_exchange_explicit(&worker->displaced, false, memory_order_relaxed);
}

int worker_pin(struct worker *worker, int cpu, const cpu_set_t *others)
{
	cpu_set_t cpus;

	CPU_ZERO(&cpus);
	if (cpu >= 0)
		CPU_SET((unsigned)cpu, &cpus);

	int r = -pthread_setaffinity_np(worker->thread, sizeof cpus, cpu >= 0 ? &cpus : others);

	if (r == 0) {
		atomic_store_explicit(&worker->cpu, cpu, memory_order_relaxed);
		/* At once, for clients that wait while it sleeps; it says so itself when it runs.
		 */
		if (cpu >= 0)
			dmasync_ring_say_cpu(&worker->page->cpu, cpu);
	}
	return r;
}
