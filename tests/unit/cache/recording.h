/* SPDX-License-Identifier: MIT */
/*
 * Recording operations under the real check and walk of a batch, and a model of what must come of
 * them. For the one thread of a test.
 */
#ifndef TESTS_UNIT_CACHE_RECORDING_H
#define TESTS_UNIT_CACHE_RECORDING_H

#include <stddef.h>
#include <stdint.h>

#include "daemon/cache/batch.h"

#define PAGES 8192u
#define BASE UINT64_C(0x10000000)
#define UNITS 256u

/* ---- what was recorded ---- */

enum event_type { OPEN, CLEAN, FLUSH, COMPLETE };
struct event {
	enum event_type type;
	uintptr_t address; /* of the line; COMPLETE: whether something was flushed */
};
#define MAX_EVENTS (1u << 20)
extern struct event trace[MAX_EVENTS];
extern size_t events;

/* Its operations record, line by line, in walk.h's loop. The test sets its line. */
extern struct cache cache;

/* ---- batches ---- */

/*
 * Handle 0 is PAGES bytes at BASE; 1 follows it and ends in the middle of a line; 2 is a buffer
 * whose devices are all coherent.
 */
#define BUFFERS 3u
extern const struct cache_buffer buffers[BUFFERS];
const struct cache_buffer *look_up(void *context, uint32_t handle);

/* Forgets units and events. */
void start_batch(void);
void add_entry(uint32_t buffer, enum dmasync_sync sync, enum dmasync_direction direction,
	       uint64_t offset, uint32_t length);
void add_rows(uint32_t buffer, enum dmasync_sync sync, enum dmasync_direction direction,
	      uint64_t offset, uint32_t length, uint32_t rows, uint64_t stride);
extern uint32_t unit_count; /* added so far */

/* As a worker does it: `chunk` units checked at a time, `budget` a slice, from unit `first`. */
struct cache_batch run_batch(uint32_t first, uint32_t chunk, uint32_t budget);
struct cache_batch run_at_once(void);

/* ---- the model: which lines a range touches, byte by byte ---- */

#define MODEL_LINES (4 * PAGES / 16)
extern unsigned char model_clean[MODEL_LINES], model_flush[MODEL_LINES];

void clear_model(void);
void model_bytes(unsigned char *model, uint64_t offset, uint64_t length);

/* Opening fence, operations, one barrier; each line of the model exactly once and no other. */
void check_trace_against_model(const struct cache_batch *batch);

#endif
