/* SPDX-License-Identifier: MIT */
/*
 * Class: many users. A thousand with a little each, and a few that take whatever they can get:
 * whoever comes next still finds a place. One thread that becomes each of them in turn.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/hostile/target.h"

enum { MANY = ATTACK_USERS - 1, FEW = 5, MOST = 300, BYTES = 4096 };

static void act_as(const struct attack *attack, uint32_t index)
{
	uid_t uid = index ? attack->first_uid + index : 0;

	check_int(seteuid(0), 0);
	check_int(setegid(uid), 0);
	if (uid && seteuid(uid) < 0)
		harness_skip("root here cannot become user %u", (unsigned)uid);
}

static void allow_files(rlim_t files)
{
	struct rlimit limit;

	check_int(getrlimit(RLIMIT_NOFILE, &limit), 0);
	if (limit.rlim_max < files)
		harness_skip("%llu files at most may be open here, and this needs %llu",
			     (unsigned long long)limit.rlim_max, (unsigned long long)files);
	limit.rlim_cur = limit.rlim_max;
	check_int(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* One connection, one buffer and one queue each. */
ATTACK(a_thousand_with_a_little, .as_root = true, .users = MANY, .queues = MANY,
       .limits_keys = "max_connections = 1200\nmax_buffers = 1\nmax_queues = 1\n",
       .peak_bytes = 64 << 20)
{
	static struct raw raws[MANY];
	static struct raw_queue queues[MANY];
	union reply reply;
	int fd = harness_memfd(BYTES, F_SEAL_SHRINK);

	allow_files(20000);
	for (uint32_t i = 0; i < MANY; i++) {
		act_as(attack, 1 + i);
		raw_open(&raws[i], attack->socket);
		check_int(requests_add(raws[i].socket, fd, 0, DMASYNC_BACKEND_AUTO, 0, &reply), 0);
		raw_queue_open(&queues[i], &raws[i], 2, 2);
		struct dmasync_unit unit = raw_unit(reply.buffer.handle, DMASYNC_FOR_DEVICE,
						    DMASYNC_TO_DEVICE, 0, BYTES);

		for (int k = 0; k < 2; k++)
			raw_submit(&queues[i], &unit, 1, 0);
		raw_ring_bell(&queues[i]);
	}
	act_as(attack, 0);
	others_go_on(attack);
	for (uint32_t i = 0; i < MANY; i++) {
		raw_queue_close(&queues[i]);
		raw_close(&raws[i]);
	}
	close(fd);
}

/* Connections until it is refused: how many it got. */
static uint32_t take_all(const struct attack *attack, int *sockets)
{
	struct dmasync_hello hello = {
		.version_min = DMASYNC_PROTOCOL_VERSION,
		.version_max = DMASYNC_PROTOCOL_VERSION,
	};
	uint32_t count = 0;

	for (; count < MOST; count++) {
		union reply reply;

		sockets[count] = harness_connect(attack->socket);
		hello.header = (struct dmasync_message){
			.size = sizeof hello, .opcode = DMASYNC_OP_HELLO, .cookie = 1};
		(void)harness_send(sockets[count], &hello, sizeof hello, NULL, 0);
		ssize_t n = harness_receive(sockets[count], &reply, sizeof reply, NULL, NULL,
					    PATIENCE_MS);

		if (n > 0 && !(reply.header.flags & DMASYNC_MESSAGE_ERROR))
			continue;
		close(sockets[count]);
		break;
	}
	return count;
}

/* Each gets half of what the ones before have left, and no more. */
ATTACK(a_few_that_take_all, .as_root = true, .limits_keys = "max_connections = 256\n")
{
	static int sockets[FEW][MOST];
	uint32_t counts[FEW], left = 256;

	allow_files(2000);
	for (uint32_t i = 0; i < FEW; i++) {
		act_as(attack, 1 + i);
		counts[i] = take_all(attack, sockets[i]);
		check(counts[i] > 0 && counts[i] <= left / 2);
		left -= counts[i];
	}
	act_as(attack, 0);
	for (int i = 0; i < 30; i++)
		others_go_on(attack);
	for (uint32_t i = 0; i < FEW; i++)
		for (uint32_t k = 0; k < counts[i]; k++)
			close(sockets[i][k]);
}

/* The same with bytes of buffers and of queues. */
ATTACK(a_few_that_take_all_bytes, .as_root = true,
       .limits_keys = "max_total_buffer_bytes = 64M\nmax_total_queue_bytes = 16M\n",
       .peak_bytes = 100 << 20)
{
	struct raw raws[FEW];
	union reply reply;
	uint64_t left = 64 << 20;
	int fds[DMASYNC_QUEUE_FDS], fd = harness_memfd(1 << 20, F_SEAL_SHRINK);

	allow_files(2000);
	for (uint32_t i = 0; i < FEW; i++) {
		uint64_t bytes = 0;

		act_as(attack, 1 + i);
		raw_open(&raws[i], attack->socket);
		while (requests_add(raws[i].socket, fd, 0, DMASYNC_BACKEND_AUTO, 0, &reply) == 0)
			bytes += 1 << 20;
		check_int(reply.error.error, -ENOSPC);
		check(bytes <= left / 2 + (1 << 20));
		left -= bytes;
		while (requests_queue(raws[i].socket, 64, 65536, &reply, fds) == 0)
			for (int k = 0; k < DMASYNC_QUEUE_FDS; k++)
				close(fds[k]);
		check_int(reply.error.error, -ENOSPC);
	}
	act_as(attack, 0);
	for (int i = 0; i < 30; i++)
		others_go_on(attack);
	for (uint32_t i = 0; i < FEW; i++)
		raw_close(&raws[i]);
	close(fd);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(a_thousand_with_a_little, .timeout_s = 60),
	HARNESS_CASE(a_few_that_take_all),
	HARNESS_CASE(a_few_that_take_all_bytes),
};

HARNESS_MAIN(cases)
