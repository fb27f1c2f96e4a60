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
#include <time.h>
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

#define MEASURED_BYTES 16384u
#define RUNS 8 /* the least of them: what disturbs a measurement only ever adds to it */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

int cache_simulated_measure(uint32_t *ret_ps)
{
	int fd = memfd_create("dmasync-measure", MFD_CLOEXEC);
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), best = UINT64_MAX;
	uint64_t size = (MEASURED_BYTES + page - 1) / page * page;
	void *memory;
	int r = fd < 0 ? -errno : 0;

	if (r == 0 && ftruncate(fd, (off_t)(CACHE_SIMULATED_REGIONS * size)) < 0)
		r = -errno;
	if (r == 0)
		r = cache_simulated_map(fd, size, &memory);
	for (int i = 0; r == 0 && i < RUNS; i++) {
		memset(memory, i + 1, MEASURED_BYTES);
		uint64_t start = now_ns();

		flush((uintptr_t)memory, (uintptr_t)memory + MEASURED_BYTES, CACHE_SIMULATED_LINE);
		uint64_t ns = now_ns() - start;

		best = ns < best ? ns : best;
	}
	if (r == 0) {
		*ret_ps = (uint32_t)(best * 1000 / (MEASURED_BYTES / CACHE_SIMULATED_LINE));
		cache_simulated_unmap(memory);
	}
	if (fd >= 0)
		close(fd);
	return r;
}
