/* SPDX-License-Identifier: MIT */
/*
 * Class: more messages than anybody can want. Requests of every kind as fast as they go, with their
 * answers read or not, from many connections; registrations, batches in messages, probes. One
 * thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/hostile/target.h"

enum { CONNECTIONS = 8, OTHERS = 40, PER_TURN = 64, SIZE = 1 << 20 };

struct flood {
	struct raw raws[CONNECTIONS];
	unsigned char message[DMASYNC_MESSAGE_MAX];
	uint32_t size;
	int fd; /* with each; -1: none */
	bool read;
	uint64_t sent;
};

static void flood_open(struct flood *flood, const struct attack *attack, bool read)
{
	flood->read = read;
	flood->fd = -1;
	flood->sent = 0;
	for (int i = 0; i < CONNECTIONS; i++) {
		raw_open(&flood->raws[i], attack->socket);
		check_int(fcntl(flood->raws[i].socket, F_SETFL, O_NONBLOCK), 0);
	}
}

static void flood_message(struct flood *flood, uint16_t opcode, const void *message, size_t size)
{
	struct dmasync_message header = {.size = (uint32_t)size, .opcode = opcode, .cookie = 5};

	memcpy(flood->message, message, size);
	memcpy(flood->message, &header, sizeof header);
	flood->size = (uint32_t)size;
}

static void drain(int socket)
{
	static union reply reply;

	while (recv(socket, &reply, sizeof reply, MSG_DONTWAIT) > 0)
		;
}

static void flood_on(struct flood *flood, struct attack *attack)
{
	uint64_t from = others_rounds(attack);

	while (others_rounds(attack) < from + OTHERS) {
		for (int i = 0; i < CONNECTIONS; i++) {
			int socket = flood->raws[i].socket;

			for (int k = 0; k < PER_TURN; k++) {
				int r = harness_send(socket, flood->message, flood->size,
						     &flood->fd, flood->fd >= 0);

				if (r < 0)
					break;
				flood->sent++;
			}
			if (flood->read)
				drain(socket);
		}
	}
	check(flood->sent > 0);
}

static void flood_close(struct flood *flood)
{
	for (int i = 0; i < CONNECTIONS; i++)
		raw_close(&flood->raws[i]);
	if (flood->fd >= 0)
		close(flood->fd);
}

static void flood_with(struct attack *attack, uint16_t opcode, const void *message, size_t size,
		       bool read)
{
	static struct flood flood;

	flood_open(&flood, attack, read);
	flood_message(&flood, opcode, message, size);
	flood_on(&flood, attack);
	flood_close(&flood);
}

ATTACK(stats, .connections = CONNECTIONS)
{
	struct dmasync_message message = {0};

	flood_with(attack, DMASYNC_OP_STATS, &message, sizeof message, true);
}

/* The answers are large and nobody reads them: kept within limits, and then nothing is read. */
ATTACK(answers_unread, .connections = CONNECTIONS)
{
	struct dmasync_histogram message = {.phase = DMASYNC_PHASE_TOTAL};

	flood_with(attack, DMASYNC_OP_HISTOGRAM, &message, sizeof message, false);
}

ATTACK(batch_records, .connections = CONNECTIONS)
{
	struct dmasync_batches message = {.count = DMASYNC_BATCHES_PAGE};

	flood_with(attack, DMASYNC_OP_BATCHES, &message, sizeof message, true);
}

ATTACK(refusals, .connections = CONNECTIONS)
{
	struct dmasync_buffer_remove message = {.handle = 77};

	flood_with(attack, DMASYNC_OP_BUFFER_REMOVE, &message, sizeof message, true);
}

static void flood_fds(struct attack *attack, uint16_t opcode, const void *message, size_t size,
		      unsigned int seals)
{
	static struct flood flood;

	flood_open(&flood, attack, true);
	flood.fd = harness_memfd(SIZE, seals);
	flood_message(&flood, opcode, message, size);
	flood_on(&flood, attack);
	flood_close(&flood);
}

ATTACK(probes, .connections = CONNECTIONS)
{
	struct dmasync_message message = {0};

	flood_fds(attack, DMASYNC_OP_PROBE, &message, sizeof message, F_SEAL_SHRINK);
}

/* Where all are one user, its limit would be everybody's. */
ATTACK(registrations, .peak_bytes = 64 << 20,
       .limits_keys = getuid() == 0 ? "user_buffer_bytes = 64M\n" : "max_buffer_bytes = 8M\n")
{
	struct dmasync_buffer_add message = {0};

	flood_fds(attack, DMASYNC_OP_BUFFER_ADD, &message, sizeof message, F_SEAL_SHRINK);
}

ATTACK(registrations_that_are_refused, .connections = CONNECTIONS)
{
	struct dmasync_buffer_add message = {0};

	flood_fds(attack, DMASYNC_OP_BUFFER_ADD, &message, sizeof message, 0);
}

/* Batches in messages: each a flow of its own to the scheduler, of this connection. */
ATTACK(syncs, .connections = CONNECTIONS, .peak_bytes = 32 << 20)
{
	static struct flood flood;
	static struct raw_memory memories[CONNECTIONS];
	static struct {
		struct dmasync_sync_request request;
		struct dmasync_unit units[4000];
	} message;

	flood_open(&flood, attack, true);
	for (int i = 0; i < CONNECTIONS; i++) {
		check_int(fcntl(flood.raws[i].socket, F_SETFL, 0), 0);
		raw_memory_alloc(&memories[i], &flood.raws[i], SIZE);
		check_int(memories[i].handle, memories[0].handle);
		check_int(fcntl(flood.raws[i].socket, F_SETFL, O_NONBLOCK), 0);
	}
	message.request.count = 4000;
	for (uint32_t i = 0; i < 4000; i++)
		message.units[i] = raw_unit(memories[0].handle, DMASYNC_FOR_DEVICE,
					    DMASYNC_TO_DEVICE, i * LINE, LINE);
	flood_message(&flood, DMASYNC_OP_SYNC, &message, sizeof message);
	flood_on(&flood, attack);
	for (int i = 0; i < CONNECTIONS; i++)
		raw_memory_free(&memories[i]);
	flood_close(&flood);
}

/* The largest packets there are, and larger ones. */
ATTACK(large_packets, .connections = CONNECTIONS)
{
	static unsigned char bytes[DMASYNC_MESSAGE_MAX];

	flood_with(attack, DMASYNC_OP_SYNC, bytes, sizeof bytes, true);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(stats),
	HARNESS_CASE(answers_unread),
	HARNESS_CASE(batch_records),
	HARNESS_CASE(refusals),
	HARNESS_CASE(probes),
	HARNESS_CASE(registrations),
	HARNESS_CASE(registrations_that_are_refused),
	HARNESS_CASE(syncs),
	HARNESS_CASE(large_packets),
};

HARNESS_MAIN(cases)
