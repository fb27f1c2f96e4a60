/* SPDX-License-Identifier: MIT */
/*
 * Allocation: cached memory from what this machine has, contiguous first, because many camera
 * bridges without an IOMMU refuse scattered buffers. Any thread.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "client/internal.h"
#include "daemon/cache/cache.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

const struct memory_places memory_places_default = {
	.heaps = "/dev/dma_heap",
	.udmabuf = "/dev/udmabuf",
};

/* What was tried, for the error text: one clause each. */
struct trials {
	char text[CLIENT_ERROR_TEXT_SIZE];
	size_t length;
};

static int tried(struct trials *trials, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static int tried(struct trials *trials, int error, const char *format, ...)
{
	char what[160];
	va_list arguments;
	int n;

	va_start(arguments, format);
	vsnprintf(what, sizeof what, format, arguments);
	va_end(arguments);
	n = snprintf(trials->text + trials->length, sizeof trials->text - trials->length,
		     "%s%s: %s", trials->length ? "; " : "", what, describe(error));
	if (n > 0)
		trials->length += (size_t)n;
	if (trials->length >= sizeof trials->text)
		trials->length = sizeof trials->text - 1;
	return error;
}

static int heap_alloc(const char *directory, const char *name, uint64_t bytes,
		      struct trials *trials)
{
	struct dma_heap_allocation_data data = {.len = bytes, .fd_flags = O_RDWR | O_CLOEXEC};
	char path[512];
	int heap, r;

	if (snprintf(path, sizeof path, "%s/%s", directory, name) >= (int)sizeof path)
		return tried(trials, -ENAMETOOLONG, "%s", directory);
	heap = open(path, O_RDWR | O_CLOEXEC);
	if (heap < 0)
		return tried(trials, -errno, "%s", path);
	r = ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &data) < 0 ? -errno : 0;
	close(heap);
	return r < 0 ? tried(trials, r, "%s", path) : (int)data.fd;
}

/* The CMA heaps' names: what kernels up to 6.16 use, then any other that says so. */
static const char *const cma_names[] = {"default_cma_region", "reserved", "linux,cma"};
#define CMA_NAMES (sizeof cma_names / sizeof *cma_names)

static bool is_known_cma(const char *name)
{
	for (size_t i = 0; i < CMA_NAMES; i++)
		if (strcmp(name, cma_names[i]) == 0)
			return true;
	return false;
}

static int is_other_cma(const struct dirent *entry)
{
	return entry->d_name[0] != '.' && !is_known_cma(entry->d_name) &&
	       strcasestr(entry->d_name, "cma") != NULL;
}

static int cma_alloc(const struct memory_places *places, uint64_t bytes, struct trials *trials)
{
	struct dirent **others = NULL;
	int n, r = -ENOENT;

	if (access(places->heaps, F_OK) < 0)
		return tried(trials, -errno, "%s", places->heaps);
	for (size_t i = 0; i < CMA_NAMES && r < 0; i++)
		r = heap_alloc(places->heaps, cma_names[i], bytes, trials);
	if (r >= 0)
		return r;
	n = scandir(places->heaps, &others, is_other_cma, alphasort);
	for (int i = 0; i < n; i++) {
		if (r < 0)
			r = heap_alloc(places->heaps, others[i]->d_name, bytes, trials);
		free(others[i]);
	}
	free(others);
	return r;
}

/* A memfd of `bytes` that can neither shrink nor grow. */
static int memfd_alloc(uint64_t bytes, int more_seals, struct trials *trials)
{
	unsigned int flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
	int fd = memfd_create("dmasync", flags | MFD_NOEXEC_SEAL);
	int r = 0;

	if (fd < 0 && errno == EINVAL) /* before Linux 6.3 */
		fd = memfd_create("dmasync", flags);
	if (fd < 0)
		return tried(trials, -errno, "memfd");
	if (bytes > INT64_MAX)
		r = -EFBIG;
	else if (ftruncate(fd, (off_t)bytes) < 0 ||
		 fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | more_seals) < 0)
		r = -errno;
	if (r < 0) {
		close(fd);
		return tried(trials, r, "memfd");
	}
	return fd;
}

static int udmabuf_alloc(const struct memory_places *places, uint64_t bytes, struct trials *trials)
{
	struct udmabuf_create create = {.flags = UDMABUF_FLAGS_CLOEXEC, .size = bytes};
	int device = open(places->udmabuf, O_RDWR | O_CLOEXEC);
	int memfd, r;

	if (device < 0)
		return tried(trials, -errno, "%s", places->udmabuf);
	/* udmabuf wants F_SEAL_SHRINK and refuses F_SEAL_WRITE; it keeps the pages, not the fd. */
	memfd = memfd_alloc(bytes, 0, trials);
	if (memfd < 0) {
		close(device);
		return memfd;
	}
	create.memfd = (uint32_t)memfd;
	r = ioctl(device, UDMABUF_CREATE, &create);
	if (r < 0)
		r = tried(trials, -errno, "%s", places->udmabuf);
	close(memfd);
	close(device);
	return r;
}

/* An fd of that very memory, or a negative errno with its reason in trials. */
static int memory_alloc(enum dmasync_memory memory, const struct memory_places *places,
			uint64_t bytes, struct trials *trials)
{
	switch (memory) {
	case DMASYNC_MEMORY_AUTO: /* resolved by the caller */
		break;
	case DMASYNC_MEMORY_CMA:
		return cma_alloc(places, bytes, trials);
	case DMASYNC_MEMORY_SYSTEM:
		return heap_alloc(places->heaps, "system", bytes, trials);
	case DMASYNC_MEMORY_UDMABUF:
		return udmabuf_alloc(places, bytes, trials);
	case DMASYNC_MEMORY_MEMFD:
		return memfd_alloc(bytes, F_SEAL_SEAL, trials);
	case DMASYNC_MEMORY_SIMULATED:
		return memfd_alloc(bytes * CACHE_SIMULATED_REGIONS, F_SEAL_SEAL, trials);
	}
	return -EINVAL;
}

/* Contiguous memory first; the system heap only who asks for it, as it needs an IOMMU. */
static const enum dmasync_memory automatic[] = {
	DMASYNC_MEMORY_CMA,
	DMASYNC_MEMORY_UDMABUF,
	DMASYNC_MEMORY_MEMFD,
};

int buffer_alloc_from(struct dmasync *ds, const struct dmasync_buffer_params *params,
		      const struct memory_places *places, struct dmasync_buffer **ret)
{
	const enum dmasync_memory *kinds = automatic;
	size_t count = sizeof automatic / sizeof *automatic;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t bytes = (params->bytes + page - 1) & ~(page - 1);
	uint32_t flags = params->flags;
	struct trials trials = {0};
	char refusal[128];
	int r = -ENODEV;

	if (params->reserved)
		return control_error(ds, -EINVAL,
				     "reserved of struct dmasync_buffer_params is %u; "
				     "it must be 0",
				     params->reserved);
	if (params->bytes == 0 || params->bytes > INT64_MAX / 4)
		return control_error(ds, -EINVAL,
				     "a buffer of %llu bytes: at least 1, at most %lld",
				     (unsigned long long)params->bytes, (long long)(INT64_MAX / 4));
	if ((unsigned int)params->memory > DMASYNC_MEMORY_SIMULATED)
		return control_error(ds, -EINVAL, "memory %u: known are 0 (auto) to %u (simulated)",
				     (unsigned int)params->memory, DMASYNC_MEMORY_SIMULATED);
	if (params->memory != DMASYNC_MEMORY_AUTO) {
		kinds = &params->memory;
		count = 1;
	}
	if (params->memory == DMASYNC_MEMORY_SIMULATED) {
		flags |= DMASYNC_IMPORT_SIMULATED;
	} else if (flags & DMASYNC_IMPORT_SIMULATED) {
		return control_error(ds, -EINVAL,
				     "DMASYNC_IMPORT_SIMULATED goes with "
				     "DMASYNC_MEMORY_SIMULATED only");
	}
	for (size_t i = 0; i < count; i++) {
		int fd = memory_alloc(kinds[i], places, bytes, &trials);

		if (fd < 0) {
			r = fd == -ENOMEM || fd == -EMFILE || fd == -ENFILE ? fd : -ENODEV;
			continue;
		}
		r = buffer_register(ds, fd, flags, kinds[i], ret);
		/* Another kind helps where this one cannot be synced, not against a limit. */
		if (r != -EOPNOTSUPP || count == 1)
			return r;
		dmasync_error_text(ds, refusal, sizeof refusal);
		tried(&trials, r, "%s", refusal);
	}
	return control_error(ds, r, "no memory for a buffer of %llu bytes: %s",
			     (unsigned long long)bytes, trials.text);
}

DMASYNC_PUBLIC void dmasync_buffer_params_init(struct dmasync_buffer_params *params)
{
	memset(params, 0, sizeof *params);
	params->size = sizeof *params;
}

DMASYNC_PUBLIC int dmasync_buffer_alloc(struct dmasync *ds,
					const struct dmasync_buffer_params *params,
					struct dmasync_buffer **ret)
{
	struct dmasync_buffer_params own;
	int r;

	if (!fork_guard_ok(ds))
		return -ECHILD;
	r = params_take(ds, "dmasync_buffer_params", &own, sizeof own, params);
	if (r < 0)
		return r;
	return buffer_alloc_from(ds, &own, &memory_places_default, ret);
}
