/* SPDX-License-Identifier: MIT */
/*
 * Line operations of the CPU this program runs on, and which of them work here.
 *
 * A batch is open(), then any number of clean() and flush(), then one complete(). clean() and
 * flush() only issue: nothing is known about a line before complete() has returned. complete()
 * covers what its own CPU issued, so a batch must not change CPU in between (worker.c).
 */
#ifndef DMASYNC_CACHE_CACHE_H
#define DMASYNC_CACHE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cache_ops {
	const char *name; /* as `dmasyncctl probe` prints it */

	/* Orders what happened before the batch, on any CPU, before its first operation. */
	void (*open)(void);

	/* [start, end): multiples of `line`, start < end, mapped readable. */
	void (*clean)(uintptr_t start, uintptr_t end, size_t line);
	void (*flush)(uintptr_t start, uintptr_t end, size_t line);

	/*
	 * Waits until every operation this CPU has issued has reached the point of coherency.
	 * `flushed`: at least one flush since open(), so that the barrier must also keep later
	 * loads behind it.
	 */
	void (*complete)(bool flushed);
};

/* What cache_select() found. Constant afterwards; shared by all threads. */
struct cache {
	struct cache_ops ops; /* a copy; all NULL where `line` is 0 */
	size_t line;	      /* bytes, a power of two >= 16, the smallest of all CPUs; 0: no
			       * line operation works here */
	size_t granule;	      /* bytes: CTR_EL0.CWG on arm64, elsewhere the line */
	uint32_t clean_ps;    /* picoseconds per operation, on a range of clean lines */
	uint32_t flush_ps;
	uint32_t barrier_ps; /* of complete() with nothing outstanding */
	bool trapped;	     /* they work, but each one traps into the kernel */
	bool second_pass;    /* every operation is issued again before the barrier: an erratum */
	char why[160];	     /* one sentence: why these, or why none */
};

/*
 * Chooses the best line operations that work here and tries them under a signal guard; measures
 * what they cost. `cpus`: the CPUs workers may use, as a list ("0-3,5"), NULL for all; riscv64 asks
 * for these harts. Returns 0 also where none works (then ret->line is 0). Call before threads are
 * started: it installs and restores handlers for SIGILL, SIGSEGV and SIGBUS. Allocates nothing and
 * leaves nothing behind. -EINVAL: malformed list; -ERANGE: a CPU above 1023; *ret is then
 * untouched.
 */
int cache_select(const char *cpus, struct cache *ret);

/*
 * Chooses by what the CPU and the kernel say alone (CPUID, CTR_EL0, hwprobe; MIDR for errata):
 * nothing is tried, no handler installed and nothing measured, so the three costs are 0 and
 * `trapped` is what is known of the erratum. Any thread, at any time.
 */
void cache_choose(struct cache *ret);

/* The candidates of this architecture, best first, ending in NULL; for tests and benchmarks. */
struct cache_candidate {
	const struct cache_ops *ops;
	bool (*present)(const char *cpus); /* by CPUID, hwprobe, ... never by trying */
	size_t (*line)(const char *cpus);  /* bytes */
	size_t (*granule)(const char *cpus);
	/* In words, the erratum for which the kernel traps these operations here; NULL where none.
	 */
	const char *(*trapping)(void); /* NULL: never trapped on this architecture */
	bool (*second_pass)(void);     /* is it needed here; NULL: never on this architecture */
};
const struct cache_candidate *cache_candidates(void);

/*
 * Tries and measures one candidate, on the CPU of the caller. What became of it is appended to
 * ret->why; the rest of *ret, zeroed by the caller, is filled in where it works. As for
 * cache_select(): before there are threads.
 */
void cache_try(const struct cache_candidate *candidate, const char *cpus, struct cache *ret);

/*
 * For cache_try() and cache_choose(): is the candidate there, and is its line one? Where not,
 * ret->why says so.
 */
bool cache_offers(const struct cache_candidate *candidate, const char *cpus, struct cache *ret,
		  size_t *ret_line);
/* Appends to cache->why; what does not fit is cut. */
void cache_say(struct cache *cache, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Larger lines are taken for a misread register; CTR_EL0 could say up to 128 KiB. */
#define CACHE_LINE_MAX 2048u
#define CACHE_WHY_NONE "this architecture has no line operations for user space"

/*
 * A simulated non-coherent memory, for tests and the demo: three equal regions of one file. What
 * the CPU sees, what the device sees, and a shadow of what was last synced, by which a line is
 * known to be dirty. clean copies a dirty line out to the device; flush copies it out if dirty
 * and then in from the device.
 *
 * The regions of one buffer are mapped CACHE_SIMULATED_SPAN apart, so that the line operations need
 * no context. In the file they follow one another: region n starts at n * size, size being a
 * multiple of the page.
 */
#define CACHE_SIMULATED_SPAN (UINT64_C(1) << 30)
#define CACHE_SIMULATED_LINE 64u
enum cache_simulated_region {
	CACHE_SIMULATED_CPU = 0,
	CACHE_SIMULATED_DEVICE = 1,
	CACHE_SIMULATED_SHADOW = 2,
	CACHE_SIMULATED_REGIONS = 3,
};
extern const struct cache_ops cache_simulated_ops;

/* Maps the file of a simulated buffer (3 * size bytes) as above; *ret is the CPU region. */
int cache_simulated_map(int fd, uint64_t size, void **ret);
void cache_simulated_unmap(void *cpu_region);
/* What one operation costs on dirty lines, in picoseconds; makes and frees a buffer for it. */
int cache_simulated_measure(uint32_t *ret_ps);

#endif
