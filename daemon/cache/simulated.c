/* SPDX-License-Identifier: MIT */
/*
 * A simulated non-coherent memory, for tests and the demo. Any thread; two threads must not run
 * operations on the same line at once, as a queue's order sees to.
 *
 * A line is dirty where what the CPU sees differs from the shadow of what was last synced. A store
 * of the bytes that were there already is therefore no write: nothing could tell it apart anyway.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/cache/cache.h"
#include "daemon/cache/walk.h"

/* Each region at its place in one reservation; its unused rest stays unreadable. */
#define RESERVATION (CACHE_SIMULATED_REGIONS * CACHE_SIMULATED_SPAN)

static void *region_of(uintptr_t address, enum cache_simulated_region region)
{
	return (void *)(address + (uintptr_t)(region * CACHE_SIMULATED_SPAN));
}

/* The copies are plain: device and CPU are other processes, and so must all of them be ordered. */
static void open_batch(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void complete(bool flushed)
{
	(void)flushed;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static void clean_line(uintptr_t address, size_t line)
{
	void *cpu = region_of(address, CACHE_SIMULATED_CPU);
	void *shadow = region_of(address, CACHE_SIMULATED_SHADOW);

	if (memcmp(cpu, shadow, line) == 0)
		return;
	memcpy(region_of(address, CACHE_SIMULATED_DEVICE), cpu, line);
	memcpy(shadow, cpu, line);
}

/*
 * As the hardware: a dirty line is written back first, over whatever the device wrote, and only a
 * clean one takes in the device's bytes.
 */
static void flush_line(uintptr_t address, size_t line)
{
	void *cpu = region_of(address, CACHE_SIMULATED_CPU);

	clean_line(address, line);
	memcpy(cpu, region_of(address, CACHE_SIMULATED_DEVICE), line);
	memcpy(region_of(address, CACHE_SIMULATED_SHADOW), cpu, line);
}

static void clean(uintptr_t start, uintptr_t end, size_t line)
{
	cache_walk(start, end, line, clean_line);
}

static void flush(uintptr_t start, uintptr_t end, size_t line)
{
	cache_walk(start, end, line, flush_line);
}

const struct cache_ops cache_simulated_ops = {
	.name = "simulated",
	.open = open_batch,
	.clean = clean,
	.flush = flush,
	.complete = complete,
};

int cache_simulated_map(int fd, uint64_t size, void **ret)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	char *reservation;

	if (size == 0 || size % page != 0 || size > CACHE_SIMULATED_SPAN)
		return -EINVAL;
	/* Three spans: more than a 32-bit process has, and than size_t may hold there. */
	if (RESERVATION > SIZE_MAX)
		return -ENOMEM;
	reservation = mmap(NULL, (size_t)RESERVATION, PROT_NONE,
			   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (reservation == MAP_FAILED)
		return -errno;
	for (unsigned int region = 0; region < CACHE_SIMULATED_REGIONS; region++) {
		void *wanted = reservation + region * CACHE_SIMULATED_SPAN;

		if (mmap(wanted, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd,
			 (off_t)(region * size)) == MAP_FAILED) {
			int error = errno;

			munmap(reservation, (size_t)RESERVATION);
			return -error;
		}
	}
	*ret = reservation;
	return 0;
}

void cache_simulated_unmap(void *cpu_region)
{
	if (cpu_region)
		munmap(cpu_region, (size_t)RESERVATION);
}
