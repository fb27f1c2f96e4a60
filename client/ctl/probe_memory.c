/* SPDX-License-Identifier: MIT */
/*
 * Probe: RAM above 4 GiB and swiotlb, by which bouncing is likely or not, and the allocators of
 * shareable buffers. Owns nothing. Main thread.
 */
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/format.h"
#include "client/ctl/probe.h"

enum answer { ANSWER_UNKNOWN, ANSWER_NO, ANSWER_YES };

/*
 * By the zones of /proc/zoneinfo, which everybody may read: does one with memory in it reach
 * beyond 4 GiB? (/proc/iomem shows addresses to root alone.)
 */
static enum answer ram_above_4gib(const char *root)
{
	char path[PATH_MAX], line[256];
	uint64_t limit = (UINT64_C(1) << 32) / (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t spanned = 0, present = 0, value;
	enum answer answer = ANSWER_UNKNOWN;

	snprintf(path, sizeof path, "%s/proc/zoneinfo", root);
	FILE *file = fopen(path, "re");
	if (!file)
		return ANSWER_UNKNOWN;
	while (fgets(line, sizeof line, file)) {
		if (sscanf(line, " spanned %" SCNu64, &value) == 1)
			spanned = value;
		else if (sscanf(line, " present %" SCNu64, &value) == 1)
			present = value;
		else if (sscanf(line, " start_pfn: %" SCNu64, &value) == 1) {
			if (answer == ANSWER_UNKNOWN)
				answer = ANSWER_NO;
			if (present > 0 && value + spanned > limit)
				answer = ANSWER_YES;
			spanned = present = 0;
		}
	}
	fclose(file);
	return answer;
}

/* The value of swiotlb= on the kernel's command line: "force", "65536,force"; "" where none. */
static void read_swiotlb_parameter(const char *root, char *ret, size_t size)
{
	char line[4096];

	ret[0] = '\0';
	if (!probe_read_line(line, sizeof line, root, "/proc/cmdline"))
		return;
	for (char *save, *word = strtok_r(line, " ", &save); word;
	     word = strtok_r(NULL, " ", &save))
		if (strncmp(word, "swiotlb=", 8) == 0)
			format_text(ret, size, word + 8, strlen(word + 8));
}

/* Slots of 2 KiB in the bounce pool; debugfs, so root alone. */
static bool read_swiotlb_pool(const char *root, uint64_t *ret_bytes)
{
	char line[64];
	uint64_t slots;

	if (!probe_read_line(line, sizeof line, root, "/sys/kernel/debug/swiotlb/io_tlb_nslabs") ||
	    sscanf(line, "%" SCNu64, &slots) != 1)
		return false;
	*ret_bytes = slots << 11;
	return true;
}

void probe_memory(const char *root, json *document)
{
	enum answer above = ram_above_4gib(root);
	char parameter[64], text[FORMAT_SIZE];
	uint64_t pool = 0;
	bool pool_known = read_swiotlb_pool(root, &pool);

	read_swiotlb_parameter(root, parameter, sizeof parameter);
	bool never = strstr(parameter, "noforce") != NULL;
	bool forced = !never && strstr(parameter, "force") != NULL;
	const char *warning =
		forced ? "swiotlb=force: every DMA of a device is bounced; line operations on a "
			 "buffer cannot replace the copy, its backend must be kernel"
		: !never && above == ANSWER_YES
			? "RAM lies above 4 GiB: the DMA of a device that cannot address it, and "
			  "has no IOMMU, is bounced; for its buffers the backend must be kernel"
			: NULL;

	if (document) {
		json *memory = json_new_object();

		if (above == ANSWER_UNKNOWN)
			json_add_null(memory, "ram_above_4gib");
		else
			json_add_bool(memory, "ram_above_4gib", above == ANSWER_YES);
		json_add_string(memory, "swiotlb_parameter", parameter);
		if (pool_known)
			json_add_uint(memory, "swiotlb_pool_bytes", pool);
		else
			json_add_null(memory, "swiotlb_pool_bytes");
		if (warning)
			json_add_string(memory, "warning", warning);
		else
			json_add_null(memory, "warning");
		json_add(document, "memory", memory);
		return;
	}
	printf("memory: RAM above 4 GiB: %s; bounce buffers: %s%s, pool %s\n",
	       above == ANSWER_UNKNOWN ? "unknown"
	       : above == ANSWER_YES   ? "yes"
				       : "no",
	       parameter[0] ? "swiotlb=" : "swiotlb is not on the kernel's command line", parameter,
	       pool_known ? format_bytes(text, pool) : "unknown (debugfs, for root, has none)");
	if (warning)
		printf("  warning: %s\n", warning);
}

struct heaps {
	const char *root;
	json *array;
};

static void add_allocator(const struct heaps *heaps, const char *path)
{
	char full[PATH_MAX];
	bool usable;

	snprintf(full, sizeof full, "%s%s", heaps->root, path);
	usable = access(full, R_OK) == 0;
	if (!heaps->array) {
		printf("  %s%s\n", path, usable ? "" : " (not accessible to this user)");
		return;
	}
	json *heap = json_new_object();

	json_add_string(heap, "path", path);
	json_add_bool(heap, "accessible", usable);
	json_append(heaps->array, heap);
}

static void each_heap(void *context, const char *name)
{
	char path[NAME_MAX + 32];

	snprintf(path, sizeof path, "/dev/dma_heap/%s", name);
	add_allocator(context, path);
}

void probe_allocators(const char *root, json *document)
{
	struct heaps heaps = {.root = root};
	char path[PATH_MAX];

	if (document)
		heaps.array = json_new_array();
	else
		puts("dma-buf allocators:");
	size_t count = probe_each(root, "/dev/dma_heap", "", each_heap, &heaps);
	snprintf(path, sizeof path, "%s/dev/udmabuf", root);
	if (access(path, F_OK) == 0) {
		add_allocator(&heaps, "/dev/udmabuf");
		count++;
	}
	if (document)
		json_add(document, "dma_buf_allocators", heaps.array);
	else if (count == 0)
		puts("  none: neither /dev/dma_heap nor /dev/udmabuf is there");
}
