/* SPDX-License-Identifier: MIT */
/*
 * What an inline connection has in the daemon's place: the choice of line operations, and the
 * buffers, inspected, judged and mapped by the daemon's code. Any thread.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/inline.h"
#include "client/internal.h"
#include "daemon/buffer/fence.h"
#include "daemon/buffer/policy.h"

int inline_side_create(bool allow_simulated, struct inline_side **ret)
{
	struct inline_side *side = calloc(1, sizeof *side);

	if (!side)
		return -ENOMEM;
	if (buffer_table_create(&side->buffers, BUFFER_TABLE_MAX) < 0) {
		free(side);
		return -ENOMEM;
	}
	/* Never by trying: the process's signal handlers are its own. */
	cache_choose(&side->cache);
	side->allow_simulated = allow_simulated;
	side->max_batch_lines = CACHE_BATCH_MAX_LINES;
	side->fence_timeout_ms = FENCE_TIMEOUT_MS;
	pthread_mutex_init(&side->lock, NULL);
	*ret = side;
	return 0;
}

void inline_side_free(struct inline_side *side)
{
	if (!side)
		return;
	buffer_table_free(&side->buffers);
	pthread_mutex_destroy(&side->lock);
	free(side);
}

void inline_hello(const struct inline_side *side, struct dmasync_hello_reply *ret)
{
	*ret = (struct dmasync_hello_reply){
		.version = DMASYNC_PROTOCOL_VERSION,
		.line_size = (uint32_t)side->cache.line,
		.features = DMASYNC_FEATURE_STRIDED | DMASYNC_FEATURE_KERNEL |
			    (side->allow_simulated ? DMASYNC_FEATURE_SIMULATED : 0) |
			    (side->cache.line ? DMASYNC_FEATURE_DIRECT : 0),
		.max_buffer_bytes = UINT64_MAX,
		.max_batch_lines = side->max_batch_lines,
		.granule = (uint32_t)side->cache.granule,
		.max_buffers = side->buffers.size,
		.max_queues = UINT32_MAX,
		.max_depth = DMASYNC_RING_MAX_DEPTH,
		.max_units = DMASYNC_RING_MAX_UNITS,
		.max_requests = UINT32_MAX,
	};
	snprintf(ret->cache_ops, sizeof ret->cache_ops, "%s",
		 side->cache.line ? side->cache.ops.name : "none");
}

/*
 * In the daemon's place for guard_run(): nobody catches a fault here, as that takes a handler.
 * None is to be expected: a memfd is sealed against shrinking, and pages of the exporters that get
 * line operations stay (daemon/buffer/policy.c).
 */
static bool run_plainly(void (*fn)(void *argument), void *argument)
{
	fn(argument);
	return true;
}

/* Takes `*fd` where the buffer keeps it. */
static int map(struct dmasync *ds, struct inline_side *side, const struct buffer_facts *facts,
	       const struct policy *policy, const struct dmasync_buffer_add *request, int *fd,
	       struct buffer *ret)
{
	struct buffer_mapping mapping = {
		.fd = *fd,
		.kind = facts->kind,
		.backend = policy->backend,
		.exporter = facts->exporter,
		.page = facts->page,
		.clean = !(request->flags & DMASYNC_BUFFER_NO_CLEAN),
		.cache = &side->cache,
		.guard = run_plainly,
	};
	char text[DMASYNC_TEXT_SIZE];
	int error = 0;

	mapping.size = buffer_choose_size(facts, policy->backend, request->size, &error, text);
	if (!mapping.size)
		return control_error(ds, error, "%s", text);
	buffer_map(&mapping);
	if (mapping.error)
		return control_error(ds, mapping.error, "%s", mapping.text);
	buffer_finish(ret, &mapping, facts, policy->guarantee, fd);
	return 0;
}

static int prepare(struct dmasync *ds, struct inline_side *side,
		   const struct dmasync_buffer_add *request, int *fd, struct buffer *ret)
{
	struct buffer_facts facts;
	struct policy policy;

	buffer_inspect(*fd, &facts);
	if (facts.error)
		return control_error(ds, facts.error, "%s", facts.text);
	policy_choose(
		&(struct policy_facts){
			.kind = facts.kind,
			.exporter = facts.exporter,
			.requested = (enum dmasync_backend)request->backend,
			.configured = DMASYNC_BACKEND_AUTO,
			.line_operations = side->cache.line != 0,
			.allow_simulated = side->allow_simulated,
		},
		&policy);
	if (policy.error)
		return control_error(ds, policy.error, "%s", policy.why);
	return map(ds, side, &facts, &policy, request, fd, ret);
}

int inline_buffer_add(struct dmasync *ds, struct inline_side *side, int fd,
		      const struct dmasync_buffer_add *request,
		      struct dmasync_buffer_add_reply *ret)
{
	struct buffer *buffer = calloc(1, sizeof *buffer);
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 3), r;
	bool added;

	if (!buffer || own < 0) {
		r = buffer ? -errno : -ENOMEM;
		free(buffer);
		close_fd(own);
		return control_error(ds, r, "cannot register another buffer: %s", describe(r));
	}
	r = prepare(ds, side, request, &own, buffer);
	close_fd(own);
	if (r < 0) {
		free(buffer);
		return r;
	}
	buffer->handle = request->handle;
	pthread_mutex_lock(&side->lock);
	if (side->compact)
		side->buffers.next_index = 0;
	added = buffer_table_add(&side->buffers, buffer);
	pthread_mutex_unlock(&side->lock);
	if (!added) {
		buffer_release(buffer);
		free(buffer);
		return control_error(ds, -ENOSPC,
				     "this connection has %u buffers, as many as it may have; "
				     "destroy one first",
				     side->buffers.size);
	}
	*ret = (struct dmasync_buffer_add_reply){
		.handle = buffer->handle,
		.backend = buffer->cache.backend,
		.kind = buffer->kind,
		.flags = buffer->flags,
		.size = buffer->cache.size,
	};
	memcpy(ret->exporter, buffer->exporter, sizeof ret->exporter);
	return 0;
}

void inline_buffer_remove(struct inline_side *side, uint32_t handle)
{
	struct buffer *buffer;

	pthread_mutex_lock(&side->lock);
	buffer = buffer_table_remove(&side->buffers, handle);
	pthread_mutex_unlock(&side->lock);
	if (!buffer)
		return;
	buffer_release(buffer);
	free(buffer);
}
