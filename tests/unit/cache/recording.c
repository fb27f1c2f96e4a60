/* SPDX-License-Identifier: MIT */
/*
 * Recording operations and their model. For the one thread of a test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/cache/walk.h"
#include "tests/unit/cache/recording.h"

struct event trace[MAX_EVENTS];
size_t events;

static void add_event(enum event_type type, uintptr_t address)
{
	assert_true(events < MAX_EVENTS);
	trace[events++] = (struct event){type, address};
}

static void record_open(void)
{
	add_event(OPEN, 0);
}

static void record_clean_line(uintptr_t address, size_t line)
{
	(void)line;
	add_event(CLEAN, address);
}

static void record_flush_line(uintptr_t address, size_t line)
{
	(void)line;
	add_event(FLUSH, address);
}

static void record_clean(uintptr_t start, uintptr_t end, size_t line)
{
	cache_walk(start, end, line, record_clean_line);
}

static void record_flush(uintptr_t start, uintptr_t end, size_t line)
{
	cache_walk(start, end, line, record_flush_line);
}

static void record_complete(bool flushed)
{
	add_event(COMPLETE, flushed);
}

struct cache cache = {
	.ops = {.name = "recording",
		.open = record_open,
		.clean = record_clean,
		.flush = record_flush,
		.complete = record_complete},
};

const struct cache_buffer buffers[BUFFERS] = {
	{.base = BASE, .size = PAGES, .backend = DMASYNC_BACKEND_DIRECT, .guarantee = true},
	{.base = BASE + PAGES, .size = 4000, .backend = DMASYNC_BACKEND_DIRECT, .guarantee = true},
	{.base = BASE + 2 * PAGES,
	 .size = PAGES,
	 .backend = DMASYNC_BACKEND_NONE,
	 .guarantee = true},
};

const struct cache_buffer *look_up(void *context, uint32_t handle)
{
	(void)context;
	return handle < BUFFERS ? &buffers[handle] : NULL;
}

static union cache_unit units[UNITS], given[UNITS];
uint32_t unit_count;

void start_batch(void)
{
	unit_count = 0;
	events = 0;
}

void add_entry(uint32_t buffer, enum dmasync_sync sync, enum dmasync_direction direction,
	       uint64_t offset, uint32_t length)
{
	assert_true(unit_count < UNITS);
	given[unit_count++].entry = (struct dmasync_unit){
		dmasync_unit_word(buffer, sync, direction, 0), length, offset};
}

void add_rows(uint32_t buffer, enum dmasync_sync sync, enum dmasync_direction direction,
	      uint64_t offset, uint32_t length, uint32_t rows, uint64_t stride)
{
	add_entry(buffer, sync, direction, offset, length);
	given[unit_count - 1].entry.word |= DMASYNC_UNIT_STRIDED;
	assert_true(unit_count < UNITS);
	given[unit_count++].rows = (struct dmasync_unit_rows){.rows = rows, .stride = stride};
}

struct cache_batch run_batch(uint32_t first, uint32_t chunk, uint32_t budget)
{
	struct cache_batch batch;
	enum cache_check check = CACHE_CHECK_MORE;
	bool done = false;

	/* A queue's batch is begun again and again: nothing of the last one may be left. */
	memset(&batch, 0x5a, sizeof batch);
	for (uint32_t i = 0; i < unit_count; i++)
		units[(first + i) % UNITS] = given[i];
	cache_batch_begin(&batch, units, UNITS - 1, first, unit_count);
	for (uint32_t available = 0; check == CACHE_CHECK_MORE;) {
		available = unit_count - available < chunk ? unit_count : available + chunk;
		check = cache_batch_check(&batch, available, cache.line, UINT64_MAX / 2, look_up,
					  NULL);
	}
	if (check == CACHE_CHECK_FAILED)
		return batch;
	cache.ops.open();
	while (!done) {
		uint64_t lines = batch.lines;
		uint32_t left = cache_batch_issue(&batch, &cache, budget, &done);

		assert_true(left <= budget);
		assert_true(batch.lines - lines <= budget - left);
		assert_true(done || left == 0);
	}
	cache.ops.complete(batch.flushes);
	return batch;
}

struct cache_batch run_at_once(void)
{
	return run_batch(0, UINT32_MAX, UINT32_MAX);
}

unsigned char model_clean[MODEL_LINES], model_flush[MODEL_LINES];

void model_bytes(unsigned char *model, uint64_t offset, uint64_t length)
{
	for (uint64_t byte = offset; byte < offset + length; byte++)
		model[byte / cache.line] = 1;
}

void clear_model(void)
{
	memset(model_clean, 0, sizeof model_clean);
	memset(model_flush, 0, sizeof model_flush);
}

void check_trace_against_model(const struct cache_batch *batch)
{
	static unsigned char clean[MODEL_LINES], flush[MODEL_LINES];
	bool any_flush = memchr(model_flush, 1, sizeof model_flush) != NULL;

	memset(clean, 0, sizeof clean);
	memset(flush, 0, sizeof flush);
	assert_true(events >= 2);
	assert_int_equal(trace[0].type, OPEN);
	assert_int_equal(trace[events - 1].type, COMPLETE);
	assert_int_equal(trace[events - 1].address, any_flush);
	for (size_t i = 1; i < events - 1; i++) {
		uint64_t offset = trace[i].address - BASE;

		assert_true(trace[i].type == CLEAN || trace[i].type == FLUSH);
		assert_true(trace[i].address >= BASE && offset / cache.line < MODEL_LINES);
		assert_int_equal(offset % cache.line, 0);
		(trace[i].type == CLEAN ? clean : flush)[offset / cache.line]++;
	}
	assert_memory_equal(clean, model_clean, sizeof clean);
	assert_memory_equal(flush, model_flush, sizeof flush);
	assert_int_equal(batch->lines, events - 2);
}
