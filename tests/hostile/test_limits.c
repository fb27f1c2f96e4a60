/* SPDX-License-Identifier: MIT */
/*
 * Class: exactly at the limits. As many of each thing as there may be, one less and one more, taken
 * and given back many times: what is refused costs nothing, and what was given back can be had
 * again. One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "tests/hostile/target.h"

enum { MOST = 6, BYTES = 64 << 10, KERNEL_FDS = 253 };

static void buffers(struct raw *raw, int fd, uint32_t handles[MOST])
{
	union reply reply;

	for (int i = 0; i < MOST; i++) {
		check_int(requests_add(raw->socket, fd, 0, DMASYNC_BACKEND_AUTO, BYTES, &reply), 0);
		handles[i] = reply.buffer.handle;
	}
	check_int(requests_add(raw->socket, fd, 0, DMASYNC_BACKEND_AUTO, 4096, &reply), -ENOSPC);
}

ATTACK(buffers_of_a_connection, .connections = 1, .limits_keys = "max_buffers = 6\n")
{
	struct raw raw;
	uint32_t handles[MOST];
	int fd = harness_memfd(BYTES, F_SEAL_SHRINK);

	raw_open(&raw, attack->socket);
	for (int round = 0; round < 10; round++) {
		buffers(&raw, fd, handles);
		for (int i = 0; i < MOST; i++)
			check_int(requests_remove(raw.socket, handles[i]), 0);
	}
	others_go_on(attack);
	raw_close(&raw);
	close(fd);
}

ATTACK(bytes_of_a_connection, .connections = 1, .limits_keys = "max_buffer_bytes = 384K\n")
{
	struct raw raw;
	uint32_t handles[MOST];
	int fd = harness_memfd(BYTES, F_SEAL_SHRINK);

	raw_open(&raw, attack->socket);
	for (int round = 0; round < 10; round++) {
		buffers(&raw, fd, handles);
		for (int i = 0; i < MOST; i++)
			check_int(requests_remove(raw.socket, handles[i]), 0);
	}
	others_go_on(attack);
	raw_close(&raw);
	close(fd);
}

ATTACK(queues_of_a_connection, .connections = 1, .queues = MOST, .limits_keys = "max_queues = 6\n")
{
	struct raw raw;
	struct raw_queue queues[MOST];
	union reply reply;
	int fds[DMASYNC_QUEUE_FDS];

	raw_open(&raw, attack->socket);
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < MOST; i++)
			raw_queue_open(&queues[i], &raw, 2, 2);
		check_int(requests_queue(raw.socket, 2, 2, &reply, fds), -ENOSPC);
		for (int i = 0; i < MOST; i++)
			raw_queue_remove(&queues[i], &raw);
	}
	others_go_on(attack);
	raw_close(&raw);
}

static void await_connections(struct raw *raw, uint32_t most)
{
	struct {
		struct dmasync_users_reply reply;
		struct dmasync_user_record record;
	} page;

	for (;;) {
		struct dmasync_users users = {.from = getuid()};

		raw_call(raw, &users, DMASYNC_OP_USERS, sizeof users, &page, sizeof page);
		check_int(page.record.uid, getuid());
		if (page.record.connections <= most)
			return;
		harness_pause();
	}
}

ATTACK(connections_of_a_user, .connections = MOST, .limits_keys = "user_connections = 6\n")
{
	struct raw raws[MOST];

	if (!is_another_user(attack))
		harness_skip("only root can be several users, whom the limit is for");
	raw_open(&raws[0], attack->socket);
	for (int round = 0; round < 10; round++) {
		for (int i = 1; i < MOST; i++)
			raw_open(&raws[i], attack->socket);
		for (int i = 0; i < 3; i++) {
			int refused = harness_connect(attack->socket);

			requests_closed_with(refused, -EUSERS);
			close(refused);
		}
		for (int i = 1; i < MOST; i++)
			raw_close(&raws[i]);
		await_connections(&raws[0], 1);
	}
	others_go_on(attack);
	raw_close(&raws[0]);
}

/* The most fds that one packet brings, one less, and one more than the kernel lets through. */
ATTACK(fds_of_a_packet, .connections = 1)
{
	int fds[KERNEL_FDS + 1], fd = harness_memfd(BYTES, F_SEAL_SHRINK);
	struct dmasync_message message = {.size = sizeof message, .opcode = DMASYNC_OP_STATS};
	struct raw raw;
	union reply reply;

	for (size_t i = 0; i < KERNEL_FDS + 1; i++)
		fds[i] = fd;
	raw_open(&raw, attack->socket);
	for (int round = 0; round < 20; round++) {
		for (size_t count = KERNEL_FDS - 1; count <= KERNEL_FDS; count++)
			check_int(requests_call(raw.socket, DMASYNC_OP_STATS, &message,
						sizeof message, fds, count, &reply),
				  -EINVAL);
		check_int(harness_send(raw.socket, &message, sizeof message, fds, KERNEL_FDS + 1),
			  -EINVAL);
	}
	others_go_on(attack);
	raw_close(&raw);
	close(fd);
}

/* Answers unread and requests unanswered, to the limit and beyond. */
ATTACK(requests_of_a_connection, .connections = 1, .limits_keys = "max_requests = 6\n")
{
	struct {
		struct dmasync_sync_request request;
		struct dmasync_unit unit;
	} message = {.request = {.header = {.size = sizeof message, .opcode = DMASYNC_OP_SYNC},
				 .count = 1}};
	struct raw raw;
	struct raw_memory memory;
	uint64_t done = 0, refused = 0;

	raw_open(&raw, attack->socket);
	raw_memory_alloc(&memory, &raw, 4 << 20);
	message.unit = raw_unit(memory.handle, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, 4 << 20);
	for (uint64_t i = 0; i < rounds(200); i++)
		check_int(harness_send(raw.socket, &message, sizeof message, NULL, 0), 0);
	for (uint64_t i = 0; i < rounds(200); i++) {
		union reply reply;

		check(harness_receive(raw.socket, &reply, sizeof reply, NULL, NULL, PATIENCE_MS) >
		      0);
		if (reply.header.flags & DMASYNC_MESSAGE_ERROR)
			check_int(reply.error.error, -EBUSY);
		else
			check_int(reply.sync.completion.status, 0);
		refused += !!(reply.header.flags & DMASYNC_MESSAGE_ERROR);
		done += !(reply.header.flags & DMASYNC_MESSAGE_ERROR);
	}
	check(done >= MOST);
	check_int(done + refused, rounds(200));
	others_go_on(attack);
	raw_memory_free(&memory);
	raw_close(&raw);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(buffers_of_a_connection), HARNESS_CASE(bytes_of_a_connection),
	HARNESS_CASE(queues_of_a_connection),  HARNESS_CASE(connections_of_a_user),
	HARNESS_CASE(fds_of_a_packet),	       HARNESS_CASE(requests_of_a_connection),
};

HARNESS_MAIN(cases)
