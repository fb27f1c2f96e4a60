/* SPDX-License-Identifier: MIT */
/* Every row of the table of messages, right and wrong, against a real daemon. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/connection/requests.h"

enum state { STATE_NEW, STATE_READY };

static const struct row {
	const char *name;
	uint16_t opcode;
	uint32_t size, trailing;
	uint32_t fds_min, fds_max;
	enum state state;
} rows[] = {
#define ROW_(row_name, row_opcode, handler, type, unit, reply, min, max, reply_fds, row_state)     \
	{#row_name, row_opcode, sizeof(type), unit, min, max, STATE_##row_state},
	DMASYNC_MESSAGES(ROW_)
#undef ROW_
};

#define ROWS (sizeof rows / sizeof rows[0])

static int connect_in(const struct harness_daemon *daemon, enum state state)
{
	return state == STATE_NEW ? harness_connect(daemon->socket) : requests_connect(daemon);
}

/* The connection is as it was: in its own state a good request is answered. */
static void still_lives(int socket, enum state state)
{
	struct dmasync_hello_reply hello;
	struct dmasync_stats_reply stats;

	if (state == STATE_NEW)
		harness_hello(socket, &hello);
	requests_stats(socket, &stats);
}

static void wrong_sizes(void)
{
	struct harness_daemon daemon;
	static unsigned char bytes[4096];

	harness_daemon_start(&daemon, "", NULL);
	for (size_t i = 0; i < ROWS; i++) {
		const uint32_t wrong[] = {rows[i].size - 1, rows[i].size + 1, rows[i].size + 15,
					  rows[i].size + 17, sizeof bytes - 1};
		int socket = connect_in(&daemon, rows[i].state);
		int fd = harness_memfd(4096, 0);

		for (size_t j = 0; j < sizeof wrong / sizeof wrong[0]; j++) {
			if (wrong[j] < sizeof(struct dmasync_message))
				continue;
			memset(bytes, 0, sizeof bytes);
			requests_refused(socket, rows[i].opcode, bytes, wrong[j], &fd,
					 rows[i].fds_min, -EINVAL, "this message has");
		}
		still_lives(socket, rows[i].state);
		close(fd);
		close(socket);
	}
	harness_daemon_stop(&daemon);
}

static void wrong_counts_of_fds(void)
{
	struct harness_daemon daemon;
	static unsigned char bytes[4096];
	int fds[253];

	harness_daemon_start(&daemon, "", NULL);
	for (size_t i = 0; i < 253; i++)
		fds[i] = harness_memfd(4096, 0);
	struct requests_holdings before = requests_holdings(&daemon);

	for (size_t i = 0; i < ROWS; i++) {
		int socket = connect_in(&daemon, rows[i].state);

		for (uint32_t count = 0; count <= 253; count = count < 8 ? count + 1 : count + 35) {
			if (count >= rows[i].fds_min && count <= rows[i].fds_max)
				continue;
			memset(bytes, 0, sizeof bytes);
			requests_refused(socket, rows[i].opcode, bytes, rows[i].size, fds, count,
					 -EINVAL, "file descriptors");
		}
		still_lives(socket, rows[i].state);
		close(socket);
		requests_same_holdings(&daemon, before);
	}
	for (size_t i = 0; i < 253; i++)
		close(fds[i]);
	harness_daemon_stop(&daemon);
}

static void wrong_state(void)
{
	struct harness_daemon daemon;
	static unsigned char bytes[4096];

	harness_daemon_start(&daemon, "", NULL);
	for (size_t i = 0; i < ROWS; i++) {
		enum state other = rows[i].state == STATE_NEW ? STATE_READY : STATE_NEW;
		int socket = connect_in(&daemon, other);
		int fd = harness_memfd(4096, 0);

		memset(bytes, 0, sizeof bytes);
		requests_refused(socket, rows[i].opcode, bytes, rows[i].size, &fd, rows[i].fds_min,
				 -EPROTO, "HELLO");
		still_lives(socket, other);
		close(fd);
		close(socket);
	}
	harness_daemon_stop(&daemon);
}

static void unknown_opcodes(void)
{
	static const uint16_t opcodes[] = {0, DMASYNC_OP_USERS + 1, 100, 255, 256, 0x7fff, 0xffff};
	struct harness_daemon daemon;

	harness_daemon_start(&daemon, "", NULL);
	for (int state = STATE_NEW; state <= STATE_READY; state++) {
		int socket = connect_in(&daemon, (enum state)state);
		int fd = harness_memfd(4096, 0);

		for (size_t i = 0; i < sizeof opcodes / sizeof opcodes[0]; i++) {
			struct dmasync_message request = {0};

			requests_refused(socket, opcodes[i], &request, sizeof request, &fd, i % 2,
					 -ENOSYS, "unknown");
		}
		still_lives(socket, (enum state)state);
		close(fd);
		close(socket);
	}
	harness_daemon_stop(&daemon);
}

/* A header that cannot be believed: one error, then the end. */
static void broken_headers(void)
{
	struct harness_daemon daemon;
	struct requests_holdings before;

	harness_daemon_start(&daemon, "", NULL);
	before = requests_holdings(&daemon);
	for (uint32_t size = 1; size < sizeof(struct dmasync_message); size++) {
		struct dmasync_message request = {.size = size, .opcode = DMASYNC_OP_STATS};
		int socket = requests_connect(&daemon), fd = harness_memfd(4096, 0);

		check_int(harness_send(socket, &request, size, &fd, 1), 0);
		requests_closed_with(socket, -EPROTO);
		close(fd);
		close(socket);
	}
	static const uint32_t sizes[] = {0, 1, 15, 17, 32, 65536, UINT32_MAX};

	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		struct dmasync_message request = {.size = sizes[i], .opcode = DMASYNC_OP_STATS};
		int socket = requests_connect(&daemon);

		check_int(harness_send(socket, &request, sizeof request, NULL, 0), 0);
		requests_closed_with(socket, -EPROTO);
		close(socket);
	}
	for (unsigned int bit = 0; bit < 16; bit++) {
		struct dmasync_message request = {.size = sizeof request,
						  .opcode = DMASYNC_OP_STATS,
						  .flags = (uint16_t)(1u << bit)};
		int socket = requests_connect(&daemon);

		check_int(harness_send(socket, &request, sizeof request, NULL, 0), 0);
		requests_closed_with(socket, -EPROTO);
		close(socket);
	}
	requests_same_holdings(&daemon, before);
	harness_daemon_stop(&daemon);
}

static void too_large(void)
{
	static unsigned char bytes[DMASYNC_MESSAGE_MAX + 4096];
	struct harness_daemon daemon;
	union reply reply;

	harness_daemon_start(&daemon, "", NULL);
	int socket = requests_connect(&daemon);
	int fd = harness_memfd(4096, 0);

	/* One that says its size is answered; one that lies about it is the end. */
	requests_refused(socket, DMASYNC_OP_SYNC, bytes, sizeof bytes, &fd, 1, -EMSGSIZE, "65536");
	still_lives(socket, STATE_READY);
	((struct dmasync_message *)bytes)->size = DMASYNC_MESSAGE_MAX;
	check_int(harness_send(socket, bytes, sizeof bytes, NULL, 0), 0);
	requests_closed_with(socket, -EPROTO);
	close(socket);

	/* The largest there may be. */
	socket = requests_connect(&daemon);
	const uint32_t most = (DMASYNC_MESSAGE_MAX - sizeof(struct dmasync_sync_request)) /
			      sizeof(struct dmasync_unit);
	struct dmasync_unit units[4094];

	check_int(most, 4094);
	for (uint32_t i = 0; i < most; i++)
		units[i] = requests_unit(1, 0, 64);
	check_int(requests_sync(socket, units, most, &reply), 0);
	check_int(reply.sync.completion.status, -ENOENT);
	check_int(reply.sync.completion.reason, DMASYNC_REASON_UNKNOWN_BUFFER);
	check_int(reply.sync.completion.bad_entry, 0);
	close(fd);
	close(socket);
	harness_daemon_stop(&daemon);
}

static void reserved_fields(void)
{
	struct harness_daemon daemon;

	harness_daemon_start(&daemon, "", NULL);
	int socket = requests_connect(&daemon), fd = harness_memfd(4096, 0);

	for (unsigned int bit = 1; bit < 32; bit++) {
		struct dmasync_buffer_add add = {.flags = 1u << bit};
		struct dmasync_queue_create create = {.depth = 2, .units = 2, .flags = 1u << bit};

		requests_refused(socket, DMASYNC_OP_BUFFER_ADD, &add, sizeof add, &fd, 1, -EINVAL,
				 "flags");
		requests_refused(socket, DMASYNC_OP_QUEUE_CREATE, &create, sizeof create, NULL, 0,
				 -EINVAL, "flags");
	}
	struct dmasync_buffer_add backend = {.backend = 5};
	struct dmasync_buffer_remove remove = {.reserved = 1};
	struct dmasync_queue_remove queue_remove = {.reserved = 1};
	struct dmasync_sync_request sync = {.reserved = 1};
	struct dmasync_histogram histogram = {.reserved = 1}, phase = {.phase = DMASYNC_PHASES};
	struct dmasync_batches batches = {.reserved = 1},
			       many = {.count = DMASYNC_BATCHES_PAGE + 1};
	struct dmasync_watch watch = {.reserved = 1}, twice = {.enable = 2};

	requests_refused(socket, DMASYNC_OP_BUFFER_ADD, &backend, sizeof backend, &fd, 1, -EINVAL,
			 "backend");
	requests_refused(socket, DMASYNC_OP_BUFFER_REMOVE, &remove, sizeof remove, NULL, 0, -EINVAL,
			 "reserved");
	requests_refused(socket, DMASYNC_OP_QUEUE_REMOVE, &queue_remove, sizeof queue_remove, NULL,
			 0, -EINVAL, "reserved");
	requests_refused(socket, DMASYNC_OP_SYNC, &sync, sizeof sync, NULL, 0, -EINVAL, "reserved");
	requests_refused(socket, DMASYNC_OP_HISTOGRAM, &histogram, sizeof histogram, NULL, 0,
			 -EINVAL, "reserved");
	requests_refused(socket, DMASYNC_OP_HISTOGRAM, &phase, sizeof phase, NULL, 0, -EINVAL,
			 "phase");
	requests_refused(socket, DMASYNC_OP_BATCHES, &batches, sizeof batches, NULL, 0, -EINVAL,
			 "reserved");
	requests_refused(socket, DMASYNC_OP_BATCHES, &many, sizeof many, NULL, 0, -EINVAL,
			 "at most");
	requests_refused(socket, DMASYNC_OP_WATCH, &watch, sizeof watch, NULL, 0, -EINVAL,
			 "reserved");
	requests_refused(socket, DMASYNC_OP_WATCH, &twice, sizeof twice, NULL, 0, -EINVAL,
			 "enable");
	still_lives(socket, STATE_READY);
	close(fd);
	close(socket);
	harness_daemon_stop(&daemon);
}

static void hello_refusals(void)
{
	struct harness_daemon daemon;

	harness_daemon_start(&daemon, "", NULL);
	int socket = harness_connect(daemon.socket);
	struct dmasync_hello old = {.version_min = 0, .version_max = 0};
	struct dmasync_hello future = {.version_min = 2, .version_max = 9};
	struct dmasync_hello swapped = {.version_min = 2, .version_max = 1};
	struct dmasync_hello unknown = {
		.version_min = 1, .version_max = 1, .features_required = UINT64_C(1) << 63};
	struct dmasync_hello simulated = {
		.version_min = 1, .version_max = 1, .features_required = DMASYNC_FEATURE_SIMULATED};
	struct dmasync_hello endless = {.version_min = 0, .version_max = UINT32_MAX};

	memset(endless.name, 'x', sizeof endless.name);
	requests_refused(socket, DMASYNC_OP_HELLO, &old, sizeof old, NULL, 0, -EPROTONOSUPPORT,
			 "0 to 0");
	requests_refused(socket, DMASYNC_OP_HELLO, &future, sizeof future, NULL, 0,
			 -EPROTONOSUPPORT, "2 to 9");
	requests_refused(socket, DMASYNC_OP_HELLO, &swapped, sizeof swapped, NULL, 0,
			 -EPROTONOSUPPORT, "2 to 1");
	requests_refused(socket, DMASYNC_OP_HELLO, &unknown, sizeof unknown, NULL, 0, -EOPNOTSUPP,
			 "0x8000000000000000");
	requests_refused(socket, DMASYNC_OP_HELLO, &simulated, sizeof simulated, NULL, 0,
			 -EOPNOTSUPP, "here: simulated");
	requests_refused(socket, DMASYNC_OP_HELLO, &endless, sizeof endless, NULL, 0, -EINVAL,
			 "name");
	still_lives(socket, STATE_NEW);
	close(socket);
	harness_daemon_stop(&daemon);
}

/* With no room for another fd in the daemon the message's fds do not arrive whole. */
static void truncated_control_data(void)
{
	struct harness_daemon daemon;
	struct rlimit limit, low;
	int fds[8];

	harness_daemon_start(&daemon, "", NULL);
	int socket = requests_connect(&daemon);
	struct requests_holdings before = requests_holdings(&daemon);

	for (size_t i = 0; i < 8; i++)
		fds[i] = harness_memfd(4096, 0);
	check_int(prlimit(daemon.pid, RLIMIT_NOFILE, NULL, &limit), 0);
	low = limit;
	low.rlim_cur = before.fds + 3; /* fds are dense here: room for three */
	check_int(prlimit(daemon.pid, RLIMIT_NOFILE, &low, NULL), 0);

	struct dmasync_buffer_add add = {0};

	requests_refused(socket, DMASYNC_OP_BUFFER_ADD, &add, sizeof add, fds, 8, -EMFILE,
			 "file descriptors");
	check_int(prlimit(daemon.pid, RLIMIT_NOFILE, &limit, NULL), 0);
	requests_same_holdings(&daemon, before);
	still_lives(socket, STATE_READY);
	for (size_t i = 0; i < 8; i++)
		close(fds[i]);
	close(socket);
	harness_daemon_stop(&daemon);
}

/* An empty packet is the end of the connection: SOCK_SEQPACKET cannot tell them apart. */
static void empty_packet(void)
{
	struct harness_daemon daemon;
	union reply reply;

	harness_daemon_start(&daemon, "", NULL);
	struct requests_holdings before = requests_holdings(&daemon);
	int socket = requests_connect(&daemon), fd = harness_memfd(4096, 0);

	check_int(harness_send(socket, "", 0, &fd, 1), 0);
	check_int(harness_receive(socket, &reply, sizeof reply, NULL, NULL, 5000), 0);
	close(fd);
	close(socket);
	requests_same_holdings(&daemon, before);
	harness_daemon_stop(&daemon);
}

static uint32_t next_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*state >> 33);
}

/*
 * Right sizes and counts of fds, and bodies of random words or small numbers: nothing a body says
 * may end the daemon, or the connection.
 */
static void random_bodies(void)
{
	struct harness_daemon daemon;
	uint64_t state = 1;
	static union reply reply;
	int fds[DMASYNC_QUEUE_FDS];

	harness_daemon_start(&daemon, "[daemon]\nallow_simulated=yes\n", NULL);
	struct requests_holdings before = requests_holdings(&daemon);
	int socket = requests_connect(&daemon), fd = harness_memfd(3 * 4096, F_SEAL_SHRINK);
	struct dmasync_stats_reply stats;

	for (int i = 0; i < 3000; i++) {
		const struct row *row = &rows[next_random(&state) % ROWS];
		uint32_t words[32] = {0}, units = row->trailing ? next_random(&state) % 4 : 0;
		size_t size = row->size + units * row->trailing;

		for (size_t j = 4; j < 32; j++)
			words[j] = next_random(&state) % 3 ? next_random(&state) % 5
							   : next_random(&state);
		if (row->opcode == DMASYNC_OP_WATCH)
			words[4] = 0; /* its events would come between the answers */
		struct dmasync_message header = {
			.size = (uint32_t)size, .opcode = row->opcode, .cookie = (uint64_t)i};
		size_t count = DMASYNC_QUEUE_FDS;

		memcpy(words, &header, sizeof header);
		harness_call(socket, words, size, &fd, row->fds_max, &reply, sizeof reply, fds,
			     &count);
		for (size_t j = 0; j < count; j++)
			close(fds[j]);
	}
	requests_stats(socket, &stats);
	check(stats.refused > 100);
	check(stats.refused < 3000);
	close(socket);
	close(fd);
	requests_same_holdings(&daemon, before);
	harness_daemon_stop(&daemon);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(wrong_sizes),
	HARNESS_CASE(wrong_counts_of_fds),
	HARNESS_CASE(wrong_state),
	HARNESS_CASE(unknown_opcodes),
	HARNESS_CASE(broken_headers),
	HARNESS_CASE(too_large),
	HARNESS_CASE(reserved_fields),
	HARNESS_CASE(hello_refusals),
	HARNESS_CASE(random_bodies),
	HARNESS_CASE(empty_packet),
	HARNESS_CASE(truncated_control_data),
};

HARNESS_MAIN(cases)
