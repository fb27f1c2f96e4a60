/* SPDX-License-Identifier: MIT */
/*
 * See daemon_here.h. This file stands in the place of daemon/daemon.c: the linker takes it first
 * and leaves the archive's member where it is.
 */
#include "daemon_here.h"

#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/log.h"
#include "fuzz.h"
#include "helpers_here.h"
#include "loop_here.h"
#include "worker_here.h"

static int listen_fd;

bool daemon_here_loop(struct daemon *daemon)
{
	struct mailbox_node *node;
	bool worked = loop_here_run(daemon->loop, false);

	/* As daemon.c does, which is the loop's master, and not here. */
	(void)!read(daemon->events_fd, &(uint64_t){0}, sizeof(uint64_t));
	node = mailbox_take(&daemon->events);
	while (node) {
		struct worker_command *command = (struct worker_command *)node;

		node = node->next;
		connections_worker_event(daemon, command);
		worked = true;
	}
	node = mailbox_take(&daemon->jobs);
	while (node) {
		struct helper_job *job = (struct helper_job *)node;

		node = node->next;
		job->finished(job);
		worked = true;
	}
	return worked;
}

bool daemon_here_timers(struct daemon *daemon)
{
	return loop_here_run(daemon->loop, true);
}

bool daemon_here_workers(struct daemon *daemon)
{
	bool worked = false;

	for (uint32_t i = 0; i < daemon->worker_count; i++)
		worked |= worker_here_turn(daemon->workers[i]);
	return worked;
}

void daemon_here_settle(struct daemon *daemon)
{
	bool napped = false, worked = true;

	for (uint32_t rounds = 0; worked || !napped; rounds++) {
		claim(rounds < 100000); /* it would never come to rest */
		napped = !worked;
		for (uint32_t i = 0; napped && i < daemon->worker_count; i++)
			worker_here_nap(daemon->workers[i]);
		worked = daemon_here_loop(daemon);
		worked |= daemon_here_workers(daemon);
		worked |= helpers_here_run_one();
	}
}

/* ---- the daemon ---- */

void daemon_stopped(struct daemon *daemon)
{
	(void)daemon;
	claim(false); /* nobody has asked for the end */
}

static void configure(struct config *config)
{
	static const char *const settings[][3] = {
		{"daemon", "allow_simulated", "yes"}, {"daemon", "slice_lines", "64"},
		{"limits", "max_connections", "4"},   {"limits", "max_buffers", "4"},
		{"limits", "max_buffer_bytes", "1M"}, {"limits", "max_queues", "3"},
		{"limits", "max_depth", "16"},	      {"limits", "max_units", "256"},
		{"limits", "max_requests", "4"},      {"limits", "max_batch_lines", "1024"},
	};
	char text[CONFIG_TEXT_SIZE];

	claim(config_defaults(config) == 0);
	for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
		if (config_set(config, settings[i][0], settings[i][1], settings[i][2], "fuzz", text,
			       sizeof text) < 0) {
			fprintf(stderr, "%s\n", text);
			abort();
		}
}

static void listen_anywhere(struct daemon *daemon)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	claim(listen_fd >= 0);
	/* A name of the kernel's choice. */
	claim(bind(listen_fd, (struct sockaddr *)&address, sizeof address.sun_family) == 0);
	claim(listen(listen_fd, 16) == 0);
	daemon->listen_fd = listen_fd;
}

int daemon_here_connect(void)
{
	struct sockaddr_un address;
	socklen_t size = sizeof address;
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	claim(fd >= 0);
	claim(getsockname(listen_fd, (struct sockaddr *)&address, &size) == 0);
	if (connect(fd, (struct sockaddr *)&address, size) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

struct daemon *daemon_here_start(void)
{
	struct daemon *daemon = calloc(1, sizeof *daemon);

	claim(daemon);
	signal(SIGPIPE, SIG_IGN);
	log_open(LOG_EMERG);
	configure(&daemon->config);
	daemon->machine =
		(struct limits_machine){.files = 1024, .maps = 4096, .memory = UINT64_C(1) << 30};
	accounts_set_limits(&daemon->accounts, &daemon->config, &daemon->machine);
	daemon->signal_fd = -1;
	daemon->events_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	claim(daemon->events_fd >= 0);
	daemon->loop = loop_here_make();
	listen_anywhere(daemon);
	claim(cache_select(NULL, &daemon->cache) == 0);
	claim(helpers_create(1, 1, &daemon->helpers) == 0);
	claim(helpers_create(1, 1, &daemon->closers) == 0);
	daemon->workers = calloc(2, sizeof *daemon->workers);
	claim(daemon->workers);
	for (uint32_t i = 0; i < 2; i++) {
		const struct worker_params params = {.index = i,
						     .loop = i ? LOOP_EPOLL : LOOP_AUTO,
						     .count = 2,
						     .cache = &daemon->cache,
						     .slice_lines = daemon->config.slice_lines,
						     .normal_share = daemon->config.normal_share,
						     .bulk_share = daemon->config.bulk_share,
						     .max_batch_lines =
							     daemon->config.max_batch_lines,
						     .events = &daemon->events,
						     .events_fd = daemon->events_fd,
						     .helpers = daemon->helpers};

		claim(worker_here_start(&params, &daemon->workers[i]) == 0);
		daemon->worker_count++;
	}
	claim(connections_start(daemon) == 0);
	return daemon;
}
