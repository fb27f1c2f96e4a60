/* SPDX-License-Identifier: MIT */
/*
 * Class: batches in messages. Random units, as many as fit, of buffers that come and go, from who
 * waits for no answer. One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/hostile/target.h"

enum { SIZE = 256 << 10, UNITS_MAX = (DMASYNC_MESSAGE_MAX - 32) / 16, UNTOUCHED = 0x11 };

static struct {
	struct dmasync_sync_request request;
	struct dmasync_unit units[UNITS_MAX];
} message;

/* Some are right, most are nearly. */
static void random_units(uint32_t handle, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		message.units[i] = (struct dmasync_unit){
			.word = dmasync_unit_word(handle, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE,
						  attack_random() % 4 == 0),
			.offset = attack_random() % (SIZE / 2),
			.length = attack_random() % 256,
		};
		if (attack_random() % 16 == 0)
			message.units[i].word ^= UINT32_C(1) << (attack_random() % 32);
		if (attack_random() % 16 == 0)
			message.units[i].offset ^= UINT64_C(1) << (attack_random() % 64);
	}
}

static size_t fill_message(uint32_t handle, uint32_t count)
{
	size_t size = sizeof message.request + count * sizeof message.units[0];

	random_units(handle, count);
	message.request = (struct dmasync_sync_request){
		.header = {.size = (uint32_t)size, .opcode = DMASYNC_OP_SYNC, .cookie = 3},
		.count = count,
	};
	return size;
}

ATTACK(random_units_of_every_number, .connections = 1, .queues = 1)
{
	struct raw raw;
	struct raw_memory memory;
	uint64_t succeeded = 0, failed = 0;

	raw_open(&raw, attack->socket);
	raw_memory_alloc(&memory, &raw, SIZE);
	memset(memory.device, UNTOUCHED, SIZE);
	for (uint64_t i = 0; i < rounds(600); i++) {
		uint32_t count = i % 4 ? attack_random() % 8 : attack_random() % UNITS_MAX;
		size_t size = fill_message(memory.handle, count);
		union reply reply;

		check_int(harness_call(raw.socket, &message, size, NULL, 0, &reply, sizeof reply,
				       NULL, NULL),
			  sizeof reply.sync);
		succeeded += reply.sync.completion.status == 0;
		failed += reply.sync.completion.status < 0;
		check(reply.sync.completion.status == 0 || reply.sync.completion.lines == 0);
	}
	check(succeeded > 0 && failed > 0);
	others_go_on(attack);
	raw_memory_free(&memory);
	raw_close(&raw);
}

/* Sent without reading, while the buffer they name is removed and added. */
ATTACK(buffers_removed_meanwhile, .connections = 1, .queues = 64)
{
	struct raw raw;
	struct raw_memory memory;
	union reply reply;

	raw_open(&raw, attack->socket);
	raw_memory_alloc(&memory, &raw, SIZE);
	for (uint64_t round = 0; round < rounds(30); round++) {
		struct dmasync_buffer_remove remove = {
			.header = {.size = sizeof remove, .opcode = DMASYNC_OP_BUFFER_REMOVE},
			.handle = memory.handle,
		};

		for (int i = 0; i < 10; i++) {
			size_t size = fill_message(memory.handle, 200);

			for (int k = 0; k < 200; k++)
				message.units[k] = raw_unit(memory.handle, DMASYNC_FOR_DEVICE,
							    DMASYNC_TO_DEVICE, 0, 16 << 10);
			check_int(harness_send(raw.socket, &message, size, NULL, 0), 0);
		}
		check_int(harness_send(raw.socket, &remove, sizeof remove, NULL, 0), 0);
		for (int i = 0; i < 11; i++)
			check(harness_receive(raw.socket, &reply, sizeof reply, NULL, NULL,
					      PATIENCE_MS) > 0);
		memory.handle = raw_add_buffer(&raw, memory.fd, DMASYNC_BACKEND_SIMULATED, 0);
	}
	others_go_on(attack);
	raw_memory_free(&memory);
	raw_close(&raw);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(random_units_of_every_number),
	HARNESS_CASE(buffers_removed_meanwhile),
};

HARNESS_MAIN(cases)
