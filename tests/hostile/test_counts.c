/* SPDX-License-Identifier: MIT */
/*
 * Class: numbers that ask for too much. Every field of every message at its maximum, one by one and
 * all together, and at values around it; depths and units that no queue can have; pages of lists
 * from anywhere. One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "tests/hostile/target.h"

static const struct row {
	uint16_t opcode;
	uint32_t size, fds;
} rows[] = {
#define ROW_(name, opcode, handler, type, unit, reply, fds_min, ...)                               \
	{opcode, sizeof(type), fds_min},
	DMASYNC_MESSAGES(ROW_)
#undef ROW_
};

#define ROWS (sizeof rows / sizeof rows[0])

/* Whatever the answer is: one that QUEUE_CREATE grants brings fds. */
static void call(struct raw *raw, const struct row *row, void *bytes, int fd)
{
	struct dmasync_message header = {
		.size = row->size, .opcode = row->opcode, .cookie = ++raw->cookie};
	union reply reply;
	int fds[DMASYNC_QUEUE_FDS];
	size_t count = DMASYNC_QUEUE_FDS;

	memcpy(bytes, &header, sizeof header);
	(void)harness_call(raw->socket, bytes, row->size, &fd, row->fds, &reply, sizeof reply, fds,
			   &count);
	for (size_t i = 0; i < count; i++)
		close(fds[i]);
}

ATTACK(every_field_at_its_maximum, .connections = 1, .peak_bytes = 16 << 20)
{
	static const uint64_t values[] = {UINT64_MAX, UINT64_MAX - 1,	    UINT64_C(1) << 63,
					  INT64_MAX,  UINT64_C(0x80000000), INT32_MAX,
					  UINT32_MAX, UINT64_C(1) << 32};
	int fd = harness_memfd(4096, F_SEAL_SHRINK);
	_Alignas(8) unsigned char bytes[256];

	for (size_t i = 0; i < ROWS; i++) {
		struct raw raw;

		raw_open(&raw, attack->socket);
		for (uint32_t at = sizeof(struct dmasync_message); at < rows[i].size; at += 4) {
			for (size_t k = 0; k < sizeof values / sizeof values[0]; k++) {
				size_t width = at + 8 <= rows[i].size ? 8 : 4;

				memset(bytes, 0, sizeof bytes);
				memcpy(bytes + at, &values[k], width);
				call(&raw, &rows[i], bytes, fd);
				memset(bytes, 0, sizeof bytes);
				memcpy(bytes + at, &values[k], 4);
				call(&raw, &rows[i], bytes, fd);
			}
		}
		memset(bytes, 0xff, sizeof bytes);
		call(&raw, &rows[i], bytes, fd);
		raw_close(&raw);
	}
	close(fd);
	others_go_on(attack);
}

ATTACK(queues_that_cannot_be, .connections = 1)
{
	static const uint32_t sizes[] = {0,
					 1,
					 3,
					 5,
					 4097,
					 8192,
					 65535,
					 131073,
					 UINT32_C(1) << 18,
					 UINT32_C(1) << 31,
					 (UINT32_C(1) << 31) + 1,
					 UINT32_MAX};
	struct raw raw;
	union reply reply;
	int fds[DMASYNC_QUEUE_FDS];

	raw_open(&raw, attack->socket);
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		check_int(requests_queue(raw.socket, sizes[i], 64, &reply, fds), -EINVAL);
		if (sizes[i] != 8192) /* units may be so many */
			check_int(requests_queue(raw.socket, 64, sizes[i], &reply, fds), -EINVAL);
		for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
			check_int(requests_queue(raw.socket, sizes[i], sizes[k], &reply, fds),
				  -EINVAL);
	}
	for (uint32_t klass = 3; klass; klass *= 2)
		check_int(requests_queue_of_class(raw.socket, (enum dmasync_class)klass, 2, 2,
						  &reply, fds),
			  -EINVAL);
	others_go_on(attack);
	raw_close(&raw);
}

/* A batch that claims more units than its ring has, or its message. */
ATTACK(more_units_than_there_are, .connections = 1, .queues = 1)
{
	static const uint32_t counts[] = {
		17, 32, UINT32_C(1) << 16, UINT32_C(1) << 28, UINT32_C(1) << 31, UINT32_MAX};
	struct target target;
	struct dmasync_ring_completion done;
	struct {
		struct dmasync_sync_request request;
		struct dmasync_unit unit;
	} message = {0};
	union reply reply;

	target_open(&target, attack, 4096, 4, 16);
	for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
		struct dmasync_submission submission = {
			.unit_count = counts[i],
			.unit_position = attack_random(),
		};

		raw_publish(&target.queue, NULL, 0, &submission);
		raw_wait(&target.queue, &done);
		check_int(done.status, -EMSGSIZE);
		message.request.count = counts[i];
		check_int(requests_call(target.raw.socket, DMASYNC_OP_SYNC, &message,
					sizeof message, NULL, 0, &reply),
			  -EINVAL);
	}
	others_go_on(attack);
	target_close(&target);
}

/* Lists by pages, from every corner. */
ATTACK(pages_from_anywhere, .connections = 1)
{
	static const uint64_t corners[] = {
		0, 1, 255, 256, INT32_MAX, UINT32_MAX, UINT64_C(1) << 32, INT64_MAX, UINT64_MAX};
	struct raw raw;
	union reply reply;

	raw_open(&raw, attack->socket);
	for (size_t i = 0; i < sizeof corners / sizeof corners[0]; i++) {
		struct dmasync_clients clients = {.after = corners[i]};
		struct dmasync_users users = {.from = (uint32_t)corners[i]};
		struct dmasync_batches batches = {.count = (uint32_t)corners[i]};
		struct dmasync_histogram histogram = {.phase = (uint32_t)corners[i]};

		check_int(requests_call(raw.socket, DMASYNC_OP_CLIENTS, &clients, sizeof clients,
					NULL, 0, &reply),
			  0);
		check(reply.clients.count <= DMASYNC_CLIENTS_PAGE);
		check_int(requests_call(raw.socket, DMASYNC_OP_USERS, &users, sizeof users, NULL, 0,
					&reply),
			  0);
		check(reply.users.count <= DMASYNC_USERS_PAGE);
		int r = requests_call(raw.socket, DMASYNC_OP_BATCHES, &batches, sizeof batches,
				      NULL, 0, &reply);

		check_int(r, batches.count <= DMASYNC_BATCHES_PAGE ? 0 : -EINVAL);
		r = requests_call(raw.socket, DMASYNC_OP_HISTOGRAM, &histogram, sizeof histogram,
				  NULL, 0, &reply);
		check_int(r, histogram.phase < DMASYNC_PHASES ? 0 : -EINVAL);
	}
	others_go_on(attack);
	raw_close(&raw);
}

/* A name goes into the log and onto terminals. */
ATTACK(names_that_are_no_names, .connections = 1, .logged = "\x1b", .logged_lines = 0)
{
	static const char *const names[] = {"\x1b[2J\x1b]0;x\a", "a\nERR: b\r\n",
					    "\xff\xfe\x80%n%s%s", "\t\b\b\b\x7f"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		struct dmasync_hello hello = {
			.version_min = DMASYNC_PROTOCOL_VERSION,
			.version_max = DMASYNC_PROTOCOL_VERSION,
		};
		struct dmasync_buffer_remove remove = {.handle = 5}; /* refused, and logged */
		int socket = harness_connect(attack->socket);
		union reply reply;

		memcpy(hello.name, names[i], strlen(names[i]));
		check_int(requests_call(socket, DMASYNC_OP_HELLO, &hello, sizeof hello, NULL, 0,
					&reply),
			  0);
		check_int(requests_call(socket, DMASYNC_OP_BUFFER_REMOVE, &remove, sizeof remove,
					NULL, 0, &reply),
			  -ENOENT);
		close(socket);
	}
	others_go_on(attack);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(every_field_at_its_maximum), HARNESS_CASE(queues_that_cannot_be),
	HARNESS_CASE(more_units_than_there_are),  HARNESS_CASE(pages_from_anywhere),
	HARNESS_CASE(names_that_are_no_names),
};

HARNESS_MAIN(cases)
