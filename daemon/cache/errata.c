/* SPDX-License-Identifier: MIT */
/*
 * The table of errata, and which of them are in force. Any thread.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/cache/errata.h"

/* Implementer, architecture and part of a MIDR; variant and revision say which version of it. */
#define MODEL_MASK UINT32_C(0xff0ffff0)
#define ANY_VERSION .first = 0, .last = 0xff

static const struct cache_erratum table[] = {
	/*
	 * A clean may fail to write a line back, or lose against another CPU's write: Linux makes
	 * each one a clean and invalidate, for EL0 by trapping it.
	 */
	{
		.bit = DMASYNC_ERRATUM_CORTEX_A53_R0P1,
		.model = 0x410fd030,
		.first = 0x00,
		.last = 0x01,
		.name = "Cortex-A53 r0p0 or r0p1, errata 819472, 824069, 826319, 827319",
		.changes = "the kernel traps each line operation and makes a clean a flush: right, "
			   "and slow",
		.source = "Arm, Cortex-A53 software developers errata notice; Linux "
			  "ARM64_WORKAROUND_CLEAN_CACHE",
	},
	{
		.bit = DMASYNC_ERRATUM_CORTEX_A53_R0P2,
		.model = 0x410fd030,
		.first = 0x02,
		.last = 0x02,
		.name = "Cortex-A53 r0p2, errata 824069, 826319, 827319",
		.changes = "the kernel traps each line operation and makes a clean a flush: right, "
			   "and slow",
		.source = "Arm, Cortex-A53 software developers errata notice; Linux "
			  "ARM64_WORKAROUND_CLEAN_CACHE",
	},
	/* The interconnect's, not the CPU's: nothing that user space can read tells it. */
	{
		.bit = DMASYNC_ERRATUM_SI_L1_4311569,
		.parameter = "arm_si_l1_workaround_4311569",
		.name = "Arm SI L1 4311569",
		.changes = "a batch's line operations are issued twice before its barrier: one "
			   "may be reported complete too early, and its repetition waits for it",
		.source = "Arm, SI L1 errata notice; Linux ARM64_WORKAROUND_4311569; second_pass= "
			  "of dmasyncd.conf(5)",
	},
	{
		.bit = DMASYNC_ERRATUM_NEOVERSE_N1_1542419,
		.model = 0x410fd0c0,
		ANY_VERSION,
		.name = "Neoverse-N1 1542419",
		.changes = "nothing: where CTR_EL0.DIC is set the kernel traps reads of CTR_EL0, "
			   "which is read once",
		.source = "Arm, Neoverse-N1 software developers errata notice; Linux "
			  "ARM64_WORKAROUND_1542419",
	},
	/* A load from a device may be observed before an older store to it. */
	{
		.bit = DMASYNC_ERRATUM_OLYMPUS_T410_1027,
		.model = 0x4e0f0100,
		ANY_VERSION,
		.name = "NVIDIA Olympus T410-OLY-1027",
		.changes = "libdmasync ends a block write to device memory in a barrier and makes "
			   "a single one a store-release (dmasync_io(3)); caches are not concerned",
		.source = "NVIDIA, T410 errata; linux-arm-kernel, series v4 of June 2026",
	},
};

#define ROWS (sizeof table / sizeof table[0])

const struct cache_erratum *cache_errata(size_t *ret_count)
{
	*ret_count = ROWS;
	return table;
}

static bool has(const struct cache_erratum *row, uint32_t midr)
{
	uint32_t version = (midr >> 16 & 0xf0) | (midr & 0xf);

	return row->model && row->model == (midr & MODEL_MASK) && version >= row->first &&
	       version <= row->last;
}

uint32_t cache_errata_of(uint32_t midr)
{
	uint32_t found = 0;

	for (size_t i = 0; i < ROWS; i++)
		found |= has(&table[i], midr) ? table[i].bit : 0;
	return found;
}

/* The file's first bytes as a string; false where it is missing or empty. */
static bool read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length;

	if (fd < 0)
		return false;
	length = read(fd, text, size - 1);
	close(fd);
	if (length <= 0)
		return false;
	text[length] = '\0';
	return true;
}

/* 0 where the file is missing, as on an offline CPU: no CPU has that MIDR. */
static uint32_t read_midr(const char *root, long cpu)
{
	char path[256], text[32];
	int n;

	n = snprintf(path, sizeof path,
		     "%s/sys/devices/system/cpu/cpu%ld/regs/identification/midr_el1", root, cpu);
	if (n < 0 || (size_t)n >= sizeof path || !read_text(path, text, sizeof text))
		return 0;
	/* Bits 63 to 32 are reserved. */
	return (uint32_t)strtoull(text, NULL, 16);
}

/* As the kernel compares them: '-' and '_' are the same. */
static bool same_parameter(const char *word, size_t length, const char *parameter)
{
	if (length != strlen(parameter))
		return false;
	for (size_t i = 0; i < length; i++) {
		char c = word[i] == '-' ? '_' : word[i];

		if (c != parameter[i])
			return false;
	}
	return true;
}

/* Is it one of the words, with or without a value? What follows "--" is for init. */
static bool has_parameter(const char *command_line, const char *parameter)
{
	static const char space[] = " \t\n";

	for (const char *word = command_line + strspn(command_line, space); *word;
	     word += strspn(word, space)) {
		size_t length = strcspn(word, space);

		if (length == 2 && word[0] == '-' && word[1] == '-')
			return false;
		if (same_parameter(word, strcspn(word, " \t\n="), parameter))
			return true;
		word += length;
	}
	return false;
}

static uint32_t told_by_parameters(const char *root)
{
	char path[256], text[4096]; /* COMMAND_LINE_SIZE of arm64 is 2048 */
	uint32_t found = 0;
	int n = snprintf(path, sizeof path, "%s/proc/cmdline", root);

	if (n < 0 || (size_t)n >= sizeof path || !read_text(path, text, sizeof text))
		return 0;
	for (size_t i = 0; i < ROWS; i++) {
		if (table[i].parameter && has_parameter(text, table[i].parameter))
			found |= table[i].bit;
	}
	return found;
}

uint32_t cache_errata_here(const char *root, unsigned int *ret_cpus)
{
	uint32_t found = told_by_parameters(root);
	long cpus = sysconf(_SC_NPROCESSORS_CONF);
	unsigned int known = 0;

	for (long cpu = 0; cpu < cpus; cpu++) {
		uint32_t midr = read_midr(root, cpu);

		known += midr != 0;
		found |= cache_errata_of(midr);
	}
	if (ret_cpus)
		*ret_cpus = known;
	return found;
}

const char *cache_errata_trapping(const char *root)
{
	uint32_t found = cache_errata_here(root, NULL) &
			 (DMASYNC_ERRATUM_CORTEX_A53_R0P1 | DMASYNC_ERRATUM_CORTEX_A53_R0P2);

	for (size_t i = 0; i < ROWS; i++) {
		if (table[i].bit & found)
			return table[i].name;
	}
	return NULL;
}
