/* SPDX-License-Identifier: MIT */
/*
 * From a submission to a batch, and from a reason to its errno: the same for the daemon's workers
 * and for in-process use. Inline, as both stand on every batch's way. No state.
 */
#ifndef DMASYNC_CACHE_SUBMISSION_H
#define DMASYNC_CACHE_SUBMISSION_H

#include <errno.h>

#include "daemon/cache/batch.h"

/*
 * Begins the batch of a submission. The submission is the private copy; its own fields are checked,
 * its units are for cache_batch_check(). `mirror` has `unit_count` places, a power of two, as the
 * queue's unit ring; `alone` takes the entry that travels inside a submission without units: then
 * batch->count is 1 and nothing is left to copy. NONE, or why the batch fails before its units are
 * looked at.
 */
static inline enum dmasync_reason cache_batch_take(struct cache_batch *batch,
						   const struct dmasync_submission *submission,
						   union cache_unit *mirror, uint32_t unit_count,
						   union cache_unit *alone)
{
	uint32_t count = submission->unit_count;

	if (count == 0) {
		alone->entry = submission->entry;
		cache_batch_begin(batch, alone, 0, 0, 1);
	} else {
		cache_batch_begin(batch, mirror, unit_count - 1, submission->unit_position, count);
	}
	if (submission->flags)
		return DMASYNC_REASON_BAD_FLAGS;
	if (submission->deadline_us | submission->reserved[0] | submission->reserved[1])
		return DMASYNC_REASON_RESERVED_BITS;
	if (count > unit_count)
		return DMASYNC_REASON_TOO_MANY_UNITS;
	if (count == 0 && !(submission->entry.word | submission->entry.length) &&
	    submission->entry.offset == 0)
		return DMASYNC_REASON_EMPTY_BATCH;
	if (count > 0 &&
	    (submission->entry.word | submission->entry.length || submission->entry.offset))
		return DMASYNC_REASON_RESERVED_BITS;
	return DMASYNC_REASON_NONE;
}

/* Positive. */
static inline int cache_reason_errno(enum dmasync_reason reason)
{
	static const int errors[] = {
#define ERRNO_OF(name, value, error, text) [value] = error,
		DMASYNC_REASONS(ERRNO_OF)
#undef ERRNO_OF
	};

	return errors[reason];
}

#endif
