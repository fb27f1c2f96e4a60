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
	struct helper_user *user; /* NULL: the daemon's own */
	struct helper_job *first, *last;
	uint32_t running;
	bool runnable; /* on its user's list: has a waiting job and is below its quota */
	struct lane *next_in_bucket;
	struct lane *next_runnable;
};

/* The lanes of one user; gone with the last of them. */
struct helper_user {
	uint64_t user_id;
	uint32_t lanes, running;
	struct lane *runnable_first, *runnable_last;
	enum { USER_IDLE, USER_READY, USER_AT_QUOTA } state; /* on which list, if any */
	struct helper_user *next_in_bucket;
	struct helper_user *next;
};

struct user_list {
	struct helper_user *first, *last;
};

struct helpers {
	pthread_mutex_t mutex;
	pthread_cond_t work; /* a lane became runnable, or the pool ends */
	pthread_cond_t left; /* a thread has left */
	struct lane *buckets[LANE_BUCKETS];
	struct helper_user *user_buckets[LANE_BUCKETS];
	struct lane daemon_lane;   /* client 0: no quota, and first */
	struct user_list ready;	   /* users with a runnable lane; they take turns */
	struct user_list at_quota; /* the same, but they must wait until some job has ended */
	uint32_t running;	   /* jobs of users */
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

static void list_add(struct user_list *list, struct helper_user *user)
{
	user->next = NULL;
	if (list->last)
		list->last->next = user;
	else
		list->first = user;
	list->last = user;
}

static struct helper_user *list_take(struct user_list *list)
{
	struct helper_user *user = list->first;

	if (!user)
		return NULL;
	list->first = user->next;
	if (!list->first)
		list->last = NULL;
	return user;
}

/* ---- users and lanes, all under the mutex ---- */

static struct helper_user **user_place(struct helpers *helpers, uint64_t user_id)
{
	struct helper_user **place = &helpers->user_buckets[user_id % LANE_BUCKETS];

	while (*place && (*place)->user_id != user_id)
		place = &(*place)->next_in_bucket;
	return place;
}

static struct lane **lane_place(struct helpers *helpers, uint64_t client_id, uint64_t user_id)
{
	struct lane **place = &helpers->buckets[(client_id + user_id) % LANE_BUCKETS];

	while (*place && ((*place)->client_id != client_id || (*place)->user->user_id != user_id))
		place = &(*place)->next_in_bucket;
	return place;
}

static void user_put(struct helpers *helpers, struct helper_user *user)
{
	if (user->lanes)
		return;
	*user_place(helpers, user->user_id) = user->next_in_bucket;
	free(user);
}

static struct lane *lane_new(struct helpers *helpers, uint64_t client_id, uint64_t user_id)
{
	struct helper_user **place = user_place(helpers, user_id);
	struct lane *lane = calloc(1, sizeof(*lane));

	if (!*place)
		*place = calloc(1, sizeof(**place));
	if (!lane || !*place) {
		free(lane);
		if (*place)
			user_put(helpers, *place);
		return NULL;
	}
	(*place)->user_id = user_id;
	(*place)->lanes++;
	lane->client_id = client_id;
	lane->user = *place;
	return lane;
}

/* Where memory is short a client's job runs on the daemon's account rather than not at all. */
static struct lane *lane_get(struct helpers *helpers, uint64_t client_id, uint64_t user_id)
{
	if (client_id == 0)
		return &helpers->daemon_lane;

	struct lane **place = lane_place(helpers, client_id, user_id);

	if (!*place)
		*place = lane_new(helpers, client_id, user_id);
	return *place ? *place : &helpers->daemon_lane;
}

static void lane_put(struct helpers *helpers, struct lane *lane)
{
	struct helper_user *user = lane->user;

	if (!user || lane->first || lane->running)
		return;
	*lane_place(helpers, lane->client_id, user->user_id) = lane->next_in_bucket;
	free(lane);
	user->lanes--;
	user_put(helpers, user);
}

static void lane_make_runnable(struct helpers *helpers, struct lane *lane)
{
	struct helper_user *user = lane->user;

	if (!lane->first)
		return;
	pthread_cond_signal(&helpers->work);
	if (!user || lane->runnable || lane->running >= helpers->per_client)
		return;
	lane->runnable = true;
	lane->next_runnable = NULL;
	if (user->runnable_last)
		user->runnable_last->next_runnable = lane;
	else
		user->runnable_first = lane;
	user->runnable_last = lane;
	if (user->state == USER_IDLE) {
		user->state = USER_READY;
		list_add(&helpers->ready, user);
	}
}

/* Half of the threads that other users leave, rounded up: the last one is for whoever has none. */
static bool user_may_run(const struct helpers *helpers, const struct helper_user *user)
{
	uint32_t left = helpers->thread_max - (helpers->running - user->running);

	return user->running < left / 2 + left % 2;
}

/* A job has ended, and with it the shares have grown. */
static void users_look_again(struct helpers *helpers)
{
	for (struct helper_user *user = list_take(&helpers->at_quota); user;
	     user = list_take(&helpers->at_quota)) {
		user->state = USER_READY;
		list_add(&helpers->ready, user);
	}
}

static struct helper_job *lane_take(struct lane *lane)
{
	struct helper_job *job = lane->first;

	lane->first = job->next;
	if (!lane->first)
		lane->last = NULL;
	lane->running++;
	return job;
}

/* A job each: the lanes of a user take turns, and so do the users. */
static struct helper_job *user_take(struct helpers *helpers, struct helper_user *user,
				    struct lane **ret_lane)
{
	struct lane *lane = user->runnable_first;

	user->runnable_first = lane->next_runnable;
	if (!user->runnable_first)
		user->runnable_last = NULL;
	lane->runnable = false;

	struct helper_job *job = lane_take(lane);

	user->running++;
	helpers->running++;
	lane_make_runnable(helpers, lane);
	*ret_lane = lane;
	return job;
}

static struct helper_job *job_take(struct helpers *helpers, struct lane **ret_lane)
{
	if (helpers->daemon_lane.first) {
		*ret_lane = &helpers->daemon_lane;
		return lane_take(&helpers->daemon_lane);
	}
	for (struct helper_user *user = list_take(&helpers->ready); user;
	     user = list_take(&helpers->ready)) {
		if (!user_may_run(helpers, user)) {
			user->state = USER_AT_QUOTA;
			list_add(&helpers->at_quota, user);
			continue;
		}

		struct helper_job *job = user_take(helpers, user, ret_lane);

		user->state = user->runnable_first ? USER_READY : USER_IDLE;
		if (user->state == USER_READY)
			list_add(&helpers->ready, user);
		return job;
	}
	return NULL;
}

/* The job has run: its thread, its client and its user have one less. */
static void job_end(struct helpers *helpers, struct lane *lane)
{
	lane->running--;
	if (lane->user) {
		lane->user->running--;
		helpers->running--;
	}
	users_look_again(helpers);
	lane_make_runnable(helpers, lane);
	lane_put(helpers, lane);
	if (helpers->ready.first)
		pthread_cond_signal(&helpers->work);
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
		job_end(helpers, lane);
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

	struct lane *lane = lane_get(helpers, job->client_id, job->user_id);

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
		for (struct helper_user *user = helpers->user_buckets[i]; user;) {
			struct helper_user *next = user->next_in_bucket;

			free(user);
			user = next;
		}
	}
	unlock_and_put(helpers);
}
