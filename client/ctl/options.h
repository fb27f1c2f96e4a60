/* SPDX-License-Identifier: MIT */
/*
 * Long options of one command, from one table: parsing, --help and the sentences about what is
 * wrong. --json, --socket and --help are understood everywhere. Main thread.
 */
#ifndef DMASYNC_CTL_OPTIONS_H
#define DMASYNC_CTL_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/ctl/ctl.h"

enum option_kind {
	OPTION_FLAG,	 /* bool: true */
	OPTION_STRING,	 /* const char *: points into argv */
	OPTION_MAYBE,	 /* const char *: --name=VALUE, or "" for a bare --name */
	OPTION_COUNT,	 /* uint64_t */
	OPTION_SIZE,	 /* uint64_t: bytes */
	OPTION_DURATION, /* uint64_t: nanoseconds */
	OPTION_CHOICE,	 /* int: value of one of choices */
};

struct option_choice {
	const char *name; /* NULL ends the list */
	int value;
};

struct option {
	const char *name;     /* without the dashes */
	const char *argument; /* "SIZE", for --help; NULL for a flag */
	enum option_kind kind;
	void *value; /* of the kind's type; untouched where the option is not given */
	uint64_t min, max;
	const struct option_choice *choices;
	const char *help;
};

struct option_usage {
	const char *synopsis; /* "bench sg [OPTION...]" */
	const char *about;    /* paragraphs of --help, each line ends in \n */
	const struct option *options;
	size_t count;
	const char *operand; /* what one operand may be given as ("PATH"), or NULL: none */
};

/*
 * True: run the command. False: return *ret_status, all was said. *ret_operand (may be NULL where
 * usage->operand is) is untouched where no operand is given.
 */
bool options_parse(struct ctl *ctl, const struct option_usage *usage, int argc, char **argv,
		   const char **ret_operand, int *ret_status);

/* --json, --socket (with the argument behind it), as options_parse(); 0: something else. */
int options_common(struct ctl *ctl, const char *argument, const char *next, int *ret_status);

/* The options that every command takes, for --help. */
extern const char options_common_help[];

#endif
