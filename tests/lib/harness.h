/* SPDX-License-Identifier: MIT */
/*
 * What the end-to-end tests share: a runner that forks every case, a real daemon on a private
 * socket, raw clients that speak bytes, counts of what a process holds. For one thread of a test.
 *
 * A helper that cannot do its work ends the test case with a sentence; nothing has to be checked.
 * Those that a test may want to see fail return a negative errno and say so here.
 *
 *	static void hello_is_answered(void)
 *	{
 *		struct harness_daemon daemon;
 *		struct dmasync_hello_reply reply;
 *
 *		harness_daemon_start(&daemon, "[daemon]\nallow_simulated=yes\n", NULL);
 *		int fd = harness_connect(daemon.socket);
 *		harness_hello(fd, &reply);
 *		check_int(reply.version, DMASYNC_PROTOCOL_VERSION);
 *		close(fd);
 *		harness_daemon_stop(&daemon);
 *	}
 *
 *	static const struct harness_case cases[] = {
 *		HARNESS_CASE(hello_is_answered),
 *	};
 *
 *	HARNESS_MAIN(cases)
 */
#ifndef TESTS_LIB_HARNESS_H
#define TESTS_LIB_HARNESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proto/message.h"
#include "tests/lib/rounds.h"

/* ---- the runner (harness.c) ---- */

struct harness_case {
	const char *name;
	void (*run)(void);
	unsigned int timeout_s; /* 0: 20; times $HARNESS_TIMEOUT_FACTOR */
};

#define HARNESS_CASE(function, ...)                                                                \
	{                                                                                          \
		.name = #function, .run = function, __VA_ARGS__                                    \
	}

/*
 * Runs each case in a process of its own, which is killed with all its children when its time is
 * over. A case fails that ends with more open fds or more shared mappings than it began with, or
 * that leaves a process behind. Arguments: names of cases to run; --list.
 * Exit status: 1 where one failed, 77 where all were skipped, else 0.
 */
int harness_main(int argc, char **argv, const struct harness_case *cases, size_t count);

#define HARNESS_MAIN(cases)                                                                        \
	int main(int argc, char **argv)                                                            \
	{                                                                                          \
		return harness_main(argc, argv, cases, sizeof(cases) / sizeof(cases)[0]);          \
	}

/* Ends the case: failed, or skipped for that reason. */
_Noreturn void harness_fail(const char *file, int line, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
_Noreturn void harness_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define fail_case(...) harness_fail(__FILE__, __LINE__, __VA_ARGS__)
#define check(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			fail_case("not true: %s", #condition);                                     \
	} while (0)
#define check_int(value, expected)                                                                 \
	do {                                                                                       \
		long long value_ = (long long)(value), expected_ = (long long)(expected);          \
		if (value_ != expected_)                                                           \
			fail_case("%s is %lld, expected %lld (%s)", #value, value_, expected_,     \
				  #expected);                                                      \
	} while (0)
#define check_text(value, expected)                                                                \
	do {                                                                                       \
		const char *value_ = (value), *expected_ = (expected);                             \
		if (!harness_text_equal(value_, expected_))                                        \
			fail_case("%s is \"%s\", expected \"%s\"", #value,                         \
				  value_ ? value_ : "(null)", expected_ ? expected_ : "(null)");   \
	} while (0)
bool harness_text_equal(const char *a, const char *b);

/*
 * Looks again until the condition is true; fails the case when it still is not after timeout_ms.
 * For what another process does in its own time: never sleep and hope.
 */
#define harness_until(condition, timeout_ms)                                                       \
	do {                                                                                       \
		int64_t end_ = harness_now_ms() + harness_scaled_ms(timeout_ms);                   \
		while (!(condition)) {                                                             \
			if (harness_now_ms() > end_)                                               \
				fail_case("still not true after %lld ms: %s",                      \
					  (long long)harness_scaled_ms(timeout_ms), #condition);   \
			harness_pause();                                                           \
		}                                                                                  \
	} while (0)
int64_t harness_now_ms(void);		       /* CLOCK_MONOTONIC */
int64_t harness_scaled_ms(int64_t timeout_ms); /* times $HARNESS_TIMEOUT_FACTOR, for slow builds */
void harness_pause(void);		       /* 1 ms */

/* A directory for this case alone, removed with its contents when the case is over. */
const char *harness_directory(void);

/* Writes a file into harness_directory() and returns its path, to be freed. */
char *harness_write_file(const char *name, const char *text);

/* ---- the daemon (daemon.c) ---- */

struct harness_daemon {
	pid_t pid;
	char socket[108]; /* the path it listens on */
	char log[160];	  /* its stderr; printed when the case fails */
	int notify_fd;
};

/*
 * Starts $DMASYNCD, or the one of this build, with `config` as its whole configuration file ("" is
 * fine) and more options (a NULL-terminated list, or NULL), and waits for its READY=1.
 * $DMASYNC_TEST_LOOP becomes its --loop (loop_kind.h).
 */
void harness_daemon_start(struct harness_daemon *daemon, const char *config,
			  const char *const *options);

/* As above with the socket's path given, so that a client can meet a second daemon there. */
void harness_daemon_start_at(struct harness_daemon *daemon, const char *socket, const char *config,
			     const char *const *options);

/* A listening socket as a socket unit has it, and a daemon that is passed it. */
int harness_listen(const char *socket);
void harness_daemon_start_on(struct harness_daemon *daemon, const char *socket, int listen_fd,
			     const char *config);

/*
 * Waits for a notification line that starts with `prefix` ("STATUS=", "WATCHDOG=1") and copies it
 * into line; -ETIMEDOUT. Lines before it are dropped.
 */
int harness_daemon_notified(struct harness_daemon *daemon, const char *prefix, char *line,
			    size_t size, int timeout_ms);

/* SIGTERM; fails the case unless the daemon ends in 10 s with exit status 0. */
void harness_daemon_stop(struct harness_daemon *daemon);
/* SIGKILL. */
void harness_daemon_kill(struct harness_daemon *daemon);
/* Waits for a daemon that ends by itself. Its exit status, or minus the signal that killed it. */
int harness_daemon_wait(struct harness_daemon *daemon, int timeout_ms);

/* ---- processes (process.c) ---- */

/* What a process holds now; `pid` 0 is the caller. */
unsigned int harness_count_fds(pid_t pid);
unsigned int harness_count_maps(pid_t pid);	   /* lines of /proc/PID/maps */
unsigned int harness_count_shared_maps(pid_t pid); /* those shared with others: rings, buffers */
unsigned int harness_count_threads(pid_t pid);
/*
 * How often its threads have gone to sleep since they began: a thread that woke up slept again.
 * Without those that the kernel has put there for io_uring.
 */
uint64_t harness_count_sleeps(pid_t pid);

struct harness_output {
	int status; /* exit status, or minus the signal */
	char *out;  /* stdout, zero-terminated */
	char *err;  /* stderr */
};

/* Runs a program (argv[0] is a path, or a name in $PATH) to its end, or fails after timeout_ms. */
void harness_run(struct harness_output *output, int timeout_ms, const char *const *argv);
void harness_output_clear(struct harness_output *output);

/* Path of something in the build directory, as "client/ctl/dmasyncctl"; to be freed. */
char *harness_built(const char *path);

/* ---- raw clients (raw.c) ---- */

int harness_connect(const char *socket);
/* -errno where it cannot. */
int harness_try_connect(const char *socket);

/* One packet with fds. 0, or a negative errno. */
int harness_send(int socket, const void *data, size_t size, const int *fds, size_t fd_count);

/*
 * One packet: its length, 0 where the peer has closed, -ETIMEDOUT, or another negative errno.
 * *fd_count: in: room in fds, out: how many came (all close-on-exec); more than there is room for
 * fail the case. NULL, NULL where none may come.
 */
ssize_t harness_receive(int socket, void *data, size_t size, int *fds, size_t *fd_count,
			int timeout_ms);

/*
 * Sends a request and receives its reply, which must have this opcode and cookie: its length. An
 * error reply comes back too; look at header.flags.
 */
size_t harness_call(int socket, const void *request, size_t size, const int *fds, size_t fd_count,
		    void *reply, size_t reply_size, int *reply_fds, size_t *reply_fd_count);

/* HELLO for version 1, no features; fails the case unless it is accepted. */
void harness_hello(int socket, struct dmasync_hello_reply *ret);

/* A memfd of `size` zero bytes with these seals (F_SEAL_SHRINK, ...). */
int harness_memfd(size_t size, unsigned int seals);

#endif
