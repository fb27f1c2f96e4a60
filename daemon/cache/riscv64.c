/* SPDX-License-Identifier: MIT */
/*
 * riscv64 with Zicbom: cbo.clean and cbo.flush, where the kernel lets U-mode execute them
 * (riscv_hwprobe says so; Linux 6.15 or so). cbo.inval is never allowed. Any thread.
 *
 * SoCs with cache operations of their own (D1, TH1520, JH7100) are left to the kernel backend.
 */
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/cache/cache.h"
#include "daemon/cache/cpus.h"
#include "daemon/cache/walk.h"

/* As in Linux, arch/riscv/include/uapi/asm/hwprobe.h: older headers lack them. */
#define HWPROBE_SYSCALL 258
#define HWPROBE_KEY_IMA_EXT_0 4
#define HWPROBE_KEY_ZICBOM_BLOCK_SIZE 12
#define HWPROBE_EXT_ZICBOM (UINT64_C(1) << 55)

struct hwprobe_pair {
	int64_t key; /* -1 in the answer: not known to this kernel */
	uint64_t value;
};

/*
 * For a fence a clean or flush is a write, or an output (CMO specification, "Preserved Program
 * Order"); I/O is in both sets because it is a device that looks on.
 */
static void fence(void)
{
	__asm__ volatile("fence iorw, iorw" ::: "memory");
}

/* Client's stores, seen through the acquire of its slot, before the operations. */
static void open_batch(void)
{
	fence();
}

/* The operations before the publishing store, and before this hart's later loads. */
static void complete(bool flushed)
{
	(void)flushed;
	fence();
}

/*
 * MISC-MEM, funct3 2, rd 0; the immediate selects the operation: 1 clean, 2 flush. By number, so
 * that assemblers without Zicbom, and builds for a plain rv64gc, take it.
 */
CACHE_WALK_INLINE void clean_line(uintptr_t address, size_t line)
{
	(void)line;
	__asm__ volatile(".insn i 0x0f, 2, x0, %0, 1" ::"r"(address) : "memory");
}

CACHE_WALK_INLINE void flush_line(uintptr_t address, size_t line)
{
	(void)line;
	__asm__ volatile(".insn i 0x0f, 2, x0, %0, 2" ::"r"(address) : "memory");
}

static void clean(uintptr_t start, uintptr_t end, size_t line)
{
	cache_walk(start, end, line, clean_line);
}

static void flush(uintptr_t start, uintptr_t end, size_t line)
{
	cache_walk(start, end, line, flush_line);
}

/* The block size common to the CPUs asked for; 0 where one of them lacks Zicbom. */
static size_t block_size(const char *cpus)
{
	struct hwprobe_pair pairs[] = {
		{.key = HWPROBE_KEY_IMA_EXT_0},
		{.key = HWPROBE_KEY_ZICBOM_BLOCK_SIZE},
	};
	cpu_set_t set;

	if (cpus && cache_cpus_parse(cpus, &set) < 0)
		return 0;
	/* Extensions of a set of CPUs are those that all of them have. */
	if (syscall(HWPROBE_SYSCALL, pairs, sizeof pairs / sizeof pairs[0], cpus ? sizeof set : 0,
		    cpus ? &set : NULL, 0) != 0)
		return 0;
	if (pairs[0].key < 0 || !(pairs[0].value & HWPROBE_EXT_ZICBOM) || pairs[1].key < 0)
		return 0;
	return (size_t)pairs[1].value;
}

static bool present(const char *cpus)
{
	return block_size(cpus) != 0;
}

static const struct cache_ops ops = {
	.name = "riscv64 cbo.clean/cbo.flush",
	.open = open_batch,
	.clean = clean,
	.flush = flush,
	.complete = complete,
};

static const struct cache_candidate candidates[] = {
	{.ops = &ops, .present = present, .line = block_size, .granule = block_size},
	{.ops = NULL},
};

const struct cache_candidate *cache_candidates(void)
{
	return candidates;
}
