/* SPDX-License-Identifier: MIT */
/*
 * What a client's fd is, and its mapping: everything about a buffer that may block. No state of its
 * own; called by whoever may block: helper threads of the daemon, the caller in inline mode.
 */
#ifndef DMASYNC_BUFFER_MAP_H
#define DMASYNC_BUFFER_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "daemon/cache/cache.h"
#include "proto/message.h"

struct buffer_facts {
	int error; /* 0, or why this fd can be no buffer; then only `text` counts */
	enum dmasync_buffer_kind kind;
	uint64_t file_size; /* bytes */
	uint64_t page; /* bytes: mappings are whole multiples (huge pages of a hugetlb memfd) */
	char exporter[DMASYNC_NAME_SIZE];
	char text[DMASYNC_TEXT_SIZE];
};

/*
 * Tells what the fd is without asking its file: its seals, then the first exp_name line of its
 * fdinfo. Only a file that is known by then to be a memfd or a dma-buf is asked for its size.
 */
void buffer_inspect(int fd, struct buffer_facts *ret);

/* The first exp_name of an fdinfo text, cut to the size of ret; false where there is none. */
bool buffer_exporter(const char *fdinfo, char ret[DMASYNC_NAME_SIZE]);

struct buffer_mapping {
	/* in */
	int fd;
	enum dmasync_buffer_kind kind;
	enum dmasync_backend backend;
	const char *exporter;
	uint64_t size; /* bytes of the buffer, <= the file's */
	uint64_t page;
	bool clean; /* clean all of it once it is mapped */
	const struct cache *cache;
	/* Calls fn(argument); false where it faulted. The daemon's is guard_run() (guard.h). */
	bool (*guard)(void (*fn)(void *argument), void *argument);

	/* out */
	int error; /* 0, or why not; then nothing is mapped and only `text` counts */
	void *base;
	uint64_t mapped_size;
	bool locked;
	int lock_error; /* mlock's, 0 where it succeeded or was not needed */
	char text[DMASYNC_TEXT_SIZE];
};

/*
 * The bytes to register of what was inspected, for the backend chosen; `asked`: how many the client
 * wants, 0 for all. 0 with the errno in *error and a sentence in text where that cannot be.
 */
uint64_t buffer_choose_size(const struct buffer_facts *facts, enum dmasync_backend backend,
			    uint64_t asked, int *error, char text[DMASYNC_TEXT_SIZE]);

/* Bytes that buffer_map() will map, and in how many mappings: what is charged before. */
uint64_t buffer_mapped_size(enum dmasync_backend backend, uint64_t size, uint64_t page);
uint32_t buffer_map_count(enum dmasync_backend backend);

/* Maps, populates, locks and cleans as the backend needs it. The fd stays the caller's. */
void buffer_map(struct buffer_mapping *mapping);

void buffer_unmap(enum dmasync_backend backend, void *base, uint64_t mapped_size);

#endif
