/* SPDX-License-Identifier: MIT */
/*
 * What the files of `dmasyncctl selftest` share: the device that writes frames, and how what the
 * CPU reads of them is judged line by line. Main thread.
 */
#ifndef DMASYNC_CTL_SELFTEST_H
#define DMASYNC_CTL_SELFTEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <dmasync/dmasync.h>

#include "client/ctl/json.h"

/* ---- lines (selftest_lines.c) ---- */

/* What was seen of a line, the worst of all rounds; the characters of the map. */
enum selftest_line {
	SELFTEST_UNCHANGED, /* '-' the new frame has the old bytes there: cannot be judged */
	SELFTEST_FRESH,	    /* '.' the device's bytes */
	SELFTEST_MIXED,	    /* '+' neither the old nor the new bytes alone */
	SELFTEST_STALE,	    /* '#' the bytes of the frame before */
};

/* One way of reading frames: with syncs by one backend, or without any. */
struct selftest_way {
	bool synced;
	enum dmasync_backend backend; /* asked for; what it became stands in info */
	bool refused;		      /* not possible on this machine; `why` says so */
	char why[256];
	struct dmasync_buffer_info info;
	uint64_t rounds;
	size_t line;	/* bytes */
	uint8_t *lines; /* enum selftest_line of each */
	size_t count;
};

/* Compares the lines of one round; `count` lines in each of the three. */
void selftest_judge(struct selftest_way *way, const void *old, const void *seen, const void *new);

size_t selftest_count(const struct selftest_way *way, enum selftest_line kind);

enum selftest_verdict {
	SELFTEST_WORKS,	       /* stale lines without sync, none with any backend */
	SELFTEST_BROKEN,       /* a backend that guarantees left lines that are not the device's */
	SELFTEST_INCONCLUSIVE, /* no stale line without sync: coherent, or nothing was shown */
};

enum selftest_verdict selftest_conclude(const struct selftest_way *ways, size_t count);

/* "works", "broken", "coherent or inconclusive", and what that means in words. */
const char *selftest_verdict_name(enum selftest_verdict verdict);
const char *selftest_why(const struct selftest_way *ways, size_t count,
			 enum selftest_verdict verdict);

/* At most 32 rows of 64 characters, equal rows once. */
void selftest_print_map(const struct selftest_way *way, FILE *file);

/* [{"offset", "bytes"}] of the stale and mixed lines. */
json *selftest_json_ranges(const struct selftest_way *way);

/* ---- a device that writes frames ---- */

struct selftest_device {
	/*
	 * Buffers that the device will write, registered with these DMASYNC_IMPORT_ flags; the one
	 * that is looked at in *ret. A negative errno: this backend cannot be had, and
	 * dmasync_error_text() says why; CTL_FAILED: all was said.
	 */
	int (*attach)(struct selftest_device *device, struct dmasync *ds, uint32_t flags,
		      struct dmasync_buffer **ret);
	/*
	 * Has the device write a frame that differs from the one before, and returns when it has.
	 * Meanwhile it keeps the first `window` bytes in the CPU's caches. CTL_OK, or all was said.
	 */
	int (*frame)(struct selftest_device *device, uint64_t window);
	/*
	 * What the device wrote, where this program can see it past the cache; else NULL, and the
	 * caller has to sync and to displace the caches.
	 */
	const void *(*written)(struct selftest_device *device);
	void (*detach)(struct selftest_device *device); /* after every attach */
	void (*close)(struct selftest_device *device);	/* frees it */
	char name[128];
	char note[128]; /* what changes from frame to frame */
};

/* The program itself writes the device's side of a simulated buffer. NULL: no memory. */
struct selftest_device *selftest_simulated_new(uint64_t bytes);

/* A V4L2 capture device in its present format; NULL: all was said. */
struct selftest_device *selftest_v4l2_open(const char *path, enum dmasync_memory memory);

/* Reads a word of every line, so that the lines lie in this CPU's caches. */
void selftest_touch(const void *memory, uint64_t bytes);

#endif
