/* SPDX-License-Identifier: MIT */
/*
 * A real dmasyncd for one test case: started on a private socket, awaited by its own notification,
 * stopped and reaped. For the thread of a test.
 */
#include "tests/lib/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_MS 10000
#define STOP_MS 10000
#define OPTIONS_MAX 32

static unsigned int started; /* daemons of this case, for the names of their files */

static int bind_notify(char *path, size_t size)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(path, size, "%s/notify-%u", harness_directory(), started);
	snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
		fail_case("%s: %s", path, strerror(errno));
	return fd;
}

/* As systemd passes a socket: as fd 3, to this very process. */
static void pass_socket(int listen_fd)
{
	char pid[16];

	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_PID");
	if (listen_fd < 0)
		return;
	snprintf(pid, sizeof pid, "%d", (int)getpid());
	setenv("LISTEN_FDS", "1", 1);
	setenv("LISTEN_PID", pid, 1);
	if (listen_fd == 3)
		fcntl(3, F_SETFD, 0);
	else
		dup2(listen_fd, 3);
}

static _Noreturn void execute(const char *program, const char *const *argv, const char *log,
			      const char *notify, int listen_fd)
{
	int log_fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	int null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setenv("NOTIFY_SOCKET", notify, 1);
	if (log_fd >= 0 && null_fd >= 0) {
		dup2(null_fd, 0);
		dup2(log_fd, 1);
		dup2(log_fd, 2);
		pass_socket(listen_fd); /* last: fd 3 may be one of those */
		execv(program, (char *const *)argv);
		fprintf(stderr, "%s: %s\n", program, strerror(errno));
	}
	_exit(127);
}

static const char *exit_text(int status, char *text, size_t size)
{
	if (status >= 0)
		snprintf(text, size, "exit status %d", status);
	else
		snprintf(text, size, "signal %d (%s)", -status, strsignal(-status));
	return text;
}

/* True where the process has ended, within timeout_ms. */
static bool has_ended(pid_t pid, int64_t timeout_ms, int *ret_status)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	struct pollfd ended = {.fd = pidfd, .events = POLLIN};
	int status;

	if (pidfd < 0)
		fail_case("pidfd_open: %s", strerror(errno));

	int n = poll(&ended, 1, (int)timeout_ms);

	close(pidfd);
	if (n <= 0 || waitpid(pid, &status, 0) != pid)
		return false;
	*ret_status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
	return true;
}

static void await_ready(struct harness_daemon *daemon)
{
	int64_t end = harness_now_ms() + harness_scaled_ms(START_MS);
	char line[256], text[64];
	int status;

	while (harness_daemon_notified(daemon, "READY=1", line, sizeof line, 20) < 0) {
		if (has_ended(daemon->pid, 0, &status))
			fail_case("the daemon ended before it was ready: %s",
				  exit_text(status, text, sizeof text));
		if (harness_now_ms() > end)
			fail_case("no READY=1 from the daemon");
	}
}

static void start(struct harness_daemon *daemon, const char *socket, int listen_fd,
		  const char *config, const char *const *options)
{
	const char *argv[OPTIONS_MAX + 8], *program = getenv("DMASYNCD");
	char name[32], notify[108], *built = harness_built("daemon/dmasyncd");
	size_t n = 0;

	if (!program)
		program = built;
	*daemon = (struct harness_daemon){.notify_fd = -1};
	started++;
	snprintf(name, sizeof name, "dmasyncd-%u.conf", started);

	char *config_path = harness_write_file(name, config);

	if ((size_t)snprintf(daemon->socket, sizeof daemon->socket, "%s", socket) >=
	    sizeof daemon->socket)
		fail_case("%s: too long for a socket", socket);
	snprintf(daemon->log, sizeof daemon->log, "%s/dmasyncd-%u.log", harness_directory(),
		 started);
	daemon->notify_fd = bind_notify(notify, sizeof notify);

	argv[n++] = program;
	argv[n++] = "--config";
	argv[n++] = config_path;
	argv[n++] = "--socket";
	argv[n++] = daemon->socket;
	if (getenv("DMASYNC_TEST_LOOP")) { /* before what the case itself asks for */
		argv[n++] = "--loop";
		argv[n++] = getenv("DMASYNC_TEST_LOOP");
	}
	for (size_t i = 0; options && options[i]; i++) {
		if (i == OPTIONS_MAX)
			fail_case("more than %d options", OPTIONS_MAX);
		argv[n++] = options[i];
	}
	argv[n] = NULL;

	daemon->pid = fork();
	if (daemon->pid < 0)
		fail_case("fork: %s", strerror(errno));
	if (daemon->pid == 0)
		execute(program, argv, daemon->log, notify, listen_fd);
	await_ready(daemon);
	free(config_path);
	free(built);
}

void harness_daemon_start_at(struct harness_daemon *daemon, const char *socket, const char *config,
			     const char *const *options)
{
	start(daemon, socket, -1, config, options);
}

int harness_listen(const char *socket_path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) < 0 ||
	    listen(fd, SOMAXCONN) < 0)
		fail_case("%s: %s", socket_path, strerror(errno));
	return fd;
}

void harness_daemon_start_on(struct harness_daemon *daemon, const char *socket, int listen_fd,
			     const char *config)
{
	start(daemon, socket, listen_fd, config, NULL);
}

void harness_daemon_start(struct harness_daemon *daemon, const char *config,
			  const char *const *options)
{
	char path[108];

	snprintf(path, sizeof path, "%s/socket-%u", harness_directory(), started + 1);
	harness_daemon_start_at(daemon, path, config, options);
}

int harness_daemon_notified(struct harness_daemon *daemon, const char *prefix, char *line,
			    size_t size, int timeout_ms)
{
	int64_t end = harness_now_ms() + harness_scaled_ms(timeout_ms);

	for (;;) {
		struct pollfd ready = {.fd = daemon->notify_fd, .events = POLLIN};
		int64_t left = end - harness_now_ms();
		char message[4096], *position = message, *next;

		if (left < 0 || poll(&ready, 1, (int)left) <= 0)
			return -ETIMEDOUT;

		ssize_t length = recv(daemon->notify_fd, message, sizeof message - 1, 0);

		if (length < 0)
			fail_case("notification socket: %s", strerror(errno));
		message[length] = '\0';
		while ((next = strsep(&position, "\n"))) {
			if (strncmp(next, prefix, strlen(prefix)) != 0)
				continue;
			snprintf(line, size, "%s", next);
			return 0;
		}
	}
}

static void forget(struct harness_daemon *daemon)
{
	close(daemon->notify_fd);
	daemon->notify_fd = -1;
	daemon->pid = 0;
}

int harness_daemon_wait(struct harness_daemon *daemon, int timeout_ms)
{
	int status;

	if (!has_ended(daemon->pid, harness_scaled_ms(timeout_ms), &status))
		fail_case("the daemon still runs after %d ms", timeout_ms);
	forget(daemon);
	return status;
}

void harness_daemon_stop(struct harness_daemon *daemon)
{
	char text[64];

	kill(daemon->pid, SIGTERM);

	int status = harness_daemon_wait(daemon, STOP_MS);

	if (status != 0)
		fail_case("after SIGTERM the daemon ended with %s",
			  exit_text(status, text, sizeof text));
}

void harness_daemon_kill(struct harness_daemon *daemon)
{
	kill(daemon->pid, SIGKILL);
	harness_daemon_wait(daemon, STOP_MS);
}
