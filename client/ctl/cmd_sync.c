/* SPDX-License-Identifier: MIT */
/*
 * dmasyncctl sync: one batch on an fd, a file or a scratch buffer, for trying things. Main thread.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>

#include "client/ctl/connect.h"
#include "client/ctl/files.h"
#include "client/ctl/format.h"
#include "client/ctl/json.h"
#include "client/ctl/names.h"
#include "client/ctl/options.h"

/* A range of a batch has 32 bits for its length. */
#define RANGE_MAX (UINT64_C(1) << 31)
#define WAIT_NS INT64_C(10000000000)

struct sync_request {
	const char *path;
	uint64_t fd;		 /* or FILES_NO_FD */
	uint64_t scratch;	 /* bytes, where there is neither path nor fd */
	uint64_t offset, length; /* length UINT64_MAX: to the end */
	uint64_t rows, stride;
	bool for_device, for_cpu, in_process;
	int direction, backend, memory;
};

/* `fd`: of the command line, or -1 for a new buffer. */
static int make_buffer(struct dmasync *ds, const struct sync_request *request, int fd,
		       struct dmasync_buffer **ret)
{
	uint32_t flags = names_backend_flag(request->backend);
	struct dmasync_buffer_params params;
	int r;

	if (fd >= 0) {
		r = dmasync_buffer_import(ds, fd, flags, ret);
		return r < 0 ? connect_explain(ds, request->path ? request->path : "--fd", r)
			     : CTL_OK;
	}
	dmasync_buffer_params_init(&params);
	params.flags = flags;
	params.bytes = request->scratch;
	params.memory = (enum dmasync_memory)request->memory;
	r = dmasync_buffer_alloc(ds, &params, ret);
	return r < 0 ? connect_explain(ds, "scratch buffer", r) : CTL_OK;
}

/* The request's ranges; a long one is cut into several that a unit can hold. */
static int add_ranges(struct dmasync_batch *batch, struct dmasync_buffer *buffer,
		      const struct sync_request *request, uint64_t buffer_bytes)
{
	enum dmasync_sync sync = request->for_cpu ? DMASYNC_FOR_CPU : DMASYNC_FOR_DEVICE;
	enum dmasync_direction direction = (enum dmasync_direction)request->direction;
	uint64_t offset = request->offset, length = request->length;

	if (length == UINT64_MAX)
		length = offset <= buffer_bytes ? buffer_bytes - offset : 0;
	if (request->rows > 1)
		return dmasync_batch_add_rows(batch, buffer, sync, direction, offset, length,
					      request->rows, request->stride);
	for (;;) {
		uint64_t part = length < RANGE_MAX ? length : RANGE_MAX;
		int r = dmasync_batch_add(batch, buffer, sync, direction, offset, part);

		if (r < 0)
			return r;
		length -= part;
		if (length == 0)
			return 0;
		if (__builtin_add_overflow(offset, part, &offset))
			return -EOVERFLOW;
	}
}

static int run_batch(struct dmasync_queue *queue, struct dmasync_buffer *buffer,
		     const struct sync_request *request, uint64_t buffer_bytes,
		     struct dmasync_completion *ret)
{
	struct dmasync_batch *batch;
	int r = dmasync_batch_begin(queue, &batch);

	if (r < 0)
		return r;
	r = add_ranges(batch, buffer, request, buffer_bytes);
	if (r < 0) {
		dmasync_batch_abort(batch);
		return r;
	}
	r = dmasync_batch_submit(batch, 0);
	return r < 0 ? r : dmasync_wait(queue, ret, WAIT_NS);
}

static void print_result_json(const struct dmasync_buffer_info *info,
			      const struct dmasync_completion *c)
{
	json *document = json_new_object(), *flags = json_new_array();

	json_add_string(document, "kind", names_of(names_kinds, (int)info->kind));
	json_add_field(document, "exporter", info->exporter, sizeof info->exporter);
	json_add_uint(document, "buffer_bytes", info->bytes);
	json_add_string(document, "backend", names_of(names_backends, (int)info->backend));
	json_add_bool(document, "guarantee", info->guarantee);
	json_add_int(document, "status", c->status);
	json_add_uint(document, "entries", c->entries);
	json_add_uint(document, "elided", c->elided);
	json_add_uint(document, "lines", c->lines);
	json_add_uint(document, "bytes", c->bytes);
	json_add_uint(document, "queued_ns", c->queued_ns);
	json_add_uint(document, "fence_ns", c->fence_ns);
	json_add_uint(document, "issue_ns", c->issue_ns);
	json_add_uint(document, "barrier_ns", c->barrier_ns);
	json_add_uint(document, "workers", c->workers);
	json_add_uint(document, "shared_by", c->shared_by);
	for (const struct names_flag *flag = names_completion_flags; flag->name; flag++)
		if (c->flags & flag->flag)
			json_append(flags, json_object_new_string(flag->name));
	json_add(document, "flags", flags);
	json_print(document);
}

static void print_result(const struct dmasync_buffer_info *info, const struct dmasync_completion *c)
{
	char bytes[FORMAT_SIZE], size[FORMAT_SIZE], exporter[DMASYNC_NAME_SIZE];
	char queued[FORMAT_SIZE], issue[FORMAT_SIZE], barrier[FORMAT_SIZE];

	format_text(exporter, sizeof exporter, info->exporter, sizeof info->exporter);
	printf("buffer: %s%s%s, %s, backend %s\n", names_of(names_kinds, (int)info->kind),
	       exporter[0] ? " of exporter " : "", exporter, format_bytes(size, info->bytes),
	       names_of(names_backends, (int)info->backend));
	printf("synced: %" PRIu64 " line%s (%s) of %u entr%s, %u elided\n", c->lines,
	       c->lines == 1 ? "" : "s", format_bytes(bytes, c->bytes), c->entries,
	       c->entries == 1 ? "y" : "ies", c->elided);
	printf("took:   queued %s, issue %s, barrier %s\n", format_ns(queued, c->queued_ns),
	       format_ns(issue, c->issue_ns), format_ns(barrier, c->barrier_ns));
	for (const struct names_flag *flag = names_completion_flags; flag->name; flag++)
		if (c->flags & flag->flag)
			printf("flag:   %s\n", flag->name);
	if (!info->guarantee)
		puts("note:   no guarantee: a sync of this buffer may not reach the point of "
		     "coherency");
}

static int sync_buffer(const struct ctl *ctl, const struct sync_request *request,
		       struct dmasync_buffer *buffer, struct dmasync_queue *queue)
{
	struct dmasync_buffer_info info = {.size = sizeof info};
	struct dmasync_completion completion;
	char text[CLIENT_ERROR_TEXT_SIZE];
	int r = dmasync_buffer_get_info(buffer, &info);

	if (r >= 0)
		r = run_batch(queue, buffer, request, info.bytes, &completion);
	if (r == -ERANGE)
		return ctl_fail("sync: the range does not lie inside the buffer of %" PRIu64
				" bytes",
				info.bytes);
	if (r < 0) {
		dmasync_strerror(r, text, sizeof text);
		return ctl_fail("sync: %s", text);
	}
	if (completion.status < 0) {
		dmasync_completion_text(&completion, text, sizeof text);
		return ctl_fail("sync: %s", text);
	}
	if (ctl->json)
		print_result_json(&info, &completion);
	else
		print_result(&info, &completion);
	return CTL_OK;
}

int cmd_sync(struct ctl *ctl, int argc, char **argv)
{
	struct sync_request request = {
		.fd = FILES_NO_FD,
		.scratch = UINT64_C(1) << 20,
		.length = UINT64_MAX,
		.rows = 1,
		.direction = DMASYNC_BIDIRECTIONAL,
		.backend = DMASYNC_BACKEND_AUTO,
		.memory = DMASYNC_MEMORY_MEMFD,
	};
	/* clang-format off */
	const struct option options[] = {
		{.name = "fd", .argument = "N", .kind = OPTION_COUNT, .value = &request.fd, .max = INT_MAX,
		 .help = "the buffer: this inherited file descriptor"},
		{.name = "scratch", .argument = "SIZE", .kind = OPTION_SIZE, .value = &request.scratch, .min = 1, .max = UINT64_C(1) << 40,
		 .help = "the buffer: a new one of this size (default 1M)"},
		{.name = "memory", .argument = "KIND", .kind = OPTION_CHOICE, .value = &request.memory, .choices = names_memories,
		 .help = "memory of the new buffer (default memfd)"},
		{.name = "backend", .argument = "NAME", .kind = OPTION_CHOICE, .value = &request.backend, .choices = names_backends,
		 .help = "how it is maintained (default auto)"},
		{.name = "inline", .kind = OPTION_FLAG, .value = &request.in_process,
		 .help = "in this process, by the library, without a daemon"},
		{.name = "for-device", .kind = OPTION_FLAG, .value = &request.for_device,
		 .help = "before the device touches the range (default)"},
		{.name = "for-cpu", .kind = OPTION_FLAG, .value = &request.for_cpu,
		 .help = "after the device has touched it"},
		{.name = "direction", .argument = "NAME", .kind = OPTION_CHOICE, .value = &request.direction, .choices = names_directions,
		 .help = "which way the data goes (default bidirectional)"},
		{.name = "offset", .argument = "SIZE", .kind = OPTION_SIZE, .value = &request.offset, .max = UINT64_MAX,
		 .help = "of the first byte (default 0)"},
		{.name = "length", .argument = "SIZE", .kind = OPTION_SIZE, .value = &request.length, .max = UINT64_MAX - 1,
		 .help = "of the range, or of one row (default: to the end)"},
		{.name = "rows", .argument = "N", .kind = OPTION_COUNT, .value = &request.rows, .min = 1, .max = UINT32_MAX,
		 .help = "so many ranges, --stride apart (default 1)"},
		{.name = "stride", .argument = "SIZE", .kind = OPTION_SIZE, .value = &request.stride, .max = UINT64_MAX,
		 .help = "bytes from the start of one row to the next"},
	};
	/* clang-format on */
	const struct option_usage usage = {
		.synopsis = "sync [OPTION...] [PATH]",
		.about = "One batch on a dma-buf or a memfd sealed against shrinking, which is an "
			 "inherited\n"
			 "file descriptor (--fd), a path, or a new scratch buffer; tells what was "
			 "covered and\n"
			 "what it cost.\n",
		.options = options,
		.count = sizeof options / sizeof *options,
		.operand = "PATH",
	};
	struct dmasync *_connection_ ds = NULL;
	struct dmasync_buffer *buffer = NULL;
	struct dmasync_queue *queue = NULL;
	struct dmasync_queue_params params;
	int status, fd = -1;

	if (!options_parse(ctl, &usage, argc, argv, &request.path, &status))
		return status;
	if (request.for_device && request.for_cpu)
		return ctl_usage("sync: --for-device and --for-cpu exclude each other");
	if (request.rows > 1 && request.length == UINT64_MAX)
		return ctl_usage("sync: --rows needs --length, the bytes of one row");
	status = files_choose(request.path, request.fd, &fd);
	if (status == CTL_OK)
		status = request.in_process ? connect_inline(&ds) : connect_daemon(ctl, &ds);
	if (status == CTL_OK)
		status = make_buffer(ds, &request, fd, &buffer);
	close_fd(fd);
	if (status != CTL_OK)
		return status;
	dmasync_queue_params_init(&params);
	int r = dmasync_queue_create(ds, &params, &queue);
	status =
		r < 0 ? connect_explain(ds, "queue", r) : sync_buffer(ctl, &request, buffer, queue);
	dmasync_queue_destroy(queue);
	dmasync_buffer_destroy(buffer);
	return status;
}
