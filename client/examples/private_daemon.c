/* SPDX-License-Identifier: MIT */
/*
 * Starts and stops the demo's own dmasyncd. It needs no privilege and no installation. The parent's
 * one thread.
 */
#include "private_daemon.h"

#include <dmasync/dmasync.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "process.h"

enum { START_PATIENCE_MS = 10000, LOOK_EVERY_MS = 10 };

void built_program(const char *relative, char *path, size_t size)
{
	char self[PATH_MAX] = "";
	const char *name = strrchr(relative, '/');

	if (readlink("/proc/self/exe", self, sizeof self - 1) > 0 &&
	    (size_t)snprintf(path, size, "%s/%s", dirname(self), relative) < size &&
	    access(path, X_OK) == 0)
		return;
	snprintf(path, size, "%s", name ? name + 1 : relative);
}

static int write_configuration(const char *path)
{
	/* Simulated buffers are for tests: a daemon takes them only where it is told to. */
	FILE *file = fopen(path, "we");

	if (!file)
		return -errno;
	fputs("[daemon]\nallow_simulated = yes\n", file);
	return fclose(file) == 0 ? 0 : -errno;
}

static int make_directory(struct private_daemon *daemon)
{
	const char *parent = secure_getenv("XDG_RUNTIME_DIR");
	int r;

	/* The socket's path has to fit into a sockaddr_un. */
	if (!parent || strlen(parent) > 40 || access(parent, W_OK) < 0)
		parent = "/tmp";
	snprintf(daemon->directory, sizeof daemon->directory, "%s/dmasync-XXXXXX", parent);
	if (!mkdtemp(daemon->directory))
		return -errno;
	snprintf(daemon->configuration, sizeof daemon->configuration, "%s/dmasyncd.conf",
		 daemon->directory);
	snprintf(daemon->socket, sizeof daemon->socket, "%s/socket", daemon->directory);
	r = write_configuration(daemon->configuration);
	return r;
}

static int wait_until_it_answers(const struct private_daemon *daemon)
{
	int r = -ETIMEDOUT;

	for (int waited = 0; waited < START_PATIENCE_MS; waited += LOOK_EVERY_MS) {
		struct dmasync *ds;

		r = dmasync_connect(daemon->socket, 0, &ds);
		if (r == 0) {
			dmasync_disconnect(ds);
			return 0;
		}
		if (process_has_ended(daemon->process)) {
			fprintf(stderr, "demo: the daemon ended instead of answering\n");
			return -ECHILD;
		}
		if (process_pause(LOOK_EVERY_MS))
			return -EINTR;
	}
	fprintf(stderr, "demo: the daemon does not answer on %s\n", daemon->socket);
	return r;
}

int private_daemon_start(struct private_daemon *daemon)
{
	char program[PATH_MAX];
	int r;

	memset(daemon, 0, sizeof *daemon);
	r = make_directory(daemon);
	if (r < 0) {
		fprintf(stderr, "demo: cannot make a directory for the daemon's socket: %s\n",
			strerror(-r));
		private_daemon_stop(daemon);
		return r;
	}
	built_program("../../daemon/dmasyncd", program, sizeof program);

	const char *arguments[] = {program,
				   "--config",
				   daemon->configuration,
				   "--socket",
				   daemon->socket,
				   "--log-level",
				   "warning",
				   NULL};

	daemon->process = process_spawn(arguments, true);
	r = daemon->process < 0 ? (int)daemon->process : wait_until_it_answers(daemon);
	if (r < 0)
		private_daemon_stop(daemon);
	return r;
}

int private_daemon_stop(struct private_daemon *daemon)
{
	int r = 0;

	if (daemon->process > 0)
		r = process_wait_all(&daemon->process, 1, true);
	daemon->process = 0;
	if (daemon->directory[0]) {
		unlink(daemon->configuration);
		unlink(daemon->socket);
		rmdir(daemon->directory);
	}
	daemon->directory[0] = 0;
	return r;
}
