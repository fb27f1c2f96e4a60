/* SPDX-License-Identifier: MIT */
/*
 * Issues batches with the daemon's own code on the instructions of this CPU, between marks that
 * count_plugin.c knows, and prints what each must have executed. Run by check_counts.py.
 *
 * For every case a line: its name, lines cleaned, lines flushed, opening fences, barriers, and
 * whether its instructions per line or per entry are of interest. The n-th case lies between the
 * n-th pair of mark 0 and mark 1.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/cache/batch.h"

#define MARK(number) __asm__ volatile("hint #%c0" ::"i"(96 + (number)) : "memory")

#define UNITS 1024u
#define MEMORY (1u << 20)

static unsigned char memory[MEMORY] __attribute__((aligned(4096)));
static union cache_unit units[UNITS];
static uint32_t count;

static struct cache_buffer buffers[] = {
	{.size = MEMORY / 2, .backend = DMASYNC_BACKEND_DIRECT, .guarantee = true},
	{.size = MEMORY / 2, .backend = DMASYNC_BACKEND_DIRECT, .guarantee = true},
	{.size = MEMORY / 2, .backend = DMASYNC_BACKEND_NONE, .guarantee = true},
};

static const struct cache_buffer *look_up(void *context, uint32_t handle)
{
	(void)context;
	return handle < sizeof buffers / sizeof buffers[0] ? &buffers[handle] : NULL;
}

static void add(uint32_t buffer, enum dmasync_sync sync, enum dmasync_direction direction,
		uint64_t offset, uint64_t length)
{
	units[count++].entry = (struct dmasync_unit){dmasync_unit_word(buffer, sync, direction, 0),
						     (uint32_t)length, offset};
}

static void add_rows(uint32_t buffer, enum dmasync_sync sync, enum dmasync_direction direction,
		     uint64_t offset, uint64_t length, uint32_t rows, uint64_t stride)
{
	add(buffer, sync, direction, offset, length);
	units[count - 1].entry.word |= DMASYNC_UNIT_STRIDED;
	units[count++].rows = (struct dmasync_unit_rows){.rows = rows, .stride = stride};
}

#define CLEAN DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE
#define FLUSH DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE
#define NOTHING DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE

/* Checked outside the marks, issued between them in slices, as a worker does. */
static void issue(const struct cache *cache, uint32_t budget, const char *name,
		  unsigned int cleaned, unsigned int flushed, const char *per_line)
{
	struct cache_batch batch;
	bool done = false;

	cache_batch_begin(&batch, units, UNITS - 1, 0, count);
	if (cache_batch_check(&batch, count, cache->line, UINT32_MAX, look_up, NULL) !=
	    CACHE_CHECK_DONE) {
		fprintf(stderr, "%s: entry %u refused, reason %d\n", name, batch.bad_entry,
			batch.reason);
		exit(1);
	}
	MARK(0);
	cache->ops.open();
	while (!done)
		cache_batch_issue(&batch, cache, budget, &done);
	cache->ops.complete(batch.flushes);
	MARK(1);
	if (batch.lines != cleaned + flushed) {
		fprintf(stderr, "%s: %llu lines\n", name, (unsigned long long)batch.lines);
		exit(1);
	}
	printf("%s\t%u\t%u\t1\t1\t%s\n", name, cleaned, flushed, per_line);
	count = 0;
}

/* As a worker's: copied, checked and issued, in chunks and slices of its size. */
#define CHUNK 512u

static void whole_way(const struct cache *cache, const char *name, unsigned int lines)
{
	static union cache_unit ring[UNITS];
	struct cache_batch batch;
	bool done = false;

	memcpy(ring, units, sizeof ring);
	MARK(0);
	cache_batch_begin(&batch, units, UNITS - 1, 0, count);
	for (uint32_t at = 0; at < count; at += CHUNK) {
		memcpy(&units[at], &ring[at], CHUNK * sizeof *units);
		if (cache_batch_check(&batch, at + CHUNK, cache->line, UINT32_MAX, look_up, NULL) ==
		    CACHE_CHECK_FAILED)
			exit(1);
	}
	cache->ops.open();
	while (!done)
		cache_batch_issue(&batch, cache, 4096, &done);
	cache->ops.complete(batch.flushes);
	MARK(1);
	if (batch.lines != lines)
		exit(1);
	printf("%s\t%u\t0\t1\t1\tper-entry-%u\n", name, lines, count);
	count = 0;
}

/* dcache_by_line_op of arch/arm64/include/asm/assembler.h, for the comparison. */
static void as_the_kernel(size_t line, unsigned int lines, const char *name)
{
	uintptr_t at = (uintptr_t)memory, end = at + lines * line;

	MARK(0);
	__asm__ volatile("1:	dc	cvac, %0\n"
			 "	add	%0, %0, %1\n"
			 "	cmp	%0, %2\n"
			 "	b.lo	1b"
			 : "+r"(at)
			 : "r"(line), "r"(end)
			 : "cc", "memory");
	MARK(1);
	printf("%s\t%u\t0\t0\t0\tkernel\n", name, lines);
}

int main(void)
{
	struct cache cache;
	size_t line;

	if (cache_select(NULL, &cache) < 0 || cache.line == 0) {
		fprintf(stderr, "no line operations: %s\n", cache.why);
		return 1;
	}
	fprintf(stderr, "%s; line %zu, granule %zu\n", cache.why, cache.line, cache.granule);
	line = cache.line;
	buffers[0].base = (uintptr_t)memory;
	buffers[1].base = buffers[0].base + MEMORY / 2;
	buffers[2].base = buffers[0].base;

	/* Each with its own expected numbers, in words, not computed from what was added. */
	add(0, CLEAN, 0, 1);
	issue(&cache, UINT32_MAX, "one line", 1, 0, "-");

	for (unsigned int i = 0; i < 64; i++)
		add(0, CLEAN, i * 32 * line, 16 * line);
	issue(&cache, UINT32_MAX, "64 entries, 1024 lines cleaned", 1024, 0, "-");

	for (unsigned int i = 0; i < 64; i++)
		add(0, FLUSH, i * 32 * line, 16 * line);
	issue(&cache, UINT32_MAX, "64 entries, 1024 lines flushed", 0, 1024, "-");

	for (unsigned int i = 0; i < 64; i++)
		add(0, CLEAN, i * 16 * line, 16 * line);
	issue(&cache, 50, "64 neighbours in slices of 50", 1024, 0, "-");

	add(0, CLEAN, 0, 10 * line);
	add(0, FLUSH, 0, 20 * line);
	add(1, CLEAN, 3, line);
	add(1, FLUSH, 5 * line - 1, 2);
	issue(&cache, UINT32_MAX, "mixed", 12, 22, "-");

	add_rows(0, FLUSH, 2 * line + 1, line, 7, 8 * line);
	add_rows(1, CLEAN, 0, 3 * line, 5, 4 * line);
	issue(&cache, UINT32_MAX, "strided, unaligned and aligned", 15, 14, "-");

	add(0, NOTHING, 0, 4096);
	add(0, CLEAN, 77, 0);
	add(2, FLUSH, 0, 4096);
	issue(&cache, UINT32_MAX, "elided", 0, 0, "-");

	add(0, NOTHING, 0, 4096);
	add(0, FLUSH, 0, 0);
	add(1, FLUSH, 64 * line, 4 * line);
	issue(&cache, UINT32_MAX, "elided beside flushed", 0, 4, "-");

	add(0, CLEAN, 0, 4096 * line);
	issue(&cache, UINT32_MAX, "4096 lines cleaned at once", 4096, 0, "per-line");

	/* Of one line each, in an order in which none merge, and of four. */
	for (unsigned int i = 0; i < 1024; i++)
		add(0, CLEAN, i * 389 % 1024 * 4 * line, line);
	whole_way(&cache, "1024 entries of a line, from ring to barrier", 1024);

	for (unsigned int i = 0; i < 1024; i++)
		add(0, CLEAN, i * 389 % 1024 * 8 * line, 4 * line);
	whole_way(&cache, "1024 entries of four lines, from ring to barrier", 4096);

	as_the_kernel(line, 4096, "the kernel's loop over 4096 lines");

	add(0, FLUSH, 0, 4096 * line);
	issue(&cache, UINT32_MAX, "4096 lines flushed at once", 0, 4096, "per-line");
	/* Arm SI L1 4311569: each operation twice, and still one barrier. */
	cache.second_pass = true;
	for (unsigned int i = 0; i < 64; i++)
		add(0, CLEAN, i * 32 * line, 16 * line);
	add(1, FLUSH, 0, 8 * line);
	issue(&cache, 100, "second pass: 1024 lines cleaned, 8 flushed", 2048, 16, "-");
	return 0;
}
