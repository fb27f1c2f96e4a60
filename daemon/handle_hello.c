/* SPDX-License-Identifier: MIT */
/* HELLO: version and features, what the daemon allows. Control thread. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/connection.h"

static uint64_t features(const struct daemon *daemon)
{
	uint64_t bits = DMASYNC_FEATURE_STRIDED | DMASYNC_FEATURE_WATCH;

	if (daemon->config.allow_simulated)
		bits |= DMASYNC_FEATURE_SIMULATED;
	if (daemon->kernel_backend)
		bits |= DMASYNC_FEATURE_KERNEL;
	if (daemon->cache.line)
		bits |= DMASYNC_FEATURE_DIRECT;
	return bits;
}

/* "simulated, kernel", and bits of a later protocol as a number. */
static const char *name_features(uint64_t bits, char *text, size_t size)
{
	static const struct {
		uint64_t bit;
		const char *word;
	} rows[] = {
#define ROW_(feature, name) {feature, name},
		DMASYNC_FEATURES(ROW_)
#undef ROW_
	};
	size_t length = 0;

	*text = 0;
	for (size_t i = 0; i < sizeof rows / sizeof rows[0] && length < size; i++) {
		if (!(bits & rows[i].bit))
			continue;
		bits &= ~rows[i].bit;
		length += (size_t)snprintf(text + length, size - length, "%s%s", length ? ", " : "",
					   rows[i].word);
	}
	if (bits && length < size)
		snprintf(text + length, size - length, "%sunknown ones (%#llx)", length ? ", " : "",
			 (unsigned long long)bits);
	return text;
}

/* Into logs and onto terminals: what is not printable ASCII becomes a question mark. */
static void copy_name(char to[DMASYNC_NAME_SIZE], const char from[DMASYNC_NAME_SIZE])
{
	size_t length = strnlen(from, DMASYNC_NAME_SIZE - 1);

	memset(to, 0, DMASYNC_NAME_SIZE);
	for (size_t i = 0; i < length; i++)
		to[i] = from[i] >= ' ' && from[i] <= '~' ? from[i] : '?';
}

static uint32_t at_most(uint32_t value, uint32_t most)
{
	return value < most ? value : most;
}

void handle_hello(struct client *client, struct request *request)
{
	const struct dmasync_hello *hello = request->message;
	struct daemon *daemon = client->daemon;
	const struct config *config = &daemon->config;
	uint64_t missing = hello->features_required & ~features(daemon);

	if (hello->version_min > hello->version_max ||
	    hello->version_min > DMASYNC_PROTOCOL_VERSION ||
	    hello->version_max < DMASYNC_PROTOCOL_VERSION) {
		client_error(
			client, request->opcode, request->cookie, -EPROTONOSUPPORT,
			"the client speaks protocol versions %u to %u and this daemon speaks %u; "
			"upgrade the older of the two",
			hello->version_min, hello->version_max, DMASYNC_PROTOCOL_VERSION);
		return;
	}
	if (missing) {
		char words[128];

		client_error(client, request->opcode, request->cookie, -EOPNOTSUPP,
			     "the client requires features that this daemon does not have here: %s",
			     name_features(missing, words, sizeof words));
		return;
	}
	if (hello->name[DMASYNC_NAME_SIZE - 1]) {
		client_error(client, request->opcode, request->cookie, -EINVAL,
			     "the name has no final zero; it may have %u bytes and the zero",
			     DMASYNC_NAME_SIZE - 1);
		return;
	}
	if (buffers_create(client) < 0) {
		client_error(client, request->opcode, request->cookie, -ENOMEM,
			     "the daemon has no memory for another connection; try again later");
		return;
	}
	copy_name(client->name, hello->name);
	client->state = CLIENT_READY;
	loop_timer_free(client->handshake);
	client->handshake = NULL;

	struct dmasync_hello_reply reply = {
		.version = DMASYNC_PROTOCOL_VERSION,
		.line_size = (uint32_t)daemon->cache.line,
		.features = features(daemon),
		.instance = daemon->instance,
		.max_buffer_bytes = config->max_buffer_bytes,
		.max_batch_lines = config->max_batch_lines,
		.granule = (uint32_t)daemon->cache.granule,
		.max_buffers = client->buffers.size,
		.max_queues = config->max_queues,
		.max_depth = at_most(config->max_depth, DMASYNC_RING_MAX_DEPTH),
		.max_units = at_most(config->max_units, DMASYNC_RING_MAX_UNITS),
		.max_requests = config->max_requests,
	};

	snprintf(reply.daemon, sizeof reply.daemon, "%s", DMASYNC_VERSION);
	snprintf(reply.cache_ops, sizeof reply.cache_ops, "%s",
		 daemon->cache.line ? daemon->cache.ops.name : "none");
	client_reply(client, request->opcode, request->cookie, &reply, sizeof reply, NULL, 0);
}
