/* SPDX-License-Identifier: MIT */
/*
 * The worker's thread: its loop, its start and its end. What a turn of the loop does stands in
 * worker_commands.c, worker_batch.c and worker_wait.h.
 */
#include "daemon/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/populate.h"
#include "daemon/worker_internal.h"

/* Looks at the queues between two at the clock, which cost more. */
#define LOOKS_PER_CLOCK 32u

/*
 * One slice at most; true where something was there to do. What was submitted during the slice
 * before is put in line before the next one is chosen: it waits for one slice, not for two.
 */
static bool turn(struct worker *worker)
{
	bool worked = worker->fetched || worker_watch_look(worker);

	worker->fetched = false;
	/* It stays in line where its next batch is there: only then is its turn not over. */
	if (worker->served && !worker->served->flow.batch)
		scheduler_remove(&worker->scheduler, &worker->served->flow);
	worker->served = NULL;
	if (worker_has_commands(worker)) {
		worker_handle_commands(worker);
		worked = true;
	}
	if (!worker->taken) {
		worker->command_lines = worker->work_lines;
		worker->command_entries = worker->work_entries;
	}
	if (!mailbox_is_empty(&worker->jobs)) {
		worker_finish_jobs(worker);
		worked = true;
	}
	if (!mailbox_is_empty(&worker->ended)) {
		worker_split_ended(worker);
		worked = true;
	}
	if (worker->cancels)
		worker->wait.ops->reap(worker);
	else if (worker->fences)
		worker->wait.ops->look(worker);
	if (worker->settle || worker->stop) {
		worked |= worker->settle;
		worker_settle(worker);
		/* WORKER_STOP is answered: the queues and the flows in them may be gone. */
		if (!worker->running)
			return true;
	}

	const struct scheduler_flow *flow = scheduler_next(&worker->scheduler);

	if (worker->issued.count)
		worked |= worker_share_barrier(worker, flow != NULL);
	if (worker->params.peers)
		worked |= worker_split_help(worker, flow != NULL);
	if (flow) {
		worker->served = flow->batch->queue;
		worker_run_batch(worker, flow->batch);
		worked = true;
	}
	return worked;
}

/* Before sleeping it is called after the flag was set and the fence executed. */
static bool nothing_to_do(struct worker *worker)
{
	if (!worker->running || worker->settle || worker_has_commands(worker) ||
	    !mailbox_is_empty(&worker->jobs) || !mailbox_is_empty(&worker->ended) ||
	    worker_split_is_asked(worker))
		return false;
	for (struct queue *queue = worker->queues; queue; queue = queue->next) {
		if (!worker_queue_has_work(worker, queue))
			continue;
		worker_watch_soon(worker, queue);
		return false;
	}
	return true;
}

static void sleep_in_ring(struct worker *worker)
{
	dmasync_ring_announce_sleep(&worker->page->sleeping);
	if (nothing_to_do(worker)) {
		worker_look_back(worker, clock_ns());
		worker_count_faults(worker); /* a system call, as the sleep is */
		worker_policy_sleep(worker);
		counter_add(&worker->stats.sleeps, 1);
		atomic_store_explicit(&worker->stats.busy, 0, memory_order_relaxed);
		worker->wait.ops->sleep(worker);
		worker->woke_ns = clock_ns();
		worker_policy_awake(worker);
		atomic_store_explicit(&worker->stats.busy, 1, memory_order_relaxed);
	}
	dmasync_ring_announce_awake(&worker->page->sleeping);
}

/* The idle loop: no more than what tells that a turn has something to do. */
static void look(struct worker *worker)
{
	if (worker->cancels || worker->fences || worker->stop)
		return; /* looked at in a turn */
	for (uint32_t i = 0; i < LOOKS_PER_CLOCK && !worker->fetched; i++) {
		if (worker->settle || worker_has_commands(worker) ||
		    !mailbox_is_empty(&worker->jobs) || !mailbox_is_empty(&worker->ended) ||
		    worker_split_is_asked(worker))
			return;
		worker->fetched = worker_watch_look(worker);
	}
}

static void run(struct worker *worker)
{
	bool idle = false;

	worker_spin_tune(worker);
	worker->here = -1;
	worker_say_cpu(worker, sched_getcpu());
	/* The faults of its own beginning are nobody's. */
	worker_count_faults(worker);
	worker->woke_ns = clock_ns();
	while (worker->running) {
		counter_add(&worker->stats.alive, 1);
		if (turn(worker)) {
			idle = false;
			worker_policy_turn(worker);
			continue;
		}
		if (!idle)
			worker_spin_begin(worker);
		idle = true;
		/* Without a queue nobody's next batch follows closely: it only helps, if anything.
		 */
		if (worker->queues &&
		    (worker_spin_goes_on(worker) || worker_split_is_awaited(worker))) {
			look(worker);
			continue;
		}
		sleep_in_ring(worker);
		worker_say_cpu(worker, sched_getcpu()); /* it may have been moved meanwhile */
		idle = false;
	}
}

struct start {
	struct worker *worker;
	sem_t running;
};

static void *worker_thread(void *argument)
{
	struct start *start = argument;
	struct worker *worker = start->worker;

	populate_stack();
	/* The ring is made here: IORING_SETUP_SINGLE_ISSUER ties it to its thread. */
	worker->start_error = worker_wait_setup(worker, worker->params.loop);
	worker->running = worker->start_error == 0;
	if (worker->running)
		worker->policy_error = worker_policy_begin(worker);
	if (worker->running && worker->params.slow)
		worker_slow_begin(worker);
	sem_post(&start->running);
	if (worker->running)
		run(worker);
	return NULL;
}

static int start_thread(struct worker *worker)
{
	struct start start = {.worker = worker};
	pthread_attr_t attributes;
	sigset_t all, before;
	char name[16];

	pthread_attr_init(&attributes);
	if (worker->params.cpu >= 0) {
		cpu_set_t cpus;

		CPU_ZERO(&cpus);
		CPU_SET((unsigned)worker->params.cpu, &cpus);
		/*
		 * The barrier belongs to the CPU that issued the operations, so a worker is pinned
		 * from its first instruction.
		 */
		pthread_attr_setaffinity_np(&attributes, sizeof cpus, &cpus);
	}
	sem_init(&start.running, 0, 0);
	/* Signals are the control thread's, by signalfd; faults of this thread are never blocked.
	 */
	sigfillset(&all);
	sigdelset(&all, SIGBUS);
	sigdelset(&all, SIGSEGV);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	int r = -pthread_create(&worker->thread, &attributes, worker_thread, &start);

	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	if (r == 0) {
		snprintf(name, sizeof name, "worker-%u", worker->params.index);
		pthread_setname_np(worker->thread, name);
		while (sem_wait(&start.running) < 0 && errno == EINTR)
			;
		r = worker->start_error;
		if (r < 0)
			pthread_join(worker->thread, NULL);
	}
	sem_destroy(&start.running);
	return r;
}

static void free_worker(struct worker *worker)
{
	if (worker->page)
		munmap(worker->page, DMASYNC_RING_PAGE);
	if (worker->page_fd >= 0)
		close(worker->page_fd);
	if (worker->wake_fd >= 0)
		close(worker->wake_fd);
	worker_clients_free(worker);
	scheduler_free(&worker->scheduler);
	worker_watch_free(worker);
	free(worker);
}

/*
 * The flag that clients look at before they ring. They map it read-only: F_SEAL_FUTURE_WRITE lets
 * our own mapping write and refuses them any other.
 */
static int make_page(struct worker *worker)
{
	worker->page_fd = memfd_create("dmasync-worker", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (worker->page_fd < 0)
		return -errno;
	if (ftruncate(worker->page_fd, DMASYNC_RING_PAGE) < 0)
		return -errno;
	void *page = mmap(NULL, DMASYNC_RING_PAGE, PROT_READ | PROT_WRITE,
			  MAP_SHARED | MAP_POPULATE, worker->page_fd, 0);

	if (page == MAP_FAILED)
		return -errno;
	worker->page = page;
	if (fcntl(worker->page_fd, F_ADD_SEALS,
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) < 0)
		return -errno;
	return 0;
}

int worker_start(const struct worker_params *params, struct worker **ret)
{
	struct worker *worker = calloc(1, sizeof *worker);
	int r;

	if (!worker)
		return -ENOMEM;
	populate(worker, sizeof *worker);
	worker->params = *params;
	atomic_init(&worker->cpu, params->cpu);
	atomic_init(&worker->free, !params->slow);
	if (worker->params.count == 0)
		worker->params.count = 1;
	worker_tuned(worker);
	worker->page_fd = -1;
	worker->wake_fd = eventfd(0, EFD_CLOEXEC);
	r = worker->wake_fd < 0 ? -errno : make_page(worker);
	if (r == 0)
		r = start_thread(worker);
	if (r < 0) {
		free_worker(worker);
		return r;
	}
	*ret = worker;
	return 0;
}

void worker_post(struct worker *worker, struct worker_command *command)
{
	command->worker = worker;
	if (command->type == WORKER_QUEUE_ADD)
		atomic_fetch_add_explicit(&worker->queue_count, 1, memory_order_relaxed);
	mailbox_post(&worker->commands, &command->node);
	/* The same protocol as a client's doorbell: post, fence, look at the flag. */
	if (dmasync_ring_is_sleeping(&worker->page->sleeping)) {
		ssize_t n = write(worker->wake_fd, &(uint64_t){1}, sizeof(uint64_t));

		(void)n; /* a full counter has already woken it */
	}
}

void worker_join(struct worker *worker)
{
	if (!worker)
		return;
	pthread_join(worker->thread, NULL);
	worker->wait.ops->free(worker);
	free_worker(worker);
}

uint32_t worker_index(const struct worker *worker)
{
	return worker->params.index;
}

enum loop_kind worker_loop(const struct worker *worker)
{
	return worker->wait.kind;
}

int worker_loop_refused(const struct worker *worker)
{
	return worker->wait.refused;
}

int worker_page_fd(const struct worker *worker)
{
	return worker->page_fd;
}

uint32_t worker_queue_count(const struct worker *worker)
{
	return atomic_load_explicit(&worker->queue_count, memory_order_relaxed);
}

const struct worker_stats *worker_stats(const struct worker *worker)
{
	return &worker->stats;
}

const struct records *worker_records(const struct worker *worker)
{
	return &worker->records;
}
