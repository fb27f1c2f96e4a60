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

#endif
