/* SPDX-License-Identifier: MIT */
/*
 * The last batch records of one worker: a ring that one worker overwrites and anybody may read.
 * A reader copies a record between two looks at its sequence word and drops what changed meanwhile.
 */
#ifndef DMASYNC_RECORDS_H
#define DMASYNC_RECORDS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/message.h"

#define RECORDS_SIZE 1024u

struct record_slot {
	_Atomic uint64_t sequence; /* odd while being written */
	_Atomic uint64_t words[sizeof(struct dmasync_batch_record) / 8];
};

struct records {
	_Atomic uint64_t written; /* records so far; record n stands in slot n % RECORDS_SIZE */
	struct record_slot slot[RECORDS_SIZE];
};

/* The worker. */
void records_add(struct records *records, const struct dmasync_batch_record *record);

/* The worker, soon: the lines of the next record, which are in no near cache any more. */
static inline void records_prefetch(struct records *records)
{
	uint64_t n = atomic_load_explicit(&records->written, memory_order_relaxed);
	const char *slot = (const char *)&records->slot[n % RECORDS_SIZE];

	for (size_t i = 0; i < sizeof(struct record_slot); i += 64)
		__builtin_prefetch(slot + i, 1);
}

/*
 * Anybody: copies up to `max` records starting at *cursor (a count as `written`), advances *cursor,
 * and adds to *lost what was overwritten before it could be read. Returns how many were copied.
 */
uint32_t records_read(const struct records *records, uint64_t *cursor, uint32_t max,
		      struct dmasync_batch_record *ret, uint64_t *lost);

#endif
