/* SPDX-License-Identifier: MIT */
/*
 * BATCHES and WATCH: the workers' batch records, filtered by who may see them. A watcher is sent
 * what came since the last tick; the timer runs only while somebody watches. Control thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/connection.h"

#define WATCH_TICK_NS UINT64_C(100000000)

static bool may_see(const struct client *client, const struct dmasync_batch_record *record)
{
	return client->observer || record->client_id == client->id;
}

static int by_end(const void *a, const void *b)
{
	const struct dmasync_batch_record *left = a, *right = b;

	if (left->end_ns != right->end_ns)
		return left->end_ns < right->end_ns ? -1 : 1;
	return left->batch_id < right->batch_id ? -1 : left->batch_id > right->batch_id;
}

static uint32_t filter(const struct client *client, struct dmasync_batch_record *records,
		       uint32_t count)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < count; i++)
		if (may_see(client, &records[i]))
			records[kept++] = records[i];
	return kept;
}

static uint64_t records_written(const struct records *records)
{
	/* Acquire: pairs with the release in records_add(). */
	return atomic_load_explicit(&records->written, memory_order_acquire);
}

/* ---- BATCHES ---- */

/* Keeps the `most` latest of what was there and what one worker adds. */
static uint32_t add_worker(const struct client *client, const struct records *records,
			   struct dmasync_batch_record *kept, uint32_t count, uint32_t most)
{
	uint64_t written = records_written(records), lost = 0;
	uint64_t cursor = written > RECORDS_SIZE ? written - RECORDS_SIZE : 0;
	uint32_t got = records_read(records, &cursor, RECORDS_SIZE, kept + count, &lost);

	count += filter(client, kept + count, got);
	qsort(kept, count, sizeof *kept, by_end);
	if (count > most) {
		memmove(kept, kept + count - most, most * sizeof *kept);
		count = most;
	}
	return count;
}

void handle_batches(struct client *client, struct request *request)
{
	const struct dmasync_batches *asked = request->message;
	struct daemon *daemon = client->daemon;
	struct dmasync_batches_reply *reply = (void *)daemon->serving->out;
	struct dmasync_batch_record *kept;
	uint32_t count = 0;

	if (asked->reserved || asked->count > DMASYNC_BATCHES_PAGE) {
		client_error(
			client, request->opcode, request->cookie, -EINVAL,
			"count is %u and may be %u at most; the reserved field is %u and must be 0",
			asked->count, DMASYNC_BATCHES_PAGE, asked->reserved);
		return;
	}
	kept = calloc(asked->count + RECORDS_SIZE, sizeof *kept);
	if (!kept) {
		client_error(client, request->opcode, request->cookie, -ENOMEM,
			     "the daemon has no memory for the records; try again");
		return;
	}
	client->turn_bytes += DMASYNC_MESSAGE_MAX; /* all records are looked at: enough of a turn */
	for (uint32_t i = 0; i < daemon->worker_count; i++)
		count = add_worker(client, worker_records(daemon->workers[i]), kept, count,
				   asked->count);
	memset(reply, 0, sizeof *reply);
	reply->count = count;
	memcpy(reply + 1, kept, count * sizeof *kept);
	free(kept);
	client_reply(client, request->opcode, request->cookie, reply,
		     (uint32_t)(sizeof *reply + count * sizeof *kept), NULL, 0);
}

/* ---- WATCH ---- */

struct watch {
	uint64_t cookie;
	/* Of the client's own batches, for one who may see no others: */
	uint64_t base;			   /* completed when the watch began */
	uint64_t seen;			   /* records sent */
	uint64_t told;			   /* lost records told of */
	uint64_t overwritten;		   /* before they were read, anybody's */
	uint64_t cursors[CONFIG_CPUS_MAX]; /* by worker index */
};

/* Batches of the client whose records are written. */
static uint64_t own_batches(const struct client *client)
{
	/* Acquire: pairs with the release in count_owner(): the record comes before the count. */
	return atomic_load_explicit(&client->owner.batches, memory_order_acquire);
}

/*
 * Whose the overwritten records were is not known any more, and others' are none of this client's
 * business. So its own are those of its batches, as counted before the records were read, that it
 * has not seen; never more than were overwritten. `all_read`: no record is left for the next event.
 */
static uint64_t own_lost(const struct watch *watch, uint64_t batches, bool all_read)
{
	uint64_t completed = batches - watch->base;
	uint64_t lost = completed > watch->seen ? completed - watch->seen : 0;

	if (!all_read)
		return watch->told;
	if (lost > watch->overwritten)
		lost = watch->overwritten;
	return lost > watch->told ? lost : watch->told;
}

/* Reads on to a page of records; false: some may be left. */
static bool read_page(const struct client *client, struct watch *watch,
		      struct dmasync_batch_record *records, uint32_t *ret_count)
{
	const struct daemon *daemon = client->daemon;
	uint32_t count = 0;

	for (uint32_t i = 0; i < daemon->worker_count; i++) {
		while (count < DMASYNC_BATCHES_PAGE) {
			uint32_t got = records_read(
				worker_records(daemon->workers[i]), &watch->cursors[i],
				DMASYNC_BATCHES_PAGE - count, records + count, &watch->overwritten);

			if (!got)
				break;
			count += filter(client, records + count, got);
		}
	}
	*ret_count = count;
	return count < DMASYNC_BATCHES_PAGE;
}

/*
 * One event of at most a page. The watch goes on only once it is sent: what a slow reader misses is
 * overwritten in the records meanwhile, and counted.
 */
static void send_records(struct client *client)
{
	struct daemon *daemon = client->daemon;
	struct dmasync_batches_reply *event = (void *)daemon->serving->out;
	struct dmasync_batch_record *records = (void *)(event + 1);
	struct watch next = *client->watching;
	uint64_t batches = own_batches(client);
	uint32_t count;

	bool all_read = read_page(client, &next, records, &count);

	next.seen += count;

	uint64_t all_lost =
		client->observer ? next.overwritten : own_lost(&next, batches, all_read);
	uint64_t lost = all_lost - next.told;

	next.told = all_lost;
	if (count || lost) {
		qsort(records, count, sizeof *records, by_end);
		memset(event, 0, sizeof *event);
		event->count = count;
		event->lost = lost < UINT32_MAX ? (uint32_t)lost : UINT32_MAX;
		if (client_event(client, DMASYNC_OP_WATCH, next.cookie, event,
				 (uint32_t)(sizeof *event + count * sizeof *records)) < 0)
			return;
	}
	*client->watching = next;
}

void watch_tick(void *context)
{
	struct daemon *daemon = context;

	for (struct client *client = daemon->clients; client; client = client->next)
		if (client->watching)
			send_records(client);
	if (daemon->serving->watchers)
		loop_timer_set(daemon->serving->watch_timer, WATCH_TICK_NS);
}

void watch_stop(struct client *client)
{
	struct connections *connections = client->daemon->serving;

	if (!client->watching)
		return;
	free(client->watching);
	client->watching = NULL;
	client_uncharge(client, ACCOUNT_COST([ACCOUNT_WATCHES] = 1));
	if (--connections->watchers == 0 && connections->watch_timer)
		loop_timer_cancel(connections->watch_timer);
}

static int watch_start(struct client *client, uint64_t cookie)
{
	struct daemon *daemon = client->daemon;
	struct watch *watch = calloc(1, sizeof *watch);

	if (!watch)
		return -ENOMEM;
	watch->cookie = cookie;
	for (uint32_t i = 0; i < daemon->worker_count; i++)
		watch->cursors[i] = records_written(worker_records(daemon->workers[i]));
	watch->base = own_batches(client);
	if (daemon->serving->watchers == 0) {
		int r = loop_timer_set(daemon->serving->watch_timer, WATCH_TICK_NS);

		if (r < 0) {
			free(watch);
			return r;
		}
	}
	daemon->serving->watchers++;
	client->watching = watch;
	return 0;
}

void handle_watch(struct client *client, struct request *request)
{
	const struct dmasync_watch *watch = request->message;

	if (watch->reserved || watch->enable > 1) {
		client_error(
			client, request->opcode, request->cookie, -EINVAL,
			"enable is %u and must be 0 or 1; the reserved field is %u and must be 0",
			watch->enable, watch->reserved);
		return;
	}
	watch_stop(client);
	if (watch->enable && !client_afford(client, request->opcode, request->cookie,
					    ACCOUNT_COST([ACCOUNT_WATCHES] = 1)))
		return;
	int r = watch->enable ? watch_start(client, request->cookie) : 0;

	if (r < 0) {
		client_uncharge(client, ACCOUNT_COST([ACCOUNT_WATCHES] = 1));
		client_error(client, request->opcode, request->cookie, r,
			     "the stream of batch records cannot be started: %s", strerror(-r));
		return;
	}
	client_done(client, request->opcode, request->cookie);
}
