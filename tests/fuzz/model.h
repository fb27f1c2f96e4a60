/* SPDX-License-Identifier: MIT */
/*
 * What PROTOCOL.md says of entries, written down once more and as plainly as possible: which rules
 * one breaks, and which lines it touches. No state but the caller's; one thread.
 */
#ifndef TESTS_FUZZ_MODEL_H
#define TESTS_FUZZ_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/cache/batch.h"

struct model_entry {
	uint32_t broken; /* a bit for each enum dmasync_reason that it could be refused with */
	bool elided;
	bool flush, kernel;
	uint32_t step;	      /* bytes of a line */
	uint64_t least, most; /* bounds of its lines, where it is right and not elided */
};

/* `buffer`: what its handle names, or NULL. `rows`: of a strided entry; else NULL. */
struct model_entry model_entry(const struct dmasync_unit *entry,
			       const struct dmasync_unit_rows *rows,
			       const struct cache_buffer *buffer, uint32_t line);

/* Calls `each` for every line, some of them more than once. Only where nothing is broken. */
void model_lines(const struct dmasync_unit *entry, const struct dmasync_unit_rows *rows,
		 const struct cache_buffer *buffer, uint32_t step,
		 void (*each)(void *context, uint64_t address), void *context);

#endif
