/* SPDX-License-Identifier: MIT */
/*
 * Class: use after the end. Queues and buffers removed and made again while batches that name them
 * run, handles asked for again, ids guessed, requests pipelined without waiting. One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/hostile/target.h"

enum { SIZE = 1 << 20, DEPTH = 8 };

ATTACK(buffers_removed_under_batches, .connections = 1, .queues = 1)
{
	struct target target;
	struct dmasync_ring_completion done;

	target_open(&target, attack, SIZE, DEPTH, DEPTH);
	for (uint64_t round = 0; round < rounds(60); round++) {
		struct dmasync_unit unit = target_unit(&target, 0, SIZE);
		uint32_t old = target.memory.handle;

		for (uint32_t i = 0; i < DEPTH - 1; i++)
			raw_submit(&target.queue, &unit, 1, i);
		raw_ring_bell(&target.queue);
		check_int(requests_remove(target.raw.socket, old), 0);
		/* Its file again: another handle, and the old one stays dead. */
		target.memory.handle =
			raw_add_buffer(&target.raw, target.memory.fd, DMASYNC_BACKEND_SIMULATED, 0);
		check(target.memory.handle != old);
		raw_submit(&target.queue, &unit, 1, DEPTH - 1);
		for (uint32_t i = 0; i < DEPTH; i++) {
			raw_wait(&target.queue, &done);
			check(done.status == 0 || done.reason == DMASYNC_REASON_UNKNOWN_BUFFER);
		}
		check_int(done.reason, DMASYNC_REASON_UNKNOWN_BUFFER);
		check_int(requests_remove(target.raw.socket, old), -ENOENT);
	}
	others_go_on(attack);
	target_close(&target);
}

ATTACK(queues_removed_under_batches, .connections = 1, .queues = 1)
{
	struct target target;

	target_open(&target, attack, SIZE, DEPTH, DEPTH);
	for (uint64_t round = 0; round < rounds(60); round++) {
		struct dmasync_unit unit = target_unit(&target, 0, SIZE);
		uint32_t old = target.queue.id;

		for (uint32_t i = 0; i < DEPTH; i++)
			raw_submit(&target.queue, &unit, 1, i);
		raw_ring_bell(&target.queue);
		raw_queue_remove(&target.queue, &target.raw);
		check_int(requests_queue_remove(target.raw.socket, old), -ENOENT);
		raw_queue_open(&target.queue, &target.raw, DEPTH, DEPTH);
	}
	others_go_on(attack);
	target_close(&target);
}

/* Written to when the daemon has let go of it: nobody looks. */
ATTACK(rings_written_after_their_end, .connections = 1, .queues = 1)
{
	struct target target;

	target_open(&target, attack, SIZE, DEPTH, DEPTH);
	for (uint64_t round = 0; round < rounds(20); round++) {
		struct dmasync_queue_remove remove = {.queue = target.queue.id};
		struct dmasync_done_reply reply;
		struct dmasync_unit unit = target_unit(&target, 0, SIZE);

		raw_call(&target.raw, &remove, DMASYNC_OP_QUEUE_REMOVE, sizeof remove, &reply,
			 sizeof reply);
		memset(target.queue.memory, 0x5a, target.queue.size);
		for (uint32_t i = 0; i < DEPTH; i++)
			raw_submit(&target.queue, &unit, 1, i);
		raw_ring_bell(&target.queue);
		raw_queue_close(&target.queue);
		raw_queue_open(&target.queue, &target.raw, DEPTH, DEPTH);
	}
	others_go_on(attack);
	target_close(&target);
}

/* Handles of others, of nobody, of the future. */
ATTACK(handles_that_are_guessed, .connections = 2, .queues = 2)
{
	struct target mine, theirs;
	struct dmasync_ring_completion done;

	target_open(&theirs, attack, SIZE, DEPTH, DEPTH);
	target_open(&mine, attack, SIZE, DEPTH, DEPTH);
	memset(theirs.memory.cpu, 0x33, SIZE);
	/* The same number is another buffer on another connection: theirs stays as it is. */
	memset(theirs.memory.device, 0x44, SIZE);
	for (uint32_t i = 0; i < 2000; i++) {
		uint32_t handle = i < 1000 ? i : attack_random() & DMASYNC_UNIT_BUFFER_MASK;
		struct dmasync_unit unit =
			raw_unit(handle, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, LINE);
		struct dmasync_submission submission = {.entry = unit};

		if (handle == mine.memory.handle)
			continue;
		raw_publish(&mine.queue, NULL, 0, &submission);
		if (i % DEPTH != DEPTH - 1)
			continue;
		while (mine.queue.completed != mine.queue.submitted) {
			raw_wait(&mine.queue, &done);
			check_int(done.reason, DMASYNC_REASON_UNKNOWN_BUFFER);
		}
	}
	for (size_t i = 0; i < SIZE; i++)
		check_int(theirs.memory.device[i], 0x44);
	others_go_on(attack);
	target_close(&mine);
	target_close(&theirs);
}

/* Sends without waiting for answers: adds and removes of handles that are to come, queues alike. */
ATTACK(requests_in_a_pipeline, .connections = 1, .queues = 16)
{
	for (uint64_t round = 0; round < rounds(20); round++) {
		struct raw raw;
		int fd = harness_memfd(4096, F_SEAL_SHRINK);

		raw_open(&raw, attack->socket);
		for (uint32_t i = 0; i < 16; i++) {
			struct dmasync_buffer_add add = {
				.header = {.size = sizeof add, .opcode = DMASYNC_OP_BUFFER_ADD},
				.handle = attack_random() & DMASYNC_UNIT_BUFFER_MASK,
			};
			struct dmasync_buffer_remove remove = {
				.header = {.size = sizeof remove,
					   .opcode = DMASYNC_OP_BUFFER_REMOVE},
				.handle = add.handle,
			};
			struct dmasync_queue_create create = {
				.header = {.size = sizeof create,
					   .opcode = DMASYNC_OP_QUEUE_CREATE},
				.depth = 2,
				.units = 2,
			};
			struct dmasync_queue_remove queue_remove = {
				.header = {.size = sizeof queue_remove,
					   .opcode = DMASYNC_OP_QUEUE_REMOVE},
				.queue = 1 + i,
			};

			check_int(harness_send(raw.socket, &add, sizeof add, &fd, 1), 0);
			check_int(harness_send(raw.socket, &remove, sizeof remove, NULL, 0), 0);
			check_int(harness_send(raw.socket, &create, sizeof create, NULL, 0), 0);
			check_int(harness_send(raw.socket, &queue_remove, sizeof queue_remove, NULL,
					       0),
				  0);
		}
		if (round % 2)
			others_go_on(attack);
		raw_close(&raw);
		close(fd);
	}
	others_go_on(attack);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(buffers_removed_under_batches), HARNESS_CASE(queues_removed_under_batches),
	HARNESS_CASE(rings_written_after_their_end), HARNESS_CASE(handles_that_are_guessed),
	HARNESS_CASE(requests_in_a_pipeline),
};

HARNESS_MAIN(cases)
