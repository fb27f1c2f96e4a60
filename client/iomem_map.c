/* SPDX-License-Identifier: MIT */
/*
 * Mappings of device memory: a UIO device's, or a PCI BAR's by its file in sysfs. No state. Any
 * thread.
 */
#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "client/iomem.h"

/* The kernel's include/linux/ioport.h, as they stand in a PCI device's "resource". */
#define RESOURCE_IO 0x100u
#define RESOURCE_MEMORY 0x200u
#define PCI_COMMAND 4u /* offset in the configuration space: 16 bits */
#define PCI_COMMAND_MEMORY 0x2u

struct memory {
	const struct dmasync_io_map_params *params;
	const char *root;
	int fd;
	bool uio;
	uint64_t start; /* of the memory, in its first page */
	uint64_t size;
	char name[64]; /* "map 0", "BAR 2" */
};

__attribute__((format(printf, 3, 4))) static int refuse(const struct dmasync_io_map_params *params,
							int error, const char *format, ...)
{
	va_list arguments;

	if (!params->error_text || params->error_text_size == 0)
		return error;
	va_start(arguments, format);
	vsnprintf(params->error_text, params->error_text_size, format, arguments);
	va_end(arguments);
	return error;
}

/* The file's first bytes as a string; false where it cannot be read. */
static bool read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length;

	if (fd < 0)
		return false;
	length = read(fd, text, size - 1);
	close(fd);
	if (length < 0)
		return false;
	text[length] = '\0';
	return true;
}

/* A number of sysfs, "0x1000\n"; false where there is none. */
static bool read_number(const char *path, uint64_t *ret)
{
	char text[32], *end;
	unsigned long long value;

	if (!read_text(path, text, sizeof text))
		return false;
	errno = 0;
	value = strtoull(text, &end, 0);
	if (errno || end == text)
		return false;
	*ret = value;
	return true;
}

/* ---- UIO ---- */

static int look_at_uio(struct memory *memory, dev_t device)
{
	const struct dmasync_io_map_params *params = memory->params;
	char directory[PATH_MAX], path[PATH_MAX + 64];

	snprintf(directory, sizeof directory, "%s/sys/dev/char/%u:%u/maps", memory->root,
		 major(device), minor(device));
	if (access(directory, F_OK) < 0)
		return refuse(params, -EINVAL,
			      "%s is no UIO device with memory to map: there is no %s",
			      params->path, directory);
	snprintf(path, sizeof path, "%s/map%u/size", directory, params->map);
	if (!read_number(path, &memory->size) || memory->size == 0)
		return refuse(params, -ENXIO, "%s has no map %u; see %s", params->path, params->map,
			      directory);
	snprintf(path, sizeof path, "%s/map%u/offset", directory, params->map);
	/* Where in its first page the memory begins; kernels before 3.6 do not say. */
	if (!read_number(path, &memory->start))
		memory->start = 0;
	/*
	 * The size counts from the page and not from there: uio_pdrv_genirq gives both, rounded to
	 * pages.
	 */
	if (memory->start >= memory->size)
		return refuse(params, -ENXIO,
			      "map %u of %s begins at byte %" PRIu64 " of its %" PRIu64
			      ": nothing of it can be mapped",
			      params->map, params->path, memory->start, memory->size);
	memory->size -= memory->start;
	snprintf(memory->name, sizeof memory->name, "map %u", params->map);
	memory->uio = true;
	return 0;
}

/* ---- PCI ---- */

/* "resource2", "resource2_wc"; the number of the BAR, or -1. */
static int bar_of(const char *name, bool *ret_wc)
{
	static const char prefix[] = "resource";

	if (strncmp(name, prefix, sizeof prefix - 1) != 0)
		return -1;
	name += sizeof prefix - 1;
	/* 0 to 5 are the BARs, 6 is the ROM. */
	if (*name < '0' || *name > '5')
		return -1;
	*ret_wc = strcmp(name + 1, "_wc") == 0;
	return *ret_wc || name[1] == '\0' ? *name - '0' : -1;
}

static const char *last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* "start end flags", a line for each BAR; false where the file has no such line. */
static bool read_bar(const char *path, int bar, uint64_t *ret_start, uint64_t *ret_flags)
{
	char line[128];
	uint64_t end;
	bool found = false;
	FILE *file = fopen(path, "re");

	if (!file)
		return false;
	for (int i = 0; i <= bar; i++) {
		found = fgets(line, sizeof line, file) != NULL;
		if (!found)
			break;
	}
	fclose(file);
	return found &&
	       sscanf(line, "%" SCNx64 " %" SCNx64 " %" SCNx64, ret_start, &end, ret_flags) == 3;
}

static int look_at_bar(struct memory *memory, int bar, uint64_t size)
{
	const struct dmasync_io_map_params *params = memory->params;
	int directory = (int)(last_part(params->path) - params->path);
	char path[PATH_MAX];
	unsigned char header[8];
	uint64_t start, flags;
	ssize_t length;
	int fd;

	if (params->map)
		return refuse(params, -EINVAL, "map is %u; a PCI BAR has no maps, it must be 0",
			      params->map);
	snprintf(path, sizeof path, "%.*sresource", directory, params->path);
	if (!read_bar(path, bar, &start, &flags))
		return refuse(params, -EINVAL, "%s is no PCI device's: %s does not tell BAR %d",
			      params->path, path, bar);
	if (flags & RESOURCE_IO)
		return refuse(params, -EINVAL,
			      "BAR %d (%s) is a range of I/O ports, which cannot be mapped", bar,
			      params->path);
	if (!(flags & RESOURCE_MEMORY) || size == 0)
		return refuse(params, -EINVAL, "BAR %d (%s) has no memory", bar, params->path);

	/* To a device that does not decode memory stores are lost and loads give all ones. */
	snprintf(path, sizeof path, "%.*sconfig", directory, params->path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	length = fd < 0 ? -1 : pread(fd, header, sizeof header, 0);
	close_fd(fd);
	if (length < (ssize_t)sizeof header)
		return refuse(params, -ENXIO, "%s cannot be read: is the device gone?", path);
	if (!(header[PCI_COMMAND] & PCI_COMMAND_MEMORY))
		return refuse(params, -ENXIO,
			      "the device does not answer to memory accesses: bind a driver, or "
			      "echo 1 > %.*senable",
			      directory, params->path);
	memory->size = size;
	/* A BAR smaller than a page may stand within one, and the kernel maps the page. */
	memory->start = start % (uint64_t)sysconf(_SC_PAGESIZE);
	snprintf(memory->name, sizeof memory->name, "BAR %d", bar);
	return 0;
}

/* ---- both ---- */

static int open_memory(struct memory *memory)
{
	const struct dmasync_io_map_params *params = memory->params;
	const char *path = params->path;
	struct stat status;
	bool wc = false;
	int bar = bar_of(last_part(path), &wc);

	memory->fd = open(path, O_RDWR | O_CLOEXEC);
	if (memory->fd < 0 && errno == ENOENT && wc)
		return refuse(params, -ENOENT,
			      "%s is not there: without the device itself, or BAR %d is not "
			      "prefetchable and has no write-combining mapping; take resource%d",
			      path, bar, bar);
	if (memory->fd < 0)
		return refuse(params, -errno, "%s cannot be opened: %s%s", path, strerror(errno),
			      errno == EACCES || errno == EPERM
				      ? "; it takes root, or a udev rule that gives it to you"
				      : "");
	if (fstat(memory->fd, &status) < 0)
		return refuse(params, -errno, "%s: %s", path, strerror(errno));
	if (S_ISCHR(status.st_mode))
		return look_at_uio(memory, status.st_rdev);
	if (S_ISREG(status.st_mode) && bar >= 0)
		return look_at_bar(memory, bar, (uint64_t)status.st_size);
	return refuse(params, -EINVAL,
		      "%s is neither a UIO device (/dev/uio0) nor a PCI BAR in sysfs "
		      "(resource0 to resource5, resource0_wc to resource5_wc)",
		      path);
}

static int map_memory(struct memory *memory, void **ret_address, uint64_t *ret_length)
{
	const struct dmasync_io_map_params *params = memory->params;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), length = params->length;
	uint64_t begin, first, surplus;
	char *base;

	if (params->offset >= memory->size || length > memory->size - params->offset)
		return refuse(params, -ERANGE,
			      "offset %" PRIu64 ", length %" PRIu64 ": %s has %" PRIu64 " bytes",
			      params->offset, length, memory->name, memory->size);
	if (length == 0)
		length = memory->size - params->offset;
	begin = memory->start + params->offset;
	if (begin + length > SIZE_MAX / 2)
		return refuse(params, -ENOMEM, "%" PRIu64 " bytes are more than can be mapped",
			      begin + length);
	/*
	 * Only the pages that are asked for. The offset of a UIO device's mmap() is the number of
	 * the map, in pages, and cannot say where in it to begin: what stands before goes again.
	 */
	first = begin / page * page;
	surplus = memory->uio ? first : 0;
	base = mmap(NULL, (size_t)(surplus + begin - first + length), PROT_READ | PROT_WRITE,
		    MAP_SHARED, memory->fd, (off_t)(memory->uio ? params->map * page : first));
	if (base == MAP_FAILED) {
		int error = errno;

		return refuse(params, -error, "%s of %s cannot be mapped: %s%s", memory->name,
			      params->path, strerror(error),
			      error == EPERM	? "; kernel lockdown forbids it"
			      : error == EINVAL ? "; its driver may have claimed it for itself "
						  "(iomem=strict)"
						: "");
	}
	if (surplus)
		munmap(base, (size_t)surplus);
	*ret_address = base + surplus + (begin - first);
	*ret_length = length;
	return 0;
}

int io_map_below(const char *root, const struct dmasync_io_map_params *params, void **ret_address,
		 uint64_t *ret_length)
{
	struct dmasync_io_map_params own;
	struct memory memory = {.params = &own, .root = root, .fd = -1};
	int r = params_copy(&own, sizeof own, params);

	if (r < 0)
		return r;
	if (own.flags || own.reserved)
		return refuse(&own, -EINVAL, "flags and reserved must be 0");
	if (!own.path)
		return refuse(&own, -EINVAL, "no path; a UIO device or a PCI BAR in sysfs");
	r = open_memory(&memory);
	if (r == 0)
		r = map_memory(&memory, ret_address, ret_length);
	close_fd(memory.fd);
	return r;
}

DMASYNC_PUBLIC void dmasync_io_map_params_init(struct dmasync_io_map_params *params)
{
	*params = (struct dmasync_io_map_params){.size = sizeof *params};
}

DMASYNC_PUBLIC int dmasync_io_map(const struct dmasync_io_map_params *params, void **ret_address,
				  uint64_t *ret_length)
{
	return io_map_below("", params, ret_address, ret_length);
}

/* What lies between the start of its first page and the address was mapped with it. */
DMASYNC_PUBLIC void dmasync_io_unmap(void *address, uint64_t length)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t first = (uintptr_t)address / page * page;

	if (address)
		munmap((void *)first, (size_t)((uintptr_t)address - first + length));
}
