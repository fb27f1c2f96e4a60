/* SPDX-License-Identifier: MIT */
/*
 * Probe: DRM and V4L2 devices, and whether the device tree calls their DMA coherent. Owns nothing.
 * Main thread.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/format.h"
#include "client/ctl/probe.h"

struct devices {
	const char *root;
	enum coherence_default architecture;
	const char *class_directory; /* "/sys/class/drm" */
	const char *node_directory;  /* "/dev/dri" */
	json *array;
	struct table *table;
	size_t count;
};

static void each_device(void *context, const char *name)
{
	struct devices *devices = context;
	char link[PATH_MAX], device[PATH_MAX], driver[NAME_MAX + 1], raw[96], label[NAME_MAX + 1];
	struct coherence_answer answer;

	/* Connectors ("card0-HDMI-A-1") stand beside their cards. */
	if (strchr(name, '-'))
		return;
	snprintf(link, sizeof link, "%s%s/%s/device", devices->root, devices->class_directory,
		 name);
	if (!realpath(link, device))
		return;
	probe_link_name(device, "driver", driver, sizeof driver);
	/*
	 * Virtual devices: those of the faux bus (Linux 6.14) share one driver, those before have
	 * none; their own name says more.
	 */
	if (strcmp(driver, "faux_driver") == 0 || driver[0] == '\0')
		snprintf(driver, sizeof driver, "%s", strrchr(device, '/') + 1);
	/* V4L2 has a name for each node ("rkisp1_mainpath"); DRM has the driver's. */
	if (probe_read_line(raw, sizeof raw, devices->root, "%s/%s/name", devices->class_directory,
			    name))
		format_text(label, sizeof label, raw, sizeof raw);
	else
		snprintf(label, sizeof label, "%s", driver);
	coherence_of_device(devices->root, device, devices->architecture, &answer);
	devices->count++;

	if (devices->array) {
		json *object = json_new_object();
		char node[PATH_MAX];

		snprintf(node, sizeof node, "%s/%s", devices->node_directory, name);
		json_add_string(object, "node", node);
		json_add_string(object, "name", label);
		json_add_string(object, "driver", driver);
		json_add_string(object, "device", device + strlen(devices->root));
		json_add_string(object, "dma", coherence_name(answer.coherence));
		json_add_string(object, "why", answer.why);
		json_append(devices->array, object);
		return;
	}
	table_cell(devices->table, "  %s/%s", devices->node_directory, name);
	table_cell(devices->table, "%s", label);
	table_cell(devices->table, "%s", coherence_name(answer.coherence));
	table_cell(devices->table, "%s", answer.why);
}

static void probe_class(struct devices *devices, const char *title, const char *prefixes[],
			json *document, const char *key)
{
	struct table *_table_ table = document ? NULL : table_new("llll");

	devices->array = document ? json_new_array() : NULL;
	devices->table = table;
	devices->count = 0;
	for (size_t i = 0; prefixes[i]; i++)
		probe_each(devices->root, devices->class_directory, prefixes[i], each_device,
			   devices);
	if (document) {
		json_add(document, key, devices->array);
		return;
	}
	printf("%s:%s\n", title, devices->count ? "" : " none");
	table_print(table, stdout);
}

void probe_devices(const char *root, enum coherence_default architecture, json *document)
{
	struct devices devices = {
		.root = root,
		.architecture = architecture,
		.class_directory = "/sys/class/drm",
		.node_directory = "/dev/dri",
	};

	probe_class(&devices, "DRM devices", (const char *[]){"card", "renderD", NULL}, document,
		    "drm");
	devices.class_directory = "/sys/class/video4linux";
	devices.node_directory = "/dev";
	probe_class(&devices, "V4L2 devices", (const char *[]){"video", NULL}, document, "v4l2");
}
