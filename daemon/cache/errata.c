/* SPDX-License-Identifier: MIT */
/*
 * CPUs on which line operations need special treatment. Any thread.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/cache/errata.h"

struct erratum {
	uint32_t first, last; /* MIDR, both included */
	const char *text;
};

/*
 * A clean may fail to write a line back, or lose against another CPU's write: Linux makes each one
 * a clean and invalidate, for EL0 by trapping it (arch/arm64/kernel/cpu_errata.c,
 * ARM64_WORKAROUND_CLEAN_CACHE).
 */
static const struct erratum trapping[] = {
	{0x410fd030, 0x410fd031, "Cortex-A53 r0p0 or r0p1, errata 819472, 824069, 826319, 827319"},
	{0x410fd032, 0x410fd032, "Cortex-A53 r0p2, errata 824069, 826319, 827319"},
};

/* 0 where the file is missing, as on an offline CPU: no CPU has that MIDR. */
static uint32_t read_midr(const char *sysfs, long cpu)
{
	char path[256], text[32];
	ssize_t length;
	int fd, n;

	n = snprintf(path, sizeof path, "%s/cpu%ld/regs/identification/midr_el1", sysfs, cpu);
	if (n < 0 || (size_t)n >= sizeof path)
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	length = read(fd, text, sizeof text - 1);
	close(fd);
	if (length <= 0)
		return 0;
	text[length] = '\0';
	/* Bits 63 to 32 are reserved. */
	return (uint32_t)strtoull(text, NULL, 16);
}

const char *cache_errata_trapping(const char *sysfs)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);

	for (long cpu = 0; cpu < cpus; cpu++) {
		uint32_t midr = read_midr(sysfs, cpu);

		for (size_t i = 0; i < sizeof trapping / sizeof trapping[0]; i++) {
			if (midr >= trapping[i].first && midr <= trapping[i].last)
				return trapping[i].text;
		}
	}
	return NULL;
}
