/* SPDX-License-Identifier: MIT */
/* A list of records as a command prints it, see listing.h. Main thread. */
#include "client/ctl/listing.h"

#include <string.h>

#include "client/ctl/connect.h"

void listing_begin(struct listing *listing, const struct ctl *ctl, const char *layout,
		   const char *const *heads)
{
	*listing = (struct listing){0};
	if (ctl->json)
		listing->array = json_new_array();
	else
		listing->table = table_new(layout);
	for (size_t i = 0; i < strlen(layout); i++)
		table_cell(listing->table, "%s", heads[i]);
}

int listing_end(struct listing *listing, const char *name, struct dmasync *ds, int r)
{
	struct table *_table_ table = listing->table;

	if (r < 0) {
		json_object_put(listing->array);
		return connect_explain(ds, name, r);
	}
	if (listing->array) {
		json *document = json_new_object();

		json_add(document, name, listing->array);
		json_print(document);
	} else if (table_print(table, stdout) < 0) {
		return ctl_fail("%s: no memory for the table", name);
	}
	return CTL_OK;
}
