/* SPDX-License-Identifier: MIT */
/* The command line of dmasyncd. Control thread, at the start. */
#ifndef DMASYNC_OPTIONS_H
#define DMASYNC_OPTIONS_H

#include <stddef.h>
#include <stdio.h>

#include "daemon/config.h"

enum options_result {
	OPTIONS_RUN,	 /* *config is complete: defaults, file, options */
	OPTIONS_DONE,	 /* --help or --version was answered on `out` */
	OPTIONS_REFUSED, /* a sentence is in text */
};

/* *config is to be cleared after OPTIONS_RUN, and untouched otherwise. */
enum options_result options_load(int argc, char *argv[], FILE *out, struct config *config,
				 char *text, size_t text_size);

#endif
