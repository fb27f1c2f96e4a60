/* SPDX-License-Identifier: MIT */
/*
 * The walk for DMA coherence, and the sections of probe, on a copy of /sys made for each case.
 */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/ctl/coherence.h"
#include "client/ctl/json.h"
#include "client/ctl/probe.h"
#include "tests/lib/harness.h"

#define TREE "/sys/firmware/devicetree/base"

/* <directory of the case><path>, with all that leads there. */
static void make_directory(const char *path)
{
	char full[PATH_MAX];

	snprintf(full, sizeof full, "%s%s", harness_directory(), path);
	for (char *slash = full + strlen(harness_directory()) + 1; slash;) {
		slash = strchr(slash + 1, '/');
		if (slash)
			*slash = '\0';
		if (mkdir(full, 0700) < 0 && errno != EEXIST)
			fail_case("%s: %s", full, strerror(errno));
		if (slash)
			*slash = '/';
	}
}

static void write_bytes(const char *directory, const char *name, const void *data, size_t size)
{
	char path[PATH_MAX];

	make_directory(directory);
	snprintf(path, sizeof path, "%s%s/%s", harness_directory(), directory, name);
	FILE *file = fopen(path, "w");
	if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
		fail_case("%s: %s", path, strerror(errno));
}

static void write_cells(const char *directory, const char *name, const uint32_t *cells,
			size_t count)
{
	unsigned char bytes[64];

	check(count * 4 <= sizeof bytes);
	for (size_t i = 0; i < count; i++)
		for (unsigned int byte = 0; byte < 4; byte++)
			bytes[4 * i + byte] = (unsigned char)(cells[i] >> (24 - 8 * byte));
	write_bytes(directory, name, bytes, count * 4);
}
#define CELLS(directory, name, ...)                                                                \
	write_cells(directory, name, (const uint32_t[]){__VA_ARGS__},                              \
		    sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static void link_to(const char *directory, const char *name, const char *target)
{
	char path[PATH_MAX], full[PATH_MAX];

	make_directory(directory);
	make_directory(target);
	snprintf(path, sizeof path, "%s%s/%s", harness_directory(), directory, name);
	snprintf(full, sizeof full, "%s%s", harness_directory(), target);
	if (symlink(full, path) < 0)
		fail_case("%s: %s", path, strerror(errno));
}

/* A platform device with a node of the tree. */
static void platform_device(const char *device, const char *node)
{
	link_to(device, "subsystem", "/sys/bus/platform");
	if (node)
		link_to(device, "of_node", node);
	else
		make_directory(device);
}

static struct coherence_answer ask(const char *device, enum coherence_default architecture)
{
	struct coherence_answer answer;
	char path[PATH_MAX];

	snprintf(path, sizeof path, "%s%s", harness_directory(), device);
	coherence_of_device(harness_directory(), path, architecture, &answer);
	return answer;
}

static void expect(const char *device, enum coherence_default architecture, enum coherence expected,
		   const char *why)
{
	struct coherence_answer answer = ask(device, architecture);

	check_text(coherence_name(answer.coherence), coherence_name(expected));
	if (!strstr(answer.why, why))
		fail_case("\"%s\" does not say \"%s\"", answer.why, why);
}

#define ISP "/sys/devices/platform/soc/isp"

static void the_nearest_property_decides(void)
{
	platform_device(ISP, TREE "/soc/isp@1000");
	expect(ISP, COHERENCE_DEFAULT_NOT_COHERENT, COHERENCE_NOT_COHERENT, "default");
	expect(ISP, COHERENCE_DEFAULT_COHERENT, COHERENCE_COHERENT, "default");
	expect(ISP, COHERENCE_ARCHITECTURE, COHERENCE_COHERENT, "by architecture");

	write_bytes(TREE, "dma-coherent", "", 0);
	expect(ISP, COHERENCE_DEFAULT_NOT_COHERENT, COHERENCE_COHERENT, "dma-coherent at /");
	write_bytes(TREE "/soc", "dma-noncoherent", "", 0);
	expect(ISP, COHERENCE_DEFAULT_COHERENT, COHERENCE_NOT_COHERENT, "dma-noncoherent at /soc");
	write_bytes(TREE "/soc/isp@1000", "dma-coherent", "", 0);
	expect(ISP, COHERENCE_DEFAULT_NOT_COHERENT, COHERENCE_COHERENT,
	       "dma-coherent at /soc/isp@1000");
	expect(ISP, COHERENCE_ARCHITECTURE, COHERENCE_COHERENT, "by architecture");
}

/* The kernel goes to the interconnect called dma-mem instead of the parent. */
static void dma_mem_leads_elsewhere(void)
{
	static const char names[] = "write\0dma-mem";

	platform_device(ISP, TREE "/soc/isp@1000");
	write_bytes(TREE "/soc", "dma-coherent", "", 0);
	CELLS(TREE "/fabric/first", "phandle", 6);
	CELLS(TREE "/fabric/first", "#interconnect-cells", 2);
	CELLS(TREE "/fabric/bus", "phandle", 7);
	CELLS(TREE "/fabric/bus", "#interconnect-cells", 1);
	write_bytes(TREE "/soc/isp@1000", "interconnect-names", names, sizeof names);
	CELLS(TREE "/soc/isp@1000", "interconnects", 6, 0, 1, 7, 3);
	expect(ISP, COHERENCE_DEFAULT_NOT_COHERENT, COHERENCE_NOT_COHERENT, "default");
	write_bytes(TREE "/fabric", "dma-coherent", "", 0);
	expect(ISP, COHERENCE_DEFAULT_NOT_COHERENT, COHERENCE_COHERENT, "dma-coherent at /fabric");

	/* An empty specifier counts as one. */
	CELLS(TREE "/soc/isp@1000", "interconnects", 0, 7, 3);
	expect(ISP, COHERENCE_DEFAULT_NOT_COHERENT, COHERENCE_COHERENT, "dma-coherent at /fabric");
}

/* Where the interconnect cannot be followed the kernel takes the parent. */
static void a_broken_interconnect_leads_to_the_parent(void)
{
	static const char names[] = "dma-mem", open_end[] = {'d', 'm', 'a', '-', 'm', 'e', 'm'};

	platform_device(ISP, TREE "/soc/isp@1000");
	write_bytes(TREE "/soc", "dma-coherent", "", 0);
	CELLS(TREE "/fabric/bus", "phandle", 7);
	CELLS(TREE "/fabric/bus", "#interconnect-cells", 1);

	write_bytes(TREE "/soc/isp@1000", "interconnect-names", names, sizeof names);
	expect(ISP, COHERENCE_DEFAULT_NOT_COHERENT, COHERENCE_COHERENT, "dma-coherent at /soc");
	CELLS(TREE "/soc/isp@1000", "interconnects", 99, 3); /* no such phandle */
	expect(ISP, COHERENCE_DEFAULT_NOT_COHERENT, COHERENCE_COHERENT, "dma-coherent at /soc");
	CELLS(TREE "/soc/isp@1000", "interconnects", 7); /* its argument is missing */
	expect(ISP, COHERENCE_DEFAULT_NOT_COHERENT, COHERENCE_COHERENT, "dma-coherent at /soc");
	CELLS(TREE "/soc/isp@1000", "interconnects", 7, 3);
	expect(ISP, COHERENCE_DEFAULT_NOT_COHERENT, COHERENCE_NOT_COHERENT, "default");
	write_bytes(TREE "/soc/isp@1000", "interconnect-names", open_end, sizeof open_end);
	expect(ISP, COHERENCE_DEFAULT_NOT_COHERENT, COHERENCE_COHERENT, "dma-coherent at /soc");
}

static void a_circle_is_unknown(void)
{
	static const char names[] = "dma-mem";

	platform_device(ISP, TREE "/a");
	CELLS(TREE "/a", "phandle", 1);
	CELLS(TREE "/a", "#interconnect-cells", 0);
	CELLS(TREE "/a", "interconnects", 2);
	write_bytes(TREE "/a", "interconnect-names", names, sizeof names);
	CELLS(TREE "/b", "phandle", 2);
	CELLS(TREE "/b", "#interconnect-cells", 0);
	CELLS(TREE "/b", "interconnects", 1);
	write_bytes(TREE "/b", "interconnect-names", names, sizeof names);
	expect(ISP, COHERENCE_DEFAULT_COHERENT, COHERENCE_UNKNOWN, "circle");
}

static void a_pci_device_has_the_coherence_of_its_host_bridge(void)
{
#define BRIDGE "/sys/devices/platform/f8000000.pcie"
	static const char device[] = BRIDGE "/pci0000:00/0000:00:00.0/0000:01:00.0";

	platform_device(BRIDGE, TREE "/pcie@f8000000");
	make_directory(BRIDGE "/pci0000:00");
	link_to(BRIDGE "/pci0000:00/0000:00:00.0", "subsystem", "/sys/bus/pci");
	link_to(device, "subsystem", "/sys/bus/pci");
	/* A node of its own is not asked. */
	link_to(device, "of_node", TREE "/pcie@f8000000/device");
	write_bytes(TREE "/pcie@f8000000/device", "dma-coherent", "", 0);
	expect(device, COHERENCE_DEFAULT_NOT_COHERENT, COHERENCE_NOT_COHERENT, "default");
	write_bytes(TREE "/pcie@f8000000", "dma-coherent", "", 0);
	expect(device, COHERENCE_DEFAULT_NOT_COHERENT, COHERENCE_COHERENT,
	       "dma-coherent at /pcie@f8000000");
}

static void a_camera_on_usb_has_that_of_its_controller(void)
{
	static const char camera[] = "/sys/devices/platform/soc/usb/usb1/1-1/1-1:1.0";

	platform_device("/sys/devices/platform/soc/usb", TREE "/soc/usb@2000");
	link_to("/sys/devices/platform/soc/usb/usb1/1-1", "subsystem", "/sys/bus/usb");
	link_to(camera, "subsystem", "/sys/bus/usb");
	write_bytes(TREE "/soc/usb@2000", "dma-coherent", "", 0);
	expect(camera, COHERENCE_DEFAULT_NOT_COHERENT, COHERENCE_COHERENT, "/soc/usb@2000");
}

static void what_the_tree_does_not_know_is_unknown(void)
{
	static const char virtual_device[] = "/sys/devices/platform/vivid.0";
	static const char faux[] = "/sys/devices/faux/vkms";

	make_directory(TREE);
	platform_device(virtual_device, NULL);
	expect(virtual_device, COHERENCE_DEFAULT_NOT_COHERENT, COHERENCE_UNKNOWN, "no device-tree");
	link_to(faux, "subsystem", "/sys/bus/faux");
	expect(faux, COHERENCE_DEFAULT_NOT_COHERENT, COHERENCE_UNKNOWN, "virtual");
}

/* x86 snoops, but for this one. */
static void an_ipu_is_not_coherent(void)
{
	static const char ipu[] = "/sys/devices/pci0000:00/0000:00:05.0/intel_ipu6.isys.40";

	make_directory(ipu);
	expect(ipu, COHERENCE_ARCHITECTURE, COHERENCE_NOT_COHERENT, "flushes");
}

static const char *member(json *object, const char *key)
{
	json *value = NULL;

	if (!json_object_object_get_ex(object, key, &value))
		fail_case("no member \"%s\" in %s", key, json_object_to_json_string(object));
	return value ? json_object_get_string(value) : "null";
}

static json *element(json *document, const char *key, size_t index, size_t count)
{
	json *array = NULL;

	check(json_object_object_get_ex(document, key, &array));
	check_int(json_object_array_length(array), count);
	return json_object_array_get_idx(array, index);
}

static void devices_are_listed(void)
{
	json *document = json_new_object();

	platform_device(ISP, TREE "/soc/isp@1000");
	link_to(ISP, "driver", "/sys/bus/platform/drivers/rkisp1");
	platform_device("/sys/devices/platform/gpu", TREE "/gpu");
	link_to("/sys/devices/platform/gpu", "driver", "/sys/bus/platform/drivers/panfrost");
	write_bytes(TREE "/gpu", "dma-coherent", "", 0);
	link_to("/sys/class/video4linux/video10", "device", ISP);
	write_bytes("/sys/class/video4linux/video10", "name", "rkisp1_mainpath\n", 16);
	link_to("/sys/class/video4linux/video2", "device", ISP);
	write_bytes("/sys/class/video4linux/video2", "name", "evil\033[2J\n", 9);
	make_directory("/sys/class/video4linux/v4l-subdev0");
	link_to("/sys/class/drm/card0", "device", "/sys/devices/platform/gpu");
	link_to("/sys/devices/faux/vkms", "subsystem", "/sys/bus/faux");
	link_to("/sys/devices/faux/vkms", "driver", "/sys/bus/faux/drivers/faux_driver");
	link_to("/sys/class/drm/card1", "device", "/sys/devices/faux/vkms");
	make_directory("/sys/devices/platform/vgem");
	link_to("/sys/class/drm/card2", "device", "/sys/devices/platform/vgem");
	link_to("/sys/class/drm/card0-HDMI-A-1", "device", "/sys/devices/platform/gpu");
	make_directory("/sys/class/drm/version");

	probe_devices(harness_directory(), COHERENCE_DEFAULT_NOT_COHERENT, document);
	json *gpu = element(document, "drm", 0, 3);
	check_text(member(gpu, "node"), "/dev/dri/card0");
	check_text(member(gpu, "driver"), "panfrost");
	check_text(member(gpu, "dma"), "coherent");
	check_text(member(element(document, "drm", 1, 3), "name"), "vkms");
	check_text(member(element(document, "drm", 2, 3), "name"), "vgem");
	/* By number, not by letter. */
	json *camera = element(document, "v4l2", 1, 2);
	check_text(member(camera, "node"), "/dev/video10");
	check_text(member(camera, "name"), "rkisp1_mainpath");
	check_text(member(camera, "device"), ISP);
	check_text(member(camera, "dma"), "not coherent");
	check_text(member(element(document, "v4l2", 0, 2), "name"), "evil?[2J");
	json_object_put(document);
}

static void write_text(const char *directory, const char *name, const char *text)
{
	write_bytes(directory, name, text, strlen(text));
}

static json *memory_section(void)
{
	json *document = json_new_object(), *memory;

	probe_memory(harness_directory(), document);
	check(json_object_object_get_ex(document, "memory", &memory));
	json_object_get(memory);
	json_object_put(document);
	return memory;
}

static void bouncing_is_warned_of(void)
{
	char zones[256];
	unsigned long limit = (unsigned long)((UINT64_C(1) << 32) / (uint64_t)getpagesize());
	json *memory = memory_section();

	check_text(member(memory, "ram_above_4gib"), "null");
	check_text(member(memory, "swiotlb_pool_bytes"), "null");
	check_text(member(memory, "warning"), "null");
	json_object_put(memory);

	/* A zone that ends at 4 GiB, and an empty one above. */
	snprintf(zones, sizeof zones,
		 "Node 0, zone    DMA32\n        spanned  1\n        present  1\n"
		 "  start_pfn:           %lu\n"
		 "Node 0, zone   Normal\n        spanned  8\n        present  0\n"
		 "  start_pfn:           %lu\n",
		 limit - 1, limit);
	write_text("/proc", "zoneinfo", zones);
	write_text("/proc", "cmdline", "quiet swiotlb=65536 console=ttyS0\n");
	write_text("/sys/kernel/debug/swiotlb", "io_tlb_nslabs", "32768\n");
	memory = memory_section();
	check_text(member(memory, "ram_above_4gib"), "false");
	check_text(member(memory, "swiotlb_parameter"), "65536");
	check_text(member(memory, "swiotlb_pool_bytes"), "67108864");
	check_text(member(memory, "warning"), "null");
	json_object_put(memory);

	snprintf(zones, sizeof zones,
		 "Node 0, zone   Normal\n        spanned  2\n        present  1\n"
		 "  start_pfn:           %lu\n",
		 limit - 1);
	write_text("/proc", "zoneinfo", zones);
	memory = memory_section();
	check_text(member(memory, "ram_above_4gib"), "true");
	check(strstr(member(memory, "warning"), "above 4 GiB") != NULL);
	json_object_put(memory);

	write_text("/proc", "cmdline", "swiotlb=noforce");
	memory = memory_section();
	check_text(member(memory, "warning"), "null");
	json_object_put(memory);
	write_text("/proc", "cmdline", "swiotlb=force");
	memory = memory_section();
	check(strstr(member(memory, "warning"), "every DMA") != NULL);
	json_object_put(memory);
}

static void cpus_and_heaps_are_listed(void)
{
	json *document = json_new_object();

	write_text("/sys/devices/system/cpu/cpu0/regs/identification", "midr_el1",
		   "0x00000000410fd032\n");
	write_text("/sys/devices/system/cpu/cpu10/regs/identification", "midr_el1",
		   "0x00000000414fd0b1\n");
	make_directory("/sys/devices/system/cpu/cpu2");
	make_directory("/sys/devices/system/cpu/cpufreq");
	write_text("/proc", "cpuinfo", "processor : 0\nmodel name\t: Some CPU\nmodel : 7\n");
	write_bytes(TREE, "model", "Radxa ROCK 3A", 14);
	write_text("/dev/dma_heap", "system", "");
	write_text("/dev/dma_heap", "default_cma_region", "");

	probe_cpus(harness_directory(), document);
	check_text(member(document, "board"), "Radxa ROCK 3A");
	check_text(member(element(document, "cpus", 0, 3), "model"), "Cortex-A53 r0p2");
	check_text(member(element(document, "cpus", 0, 3), "midr"), "0x410fd032");
	check_text(member(element(document, "cpus", 1, 3), "model"), "Some CPU");
	check_text(member(element(document, "cpus", 1, 3), "midr"), "null");
	check_text(member(element(document, "cpus", 2, 3), "cpu"), "10");
	check_text(member(element(document, "cpus", 2, 3), "model"), "Cortex-A76 r4p1");

	probe_allocators(harness_directory(), document);
	check_text(member(element(document, "dma_buf_allocators", 0, 2), "path"),
		   "/dev/dma_heap/default_cma_region");
	check_text(member(element(document, "dma_buf_allocators", 1, 2), "accessible"), "true");
	json_object_put(document);
}

static void errata_are_listed(void)
{
	json *document = json_new_object(), *none = json_new_object();

	probe_errata(harness_directory(), none);
	check_int((int64_t)json_object_array_length(json_object_object_get(none, "errata")), 0);
	json_object_put(none);

	write_text("/sys/devices/system/cpu/cpu0/regs/identification", "midr_el1",
		   "0x000000004e0f0100\n");
	write_text("/proc", "cmdline", "quiet arm_si_l1_workaround_4311569\n");
	probe_errata(harness_directory(), document);
	check_text(member(element(document, "errata", 0, 2), "name"), "Arm SI L1 4311569");
	check_text(member(element(document, "errata", 1, 2), "name"),
		   "NVIDIA Olympus T410-OLY-1027");
	check(*member(element(document, "errata", 1, 2), "changes") != 0);
	json_object_put(document);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(the_nearest_property_decides),
	HARNESS_CASE(dma_mem_leads_elsewhere),
	HARNESS_CASE(a_broken_interconnect_leads_to_the_parent),
	HARNESS_CASE(a_circle_is_unknown),
	HARNESS_CASE(a_pci_device_has_the_coherence_of_its_host_bridge),
	HARNESS_CASE(a_camera_on_usb_has_that_of_its_controller),
	HARNESS_CASE(what_the_tree_does_not_know_is_unknown),
	HARNESS_CASE(an_ipu_is_not_coherent),
	HARNESS_CASE(devices_are_listed),
	HARNESS_CASE(bouncing_is_warned_of),
	HARNESS_CASE(cpus_and_heaps_are_listed),
	HARNESS_CASE(errata_are_listed),
};

HARNESS_MAIN(cases)
