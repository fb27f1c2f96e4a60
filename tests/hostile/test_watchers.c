/* SPDX-License-Identifier: MIT */
/*
 * Class: onlookers. Streams of batch records that nobody reads, more of them than there may be,
 * begun and ended without pause; records of others that are none of theirs. One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/hostile/target.h"

enum { WATCHERS = 40, BYTES = 4096, DEPTH = 64 };

static int watch(struct raw *raw, uint32_t enable)
{
	struct dmasync_watch request = {.enable = enable};
	union reply reply;

	return requests_call(raw->socket, DMASYNC_OP_WATCH, &request, sizeof request, NULL, 0,
			     &reply);
}

static void run_batches(struct target *target, uint64_t count)
{
	struct dmasync_unit unit = target_unit(target, 0, LINE);
	struct dmasync_ring_completion done;

	for (uint64_t i = 0; i < count; i += DEPTH) {
		for (uint32_t k = 0; k < DEPTH; k++)
			raw_submit(&target->queue, &unit, 1, k);
		for (uint32_t k = 0; k < DEPTH; k++)
			raw_wait(&target->queue, &done);
	}
}

/* Each with batches of its own, so that there is something to send. */
ATTACK(streams_that_are_not_read, .connections = WATCHERS, .queues = WATCHERS,
       .peak_bytes = 64 << 20)
{
	static struct target targets[WATCHERS];
	int granted = 0;

	for (int i = 0; i < WATCHERS; i++) {
		target_open(&targets[i], attack, BYTES, DEPTH, DEPTH);
		int r = watch(&targets[i].raw, 1);

		check(r == 0 || r == -ENOSPC);
		granted += r == 0;
	}
	check(granted > 0);
	if (is_another_user(attack)) /* half of 64, and no more */
		check_int(granted, 32);
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < WATCHERS; i++)
			run_batches(&targets[i], 2 * DEPTH);
		others_go_on(attack);
	}
	for (int i = 0; i < WATCHERS; i++)
		target_close(&targets[i]);
}

ATTACK(begun_and_ended, .connections = 1, .queues = 1)
{
	struct target target;

	target_open(&target, attack, BYTES, DEPTH, DEPTH);
	for (uint64_t i = 0; i < rounds(500); i++) {
		struct dmasync_watch request = {
			.header = {.size = sizeof request, .opcode = DMASYNC_OP_WATCH},
			.enable = (uint32_t)i % 2,
		};
		union reply reply;

		check_int(harness_send(target.raw.socket, &request, sizeof request, NULL, 0), 0);
		if (i % 10 == 0)
			run_batches(&target, DEPTH);
		while (recv(target.raw.socket, &reply, sizeof reply, MSG_DONTWAIT) > 0)
			;
	}
	others_go_on(attack);
	target_close(&target);
}

/* The well-behaved clients work all the time: not one record of theirs is shown. */
ATTACK(records_of_others, .connections = 1, .queues = 1)
{
	struct target target;
	struct dmasync_batches request = {
		.header = {.size = sizeof request, .opcode = DMASYNC_OP_BATCHES},
		.count = DMASYNC_BATCHES_PAGE,
	};
	struct dmasync_batch_record record;
	union reply reply;

	if (!is_another_user(attack))
		harness_skip("who runs the daemon sees all; only root can be another user");
	target_open(&target, attack, BYTES, DEPTH, DEPTH);
	check_int(watch(&target.raw, 1), 0);
	run_batches(&target, DEPTH);
	for (int i = 0; i < 20; i++) {
		others_go_on(attack);
		check_int(harness_send(target.raw.socket, &request, sizeof request, NULL, 0), 0);
		do { /* events of the stream, and then the reply */
			check(harness_receive(target.raw.socket, &reply, sizeof reply, NULL, NULL,
					      PATIENCE_MS) > 0);
			for (uint32_t k = 0; k < reply.batches.count; k++) {
				memcpy(&record,
				       reply.bytes + sizeof reply.batches + k * sizeof record,
				       sizeof record);
				check_int(record.pid, getpid());
			}
		} while (!(reply.header.flags & DMASYNC_MESSAGE_REPLY));
	}
	target_close(&target);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(streams_that_are_not_read),
	HARNESS_CASE(begun_and_ended),
	HARNESS_CASE(records_of_others),
};

HARNESS_MAIN(cases)
