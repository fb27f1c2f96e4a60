/* SPDX-License-Identifier: MIT */
/*
 * The kernel's walk of the device tree for DMA coherence, on the copy of the tree in sysfs. Reads
 * files only; owns nothing. Any thread.
 */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/coherence.h"
#include "client/ctl/probe.h"

#if defined(__x86_64__) || defined(__i386__)
const enum coherence_default coherence_here = COHERENCE_ARCHITECTURE;
#elif defined(__riscv)
const enum coherence_default coherence_here = COHERENCE_DEFAULT_COHERENT;
#else
const enum coherence_default coherence_here = COHERENCE_DEFAULT_NOT_COHERENT;
#endif

/* A tree whose interconnects lead in a circle would keep the kernel for ever, but not us. */
#define STEPS_MAX 64
#define PROPERTY_MAX 4096

static const char tree_base[] = "/sys/firmware/devicetree/base";

const char *coherence_name(enum coherence coherence)
{
	switch (coherence) {
	case COHERENCE_UNKNOWN:
		return "unknown";
	case COHERENCE_COHERENT:
		return "coherent";
	case COHERENCE_NOT_COHERENT:
		return "not coherent";
	}
	return "unknown";
}

static __attribute__((format(printf, 3, 4))) void answer(struct coherence_answer *ret,
							 enum coherence coherence,
							 const char *format, ...)
{
	va_list arguments;

	ret->coherence = coherence;
	va_start(arguments, format);
	vsnprintf(ret->why, sizeof ret->why, format, arguments);
	va_end(arguments);
}

/* A property's bytes: their number, or a negative errno. */
static ssize_t read_property(const char *node, const char *name, void *data, size_t size)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof path, "%s/%s", node, name);

	if (n < 0 || (size_t)n >= sizeof path)
		return -ENAMETOOLONG;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ssize_t length = read(fd, data, size);
	int error = errno;

	close(fd);
	return length < 0 ? -error : length;
}

static bool has_property(const char *node, const char *name)
{
	char path[PATH_MAX];
	int n = snprintf(path, sizeof path, "%s/%s", node, name);

	return n > 0 && (size_t)n < sizeof path && access(path, F_OK) == 0;
}

static int read_cell(const char *node, const char *name, uint32_t *ret)
{
	uint32_t cell;
	ssize_t n = read_property(node, name, &cell, sizeof cell);

	if (n < 0)
		return (int)n;
	if (n != sizeof cell)
		return -EINVAL;
	*ret = be32toh(cell);
	return 0;
}

/* The node with that phandle, looked for in the whole tree below `base`. */
static int find_phandle(const char *base, uint32_t phandle, char ret[PATH_MAX])
{
	char *paths[] = {(char *)(uintptr_t)base, NULL};
	FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	FTSENT *entry;
	int r = -ENOENT;

	if (!tree)
		return -errno;
	while (r == -ENOENT && (entry = fts_read(tree))) {
		uint32_t value = 0;

		if (entry->fts_info == FTS_D &&
		    read_cell(entry->fts_path, "phandle", &value) == 0 && value == phandle) {
			snprintf(ret, PATH_MAX, "%s", entry->fts_path);
			r = 0;
		}
	}
	fts_close(tree);
	return r;
}

/* Where "dma-mem" stands among the node's interconnect-names; -ENOENT. */
static int find_dma_mem(const char *node)
{
	char names[PROPERTY_MAX];
	ssize_t size = read_property(node, "interconnect-names", names, sizeof names);
	int index = 0;

	for (ssize_t at = 0; at < size; index++) {
		size_t room = (size_t)(size - at), length = strnlen(names + at, room);

		if (length == room)
			break; /* not terminated: not a list of strings */
		if (strcmp(names + at, "dma-mem") == 0)
			return index;
		at += (ssize_t)length + 1;
	}
	return -ENOENT;
}

/* The node that the index'th specifier of interconnects points to. */
static int parse_interconnect(const char *base, const char *node, int index, char ret[PATH_MAX])
{
	uint32_t cells[PROPERTY_MAX / sizeof(uint32_t)];
	ssize_t size = read_property(node, "interconnects", cells, sizeof cells);

	if (size < 0)
		return (int)size;
	size_t count = (size_t)size / sizeof *cells;
	for (size_t at = 0; at < count;) {
		uint32_t phandle = be32toh(cells[at++]), arguments = 0;

		if (phandle != 0) {
			int r = find_phandle(base, phandle, ret);
			if (r == 0)
				r = read_cell(ret, "#interconnect-cells", &arguments);
			if (r < 0)
				return r;
		}
		if (index-- == 0)
			return phandle != 0 && arguments <= count - at ? 0 : -ENOENT;
		if (arguments > count - at)
			return -EINVAL;
		at += arguments;
	}
	return -ENOENT;
}

/* One step of of_get_next_dma_parent(): false at the root. */
static bool next_dma_parent(const char *base, char node[PATH_MAX])
{
	char parent[PATH_MAX];
	int index = find_dma_mem(node);

	if (index >= 0 && parse_interconnect(base, node, index, parent) == 0) {
		memcpy(node, parent, PATH_MAX);
		return true;
	}
	if (strlen(node) <= strlen(base))
		return false;
	*strrchr(node, '/') = '\0';
	return true;
}

/* `node` as the tree calls it: "/soc/isp@fdff0000". */
static const char *node_name(const char *base, const char *node)
{
	return strlen(node) > strlen(base) ? node + strlen(base) : "/";
}

static void walk_tree(const char *base, char node[PATH_MAX], enum coherence_default architecture,
		      struct coherence_answer *ret)
{
	for (int step = 0; step < STEPS_MAX; step++) {
		if (has_property(node, "dma-coherent")) {
			answer(ret, COHERENCE_COHERENT, "dma-coherent at %s",
			       node_name(base, node));
			return;
		}
		if (has_property(node, "dma-noncoherent")) {
			answer(ret, COHERENCE_NOT_COHERENT, "dma-noncoherent at %s",
			       node_name(base, node));
			return;
		}
		if (!next_dma_parent(base, node)) {
			bool coherent = architecture == COHERENCE_DEFAULT_COHERENT;

			answer(ret, coherent ? COHERENCE_COHERENT : COHERENCE_NOT_COHERENT,
			       "the device tree says nothing: this architecture's default");
			return;
		}
	}
	answer(ret, COHERENCE_UNKNOWN, "the DMA parents in the device tree go in a circle");
}

/* The device's own directory becomes its parent's; false above the devices. */
static bool climb(const char *root, char device[PATH_MAX])
{
	char top[PATH_MAX];
	char *slash = strrchr(device, '/');

	snprintf(top, sizeof top, "%s/sys/devices", root);
	if (!slash || (size_t)(slash - device) <= strlen(top))
		return false;
	*slash = '\0';
	return true;
}

/*
 * The device whose DMA it is. A PCI device has that of its host bridge (pci_dma_configure()); a
 * device on a bus that does no DMA of its own, that of the nearest parent that does.
 */
static bool find_dma_device(const char *root, char device[PATH_MAX])
{
	char subsystem[NAME_MAX + 1];

	for (;;) {
		probe_link_name(device, "subsystem", subsystem, sizeof subsystem);
		if (strcmp(subsystem, "platform") == 0 || strcmp(subsystem, "amba") == 0)
			return true;
		if (strcmp(subsystem, "pci") == 0) {
			const char *name;

			do {
				if (!climb(root, device))
					return false;
				probe_link_name(device, "subsystem", subsystem, sizeof subsystem);
				name = strrchr(device, '/') + 1;
			} while (strcmp(subsystem, "pci") == 0 || strncmp(name, "pci", 3) != 0);
			/* The bridge: its parent is the controller with the node. */
			return climb(root, device);
		}
		if (!climb(root, device))
			return false;
	}
}

void coherence_of_device(const char *root, const char *device, enum coherence_default architecture,
			 struct coherence_answer *ret)
{
	char dma_device[PATH_MAX], link[PATH_MAX], node[PATH_MAX], base[PATH_MAX];
	char subsystem[NAME_MAX + 1];

	if (architecture == COHERENCE_ARCHITECTURE) {
		if (strstr(device, "/intel_ipu") || strstr(device, "/intel-ipu"))
			answer(ret, COHERENCE_NOT_COHERENT,
			       "coherent by architecture, but this device does not snoop: its "
			       "driver flushes the CPU caches itself");
		else
			answer(ret, COHERENCE_COHERENT, "by architecture");
		return;
	}

	probe_link_name(device, "subsystem", subsystem, sizeof subsystem);
	if (strcmp(subsystem, "faux") == 0) {
		answer(ret, COHERENCE_UNKNOWN, "a virtual device, which does no DMA of its own");
		return;
	}
	if (snprintf(dma_device, sizeof dma_device, "%s", device) >= (int)sizeof dma_device ||
	    !find_dma_device(root, dma_device)) {
		answer(ret, COHERENCE_UNKNOWN, "no parent is known to do its DMA");
		return;
	}
	if (snprintf(link, sizeof link, "%s/of_node", dma_device) >= (int)sizeof link ||
	    !realpath(link, node)) {
		answer(ret, COHERENCE_UNKNOWN,
		       "no device-tree node: a virtual device, or described by ACPI");
		return;
	}
	if (snprintf(link, sizeof link, "%s%s", root, tree_base) >= (int)sizeof link ||
	    !realpath(link, base) || strncmp(node, base, strlen(base)) != 0) {
		answer(ret, COHERENCE_UNKNOWN, "%s is not mounted", tree_base);
		return;
	}
	walk_tree(base, node, architecture, ret);
}
