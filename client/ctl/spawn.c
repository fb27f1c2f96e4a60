/* SPDX-License-Identifier: MIT */
/*
 * A daemon of one's own for a benchmark or the selftest. Owns its process and a temporary
 * directory with the socket, the configuration and the log. Main thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/connect.h"
#include "client/ctl/spawn.h"

#define START_MS 10000
#define STOP_MS 5000
#define STEP_MS 5

/* Room for the names below it in a socket address of 108 bytes. */
#define DIRECTORY_MAX 80

struct spawn {
	pid_t pid;
	char directory[DIRECTORY_MAX];
	char socket[DIRECTORY_MAX + 16], config[DIRECTORY_MAX + 16], log[DIRECTORY_MAX + 16];
};

static void step(void)
{
	nanosleep(&(struct timespec){.tv_nsec = STEP_MS * 1000000L}, NULL);
}

/* Beside this program, in the build tree, in the neighbouring folders of an installation. */
static const char *find_program(char path[PATH_MAX])
{
	static const char *const places[] = {"dmasyncd", "../../daemon/dmasyncd",
					     "../sbin/dmasyncd", "../libexec/dmasyncd",
					     "../lib/dmasync/dmasyncd"};
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);

	if (n > 0) {
		self[n] = '\0';
		const char *directory = dirname(self);

		for (size_t i = 0; i < sizeof places / sizeof *places; i++)
			if (snprintf(path, PATH_MAX, "%s/%s", directory, places[i]) < PATH_MAX &&
			    access(path, X_OK) == 0)
				return path;
	}
	return "dmasyncd"; /* in $PATH */
}

static int make_directory(struct spawn *spawn, const char *config)
{
	const char *parent = getenv("TMPDIR");

	if (!parent || strlen(parent) > DIRECTORY_MAX - sizeof "/dmasyncctl-XXXXXX")
		parent = "/tmp";
	snprintf(spawn->directory, sizeof spawn->directory, "%s/dmasyncctl-XXXXXX", parent);
	if (!mkdtemp(spawn->directory)) {
		ctl_fail("%s: %s", spawn->directory, strerror(errno));
		spawn->directory[0] = '\0';
		return CTL_FAILED;
	}
	snprintf(spawn->socket, sizeof spawn->socket, "%s/socket", spawn->directory);
	snprintf(spawn->config, sizeof spawn->config, "%s/conf", spawn->directory);
	snprintf(spawn->log, sizeof spawn->log, "%s/log", spawn->directory);

	int fd = open(spawn->config, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return ctl_fail("%s: %s", spawn->config, strerror(errno));

	size_t length = strlen(config);
	ssize_t n = write(fd, config, length);
	close(fd);
	return n == (ssize_t)length ? CTL_OK : ctl_fail("%s: could not be written", spawn->config);
}

static _Noreturn void execute(const struct spawn *spawn, const char *program, pid_t parent)
{
	int log = open(spawn->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

	/* Gone with its parent, also where that is gone already. */
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent || log < 0 || null < 0)
		_exit(127);
	dup2(null, STDIN_FILENO);
	dup2(log, STDOUT_FILENO);
	dup2(log, STDERR_FILENO);
	/* What a service manager told this process is not meant for the daemon. */
	unsetenv("LISTEN_FDS");
	unsetenv("LISTEN_PID");
	unsetenv("NOTIFY_SOCKET");
	unsetenv("WATCHDOG_USEC");
	unsetenv("WATCHDOG_PID");
	execlp(program, program, "--config", spawn->config, "--socket", spawn->socket,
	       (char *)NULL);
	dprintf(STDERR_FILENO, "%s: %s\n", program, strerror(errno));
	_exit(127);
}

/* What the daemon said last, for the sentence about why it does not run. */
static void print_log(const struct spawn *spawn)
{
	char line[512];
	FILE *log = fopen(spawn->log, "re");

	if (!log)
		return;
	while (fgets(line, sizeof line, log))
		fputs(line, stderr);
	fclose(log);
}

static int wait_until_ready(struct spawn *spawn)
{
	const struct ctl ctl = {.socket = spawn->socket};
	char text[CLIENT_ERROR_TEXT_SIZE];
	int status;

	for (int waited = 0; waited < START_MS; waited += STEP_MS) {
		struct dmasync *_connection_ ds = NULL;

		if (waitpid(spawn->pid, &status, WNOHANG) == spawn->pid) {
			spawn->pid = 0;
			print_log(spawn);
			return ctl_fail("the daemon of one's own has ended at once "
					"(%s %d)",
					WIFSIGNALED(status) ? "signal" : "exit status",
					WIFSIGNALED(status) ? WTERMSIG(status)
							    : WEXITSTATUS(status));
		}
		if (connect_quietly(&ctl, &ds, text, sizeof text) >= 0)
			return CTL_OK;
		step();
	}
	print_log(spawn);
	return ctl_fail("the daemon of one's own does not answer: %s", text);
}

int spawn_start(const char *program, const char *config, struct spawn **ret)
{
	char path[PATH_MAX];
	struct spawn *spawn = calloc(1, sizeof *spawn);
	pid_t self = getpid();

	if (!spawn)
		return ctl_fail("no memory");
	int r = make_directory(spawn, config ? config : "");
	if (r != CTL_OK) {
		spawn_stop(spawn);
		return CTL_FAILED;
	}
	if (!program[0])
		program = find_program(path);
	fflush(NULL);
	spawn->pid = fork();
	if (spawn->pid == 0)
		execute(spawn, program, self);
	int status =
		spawn->pid < 0 ? ctl_fail("fork: %s", strerror(errno)) : wait_until_ready(spawn);
	if (status != CTL_OK) {
		spawn_stop(spawn);
		return status;
	}
	*ret = spawn;
	return CTL_OK;
}

const char *spawn_socket(const struct spawn *spawn)
{
	return spawn->socket;
}

pid_t spawn_pid(const struct spawn *spawn)
{
	return spawn->pid;
}

static bool has_ended(pid_t pid, int timeout_ms)
{
	for (int waited = 0; waited < timeout_ms; waited += STEP_MS) {
		if (waitpid(pid, NULL, WNOHANG) != 0)
			return true;
		step();
	}
	return false;
}

void spawn_stop(struct spawn *spawn)
{
	if (!spawn)
		return;
	if (spawn->pid > 0) {
		kill(spawn->pid, SIGTERM);
		if (!has_ended(spawn->pid, STOP_MS)) {
			kill(spawn->pid, SIGKILL);
			waitpid(spawn->pid, NULL, 0);
		}
	}
	if (spawn->directory[0]) {
		unlink(spawn->socket);
		unlink(spawn->config);
		unlink(spawn->log);
		rmdir(spawn->directory);
	}
	free(spawn);
}
