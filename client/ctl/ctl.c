/* SPDX-License-Identifier: MIT */
/*
 * The table of commands, the options before them and the exit status. Owns nothing.
 * Main thread.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "client/ctl/options.h"

__attribute__((format(printf, 1, 0))) static void say(const char *format, va_list arguments)
{
	fflush(stdout);
	fputs("dmasyncctl: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
}

int ctl_fail(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say(format, arguments);
	va_end(arguments);
	return CTL_FAILED;
}

int ctl_usage(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	say(format, arguments);
	va_end(arguments);
	return CTL_USAGE;
}

static const struct ctl_command commands[] = {
	{"stats", "totals of the daemon, and how long the phases of its batches take", cmd_stats},
	{"clients", "who is connected, with what and how much", cmd_clients},
	{"users", "what each user's connections have together", cmd_users},
	{"batches", "the last batches, or all as they complete (--follow)", cmd_batches},
	{"probe", "what this machine can do, and how an fd would be synced", cmd_probe},
	{"sync", "one batch on an fd, a file or a scratch buffer", cmd_sync},
	{"selftest", "a device's frames, with and without sync: which lines are stale",
	 cmd_selftest},
	{"bench", "measure: \"bench sg\", \"bench latency\"", cmd_bench},
};

static void print_commands(const char *program, const struct ctl_command *table, size_t count,
			   const char *about)
{
	printf("usage: %s [--json] [--socket PATH] COMMAND [OPTION...]\n\n%s\n", program, about);
	for (size_t i = 0; i < count; i++)
		printf("  %-20s %s\n", table[i].name, table[i].summary);
	printf("\n`%s COMMAND --help` tells about one of them. Every command takes:\n%s", program,
	       options_common_help);
}

static void list_commands(const struct ctl_command *table, size_t count, char *text, size_t size)
{
	size_t length = 0;

	for (size_t i = 0; i < count; i++) {
		int n = snprintf(text + length, size - length, "%s%s", i ? ", " : "",
				 table[i].name);
		if (n > 0 && length + (size_t)n < size)
			length += (size_t)n;
	}
}

int ctl_dispatch(struct ctl *ctl, const char *program, const struct ctl_command *table,
		 size_t count, const char *about, int argc, char **argv)
{
	char names[256];
	int i = 1, status = CTL_USAGE;

	list_commands(table, count, names, sizeof names);
	while (i < argc && argv[i][0] == '-') {
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
			print_commands(program, table, count, about);
			return CTL_OK;
		}
		if (strcmp(argv[i], "--version") == 0) {
			puts("dmasyncctl " DMASYNC_VERSION);
			return CTL_OK;
		}

		int took = options_common(ctl, argv[i], i + 1 < argc ? argv[i + 1] : NULL, &status);
		if (took < 0)
			return status;
		if (took == 0)
			return ctl_usage("unknown option \"%s\"; before a command are allowed "
					 "--json, --socket, --version, --help",
					 argv[i]);
		i += took;
	}
	if (i >= argc)
		return ctl_usage("no command; allowed are %s (%s --help tells more)", names,
				 program);
	for (size_t n = 0; n < count; n++)
		if (strcmp(table[n].name, argv[i]) == 0)
			return table[n].run(ctl, argc - i, argv + i);
	return ctl_usage("unknown command \"%s\"; allowed are %s", argv[i], names);
}

int ctl_main(int argc, char **argv)
{
	struct ctl ctl = {0};
	int status =
		ctl_dispatch(&ctl, "dmasyncctl", commands, sizeof commands / sizeof *commands,
			     "Looks into dmasyncd, the DMA cache maintenance daemon, and tries "
			     "it.\n",
			     argc, argv);

	/* A full disk or a closed pipe must not look like success. */
	if ((fflush(stdout) != 0 || ferror(stdout)) && status == CTL_OK)
		return ctl_fail("standard output could not be written: %s", strerror(errno));
	return status;
}
