/* SPDX-License-Identifier: MIT */
/*
 * Which errata are told by which MIDR and which command line, on copies of /sys and /proc. One
 * thread.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/cache/errata.h"

#define A53 (DMASYNC_ERRATUM_CORTEX_A53_R0P1 | DMASYNC_ERRATUM_CORTEX_A53_R0P2)

static char root[] = "/tmp/dmasync-errata-XXXXXX";

/* A file below the root, and the directories on its way. */
static void write_file(const char *path, const char *text)
{
	char whole[256];
	FILE *file;

	snprintf(whole, sizeof whole, "%s%s", root, path);
	for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')); at++) {
		*at = '\0';
		assert_true(mkdir(whole, 0700) == 0 || errno == EEXIST);
		*at = '/';
	}
	file = fopen(whole, "we");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void write_midr(unsigned int cpu, const char *text)
{
	char path[128];

	snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/regs/identification/midr_el1",
		 cpu);
	write_file(path, text);
}

static int make_root(void **state)
{
	(void)state;
	strcpy(root + strlen(root) - 6, "XXXXXX");
	assert_non_null(mkdtemp(root));
	return 0;
}

static int remove_root(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof command, "rm -r %s", root);
	return system(command);
}

static void a_midr_tells_its_errata(void **state)
{
	static const struct {
		uint32_t midr, errata;
	} cases[] = {
		{0x410fd02f, 0},
		{0x410fd030, DMASYNC_ERRATUM_CORTEX_A53_R0P1},
		{0x410fd031, DMASYNC_ERRATUM_CORTEX_A53_R0P1},
		{0x410fd032, DMASYNC_ERRATUM_CORTEX_A53_R0P2},
		{0x410fd033, 0},
		{0x410fd034, 0},
		{0x411fd030, 0}, /* r1p0 */
		{0x420fd030, 0}, /* another implementer */
		{0x410fd040, 0}, /* Cortex-A35 */
		{0x410fd0c0, DMASYNC_ERRATUM_NEOVERSE_N1_1542419},
		{0x414fd0c1, DMASYNC_ERRATUM_NEOVERSE_N1_1542419},
		{0x41ffd0cf, DMASYNC_ERRATUM_NEOVERSE_N1_1542419},
		{0x410fd0b0, 0}, /* Cortex-A76 */
		{0x4e0f0100, DMASYNC_ERRATUM_OLYMPUS_T410_1027},
		{0x4e1f0102, DMASYNC_ERRATUM_OLYMPUS_T410_1027},
		{0x4e0f0040, 0}, /* Carmel */
		{0x410f0100, 0},
		{0, 0},
		{0xffffffff, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		if (cache_errata_of(cases[i].midr) != cases[i].errata)
			fail_msg("MIDR %#x: %#x", cases[i].midr, cache_errata_of(cases[i].midr));
	}
}

static void trapping_cpus_are_told_by_midr(void **state)
{
	(void)state;
	assert_null(cache_errata_trapping(root));
	write_midr(0, "0x00000000410fd030\n");
	assert_string_equal(cache_errata_trapping(root),
			    "Cortex-A53 r0p0 or r0p1, errata 819472, 824069, 826319, 827319");
	write_midr(0, "0x00000000410fd032\n");
	assert_string_equal(cache_errata_trapping(root),
			    "Cortex-A53 r0p2, errata 824069, 826319, 827319");
	write_midr(0, "0x00000000410fd033\n");
	assert_null(cache_errata_trapping(root));
	write_midr(0, "0x000000004e0f0100\n");
	assert_null(cache_errata_trapping(root));
	write_midr(0, "");
	assert_null(cache_errata_trapping(root));
}

static void every_cpu_is_asked(void **state)
{
	unsigned int cpus = 77;

	(void)state;
	assert_int_equal(cache_errata_here(root, &cpus), 0);
	assert_int_equal(cpus, 0);
	write_midr(0, "0x00000000413fd0c1\n");
	assert_int_equal(cache_errata_here(root, &cpus), DMASYNC_ERRATUM_NEOVERSE_N1_1542419);
	assert_int_equal(cpus, 1);
	write_midr(0, "nonsense\n");
	assert_int_equal(cache_errata_here(root, &cpus), 0);
	assert_int_equal(cpus, 0);
	if (sysconf(_SC_NPROCESSORS_CONF) < 2)
		return;
	write_midr(0, "0x00000000410fd034\n");
	write_midr(1, "0x000000004e0f0100\n");
	assert_int_equal(cache_errata_here(root, &cpus), DMASYNC_ERRATUM_OLYMPUS_T410_1027);
	assert_int_equal(cpus, 2);
}

static void the_kernel_tells_what_no_cpu_does(void **state)
{
	static const struct {
		const char *line;
		bool there;
	} cases[] = {
		{"", false},
		{"quiet\n", false},
		{"arm_si_l1_workaround_4311569\n", true},
		{"arm_si_l1_workaround_4311569", true},
		{"quiet arm_si_l1_workaround_4311569 panic=1\n", true},
		{"quiet\tarm_si_l1_workaround_4311569=1\n", true},
		{"quiet arm-si-l1-workaround-4311569\n", true},
		{"arm_si_l1_workaround_43115690\n", false},
		{"arm_si_l1_workaround_431156\n", false},
		{"xarm_si_l1_workaround_4311569\n", false},
		{"x=arm_si_l1_workaround_4311569\n", false},
		{"quiet -- arm_si_l1_workaround_4311569\n", false},
		{"--x arm_si_l1_workaround_4311569\n", true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		uint32_t found;

		write_file("/proc/cmdline", cases[i].line);
		found = cache_errata_here(root, NULL);
		if (found != (cases[i].there ? DMASYNC_ERRATUM_SI_L1_4311569 : 0))
			fail_msg("\"%s\": %#x", cases[i].line, found);
	}
}

static void every_row_says_what_it_is(void **state)
{
	const struct cache_erratum *rows;
	uint32_t bits = 0;
	size_t count;

	(void)state;
	rows = cache_errata(&count);
	assert_int_equal(count, 5);
	for (size_t i = 0; i < count; i++) {
		assert_int_equal(__builtin_popcount(rows[i].bit), 1);
		assert_false(bits & rows[i].bit);
		bits |= rows[i].bit;
		assert_true((rows[i].model != 0) != (rows[i].parameter != NULL));
		assert_true(rows[i].first <= rows[i].last);
		assert_true(*rows[i].name && *rows[i].changes && *rows[i].source);
	}
	assert_int_equal(bits, A53 | DMASYNC_ERRATUM_SI_L1_4311569 |
				       DMASYNC_ERRATUM_NEOVERSE_N1_1542419 |
				       DMASYNC_ERRATUM_OLYMPUS_T410_1027);
}

#define IN_ROOT(test) cmocka_unit_test_setup_teardown(test, make_root, remove_root)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_midr_tells_its_errata),
		IN_ROOT(trapping_cpus_are_told_by_midr),
		IN_ROOT(every_cpu_is_asked),
		IN_ROOT(the_kernel_tells_what_no_cpu_does),
		cmocka_unit_test(every_row_says_what_it_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
