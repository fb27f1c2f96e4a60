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

#include "daemon/loop.h"
#include "proto/types.h"

/* The build says where (sysconfdir). */
#ifndef CONFIG_PATH
#define CONFIG_PATH "/etc/dmasync/dmasyncd.conf"
#endif

/* Longest sentence that a refusal writes into `text`, terminator included. */
#define CONFIG_TEXT_SIZE 1024

#define CONFIG_CPUS_MAX 64u    /* as many as workers */
#define CONFIG_CPU_LIMIT 1024u /* CPU numbers lie below: CPU_SETSIZE */

enum config_type {
	CONFIG_COUNT,	/* uint32_t */
	CONFIG_COUNT64, /* uint64_t */
	CONFIG_BYTES,	/* uint64_t; K, M, G, T may follow the number */
	CONFIG_BOOL,
	CONFIG_LEVEL,	  /* int, a syslog level by name */
	CONFIG_LOOP,	  /* enum loop_kind by name */
	CONFIG_PATH_NAME, /* char *, absolute, fits a socket address; NULL where unset */
	CONFIG_POLICY,	  /* bool, true for fifo */
	CONFIG_GROUP,	  /* char *, a group that exists; NULL where unset */
	CONFIG_CPUS,	  /* char *, a list of CPU numbers and ranges; NULL where unset */
	CONFIG_BACKEND,	  /* of an exporter: not in struct config at `offset` */
};

/* A row of the one table of keys. */
struct config_key {
	const char *section, *key;
	enum config_type type;
	size_t offset; /* in struct config */
	uint64_t min, max;
	const char *unit;     /* of a number: "microseconds" */
	const char *fallback; /* the default, as the file would write it; NULL: unset */
	bool reload;	      /* SIGHUP changes it */
	const char *help;     /* one sentence */
};

/* [exporter NAME] backend=: one line of the policy. */
struct config_exporter {
	char name[32];
	enum dmasync_backend backend; /* DIRECT, KERNEL, NONE, or AUTO */
	bool refuse;
};

struct config {
	/* [daemon] */
	char *socket;	     /* path; NULL: DMASYNC_SOCKET_PATH unless systemd passed one */
	uint32_t workers;    /* not looked at where cpus is set */
	char *cpus;	     /* "2,3": one worker each, in order; NULL: chosen */
	enum loop_kind loop; /* of the control loop and the workers */
	uint32_t spin_us, spin_min_us;
	bool fifo;	   /* policy = fifo; only with cpus */
	uint32_t priority; /* of it */
	uint32_t rt_share; /* percent */
	uint32_t slice_us;
	uint32_t slice_lines;
	uint32_t normal_share, bulk_share; /* percent */
	uint32_t overruns_to_move;	   /* 0: no queue moves */
	uint64_t split_lines;		   /* 0: no batch is */
	bool share_barrier;
	uint32_t share_barrier_lines, share_barrier_us;
	int log_level;
	char *observer_group;	   /* who may see others' batch records beside root and our user */
	char *realtime_group;	   /* who may have realtime queues beside them */
	bool allow_simulated;	   /* simulated buffers, for tests */
	uint32_t helper_threads;   /* at least 2: one client never has them all */
	uint32_t fence_timeout_ms; /* 0: no limit */
	bool second_pass;	   /* every line operation twice: Arm SI L1 4311569 */
	uint32_t stop_timeout_ms;  /* 0: no limit */

	/* [limits] of one connection, unless it says total */
	uint32_t max_connections; /* total */
	uint32_t max_buffers;
	uint64_t max_buffer_bytes;
	uint64_t max_total_buffer_bytes; /* total */
	uint64_t max_total_queue_bytes;	 /* total */
	uint32_t max_queues;
	uint32_t max_depth;
	uint32_t max_units;
	uint32_t max_requests; /* unanswered requests */
	uint64_t max_batch_lines;
	uint32_t handshake_timeout_ms;

	/* of one user, over all its connections; 0: a share of what there is (account.h) */
	uint32_t user_connections;
	uint32_t user_buffers;
	uint64_t user_buffer_bytes;
	uint32_t user_queues;
	uint64_t user_queue_bytes;
	uint32_t user_files;
	uint32_t user_batches;
	uint32_t user_requests;

	/* [exporter NAME] */
	struct config_exporter *exporters;
	size_t exporter_count;

	/* where it came from, to read it again: the file (NULL: none), then the options */
	char *file;
	struct config_override *overrides;
	size_t override_count;
};

/* A key that an option has set, over whatever the file says. */
struct config_override {
	char *section, *key, *value, *where;
};

const struct config_key *config_keys(size_t *ret_count);

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

/* The same, and remembered: it stands when the file is read again. */
int config_override(struct config *config, const char *section, const char *key, const char *value,
		    const char *where, char *text, size_t text_size);

/* Defaults, file and options as *config was made of, read anew. Free with config_clear(). */
int config_reread(const struct config *config, struct config *ret, char *text, size_t text_size);

/*
 * SIGHUP: takes from `fresh` what can change while running, and says in `text` what that was and
 * which changed keys need a restart: "spin_us 50 -> 7; a change of workers needs a restart". ""
 * where nothing differs. 1 where something needs a restart, else 0. Both stay valid.
 */
int config_reload(struct config *config, const struct config *fresh, char *text, size_t text_size);

/* The value of a key as the file would write it, "" where unset. */
void config_value(const struct config *config, const struct config_key *key, char *text,
		  size_t text_size);

/* What a key takes, for sentences and help: "0 to 10000 microseconds". */
void config_allowed(const struct config_key *key, char *text, size_t text_size);

/* What the configuration has for an exporter; NULL where it says nothing. */
const struct config_exporter *config_exporter(const struct config *config, const char *name);

/* A list as cpus= takes it: "2,3" or "2-3", no CPU twice. -EINVAL, -ERANGE. */
int config_parse_cpus(const char *list, uint32_t cpus[CONFIG_CPUS_MAX], uint32_t *ret_count);

/* config.c for config_file.c: sets every key of `copy` as `config` has it. Free `copy` on success.
 */
int config_copy(const struct config *config, struct config *copy);

#endif
