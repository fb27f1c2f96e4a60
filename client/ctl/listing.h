/* SPDX-License-Identifier: MIT */
/* A list of records as a command prints it: a JSON array with --json, else a table. Main thread. */
#ifndef DMASYNC_CTL_LISTING_H
#define DMASYNC_CTL_LISTING_H

#include <dmasync/dmasync.h>

#include "client/ctl/ctl.h"
#include "client/ctl/format.h"
#include "client/ctl/json.h"

struct listing {
	json *array;	     /* one of the two is NULL */
	struct table *table; /* its heads are filled in */
};

/* `layout` as table_new() takes it, with a head for each of its columns. */
void listing_begin(struct listing *listing, const struct ctl *ctl, const char *layout,
		   const char *const *heads);

/*
 * Prints it under `name`, the command's, or explains the error `r` of the request that should have
 * filled it; frees it. The command's exit status.
 */
int listing_end(struct listing *listing, const char *name, struct dmasync *ds, int r);

#endif
