/* SPDX-License-Identifier: MIT */
/*
 * The errata this project knows, and which of them are in force on this machine: told by the MIDR
 * of its CPUs, or by a parameter of its kernel. Any thread; nothing is remembered.
 */
#ifndef DMASYNC_CACHE_ERRATA_H
#define DMASYNC_CACHE_ERRATA_H

#include <stddef.h>
#include <stdint.h>

#include "proto/message.h"

/* A row of the one table. It has a model or a parameter. */
struct cache_erratum {
	uint32_t bit;	       /* DMASYNC_ERRATUM_*, of this row alone */
	uint32_t model;	       /* MIDR without variant and revision; 0: no CPU tells */
	uint8_t first, last;   /* variant << 4 | revision, both included */
	const char *parameter; /* of the kernel, where somebody knew better; NULL: none */
	const char *name;
	const char *changes; /* what is done about it here */
	const char *source;  /* where it is described */
};

const struct cache_erratum *cache_errata(size_t *ret_count);

/* DMASYNC_ERRATUM_* of a CPU with this MIDR. */
uint32_t cache_errata_of(uint32_t midr);

/*
 * DMASYNC_ERRATUM_* of this machine: of every CPU that is online, and by the kernel's parameters.
 * `root`: "", or a directory with copies of /sys and /proc in tests. *ret_cpus (may be NULL): CPUs
 * whose MIDR could be read; 0 says that errata told by MIDR are not known.
 */
uint32_t cache_errata_here(const char *root, unsigned int *ret_cpus);

/*
 * Is there a CPU for whose sake the kernel traps the line operations of EL0? Linux then does so on
 * every CPU of the machine. Returns its row's name, constant; NULL where there is none.
 */
const char *cache_errata_trapping(const char *root);

#endif
