/* SPDX-License-Identifier: MIT */
/*
 * What is true of the exporters of a lab kernel, against a daemon. Runs in a guest of tests/vm on
 * one CPU; one thread. The first argument says what to do:
 *
 *	count SOURCE IMPORTERS BACKEND GUARANTEE KIND START END
 *		A row of the table: what auto makes of it, and what daemon and ioctl execute for
 *		it, as VM-COUNT lines (count_batches.c says what they are). START, END: cache
 *		operations of the ioctl, "whole" for one for each line, "nothing".
 *	choose SOURCE FLAG BACKEND GUARANTEE [forge]
 *		FLAG is auto, direct, kernel or none; BACKEND may be refused. forge: under a buffer
 *		name that looks like another exporter's line.
 *	bounce SOURCE BACKEND kept|lost
 *		By content: does what the CPU wrote reach a device that bounces?
 *
 * SOURCE: exporter_buffers.h. GUARANTEE is yes or no.
 */
#include <errno.h>
#include <linux/dma-buf.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <dmasync/dmasync.h>

#include "tests/vm/exporter_buffers.h"

#define MARK(number) __asm__ volatile("hint #%c0" ::"i"(96 + (number)) : "memory")

enum { LINE = 64, BYTES = 65536, RANGE = 64 * LINE };

static char what[128]; /* the case, for its result lines */

__attribute__((format(printf, 2, 3))) static _Noreturn void die(int error, const char *format, ...)
{
	va_list arguments;

	printf("VM-RESULT %s fail ", what);
	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf(": %s\n", strerror(-error));
	exit(1);
}

static void expect(const char *name, const char *must, const char *is)
{
	if (strcmp(must, is) == 0)
		printf("VM-RESULT %s-%s pass %s\n", what, name, is);
	else
		printf("VM-RESULT %s-%s fail expected %s, seen %s\n", what, name, must, is);
}

static const char *backend_name(enum dmasync_backend backend)
{
	static const char *const names[] = {"auto", "direct", "kernel", "none", "simulated"};

	return names[backend];
}

struct setup {
	struct dmasync *ds;
	struct dmasync_queue *queue;
	struct exporter_buffer memory;
	struct dmasync_buffer *buffer;
	struct dmasync_buffer_info info;
};

static void connect_daemon(struct setup *setup)
{
	struct dmasync_queue_params params;
	int r = dmasync_connect(NULL, 0, &setup->ds);

	if (r < 0)
		die(r, "dmasync_connect");
	dmasync_queue_params_init(&params);
	r = dmasync_queue_create(setup->ds, &params, &setup->queue);
	if (r < 0)
		die(r, "dmasync_queue_create");
}

/* -errno of a refusal. */
static int import(struct setup *setup, uint32_t flags)
{
	int r = dmasync_buffer_import(setup->ds, setup->memory.fd, flags, &setup->buffer);

	if (r < 0)
		return r;
	setup->info.size = sizeof setup->info;
	r = dmasync_buffer_get_info(setup->buffer, &setup->info);
	if (r < 0)
		die(r, "dmasync_buffer_get_info");
	return 0;
}

static uint32_t sync_range(struct setup *setup, enum dmasync_sync sync, uint64_t length)
{
	struct dmasync_batch *batch;
	struct dmasync_completion done;
	int r = dmasync_batch_begin(setup->queue, &batch);

	if (r == 0) {
		dmasync_batch_add(batch, setup->buffer, sync, DMASYNC_BIDIRECTIONAL, 0, length);
		r = dmasync_batch_submit(batch, 0);
	}
	if (r == 0)
		r = dmasync_wait(setup->queue, &done, -1);
	if (r >= 0)
		r = done.status;
	if (r < 0)
		die(r, "a batch");
	return done.flags;
}

static void ioctl_sync(struct setup *setup, uint64_t flags)
{
	struct dma_buf_sync sync = {.flags = flags | DMA_BUF_SYNC_RW};

	if (ioctl(setup->memory.fd, DMA_BUF_IOCTL_SYNC, &sync) < 0)
		die(-errno, "DMA_BUF_IOCTL_SYNC %#llx", (unsigned long long)flags);
}

/* ---- count ---- */

struct row {
	const char *source, *importers, *backend, *guarantee, *kind, *start, *end;
};

static void count_line(const char *name, uint64_t user_clean, uint64_t user_flush,
		       uint64_t barriers, uint64_t kernel_clean, uint64_t kernel_invalidate)
{
	printf("VM-COUNT\t%s: %s\t%llu\t%llu\t%llu\t%llu\t0\t%llu\t-\n", what, name,
	       (unsigned long long)user_clean, (unsigned long long)user_flush,
	       (unsigned long long)barriers, (unsigned long long)kernel_clean,
	       (unsigned long long)kernel_invalidate);
}

/* direct: a clean of a line a page, then of all of it, 256 KiB at a time. kernel: an END. */
static void count_registration(const struct setup *setup, const struct row *row)
{
	uint64_t bytes = setup->memory.bytes, lines = (bytes + LINE - 1) / LINE;

	if (strcmp(row->backend, "direct") == 0)
		count_line("registration", (bytes + 4095) / 4096 + lines, 0,
			   1 + (bytes + 262143) / 262144, 0, 0);
	else
		count_line("registration", 0, 0, 0, strcmp(row->end, "whole") == 0 ? lines : 0, 0);
}

static void count_row(struct setup *setup, const struct row *row)
{
	uint64_t lines = (setup->memory.bytes + LINE - 1) / LINE;
	uint64_t start = strcmp(row->start, "whole") == 0 ? lines : 0;
	uint64_t end = strcmp(row->end, "whole") == 0 ? lines : 0;
	bool direct = strcmp(row->backend, "direct") == 0;
	uint64_t ours = direct ? RANGE / LINE : 0;
	char names[128];
	uint32_t flags;

	expect("kind", row->kind, exporter_buffer_kind(&setup->memory));
	expect("backend", row->backend, backend_name(setup->info.backend));
	expect("guarantee", row->guarantee, setup->info.guarantee ? "yes" : "no");
	exporter_buffer_names(&setup->memory, names, sizeof names);
	expect("exp_name", names, setup->info.exporter);

	/* The first one is measured apart: udmabuf maps itself then. */
	MARK(0);
	ioctl_sync(setup, DMA_BUF_SYNC_START);
	MARK(1);
	count_line("first ioctl START", 0, 0, 0, 0, start);
	ioctl_sync(setup, DMA_BUF_SYNC_END);

	MARK(0);
	flags = sync_range(setup, DMASYNC_FOR_DEVICE, RANGE);
	flags |= sync_range(setup, DMASYNC_FOR_CPU, RANGE);
	MARK(1);
	count_line("daemon, 64 lines for_device and for_cpu", ours, ours, 2, direct ? 0 : end,
		   direct ? 0 : start);
	MARK(0);
	ioctl_sync(setup, DMA_BUF_SYNC_START);
	MARK(1);
	count_line("ioctl START", 0, 0, 0, 0, start);
	MARK(0);
	ioctl_sync(setup, DMA_BUF_SYNC_END);
	MARK(1);
	count_line("ioctl END", 0, 0, 0, end, 0);

	expect("completion", row->guarantee,
	       flags & DMASYNC_COMPLETION_NO_GUARANTEE ? "no" : "yes");
	expect("by-kernel", direct ? "no" : "yes",
	       flags & DMASYNC_COMPLETION_KERNEL ? "yes" : "no");
	printf("VM-TABLE %-34s %-20s %-16s %-8s %-10s %6llu %6llu %6llu\n", what, names, row->kind,
	       row->backend, row->guarantee, (unsigned long long)(2 * ours),
	       (unsigned long long)start, (unsigned long long)end);
}

/* What `dmasyncctl probe` says of the buffer: the same backend, and why. */
static void probe(struct setup *setup, const char *backend)
{
	char command[256], line[512], seen[32] = "", why[512] = "";
	int fd = dup(setup->memory.fd); /* inherited */

	snprintf(command, sizeof command, "%s probe --fd %d", getenv("DMASYNCCTL") ?: "dmasyncctl",
		 fd);
	FILE *output = popen(command, "r");

	while (output && fgets(line, sizeof line, output)) {
		sscanf(line, "  backend: %31s", seen);
		sscanf(line, "  why: %511[^\n]", why);
	}
	if (output)
		pclose(output);
	close(fd);
	expect("probe", backend, seen);
	printf("VM-TABLE   why: %s\n", why);
}

static int count(struct setup *setup, char **argument)
{
	struct row row = {argument[0], argument[1], argument[2], argument[3],
			  argument[4], argument[5], argument[6]};
	int importers[4], importer_count = atoi(row.importers), r;

	if (importer_count > 4)
		return 2;
	for (int i = 0; i < importer_count; i++) {
		importers[i] = exporter_buffer_attach(&setup->memory);
		if (importers[i] < 0)
			die(importers[i], "labdev");
	}
	MARK(0);
	r = import(setup, 0);
	MARK(1);
	if (r < 0)
		die(r, "dmasync_buffer_import");
	count_registration(setup, &row);
	count_row(setup, &row);
	if (importer_count == 0)
		probe(setup, row.backend);
	for (int i = 0; i < importer_count; i++)
		close(importers[i]);
	return 0;
}

/* ---- choose ---- */

static int choose(struct setup *setup, int argc, char **argument)
{
	static const struct {
		const char *name;
		uint32_t flag;
	} flags[] = {
		{"auto", 0},
		{"direct", DMASYNC_IMPORT_DIRECT},
		{"kernel", DMASYNC_IMPORT_KERNEL},
		{"none", DMASYNC_IMPORT_COHERENT},
	};
	uint32_t flag = UINT32_MAX;

	for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
		if (strcmp(argument[1], flags[i].name) == 0)
			flag = flags[i].flag;
	if (flag == UINT32_MAX)
		return 2;
	if (argc > 4) {
		/* A client may name its buffers, newlines and all. */
		if (ioctl(setup->memory.fd, DMA_BUF_SET_NAME_B, "x\nexp_name:\tsystem") < 0)
			die(-errno, "DMA_BUF_SET_NAME");
		char names[128];

		exporter_buffer_names(&setup->memory, names, sizeof names);
		printf("VM-TABLE %s: exp_name lines seen: %s\n", what, names);
	}

	int r = import(setup, flag);
	char text[512];

	if (r == -EOPNOTSUPP || r == -EPERM) {
		dmasync_error_text(setup->ds, text, sizeof text);
		expect("backend", argument[2], "refused");
		printf("VM-TABLE %-46s %-8s %-4s %s\n", what, "refused", "", text);
		return 0;
	}
	if (r < 0)
		die(r, "dmasync_buffer_import");
	expect("backend", argument[2], backend_name(setup->info.backend));
	expect("guarantee", argument[3], setup->info.guarantee ? "yes" : "no");
	printf("VM-TABLE %-46s %-8s %-4s\n", what, argument[2], argument[3]);

	uint32_t done = sync_range(setup, DMASYNC_FOR_DEVICE, RANGE);

	expect("completion", argument[3], done & DMASYNC_COMPLETION_NO_GUARANTEE ? "no" : "yes");
	return 0;
}

/* ---- bounce ---- */

/*
 * swiotlb gave labdev's device a copy of the buffer when it was mapped. for_device has to bring the
 * copy up to date; START then brings the buffer back from the copy, as after a device that has
 * written nothing. What the CPU wrote is still there only if for_device reached the copy.
 */
static int bounce(struct setup *setup, char **argument)
{
	bool direct = strcmp(argument[1], "direct") == 0;
	unsigned char *memory = setup->memory.memory;

	memset(memory, 'a', setup->memory.bytes);
	int device = exporter_buffer_attach(&setup->memory);

	if (device < 0)
		die(device, "labdev");
	int r = import(setup, (direct ? DMASYNC_IMPORT_DIRECT : DMASYNC_IMPORT_KERNEL) |
				      DMASYNC_IMPORT_NO_CLEAN);

	if (r < 0)
		die(r, "dmasync_buffer_import");
	memset(memory, 'b', setup->memory.bytes);
	sync_range(setup, DMASYNC_FOR_DEVICE, setup->memory.bytes);
	ioctl_sync(setup, DMA_BUF_SYNC_START);

	size_t kept = 0;

	for (size_t i = 0; i < setup->memory.bytes; i++)
		kept += memory[i] == 'b';
	expect("content", argument[2],
	       kept == setup->memory.bytes ? "kept"
	       : kept == 0		   ? "lost"
					   : "mixed");
	printf("VM-TABLE %-36s %zu of %llu bytes reached the device\n", what, kept,
	       (unsigned long long)setup->memory.bytes);
	close(device);
	return 0;
}

int main(int argc, char **argv)
{
	struct setup setup = {.memory = {.fd = -1, .device = -1}};
	int r;

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int i = 2; i < argc && i < 5; i++) /* one word: a name of a result has no blanks */
		snprintf(what + strlen(what), sizeof what - strlen(what), "%s%s", i > 2 ? "/" : "",
			 argv[i]);
	if (argc > 3 && strcmp(argv[1], "count") == 0)
		snprintf(what, sizeof what, "%s%s%s%s", getenv("CONFIGURED") ?: "",
			 getenv("CONFIGURED") ? "/" : "", argv[2],
			 strcmp(argv[3], "0") == 0 ? "" : "+importer");
	if (argc > 3 && strcmp(argv[1], "choose") == 0)
		snprintf(what, sizeof what, "%s%s%s/%s%s", getenv("CONFIGURED") ?: "",
			 getenv("CONFIGURED") ? "/" : "", argv[2], argv[3],
			 argc > 6 ? "/forged" : "");
	if (argc < 3)
		return 2;
	connect_daemon(&setup);
	r = exporter_buffer_make(argv[2], BYTES, &setup.memory);
	if (r < 0)
		die(r, "a buffer of %s", argv[2]);
	if (strcmp(argv[1], "count") == 0 && argc == 9)
		r = count(&setup, argv + 2);
	else if (strcmp(argv[1], "choose") == 0 && argc >= 6)
		r = choose(&setup, argc - 2, argv + 2);
	else if (strcmp(argv[1], "bounce") == 0 && argc == 5)
		r = bounce(&setup, argv + 2);
	else
		r = 2;
	dmasync_buffer_destroy(setup.buffer);
	dmasync_queue_destroy(setup.queue);
	dmasync_disconnect(setup.ds);
	exporter_buffer_free(&setup.memory);
	return r;
}
