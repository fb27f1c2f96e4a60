/* SPDX-License-Identifier: MIT */
/*
 * dmasyncctl bench iomem: what a barrier behind a block write costs, beside one behind every store
 * and none at all. On memory of the machine, or on a device's. Needs no daemon. Main thread.
 */
#include <dmasync/iomem.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/bench.h"
#include "client/ctl/format.h"
#include "client/ctl/json.h"
#include "client/ctl/percentiles.h"

#define LARGEST 4096u
#define SIZES 10u	/* 8 bytes to LARGEST, doubling */
#define SAMPLE_NS 50000 /* a sample is at least so long: reading the clock must not count */
#define CALLS_MAX (1u << 20)
#define SAMPLES_MAX 1001u

enum helper { WRITE64_COPY, WRITE32_COPY, MEMSET, MEMCPY_TO, HELPERS };

static const char *const helper_names[HELPERS] = {
	[WRITE64_COPY] = "write64_copy",
	[WRITE32_COPY] = "write32_copy",
	[MEMSET] = "memset",
	[MEMCPY_TO] = "memcpy_to",
};

/* Which barrier, and where. The form without one comes first, each barrier in two forms then. */
struct form {
	const char *barrier; /* NULL: none */
	bool each;
	uint32_t flags;
};

#define TWO_FORMS(name, each_name, flag)                                                           \
	{name, false, flag},                                                                       \
	{                                                                                          \
		each_name, true, (flag) | DMASYNC_IO_EACH                                          \
	}

static const struct form forms[] = {
	{NULL, false, DMASYNC_IO_RELAXED},
#if defined(__x86_64__)
	TWO_FORMS("mfence", "mfence", DMASYNC_IO_ORDERED),
	TWO_FORMS("sfence", "sfence", DMASYNC_IO_FLUSH),
#elif defined(__aarch64__)
	TWO_FORMS("dmb osh", "stlr", DMASYNC_IO_ORDERED),
#elif defined(__riscv)
	TWO_FORMS("fence iorw,iorw", "fence iorw,iorw", DMASYNC_IO_ORDERED),
#else
	TWO_FORMS("barrier", "barrier", DMASYNC_IO_ORDERED),
#endif
};
#define FORMS (sizeof forms / sizeof *forms)

struct iomem {
	const struct ctl *ctl;
	const char *map;
	uint64_t map_index, offset, rounds;

	char *buffers[2]; /* of LARGEST bytes: consecutive calls take turns */
	const char *source;
	int cpu;
	uint64_t *samples[FORMS];
	double ns[FORMS][SIZES][HELPERS];
};

static uint32_t bytes_of(size_t size)
{
	return 8u << size;
}

static void call(const struct iomem *iomem, enum helper helper, char *to, uint32_t bytes,
		 uint32_t flags)
{
	switch (helper) {
	case WRITE64_COPY:
		dmasync_io_write64_copy(to, iomem->source, bytes / 8, flags);
		return;
	case WRITE32_COPY:
		dmasync_io_write32_copy(to, iomem->source, bytes / 4, flags);
		return;
	case MEMSET:
		dmasync_io_memset(to, 0x5a, bytes, flags);
		return;
	case MEMCPY_TO:
		dmasync_io_memcpy_to(to, iomem->source, bytes, flags);
		return;
	case HELPERS:
		return;
	}
}

static uint64_t time_calls(const struct iomem *iomem, enum helper helper, uint32_t bytes,
			   uint32_t flags, uint32_t calls)
{
	int64_t start = now_ns();

	for (uint32_t i = 0; i < calls; i++)
		call(iomem, helper, iomem->buffers[i & 1], bytes, flags);
	return (uint64_t)(now_ns() - start);
}

/* The forms take turns, round by round, so that what drifts hits all alike. */
static void measure_helper(struct iomem *iomem, enum helper helper, size_t size)
{
	uint32_t calls[FORMS], bytes = bytes_of(size);

	for (size_t form = 0; form < FORMS; form++) {
		calls[form] = 2;
		while (calls[form] < CALLS_MAX &&
		       time_calls(iomem, helper, bytes, forms[form].flags, calls[form]) < SAMPLE_NS)
			calls[form] *= 2;
	}
	for (uint64_t round = 0; round < iomem->rounds; round++) {
		for (size_t form = 0; form < FORMS; form++)
			iomem->samples[form][round] =
				time_calls(iomem, helper, bytes, forms[form].flags, calls[form]);
	}
	for (size_t form = 0; form < FORMS; form++)
		iomem->ns[form][size][helper] =
			percentiles_median(iomem->samples[form], (size_t)iomem->rounds) /
			calls[form];
}

static void measure(struct iomem *iomem)
{
	for (size_t size = 0; size < SIZES; size++) {
		for (int helper = 0; helper < HELPERS; helper++)
			measure_helper(iomem, (enum helper)helper, size);
	}
}

/* How many times a barrier behind every store takes one behind the last, at LARGEST. */
static double ratio(const struct iomem *iomem, size_t each, int helper)
{
	return iomem->ns[each][SIZES - 1][helper] / iomem->ns[each - 1][SIZES - 1][helper];
}

static const char *placement(const struct form *form)
{
	if (!form->barrier)
		return "none";
	return form->each ? "each" : "one";
}

static void report_json(const struct iomem *iomem)
{
	json *document = json_new_object(), *rows = json_new_array(), *ratios = json_new_array();
	char key[64];

	json_add_string(document, "memory", iomem->map ? iomem->map : "ordinary");
	json_add_int(document, "cpu", iomem->cpu);
	json_add_bool(document, "needs_barrier", dmasync_io_needs_barrier());
	json_add_uint(document, "rounds", iomem->rounds);
	for (size_t form = 0; form < FORMS; form++) {
		for (size_t size = 0; size < SIZES; size++) {
			json *row = json_new_object();

			if (forms[form].barrier)
				json_add_string(row, "barrier", forms[form].barrier);
			else
				json_add_null(row, "barrier");
			json_add_string(row, "placement", placement(&forms[form]));
			json_add_uint(row, "bytes", bytes_of(size));
			for (int helper = 0; helper < HELPERS; helper++) {
				snprintf(key, sizeof key, "%s_ns", helper_names[helper]);
				json_add_decimal(row, key, iomem->ns[form][size][helper], 2);
			}
			json_append(rows, row);
		}
	}
	json_add(document, "rows", rows);
	for (size_t form = 0; form < FORMS; form++) {
		json *row;

		if (!forms[form].each)
			continue;
		row = json_new_object();
		json_add_string(row, "barrier", forms[form].barrier);
		json_add_uint(row, "bytes", LARGEST);
		for (int helper = 0; helper < HELPERS; helper++)
			json_add_decimal(row, helper_names[helper], ratio(iomem, form, helper), 2);
		json_append(ratios, row);
	}
	json_add(document, "each_to_one", ratios);
	json_print(document);
}

static void print_form(const struct iomem *iomem, size_t form)
{
	struct table *_table_ table = table_new("rrrrr");
	char text[FORMAT_SIZE];

	if (!forms[form].barrier)
		puts("\nno barrier");
	else if (forms[form].each)
		printf("\n%s: every store\n", forms[form].barrier);
	else
		printf("\n%s: one, behind the last store\n", forms[form].barrier);
	table_cell(table, "  size");
	for (int helper = 0; helper < HELPERS; helper++)
		table_cell(table, "%s", helper_names[helper]);
	for (size_t size = 0; size < SIZES; size++) {
		table_cell(table, "%s", format_bytes(text, bytes_of(size)));
		for (int helper = 0; helper < HELPERS; helper++)
			table_cell(table, "%.1f", iomem->ns[form][size][helper]);
	}
	table_print(table, stdout);
}

static void report_tables(const struct iomem *iomem)
{
	char cpu[24], size[FORMAT_SIZE];

	printf("block writes to %s, %s, calls in turn to two buffers; ns a call, medians of "
	       "%" PRIu64 "\n",
	       iomem->map ? iomem->map : "memory of this machine", bench_cpu_text(cpu, iomem->cpu),
	       iomem->rounds);
	printf("this CPU %s\n", dmasync_io_needs_barrier()
					? "needs a barrier: without flags each call ends in one"
					: "needs no barrier: without flags there is none");
	for (size_t form = 0; form < FORMS; form++)
		print_form(iomem, form);
	puts("");
	for (size_t form = 0; form < FORMS; form++) {
		if (!forms[form].each)
			continue;
		printf("%s at every store, %s: ", forms[form].barrier, format_bytes(size, LARGEST));
		for (int helper = 0; helper < HELPERS; helper++)
			printf("%s%s %.1f", helper ? ", " : "", helper_names[helper],
			       ratio(iomem, form, helper));
		puts(" times one");
	}
}

/* Two buffers in the device's memory, or in the machine's. */
static int open_memory(struct iomem *iomem, void **ret_address, uint64_t *ret_length)
{
	struct dmasync_io_map_params params;
	char text[512] = "";
	int r;

	if (!iomem->map) {
		*ret_address = aligned_alloc(LARGEST, 2 * LARGEST);
		*ret_length = 2 * LARGEST;
		if (!*ret_address)
			return ctl_fail("bench iomem: no memory");
		memset(*ret_address, 0, 2 * LARGEST);
		return CTL_OK;
	}
	dmasync_io_map_params_init(&params);
	params.path = iomem->map;
	params.map = (uint32_t)iomem->map_index;
	params.offset = iomem->offset;
	params.length = 2 * LARGEST;
	params.error_text = text;
	params.error_text_size = sizeof text;
	r = dmasync_io_map(&params, ret_address, ret_length);
	if (r == -ERANGE)
		return ctl_fail("bench iomem: %s; %u are written, from --offset on", text,
				2 * LARGEST);
	return r < 0 ? ctl_fail("bench iomem: %s", text) : CTL_OK;
}

static int run(struct iomem *iomem)
{
	static char source[LARGEST];
	uint64_t length;
	void *address;
	int status = open_memory(iomem, &address, &length);

	if (status != CTL_OK)
		return status;
	uint64_t *samples = calloc(FORMS * (size_t)iomem->rounds, sizeof *samples);

	if (samples) {
		for (size_t form = 0; form < FORMS; form++)
			iomem->samples[form] = samples + form * iomem->rounds;
		iomem->buffers[0] = address;
		iomem->buffers[1] = (char *)address + LARGEST;
		iomem->source = source;
		/* Stay where we are: it is one CPU's stores that are timed. */
		iomem->cpu = sched_getcpu();
		if (iomem->cpu < 0 || bench_pin_thread(iomem->cpu) < 0)
			iomem->cpu = -1;
		measure(iomem);
		if (iomem->ctl->json)
			report_json(iomem);
		else
			report_tables(iomem);
	} else {
		status = ctl_fail("bench iomem: no memory");
	}
	free(samples);
	if (iomem->map)
		dmasync_io_unmap(address, length);
	else
		free(address);
	return status;
}

int bench_iomem(struct ctl *ctl, int argc, char **argv)
{
	static struct iomem iomem;

	iomem = (struct iomem){.ctl = ctl, .rounds = 15};
	/* clang-format off */
	const struct option options[] = {
		{.name = "map", .argument = "FILE", .kind = OPTION_STRING, .value = &iomem.map,
		 .help = "OVERWRITE this device memory: /dev/uioN, or resourceN or resourceN_wc of a PCI device"},
		{.name = "map-index", .argument = "N", .kind = OPTION_COUNT, .value = &iomem.map_index, .max = 255,
		 .help = "which map of a UIO device (default 0)"},
		{.name = "offset", .argument = "SIZE", .kind = OPTION_SIZE, .value = &iomem.offset, .max = UINT64_C(1) << 40,
		 .help = "where in it to begin, a multiple of 8 (default 0)"},
		{.name = "rounds", .argument = "N", .kind = OPTION_COUNT, .value = &iomem.rounds, .min = 1, .max = SAMPLES_MAX,
		 .help = "samples of each figure (default 15)"},
	};
	/* clang-format on */
	const struct option_usage usage = {
		.synopsis = "bench iomem [OPTION...]",
		.about = "Block writes of 8 bytes to 4 KiB by the calls of dmasync/iomem.h: "
			 "without a barrier,\n"
			 "with one behind the last store, and with one at every store. "
			 "Consecutive calls\n"
			 "alternate between two buffers. On memory of this machine, or with --map "
			 "on 8 KiB of\n"
			 "a device's, which are overwritten. Needs no daemon.\n",
		.options = options,
		.count = sizeof options / sizeof *options,
	};
	int status;

	if (!options_parse(ctl, &usage, argc, argv, NULL, &status))
		return status;
	if (!iomem.map && (iomem.map_index || iomem.offset))
		return ctl_usage("bench iomem: --map-index and --offset are for --map");
	if (iomem.offset % 8)
		return ctl_usage("bench iomem: --offset %" PRIu64 " is no multiple of 8",
				 iomem.offset);
	return run(&iomem);
}
