/* SPDX-License-Identifier: MIT */
/*
 * Class: messages cut off. Every message at every length from nothing to more than it has, with a
 * header that says the length it has or the one it should have, in either state. One thread.
 */
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/hostile/target.h"

static const struct row {
	uint16_t opcode;
	uint32_t size;
} rows[] = {
#define ROW_(name, opcode, handler, type, ...) {opcode, sizeof(type)},
	DMASYNC_MESSAGES(ROW_)
#undef ROW_
};

#define ROWS (sizeof rows / sizeof rows[0])

static void connect_again(struct raw *raw, const struct attack *attack, bool greeted)
{
	if (greeted)
		raw_open(raw, attack->socket);
	else
		raw->socket = harness_connect(attack->socket);
}

/* False where the daemon has closed the connection: allowed for a broken header alone. */
static bool send_cut(struct raw *raw, const struct row *row, uint32_t length, uint32_t said)
{
	unsigned char bytes[512] = {0};
	struct dmasync_message header = {.size = said, .opcode = row->opcode, .cookie = 9};
	union reply reply;

	memcpy(bytes, &header, sizeof header);
	check(length <= sizeof bytes);
	int r = harness_send(raw->socket, bytes, length, NULL, 0);

	check_int(r, 0);
	ssize_t n = harness_receive(raw->socket, &reply, sizeof reply, NULL, NULL, PATIENCE_MS);

	if (n <= 0) {
		check_int(length, 0); /* an empty packet is the end, without an answer */
		return false;
	}
	check((size_t)n >= sizeof reply.header && reply.header.flags & DMASYNC_MESSAGE_REPLY);
	if (length >= sizeof header && said == length)
		return true;
	check(reply.header.flags & DMASYNC_MESSAGE_ERROR);
	check_int(harness_receive(raw->socket, &reply, sizeof reply, NULL, NULL, PATIENCE_MS), 0);
	return false;
}

static void cut_everywhere(struct attack *attack, bool greeted, bool honest_length)
{
	struct raw raw;

	connect_again(&raw, attack, greeted);
	for (size_t i = 0; i < ROWS; i++) {
		for (uint32_t length = 0; length < rows[i].size + 18; length++) {
			if (length == rows[i].size)
				continue; /* that is none */
			if (send_cut(&raw, &rows[i], length, honest_length ? length : rows[i].size))
				continue;
			raw_close(&raw);
			connect_again(&raw, attack, greeted);
		}
	}
	raw_close(&raw);
	others_go_on(attack);
}

ATTACK(at_every_byte, .connections = 1)
{
	cut_everywhere(attack, true, true);
}

ATTACK(at_every_byte_before_hello, .connections = 1)
{
	cut_everywhere(attack, false, true);
}

ATTACK(at_every_byte_with_another_size, .connections = 1)
{
	cut_everywhere(attack, true, false);
}

ATTACK(at_every_byte_with_another_size_before_hello, .connections = 1)
{
	cut_everywhere(attack, false, false);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(at_every_byte),
	HARNESS_CASE(at_every_byte_before_hello),
	HARNESS_CASE(at_every_byte_with_another_size),
	HARNESS_CASE(at_every_byte_with_another_size_before_hello),
};

HARNESS_MAIN(cases)
