/* SPDX-License-Identifier: MIT */
/* dmasyncctl users: what each user's connections have of the daemon together. Main thread. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/ctl/connect.h"
#include "client/ctl/format.h"
#include "client/ctl/json.h"
#include "client/ctl/listing.h"
#include "client/ctl/options.h"

#define PAGE_SIZE_MAX                                                                              \
	(sizeof(struct dmasync_users_reply) +                                                      \
	 DMASYNC_USERS_PAGE * sizeof(struct dmasync_user_record))

static void add_json(json *array, const struct dmasync_user_record *record)
{
	json *user = json_new_object();

	json_add_uint(user, "uid", record->uid);
	json_add_uint(user, "connections", record->connections);
	json_add_uint(user, "buffers", record->buffers);
	json_add_uint(user, "mapped_bytes", record->mapped_bytes);
	json_add_uint(user, "queues", record->queues);
	json_add_uint(user, "queue_bytes", record->queue_bytes);
	json_add_uint(user, "files", record->files);
	json_add_uint(user, "maps", record->maps);
	json_add_uint(user, "places", record->places);
	json_add_uint(user, "requests", record->requests);
	json_add_uint(user, "answers", record->answers);
	json_add_uint(user, "watches", record->watches);
	json_add_uint(user, "over_limit", record->over_limit);
	json_append(array, user);
}

static void add_row(struct table *table, const struct dmasync_user_record *record)
{
	const uint32_t counts[] = {record->files,    record->maps,    record->places,
				   record->requests, record->answers, record->watches};
	char text[FORMAT_SIZE];

	table_cell(table, "%s", format_user(text, record->uid));
	table_cell(table, "%u", record->connections);
	table_cell(table, "%u", record->buffers);
	table_cell(table, "%s", format_bytes(text, record->mapped_bytes));
	table_cell(table, "%u", record->queues);
	table_cell(table, "%s", format_bytes(text, record->queue_bytes));
	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
		table_cell(table, "%u", counts[i]);
	table_cell(table, "%" PRIu64, record->over_limit);
}

/* Asks page after page and gives each record to both, of which one is NULL. */
static int fetch(struct dmasync *ds, struct dmasync_users_reply *page, json *array,
		 struct table *table)
{
	struct dmasync_users request = {0};
	uint64_t from = 0;

	while (from <= UINT32_MAX) {
		size_t size;

		request.from = (uint32_t)from;
		int r = connect_request(ds, DMASYNC_OP_USERS, &request.header, sizeof request, -1,
					page, sizeof *page, PAGE_SIZE_MAX, &size);

		if (r < 0)
			return r;
		if (page->count > DMASYNC_USERS_PAGE ||
		    size != sizeof *page + page->count * sizeof(struct dmasync_user_record))
			return control_error(ds, -EPROTO,
					     "the daemon announced %u users and sent %zu bytes",
					     page->count, size);
		const struct dmasync_user_record *records = (const void *)(page + 1);
		for (uint32_t i = 0; i < page->count; i++) {
			/* Uids must grow, or a broken daemon would keep us here for ever. */
			if (records[i].uid < from)
				return control_error(ds, -EPROTO, "the daemon's uids do not grow");
			from = (uint64_t)records[i].uid + 1;
			if (array)
				add_json(array, &records[i]);
			else
				add_row(table, &records[i]);
		}
		if (page->count < DMASYNC_USERS_PAGE)
			break;
	}
	return 0;
}

int cmd_users(struct ctl *ctl, int argc, char **argv)
{
	static const struct option_usage usage = {
		.synopsis = "users [OPTION...]",
		.about = "What the connections of each user have of the daemon together, and how "
			 "often one of\n"
			 "them was refused for a limit or a share. This command is a connection "
			 "too.\n",
	};
	static const char *const heads[] = {
		"user", "connections", "buffers",  "mapped",  "queues",	 "rings",     "files",
		"maps", "places",      "requests", "answers", "watches", "over limit"};
	struct dmasync *_connection_ ds = NULL;
	struct listing listing;
	int status;

	if (!connect_command(ctl, &usage, argc, argv, &ds, &status))
		return status;
	listing_begin(&listing, ctl, "lrrrrrrrrrrrr", heads);

	struct dmasync_users_reply *page = malloc(PAGE_SIZE_MAX);
	int r = page ? fetch(ds, page, listing.array, listing.table) : -ENOMEM;

	free(page);
	return listing_end(&listing, "users", ds, r);
}
