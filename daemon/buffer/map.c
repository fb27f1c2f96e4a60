/* SPDX-License-Identifier: MIT */
/*
 * Maps a client's buffer read-only, fills the mapping, locks it and cleans it once, so that no
 * batch meets a page fault later. Called by whoever may block; no state.
 */
#include "daemon/buffer/map.h"

#include <errno.h>
#include <linux/dma-buf.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/buffer/kernel.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22 /* since Linux 5.14 */
#endif

/* Between two looks at the CPU: a migration repeats this much, not the whole buffer. */
#define CLEAN_CHUNK (UINT64_C(256) << 10)

__attribute__((format(printf, 3, 4))) static void refuse(struct buffer_mapping *mapping, int error,
							 const char *format, ...)
{
	va_list arguments;

	mapping->error = error;
	va_start(arguments, format);
	vsnprintf(mapping->text, sizeof mapping->text, format, arguments);
	va_end(arguments);
}

static uint64_t round_up(uint64_t value, uint64_t to)
{
	return (value + to - 1) / to * to;
}

uint64_t buffer_mapped_size(enum dmasync_backend backend, uint64_t size, uint64_t page)
{
	switch (backend) {
	case DMASYNC_BACKEND_DIRECT:
	case DMASYNC_BACKEND_KERNEL: /* not mapped, but its fd keeps the memory */
		return round_up(size, page);
	case DMASYNC_BACKEND_SIMULATED:
		return round_up(size, page) * CACHE_SIMULATED_REGIONS;
	case DMASYNC_BACKEND_NONE:
	case DMASYNC_BACKEND_AUTO:
		break;
	}
	return 0;
}

uint32_t buffer_map_count(enum dmasync_backend backend)
{
	switch (backend) {
	case DMASYNC_BACKEND_DIRECT:
	case DMASYNC_BACKEND_KERNEL: /* for a moment */
		return 1;
	case DMASYNC_BACKEND_SIMULATED:
		return CACHE_SIMULATED_REGIONS * 2; /* and what is reserved behind each */
	case DMASYNC_BACKEND_NONE:
	case DMASYNC_BACKEND_AUTO:
		break;
	}
	return 0;
}

struct range {
	const struct cache_ops *ops;
	bool second_pass; /* struct cache */
	uintptr_t start, end;
	size_t line, page;
};

static void touch_by_read(void *context)
{
	const struct range *range = context;

	for (uintptr_t at = range->start; at < range->end; at += range->page)
		(void)*(volatile const char *)at;
}

/* A clean, not a load: it leaves nothing stale in the cache. */
static void touch_by_clean(void *context)
{
	const struct range *range = context;

	range->ops->open();
	for (uintptr_t at = range->start; at < range->end; at += range->page)
		range->ops->clean(at, at + range->line, range->line);
	range->ops->complete(false);
}

/*
 * A barrier covers what its own CPU issued. This thread is not pinned, so a chunk during which it
 * was moved is cleaned again.
 */
static void clean_range(void *context)
{
	const struct range *range = context;

	for (uintptr_t at = range->start; at < range->end;) {
		uintptr_t end = range->end - at > CLEAN_CHUNK ? at + CLEAN_CHUNK : range->end;
		int cpu;

		do {
			cpu = sched_getcpu();
			range->ops->open();
			range->ops->clean(at, end, range->line);
			if (range->second_pass)
				range->ops->clean(at, end, range->line);
			range->ops->complete(false);
		} while (sched_getcpu() != cpu);
		at = end;
	}
}

static bool populate_memfd(struct buffer_mapping *mapping, struct range *range)
{
	if (madvise(mapping->base, (size_t)mapping->mapped_size, MADV_POPULATE_READ) < 0) {
		if (errno != EINVAL) { /* EINVAL: an older kernel */
			refuse(mapping, -ENOMEM,
			       "the memfd's %llu bytes cannot be brought into memory: %s",
			       (unsigned long long)mapping->size, strerror(errno));
			return false;
		}
		if (!mapping->guard(touch_by_read, range)) {
			refuse(mapping, -EFAULT, "the memfd's memory cannot be reached");
			return false;
		}
	}
	/* Read-only pages of a memfd are filled by the lock too, and stay. */
	if (mlock(mapping->base, (size_t)mapping->mapped_size) == 0)
		mapping->locked = true;
	else
		mapping->lock_error = -errno;
	return true;
}

/* Maps of dma-bufs cannot be filled by the kernel (VM_PFNMAP) and need no lock: pages stay. */
static bool populate_dmabuf(struct buffer_mapping *mapping, struct range *range)
{
	if (!mapping->guard(touch_by_clean, range)) {
		refuse(mapping, -EOPNOTSUPP,
		       "the mapping of the dma-buf (exporter %s) faults, so line operations cannot "
		       "be "
		       "used; ask for the kernel backend",
		       mapping->exporter);
		return false;
	}
	mapping->locked = true;
	return true;
}

static bool map_readable(struct buffer_mapping *mapping)
{
	void *base =
		mmap(NULL, (size_t)mapping->mapped_size, PROT_READ, MAP_SHARED, mapping->fd, 0);

	if (base != MAP_FAILED) {
		mapping->base = base;
		return true;
	}
	if (errno == ENOMEM || errno == EAGAIN)
		refuse(mapping, -ENOMEM,
		       "mapping %llu bytes failed: %s; the process is at its limit of memory or "
		       "mappings (vm.max_map_count)",
		       (unsigned long long)mapping->mapped_size, strerror(errno));
	else if (mapping->kind == DMASYNC_KIND_MEMFD)
		refuse(mapping, -EOPNOTSUPP,
		       "the memfd cannot be mapped: %s; kernels before 6.7 map none that is sealed "
		       "against writing (F_SEAL_WRITE)",
		       strerror(errno));
	else
		refuse(mapping, -EOPNOTSUPP,
		       "the dma-buf of exporter %s gives no CPU mapping (%s): no CPU can have "
		       "cached "
		       "it, so there is nothing to sync",
		       mapping->exporter, strerror(errno));
	return false;
}

static void map_direct(struct buffer_mapping *mapping)
{
	const struct cache *cache = mapping->cache;

	if (!map_readable(mapping))
		return;
	uintptr_t base = (uintptr_t)mapping->base;
	struct range range = {
		.ops = &cache->ops,
		.second_pass = cache->second_pass,
		.start = base,
		.end = base + (uintptr_t)round_up(mapping->size, mapping->page),
		.line = cache->line,
		.page = (size_t)mapping->page,
	};
	bool good = mapping->kind == DMASYNC_KIND_MEMFD ? populate_memfd(mapping, &range)
							: populate_dmabuf(mapping, &range);

	if (good && mapping->clean) {
		range.end = base + (uintptr_t)round_up(mapping->size, cache->line);
		if (!mapping->guard(clean_range, &range)) {
			refuse(mapping, -EFAULT,
			       "the buffer's memory faulted while it was cleaned");
			good = false;
		}
	}
	if (!good)
		buffer_unmap(mapping->backend, mapping->base, mapping->mapped_size);
}

static void map_simulated(struct buffer_mapping *mapping)
{
	int r = cache_simulated_map(mapping->fd, mapping->size, &mapping->base);

	if (r < 0) {
		refuse(mapping, r,
		       "the simulated buffer's three parts cannot be mapped: %s; is the fd "
		       "read-write?",
		       strerror(-r));
		return;
	}
	if (!mapping->clean)
		return;

	uintptr_t base = (uintptr_t)mapping->base;
	struct range range = {
		.ops = &cache_simulated_ops,
		.start = base,
		.end = base + (uintptr_t)mapping->size,
		.line = CACHE_SIMULATED_LINE,
		.page = (size_t)mapping->page,
	};
	if (!mapping->guard(clean_range, &range)) {
		buffer_unmap(mapping->backend, mapping->base, mapping->mapped_size);
		refuse(mapping, -EFAULT,
		       "the simulated buffer's memory faulted while it was cleaned");
	}
}

/*
 * Nothing stays mapped. The first sync is an END (for_device): a START before it would invalidate,
 * and with it throw away what the client has written.
 */
static void prepare_kernel(struct buffer_mapping *mapping)
{
	if (!map_readable(mapping))
		return;
	munmap(mapping->base, (size_t)mapping->mapped_size);
	mapping->base = NULL;
	if (!mapping->clean)
		return;

	int r = kernel_sync_call(mapping->fd, DMA_BUF_SYNC_RW | DMA_BUF_SYNC_END);

	if (r < 0)
		refuse(mapping, -EIO, "DMA_BUF_IOCTL_SYNC of exporter %s failed: %s",
		       mapping->exporter, strerror(-r));
}

void buffer_map(struct buffer_mapping *mapping)
{
	mapping->error = 0;
	mapping->base = NULL;
	mapping->locked = false;
	mapping->lock_error = 0;
	mapping->mapped_size = buffer_mapped_size(mapping->backend, mapping->size, mapping->page);
	/* On 32-bit CPUs: below, it is a size_t. */
	if (mapping->mapped_size > SIZE_MAX / 2) {
		refuse(mapping, -ENOMEM,
		       "a mapping of %llu bytes is more than half of the address space",
		       (unsigned long long)mapping->mapped_size);
		return;
	}
	switch (mapping->backend) {
	case DMASYNC_BACKEND_DIRECT:
		map_direct(mapping);
		return;
	case DMASYNC_BACKEND_SIMULATED:
		map_simulated(mapping);
		return;
	case DMASYNC_BACKEND_KERNEL:
		prepare_kernel(mapping);
		return;
	case DMASYNC_BACKEND_NONE:
	case DMASYNC_BACKEND_AUTO:
		return;
	}
}

void buffer_unmap(enum dmasync_backend backend, void *base, uint64_t mapped_size)
{
	if (!base)
		return;
	if (backend == DMASYNC_BACKEND_SIMULATED)
		cache_simulated_unmap(base);
	else if (backend == DMASYNC_BACKEND_DIRECT)
		munmap(base, (size_t)mapped_size);
}
