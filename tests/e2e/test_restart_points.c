/* SPDX-License-Identifier: MIT */
/*
 * The daemon dies at each step of a batch and another takes over: every batch completes once, with
 * its contents where they belong. The clients are threads; the case's own thread is the supervisor,
 * as a daemon dies with the thread that started it.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/e2e/support.h"

/* Slices are short, so that a batch of REGION bytes takes several. */
#define CONFIG SIMULATED_CONFIG "slice_lines = 64\n"

enum { DEPTH = 16, REGION = 64 << 10 };

struct point {
	const char *at;
	int completed; /* before the death: of DEPTH batches in flight; -1: not known */
	/*
	 * The number of the batch that is submitted again, where they come one at a time: the one
	 * in work, or where that was published, the next one, which went into the old ring.
	 */
	int replayed;
};

static const struct point points[] = {
	{"fetch:5", 4, 4},   {"mid-issue:5", -1, -1}, {"barrier:5", 4, 4},
	{"publish:5", 5, 5}, {"wake:5", -1, -1},
};

static char socket_path[108];
static const char *config = CONFIG;

static void start_daemon(struct harness_daemon *server, const char *kill_at)
{
	if (kill_at)
		setenv("DMASYNC_KILL_AT", kill_at, 1);
	harness_daemon_start_at(server, socket_path, config, NULL);
	unsetenv("DMASYNC_KILL_AT");
}

static void choose_socket(void)
{
	snprintf(socket_path, sizeof socket_path, "%s/socket", harness_directory());
}

static uint64_t restarts_of(struct dmasync *ds)
{
	struct dmasync_state_info info = {.size = sizeof info};

	check_int(dmasync_get_state(ds, &info), 0);
	return info.restarts;
}

static uint64_t replayed_of(struct dmasync *ds)
{
	struct dmasync_state_info info = {.size = sizeof info};

	check_int(dmasync_get_state(ds, &info), 0);
	return info.replayed;
}

/* ---- one queue ---- */

struct worker {
	struct client client;
	struct memory memory;
	const struct point *point;
	pthread_t thread;
	unsigned int flagged; /* completions marked as replayed */
	uint64_t last_flagged;
	uint64_t value;
};

static void open_worker(struct worker *worker, const struct point *point)
{
	*worker = (struct worker){.point = point};
	client_connect_with(&worker->client, socket_path, 0);
	client_queue(&worker->client, DEPTH, DEPTH);
	memory_alloc(&worker->memory, worker->client.ds, DEPTH * REGION);
}

static void close_worker(struct worker *worker)
{
	memory_free(&worker->memory);
	client_close(&worker->client);
}

static void submit_region(struct worker *worker, unsigned int region)
{
	struct range range = {DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, region * REGION, REGION, 0, 0};

	memset(worker->memory.cpu + region * REGION, (int)(worker->value % 251 + 1), REGION);
	client_submit(&worker->client, worker->memory.buffer, &range, 1, worker->value++);
}

/* The batch `value` has ended, and its region's contents are where the device sees them. */
static void check_region(struct worker *worker, const struct dmasync_completion *done,
			 uint64_t value, unsigned int region)
{
	check_int(done->user_data, value);
	check_int(done->status, 0);
	check_int(done->lines, REGION / LINE);
	check_int(memcmp(worker->memory.cpu + region * REGION,
			 worker->memory.device + region * REGION, REGION),
		  0);
	if (done->flags & DMASYNC_COMPLETION_REPLAYED) {
		worker->flagged++;
		worker->last_flagged = value;
	}
}

/* Sleeps for each batch; some more when the daemon has died. */
static void *one_at_a_time(void *argument)
{
	struct worker *worker = argument;
	struct dmasync_completion done;

	for (int more = 4; more > 0; more -= restarts_of(worker->client.ds) > 0) {
		uint64_t value = worker->value;

		submit_region(worker, (unsigned int)(value % DEPTH));
		check_int(dmasync_wait(worker->client.queue, &done, -1), 0);
		check_region(worker, &done, value, (unsigned int)(value % DEPTH));
		check_int(dmasync_wait(worker->client.queue, &done, 0), -ENODATA);
	}
	return NULL;
}

static void a_sleeper_at_each_point(void)
{
	choose_socket();
	for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
		struct harness_daemon server;
		struct worker worker;

		start_daemon(&server, points[i].at);
		open_worker(&worker, &points[i]);
		check_int(pthread_create(&worker.thread, NULL, one_at_a_time, &worker), 0);
		check_int(harness_daemon_wait(&server, PATIENCE_MS), -SIGKILL);
		start_daemon(&server, NULL);
		pthread_join(worker.thread, NULL);
		check_int(worker.flagged, 1);
		if (points[i].replayed >= 0)
			check_int(worker.last_flagged, points[i].replayed);
		check_int(replayed_of(worker.client.ds), worker.flagged);
		check_int(restarts_of(worker.client.ds), 1);
		close_worker(&worker);
		harness_daemon_stop(&server);
	}
}

/* A full ring; what is done and unread stays, the rest is done again. */
static void *all_at_once(void *argument)
{
	struct worker *worker = argument;
	struct dmasync_completion done;

	do {
		uint64_t value = worker->value;
		int first = -1;

		for (unsigned int i = 0; i < DEPTH; i++)
			submit_region(worker, i);
		for (unsigned int i = 0; i < DEPTH; i++) {
			unsigned int before = worker->flagged;

			check_int(dmasync_wait(worker->client.queue, &done, -1), 0);
			check_region(worker, &done, value + i, i);
			/* Those that were submitted again are the last ones, without a gap. */
			if (worker->flagged != before && first < 0)
				first = (int)i;
			else if (first >= 0)
				check_int(worker->flagged, before + 1);
		}
		if (worker->point->completed >= 0)
			check_int(first, worker->point->completed);
		check_int(dmasync_wait(worker->client.queue, &done, 0), -ENODATA);
	} while (restarts_of(worker->client.ds) == 0);
	return NULL;
}

static void a_full_ring_at_each_point(void)
{
	choose_socket();
	for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
		struct harness_daemon server;
		struct worker worker;

		start_daemon(&server, points[i].at);
		open_worker(&worker, &points[i]);
		check_int(pthread_create(&worker.thread, NULL, all_at_once, &worker), 0);
		check_int(harness_daemon_wait(&server, PATIENCE_MS), -SIGKILL);
		start_daemon(&server, NULL);
		pthread_join(worker.thread, NULL);
		check_int(replayed_of(worker.client.ds), worker.flagged);
		close_worker(&worker);
		harness_daemon_stop(&server);
	}
}

/* ---- many queues of one connection, and many deaths ---- */

enum { QUEUES = 4, DEATHS = 12 };

struct part {
	struct worker worker;
	pthread_t thread;
	_Atomic bool *stop;
	uint64_t batches;
};

static void *many_rounds(void *argument)
{
	struct part *part = argument;
	struct worker *worker = &part->worker;
	struct dmasync *ds = worker->client.ds;
	struct dmasync_completion done;

	while (!atomic_load(part->stop)) {
		uint64_t value = worker->value;
		unsigned int count = 1 + (unsigned int)(value % (DEPTH - 1)); /* room for a sync */

		for (unsigned int i = 0; i < count; i++)
			submit_region(worker, i);
		/* Requests of all threads, in the middle of it. */
		if (part->batches % 3 == 0) {
			struct memory other;

			memory_alloc(&other, ds, 4096);
			memset(other.cpu, 7, 4096);
			check_int(dmasync_sync(worker->client.queue, other.buffer,
					       DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, 4096),
				  0);
			check_int(memcmp(other.cpu, other.device, 4096), 0);
			for (unsigned int i = 0; i < count; i++) {
				check_int(dmasync_peek(worker->client.queue, &done), 1);
				check_region(worker, &done, value + i, i);
			}
			memory_free(&other);
		} else {
			for (unsigned int i = 0; i < count; i++) {
				check_int(dmasync_wait(worker->client.queue, &done, -1), 0);
				check_region(worker, &done, value + i, i);
			}
		}
		part->batches += count;
		check_int(dmasync_wait(worker->client.queue, &done, 0), -ENODATA);
	}
	return NULL;
}

static void many_queues_and_many_deaths(void)
{
	struct part parts[QUEUES] = {0};
	struct harness_daemon server;
	struct client client;
	_Atomic bool stop = false;
	uint64_t flagged = 0;

	choose_socket();
	start_daemon(&server, "fetch:20");
	client_connect_with(&client, socket_path, 0);
	for (int i = 0; i < QUEUES; i++) {
		struct worker *worker = &parts[i].worker;

		worker->client.ds = client.ds;
		client_queue(&worker->client, DEPTH, DEPTH);
		memory_alloc(&worker->memory, client.ds, DEPTH * REGION);
		parts[i].stop = &stop;
	}
	/* Not before: this thread has to be there for the first death. */
	for (int i = 0; i < QUEUES; i++)
		check_int(pthread_create(&parts[i].thread, NULL, many_rounds, &parts[i]), 0);
	for (int i = 1; i <= DEATHS; i++) {
		static const char *const at[] = {"mid-issue:30", "barrier:25", "publish:31",
						 "wake:3",	 "fetch:1",    "publish:1"};

		check_int(harness_daemon_wait(&server, PATIENCE_MS), -SIGKILL);
		start_daemon(&server, i == DEATHS ? NULL : at[i % 6]);
	}
	harness_until(restarts_of(client.ds) == DEATHS, PATIENCE_MS);
	atomic_store(&stop, true);
	for (int i = 0; i < QUEUES; i++) {
		struct worker *worker = &parts[i].worker;

		pthread_join(parts[i].thread, NULL);
		check(parts[i].batches > 0);
		flagged += worker->flagged;
		memory_free(&worker->memory);
		dmasync_queue_destroy(worker->client.queue);
	}
	check(flagged > 0);
	dmasync_disconnect(client.ds);
	harness_daemon_stop(&server);
}

/* Each batch is shared by two workers: the daemon dies with one part done and one in work. */
static void shared_batches_and_many_deaths(void)
{
	config = CONFIG "workers = 2\nsplit_lines = 128\n";
	many_queues_and_many_deaths();
}

static const struct harness_case cases[] = {
	HARNESS_CASE(a_sleeper_at_each_point, .timeout_s = 60),
	HARNESS_CASE(a_full_ring_at_each_point, .timeout_s = 60),
	HARNESS_CASE(many_queues_and_many_deaths, .timeout_s = 120),
	HARNESS_CASE(shared_batches_and_many_deaths, .timeout_s = 120),
};

HARNESS_MAIN(cases)
