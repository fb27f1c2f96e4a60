/* SPDX-License-Identifier: MIT */
/* PROBE: what this machine's line operations are, and what an fd would become. Control thread. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/buffer/map.h"
#include "daemon/buffer/policy.h"
#include "daemon/connection.h"
#include "daemon/loop_choice.h"

/* An fd is inspected on a helper, as for BUFFER_ADD, and is not mapped. */
struct probe {
	struct helper_job job; /* first */
	struct client *client;
	uint64_t cookie;
	int fd;
	struct buffer_facts facts;
};

static void fill_machine(const struct daemon *daemon, struct dmasync_probe_reply *reply)
{
	const struct cache *cache = &daemon->cache;

	reply->line_size = (uint32_t)cache->line;
	reply->granule = (uint32_t)cache->granule;
	reply->clean_picoseconds = cache->clean_ps;
	reply->flush_picoseconds = cache->flush_ps;
	reply->barrier_picoseconds = cache->barrier_ps;
	reply->workers = daemon->ordinary_count;
	reply->trapped = cache->trapped;
	reply->errata = daemon->errata;
	snprintf(reply->cache_ops, sizeof reply->cache_ops, "%s",
		 cache->line ? cache->ops.name : "none");
	snprintf(reply->loop, sizeof reply->loop, "%s", loop_name(daemon->loop));
	loop_choice_text(daemon, reply->loop_text, sizeof reply->loop_text);
	snprintf(reply->why, sizeof reply->why, "%s", cache->why);
}

static void fill_fd(struct daemon *daemon, const struct buffer_facts *facts,
		    struct dmasync_probe_reply *reply)
{
	struct policy policy;

	reply->fd_known = 1;
	if (facts->error) {
		reply->error = facts->error;
		snprintf(reply->why, sizeof reply->why, "%s", facts->text);
		return;
	}
	buffer_policy(daemon, facts, DMASYNC_BACKEND_AUTO, &policy);
	reply->kind = facts->kind;
	reply->size = facts->file_size;
	memcpy(reply->exporter, facts->exporter, sizeof reply->exporter);
	reply->error = policy.error;
	reply->backend = policy.backend;
	reply->flags = policy.guarantee ? DMASYNC_BUFFER_GUARANTEE : 0;
	snprintf(reply->why, sizeof reply->why, "%s", policy.why);
}

static void inspect_run(struct helper_job *job)
{
	struct probe *probe = (struct probe *)job;

	buffer_inspect(probe->fd, &probe->facts);
}

static void inspect_finished(struct helper_job *job)
{
	struct probe *probe = (struct probe *)job;
	struct client *client = probe->client;
	struct dmasync_probe_reply reply = {0};

	client->jobs--;
	fill_machine(client->daemon, &reply);
	fill_fd(client->daemon, &probe->facts, &reply);
	client_reply(client, DMASYNC_OP_PROBE, probe->cookie, &reply, sizeof reply, NULL, 0);
	if (probe->facts.kind)
		client_close_buffer(client, probe->fd);
	else
		client_close_fds(client, &probe->fd, 1);
	free(probe);
	request_end(client);
	client_step(client);
}

void handle_probe(struct client *client, struct request *request)
{
	if (request->fd_count == 0) {
		struct dmasync_probe_reply reply = {0};

		fill_machine(client->daemon, &reply);
		client_reply(client, request->opcode, request->cookie, &reply, sizeof reply, NULL,
			     0);
		return;
	}
	if (!client_keeps_files(client, request) || !request_begin(client, request))
		return;

	struct probe *probe = calloc(1, sizeof *probe);

	if (!probe) {
		client_error(client, request->opcode, request->cookie, -ENOMEM,
			     "the daemon has no memory for the request; try again");
		request_end(client);
		return;
	}
	probe->client = client;
	probe->cookie = request->cookie;
	probe->fd = request->fds[0];
	request->fds[0] = -1;
	client->jobs++;
	client_submit(client, LANE_CLIENT, &probe->job, inspect_run, inspect_finished);
}
