/* SPDX-License-Identifier: MIT */
/*
 * The pool of helper threads: who may run which job when. Jobs are submitted by any thread; what is
 * not a job's own is guarded by one mutex, which nobody holds while a job runs.
 */
#include "daemon/helper.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define LANE_BUCKETS 256u

/* The jobs of one client: those that wait, and how many run. Gone when it has neither. */
struct lane {
	uint64_t client_id;
	struct helper_job *first, *last;
	uint32_t running;
	bool runnable; /* on the runnable list: has a waiting job and is below its quota */
	struct lane *next_in_bucket;
	struct lane *next_runnable;
};

struct helpers {
	pthread_mutex_t mutex;
	pthread_cond_t work; /* a lane became runnable, or the pool ends */
	pthread_cond_t left; /* a thread has left */
	struct lane *buckets[LANE_BUCKETS];
	struct lane daemon_lane; /* client 0: no quota */
	struct lane *runnable_first, *runnable_last;
	uint32_t per_client;
	uint32_t thread_max, thread_count;
	uint32_t idle;
	uint32_t users; /* threads, and the owner until helpers_free() */
	bool ending;
	bool abandoned; /* the owner has gone: nobody takes finished jobs any more */
	struct helper_thread {
		struct helpers *helpers;
		pthread_t id;
		bool left;
	} threads[];
};

static void *helper_main(void *argument);

static struct lane **lane_place(struct helpers *helpers, uint64_t client_id)
{
	struct lane **place = &helpers->buckets[client_id % LANE_BUCKETS];

	while (*place && (*place)->client_id != client_id)
		place = &(*place)->next_in_bucket;
	return place;
}

/* Where memory is short a client's job runs on the daemon's account rather than not at all. */
static struct lane *lane_get(struct helpers *helpers, uint64_t client_id)
{
	if (client_id == 0)
		return &helpers->daemon_lane;

	struct lane **place = lane_place(helpers, client_id);

	if (!*place) {
		*place = calloc(1, sizeof(**place));
		if (!*place)
			return &helpers->daemon_lane;
		(*place)->client_id = client_id;
	}
	return *place;
}

static void lane_put(struct helpers *helpers, struct lane *lane)
{
	if (lane == &helpers->daemon_lane || lane->first || lane->running)
		return;
	*lane_place(helpers, lane->client_id) = lane->next_in_bucket;
	free(lane);
}

static void lane_make_runnable(struct helpers *helpers, struct lane *lane)
{
	if (lane->runnable || !lane->first)
		return;
	if (lane != &helpers->daemon_lane && lane->running >= helpers->per_client)
		return;
	lane->runnable = true;
	lane->next_runnable = NULL;
	if (helpers->runnable_last)
		helpers->runnable_last->next_runnable = lane;
	else
		helpers->runnable_first = lane;
	helpers->runnable_last = lane;
	pthread_cond_signal(&helpers->work);
}

/* The lanes take turns, a job each. */
static struct helper_job *job_take(struct helpers *helpers, struct lane **ret_lane)
{
	struct lane *lane = helpers->runnable_first;

	if (!lane)
		return NULL;
	helpers->runnable_first = lane->next_runnable;
	if (!helpers->runnable_first)
		helpers->runnable_last = NULL;
	lane->runnable = false;

	struct helper_job *job = lane->first;

	lane->first = job->next;
	if (!lane->first)
		lane->last = NULL;
	lane->running++;
	lane_make_runnable(helpers, lane);
	*ret_lane = lane;
	return job;
}

static void job_finish(struct helper_job *job)
{
	int fd = job->done_fd;

	if (!job->done) {
		free(job);
	} else if (mailbox_post(job->done, &job->node) && fd >= 0) {
		/* It fails only where the counter is full, and then its reader is awake anyway. */
		ssize_t n = write(fd, &(uint64_t){1}, sizeof(uint64_t));
		(void)n;
	}
}

/*
 * All signals are blocked but those of a fault, which a guarded access of a job may raise. Under
 * the mutex.
 */
static int thread_start(struct helpers *helpers)
{
	struct helper_thread *thread = &helpers->threads[helpers->thread_count];
	sigset_t blocked, before;

	sigfillset(&blocked);
	sigdelset(&blocked, SIGSEGV);
	sigdelset(&blocked, SIGBUS);
	sigdelset(&blocked, SIGILL);
	sigdelset(&blocked, SIGFPE);
	pthread_sigmask(SIG_SETMASK, &blocked, &before);
	thread->helpers = helpers;

	int r = pthread_create(&thread->id, NULL, helper_main, thread);

	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (r == 0) {
		pthread_setname_np(thread->id, "dmasync-helper");
		helpers->thread_count++;
		helpers->users++;
	}
	return -r;
}

/* Under the mutex, which it releases; true where the pool was freed. */
static bool unlock_and_put(struct helpers *helpers)
{
	bool last = --helpers->users == 0;

	pthread_mutex_unlock(&helpers->mutex);
	if (last) {
		pthread_cond_destroy(&helpers->work);
		pthread_cond_destroy(&helpers->left);
		pthread_mutex_destroy(&helpers->mutex);
		free(helpers);
	}
	return last;
}

static void *helper_main(void *argument)
{
	struct helper_thread *self = argument;
	struct helpers *helpers = self->helpers;
	struct lane *lane;

	pthread_mutex_lock(&helpers->mutex);
	while (!helpers->abandoned) {
		struct helper_job *job = job_take(helpers, &lane);

		if (!job) {
			if (helpers->ending)
				break;
			helpers->idle++;
			pthread_cond_wait(&helpers->work, &helpers->mutex);
			helpers->idle--;
			continue;
		}
		/*
		 * Threads are started by helpers alone, one ahead of need: one started by a worker
		 * would inherit its CPU and its priority.
		 */
		if (helpers->idle == 0 && helpers->thread_count < helpers->thread_max &&
		    !helpers->ending)
			thread_start(helpers);
		pthread_mutex_unlock(&helpers->mutex);
		job->run(job);
		pthread_mutex_lock(&helpers->mutex);
		if (helpers->abandoned) {
			if (!job->done)
				free(job);
			break;
		}
		job_finish(job);
		lane->running--;
		lane_make_runnable(helpers, lane);
		lane_put(helpers, lane);
	}
	self->left = true;
	pthread_cond_signal(&helpers->left);
	unlock_and_put(helpers);
	return NULL;
}

int helpers_create(uint32_t threads, uint32_t per_client, struct helpers **ret)
{
	struct helpers *helpers;
	pthread_condattr_t attributes;

	if (threads == 0 || per_client == 0)
		return -EINVAL;
	helpers = calloc(1, sizeof(*helpers) + threads * sizeof(helpers->threads[0]));
	if (!helpers)
		return -ENOMEM;
	helpers->thread_max = threads;
	helpers->per_client = per_client;
	helpers->users = 1;
	pthread_mutex_init(&helpers->mutex, NULL);
	pthread_cond_init(&helpers->work, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&helpers->left, &attributes);
	pthread_condattr_destroy(&attributes);

	pthread_mutex_lock(&helpers->mutex);
	int r = thread_start(helpers);

	if (r < 0) {
		unlock_and_put(helpers);
		return r;
	}
	pthread_mutex_unlock(&helpers->mutex);
	*ret = helpers;
	return 0;
}

void helpers_submit(struct helpers *helpers, struct helper_job *job)
{
	pthread_mutex_lock(&helpers->mutex);

	struct lane *lane = lane_get(helpers, job->client_id);

	job->next = NULL;
	if (lane->last)
		lane->last->next = job;
	else
		lane->first = job;
	lane->last = job;
	lane_make_runnable(helpers, lane);
	pthread_mutex_unlock(&helpers->mutex);
}

static bool all_left(const struct helpers *helpers)
{
	for (uint32_t i = 0; i < helpers->thread_count; i++) {
		if (!helpers->threads[i].left)
			return false;
	}
	return true;
}

/* What nobody runs any more. Jobs with a taker are the taker's memory and stay. */
static void lane_empty(struct lane *lane)
{
	while (lane->first) {
		struct helper_job *job = lane->first;

		lane->first = job->next;
		if (!job->done)
			free(job);
	}
	lane->last = NULL;
}

void helpers_free(struct helpers *helpers, uint32_t timeout_ms)
{
	struct timespec deadline;

	if (!helpers)
		return;
	clock_gettime(CLOCK_MONOTONIC, &deadline);
	deadline.tv_sec += (time_t)(timeout_ms / 1000);
	deadline.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
	if (deadline.tv_nsec >= 1000000000) {
		deadline.tv_sec++;
		deadline.tv_nsec -= 1000000000;
	}

	pthread_mutex_lock(&helpers->mutex);
	helpers->ending = true;
	pthread_cond_broadcast(&helpers->work);
	while (!all_left(helpers)) {
		if (pthread_cond_timedwait(&helpers->left, &helpers->mutex, &deadline))
			break;
	}
	helpers->abandoned = true;
	for (uint32_t i = 0; i < helpers->thread_count; i++) {
		pthread_t id = helpers->threads[i].id;

		if (!helpers->threads[i].left) {
			pthread_detach(id);
			continue;
		}
		/* It has only to let go of the mutex and return. */
		pthread_mutex_unlock(&helpers->mutex);
		pthread_join(id, NULL);
		pthread_mutex_lock(&helpers->mutex);
	}
	lane_empty(&helpers->daemon_lane);
	for (uint32_t i = 0; i < LANE_BUCKETS; i++) {
		struct lane *lane = helpers->buckets[i];

		while (lane) {
			struct lane *next = lane->next_in_bucket;

			lane_empty(lane);
			free(lane); /* a thread left behind looks at it no more */
			lane = next;
		}
	}
	unlock_and_put(helpers);
}

struct close_job {
	struct helper_job job; /* first */
	int fd;
};

static void close_run(struct helper_job *job)
{
	close(((struct close_job *)job)->fd);
}

void helpers_close(struct helpers *helpers, uint64_t client_id, int fd)
{
	struct close_job *job = calloc(1, sizeof(*job));

	if (!job) {
		close(fd); /* may block, but the fd must not leak */
		return;
	}
	job->job.run = close_run;
	job->job.client_id = client_id;
	job->fd = fd;
	helpers_submit(helpers, &job->job);
}
