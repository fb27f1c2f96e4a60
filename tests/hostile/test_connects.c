/* SPDX-License-Identifier: MIT */
/*
 * Class: coming and going. Ten thousand connections, most of which never say a word, processes that
 * die with theirs, many at once: the sums are right afterwards. One thread and its children.
 */
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hostile/target.h"

enum { CONNECTS = 10000, AT_ONCE = 50, DEATHS = 100, BYTES = 4096 };

ATTACK(ten_thousand_connects, .connections = AT_ONCE)
{
	int sockets[AT_ONCE];

	for (uint64_t i = 0; i < rounds(CONNECTS); i += AT_ONCE) {
		for (int k = 0; k < AT_ONCE; k++) {
			struct dmasync_hello hello = {
				.header = {.size = sizeof hello, .opcode = DMASYNC_OP_HELLO},
				.version_min = 1,
				.version_max = 1,
			};

			sockets[k] = harness_connect(attack->socket);
			if (k % 3 == 0)
				(void)harness_send(sockets[k], &hello, sizeof hello, NULL, 0);
		}
		for (int k = 0; k < AT_ONCE; k++)
			close(sockets[k]);
	}
	others_go_on(attack);
}

ATTACK(a_hundred_deaths, .connections = 1, .queues = 1)
{
	for (uint64_t i = 0; i < rounds(DEATHS); i++) {
		pid_t pid = fork();
		int status;

		check(pid >= 0);
		if (pid == 0) {
			struct target target;

			target_open(&target, attack, BYTES, 2, 2);
			struct dmasync_unit unit = target_unit(&target, 0, BYTES);

			for (uint32_t k = 0; k < 2; k++)
				raw_submit(&target.queue, &unit, 1, k);
			_exit(0);
		}
		check_int(waitpid(pid, &status, 0), pid);
		check_int(status, 0);
	}
	others_go_on(attack);
}

/* The same descriptor in many processes is one connection. */
ATTACK(one_connection_in_many_hands, .connections = 1)
{
	struct raw raw;
	pid_t pids[20];

	raw_open(&raw, attack->socket);
	/* Nobody reads the answers: when some are kept the daemon reads nothing more, either. */
	check_int(fcntl(raw.socket, F_SETFL, O_NONBLOCK), 0);
	for (int i = 0; i < 20; i++) {
		pids[i] = fork();
		check(pids[i] >= 0);
		if (pids[i] == 0) {
			for (int k = 0; k < 50; k++) {
				struct dmasync_message stats = {.size = sizeof stats,
								.opcode = DMASYNC_OP_STATS};

				(void)harness_send(raw.socket, &stats, sizeof stats, NULL, 0);
			}
			_exit(0);
		}
	}
	for (int i = 0; i < 20; i++)
		check_int(waitpid(pids[i], NULL, 0), pids[i]);
	others_go_on(attack);
	raw_close(&raw);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(ten_thousand_connects, .timeout_s = 60),
	HARNESS_CASE(a_hundred_deaths),
	HARNESS_CASE(one_connection_in_many_hands),
};

HARNESS_MAIN(cases)
