/* SPDX-License-Identifier: MIT */
/*
 * Class: connections that do nothing, or half of something. Silent from the start, closed in one
 * direction, shut and kept open. One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/hostile/target.h"

enum { MANY = 100 };

#define SOON "handshake_timeout_ms = 200\n"

/* An answer that says why, and the end. */
ATTACK(silent_from_the_start, .limits_keys = SOON)
{
	int sockets[MANY];

	for (int i = 0; i < MANY; i++)
		sockets[i] = harness_connect(attack->socket);
	others_go_on(attack);
	for (int i = 0; i < MANY; i++)
		requests_closed_with(sockets[i], -ETIMEDOUT);
	for (int i = 0; i < MANY; i++)
		close(sockets[i]);
}

/* New ones all the time, so that some are always there. */
ATTACK(silent_again_and_again, .limits_keys = getuid() == 0 ? SOON "user_connections = 20\n" : SOON)
{
	int sockets[MANY];
	uint64_t from = others_rounds(attack);

	while (others_rounds(attack) < from + 30) {
		for (int i = 0; i < MANY; i++)
			sockets[i] = harness_connect(attack->socket);
		for (int i = 0; i < MANY; i++)
			close(sockets[i]);
	}
}

static void await_clients(struct raw *observer, uint32_t most)
{
	struct dmasync_stats_reply stats;

	harness_until((raw_stats(observer, &stats), stats.clients <= most), PATIENCE_MS);
}

/*
 * Shut down in either direction or both, before HELLO and after, while the process keeps its end:
 * the daemon has let go of all of them although nothing was closed, so that nothing is polled.
 */
ATTACK(shut_down_and_kept)
{
	static const int hows[] = {SHUT_RD, SHUT_WR, SHUT_RDWR};
	enum { OTHERS = 6 }; /* the observer, the well-behaved ones and the monitor, at most */
	struct raw observer, raws[6];

	raw_open(&observer, attack->socket);
	for (int i = 0; i < 6; i++) {
		if (i < 3)
			raw_open(&raws[i], attack->socket);
		else
			raws[i].socket = harness_connect(attack->socket);
		shutdown(raws[i].socket, hows[i % 3]);
		if (i % 3 == 0 && i < 3) { /* an answer that cannot be sent */
			struct dmasync_message stats = {.size = sizeof stats,
							.opcode = DMASYNC_OP_STATS};

			check_int(harness_send(raws[i].socket, &stats, sizeof stats, NULL, 0), 0);
		}
	}
	await_clients(&observer, OTHERS);
	others_go_on(attack);
	for (int i = 0; i < 6; i++)
		raw_close(&raws[i]);
	raw_close(&observer);
}

/* Empty packets, which look like the end. */
ATTACK(empty_packets)
{
	for (int i = 0; i < 20; i++) {
		struct raw raw;
		union reply reply;

		raw_open(&raw, attack->socket);
		check_int(harness_send(raw.socket, "", 0, NULL, 0), 0);
		ssize_t n =
			harness_receive(raw.socket, &reply, sizeof reply, NULL, NULL, PATIENCE_MS);

		check(n == 0 || n == -ECONNRESET);
		raw_close(&raw);
	}
	others_go_on(attack);
}

/* A client with a queue that never says anything again is nobody's business. */
ATTACK(idle_for_good, .connections = MANY / 4, .queues = MANY / 4)
{
	static struct target targets[MANY / 4];

	for (int i = 0; i < MANY / 4; i++)
		target_open(&targets[i], attack, 4096, 2, 2);
	for (int i = 0; i < 10; i++)
		others_go_on(attack);
	for (int i = 0; i < MANY / 4; i++)
		target_close(&targets[i]);
}

/* ---- nothing spins ---- */

static uint64_t cpu_ticks(pid_t pid)
{
	char path[64];
	unsigned long user, system;

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	FILE *file = fopen(path, "re");

	check(file);
	check_int(fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*d %*d %*d %*d %*d %lu %lu",
			 &user, &system),
		  2);
	fclose(file);
	return user + system;
}

/*
 * Everything that poll may say again and again: pipes whose other end is closed or full, sockets
 * shut down, answers unread. Whoever looks at it without pause uses up his CPU; with nobody else
 * there, the daemon uses next to none. (No fixture: nothing else may be going on.)
 */
static void nothing_spins(void)
{
	struct attack attack = {0};
	struct target closed, full;
	struct raw unread, shut;
	struct dmasync_histogram histogram = {
		.header = {.size = sizeof histogram, .opcode = DMASYNC_OP_HISTOGRAM}};
	static const char noise[4096];
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	harness_daemon_start(&attack.daemon, SIMULATED_CONFIG, NULL);
	attack.socket = attack.daemon.socket;
	target_open(&closed, &attack, 4096, 2, 2);
	check(dup2(null, closed.queue.doorbell) >= 0);
	check(dup2(null, closed.queue.notification) >= 0);
	target_open(&full, &attack, 4096, 2, 2);
	while (write(full.queue.doorbell, noise, sizeof noise) > 0)
		;
	raw_open(&unread, attack.socket);
	check_int(fcntl(unread.socket, F_SETFL, O_NONBLOCK), 0);
	for (int64_t end = harness_now_ms() + 100; harness_now_ms() < end;)
		(void)harness_send(unread.socket, &histogram, sizeof histogram, NULL, 0);
	raw_open(&shut, attack.socket);
	shutdown(shut.socket, SHUT_RDWR);
	int silent = harness_connect(attack.socket);

	/* 400 ms of a spinning thread are 40 ticks where it has a CPU to itself. */
	uint64_t before = cpu_ticks(attack.daemon.pid);

	nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL);
	uint64_t ticks = cpu_ticks(attack.daemon.pid) - before;

	if (ticks > 8)
		fail_case("%llu ticks of CPU time while nothing was to be done",
			  (unsigned long long)ticks);
	close(silent);
	raw_close(&shut);
	raw_close(&unread);
	target_close(&full);
	target_close(&closed);
	close(null);
	harness_daemon_stop(&attack.daemon);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(silent_from_the_start), HARNESS_CASE(silent_again_and_again),
	HARNESS_CASE(shut_down_and_kept),    HARNESS_CASE(empty_packets),
	HARNESS_CASE(idle_for_good),	     HARNESS_CASE(nothing_spins),
};

HARNESS_MAIN(cases)
