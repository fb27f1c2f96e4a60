/* SPDX-License-Identifier: MIT */
/* Many users, many connections, many messages: who gets how much, and that others get theirs. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/connection/requests.h"

static const char simulated[] = "[daemon]\nallow_simulated=yes\n";

/* ---- the share of a user ---- */

/* As that user: connects until it is refused, says how often, and holds on until killed. */
static pid_t connect_as(const struct harness_daemon *daemon, uid_t uid, unsigned int most,
			unsigned int *ret_count)
{
	int ready[2];

	check_int(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();

	check(pid >= 0);
	if (pid == 0) {
		unsigned int count = 0;

		check_int(setresuid(uid, uid, uid), 0);
		while (count < most) {
			struct dmasync_hello hello = {
				.header = {.size = sizeof hello, .opcode = DMASYNC_OP_HELLO},
				.version_min = 1,
				.version_max = 1,
			};
			int socket = harness_connect(daemon->socket);
			union reply reply;

			(void)harness_send(socket, &hello, sizeof hello, NULL, 0);
			check(harness_receive(socket, &reply, sizeof reply, NULL, NULL, 5000) > 0);
			if (reply.header.flags & DMASYNC_MESSAGE_ERROR) {
				check_int(reply.error.error, -EUSERS);
				break;
			}
			count++;
		}
		check_int(write(ready[1], &count, sizeof count), sizeof count);
		for (;;)
			pause();
	}
	close(ready[1]);
	check_int(read(ready[0], ret_count, sizeof *ret_count), sizeof *ret_count);
	close(ready[0]);
	return pid;
}

static void let_everybody_connect(const struct harness_daemon *daemon)
{
	if (getuid() != 0)
		harness_skip("only root can become other users");
	check_int(chmod(harness_directory(), 0755), 0);
	check_int(chmod(daemon->socket, 0666), 0);
}

static void shares(void)
{
	static const unsigned int expected[] = {8, 4, 2, 1, 1};
	struct harness_daemon daemon;
	struct dmasync_user_record user;
	pid_t pids[5];
	unsigned int count;

	harness_daemon_start(&daemon, "[limits]\nmax_connections=17\n", NULL);
	let_everybody_connect(&daemon);
	int socket = requests_connect(&daemon);

	for (uid_t i = 0; i < 5; i++) {
		pids[i] = connect_as(&daemon, 70000 + i, 100, &count);
		check_int(count, expected[i]);
		requests_user(socket, 70000 + i, &user);
		check_int(user.connections, expected[i]);
		check_int(user.over_limit, 1);
	}
	for (int i = 0; i < 5; i++) {
		check_int(kill(pids[i], SIGKILL), 0);
		check_int(waitpid(pids[i], NULL, 0), pids[i]);
	}
	harness_until(requests_alone(socket), 5000);
	close(socket);
	harness_daemon_stop(&daemon);
}

/* A thousand users with a connection each, and one more, who gets all that an honest one needs. */
static void many_users(void)
{
	enum { USERS = 1000 };
	struct rlimit limit;
	static int sockets[USERS];
	struct harness_daemon daemon;
	struct dmasync_stats_reply stats;
	struct dmasync_users request = {0};
	union reply reply;
	unsigned int count = 0;
	int fds[DMASYNC_QUEUE_FDS], memfd = harness_memfd(3 * 4096, F_SEAL_SHRINK);

	check_int(getrlimit(RLIMIT_NOFILE, &limit), 0);
	/* The daemon wants files for something useful for each. */
	if (limit.rlim_max < 20 * USERS)
		harness_skip("needs a hard limit of %d open files", 20 * USERS);
	limit.rlim_cur = limit.rlim_max;
	check_int(setrlimit(RLIMIT_NOFILE, &limit), 0);
	harness_daemon_start(&daemon,
			     "[daemon]\nallow_simulated=yes\n"
			     "[limits]\nhandshake_timeout_ms=60000\n",
			     NULL);
	let_everybody_connect(&daemon);
	int socket = requests_connect(&daemon);

	for (uid_t i = 0; i < USERS; i++) {
		check_int(seteuid(100000 + i), 0);
		sockets[i] = harness_connect(daemon.socket);
		check_int(seteuid(0), 0);
	}
	harness_until((requests_stats(socket, &stats), stats.users == USERS + 1), 10000);

	/* Two pages of them, in order. */
	for (uint32_t from = 1; count < USERS;) {
		request.from = from;
		check_int(requests_call(socket, DMASYNC_OP_USERS, &request, sizeof request, NULL, 0,
					&reply),
			  0);
		const struct dmasync_user_record *records = (void *)(&reply.users + 1);

		check(reply.users.count > 0);
		for (uint32_t i = 0; i < reply.users.count; i++) {
			check_int(records[i].uid, 100000 + count++);
			check_int(records[i].connections, 1);
			from = records[i].uid + 1;
		}
	}
	int honest = requests_connect_as_nobody(&daemon, NULL, 0);

	check_int(requests_add(honest, memfd, 0, DMASYNC_BACKEND_SIMULATED, 0, &reply), 0);
	for (int i = 0; i < 4; i++) {
		check_int(requests_queue(honest, 64, 1024, &reply, fds), 0);
		for (int j = 0; j < DMASYNC_QUEUE_FDS; j++)
			close(fds[j]);
	}
	for (int i = 0; i < USERS; i++)
		close(sockets[i]);
	close(honest);
	harness_until(requests_alone(socket), 10000);
	close(memfd);
	close(socket);
	harness_daemon_stop(&daemon);
}

/* Thousands that come with something and go without a word. */
static void many_deaths(void)
{
	struct harness_daemon daemon;
	struct dmasync_queue_create create = {
		.header = {.size = sizeof create, .opcode = DMASYNC_OP_QUEUE_CREATE},
		.depth = 2,
		.units = 16};
	struct dmasync_buffer_add add = {
		.header = {.size = sizeof add, .opcode = DMASYNC_OP_BUFFER_ADD},
		.backend = DMASYNC_BACKEND_SIMULATED};
	int memfd = harness_memfd(3 * 4096, F_SEAL_SHRINK);

	harness_daemon_start(&daemon, simulated, NULL);
	int socket = requests_connect(&daemon);
	struct requests_holdings before = requests_holdings(&daemon);

	for (int i = 0; i < 2000; i++) {
		int other = i % 3 ? requests_connect(&daemon) : harness_connect(daemon.socket);

		(void)harness_send(other, &create, sizeof create, NULL, 0);
		(void)harness_send(other, &add, sizeof add, &memfd, 1);
		(void)harness_send(other, &create, sizeof create, &memfd, 1);
		close(other);
	}
	harness_until(requests_alone(socket), 10000);
	requests_same_holdings(&daemon, before);
	close(memfd);
	close(socket);
	harness_daemon_stop(&daemon);
}

static unsigned int lines_with(const char *path, const char *text)
{
	char line[1024];
	unsigned int count = 0;
	FILE *file = fopen(path, "re");

	check(file);
	while (fgets(line, sizeof line, file))
		count += strstr(line, text) != NULL;
	fclose(file);
	return count;
}

/* Fifty refusals of a user are one line, which says who, what, and what is allowed. */
static void refusals_are_logged_once(void)
{
	struct harness_daemon daemon;
	struct dmasync_stats_reply stats;
	char text[128];

	harness_daemon_start(&daemon, "[limits]\nuser_connections=2\n", NULL);
	int socket = requests_connect(&daemon), other = requests_connect(&daemon);

	for (int i = 0; i < 50; i++) {
		int refused = harness_connect(daemon.socket);

		requests_closed_with(refused, -EUSERS);
		close(refused);
	}
	requests_stats(socket, &stats);
	check_int(stats.over_limit, 50);
	snprintf(text, sizeof text, "process %d of user %u was refused connections", (int)getpid(),
		 (unsigned)getuid());
	check_int(lines_with(daemon.log, text), 1);
	check_int(lines_with(daemon.log, "user_connections=2"), 1);
	close(other);
	close(socket);
	harness_daemon_stop(&daemon);
}

/* ---- fairness ---- */

/*
 * Twenty connections have a hundred messages each waiting, and one has one: it is answered within
 * two turns, in each of which a user's connections get at most 64 messages between them.
 */
static void floods(void)
{
	struct harness_daemon daemon;
	struct dmasync_stats_reply before, stats;
	struct dmasync_message request = {.size = sizeof request, .opcode = DMASYNC_OP_STATS};
	union reply reply;
	int flooders[20];

	harness_daemon_start(&daemon, "", NULL);
	int socket = requests_connect(&daemon);

	for (int i = 0; i < 20; i++)
		flooders[i] = requests_connect(&daemon);
	requests_stats(socket, &before);
	check_int(kill(daemon.pid, SIGSTOP), 0);
	for (int i = 0; i < 20; i++)
		for (int j = 0; j < 100; j++)
			if (harness_send(flooders[i], &request, sizeof request, NULL, 0) < 0)
				break;
	check_int(harness_send(socket, &request, sizeof request, NULL, 0), 0);
	check_int(kill(daemon.pid, SIGCONT), 0);
	check(harness_receive(socket, &reply, sizeof reply, NULL, NULL, 5000) > 0);
	check(reply.stats.messages - before.messages <= 2 * 64);
	for (int i = 0; i < 20; i++)
		close(flooders[i]);
	harness_until((requests_stats(socket, &stats), stats.clients == 1), 5000);
	close(socket);
	harness_daemon_stop(&daemon);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(shares),
	HARNESS_CASE(many_users, .timeout_s = 60),
	HARNESS_CASE(many_deaths, .timeout_s = 60),
	HARNESS_CASE(refusals_are_logged_once),
	HARNESS_CASE(floods),
};

HARNESS_MAIN(cases)
