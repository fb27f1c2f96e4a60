/* SPDX-License-Identifier: MIT */
/* dmasyncctl clients: who is connected, with what and how much. Main thread. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/ctl/connect.h"
#include "client/ctl/format.h"
#include "client/ctl/json.h"
#include "client/ctl/listing.h"
#include "client/ctl/options.h"

#define PAGE_SIZE_MAX                                                                              \
	(sizeof(struct dmasync_clients_reply) +                                                    \
	 DMASYNC_CLIENTS_PAGE * sizeof(struct dmasync_client_record))

static void add_json(json *array, const struct dmasync_client_record *record)
{
	json *client = json_new_object();

	json_add_uint(client, "id", record->id);
	json_add_uint(client, "pid", record->pid);
	json_add_uint(client, "uid", record->uid);
	json_add_field(client, "name", record->name, sizeof record->name);
	json_add_uint(client, "buffers", record->buffers);
	json_add_uint(client, "mapped_bytes", record->mapped_bytes);
	json_add_uint(client, "queues", record->queues);
	json_add_uint(client, "realtime_queues", record->realtime_queues);
	json_add_uint(client, "bulk_queues", record->bulk_queues);
	json_add_uint(client, "moved_queues", record->moved_queues);
	json_add_uint(client, "queue_bytes", record->queue_bytes);
	json_add_uint(client, "files", record->files);
	json_add_uint(client, "maps", record->maps);
	json_add_uint(client, "places", record->places);
	json_add_uint(client, "requests", record->requests);
	json_add_uint(client, "answers", record->answers);
	json_add_uint(client, "watches", record->watches);
	json_add_uint(client, "batches", record->batches);
	json_add_uint(client, "failed", record->failed);
	json_add_uint(client, "lines", record->lines);
	json_add_uint(client, "connected_ns", record->connected_ns);
	json_append(array, client);
}

static void add_row(struct table *table, const struct dmasync_client_record *record)
{
	char text[FORMAT_SIZE], name[DMASYNC_NAME_SIZE];

	table_cell(table, "%" PRIu64, record->id);
	table_cell(table, "%u", record->pid);
	table_cell(table, "%s", format_user(text, record->uid));
	table_cell(table, "%s", format_text(name, sizeof name, record->name, sizeof record->name));
	table_cell(table, "%u", record->buffers);
	table_cell(table, "%s", format_bytes(text, record->mapped_bytes));
	table_cell(table, "%u", record->queues);
	table_cell(table, "%u", record->realtime_queues);
	table_cell(table, "%u", record->bulk_queues);
	table_cell(table, "%u", record->moved_queues);
	table_cell(table, "%" PRIu64, record->batches);
	table_cell(table, "%" PRIu64, record->failed);
	table_cell(table, "%" PRIu64, record->lines);
	table_cell(table, "%s", format_age(text, record->connected_ns));
}

/* Asks page after page and gives each record to both, of which one is NULL. */
static int fetch(struct dmasync *ds, struct dmasync_clients_reply *page, json *array,
		 struct table *table)
{
	struct dmasync_clients request = {0};

	for (;;) {
		size_t size;
		int r = connect_request(ds, DMASYNC_OP_CLIENTS, &request.header, sizeof request, -1,
					page, sizeof *page, PAGE_SIZE_MAX, &size);

		if (r < 0)
			return r;
		if (page->count > DMASYNC_CLIENTS_PAGE ||
		    size != sizeof *page + page->count * sizeof(struct dmasync_client_record))
			return control_error(ds, -EPROTO,
					     "the daemon announced %u clients and sent %zu bytes",
					     page->count, size);
		const struct dmasync_client_record *records = (const void *)(page + 1);
		for (uint32_t i = 0; i < page->count; i++) {
			/* Ids must grow, or a broken daemon would keep us here for ever. */
			if (records[i].id <= request.after)
				return control_error(ds, -EPROTO,
						     "the daemon's client ids do not grow");
			request.after = records[i].id;
			if (array)
				add_json(array, &records[i]);
			else
				add_row(table, &records[i]);
		}
		if (page->count < DMASYNC_CLIENTS_PAGE)
			return 0;
	}
}

int cmd_clients(struct ctl *ctl, int argc, char **argv)
{
	static const struct option_usage usage = {
		.synopsis = "clients [OPTION...]",
		.about = "Who is connected to the daemon, what it has registered, and what it had "
			 "done. This\n"
			 "command is a client too and lists itself.\n",
	};
	static const char *const heads[] = {"id",      "pid",	 "user",     "name",	 "buffers",
					    "mapped",  "queues", "realtime", "bulk",	 "moved",
					    "batches", "failed", "lines",    "connected"};
	struct dmasync *_connection_ ds = NULL;
	struct listing listing;
	int status;

	if (!connect_command(ctl, &usage, argc, argv, &ds, &status))
		return status;
	listing_begin(&listing, ctl, "rrllrrrrrrrrrr", heads);

	struct dmasync_clients_reply *page = malloc(PAGE_SIZE_MAX);
	int r = page ? fetch(ds, page, listing.array, listing.table) : -ENOMEM;

	free(page);
	return listing_end(&listing, "clients", ds, r);
}
