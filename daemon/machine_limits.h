/* SPDX-License-Identifier: MIT */
/*
 * Fitting the configured limits to what the machine gives this process: files, mappings, memory, so
 * that the limits of the configuration are reached before those of the kernel. Control thread.
 */
#ifndef DMASYNC_MACHINE_LIMITS_H
#define DMASYNC_MACHINE_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/config.h"

struct limits_machine {
	uint64_t files;	 /* RLIMIT_NOFILE */
	uint64_t maps;	 /* vm.max_map_count */
	uint64_t memory; /* bytes of RAM, or of the memory cgroup where that is less */
};

/* Raises the soft limit of open files to the hard one, and looks. */
void limits_read(struct limits_machine *ret);

/*
 * Lowers limits of *config that the machine cannot honour; what was lowered, and why, is a sentence
 * in text, "" where nothing was.
 */
void limits_fit(struct config *config, const struct limits_machine *machine, char *text,
		size_t text_size);

/*
 * What is left for all clients: files of the process and mappings, but for the daemon's own, and
 * for the fds of one received packet, which are open for a moment whatever it was.
 */
uint64_t limits_client_files(const struct config *config, const struct limits_machine *machine);
uint64_t limits_client_maps(const struct limits_machine *machine);
/* Unanswered requests and unread answers, of at most DMASYNC_MESSAGE_MAX bytes each. */
uint64_t limits_messages(const struct limits_machine *machine);
/* Streams of batch records: each costs the control thread a look at all records ten times a second.
 */
#define LIMITS_WATCHES 64u

#endif
