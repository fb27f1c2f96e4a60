/* SPDX-License-Identifier: MIT */
/*
 * dmasyncctl batches: the last batch records, or a stream of them with its gaps shown.
 * Main thread.
 */
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "client/ctl/connect.h"
#include "client/ctl/format.h"
#include "client/ctl/json.h"
#include "client/ctl/names.h"
#include "client/ctl/options.h"

#define REPLY_SIZE_MAX                                                                             \
	(sizeof(struct dmasync_batches_reply) +                                                    \
	 DMASYNC_BATCHES_PAGE * sizeof(struct dmasync_batch_record))
#define WORKERS_MAX 64

/* The library's sentence about a batch that failed. */
static void error_text(char *text, size_t size, const struct dmasync_batch_record *record)
{
	const struct dmasync_completion completion = {
		.status = record->status,
		.bad_entry = record->bad_entry,
		.reason = record->reason,
	};

	dmasync_completion_text(&completion, text, size);
}

/* "ok" or what went wrong, with what is particular about it. */
static void result_text(char *text, size_t size, const struct dmasync_batch_record *record)
{
	snprintf(text, size, "ok");
	if (record->status < 0)
		error_text(text, size, record);
	for (const struct names_flag *flag = names_completion_flags; flag->name; flag++) {
		size_t length = strlen(text);

		if (record->flags & flag->flag)
			snprintf(text + length, size - length, ", %s", flag->name);
	}
}

static json *record_json(const struct dmasync_batch_record *record)
{
	json *batch = json_new_object(), *flags = json_new_array();

	json_add_uint(batch, "batch_id", record->batch_id);
	json_add_uint(batch, "client_id", record->client_id);
	json_add_uint(batch, "pid", record->pid);
	json_add_uint(batch, "queue", record->queue);
	json_add_string(batch, "class", names_of(names_classes, (int)record->klass));
	json_add_uint(batch, "worker", record->worker);
	json_add_uint(batch, "user_data", record->user_data);
	json_add_uint(batch, "end_ns", record->end_ns);
	json_add_uint(batch, "entries", record->entries);
	json_add_uint(batch, "elided", record->elided);
	json_add_uint(batch, "lines", record->lines);
	json_add_uint(batch, "bytes", record->bytes);
	json_add_uint(batch, "queued_ns", record->queued_ns);
	json_add_uint(batch, "fence_ns", record->fence_ns);
	json_add_uint(batch, "issue_ns", record->issue_ns);
	json_add_uint(batch, "barrier_ns", record->barrier_ns);
	json_add_uint(batch, "workers", record->workers);
	json_add_uint(batch, "shared_by", record->shared_by);
	json_add_uint(batch, "waited_lines", record->waited_lines);
	json_add_uint(batch, "waited_entries", record->waited_entries);
	json_add_int(batch, "status", record->status);
	if (record->status < 0) {
		char text[CLIENT_ERROR_TEXT_SIZE];

		error_text(text, sizeof text, record);
		json_add_string(batch, "error", text);
	}
	for (const struct names_flag *flag = names_completion_flags; flag->name; flag++)
		if (record->flags & flag->flag)
			json_append(flags, json_object_new_string(flag->name));
	json_add(batch, "flags", flags);
	return batch;
}

static const char *const heads[] = {"batch", "pid",    "queue", "entries", "lines",
				    "bytes", "queued", "issue", "barrier", "result"};
#define CELL_SIZE 320
#define COLUMNS (sizeof heads / sizeof *heads)

/* The cells of one record, in the order of heads. */
static void record_cells(const struct dmasync_batch_record *record, char cells[COLUMNS][CELL_SIZE])
{
	char text[FORMAT_SIZE];
	const size_t size = sizeof cells[0];

	snprintf(cells[0], size, "%" PRIu64, record->batch_id);
	snprintf(cells[1], size, "%u", record->pid);
	if (record->queue)
		snprintf(cells[2], size, "%u", record->queue);
	else
		snprintf(cells[2], size, "-"); /* a SYNC message */
	snprintf(cells[3], size, "%u", record->entries);
	snprintf(cells[4], size, "%" PRIu64, record->lines);
	snprintf(cells[5], size, "%s", format_bytes(text, record->bytes));
	snprintf(cells[6], size, "%s", format_ns(text, record->queued_ns));
	snprintf(cells[7], size, "%s", format_ns(text, record->issue_ns));
	snprintf(cells[8], size, "%s", format_ns(text, record->barrier_ns));
	result_text(cells[9], size, record);
}

static void print_stream_row(char cells[COLUMNS][CELL_SIZE])
{
	/* A stream cannot know its widest cell: fixed widths. */
	printf("%10s %8s %5s %7s %8s %10s %8s %8s %8s  %s\n", cells[0], cells[1], cells[2],
	       cells[3], cells[4], cells[5], cells[6], cells[7], cells[8], cells[9]);
}

static int print_records(const struct ctl *ctl, const struct dmasync_batch_record *records,
			 uint32_t count)
{
	char cells[COLUMNS][CELL_SIZE];

	if (ctl->json) {
		json *document = json_new_object(), *array = json_new_array();

		for (uint32_t i = 0; i < count; i++)
			json_append(array, record_json(&records[i]));
		json_add(document, "batches", array);
		json_print(document);
		return 0;
	}

	struct table *_table_ table = table_new("rrrrrrrrrl");
	for (size_t i = 0; i < COLUMNS; i++)
		table_cell(table, "%s", heads[i]);
	for (uint32_t i = 0; i < count; i++) {
		record_cells(&records[i], cells);
		for (size_t n = 0; n < COLUMNS; n++)
			table_cell(table, "%s", cells[n]);
	}
	return table_print(table, stdout);
}

static void stream_record(const struct ctl *ctl, const struct dmasync_batch_record *record)
{
	char cells[COLUMNS][CELL_SIZE];

	if (ctl->json) {
		json_print_line(record_json(record));
		return;
	}
	record_cells(record, cells);
	print_stream_row(cells);
}

static void stream_gap(const struct ctl *ctl, uint32_t lost)
{
	if (ctl->json) {
		json *gap = json_new_object();

		json_add_uint(gap, "lost", lost);
		json_print_line(gap);
	} else {
		printf("... %u batch%s lost: they came faster than they were read\n", lost,
		       lost == 1 ? "" : "es");
	}
}

/* Records and their announced count must fit the packet. */
static int check_size(struct dmasync *ds, const struct dmasync_batches_reply *reply, size_t size)
{
	if (size < sizeof *reply || reply->count > DMASYNC_BATCHES_PAGE ||
	    size != sizeof *reply + reply->count * sizeof(struct dmasync_batch_record))
		return control_error(ds, -EPROTO,
				     "the daemon announced %u batch records and sent %zu bytes",
				     size < sizeof *reply ? 0 : reply->count, size);
	return 0;
}

static int fetch_last(struct dmasync *ds, uint32_t count, struct dmasync_batches_reply *reply)
{
	struct dmasync_batches request = {.count = count};
	size_t size;
	int r = connect_request(ds, DMASYNC_OP_BATCHES, &request.header, sizeof request, -1, reply,
				sizeof *reply, REPLY_SIZE_MAX, &size);

	return r < 0 ? r : check_size(ds, reply, size);
}

/* What was shown last of each worker: its ids grow. */
struct shown {
	uint64_t last[WORKERS_MAX];
};

static bool is_new(struct shown *shown, const struct dmasync_batch_record *record)
{
	uint64_t *last = &shown->last[record->worker % WORKERS_MAX];

	if (record->batch_id <= *last)
		return false;
	*last = record->batch_id;
	return true;
}

/* Prints events until the daemon goes; never returns 0. */
static int stream(const struct ctl *ctl, struct dmasync *ds, struct shown *shown,
		  struct dmasync_batches_reply *event)
{
	const struct dmasync_batch_record *records = (const void *)(event + 1);

	for (;;) {
		ssize_t n = recv(ds->socket, event, REPLY_SIZE_MAX, MSG_TRUNC | MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN) {
			struct pollfd wait = {.fd = ds->socket, .events = POLLIN};

			if (poll(&wait, 1, -1) < 0 && errno != EINTR)
				return -errno;
			continue;
		}
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return control_error(ds, -ECONNRESET, "the daemon has gone");
		if ((size_t)n < sizeof event->header || event->header.opcode != DMASYNC_OP_WATCH ||
		    !(event->header.flags & DMASYNC_MESSAGE_EVENT))
			return control_error(ds, -EPROTO, "the daemon sent what is no event");
		int r = check_size(ds, event, (size_t)n);
		if (r < 0)
			return r;

		if (event->lost)
			stream_gap(ctl, event->lost);
		for (uint32_t i = 0; i < event->count; i++)
			if (is_new(shown, &records[i]))
				stream_record(ctl, &records[i]);
		if (fflush(stdout) != 0)
			return -errno;
	}
}

/*
 * Watches first and asks for the last ones then, over a connection of their own, so that none falls
 * between; what comes by both ways is shown once.
 */
static int follow(const struct ctl *ctl, struct dmasync *ds, uint32_t count,
		  struct dmasync_batches_reply *reply)
{
	struct dmasync *_connection_ watching = NULL;
	struct dmasync_watch request = {.enable = 1};
	struct dmasync_done_reply done;
	struct shown shown = {0};
	char cells[COLUMNS][CELL_SIZE];
	size_t size;
	int status = connect_daemon(ctl, &watching);

	if (status != CTL_OK)
		return status;
	int r = connect_request(watching, DMASYNC_OP_WATCH, &request.header, sizeof request, -1,
				&done, sizeof done, sizeof done, &size);
	if (r < 0)
		return connect_explain(watching, "batches", r);

	if (!ctl->json) {
		for (size_t i = 0; i < COLUMNS; i++)
			snprintf(cells[i], sizeof cells[i], "%s", heads[i]);
		print_stream_row(cells);
	}
	if (count > 0) {
		const struct dmasync_batch_record *records = (const void *)(reply + 1);

		r = fetch_last(ds, count, reply);
		if (r < 0)
			return connect_explain(ds, "batches", r);
		for (uint32_t i = 0; i < reply->count; i++)
			if (is_new(&shown, &records[i]))
				stream_record(ctl, &records[i]);
	}
	fflush(stdout);
	return connect_explain(watching, "batches", stream(ctl, watching, &shown, reply));
}

int cmd_batches(struct ctl *ctl, int argc, char **argv)
{
	uint64_t count = 20;
	bool following = false;
	const struct option options[] = {
		{.name = "last",
		 .argument = "N",
		 .kind = OPTION_COUNT,
		 .value = &count,
		 .max = DMASYNC_BATCHES_PAGE,
		 .help = "show the last N batches (default 20)"},
		{.name = "follow",
		 .kind = OPTION_FLAG,
		 .value = &following,
		 .help = "then go on with new ones as they complete"},
	};
	const struct option_usage usage = {
		.synopsis = "batches [OPTION...]",
		.about = "The last batches, oldest first: whose they were, what they covered, and "
			 "what they\n"
			 "cost. Others' batches are shown to root, the daemon's user and "
			 "its observer_group.\n"
			 "With --follow --json, one document a line; {\"lost\": N} stands for "
			 "batches that\n"
			 "came faster than they were read.\n",
		.options = options,
		.count = sizeof options / sizeof *options,
	};
	struct dmasync *_connection_ ds = NULL;
	int status;

	if (!connect_command(ctl, &usage, argc, argv, &ds, &status))
		return status;

	struct dmasync_batches_reply *reply = calloc(1, REPLY_SIZE_MAX);
	if (!reply)
		return ctl_fail("batches: no memory");
	if (following) {
		status = follow(ctl, ds, (uint32_t)count, reply);
	} else {
		int r = count > 0 ? fetch_last(ds, (uint32_t)count, reply) : 0;

		if (r < 0)
			status = connect_explain(ds, "batches", r);
		else if (print_records(ctl, (const void *)(reply + 1), reply->count) < 0)
			status = ctl_fail("batches: no memory for the table");
	}
	free(reply);
	return status;
}
