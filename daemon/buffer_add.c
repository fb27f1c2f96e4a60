/* SPDX-License-Identifier: MIT */
/*
 * BUFFER_ADD: the way of a buffer from a client's fd to a mapping in its table. Control thread, but
 * for what runs as a helper job.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/buffer/map.h"
#include "daemon/buffer/policy.h"
#include "daemon/connection.h"
#include "daemon/guard.h"
#include "daemon/log.h"

/* The way of a BUFFER_ADD through two helper jobs: what is it, then map it. */
struct registration {
	struct helper_job job; /* first */
	struct client *client;
	uint64_t cookie;
	uint32_t flags;
	enum dmasync_backend requested;
	uint64_t size;
	uint32_t handle; /* that the client would like to have, or 0 */
	int fd;
	bool guarantee;
	struct buffer_facts facts;
	struct buffer_mapping mapping;
	struct buffer *buffer;
	uint64_t charged;
};

static void registration_free(struct registration *registration)
{
	client_close_fds(registration->client, &registration->fd, 1);
	free(registration->buffer);
	free(registration);
}

/* Every way out that is not a registered buffer. */
static void give_up(struct registration *registration)
{
	struct client *client = registration->client;

	buffer_uncharge(client, registration->charged);
	buffer_uncount(client);
	registration_free(registration);
	request_end(client);
}

#define refuse(registration, error, ...)                                                           \
	do {                                                                                       \
		client_error((registration)->client, DMASYNC_OP_BUFFER_ADD,                        \
			     (registration)->cookie, (error), __VA_ARGS__);                        \
		give_up(registration);                                                             \
	} while (0)

static void log_unlocked(struct client *client, int error)
{
	if (client->daemon->serving->mlock_logged)
		return;
	client->daemon->serving->mlock_logged = true;
	log_warning(
		"buffers cannot be locked in memory (%s), so a batch may meet a page fault; give "
		"the daemon CAP_IPC_LOCK or raise LimitMEMLOCK",
		strerror(-error));
}

static void map_run(struct helper_job *job)
{
	buffer_map(&((struct registration *)job)->mapping);
}

static void map_finished(struct helper_job *job)
{
	struct registration *registration = (struct registration *)job;
	struct client *client = registration->client;
	struct buffer_mapping *mapping = &registration->mapping;
	struct buffer *buffer = registration->buffer;

	client->jobs--;
	if (mapping->error) {
		refuse(registration, mapping->error, "%s", mapping->text);
		client_step(client);
		return;
	}
	if (mapping->lock_error)
		log_unlocked(client, mapping->lock_error);

	buffer->client = client;
	buffer->handle = registration->handle;
	buffer_finish(buffer, mapping, &registration->facts, registration->guarantee,
		      &registration->fd);
	/*
	 * Also for a client that has gone: buffers_release() finds it. There is a place:
	 * buffer_count is at most the table's size.
	 */
	buffer_table_add(&client->buffers, buffer);
	registration->buffer = NULL;

	struct dmasync_buffer_add_reply reply = {
		.handle = buffer->handle,
		.backend = buffer->cache.backend,
		.kind = buffer->kind,
		.flags = buffer->flags,
		.size = buffer->cache.size,
	};

	memcpy(reply.exporter, buffer->exporter, sizeof reply.exporter);
	client_reply(client, DMASYNC_OP_BUFFER_ADD, registration->cookie, &reply, sizeof reply,
		     NULL, 0);
	registration_free(registration);
	request_end(client);
	client_step(client);
}

static bool within_limits(struct registration *registration, uint64_t bytes)
{
	struct client *client = registration->client;
	const struct config *config = &client->daemon->config;

	if (bytes > config->max_buffer_bytes ||
	    client->mapped_bytes > config->max_buffer_bytes - bytes) {
		refuse(registration, -ENOSPC,
		       "%llu bytes more than the %llu of this connection would be beyond "
		       "max_buffer_bytes=%llu; remove buffers, or raise it in the daemon's "
		       "configuration",
		       (unsigned long long)bytes, (unsigned long long)client->mapped_bytes,
		       (unsigned long long)config->max_buffer_bytes);
		return false;
	}
	if (bytes > config->max_total_buffer_bytes ||
	    client->daemon->mapped_bytes > config->max_total_buffer_bytes - bytes) {
		refuse(registration, -ENOSPC,
		       "%llu bytes more would be beyond the daemon's max_total_buffer_bytes=%llu; "
		       "others "
		       "have to remove buffers first",
		       (unsigned long long)bytes,
		       (unsigned long long)config->max_total_buffer_bytes);
		return false;
	}
	return true;
}

static void inspect_run(struct helper_job *job)
{
	struct registration *registration = (struct registration *)job;

	buffer_inspect(registration->fd, &registration->facts);
}

void buffer_policy(struct daemon *daemon, const struct buffer_facts *facts,
		   enum dmasync_backend requested, struct policy *ret)
{
	const struct config_exporter *configured =
		facts->kind == DMASYNC_KIND_DMABUF
			? config_exporter(&daemon->config, facts->exporter)
			: NULL;

	policy_choose(
		&(struct policy_facts){
			.kind = facts->kind,
			.exporter = facts->exporter,
			.requested = requested,
			.configured = configured ? configured->backend : DMASYNC_BACKEND_AUTO,
			.refuse = configured && configured->refuse,
			.line_operations = daemon->cache.line != 0,
			.allow_simulated = daemon->config.allow_simulated,
		},
		ret);
}

static void start_mapping(struct registration *registration, const struct policy *policy)
{
	struct client *client = registration->client;
	const struct buffer_facts *facts = &registration->facts;
	char text[DMASYNC_TEXT_SIZE];
	int error = 0;
	uint64_t size =
		buffer_choose_size(facts, policy->backend, registration->size, &error, text);

	if (!size) {
		refuse(registration, error, "%s", text);
		return;
	}
	uint64_t bytes = buffer_mapped_size(policy->backend, size, facts->page);

	if (!within_limits(registration, bytes))
		return;
	registration->buffer = calloc(1, sizeof *registration->buffer);
	if (!registration->buffer) {
		refuse(registration, -ENOMEM, "the daemon has no memory for another buffer");
		return;
	}
	buffer_charge(client, bytes);
	registration->charged = bytes;
	registration->guarantee = policy->guarantee;
	registration->mapping = (struct buffer_mapping){
		.fd = registration->fd,
		.kind = facts->kind,
		.backend = policy->backend,
		.exporter = facts->exporter,
		.size = size,
		.page = facts->page,
		.clean = !(registration->flags & DMASYNC_BUFFER_NO_CLEAN),
		.cache = &client->daemon->cache,
		.guard = guard_run,
	};
	client->jobs++;
	client_submit(client, client->id, &registration->job, map_run, map_finished);
}

static void inspect_finished(struct helper_job *job)
{
	struct registration *registration = (struct registration *)job;
	struct client *client = registration->client;
	struct policy policy;

	client->jobs--;
	if (!client_alive(client)) {
		give_up(registration);
	} else if (registration->facts.error) {
		refuse(registration, registration->facts.error, "%s", registration->facts.text);
	} else {
		buffer_policy(client->daemon, &registration->facts, registration->requested,
			      &policy);
		if (policy.error)
			refuse(registration, policy.error, "%s", policy.why);
		else
			start_mapping(registration, &policy);
	}
	client_step(client);
}

void handle_buffer_add(struct client *client, struct request *request)
{
	const struct dmasync_buffer_add *add = request->message;
	uint32_t most = client->daemon->config.max_buffers;

	if (add->flags & ~DMASYNC_BUFFER_NO_CLEAN) {
		client_error(client, request->opcode, request->cookie, -EINVAL,
			     "flags are %#x; known is NO_CLEAN (%#x)", add->flags,
			     DMASYNC_BUFFER_NO_CLEAN);
		return;
	}
	if (add->backend > DMASYNC_BACKEND_SIMULATED) {
		client_error(
			client, request->opcode, request->cookie, -EINVAL,
			"backend is %u; it must be 0 (auto), 1 (direct), 2 (kernel), 3 (none) or 4 "
			"(simulated)",
			add->backend);
		return;
	}
	if (add->handle & ~DMASYNC_UNIT_BUFFER_MASK || add->reserved) {
		client_error(client, request->opcode, request->cookie, -EINVAL,
			     "handle is %#x and reserved %u; a handle has 24 bits, reserved is 0",
			     add->handle, add->reserved);
		return;
	}
	if (most > client->buffers.size)
		most = client->buffers.size;
	if (client->buffer_count >= most) {
		client_error(client, request->opcode, request->cookie, -ENOSPC,
			     "this connection has %u buffers and max_buffers=%u; remove one first",
			     client->buffer_count, most);
		return;
	}
	if (!request_begin(client, request))
		return;

	struct registration *registration = calloc(1, sizeof *registration);

	if (!registration) {
		client_error(client, request->opcode, request->cookie, -ENOMEM,
			     "the daemon has no memory for another buffer");
		request_end(client);
		return;
	}
	registration->client = client;
	registration->cookie = request->cookie;
	registration->flags = add->flags;
	registration->requested = (enum dmasync_backend)add->backend;
	registration->size = add->size;
	registration->handle = add->handle;
	registration->fd = request->fds[0];
	request->fds[0] = -1;
	buffer_count(client);
	client->jobs++;
	client_submit(client, client->id, &registration->job, inspect_run, inspect_finished);
}
