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
	struct account_cost charged; /* but for the fd */
};

static void registration_free(struct registration *registration)
{
	if (registration->facts.kind)
		client_close_buffer(registration->client, registration->fd);
	else
		client_close_fds(registration->client, &registration->fd, 1);
	free(registration->buffer);
	free(registration);
}

/* Every way out that is not a registered buffer. */
static void give_up(struct registration *registration)
{
	struct client *client = registration->client;

	client_uncharge(client, &registration->charged);
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
	 * Also for a client that has gone: buffers_release() finds it. There is a place: no more
	 * buffers are charged than the table has.
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

static bool charge_mapping(struct registration *registration, enum dmasync_backend backend,
			   uint64_t bytes)
{
	struct client *client = registration->client;
	struct account_cost *charged = &registration->charged;
	uint32_t maps = buffer_map_count(backend);

	if (!client_afford(client, DMASYNC_OP_BUFFER_ADD, registration->cookie,
			   ACCOUNT_COST([ACCOUNT_BUFFER_BYTES] = bytes, [ACCOUNT_MAPS] = maps))) {
		give_up(registration);
		return false;
	}
	charged->amount[ACCOUNT_BUFFER_BYTES] = bytes;
	charged->amount[ACCOUNT_MAPS] = maps;
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
	if (!charge_mapping(registration, policy->backend,
			    buffer_mapped_size(policy->backend, size, facts->page)))
		return;
	registration->buffer = calloc(1, sizeof *registration->buffer);
	if (!registration->buffer) {
		refuse(registration, -ENOMEM, "the daemon has no memory for another buffer");
		return;
	}
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
	client_submit(client, LANE_CLIENT, &registration->job, map_run, map_finished);
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
	static const struct account_cost cost = {{[ACCOUNT_BUFFERS] = 1, [ACCOUNT_REQUESTS] = 1}};

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
	/* max_buffers may have been raised since this connection was made. */
	if (client->account.used[ACCOUNT_BUFFERS] >= client->buffers.size &&
	    client->daemon->config.max_buffers > client->buffers.size) {
		client_error(client, request->opcode, request->cookie, -ENOSPC,
			     "this connection was made for %u buffers (max_buffers); remove one "
			     "first, or connect again",
			     client->buffers.size);
		return;
	}
	if (!client_keeps_files(client, request) ||
	    !client_afford(client, request->opcode, request->cookie, &cost))
		return;

	struct registration *registration = calloc(1, sizeof *registration);

	if (!registration) {
		client_error(client, request->opcode, request->cookie, -ENOMEM,
			     "the daemon has no memory for another buffer");
		client_uncharge(client, &cost);
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
	registration->charged.amount[ACCOUNT_BUFFERS] = 1;
	client->jobs++;
	client_submit(client, LANE_CLIENT, &registration->job, inspect_run, inspect_finished);
}
