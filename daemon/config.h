/* SPDX-License-Identifier: MIT */
/*
 * The configuration: defaults, then the file (INI, inih), then the options. One table of keys in
 * config.c drives parsing, ranges, error sentences, what SIGHUP may change, and the man page.
 */
#ifndef DMASYNC_CONFIG_H
#define DMASYNC_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/types.h"

#define CONFIG_PATH "/etc/dmasync/dmasyncd.conf"

/* [exporter NAME] backend=: one line of the policy. */
struct config_exporter {
	char name[32];
	enum dmasync_backend backend; /* DIRECT, KERNEL, NONE, or AUTO */
	bool refuse;
};

struct config {
	/* [daemon] */
	char *socket;	      /* path; NULL: DMASYNC_SOCKET_PATH unless systemd passed one */
	uint32_t workers;     /* 1 .. 64; 1 */
	char *cpus;	      /* "2,3": one worker each, in order; NULL: chosen */
	uint32_t spin_us;     /* 0 .. 10000; 50 */
	uint32_t slice_lines; /* 64 .. 2^20; 4096 */
	int log_level;
	char *observer_group;	 /* who may see others' batch records; NULL: root alone */
	bool allow_simulated;	 /* simulated buffers, for tests; no */
	uint32_t helper_threads; /* 1 .. 64; 8 */

	/* [limits] of one connection, unless it says total */
	uint32_t max_connections; /* total */
	uint32_t max_buffers;
	uint64_t max_buffer_bytes;
	uint64_t max_total_buffer_bytes; /* total */
	uint32_t max_queues;
	uint32_t max_depth;
	uint32_t max_units;
	uint32_t max_requests; /* unanswered requests */
	uint64_t max_batch_lines;
	uint32_t handshake_timeout_ms;

	/* [exporter NAME] */
	struct config_exporter *exporters;
	size_t exporter_count;
};

/* All defaults. Free with config_clear(). */
int config_defaults(struct config *config);
void config_clear(struct config *config);

/*
 * Reads `path` over *config. On error a sentence with file, line, the value and what is allowed in
 * text, and *config untouched. -ENOENT: no such file (fine where it is the default path).
 */
int config_read(struct config *config, const char *path, char *text, size_t text_size);

/* One key as "spin_us" of [daemon], the same checks; `where` stands in the sentence ("--spin-us").
 */
int config_set(struct config *config, const char *section, const char *key, const char *value,
	       const char *where, char *text, size_t text_size);

/*
 * SIGHUP: takes from `fresh` what can change while running; names in `text` the changed keys that
 * need a restart. Both stay valid.
 */
void config_reload(struct config *config, const struct config *fresh, char *text, size_t text_size);

/* The backend that the configuration has for an exporter; AUTO where it says nothing. */
const struct config_exporter *config_exporter(const struct config *config, const char *name);

#endif
