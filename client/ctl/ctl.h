/* SPDX-License-Identifier: MIT */
/*
 * What the files of dmasyncctl share: the options that every command takes, the exit statuses and
 * the commands themselves. A command runs on the main thread.
 */
#ifndef DMASYNC_CTL_CTL_H
#define DMASYNC_CTL_CTL_H

#include <stdbool.h>
#include <stddef.h>

enum ctl_status {
	CTL_OK = 0,
	CTL_FAILED = 1,	      /* a sentence stands on stderr */
	CTL_USAGE = 2,	      /* the command line is wrong; a sentence stands on stderr */
	CTL_BROKEN = 3,	      /* selftest: a sync left stale lines */
	CTL_INCONCLUSIVE = 4, /* selftest: no stale line without sync either */
};

struct ctl {
	bool json;
	const char *socket; /* --socket; NULL: $DMASYNC_SOCKET, else the default */
};

struct ctl_command {
	const char *name;
	const char *summary; /* one line of `dmasyncctl --help` */
	/* argv[0] is the command's name. Returns an enum ctl_status. */
	int (*run)(struct ctl *ctl, int argc, char **argv);
};

/* Everything of dmasyncctl but the process: for main() and the tests. */
int ctl_main(int argc, char **argv);

/* A sentence on stderr after "dmasyncctl: "; returns CTL_FAILED. */
int ctl_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same for a wrong command line; returns CTL_USAGE. */
int ctl_usage(const char *format, ...) __attribute__((format(printf, 1, 2)));

int cmd_stats(struct ctl *ctl, int argc, char **argv);
int cmd_users(struct ctl *ctl, int argc, char **argv);
int cmd_clients(struct ctl *ctl, int argc, char **argv);
int cmd_batches(struct ctl *ctl, int argc, char **argv);
int cmd_probe(struct ctl *ctl, int argc, char **argv);
int cmd_sync(struct ctl *ctl, int argc, char **argv);
int cmd_selftest(struct ctl *ctl, int argc, char **argv);
int cmd_bench(struct ctl *ctl, int argc, char **argv);
int bench_sg(struct ctl *ctl, int argc, char **argv);
int bench_latency(struct ctl *ctl, int argc, char **argv);
int bench_iomem(struct ctl *ctl, int argc, char **argv);

/* Finds argv[1] in a table of commands and runs it; options before it are ctl's own. */
int ctl_dispatch(struct ctl *ctl, const char *program, const struct ctl_command *commands,
		 size_t count, const char *about, int argc, char **argv);

#endif
