/* SPDX-License-Identifier: MIT */
/*
 * Clients that are killed, clients that break their ring, a daemon that stops or is killed: what
 * the others notice of it, and what is left. Parent and forked clients, one thread each.
 */
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/support.h"

enum { SIZE = 4 << 20 };

static struct harness_daemon server;

static const struct range whole = {DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, SIZE, 0, 0};
static const struct range one_line = {DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, LINE, 0, 0};

/* ---- a client that is killed ---- */

enum point {
	SILENT,	      /* connected and never spoke */
	GREETED,      /* HELLO was answered */
	REGISTERED,   /* one buffer */
	QUEUED,	      /* and a queue */
	BATCH_OPEN,   /* a batch half built */
	SUBMITTED,    /* eight large batches submitted, none read */
	UNREAD,	      /* all completed, the ring full of completions */
	SLEEPING,     /* says that it sleeps and waits for a notification */
	HALF_WRITTEN, /* units written, the submission's body too, its seq not */
	POINTS,
};

static void raw_until(enum point point)
{
	struct raw raw;
	struct raw_memory memory;
	struct raw_queue queue;

	raw_open(&raw, server.socket);
	raw_memory_alloc(&memory, &raw, SIZE);
	raw_queue_open(&queue, &raw, 8, 8);

	struct dmasync_unit unit =
		raw_unit(memory.handle, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, SIZE);

	if (point == SLEEPING) {
		dmasync_ring_announce_sleep(&queue.ring.header->client_sleeping);
		raw_submit(&queue, &unit, 1, 0);
		raw_ring_bell(&queue);
	} else {
		uint32_t slot = queue.submitted & (queue.depth - 1);

		dmasync_ring_write_unit(&queue.ring, queue.unit_position, &unit);
		queue.ring.submissions[slot].unit_count = 1;
	}
}

static void library_until(enum point point)
{
	struct client client;
	struct memory memory;
	struct dmasync_batch *batch;

	if (point == GREETED) {
		client_connect(&client, server.socket);
		return;
	}
	client_open(&client, server.socket, 8, 64);
	memory_alloc(&memory, client.ds, SIZE);
	if (point == REGISTERED) {
		dmasync_queue_destroy(client.queue);
	} else if (point == BATCH_OPEN) {
		check_int(dmasync_batch_begin(client.queue, &batch), 0);
		check_int(dmasync_batch_add(batch, memory.buffer, whole.sync, whole.direction, 0,
					    SIZE),
			  0);
	} else if (point == SUBMITTED || point == UNREAD) {
		for (uint64_t i = 0; i < 8; i++)
			client_submit(&client, memory.buffer,
				      point == SUBMITTED ? &whole : &one_line, 1, i);
	}
	if (point == UNREAD) {
		struct pollfd readable = {.fd = dmasync_queue_fd(client.queue), .events = POLLIN};

		check_int(poll(&readable, 1, PATIENCE_MS), 1);
	}
}

/* In a child of its own: goes so far, says so, and waits for its end. */
static _Noreturn void run_victim(enum point point, int ready)
{
	switch (point) {
	case SILENT:
		harness_connect(server.socket);
		break;
	case GREETED:
	case REGISTERED:
	case QUEUED:
	case BATCH_OPEN:
	case SUBMITTED:
	case UNREAD:
		library_until(point);
		break;
	case SLEEPING:
	case HALF_WRITTEN:
		raw_until(point);
		break;
	case POINTS:
		_exit(1);
	}
	check_int(write(ready, "", 1), 1);
	for (;;)
		pause();
}

static void kill_at(enum point point)
{
	int ready[2], status;
	char byte;

	check_int(pipe(ready), 0);

	pid_t victim = fork();

	check(victim >= 0);
	if (victim == 0)
		run_victim(point, ready[1]);
	close(ready[1]);
	check_int(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	kill(victim, SIGKILL);
	check_int(waitpid(victim, &status, 0), victim);
	check(WIFSIGNALED(status));
}

static void a_killed_client_leaves_nothing(void)
{
	struct client bystander;
	struct memory memory;
	struct holdings before;
	struct dmasync_completion done;

	harness_daemon_start(&server, SIMULATED_CONFIG, NULL);
	client_open(&bystander, server.socket, 4, 4);
	memory_alloc(&memory, bystander.ds, SIZE);
	client_run(&bystander, memory.buffer, &one_line, 1, &done);
	before = holdings_of(&server);
	for (int round = 0; round < 3; round++) {
		for (enum point point = SILENT; point < POINTS; point++) {
			kill_at(point);
			client_run(&bystander, memory.buffer, &one_line, 1, &done);
		}
		holdings_await(&server, &before);
	}
	memory_free(&memory);
	client_close(&bystander);
	harness_daemon_stop(&server);
}

/* A killed client's fork still holds its socket and rings: released all the same. */
static void a_forked_child_keeps_nothing_alive(void)
{
	struct holdings before;
	int ready[2], status;
	pid_t grandchild;

	harness_daemon_start(&server, SIMULATED_CONFIG, NULL);
	before = holdings_of(&server);
	check_int(pipe(ready), 0);

	pid_t victim = fork();

	check(victim >= 0);
	if (victim == 0) {
		library_until(QUEUED);
		grandchild = fork();
		if (grandchild == 0)
			for (;;)
				pause();
		check_int(write(ready[1], &grandchild, sizeof grandchild), sizeof grandchild);
		for (;;)
			pause();
	}
	check_int(read(ready[0], &grandchild, sizeof grandchild), sizeof grandchild);
	kill(victim, SIGKILL);
	check_int(waitpid(victim, &status, 0), victim);
	holdings_await(&server, &before);
	kill(grandchild, SIGKILL);
	close(ready[0]);
	close(ready[1]);
	harness_daemon_stop(&server);
}

/* ---- a ring that is broken ---- */

enum breakage {
	FUTURE_SEQ,	/* of the next lap */
	STALE_SEQ,	/* of a lap long gone */
	RANDOM_SEQ,	/* of none */
	READ_AHEAD,	/* completions read that were never written */
	READ_BACKWARDS, /* and then again not */
	BREAKAGES,
};

static void break_ring(struct raw_queue *queue, enum breakage breakage,
		       const struct dmasync_unit *unit)
{
	struct dmasync_ring_completion done;
	struct dmasync_ring *ring = &queue->ring;
	uint32_t position = queue->submitted;
	uint32_t *seq = &ring->submissions[position & (queue->depth - 1)].seq;
	uint32_t *read = &ring->header->completions_read;

	switch (breakage) {
	case FUTURE_SEQ:
		__atomic_store_n(seq, position + queue->depth, __ATOMIC_RELEASE);
		break;
	case STALE_SEQ:
		__atomic_store_n(seq, position - 7 * queue->depth, __ATOMIC_RELEASE);
		break;
	case RANDOM_SEQ:
		__atomic_store_n(seq, position ^ 0x5a5a5a5a, __ATOMIC_RELEASE);
		break;
	case READ_AHEAD:
	case READ_BACKWARDS:
		/*
		 * The worker looks when the ring seems full: when it does, it may have completed up
		 * to `depth` batches more, which must not make this position true.
		 */
		for (uint32_t i = 0; i < queue->depth; i++)
			raw_submit(queue, unit, 1, i);
		for (uint32_t i = 0; i < queue->depth; i++)
			raw_wait(queue, &done);
		for (uint32_t i = 0; breakage == READ_BACKWARDS && i < queue->depth; i++) {
			raw_submit(queue, unit, 1, i);
			raw_wait(queue, &done);
		}
		__atomic_store_n(read,
				 breakage == READ_AHEAD ? queue->completed + 2 * queue->depth
							: queue->completed - 2 * queue->depth,
				 __ATOMIC_RELEASE);
		for (uint32_t i = 0; i < queue->depth; i++)
			raw_submit(queue, unit, 1, i);
		break;
	case BREAKAGES:
		break;
	}
	raw_ring_bell(queue);
}

static unsigned int count_in_log(const char *text)
{
	char line[1024];
	unsigned int count = 0;
	FILE *log = fopen(server.log, "re");

	check(log);
	while (fgets(line, sizeof line, log))
		count += strstr(line, text) != NULL;
	fclose(log);
	return count;
}

/* A connection of its own for each kind: the daemon logs one sentence a client, not one a mistake.
 */
static void a_broken_ring_ends_its_queue_alone(void)
{
	struct holdings before;

	harness_daemon_start(&server, SIMULATED_CONFIG, NULL);
	before = holdings_of(&server);
	for (enum breakage breakage = FUTURE_SEQ; breakage < BREAKAGES; breakage++) {
		struct raw raw;
		struct raw_memory memory;
		struct raw_queue good, broken;
		struct dmasync_ring_completion done;

		raw_open(&raw, server.socket);
		raw_memory_alloc(&memory, &raw, SIZE);
		raw_queue_open(&good, &raw, 4, 4);
		raw_queue_open(&broken, &raw, 4, 4);

		struct dmasync_unit unit =
			raw_unit(memory.handle, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, LINE);
		struct pollfd hangup = {.fd = broken.notification};

		raw_submit(&broken, &unit, 1, 1);
		raw_wait(&broken, &done);
		check_int(done.status, 0);
		break_ring(&broken, breakage, &unit);

		/* Its end is told by the hang-up of the notification pipe. */
		check_int(poll(&hangup, 1, PATIENCE_MS), 1);
		check(hangup.revents & POLLHUP);
		check_int(count_in_log("queue 2 ends"), (int)breakage + 1);

		raw_submit(&good, &unit, 1, 2);
		raw_wait(&good, &done);
		check_int(done.status, 0);
		raw_queue_close(&good);
		raw_queue_close(&broken);
		raw_memory_free(&memory);
		raw_close(&raw);
	}
	holdings_await(&server, &before);
	harness_daemon_stop(&server);
}

/* Random bytes all over a ring: whatever happens to that queue, the others go on. */
static void a_ring_of_noise_harms_nobody(void)
{
	unsigned short seed[3] = {9, 10, 11};
	struct raw noisy;
	struct client bystander;
	struct memory memory;
	struct holdings before;
	struct dmasync_completion done;

	harness_daemon_start(&server, SIMULATED_CONFIG, NULL);
	client_open(&bystander, server.socket, 4, 4);
	memory_alloc(&memory, bystander.ds, SIZE);
	before = holdings_of(&server);
	for (uint64_t round = rounds(50); round > 0; round--) {
		struct raw_queue queue;

		raw_open(&noisy, server.socket);
		raw_queue_open(&queue, &noisy, 16, 64);
		for (size_t i = 0; i < queue.size / 4; i++) {
			uint32_t *word = (uint32_t *)queue.memory + i;

			if (nrand48(seed) % 3)
				__atomic_store_n(word, (uint32_t)mrand48(), __ATOMIC_RELAXED);
		}
		/* Some of it with a seq that the worker takes. */
		for (uint32_t i = 0; i < 8; i++)
			__atomic_store_n(&queue.ring.submissions[i].seq, DMASYNC_RING_START + i,
					 __ATOMIC_RELEASE);
		raw_ring_bell(&queue);
		client_run(&bystander, memory.buffer, &one_line, 1, &done);
		raw_queue_close(&queue);
		raw_close(&noisy);
	}
	holdings_await(&server, &before);
	memory_free(&memory);
	client_close(&bystander);
	harness_daemon_stop(&server);
}

/* ---- the daemon's end ---- */

static void stopping_drains_what_was_submitted(void)
{
	enum { BATCHES = 16 };
	struct client client;
	struct memory memory;
	struct dmasync_completion done;

	harness_daemon_start(&server, SIMULATED_CONFIG, NULL);
	client_open(&client, server.socket, BATCHES, BATCHES);
	memory_alloc(&memory, client.ds, SIZE);
	memset(memory.cpu, 0x77, SIZE);
	for (uint64_t i = 0; i < BATCHES; i++)
		client_submit(&client, memory.buffer, &whole, 1, i);
	harness_daemon_stop(&server);

	/* It ended with 0, and every batch is there. */
	for (uint64_t i = 0; i < BATCHES; i++) {
		check_int(dmasync_peek(client.queue, &done), 1);
		check_int(done.status, 0);
		check_int(done.user_data, i);
		check_int(done.lines, SIZE / LINE);
	}
	check_int(memcmp(memory.cpu, memory.device, SIZE), 0);
	check_int(dmasync_peek(client.queue, &done), -ECONNRESET);
	memory_free(&memory);
	client_close(&client);
}

/* Every thread of it, which SIGSTOP does not promise at once. */
static bool has_stopped(pid_t pid)
{
	char path[64], text[512];
	bool stopped = true;

	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	DIR *tasks = opendir(path);

	check(tasks);
	for (struct dirent *task; (task = readdir(tasks));) {
		char stat_path[352];

		if (task->d_name[0] == '.')
			continue;
		snprintf(stat_path, sizeof stat_path, "%s/%s/stat", path, task->d_name);
		FILE *stat = fopen(stat_path, "re");

		check(stat && fgets(text, sizeof text, stat));
		fclose(stat);
		stopped &= strstr(text, ") T ") != NULL;
	}
	closedir(tasks);
	return stopped;
}

/* The client sleeps without a time-out when the daemon is killed. */
static void a_sleeping_client_learns_of_the_daemons_death(void)
{
	struct client client;
	struct memory memory;
	struct dmasync_completion done;
	int ready[2];
	char byte;

	harness_daemon_start(&server, SIMULATED_CONFIG, NULL);
	check_int(pipe(ready), 0);

	pid_t killer = fork();

	check(killer >= 0);
	if (killer == 0) {
		check_int(read(ready[0], &byte, 1), 1);
		/* Until the other process sleeps: its state is the third field of its stat. */
		for (;;) {
			char path[64], text[256] = "";

			snprintf(path, sizeof path, "/proc/%d/stat", (int)getppid());
			FILE *stat = fopen(path, "re");

			check(stat && fgets(text, sizeof text, stat));
			fclose(stat);
			if (strstr(text, ") S "))
				break;
			harness_pause();
		}
		kill(server.pid, SIGKILL);
		_exit(0);
	}
	client_open(&client, server.socket, 4, 4);
	memory_alloc(&memory, client.ds, SIZE);

	/* A daemon that stands still never completes this batch. */
	kill(server.pid, SIGSTOP);
	harness_until(has_stopped(server.pid), PATIENCE_MS);
	client_submit(&client, memory.buffer, &one_line, 1, 1);
	check_int(write(ready[1], "", 1), 1);
	check_int(dmasync_wait(client.queue, &done, -1), -ECONNRESET);
	check_int(harness_daemon_wait(&server, PATIENCE_MS), -SIGKILL);
	check_int(waitpid(killer, NULL, 0), killer);
	close(ready[0]);
	close(ready[1]);
	memory_free(&memory);
	client_close(&client);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(a_killed_client_leaves_nothing, .timeout_s = 60),
	HARNESS_CASE(a_forked_child_keeps_nothing_alive),
	HARNESS_CASE(a_broken_ring_ends_its_queue_alone),
	HARNESS_CASE(a_ring_of_noise_harms_nobody),
	HARNESS_CASE(stopping_drains_what_was_submitted),
	HARNESS_CASE(a_sleeping_client_learns_of_the_daemons_death),
};

HARNESS_MAIN(cases)
