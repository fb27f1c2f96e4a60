/* SPDX-License-Identifier: MIT */
/* The policy for every exporter, and the exporter's name where the client has forged a second one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "daemon/buffer/map.h"
#include "daemon/buffer/policy.h"

#define AUTO DMASYNC_BACKEND_AUTO
#define DIRECT DMASYNC_BACKEND_DIRECT
#define KERNEL DMASYNC_BACKEND_KERNEL
#define NONE DMASYNC_BACKEND_NONE
#define SIMULATED DMASYNC_BACKEND_SIMULATED

enum lines { NO_LINES, LINES };
enum guarantee { UNSURE, SURE };

struct expectation {
	const char *exporter; /* NULL: a memfd */
	enum dmasync_backend requested, configured;
	enum lines lines;
	int error;
	enum dmasync_backend backend;
	enum guarantee guarantee;
};

/* facts: what DMA_BUF_IOCTL_SYNC does, exporter by exporter. */
static const struct expectation table[] = {
	/* heaps: cached memory; the kernel's sync does nothing where no device has them mapped */
	{"system", AUTO, AUTO, LINES, 0, DIRECT, SURE},
	{"default_cma_region", AUTO, AUTO, LINES, 0, DIRECT, SURE},
	{"reserved", AUTO, AUTO, LINES, 0, DIRECT, SURE},
	{"linux,cma", AUTO, AUTO, LINES, 0, DIRECT, SURE},
	{"system", AUTO, AUTO, NO_LINES, 0, KERNEL, UNSURE},
	{"reserved", AUTO, AUTO, NO_LINES, 0, KERNEL, UNSURE},
	{"system", KERNEL, AUTO, LINES, 0, KERNEL, UNSURE},
	{"system", KERNEL, KERNEL, LINES, 0, KERNEL, SURE},
	{"system", AUTO, KERNEL, LINES, 0, KERNEL, SURE},
	{"system", AUTO, NONE, LINES, 0, NONE, SURE},
	{"system", DIRECT, KERNEL, LINES, 0, DIRECT, SURE},
	{"system", NONE, AUTO, NO_LINES, 0, NONE, SURE},
	{"system", DIRECT, AUTO, NO_LINES, -EOPNOTSUPP, AUTO, UNSURE},
	/* udmabuf: its sync works without an importer */
	{"udmabuf", AUTO, AUTO, LINES, 0, DIRECT, SURE},
	{"udmabuf", AUTO, AUTO, NO_LINES, 0, KERNEL, SURE},
	{"udmabuf", KERNEL, AUTO, LINES, 0, KERNEL, SURE},
	/* vb2: dma-contig and vmalloc sync nothing, ever */
	{"videobuf2_dma_contig", AUTO, AUTO, LINES, 0, DIRECT, SURE},
	{"videobuf2_dma_contig", KERNEL, AUTO, LINES, 0, KERNEL, UNSURE},
	{"videobuf2_dma_contig", AUTO, KERNEL, LINES, 0, KERNEL, UNSURE},
	{"videobuf2_dma_contig", AUTO, AUTO, NO_LINES, 0, KERNEL, UNSURE},
	{"videobuf2_vmalloc", AUTO, AUTO, LINES, 0, DIRECT, SURE},
	{"videobuf2_vmalloc", AUTO, KERNEL, LINES, 0, KERNEL, UNSURE},
	{"videobuf2_dma_sg", AUTO, AUTO, LINES, 0, DIRECT, SURE},
	{"videobuf2_dma_sg", AUTO, AUTO, NO_LINES, 0, KERNEL, SURE},
	/* drm: many drivers behind one name */
	{"drm", AUTO, AUTO, LINES, 0, KERNEL, UNSURE},
	{"drm", AUTO, AUTO, NO_LINES, 0, KERNEL, UNSURE},
	{"drm", AUTO, KERNEL, LINES, 0, KERNEL, SURE},
	{"drm", AUTO, DIRECT, LINES, 0, DIRECT, SURE},
	{"drm", AUTO, DIRECT, NO_LINES, -EOPNOTSUPP, AUTO, UNSURE},
	{"drm", DIRECT, AUTO, LINES, -EOPNOTSUPP, AUTO, UNSURE},
	{"drm", DIRECT, DIRECT, LINES, 0, DIRECT, SURE},
	{"drm", NONE, AUTO, LINES, 0, NONE, SURE},
	/* what nobody has heard of, and names that only look alike */
	{"acme-isp", AUTO, AUTO, LINES, 0, KERNEL, UNSURE},
	{"acme-isp", DIRECT, AUTO, LINES, -EOPNOTSUPP, AUTO, UNSURE},
	{"acme-isp", AUTO, DIRECT, LINES, 0, DIRECT, SURE},
	{"", AUTO, AUTO, LINES, 0, KERNEL, UNSURE},
	{"system ", AUTO, AUTO, LINES, 0, KERNEL, UNSURE},
	{"System", AUTO, AUTO, LINES, 0, KERNEL, UNSURE},
	{"system-uncached", AUTO, AUTO, LINES, 0, KERNEL, UNSURE},
	{"system", SIMULATED, AUTO, LINES, -EOPNOTSUPP, AUTO, UNSURE},
	/* memfds */
	{NULL, AUTO, AUTO, LINES, 0, DIRECT, SURE},
	{NULL, DIRECT, AUTO, LINES, 0, DIRECT, SURE},
	{NULL, AUTO, AUTO, NO_LINES, -EOPNOTSUPP, AUTO, UNSURE},
	{NULL, DIRECT, AUTO, NO_LINES, -EOPNOTSUPP, AUTO, UNSURE},
	{NULL, KERNEL, AUTO, LINES, -EOPNOTSUPP, AUTO, UNSURE},
	{NULL, NONE, AUTO, NO_LINES, 0, NONE, SURE},
	{NULL, SIMULATED, AUTO, NO_LINES, 0, SIMULATED, SURE},
};

static struct policy_facts facts_of(const struct expectation *row)
{
	return (struct policy_facts){
		.kind = row->exporter ? DMASYNC_KIND_DMABUF : DMASYNC_KIND_MEMFD,
		.exporter = row->exporter ? row->exporter : "",
		.requested = row->requested,
		.configured = row->configured,
		.line_operations = row->lines == LINES,
		.allow_simulated = true,
	};
}

static void every_exporter(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
		const struct expectation *row = &table[i];
		struct policy_facts facts = facts_of(row);
		struct policy policy;

		policy_choose(&facts, &policy);
		if (policy.error != row->error || policy.backend != row->backend ||
		    policy.guarantee != (row->guarantee == SURE))
			fail_msg("row %zu (%s): error %d, backend %s, guarantee %d: %s", i,
				 row->exporter ? row->exporter : "memfd", policy.error,
				 policy_backend_name(policy.backend), policy.guarantee, policy.why);
		/* A sentence each time, whole: nothing was cut off. */
		assert_true(policy.why[0] != 0);
		assert_true(strlen(policy.why) < sizeof policy.why - 1);
	}
}

static void configuration_refuses(void **state)
{
	static const enum dmasync_backend requests[] = {AUTO, DIRECT, KERNEL, NONE, SIMULATED};

	(void)state;
	for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
		struct policy_facts facts = {
			.kind = DMASYNC_KIND_DMABUF,
			.exporter = "drm",
			.requested = requests[i],
			.refuse = true,
			.line_operations = true,
		};
		struct policy policy;

		policy_choose(&facts, &policy);
		assert_int_equal(policy.error, -EPERM);
		assert_non_null(strstr(policy.why, "drm"));
	}
}

static void simulated_is_for_tests(void **state)
{
	struct policy_facts facts = {
		.kind = DMASYNC_KIND_MEMFD,
		.exporter = "",
		.requested = SIMULATED,
		.line_operations = true,
	};
	struct policy policy;

	(void)state;
	policy_choose(&facts, &policy);
	assert_int_equal(policy.error, -EPERM);
}

static void first_exporter_name_counts(void **state)
{
	char name[DMASYNC_NAME_SIZE];

	(void)state;
	assert_true(buffer_exporter("pos:\t0\nflags:\t02\nmnt_id:\t10\nino:\t5\nsize:\t4096\n"
				    "count:\t1\nexp_name:\tdrm\nname:\tx\nexp_name:\tsystem\n",
				    name));
	assert_string_equal(name, "drm");
	assert_true(buffer_exporter("exp_name:\tlinux,cma\n", name));
	assert_string_equal(name, "linux,cma");

	/* Not at the start of a line, not whole, not there. */
	assert_false(buffer_exporter("name:\texp_name:\tsystem\n", name));
	assert_false(buffer_exporter("exp_name: system\n", name));
	assert_false(buffer_exporter("exp_name:\tsyst", name));
	assert_false(buffer_exporter("exp_name:", name));
	assert_false(buffer_exporter("pos:\t0\n", name));
	assert_false(buffer_exporter("", name));

	/* A long one is cut and stays unknown. */
	assert_true(buffer_exporter("exp_name:\tsystem-and-then-a-very-long-name-that-goes-on\n",
				    name));
	assert_int_equal(strlen(name), DMASYNC_NAME_SIZE - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_exporter),
		cmocka_unit_test(configuration_refuses),
		cmocka_unit_test(simulated_is_for_tests),
		cmocka_unit_test(first_exporter_name_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
