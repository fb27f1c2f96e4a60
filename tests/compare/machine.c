/* SPDX-License-Identifier: MIT */
/* Facts about the machine that stand beside the figures. Owns nothing. Any thread. */
#include <stdio.h>
#include <sys/utsname.h>

#include "tests/compare/compare.h"

static void read_cpu(char *text, size_t size)
{
	char line[256];
	FILE *file = fopen("/proc/cpuinfo", "re");

	snprintf(text, size, "unknown");
	if (!file)
		return;
	while (fgets(line, sizeof line, file)) {
		char *colon = strchr(line, ':');

		if (strncmp(line, "model name", 10) != 0 || !colon)
			continue;
		colon += 1 + strspn(colon + 1, " ");
		colon[strcspn(colon, "\n")] = '\0';
		snprintf(text, size, "%s", colon);
		break;
	}
	fclose(file);
}

/* "powersave", or "" where the frequency is not this system's to choose. */
static void read_governor(int cpu, char *text, size_t size)
{
	char path[96];
	FILE *file;

	text[0] = '\0';
	snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", cpu);
	file = fopen(path, "re");
	if (!file)
		return;
	if (!fgets(text, (int)size, file))
		text[0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	fclose(file);
}

void machine_read(const struct compare *compare, struct machine *ret)
{
	struct utsname system;

	read_cpu(ret->cpu, sizeof ret->cpu);
	read_governor(compare->worker_cpu, ret->governor, sizeof ret->governor);
	if (uname(&system) < 0)
		memset(&system, 0, sizeof system);
	snprintf(ret->kernel, sizeof ret->kernel, "%.60s %.60s", system.release, system.machine);
}
