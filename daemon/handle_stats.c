/* SPDX-License-Identifier: MIT */
/* STATS, HISTOGRAM, CLIENTS: sums over the workers, and who is connected. Control thread. */
#include <errno.h>
#include <string.h>

#include "daemon/clock.h"
#include "daemon/connection.h"

static uint64_t read_counter(const _Atomic uint64_t *counter)
{
	/* Relaxed: a counter is whole by itself; the sums are of no one moment. */
	return atomic_load_explicit(counter, memory_order_relaxed);
}

static void add_class(struct dmasync_stats_reply *reply, int klass,
		      const struct worker_class_stats *stats)
{
	uint64_t lines = read_counter(&stats->waited_lines);
	uint64_t entries = read_counter(&stats->waited_entries);

	reply->class_batches[klass] += read_counter(&stats->batches);
	reply->class_lines[klass] += read_counter(&stats->lines);
	reply->class_slices[klass] += read_counter(&stats->slices);
	if (lines > reply->class_waited_lines[klass])
		reply->class_waited_lines[klass] = lines;
	if (entries > reply->class_waited_entries[klass])
		reply->class_waited_entries[klass] = entries;
}

void handle_stats(struct client *client, struct request *request)
{
	const struct daemon *daemon = client->daemon;
	const uint64_t *used = daemon->accounts.used;
	struct dmasync_stats_reply reply = {
		.uptime_ns = clock_ns() - daemon->start_ns,
		.connections = daemon->connections,
		.refused = daemon->refused,
		.mapped_bytes = used[ACCOUNT_BUFFER_BYTES],
		.clients = (uint32_t)used[ACCOUNT_CONNECTIONS],
		.buffers = (uint32_t)used[ACCOUNT_BUFFERS],
		.queues = (uint32_t)used[ACCOUNT_QUEUES],
		.workers = daemon->ordinary_count,
		.users = daemon->accounts.user_count,
		.files = (uint32_t)used[ACCOUNT_FILES],
		.maps = (uint32_t)used[ACCOUNT_MAPS],
		.places = (uint32_t)used[ACCOUNT_BATCHES],
		.requests = (uint32_t)used[ACCOUNT_REQUESTS],
		.answers = (uint32_t)used[ACCOUNT_ANSWERS],
		.watches = (uint32_t)used[ACCOUNT_WATCHES],
		.queue_bytes = used[ACCOUNT_QUEUE_BYTES],
		.messages = daemon->messages,
		.moved_queues = daemon->moved,
		.over_limit = daemon->accounts.refused,
		.sum_errors = daemon->accounts.errors,
	};

	for (uint32_t i = 0; i < daemon->worker_count; i++) {
		const struct worker_stats *stats = worker_stats(daemon->workers[i]);

		reply.batches += read_counter(&stats->batches);
		reply.failed += read_counter(&stats->failed);
		reply.entries += read_counter(&stats->entries);
		reply.elided += read_counter(&stats->elided);
		reply.lines += read_counter(&stats->lines);
		reply.bytes += read_counter(&stats->bytes);
		reply.barriers += read_counter(&stats->barriers);
		reply.kernel_syncs += read_counter(&stats->kernel_syncs);
		reply.reissued += read_counter(&stats->reissued);
		reply.suspect_times += read_counter(&stats->suspect_times);
		reply.faults += read_counter(&stats->faults);
		reply.batches_split += read_counter(&stats->batches_split);
		reply.parts += read_counter(&stats->parts);
		reply.barriers_shared += read_counter(&stats->barriers_shared);
		reply.worker_sleeps += read_counter(&stats->sleeps);
		reply.page_faults += read_counter(&stats->page_faults);
		reply.realtime_drops += read_counter(&stats->realtime_drops);
		if (worker_policy(daemon->workers[i]) == WORKER_POLICY_FIFO)
			reply.realtime_workers++;
		reply.slice_overruns += read_counter(&stats->slice_overruns);
		for (int klass = 0; klass < DMASYNC_CLASSES; klass++)
			add_class(&reply, klass, &stats->klass[klass]);
	}
	client_reply(client, request->opcode, request->cookie, &reply, sizeof reply, NULL, 0);
}

static void add_histogram(struct dmasync_histogram_reply *reply, const struct histogram *histogram)
{
	uint64_t max = read_counter(&histogram->max);

	for (uint32_t i = 0; i < DMASYNC_HISTOGRAM_BUCKETS; i++) {
		uint64_t n = read_counter(&histogram->bucket[i]);

		reply->bucket[i] += n;
		reply->count += n; /* of these buckets, so that percentiles add up */
	}
	reply->sum_ns += read_counter(&histogram->sum);
	if (max > reply->max_ns)
		reply->max_ns = max;
}

void handle_histogram(struct client *client, struct request *request)
{
	const struct dmasync_histogram *asked = request->message;
	struct daemon *daemon = client->daemon;
	struct dmasync_histogram_reply *reply = (void *)daemon->serving->out;

	if (asked->reserved || asked->phase >= DMASYNC_PHASES) {
		client_error(
			client, request->opcode, request->cookie, -EINVAL,
			"phase is %u and must be below %d; the reserved field is %u and must be 0",
			asked->phase, DMASYNC_PHASES, asked->reserved);
		return;
	}
	memset(reply, 0, sizeof *reply);
	reply->phase = asked->phase;
	reply->buckets = DMASYNC_HISTOGRAM_BUCKETS;
	for (uint32_t i = 0; i < daemon->worker_count; i++)
		add_histogram(reply, &worker_stats(daemon->workers[i])->phase[asked->phase]);
	client_reply(client, request->opcode, request->cookie, reply, sizeof *reply, NULL, 0);
}

static void fill_record(struct dmasync_client_record *record, const struct client *client,
			uint64_t now)
{
	const uint64_t *used = client->account.used;

	memset(record, 0, sizeof *record);
	record->id = client->id;
	record->pid = (uint32_t)client->pid;
	record->uid = client->account.user->uid;
	record->buffers = (uint32_t)used[ACCOUNT_BUFFERS];
	record->queues = (uint32_t)used[ACCOUNT_QUEUES];
	record->mapped_bytes = used[ACCOUNT_BUFFER_BYTES];
	record->queue_bytes = used[ACCOUNT_QUEUE_BYTES];
	record->files = (uint32_t)used[ACCOUNT_FILES];
	record->maps = (uint32_t)used[ACCOUNT_MAPS];
	record->places = (uint32_t)used[ACCOUNT_BATCHES];
	record->requests = (uint32_t)used[ACCOUNT_REQUESTS];
	record->answers = (uint32_t)used[ACCOUNT_ANSWERS];
	record->watches = (uint32_t)used[ACCOUNT_WATCHES];
	record->batches = read_counter(&client->owner.batches);
	record->failed = read_counter(&client->owner.failed);
	record->lines = read_counter(&client->owner.lines);
	record->connected_ns = now - client->connected_ns;
	memcpy(record->name, client->name, sizeof record->name);
	record->realtime_queues = client->class_queues[DMASYNC_CLASS_REALTIME];
	record->moved_queues = client->moved;
	record->bulk_queues = client->class_queues[DMASYNC_CLASS_BULK];
}

void handle_clients(struct client *client, struct request *request)
{
	const struct dmasync_clients *asked = request->message;
	struct daemon *daemon = client->daemon;
	struct dmasync_clients_reply *reply = (void *)daemon->serving->out;
	struct dmasync_client_record *records = (void *)(reply + 1);
	uint64_t now = clock_ns();

	memset(reply, 0, sizeof *reply);
	for (const struct client *other = daemon->clients;
	     other && reply->count < DMASYNC_CLIENTS_PAGE; other = other->next)
		if (other->id > asked->after && other->state == CLIENT_READY)
			fill_record(&records[reply->count++], other, now);
	client_reply(client, request->opcode, request->cookie, reply,
		     (uint32_t)(sizeof *reply + reply->count * sizeof *records), NULL, 0);
}

static void fill_user(struct dmasync_user_record *record, const struct account_user *user)
{
	const uint64_t *used = user->used;

	*record = (struct dmasync_user_record){
		.uid = user->uid,
		.connections = (uint32_t)used[ACCOUNT_CONNECTIONS],
		.buffers = (uint32_t)used[ACCOUNT_BUFFERS],
		.queues = (uint32_t)used[ACCOUNT_QUEUES],
		.mapped_bytes = used[ACCOUNT_BUFFER_BYTES],
		.queue_bytes = used[ACCOUNT_QUEUE_BYTES],
		.files = (uint32_t)used[ACCOUNT_FILES],
		.maps = (uint32_t)used[ACCOUNT_MAPS],
		.places = (uint32_t)used[ACCOUNT_BATCHES],
		.requests = (uint32_t)used[ACCOUNT_REQUESTS],
		.answers = (uint32_t)used[ACCOUNT_ANSWERS],
		.watches = (uint32_t)used[ACCOUNT_WATCHES],
		.over_limit = user->refused,
	};
}

void handle_users(struct client *client, struct request *request)
{
	const struct dmasync_users *asked = request->message;
	struct daemon *daemon = client->daemon;
	struct dmasync_users_reply *reply = (void *)daemon->serving->out;
	struct dmasync_user_record *records = (void *)(reply + 1);

	if (asked->reserved) {
		client_error(client, request->opcode, request->cookie, -EINVAL,
			     "the reserved field must be 0 and is %u", asked->reserved);
		return;
	}
	memset(reply, 0, sizeof *reply);
	for (const struct account_user *user = daemon->accounts.users;
	     user && reply->count < DMASYNC_USERS_PAGE; user = user->next)
		if (user->uid >= asked->from)
			fill_user(&records[reply->count++], user);
	client_reply(client, request->opcode, request->cookie, reply,
		     (uint32_t)(sizeof *reply + reply->count * sizeof *records), NULL, 0);
}
