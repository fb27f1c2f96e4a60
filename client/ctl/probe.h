/* SPDX-License-Identifier: MIT */
/*
 * The parts of `dmasyncctl probe`. Each looks at one side of the machine, as it is seen below
 * `root` ("" or, in tests, a directory with copies of /sys, /proc and /dev), and adds what it found
 * to a report. Nothing here needs a daemon or privileges. Main thread.
 */
#ifndef DMASYNC_CTL_PROBE_H
#define DMASYNC_CTL_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "client/ctl/coherence.h"
#include "client/ctl/json.h"

/* Each prints its section as text where `json` is NULL, else adds a member to it. */
void probe_cpus(const char *root, json *document);
void probe_cache(json *document);
void probe_errata(const char *root, json *document);
void probe_memory(const char *root, json *document);
void probe_allocators(const char *root, json *document);
void probe_devices(const char *root, enum coherence_default architecture, json *document);
void probe_io_uring(json *document);

/* Lists DMASYNC_ERRATUM_*: as text, or as members of `array`. */
void probe_list_errata(uint32_t errata, json *array);

/* "Cortex-A53 r0p2", "implementer 0x41 part 0xd03 r0p2" */
void probe_midr_text(uint64_t midr, char *text, size_t size);

/* ---- files of one line (probe_files.c) ---- */

/* The first line of <root><path>, without its end; false where it cannot be read. */
bool probe_read_line(char *text, size_t size, const char *root, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/*
 * Calls `each` for the names in <root><directory> that start with `prefix`, in the order of their
 * numbers. Returns how many there were, 0 where there is no such directory.
 */
size_t probe_each(const char *root, const char *directory, const char *prefix,
		  void (*each)(void *context, const char *name), void *context);

/* The last part of the target of the symbolic link <directory>/<link>; "" where there is none. */
void probe_link_name(const char *directory, const char *link, char *ret, size_t size);

#endif
