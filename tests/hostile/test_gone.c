/* SPDX-License-Identifier: MIT */
/*
 * Class: clients that go in the middle of something. Before an answer, at every step of a batch,
 * with batches on several workers, with a child that still holds everything. One thread, and
 * processes that are killed.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hostile/target.h"

enum { SIZE = 4 << 20, DEPTH = 8 };

static const struct row {
	uint16_t opcode;
	uint32_t size, fds;
} rows[] = {
#define ROW_(name, opcode, handler, type, unit, reply, fds_min, fds_max, ...)                      \
	{opcode, sizeof(type), fds_max},
	DMASYNC_MESSAGES(ROW_)
#undef ROW_
};

#define ROWS (sizeof rows / sizeof rows[0])

/* No SIGPIPE, and no answer that lies around. */
ATTACK(before_the_answer, .connections = 1)
{
	int fd = harness_memfd(SIZE, F_SEAL_SHRINK);

	for (uint64_t round = 0; round < rounds(10); round++) {
		for (size_t i = 0; i < ROWS; i++) {
			struct dmasync_queue_create create = {.depth = 2, .units = 2};
			unsigned char bytes[256] = {0};
			struct dmasync_message header = {
				.size = rows[i].size, .opcode = rows[i].opcode, .cookie = 1};
			struct raw raw;

			if (rows[i].opcode == DMASYNC_OP_QUEUE_CREATE)
				memcpy(bytes, &create, sizeof create);
			memcpy(bytes, &header, sizeof header);
			raw_open(&raw, attack->socket);
			for (int k = 0; k < 5; k++)
				(void)harness_send(raw.socket, bytes, rows[i].size, &fd,
						   rows[i].fds);
			raw_close(&raw);
		}
		others_go_on(attack);
	}
	close(fd);
}

/* ---- killed at each step ---- */

enum step {
	CONNECTED,    /* and never spoke */
	GREETED,      /* HELLO was answered */
	REGISTERING,  /* BUFFER_ADD sent, not answered */
	REGISTERED,   /* one buffer */
	QUEUED,	      /* and a queue */
	HALF_WRITTEN, /* units and the submission's body, no seq */
	PUBLISHED,    /* no bell rung */
	RUNG,	      /* in work, presumably */
	FULL,	      /* the queue is full of the largest batches */
	SYNCING,      /* batches in messages, too */
	UNREAD,	      /* all completed, nothing read */
	SLEEPING,     /* says that it sleeps and waits for a notification */
	REMOVING,     /* BUFFER_REMOVE and QUEUE_REMOVE sent while batches run */
	WATCHING,     /* a stream of batch records that is not read */
	STEPS,
};

static void send_request(struct raw *raw, uint16_t opcode, void *request, size_t size)
{
	struct dmasync_message header = {
		.size = (uint32_t)size, .opcode = opcode, .cookie = ++raw->cookie};

	memcpy(request, &header, sizeof header);
	check_int(harness_send(raw->socket, request, size, NULL, 0), 0);
}

static void send_removals(struct target *target)
{
	struct dmasync_buffer_remove buffer = {.handle = target->memory.handle};
	struct dmasync_queue_remove queue = {.queue = target->queue.id};

	send_request(&target->raw, DMASYNC_OP_BUFFER_REMOVE, &buffer, sizeof buffer);
	send_request(&target->raw, DMASYNC_OP_QUEUE_REMOVE, &queue, sizeof queue);
}

static void send_syncs(struct target *target, const struct dmasync_unit *unit)
{
	struct {
		struct dmasync_sync_request request;
		struct dmasync_unit unit;
	} message = {.request = {.count = 1}, .unit = *unit};

	for (int i = 0; i < 16; i++)
		send_request(&target->raw, DMASYNC_OP_SYNC, &message, sizeof message);
}

static void early_steps(struct attack *attack, enum step step, struct raw *raw)
{
	struct dmasync_buffer_add add = {
		.header = {.size = sizeof add, .opcode = DMASYNC_OP_BUFFER_ADD}};
	int fd;

	if (step == CONNECTED) {
		harness_connect(attack->socket);
		return;
	}
	raw_open(raw, attack->socket);
	if (step != REGISTERING)
		return;
	fd = harness_memfd(SIZE, F_SEAL_SHRINK);
	check_int(harness_send(raw->socket, &add, sizeof add, &fd, 1), 0);
}

static void go_until(struct attack *attack, void *argument)
{
	enum step step = *(enum step *)argument;
	struct target target;
	struct dmasync_watch watch = {.enable = 1};
	struct dmasync_done_reply done;

	if (step <= REGISTERING) {
		early_steps(attack, step, &target.raw);
		return;
	}
	raw_open(&target.raw, attack->socket);
	raw_memory_alloc(&target.memory, &target.raw, SIZE);
	if (step == REGISTERED)
		return;
	raw_queue_open(&target.queue, &target.raw, DEPTH, DEPTH);
	struct dmasync_unit unit = target_unit(&target, 0, step == UNREAD ? LINE : SIZE);
	uint32_t batches = step == QUEUED || step == HALF_WRITTEN		   ? 0
			   : step == PUBLISHED || step == RUNG || step == SLEEPING ? 1
										   : DEPTH;

	if (step == HALF_WRITTEN) {
		dmasync_ring_write_unit(&target.queue.ring, target.queue.unit_position, &unit);
		target.queue.ring.submissions[target.queue.submitted & (DEPTH - 1)].unit_count = 1;
	}
	if (step == SLEEPING)
		dmasync_ring_announce_sleep(&target.queue.ring.header->client_sleeping);
	if (step == WATCHING)
		raw_call(&target.raw, &watch, DMASYNC_OP_WATCH, sizeof watch, &done, sizeof done);
	for (uint32_t i = 0; i < batches; i++)
		raw_submit(&target.queue, &unit, 1, i);
	if (batches && step != PUBLISHED)
		raw_ring_bell(&target.queue);
	if (step == SYNCING)
		send_syncs(&target, &unit);
	if (step == REMOVING)
		send_removals(&target);
	if (step == UNREAD) {
		struct dmasync_ring_completion completion;
		struct raw_queue *queue = &target.queue;

		harness_until(dmasync_ring_poll_completion(&queue->ring, queue->submitted - 1,
							   &completion) == DMASYNC_RING_READY,
			      PATIENCE_MS);
	}
}

static void kill_at_each_step(struct attack *attack)
{
	for (uint64_t round = 0; round < rounds(2); round++) {
		for (enum step step = CONNECTED; step < STEPS; step++) {
			pid_t victim = victim_start(go_until, attack, &step);

			victim_kill(victim);
			others_go_on(attack);
		}
	}
}

ATTACK(killed_at_each_step, .connections = 2, .queues = 2, .peak_bytes = 6 * SIZE)
{
	kill_at_each_step(attack);
}

/* Batches that several workers issue together. */
ATTACK(killed_with_batches_on_several_workers, .connections = 2, .queues = 2,
       .daemon_keys = "workers = 2\nsplit_lines = 1024\n", .workers = 2, .peak_bytes = 6 * SIZE)
{
	kill_at_each_step(attack);
}

/* Killed without waiting for anything, somewhere between connect and the end. */
ATTACK(killed_anywhere, .connections = 1, .queues = 1, .peak_bytes = 6 * SIZE)
{
	for (uint64_t round = 0; round < rounds(60); round++) {
		pid_t pid = fork();

		check(pid >= 0);
		if (pid == 0) {
			enum step step = REMOVING;

			for (;;)
				go_until(attack, &step);
		}
		for (uint32_t i = attack_random() % 5; i > 0; i--)
			harness_pause();
		victim_kill(pid);
	}
	others_go_on(attack);
}

/* ---- a child that holds everything ---- */

struct parent {
	pid_t child;
	int ready;
};

static void fork_and_wait(struct attack *attack, void *argument)
{
	const struct parent *parent = argument;
	enum step step = FULL;

	go_until(attack, &step);
	pid_t child = fork();

	check(child >= 0);
	if (child == 0)
		for (;;)
			pause();
	check_int(write(parent->ready, &child, sizeof child), sizeof child);
}

/* Its parent's death is the client's: the child may sleep on for ever. */
ATTACK(a_child_that_keeps_all, .connections = 1, .queues = 1, .peak_bytes = 6 * SIZE)
{
	enum { OTHERS = 5 }; /* the observer, the well-behaved ones and the monitor, at most */
	struct dmasync_stats_reply stats;
	struct parent parent;
	struct raw observer;
	int ends[2];

	check_int(pipe(ends), 0);
	parent.ready = ends[1];
	raw_open(&observer, attack->socket);
	pid_t victim = victim_start(fork_and_wait, attack, &parent);

	check_int(read(ends[0], &parent.child, sizeof parent.child), sizeof parent.child);
	victim_kill(victim);
	/* While the child lives: none of its buffer is mapped by the daemon any more. */
	harness_until((raw_stats(&observer, &stats), stats.mapped_bytes < SIZE), PATIENCE_MS);
	check(stats.clients <= OTHERS);
	others_go_on(attack);
	check_int(kill(parent.child, SIGKILL), 0);
	close(ends[0]);
	close(ends[1]);
	raw_close(&observer);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(before_the_answer),
	HARNESS_CASE(killed_at_each_step),
	HARNESS_CASE(killed_with_batches_on_several_workers),
	HARNESS_CASE(killed_anywhere),
	HARNESS_CASE(a_child_that_keeps_all),
};

HARNESS_MAIN(cases)
