/* SPDX-License-Identifier: MIT */
/*
 * The words for the values of proto/types.h, as people write and read them. Constants, any thread.
 */
#ifndef DMASYNC_CTL_NAMES_H
#define DMASYNC_CTL_NAMES_H

#include "client/ctl/options.h"

extern const struct option_choice names_backends[];   /* enum dmasync_backend */
extern const struct option_choice names_directions[]; /* enum dmasync_direction */
extern const struct option_choice names_classes[];    /* enum dmasync_class */
extern const struct option_choice names_memories[];   /* enum dmasync_memory */
extern const struct option_choice names_kinds[];      /* enum dmasync_buffer_kind */

/* "unknown" for a value that is not in the list. */
const char *names_of(const struct option_choice *names, int value);

/* The word for a backend as a DMASYNC_IMPORT_ flag; 0 for auto. */
uint32_t names_backend_flag(int backend);

/* A DMASYNC_COMPLETION_ flag: its bit and word; NULL ends the list. */
struct names_flag {
	uint32_t flag;
	const char *name;
};
extern const struct names_flag names_completion_flags[];

#endif
