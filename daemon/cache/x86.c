/* SPDX-License-Identifier: MIT */
/*
 * x86-64: clwb, clflushopt and clflush, which every program may execute. Any thread.
 *
 * Caches are coherent with most devices here; the operations matter for those that do not snoop
 * (camera units behind an IOMMU without snooping) and for persistent memory.
 */
#include <cpuid.h>

#include "daemon/cache/cache.h"
#include "daemon/cache/walk.h"

#define CPUID_1_EDX_CLFLUSH (1u << 19)

/*
 * Stores of other CPUs reached this one through the acquire of a submission slot. clwb and
 * clflushopt are ordered by themselves only after earlier stores to their own line: without a fence
 * they may be executed before the load that saw the slot, and write back a line as it was before
 * the client's stores. mfence, not sfence: earlier loads must be covered.
 */
static void open_batch(void)
{
	__asm__ volatile("mfence" ::: "memory");
}

/*
 * The result is made known by a store, and sfence orders clwb and clflushopt before later stores.
 * It does not order them before later loads of this CPU: a batch that dropped lines ends in mfence,
 * so that whoever runs it (the caller itself, in the library's inline mode) may read them next.
 */
static void complete(bool flushed)
{
	if (flushed)
		__asm__ volatile("mfence" ::: "memory");
	else
		__asm__ volatile("sfence" ::: "memory");
}

CACHE_WALK_INLINE void clwb_line(uintptr_t address, size_t line)
{
	(void)line;
	__asm__ volatile("clwb (%0)" ::"r"(address) : "memory");
}

CACHE_WALK_INLINE void clflushopt_line(uintptr_t address, size_t line)
{
	(void)line;
	__asm__ volatile("clflushopt (%0)" ::"r"(address) : "memory");
}

CACHE_WALK_INLINE void clflush_line(uintptr_t address, size_t line)
{
	(void)line;
	__asm__ volatile("clflush (%0)" ::"r"(address) : "memory");
}

static void walk_clwb(uintptr_t start, uintptr_t end, size_t line)
{
	cache_walk(start, end, line, clwb_line);
}

static void walk_clflushopt(uintptr_t start, uintptr_t end, size_t line)
{
	cache_walk(start, end, line, clflushopt_line);
}

/* Each clflush waits for the one before it: kept for CPUs that have nothing else. */
static void walk_clflush(uintptr_t start, uintptr_t end, size_t line)
{
	cache_walk(start, end, line, clflush_line);
}

/* EBX of leaf 7, subleaf 0. */
static unsigned int extended_features(void)
{
	unsigned int eax, ebx, ecx, edx;

	return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) ? ebx : 0;
}

static bool has_clwb(const char *cpus)
{
	unsigned int wanted = bit_CLWB | bit_CLFLUSHOPT;

	(void)cpus;
	return (extended_features() & wanted) == wanted;
}

static bool has_clflushopt(const char *cpus)
{
	(void)cpus;
	return (extended_features() & bit_CLFLUSHOPT) != 0;
}

static bool has_clflush(const char *cpus)
{
	unsigned int eax, ebx, ecx, edx;

	(void)cpus;
	return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (edx & CPUID_1_EDX_CLFLUSH) != 0;
}

/* CPUID 1, EBX[15:8]: in units of 8 bytes; 0 where there is no clflush. */
static size_t line_size(const char *cpus)
{
	unsigned int eax, ebx, ecx, edx;

	(void)cpus;
	return __get_cpuid(1, &eax, &ebx, &ecx, &edx) ? (size_t)(ebx >> 8 & 0xff) * 8 : 0;
}

static const struct cache_ops clwb_ops = {
	.name = "x86 clwb/clflushopt",
	.open = open_batch,
	.clean = walk_clwb,
	.flush = walk_clflushopt,
	.complete = complete,
};

/* A clean may drop the line too: that costs the CPU a miss and changes no content. */
static const struct cache_ops clflushopt_ops = {
	.name = "x86 clflushopt",
	.open = open_batch,
	.clean = walk_clflushopt,
	.flush = walk_clflushopt,
	.complete = complete,
};

static const struct cache_ops clflush_ops = {
	.name = "x86 clflush",
	.open = open_batch,
	.clean = walk_clflush,
	.flush = walk_clflush,
	.complete = complete,
};

static const struct cache_candidate candidates[] = {
	{.ops = &clwb_ops, .present = has_clwb, .line = line_size, .granule = line_size},
	{.ops = &clflushopt_ops,
	 .present = has_clflushopt,
	 .line = line_size,
	 .granule = line_size},
	{.ops = &clflush_ops, .present = has_clflush, .line = line_size, .granule = line_size},
	{.ops = NULL},
};

const struct cache_candidate *cache_candidates(void)
{
	return candidates;
}
