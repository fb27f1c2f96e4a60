/* SPDX-License-Identifier: MIT */
/*
 * Probe: the errata in force, and what each changes. Owns nothing. Main thread.
 */
#include <stdio.h>

#include "client/ctl/probe.h"
#include "daemon/cache/errata.h"

void probe_list_errata(uint32_t errata, json *array)
{
	size_t count;
	const struct cache_erratum *rows = cache_errata(&count);

	for (size_t i = 0; i < count; i++) {
		json *row;

		if (!(errata & rows[i].bit))
			continue;
		if (!array) {
			printf("  %s: %s\n", rows[i].name, rows[i].changes);
			continue;
		}
		row = json_new_object();
		json_add_string(row, "name", rows[i].name);
		json_add_string(row, "changes", rows[i].changes);
		json_add_string(row, "source", rows[i].source);
		json_append(array, row);
	}
}

void probe_errata(const char *root, json *document)
{
	unsigned int cpus;
	uint32_t errata = cache_errata_here(root, &cpus);

	if (document) {
		json *array = json_new_array();

		probe_list_errata(errata, array);
		json_add(document, "errata", array);
	} else if (errata) {
		puts("errata in force:");
		probe_list_errata(errata, NULL);
	} else {
		puts("errata in force: none that is known here");
	}
#if defined(__aarch64__)
	if (cpus == 0 && !document)
		puts("  no MIDR can be read, so CPUs' errata are unknown");
#endif
}
