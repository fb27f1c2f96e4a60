/* SPDX-License-Identifier: MIT */
/*
 * The program itself: how it starts, refuses to, reloads, rests and ends. One process a case.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/message_table.h"
#include "tests/lib/harness.h"
#include "tests/lib/sanitizer.h"

#define WAIT_MS 10000

/* Runs the daemon to its end, which must come with this status and this in stderr. */
static void refused(int status, const char *sentence, const char *const *options)
{
	const char *argv[16];
	struct harness_output output;
	char *built = harness_built("daemon/dmasyncd");
	const char *program = getenv("DMASYNCD");
	size_t n = 0;

	argv[n++] = program ? program : built;
	while (*options)
		argv[n++] = *options++;
	argv[n] = NULL;
	harness_run(&output, WAIT_MS, argv);
	if (!strstr(output.err, sentence))
		fail_case("stderr is \"%s\", expected in it: \"%s\"", output.err, sentence);
	check_int(output.status, status);
	check_text(output.out, "");
	harness_output_clear(&output);
	free(built);
}

static bool logged(const struct harness_daemon *daemon, const char *sentence)
{
	char text[16384];
	FILE *file = fopen(daemon->log, "re");

	check(file);
	text[fread(text, 1, sizeof text - 1, file)] = '\0';
	fclose(file);
	return strstr(text, sentence) != NULL;
}

static void config_path(char *path, size_t size)
{
	snprintf(path, size, "%s/dmasyncd-1.conf", harness_directory());
}

static void version(void)
{
	char *built = harness_built("daemon/dmasyncd");
	struct harness_output output;

	harness_run(&output, WAIT_MS, (const char *[]){built, "--version", NULL});
	check_int(output.status, 0);
	check_text(output.out, "dmasyncd " DMASYNC_VERSION "\n");
	check_text(output.err, "");
	harness_output_clear(&output);
	free(built);
}

static void bad_configuration(void)
{
	char *path = harness_write_file("bad.conf", "[daemon]\n\nspin_us = soon\n");
	char sentence[512];

	snprintf(sentence, sizeof sentence,
		 "%s:3: spin_us = soon: not a whole number; allowed: 0 to 10000 microseconds\n",
		 path);
	refused(2, sentence, (const char *[]){"--config", path, NULL});
	free(path);
}

static void bad_options(void)
{
	refused(2, "--workers: workers = none: not a whole number; allowed: 1 to 64 threads\n",
		(const char *[]){"--config", "/dev/null", "--workers", "none", NULL});
	refused(2, "--nothing: unknown option", (const char *[]){"--nothing", NULL});
	refused(2, "/nowhere: cannot be opened", (const char *[]){"--config", "/nowhere", NULL});
	char *fifo = harness_write_file("fifo.conf", "[daemon]\npolicy = fifo\n");

	refused(2, "policy = fifo without cpus: name the CPUs",
		(const char *[]){"--config", fifo, NULL});
	free(fifo);
	refused(2, "cpus = 1023: CPU 1023 is offline or not allowed",
		(const char *[]){"--config", "/dev/null", "--cpus", "1023", NULL});
}

static void starts_and_stops(void)
{
	struct harness_daemon daemon;
	struct dmasync_hello_reply reply;
	struct stat st;

	harness_daemon_start(&daemon, "", NULL);
	check_int(stat(daemon.socket, &st), 0);
	check(S_ISSOCK(st.st_mode));
	check_int(st.st_mode & 0777, 0660);

	int fd = harness_connect(daemon.socket);

	harness_hello(fd, &reply);
	close(fd);
	harness_daemon_stop(&daemon); /* SIGTERM: status 0 */
	check_int(stat(daemon.socket, &st), -1);
	check_int(errno, ENOENT);
}

/* Clients do not hold up the end, whatever they do: they are told by the hang-up. */
static void stops_with_clients(void)
{
	struct harness_daemon daemon;
	struct dmasync_hello_reply reply;
	char byte;

	harness_daemon_start(&daemon, "", NULL);

	int silent = harness_connect(daemon.socket), idle = harness_connect(daemon.socket);

	harness_hello(idle, &reply);
	harness_daemon_stop(&daemon);
	check_int(harness_receive(silent, &byte, 1, NULL, NULL, WAIT_MS), 0);
	check_int(harness_receive(idle, &byte, 1, NULL, NULL, WAIT_MS), 0);
	close(silent);
	close(idle);
}

/* timeout(1) signals the process and then its group. */
static void asked_twice(void)
{
	struct harness_daemon daemon;

	harness_daemon_start(&daemon, "", NULL);
	kill(daemon.pid, SIGTERM);
	kill(daemon.pid, SIGINT);
	check_int(harness_daemon_wait(&daemon, WAIT_MS), 0);
}

/* As in a container: io_uring_setup() of all that comes after fails with this. */
static void refuse_io_uring(int error)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		harness_skip("no seccomp here: %s", strerror(errno));
}

static void check_loop(const struct harness_daemon *daemon, const char *loop, const char *text)
{
	struct dmasync_message request = {.size = sizeof request, .opcode = DMASYNC_OP_PROBE};
	struct dmasync_hello_reply hello;
	struct dmasync_probe_reply reply;
	int fd = harness_connect(daemon->socket);

	harness_hello(fd, &hello);
	harness_call(fd, &request, sizeof request, NULL, 0, &reply, sizeof reply, NULL, NULL);
	check_int(reply.header.size, sizeof reply);
	check_text(reply.loop, loop);
	if (!strstr(reply.loop_text, text))
		fail_case("loop_text \"%s\" does not say \"%s\"", reply.loop_text, text);
	close(fd);
}

/* Says why, once, and serves; and where io_uring is demanded, does not start and says why. */
static void falls_back(int error, const char *name, const char *reason, int status)
{
	struct harness_daemon daemon;
	char path[256], sentence[256];
	struct stat st;

	refuse_io_uring(error);
	harness_daemon_start(&daemon, "", (const char *[]){"--loop", "auto", NULL});
	snprintf(sentence, sizeof sentence, "io_uring is refused (%s): ", name);
	check(logged(&daemon, sentence));
	check(logged(&daemon, reason));
	check(logged(&daemon, "; running on epoll\n"));
	check(!logged(&daemon, "to worker")); /* it is not tried again */
	check_loop(&daemon, "epoll", sentence);
	harness_daemon_stop(&daemon);

	snprintf(path, sizeof path, "%s/socket", harness_directory());
	snprintf(sentence, sizeof sentence,
		 "the control loop cannot be started: loop = uring, and io_uring is refused (%s): ",
		 name);
	refused(status, sentence,
		(const char *[]){"--config", "/dev/null", "--socket", path, "--loop", "uring",
				 NULL});
	check_int(stat(path, &st), -1); /* nothing is left behind */
}

static void io_uring_not_permitted(void)
{
	falls_back(EPERM, "Operation not permitted", "io_uring_", 2);
}

static void io_uring_not_there(void)
{
	falls_back(ENOSYS, "Function not implemented", "CONFIG_IO_URING", 2);
}

static void io_uring_without_memory(void)
{
	falls_back(ENOMEM, "Cannot allocate memory", "there is no memory for a ring", 1);
}

static void epoll_by_choice(void)
{
	struct harness_daemon daemon;

	harness_daemon_start(&daemon, "[daemon]\nloop = epoll\n",
			     (const char *[]){"--loop", "epoll", NULL});
	check(!logged(&daemon, "refused"));
	check_loop(&daemon, "epoll", "the configuration says loop = epoll");
	harness_daemon_stop(&daemon);
	refused(2, "--loop: loop = kqueue: not a loop; allowed: auto, uring or epoll\n",
		(const char *[]){"--config", "/dev/null", "--loop", "kqueue", NULL});
}

static void interrupted(void)
{
	struct harness_daemon daemon;

	harness_daemon_start(&daemon, "", NULL);
	kill(daemon.pid, SIGINT);
	check_int(harness_daemon_wait(&daemon, WAIT_MS), 0);
}

static void notifies(void)
{
	struct harness_daemon daemon;
	struct dmasync_hello_reply reply;
	char line[256];

	harness_daemon_start(&daemon, "", NULL);

	int fd = harness_connect(daemon.socket);

	harness_hello(fd, &reply);
	check_int(
		harness_daemon_notified(&daemon, "STATUS=1 clients, ", line, sizeof line, WAIT_MS),
		0);
	close(fd);
	check_int(
		harness_daemon_notified(&daemon, "STATUS=0 clients, ", line, sizeof line, WAIT_MS),
		0);
	kill(daemon.pid, SIGTERM);
	check_int(harness_daemon_notified(&daemon, "STOPPING=1", line, sizeof line, WAIT_MS), 0);
	check_int(harness_daemon_wait(&daemon, WAIT_MS), 0);
}

static void watchdog(void)
{
	struct harness_daemon daemon;
	char line[64];

	setenv("WATCHDOG_USEC", "100000", 1);
	unsetenv("WATCHDOG_PID");
	harness_daemon_start(&daemon, "", NULL);
	for (int i = 0; i < 3; i++)
		check_int(
			harness_daemon_notified(&daemon, "WATCHDOG=1", line, sizeof line, WAIT_MS),
			0);
	harness_daemon_stop(&daemon);
	unsetenv("WATCHDOG_USEC");
}

static void reload_to(const char *content, struct harness_daemon *daemon, const char *sentence)
{
	char path[256], line[128];
	FILE *file;

	config_path(path, sizeof path);
	file = fopen(path, "we");
	check(file);
	fputs(content, file);
	fclose(file);
	kill(daemon->pid, SIGHUP);
	check_int(harness_daemon_notified(daemon, "RELOADING=1", line, sizeof line, WAIT_MS), 0);
	check_int(harness_daemon_notified(daemon, "READY=1", line, sizeof line, WAIT_MS), 0);
	if (!logged(daemon, sentence))
		fail_case("not in the log: \"%s\"", sentence);
}

static void reloads(void)
{
	struct harness_daemon daemon;
	struct dmasync_hello_reply reply;

	/* Few connections: else their number follows from the queues and this machine's limits. */
	harness_daemon_start(&daemon, "[limits]\nmax_queues = 5\nmax_connections = 4\n",
			     (const char *[]){"--slice-lines", "100", NULL});

	int fd = harness_connect(daemon.socket);

	harness_hello(fd, &reply);
	check_int(reply.max_queues, 5);
	close(fd);
	reload_to("[limits]\nmax_queues = 7\nmax_connections = 4\n[daemon]\nhelper_threads = 3\n",
		  &daemon,
		  "configuration read again: max_queues 5 -> 7; a change of helper_threads needs "
		  "a restart\n");
	reload_to("[limits]\nmax_queues = 7\nmax_connections = 4\n", &daemon,
		  "configuration read again; nothing differs\n");
	fd = harness_connect(daemon.socket);
	harness_hello(fd, &reply);
	check_int(reply.max_queues, 7);
	close(fd);
	reload_to(
		"[limits]\nmax_queues = many\n", &daemon,
		":2: max_queues = many: not a whole number; allowed: 1 to 256 queues; nothing was "
		"changed\n");
	fd = harness_connect(daemon.socket);
	harness_hello(fd, &reply);
	check_int(reply.max_queues, 7);
	close(fd);
	harness_daemon_stop(&daemon);
}

static void dead_socket_is_replaced(void)
{
	struct harness_daemon daemon;
	struct dmasync_hello_reply reply;
	char path[108];
	struct stat st;

	harness_daemon_start(&daemon, "", NULL);
	snprintf(path, sizeof path, "%s", daemon.socket);
	harness_daemon_kill(&daemon);
	check_int(stat(path, &st), 0);
	harness_daemon_start_at(&daemon, path, "", NULL);

	int fd = harness_connect(path);

	harness_hello(fd, &reply);
	close(fd);
	harness_daemon_stop(&daemon);
}

static void live_socket_is_kept(void)
{
	struct harness_daemon daemon;
	struct dmasync_hello_reply reply;
	char sentence[256];

	harness_daemon_start(&daemon, "", NULL);
	snprintf(sentence, sizeof sentence, "another daemon answers on %s; stop it", daemon.socket);
	refused(1, sentence,
		(const char *[]){"--config", "/dev/null", "--socket", daemon.socket, NULL});

	int fd = harness_connect(daemon.socket);

	harness_hello(fd, &reply);
	close(fd);
	harness_daemon_stop(&daemon);
}

static void socket_paths(void)
{
	char *file = harness_write_file("precious", "not a socket");
	char sentence[512], path[256];
	struct stat st;

	snprintf(sentence, sizeof sentence, "%s exists and is not a socket; remove it, or choose",
		 file);
	refused(1, sentence, (const char *[]){"--config", "/dev/null", "--socket", file, NULL});
	check_int(stat(file, &st), 0);
	check_int(st.st_size, strlen("not a socket"));

	snprintf(path, sizeof path, "%s/missing/socket", harness_directory());
	snprintf(sentence, sizeof sentence,
		 "the directory %s/missing of the socket does not exist; create it",
		 harness_directory());
	refused(1, sentence, (const char *[]){"--config", "/dev/null", "--socket", path, NULL});
	free(file);
}

/* As systemd does it: a listening socket on fd 3. */
static pid_t start_activated(int type, char *path, size_t path_size)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char *built = harness_built("daemon/dmasyncd"), pid_text[16];
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	snprintf(path, path_size, "%s/activated", harness_directory());
	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	check_int(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	check_int(listen(fd, 10), 0);

	pid_t pid = fork();

	check(pid >= 0);
	if (pid == 0) {
		/* Above 3 first, so that fd 3 is made anew and loses close-on-exec. */
		int copy = fcntl(fd, F_DUPFD, 10);

		dup2(copy, 3);
		close(copy);
		snprintf(pid_text, sizeof pid_text, "%d", (int)getpid());
		setenv("LISTEN_PID", pid_text, 1);
		setenv("LISTEN_FDS", "1", 1);
		unsetenv("NOTIFY_SOCKET");
		execl(built, built, "--config", "/dev/null", "--log-level", "err", (char *)NULL);
		_exit(127);
	}
	close(fd);
	free(built);
	return pid;
}

static int ended(pid_t pid)
{
	int status;

	check_int(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

static void socket_activation(void)
{
	struct dmasync_hello_reply reply;
	char path[108];
	pid_t pid = start_activated(SOCK_SEQPACKET, path, sizeof path);
	struct stat st;
	/* It waits in the queue of the socket until the daemon is there. */
	int fd = harness_connect(path);

	harness_hello(fd, &reply);
	close(fd);
	kill(pid, SIGTERM);
	check_int(ended(pid), 0);
	check_int(stat(path, &st), 0); /* the path is systemd's */
}

static void socket_activation_of_wrong_type(void)
{
	char path[108];

	check_int(ended(start_activated(SOCK_STREAM, path, sizeof path)), 2);
}

/*
 * Nothing to do, nothing done. A thread that woke up has gone to sleep again, and the kernel counts
 * that. There is no watchdog here.
 */
static void idle_daemon_sleeps(void)
{
	struct harness_daemon daemon;
	uint64_t sleeps;

	if (UNDER_TSAN)
		harness_skip("the thread sanitizer has a thread that wakes up all the time");
	harness_daemon_start(&daemon, "", NULL);
	/* The start is over when the threads have been still for a while. */
	do {
		sleeps = harness_count_sleeps(daemon.pid);
		usleep(300000);
	} while (harness_count_sleeps(daemon.pid) != sleeps);
	usleep(3000000);
	check_int(harness_count_sleeps(daemon.pid), sleeps);
	harness_daemon_stop(&daemon);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(version),
	HARNESS_CASE(bad_configuration),
	HARNESS_CASE(bad_options),
	HARNESS_CASE(starts_and_stops),
	HARNESS_CASE(interrupted),
	HARNESS_CASE(stops_with_clients),
	HARNESS_CASE(asked_twice),
	HARNESS_CASE(io_uring_not_permitted),
	HARNESS_CASE(io_uring_not_there),
	HARNESS_CASE(io_uring_without_memory),
	HARNESS_CASE(epoll_by_choice),
	HARNESS_CASE(notifies, .timeout_s = 40),
	HARNESS_CASE(watchdog),
	HARNESS_CASE(reloads),
	HARNESS_CASE(dead_socket_is_replaced),
	HARNESS_CASE(live_socket_is_kept),
	HARNESS_CASE(socket_paths),
	HARNESS_CASE(socket_activation),
	HARNESS_CASE(socket_activation_of_wrong_type),
	HARNESS_CASE(idle_daemon_sleeps),
};

HARNESS_MAIN(cases)
