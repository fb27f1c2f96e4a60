/* SPDX-License-Identifier: MIT */
/*
 * arm64: data cache maintenance by virtual address to the point of coherency, from EL0. Any thread.
 *
 * Linux lets EL0 do this (SCTLR_EL1.UCI), except on the CPUs that errata.c knows, where it traps
 * and emulates each operation: right, but a hundred times slower.
 *
 * There is no invalidate: DC IVAC is UNDEFINED at EL0. DC CIVAC does its work after a device has
 * written, provided the lines were clean when the device started, which for_device sees to.
 */
#include "daemon/cache/cache.h"
#include "daemon/cache/errata.h"
#include "daemon/cache/walk.h"

/*
 * The client's stores reached us through the acquire of its submission slot. By itself a DC
 * operation is ordered only against accesses to its own line; DMB orders all that this CPU has
 * observed before the maintenance that follows. ISH is enough: the clients are CPUs, and what one
 * CPU has observed of another's stores every CPU has.
 */
static void open_batch(void)
{
	__asm__ volatile("dmb ish" ::: "memory");
}

CACHE_WALK_INLINE void clean_line(uintptr_t address, size_t line)
{
	(void)line;
	__asm__ volatile("dc cvac, %0" ::"r"(address) : "memory");
}

CACHE_WALK_INLINE void flush_line(uintptr_t address, size_t line)
{
	(void)line;
	__asm__ volatile("dc civac, %0" ::"r"(address) : "memory");
}

static void clean(uintptr_t start, uintptr_t end, size_t line)
{
	cache_walk(start, end, line, clean_line);
}

static void flush(uintptr_t start, uintptr_t end, size_t line)
{
	cache_walk(start, end, line, flush_line);
}

/*
 * DSB, not DMB: a device is no observer that DMB orders for. SY, not ISH: the device stands outside
 * the inner shareable domain. Nothing after a DSB is executed before it is complete, later
 * loads included, so a flush needs nothing more.
 */
static void complete(bool flushed)
{
	(void)flushed;
	__asm__ volatile("dsb sy" ::: "memory");
}

/* CTR_EL0. Where CPUs differ Linux traps the read and answers for all of them: the minimum. */
static uint64_t cache_type(void)
{
	uint64_t value;

	__asm__ volatile("mrs %0, ctr_el0" : "=r"(value));
	return value;
}

/* Every Linux sets UCI, or emulates what it traps; a hypervisor may think otherwise: it is tried.
 */
static bool present(const char *cpus)
{
	(void)cpus;
	return true;
}

/* DminLine, bits 19 to 16: log2 of 4-byte words. */
static size_t line_size(const char *cpus)
{
	(void)cpus;
	return (size_t)4 << (cache_type() >> 16 & 15);
}

/* CWG, bits 27 to 24: log2 of 4-byte words; 0 says nothing, and Linux then takes 128 bytes. */
static size_t granule_size(const char *cpus)
{
	unsigned int cwg = (unsigned int)(cache_type() >> 24 & 15);

	(void)cpus;
	return cwg ? (size_t)4 << cwg : 128;
}

static const char *trapping(void)
{
	return cache_errata_trapping("");
}

static bool second_pass(void)
{
	return (cache_errata_here("", NULL) & DMASYNC_ERRATUM_SI_L1_4311569) != 0;
}

static const struct cache_ops ops = {
	.name = "arm64 dc cvac/civac",
	.open = open_batch,
	.clean = clean,
	.flush = flush,
	.complete = complete,
};

static const struct cache_candidate candidates[] = {
	{
		.ops = &ops,
		.present = present,
		.line = line_size,
		.granule = granule_size,
		.trapping = trapping,
		.second_pass = second_pass,
	},
	{.ops = NULL},
};

const struct cache_candidate *cache_candidates(void)
{
	return candidates;
}
