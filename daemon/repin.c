/* SPDX-License-Identifier: MIT */
/*
 * Workers whose CPU went away. Owns a timer, which runs while a worker is not where it belongs.
 * Control thread.
 */
#include "daemon/repin.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/daemon.h"
#include "daemon/log.h"
#include "daemon/placement.h"
#include "daemon/reload.h"

#define LOOK_AGAIN_NS UINT64_C(1000000000) /* whether a CPU is back: nothing tells */

struct repin {
	struct daemon *daemon;
	struct loop_timer *timer;
	uint32_t count;
	int home[]; /* the CPU that each worker was given at start */
};

/* Without those that are offline. This thread is pinned nowhere, so these are the process's. */
static bool allowed_cpus(cpu_set_t *ret)
{
	if (sched_getaffinity(0, sizeof(*ret), ret) == 0)
		return true;
	log_error("the CPUs of this process cannot be told: %s", strerror(errno));
	return false;
}

static void count(struct repin *repin, const cpu_set_t *allowed)
{
	struct daemon *daemon = repin->daemon;
	bool one = CPU_COUNT(allowed) == 1;

	if (one == daemon->one_cpu)
		return;
	daemon->one_cpu = one;
	log_notice(one ? "one CPU is left to this process: workers sleep at once when idle"
		       : "there is more than one CPU again: workers may spin before they sleep");
	daemon_tune_workers(daemon);
}

void repin_count_cpus(struct repin *repin)
{
	cpu_set_t allowed;

	if (repin && !repin->daemon->stopping && allowed_cpus(&allowed))
		count(repin, &allowed);
}

static void look_again_later(struct repin *repin)
{
	for (uint32_t i = 0; i < repin->count; i++) {
		if (worker_cpu(repin->daemon->workers[i]) == repin->home[i])
			continue;
		if (loop_timer_set(repin->timer, LOOK_AGAIN_NS) < 0)
			log_error("no timer: worker %" PRIu32 " does not return to CPU %d", i,
				  repin->home[i]);
		return;
	}
}

static void taken_cpus(const struct repin *repin, uint32_t but, cpu_set_t *ret)
{
	CPU_ZERO(ret);
	for (uint32_t i = 0; i < repin->count; i++) {
		int cpu = worker_cpu(repin->daemon->workers[i]);

		if (i != but && cpu >= 0)
			CPU_SET((unsigned)cpu, ret);
	}
}

/* It keeps off the CPUs that the others have. */
static void place_slow(const struct repin *repin, const cpu_set_t *allowed)
{
	cpu_set_t taken, beside;

	taken_cpus(repin, UINT32_MAX, &taken);
	placement_beside(allowed, &taken, &beside);

	int r = worker_pin(daemon_slow_worker(repin->daemon), -1, &beside);

	if (r < 0)
		log_error("the slow worker cannot be kept off the CPUs of the others: %s",
			  strerror(-r));
}

static void find_place(struct repin *repin, uint32_t index, const cpu_set_t *allowed)
{
	struct worker *worker = repin->daemon->workers[index];
	int home = repin->home[index], before = worker_cpu(worker);
	cpu_set_t taken;

	taken_cpus(repin, index, &taken);

	int cpu = placement_again(home, allowed, &taken);
	int r = worker_pin(worker, cpu, allowed);

	if (r < 0 && cpu >= 0) { /* gone, too, since we looked */
		cpu = -1;
		r = worker_pin(worker, cpu, allowed);
	}
	if (r < 0)
		log_error("worker %" PRIu32 " cannot be kept off CPU %d: %s", index, before,
			  strerror(-r));
	else if (cpu == home)
		log_warning("worker %" PRIu32 " was moved off CPU %d, which it may use: it is "
			    "pinned there again",
			    index, home);
	else if (cpu >= 0)
		log_warning("worker %" PRIu32 " was moved off CPU %d, which is offline or not "
			    "allowed any more: it goes on on CPU %d and returns when CPU %d is "
			    "back",
			    index, before, cpu, home);
	else
		log_warning("worker %" PRIu32 " was moved off CPU %d, which is offline or not "
			    "allowed any more, and no other CPU is free: it goes on without one "
			    "of its own and returns when CPU %d is back",
			    index, before, home);
}

static void report_policy(const struct repin *repin, uint32_t index)
{
	const struct config *config = &repin->daemon->config;

	switch (worker_policy(repin->daemon->workers[index])) {
	case WORKER_POLICY_OTHER:
		return;
	case WORKER_POLICY_FIFO:
		log_notice("worker %" PRIu32 " is under SCHED_FIFO with priority %" PRIu32 " again",
			   index, config->priority);
		return;
	case WORKER_POLICY_REFUSED:
		log_warning("worker %" PRIu32 " is refused SCHED_FIFO now: it stays under "
			    "SCHED_OTHER",
			    index);
		return;
	case WORKER_POLICY_DROPPED:
		log_warning(
			"worker %" PRIu32 " was awake for more than rt_share = %" PRIu32
			" %% of 100 ms: it goes on under SCHED_OTHER until it was below that for "
			"a second",
			index, config->rt_share);
		return;
	}
}

void repin_look(struct repin *repin)
{
	cpu_set_t allowed;
	bool moved = false;

	/* A worker that ends has no thread to pin. */
	if (!repin || repin->daemon->stopping)
		return;
	for (uint32_t i = 0; i < repin->count; i++) {
		if (worker_take_policy_change(repin->daemon->workers[i]))
			report_policy(repin, i);
		if (!worker_take_displaced(repin->daemon->workers[i]) || !allowed_cpus(&allowed))
			continue;
		find_place(repin, i, &allowed);
		moved = true;
	}
	if (moved) {
		count(repin, &allowed);
		place_slow(repin, &allowed);
		look_again_later(repin);
	}
}

static void return_home(void *context)
{
	struct repin *repin = context;
	cpu_set_t allowed;

	if (repin->daemon->stopping || !allowed_cpus(&allowed))
		return;
	count(repin, &allowed);
	for (uint32_t i = 0; i < repin->count; i++) {
		struct worker *worker = repin->daemon->workers[i];

		if (worker_cpu(worker) == repin->home[i] ||
		    !CPU_ISSET((unsigned)repin->home[i], &allowed))
			continue;
		if (worker_pin(worker, repin->home[i], &allowed) == 0)
			log_notice("CPU %d is back, and worker %" PRIu32 " on it", repin->home[i],
				   i);
	}
	place_slow(repin, &allowed);
	look_again_later(repin);
}

int repin_create(struct daemon *daemon, const int *cpus, uint32_t count, struct repin **ret)
{
	struct repin *repin = calloc(1, sizeof(*repin) + count * sizeof(repin->home[0]));
	cpu_set_t allowed;
	int r;

	if (!repin)
		return -ENOMEM;
	repin->daemon = daemon;
	repin->count = count;
	memcpy(repin->home, cpus, count * sizeof(repin->home[0]));
	r = loop_timer_create(daemon->loop, return_home, repin, &repin->timer);
	if (r < 0) {
		free(repin);
		return r;
	}
	if (allowed_cpus(&allowed))
		place_slow(repin, &allowed);
	*ret = repin;
	return 0;
}

void repin_free(struct repin *repin)
{
	if (!repin)
		return;
	loop_timer_free(repin->timer);
	free(repin);
}
