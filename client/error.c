/* SPDX-License-Identifier: MIT */
/*
 * What errors mean in words, and the version. Pure functions, any thread.
 */
#include <stdio.h>
#include <string.h>

#include "client/internal.h"

DMASYNC_PUBLIC const char *dmasync_version(void)
{
	return DMASYNC_VERSION;
}

/* What an errno means here, where the C library's words would mislead; else NULL. */
static const char *meaning(int error)
{
	switch (error) {
	case 0:
		return "no error";
	case -E2BIG:
		return "a parameter struct has fields that this library does not know, or the "
		       "batch covers more lines than the daemon allows";
	case -EACCES:
		return "no permission to reach dmasyncd; join the group dmasync";
	case -EAGAIN:
		return "the ring is full; read a completion first";
	case -EBUSY:
		return "a batch is open already; submit or abort it first";
	case -ECANCELED:
		return "the batch was cancelled because its queue is going away";
	case -ECHILD:
		return "this process is a fork of the one that connected; connect anew";
	case -ECONNREFUSED:
	case -ENOENT:
		return "no such buffer, or no dmasyncd listens; start it with: "
		       "systemctl start dmasyncd.socket";
	case -ECONNRESET:
		return "dmasyncd is gone; connect again";
	case -EMSGSIZE:
		return "the batch has more units than the queue; create it with more units";
	case -ENODATA:
		return "nothing is in flight, so no completion can come";
	case -ENODEV:
		return "this machine does not have the memory asked for";
	case -EOPNOTSUPP:
		return "dmasyncd or this machine cannot do that";
	case -EOVERFLOW:
		return "offset, length, rows and stride overflow; length and rows are below 2^32";
	case -EPROTO:
		return "dmasyncd answered nonsense, or the shared ring is damaged";
	case -ERANGE:
		return "the range does not lie inside its buffer";
	case -ETIMEDOUT:
		return "dmasyncd did not answer in time";
	}
	return NULL;
}

DMASYNC_PUBLIC size_t dmasync_strerror(int error, char *text, size_t size)
{
	const char *sentence = meaning(error);
	char buffer[128];
	int n;

	if (!sentence)
		sentence = strerror_r(error < 0 ? -error : error, buffer, sizeof buffer);
	n = snprintf(text, size, "%s", sentence);
	return n < 0 ? 0 : (size_t)n;
}

static const char *error_name(int error)
{
	const char *name = strerrorname_np(-error);

	return name ? name : "unknown error";
}

static const char *reason_text(uint32_t reason)
{
	switch (reason) {
#define REASON_CASE(name, value, error, text)                                                      \
	case value:                                                                                \
		return text;
		DMASYNC_REASONS(REASON_CASE)
#undef REASON_CASE
	}
	return NULL;
}

DMASYNC_PUBLIC size_t dmasync_completion_text(const struct dmasync_completion *completion,
					      char *text, size_t size)
{
	const char *reason = reason_text(completion->reason);
	char words[256];
	int n;

	if (completion->status == 0)
		return dmasync_strerror(0, text, size);
	if (completion->reason == DMASYNC_REASON_NONE || !reason) {
		/* Also a reason of a later daemon: the errno is all that is known of it. */
		dmasync_strerror(completion->status, words, sizeof words);
		reason = words;
	}
	if (completion->bad_entry != DMASYNC_NO_ENTRY)
		n = snprintf(text, size, "entry %u: %s (%s)", completion->bad_entry, reason,
			     error_name(completion->status));
	else
		n = snprintf(text, size, "%s (%s)", reason, error_name(completion->status));
	return n < 0 ? 0 : (size_t)n;
}
