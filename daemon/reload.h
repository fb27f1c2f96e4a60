/* SPDX-License-Identifier: MIT */
/* The configuration as it is in force: fitted to the machine, and read again. Control thread. */
#ifndef DMASYNC_RELOAD_H
#define DMASYNC_RELOAD_H

#include "daemon/config.h"

struct daemon;

/* What follows from the machine, whatever the configuration says. */
void daemon_fit_config(struct daemon *daemon, struct config *config);

/* Brings every worker what of the configuration is its own. */
void daemon_tune_workers(struct daemon *daemon);

/* SIGHUP. The log says what changed. */
void daemon_reload(struct daemon *daemon);

#endif
