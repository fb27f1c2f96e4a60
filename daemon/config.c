/* SPDX-License-Identifier: MIT */
/*
 * The table of configuration keys and what is done by it: defaults and setting. config_reload.c
 * copies and compares. Control thread.
 */
#include "daemon/config.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "daemon/buffer/fence.h"
#include "daemon/buffer/table.h"
#include "daemon/config_value.h"
#include "daemon/scheduler.h"
#include "proto/message.h"

#define KIB UINT64_C(1024)
#define MIB (KIB * KIB)
#define TIB (MIB * MIB)
#define PATH_BYTES (sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1)
#define AT(field) offsetof(struct config, field)
#define TEXT_OF_(number) #number
#define TEXT_OF(number) TEXT_OF_(number)

static const struct config_key keys[] = {
	{"daemon", "socket", CONFIG_PATH_NAME, AT(socket), 1, PATH_BYTES, NULL, NULL, false,
	 "Listening socket. Not looked at where systemd passes one. Unset: " DMASYNC_SOCKET_PATH
	 "."},
	{"daemon", "workers", CONFIG_COUNT, AT(workers), 1, CONFIG_CPUS_MAX, "threads", "1", false,
	 "Worker threads, each pinned to a CPU. Not looked at where cpus is set."},
	{"daemon", "cpus", CONFIG_CPUS, AT(cpus), 0, 0, NULL, NULL, false,
	 "CPUs of the workers, one each, in this order. Unset: the last ones the daemon may use."},
	{"daemon", "policy", CONFIG_POLICY, AT(fifo), 0, 0, NULL, "other", false,
	 "Scheduling policy of the workers. fifo needs cpus, and CAP_SYS_NICE or RLIMIT_RTPRIO."},
	{"daemon", "priority", CONFIG_COUNT, AT(priority), 1, 49, NULL, "10", false,
	 "Priority with policy = fifo. Interrupt threads have 50."},
	{"daemon", "rt_share", CONFIG_COUNT, AT(rt_share), 1, 95, "percent", "50", true,
	 "How much of any 100 ms a worker may be awake under fifo; more, and it goes on under "
	 "other."},
	{"daemon", "loop", CONFIG_LOOP, AT(loop), 0, 0, NULL, "auto", false,
	 "What the daemon waits in. auto: io_uring, or epoll where the kernel refuses it."},
	{"daemon", "spin_us", CONFIG_COUNT, AT(spin_us), 0, 10000, "microseconds", "50", true,
	 "How long a worker without work looks on before it sleeps, at most. With one CPU it never "
	 "does."},
	{"daemon", "spin_min_us", CONFIG_COUNT, AT(spin_min_us), 0, 10000, "microseconds", "0",
	 true,
	 "How long it looks on at least, however rare batches have become. No more than spin_us."},
	{"daemon", "slice_us", CONFIG_COUNT, AT(slice_us), 1, 10000, "microseconds", "50", true,
	 "How long one queue has before the next one has its turn, by the cost measured at start."},
	{"daemon", "slice_lines", CONFIG_COUNT, AT(slice_lines), 64, KIB *KIB, "line operations",
	 "4096", true, "Line operations of one queue before the next one has its turn, at most."},
	{"daemon", "normal_share", CONFIG_COUNT, AT(normal_share), 1, SCHEDULER_SHARE_MAX,
	 "percent", "10", true,
	 "What batches of class normal have of a worker whatever realtime ones wait."},
	{"daemon", "bulk_share", CONFIG_COUNT, AT(bulk_share), 1, SCHEDULER_SHARE_MAX, "percent",
	 "5", true, "What batches of class bulk have of a worker whatever other ones wait."},
	{"daemon", "overruns_to_move", CONFIG_COUNT, AT(overruns_to_move), 0, 1000, "slices", "3",
	 true,
	 "After so many of a connection's that took far longer than they may, with page faults, "
	 "the "
	 "queue goes to the slow worker. 0: none does."},
	{"daemon", "split_lines", CONFIG_COUNT64, AT(split_lines), 0, UINT64_C(1) << 32, "lines",
	 "32768", true,
	 "A batch of more lines is shared by all workers that have nothing to do. 0: none is."},
	{"daemon", "share_barrier", CONFIG_BOOL, AT(share_barrier), 0, 0, NULL, "no", true,
	 "Whether batches of several queues that are issued may wait for one barrier together."},
	{"daemon", "share_barrier_lines", CONFIG_COUNT, AT(share_barrier_lines), 1, KIB *KIB,
	 "lines", "4096", true, "With that many lines issued they wait for no further batch."},
	{"daemon", "share_barrier_us", CONFIG_COUNT, AT(share_barrier_us), 1, 10000, "microseconds",
	 "20", true, "Nor do they when the first of them has waited that long."},
	{"daemon", "log_level", CONFIG_LEVEL, AT(log_level), 0, 0, NULL, "info", true,
	 "The least urgent messages that are logged."},
	{"daemon", "observer_group", CONFIG_GROUP, AT(observer_group), 0, 0, NULL, NULL, false,
	 "Group whose members may see the batch records of others. Root and the daemon's own user "
	 "always may."},
	{"daemon", "realtime_group", CONFIG_GROUP, AT(realtime_group), 0, 0, NULL, NULL, false,
	 "Group whose members may have queues of class realtime. Root and the daemon's own user "
	 "always may."},
	{"daemon", "allow_simulated", CONFIG_BOOL, AT(allow_simulated), 0, 0, NULL, "no", true,
	 "Whether clients may register simulated non-coherent buffers, which are for tests."},
	{"daemon", "helper_threads", CONFIG_COUNT, AT(helper_threads), 2, 64, "threads", "8", false,
	 "Most threads for what may block: mapping, unmapping, kernel syncs. Half as many close "
	 "files."},
	{"daemon", "fence_timeout_ms", CONFIG_COUNT, AT(fence_timeout_ms), 0, 600000,
	 "milliseconds", TEXT_OF(FENCE_TIMEOUT_MS), true,
	 "How long a batch waits for the fences of its dma-bufs before it fails. 0: as long as it "
	 "takes."},
	{"daemon", "second_pass", CONFIG_BOOL, AT(second_pass), 0, 0, NULL, "no", false,
	 "Whether each line operation is issued twice before the barrier, for the erratum Arm SI "
	 "L1 4311569. Also done where the kernel runs with arm_si_l1_workaround_4311569."},
	{"daemon", "stop_timeout_ms", CONFIG_COUNT, AT(stop_timeout_ms), 0, 600000, "milliseconds",
	 "5000", true,
	 "How long a daemon that is to stop works on what was submitted. 0: as long as it takes."},

	{"limits", "max_connections", CONFIG_COUNT, AT(max_connections), 1, 4096, "connections",
	 "4096", true, "Connections in all."},
	{"limits", "max_buffers", CONFIG_COUNT, AT(max_buffers), 1, BUFFER_TABLE_MAX, "buffers",
	 "256", true, "Buffers of one connection."},
	{"limits", "max_buffer_bytes", CONFIG_BYTES, AT(max_buffer_bytes), 4 * KIB, TIB, NULL, "1G",
	 true, "Bytes of all buffers of one connection."},
	{"limits", "max_total_buffer_bytes", CONFIG_BYTES, AT(max_total_buffer_bytes), 4 * KIB, TIB,
	 NULL, "4G", true, "Bytes of all buffers of all connections."},
	{"limits", "max_total_queue_bytes", CONFIG_BYTES, AT(max_total_queue_bytes), 4 * KIB, TIB,
	 NULL, "1G", true, "Bytes of the queues of all connections, twice their units included."},
	{"limits", "max_queues", CONFIG_COUNT, AT(max_queues), 1, 256, "queues", "16", true,
	 "Queues of one connection."},
	{"limits", "max_depth", CONFIG_COUNT, AT(max_depth), DMASYNC_RING_MIN_DEPTH,
	 DMASYNC_RING_MAX_DEPTH, "batches", "1024", true, "Depth of a queue."},
	{"limits", "max_units", CONFIG_COUNT, AT(max_units), DMASYNC_RING_MIN_UNITS,
	 DMASYNC_RING_MAX_UNITS, "units", "65536", true,
	 "Units of a queue, 16 bytes each: a plain entry is one, a strided entry two."},
	{"limits", "max_requests", CONFIG_COUNT, AT(max_requests), 1, 4096, "requests", "64", true,
	 "Unanswered requests of one connection."},
	{"limits", "max_batch_lines", CONFIG_COUNT64, AT(max_batch_lines), 1, UINT64_C(1) << 32,
	 "lines", TEXT_OF(CACHE_BATCH_MAX_LINES), true, "Lines of one batch."},
	{"limits", "handshake_timeout_ms", CONFIG_COUNT, AT(handshake_timeout_ms), 10, 600000,
	 "milliseconds", "5000", true, "How long a new connection may take to say HELLO."},
	{"limits", "user_connections", CONFIG_COUNT, AT(user_connections), 0, 4096, "connections",
	 "0", true, "Connections of one user. 0: half of what other users leave of the daemon's."},
	{"limits", "user_buffers", CONFIG_COUNT, AT(user_buffers), 0, MIB, "buffers", "0", true,
	 "Buffers of one user. 0: no limit but those of its bytes and files."},
	{"limits", "user_buffer_bytes", CONFIG_BYTES, AT(user_buffer_bytes), 0, TIB, NULL, "0",
	 true, "Bytes of all buffers of one user. 0: half of what other users leave."},
	{"limits", "user_queues", CONFIG_COUNT, AT(user_queues), 0, MIB, "queues", "0", true,
	 "Queues of one user. 0: no limit but those of their bytes and files."},
	{"limits", "user_queue_bytes", CONFIG_BYTES, AT(user_queue_bytes), 0, TIB, NULL, "0", true,
	 "Bytes of all queues of one user. 0: half of what other users leave."},
	{"limits", "user_files", CONFIG_COUNT, AT(user_files), 0, 1024 * MIB, "files", "0", true,
	 "Files the daemon has open for one user: sockets, pipes, dma-bufs. 0: half of what other "
	 "users leave of LimitNOFILE."},
	{"limits", "user_batches", CONFIG_COUNT, AT(user_batches), 0, 1024 * MIB, "batches", "0",
	 true,
	 "Batches of one user that can be in flight: depths of queues, and SYNC requests. 0: no "
	 "limit but those of queues and requests."},
	{"limits", "user_requests", CONFIG_COUNT, AT(user_requests), 0, MIB, "requests", "0", true,
	 "Unanswered requests of one user. 0: half of what other users leave."},

	{"exporter NAME", "backend", CONFIG_BACKEND, 0, 0, 0, NULL, "auto", true,
	 "How dma-bufs of the exporter NAME (exp_name in /proc/PID/fdinfo) are synced."},
};

#define KEY_COUNT (sizeof(keys) / sizeof(keys[0]))
#define EXPORTER_PREFIX "exporter "

const struct config_key *config_keys(size_t *ret_count)
{
	*ret_count = KEY_COUNT;
	return keys;
}

int config_defaults(struct config *config)
{
	const char *problem;

	*config = (struct config){0};
	for (size_t i = 0; i < KEY_COUNT; i++) {
		if (keys[i].type == CONFIG_BACKEND || !keys[i].fallback)
			continue;

		int r = config_value_set(config, &keys[i], keys[i].fallback, &problem);

		if (r < 0) {
			config_clear(config);
			return r;
		}
	}
	return 0;
}

void config_clear(struct config *config)
{
	for (size_t i = 0; i < config->override_count; i++) {
		free(config->overrides[i].section);
		free(config->overrides[i].key);
		free(config->overrides[i].value);
		free(config->overrides[i].where);
	}
	free(config->overrides);
	free(config->file);
	free(config->exporters);
	free(config->socket);
	free(config->cpus);
	free(config->observer_group);
	free(config->realtime_group);
	*config = (struct config){0};
}

const struct config_exporter *config_exporter(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->exporter_count; i++) {
		if (strcmp(config->exporters[i].name, name) == 0)
			return &config->exporters[i];
	}
	return NULL;
}

static int exporter_set(struct config *config, const struct config_exporter *exporter)
{
	for (size_t i = 0; i < config->exporter_count; i++) {
		if (strcmp(config->exporters[i].name, exporter->name) == 0) {
			config->exporters[i] = *exporter;
			return 0;
		}
	}

	struct config_exporter *exporters =
		reallocarray(config->exporters, config->exporter_count + 1, sizeof(*exporters));

	if (!exporters)
		return -ENOMEM;
	exporters[config->exporter_count] = *exporter;
	config->exporters = exporters;
	config->exporter_count++;
	return 0;
}

/* How many letters to insert, drop or change to make one word of the other. */
static size_t distance(const char *a, const char *b)
{
	size_t row[64], b_length = strlen(b);

	if (b_length >= sizeof(row) / sizeof(row[0]))
		return SIZE_MAX;
	for (size_t j = 0; j <= b_length; j++)
		row[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t diagonal = row[0];

		row[0] = i;
		for (size_t j = 1; j <= b_length; j++) {
			size_t change = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			row[j] = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
			if (change < row[j])
				row[j] = change;
		}
	}
	return row[b_length];
}

static bool same_section(const struct config_key *key, const char *section)
{
	if (key->type == CONFIG_BACKEND)
		return strncmp(section, EXPORTER_PREFIX, strlen(EXPORTER_PREFIX)) == 0;
	return strcmp(key->section, section) == 0;
}

void config_append(char *text, size_t text_size, const char *more)
{
	size_t length = strlen(text);

	snprintf(text + length, text_size - length, "%s", more);
}

static int refuse_key(const char *section, const char *name, const char *where, char *text,
		      size_t text_size)
{
	const struct config_key *nearest = NULL;
	size_t nearest_distance = 3; /* further off it is no slip of the fingers */
	bool known_section = false;

	for (size_t i = 0; i < KEY_COUNT; i++) {
		size_t d = distance(name, keys[i].key);

		known_section = known_section || same_section(&keys[i], section);
		if (d < nearest_distance) {
			nearest_distance = d;
			nearest = &keys[i];
		}
	}
	if (!known_section) {
		snprintf(text, text_size,
			 "%s: unknown section [%s]; the sections are [daemon], [limits] and "
			 "[exporter NAME]",
			 where, section);
		return -EINVAL;
	}
	snprintf(text, text_size, "%s: unknown key %s in [%s]; ", where, name, section);
	if (nearest) {
		config_append(text, text_size, "did you mean ");
		config_append(text, text_size, nearest->key);
		if (!same_section(nearest, section)) {
			config_append(text, text_size, ", which belongs into [");
			config_append(text, text_size, nearest->section);
			config_append(text, text_size, "]");
		}
		config_append(text, text_size, "?");
		return -EINVAL;
	}
	config_append(text, text_size, "its keys are");
	for (size_t i = 0; i < KEY_COUNT; i++) {
		if (!same_section(&keys[i], section))
			continue;
		config_append(text, text_size, " ");
		config_append(text, text_size, keys[i].key);
	}
	return -EINVAL;
}

static int refuse_value(const struct config_key *key, const char *value, const char *where,
			const char *problem, char *text, size_t text_size)
{
	char allowed[128];

	config_allowed(key, allowed, sizeof(allowed));
	snprintf(text, text_size, "%s: %s = %s: %s; allowed: %s", where, key->key, value, problem,
		 allowed);
	return -EINVAL;
}

static int set_backend(struct config *config, const struct config_key *key, const char *section,
		       const char *value, const char *where, char *text, size_t text_size)
{
	const char *name = section + strlen(EXPORTER_PREFIX);
	struct config_exporter exporter = {0};

	name += strspn(name, " \t");
	if (!*name || strlen(name) >= sizeof(exporter.name)) {
		snprintf(text, text_size,
			 "%s: [%s]: the name of an exporter has 1 to %zu characters", where,
			 section, sizeof(exporter.name) - 1);
		return -EINVAL;
	}
	snprintf(exporter.name, sizeof(exporter.name), "%s", name);
	if (config_backend_parse(value, &exporter) < 0)
		return refuse_value(key, value, where, "not a backend", text, text_size);
	return exporter_set(config, &exporter);
}

int config_set(struct config *config, const char *section, const char *name, const char *value,
	       const char *where, char *text, size_t text_size)
{
	const struct config_key *key = NULL;
	const char *problem = "not understood";

	for (size_t i = 0; i < KEY_COUNT && !key; i++) {
		if (same_section(&keys[i], section) && strcmp(keys[i].key, name) == 0)
			key = &keys[i];
	}
	if (!key)
		return refuse_key(section, name, where, text, text_size);

	int r = key->type == CONFIG_BACKEND
			? set_backend(config, key, section, value, where, text, text_size)
			: config_value_set(config, key, value, &problem);

	if (r == -ENOMEM)
		snprintf(text, text_size, "%s: out of memory", where);
	else if (r < 0 && key->type != CONFIG_BACKEND)
		return refuse_value(key, value, where, problem, text, text_size);
	return r;
}

int config_override_add(struct config *config, const struct config_override *from)
{
	struct config_override *overrides =
		reallocarray(config->overrides, config->override_count + 1, sizeof(*overrides));

	if (!overrides)
		return -ENOMEM;
	config->overrides = overrides;

	struct config_override *override = &overrides[config->override_count];

	override->section = strdup(from->section);
	override->key = strdup(from->key);
	override->value = strdup(from->value);
	override->where = strdup(from->where);
	config->override_count++; /* config_clear() frees what there is */
	return override->section && override->key && override->value && override->where ? 0
											: -ENOMEM;
}

int config_override(struct config *config, const char *section, const char *key, const char *value,
		    const char *where, char *text, size_t text_size)
{
	int r = config_set(config, section, key, value, where, text, text_size);

	if (r < 0)
		return r;
	/* Only read from. */
	r = config_override_add(config, &(const struct config_override){
						.section = (char *)(uintptr_t)section,
						.key = (char *)(uintptr_t)key,
						.value = (char *)(uintptr_t)value,
						.where = (char *)(uintptr_t)where,
					});
	if (r < 0)
		snprintf(text, text_size, "%s: out of memory", where);
	return r;
}
