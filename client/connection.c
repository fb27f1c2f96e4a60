/* SPDX-License-Identifier: MIT */
/*
 * Connecting: which socket, in what time, who answers, and what to tell the user where nobody
 * does. Any thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "client/inline.h"
#include "client/internal.h"

#define CONNECT_TIMEOUT_MS 2000
#define CONNECT_FLAGS                                                                              \
	(DMASYNC_INLINE | DMASYNC_INLINE_FALLBACK | DMASYNC_INLINE_SIMULATED | DMASYNC_NO_RECONNECT)
#define CONNECT_UNIT "start it with: systemctl start dmasyncd.socket"

DMASYNC_PUBLIC void dmasync_connect_params_init(struct dmasync_connect_params *params)
{
	memset(params, 0, sizeof *params);
	params->size = sizeof *params;
}

static const char *choose_socket(const struct dmasync_connect_params *params)
{
	const char *path = params->socket;

	if (!path)
		path = secure_getenv("DMASYNC_SOCKET");
	return path && *path ? path : DMASYNC_SOCKET_PATH;
}

int connection_explain(struct dmasync *ds, int error)
{
	switch (error) {
	case -ENOENT:
		return control_error(ds, error,
				     "dmasyncd does not run: there is no socket %s; " CONNECT_UNIT,
				     ds->path);
	case -ECONNREFUSED:
		return control_error(ds, error,
				     "dmasyncd does not run: nobody listens on %s; " CONNECT_UNIT,
				     ds->path);
	case -EACCES:
	case -EPERM:
		return control_error(ds, error,
				     "no permission to connect to %s; it takes membership in the "
				     "group dmasync: usermod -aG dmasync USER, then log in again",
				     ds->path);
	case -ETIMEDOUT:
		return control_error(ds, error,
				     "%s takes no more connections: dmasyncd did not accept one "
				     "within %u ms; look at: systemctl status dmasyncd.service",
				     ds->path, ds->connect_timeout_ms);
	case -EPROTOTYPE:
		return control_error(ds, error,
				     "%s is a socket of another kind (not SOCK_SEQPACKET), so not "
				     "dmasyncd's; its own is " DMASYNC_SOCKET_PATH
				     ", " CONNECT_UNIT,
				     ds->path);
	}
	return control_error(ds, error, "cannot connect to dmasyncd at %s: %s; " CONNECT_UNIT,
			     ds->path, describe(error));
}

static int open_socket(struct dmasync *ds, int64_t deadline)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length = strlen(ds->path);

	if (length >= sizeof address.sun_path)
		return control_error(ds, -ENAMETOOLONG,
				     "the socket path %s has %zu bytes; the kernel allows %zu",
				     ds->path, length, sizeof address.sun_path - 1);
	memcpy(address.sun_path, ds->path, length + 1);
	ds->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (ds->socket < 0)
		return control_error(ds, -errno, "cannot make a socket: %s", describe(-errno));
	for (;;) {
		/*
		 * A non-blocking connect() to a full backlog fails at once and cannot be polled
		 * for (there is no EINPROGRESS on AF_UNIX); a send time-out bounds a blocking
		 * one. Everything after it passes MSG_DONTWAIT.
		 */
		int64_t left = deadline - now_ns();
		struct timeval timeout = {
			.tv_sec = (time_t)(left / 1000000000),
			.tv_usec = (suseconds_t)(left % 1000000000 / 1000),
		};

		if (left < 1000) /* a time-out of 0 us would mean for ever */
			return connection_explain(ds, -ETIMEDOUT);
		if (setsockopt(ds->socket, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) < 0)
			return control_error(ds, -errno, "cannot set a time-out: %s",
					     describe(-errno));
		if (connect(ds->socket, (void *)&address, sizeof address) == 0)
			return 0;
		if (errno != EINTR && errno != EAGAIN)
			return connection_explain(ds, -errno);
	}
}

int connection_check_hello(struct dmasync *ds, struct dmasync_hello_reply *hello, uint64_t required)
{
	uint64_t missing = required & ~hello->features;

	if (hello->version != DMASYNC_PROTOCOL_VERSION)
		return control_error(ds, -EPROTO,
				     "dmasyncd at %s chose protocol version %u; this library "
				     "speaks %u only",
				     ds->path, hello->version, DMASYNC_PROTOCOL_VERSION);
	if (hello->line_size & (hello->line_size - 1))
		return control_error(
			ds, -EPROTO,
			"dmasyncd at %s says its cache lines have %u bytes; that is no "
			"power of two",
			ds->path, hello->line_size);
	control_text(hello->daemon, sizeof hello->daemon);
	control_text(hello->cache_ops, sizeof hello->cache_ops);
	if (missing)
		return control_error(ds, -EOPNOTSUPP,
				     "dmasyncd %s at %s lacks required features 0x%llx",
				     hello->daemon, ds->path, (unsigned long long)missing);
	return 0;
}

void connection_fill_hello(const struct dmasync *ds, uint64_t required, struct dmasync_hello *ret)
{
	*ret = (struct dmasync_hello){
		.version_min = DMASYNC_PROTOCOL_VERSION,
		.version_max = DMASYNC_PROTOCOL_VERSION,
		.features_required = required,
	};
	memcpy(ret->name, ds->name, sizeof ret->name);
}

static int shake_hands(struct dmasync *ds, uint64_t required, int64_t deadline)
{
	struct dmasync_hello hello;
	struct control_reply reply = {.message = &ds->hello, .size = sizeof ds->hello};
	int r;

	connection_fill_hello(ds, required, &hello);
	/* Nobody else has this connection yet, so nobody holds request_lock. */
	r = control_exchange(ds, DMASYNC_OP_HELLO, &hello.header, sizeof hello, -1, &reply,
			     deadline);
	return r < 0 ? r : connection_check_hello(ds, &ds->hello, required);
}

/* The library does the work itself: always, or while nobody answers. */
static int start_inline(struct dmasync *ds, const struct dmasync_connect_params *params)
{
	uint64_t missing;

	inline_hello(ds->in_process, &ds->hello);
	missing = params->features_required & ~ds->hello.features;
	if (missing)
		return control_error(ds, -EOPNOTSUPP, "inline mode lacks required features 0x%llx",
				     (unsigned long long)missing);
	/* Of a daemon that comes later: what was asked for, and what the calls need. */
	ds->features_wanted = params->features_required | DMASYNC_FEATURE_STRIDED;
	return 0;
}

static int make_inline_side(struct dmasync *ds, const struct dmasync_connect_params *params)
{
	int r = inline_side_create(params->flags & DMASYNC_INLINE_SIMULATED, &ds->in_process);

	if (r < 0)
		return control_error(ds, r, "no memory for inline mode");
	ds->fallback = params->flags & DMASYNC_INLINE_FALLBACK;
	ds->in_process->compact = ds->fallback;
	return 0;
}

static int find_daemon(struct dmasync *ds, const struct dmasync_connect_params *params,
		       int64_t deadline)
{
	int r = open_socket(ds, deadline);

	if (r == 0)
		r = shake_hands(ds, params->features_required, deadline);
	ds->features_wanted = ds->hello.features;
	return r;
}

/* Nobody is there; other failures are an answer. */
static bool nobody_answers(int error)
{
	return error == -ENOENT || error == -ECONNREFUSED || error == -ETIMEDOUT ||
	       error == -ECONNRESET;
}

static int start(struct dmasync *ds, const struct dmasync_connect_params *params, int64_t deadline)
{
	int r = 0;

	if (params->flags & (DMASYNC_INLINE | DMASYNC_INLINE_FALLBACK))
		r = make_inline_side(ds, params);
	if (r < 0)
		return r;
	if (params->flags & DMASYNC_INLINE) {
		atomic_init(&ds->life, 1);
		return start_inline(ds, params);
	}
	r = find_daemon(ds, params, deadline);
	if (r == 0) {
		ds->link.up_ns = now_ns();
		atomic_init(&ds->life, 1);
		return 0;
	}
	if (!ds->fallback || !nobody_answers(r))
		return r;
	/* As if one had gone. */
	atomic_init(&ds->life, 2);
	r = start_inline(ds, params);
	reconnect_begin_without(ds);
	return r;
}

static void connection_free(struct dmasync *ds)
{
	close_fd(ds->socket);
	inline_side_free(ds->in_process);
	fork_guard_free(ds->alive);
	pthread_mutex_destroy(&ds->life_lock);
	pthread_mutex_destroy(&ds->request_lock);
	pthread_mutex_destroy(&ds->text_lock);
	pthread_mutex_destroy(&ds->queues_lock);
	free(ds->receive);
	free(ds->path);
	free(ds);
}

static int connection_new(const struct dmasync_connect_params *params, struct dmasync **ret)
{
	const char *name = params->name ? params->name : program_invocation_short_name;
	struct dmasync *ds = calloc(1, sizeof *ds);
	int r;

	if (!ds)
		return -ENOMEM;
	ds->socket = -1;
	ds->flags = params->flags;
	ds->timeout_ms = params->timeout_ms ? params->timeout_ms : CONNECT_TIMEOUT_MS;
	ds->connect_timeout_ms =
		params->connect_timeout_ms ? params->connect_timeout_ms : ds->timeout_ms;
	ds->give_up_ms = params->give_up_ms;
	memcpy(ds->name, name, strnlen(name, sizeof ds->name - 1));
	pthread_mutex_init(&ds->life_lock, NULL);
	pthread_mutex_init(&ds->request_lock, NULL);
	pthread_mutex_init(&ds->text_lock, NULL);
	pthread_mutex_init(&ds->queues_lock, NULL);
	ds->receive = malloc(DMASYNC_MESSAGE_MAX);
	ds->path = strdup(choose_socket(params));
	r = fork_guard_create(&ds->alive);
	if (r == 0 && (!ds->receive || !ds->path))
		r = -ENOMEM;
	if (r < 0) {
		connection_free(ds);
		return r;
	}
	*ret = ds;
	return 0;
}

static void give_text(const struct dmasync_connect_params *params, const char *text)
{
	if (params->error_text && params->error_text_size)
		snprintf(params->error_text, params->error_text_size, "%s", text);
}

static int check_params(const struct dmasync_connect_params *params)
{
	char text[128];

	if (params->flags & ~CONNECT_FLAGS) {
		snprintf(text, sizeof text, "connect flags 0x%x: only 0x%x are known",
			 params->flags, CONNECT_FLAGS);
		give_text(params, text);
		return -EINVAL;
	}
	if (params->flags & DMASYNC_INLINE_FALLBACK &&
	    params->flags & (DMASYNC_INLINE | DMASYNC_NO_RECONNECT)) {
		give_text(params, "DMASYNC_INLINE_FALLBACK excludes DMASYNC_INLINE and "
				  "DMASYNC_NO_RECONNECT");
		return -EINVAL;
	}
	if (params->reserved) {
		give_text(params, "reserved of struct dmasync_connect_params must be 0");
		return -EINVAL;
	}
	return 0;
}

DMASYNC_PUBLIC int dmasync_connect_with(const struct dmasync_connect_params *params,
					struct dmasync **ret)
{
	struct dmasync_connect_params own;
	struct dmasync *ds = NULL;
	int64_t deadline = now_ns();
	int r = params_copy(&own, sizeof own, params);

	if (r < 0)
		return r;
	r = check_params(&own);
	if (r < 0)
		return r;
	r = connection_new(&own, &ds);
	if (r < 0) {
		give_text(&own, describe(r));
		return r;
	}
	deadline += (int64_t)ds->connect_timeout_ms * 1000000;
	r = start(ds, &own, deadline);
	if (r < 0) {
		give_text(&own, ds->error_text);
		connection_free(ds);
		return r;
	}
	*ret = ds;
	return 0;
}

DMASYNC_PUBLIC int dmasync_connect(const char *socket, uint32_t flags, struct dmasync **ret)
{
	struct dmasync_connect_params params;

	dmasync_connect_params_init(&params);
	params.socket = socket;
	params.flags = flags;
	return dmasync_connect_with(&params, ret);
}

DMASYNC_PUBLIC void dmasync_disconnect(struct dmasync *ds)
{
	if (ds && fork_guard_ok(ds))
		connection_free(ds);
}

DMASYNC_PUBLIC int dmasync_get_info(struct dmasync *ds, struct dmasync_info *info)
{
	const struct dmasync_hello_reply *hello = &ds->hello;
	struct dmasync_info own = {
		.protocol = hello->version,
		.features = hello->features,
		.line_size = hello->line_size,
		.granule = hello->granule,
		.max_buffers = hello->max_buffers,
		.max_queues = hello->max_queues,
		.max_depth = hello->max_depth,
		.max_units = hello->max_units,
		.max_buffer_bytes = hello->max_buffer_bytes,
		.max_batch_lines = hello->max_batch_lines,
	};

	if (!fork_guard_ok(ds))
		return -ECHILD;
	static_assert(sizeof own.daemon_version == sizeof hello->daemon, "a name");
	static_assert(sizeof own.cache_ops == sizeof hello->cache_ops, "a name");
	memcpy(own.daemon_version, hello->daemon, sizeof own.daemon_version);
	memcpy(own.cache_ops, hello->cache_ops, sizeof own.cache_ops);
	return params_return(info, &own, sizeof own);
}
