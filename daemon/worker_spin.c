/* SPDX-License-Identifier: MIT */
/*
 * How long a worker without work looks on before it sleeps: adaptive, within the configured bounds,
 * and only for clients that it does not keep from running. Worker thread only.
 */
#include "daemon/clock.h"
#include "daemon/worker_internal.h"

void worker_spin_tune(struct worker *worker)
{
	dmasync_spin_bounds(&worker->spin, worker->params.spin_min_us * UINT64_C(1000),
			    worker->params.spin_us * UINT64_C(1000));
	worker->look_until_ns = 0;
}

void worker_say_cpu(struct worker *worker, int cpu)
{
	if (cpu == worker->here)
		return;
	worker->here = cpu;
	/* Written where it changes alone: every client has this line in its cache. */
	dmasync_ring_say_cpu(&worker->page->cpu, cpu);
}

/*
 * client_cpu is the client's word. One that lies about it makes the worker look for it in vain, or
 * sleep too early for it: both harm itself, and nobody else, since a look once begun for others
 * goes on.
 */
void worker_spin_arrival(struct worker *worker, const struct batch *batch, uint32_t client_cpu)
{
	bool elsewhere = client_cpu != (uint32_t)(worker->here + 1);

	if (worker->idle_since_ns && elsewhere)
		dmasync_spin_learn(&worker->spin, batch->submit_ns > worker->idle_since_ns
							  ? batch->submit_ns - worker->idle_since_ns
							  : 0);
	worker->idle_since_ns = 0;
	worker->worth_looking |= elsewhere;
}

void worker_spin_begin(struct worker *worker)
{
	worker_say_cpu(worker, sched_getcpu());
	if (worker->spin.most_ns == 0)
		return;

	uint64_t now = clock_ns();

	if (!worker->idle_since_ns)
		worker->idle_since_ns = now;
	if (!worker->worth_looking)
		return; /* what was begun before may still go on */
	worker->worth_looking = false;
	worker->look_until_ns = now + worker->spin.window_ns;
	if (worker->spin.window_ns)
		counter_add(&worker->stats.spins, 1);
}

bool worker_spin_goes_on(const struct worker *worker)
{
	return worker->look_until_ns && clock_ns() < worker->look_until_ns;
}
