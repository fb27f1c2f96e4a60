/* SPDX-License-Identifier: MIT */
/*
 * The arithmetic of limits: how many files and mappings a connection may cost, and what follows.
 * Owns nothing. Control thread.
 */
#include "daemon/machine_limits.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/buffer/map.h"
#include "daemon/queue.h"
#include "proto/message.h"

#define OWN_FILES 32u		/* ring, eventfd, signalfd, log, libraries */
#define OWN_FILES_PER_WORKER 4u /* ring, eventfd, memfd of its page */
#define OWN_FILES_PER_HELPER 1u /* the fdinfo that it reads */
#define FILES_PER_PACKET 253u	/* SCM_MAX_FD */
#define OWN_MAPS 1024u		/* libraries, stacks, heap */

#define FILES_PER_CONNECTION 2u	    /* socket, pidfd */
#define FILES_PER_QUEUE_IN_REPLY 4u /* until the reply has gone out */

/* A connection that is of use to somebody has at least so much. */
#define USEFUL_QUEUES 1u
#define USEFUL_BUFFERS 8u
/* With so few connections it is better to allow each less than to refuse one more. */
#define FEW_CONNECTIONS 16u

#define MESSAGES_MIN 64u
#define MESSAGES_MEMORY_SHARE 64u /* of the memory */
#define QUEUES_MEMORY_SHARE 4u
#define MAX_MAP_COUNT 65530u /* the kernel's default, where /proc/sys cannot be read */

static uint64_t read_number(const char *path, uint64_t otherwise)
{
	FILE *file = fopen(path, "re");
	uint64_t number = otherwise;

	if (!file)
		return otherwise;
	/* "max" is no number and leaves it. */
	if (fscanf(file, "%" SCNu64, &number) != 1)
		number = otherwise;
	fclose(file);
	return number;
}

/* memory.max of our own cgroup (v2); an ancestor's may be lower and is not seen in a namespace. */
static uint64_t cgroup_memory(uint64_t otherwise)
{
	char line[PATH_MAX], path[PATH_MAX + 64];
	FILE *file = fopen("/proc/self/cgroup", "re");
	uint64_t memory = otherwise;

	if (!file)
		return otherwise;
	while (fgets(line, sizeof(line), file)) {
		if (strncmp(line, "0::", 3) != 0)
			continue;
		line[strcspn(line, "\n")] = '\0';
		snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", line + 3);
		memory = read_number(path, otherwise);
		break;
	}
	fclose(file);
	return memory;
}

void limits_read(struct limits_machine *ret)
{
	struct rlimit files;
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

	*ret = (struct limits_machine){.files = 1024, .memory = UINT64_MAX};
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
		if (getrlimit(RLIMIT_NOFILE, &files) == 0)
			ret->files = files.rlim_cur;
	}
	ret->maps = read_number("/proc/sys/vm/max_map_count", MAX_MAP_COUNT);
	if (pages > 0 && page > 0)
		ret->memory = (uint64_t)pages * (uint64_t)page;

	uint64_t cgroup = cgroup_memory(ret->memory);

	if (cgroup < ret->memory)
		ret->memory = cgroup;
}

/* Every buffer may hold its file: a dma-buf does, a memfd while being registered. */
static uint64_t files_of(uint64_t queues, uint64_t buffers)
{
	return FILES_PER_CONNECTION + FILES_PER_QUEUE_IN_REPLY + queues * QUEUE_FILES + buffers;
}

static uint64_t maps_per_buffer(const struct config *config)
{
	return buffer_map_count(config->allow_simulated ? DMASYNC_BACKEND_SIMULATED
							: DMASYNC_BACKEND_DIRECT);
}

static uint64_t maps_of(const struct config *config, uint64_t queues, uint64_t buffers)
{
	return queues * QUEUE_MAPS + buffers * maps_per_buffer(config);
}

static uint64_t room(uint64_t limit, uint64_t own)
{
	return limit > own ? limit - own : 0;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t at_least_one(uint64_t n)
{
	return n ? n : 1;
}

static void lower(uint32_t *limit, uint64_t to, const char *name, char *text, size_t text_size)
{
	size_t length = strlen(text);

	if (to >= *limit)
		return;
	snprintf(text + length, text_size - length, "%s%s from %" PRIu32 " to %" PRIu64,
		 length ? ", " : "", name, *limit, to);
	*limit = (uint32_t)to;
}

static void lower_bytes(uint64_t *limit, uint64_t to, const char *name, const char *why, char *text,
			size_t text_size)
{
	size_t length = strlen(text);

	if (to >= *limit)
		return;
	snprintf(text + length, text_size - length, "%s%s from %" PRIu64 " to %" PRIu64 ": %s",
		 length ? "; " : "", name, *limit, to, why);
	*limit = to;
}

/* cpus= has one worker each; as many as it could name. */
static uint64_t workers_of(const struct config *config)
{
	uint32_t cpus[CONFIG_CPUS_MAX], count;

	if (config->cpus && config_parse_cpus(config->cpus, cpus, &count) == 0)
		return count;
	return config->workers;
}

uint64_t limits_client_files(const struct config *config, const struct limits_machine *machine)
{
	return room(machine->files, OWN_FILES + workers_of(config) * OWN_FILES_PER_WORKER +
					    config->helper_threads * OWN_FILES_PER_HELPER +
					    FILES_PER_PACKET);
}

uint64_t limits_client_maps(const struct limits_machine *machine)
{
	return room(machine->maps, OWN_MAPS);
}

uint64_t limits_messages(const struct limits_machine *machine)
{
	uint64_t most = machine->memory / MESSAGES_MEMORY_SHARE / DMASYNC_MESSAGE_MAX;

	return most > MESSAGES_MIN ? most : MESSAGES_MIN;
}

void limits_fit(struct config *config, const struct limits_machine *machine, char *text,
		size_t text_size)
{
	uint64_t files = limits_client_files(config, machine);
	uint64_t maps = limits_client_maps(machine);
	uint64_t connections = config->max_connections;
	uint64_t queues = config->max_queues, buffers = config->max_buffers;
	size_t length;

	*text = '\0';
	/* No more connections than could each do something: what they have is accounted for. */
	uint64_t fit = smaller(files / files_of(USEFUL_QUEUES, USEFUL_BUFFERS),
			       maps / maps_of(config, USEFUL_QUEUES, USEFUL_BUFFERS));

	connections = smaller(connections, fit < FEW_CONNECTIONS ? FEW_CONNECTIONS : fit);
	/* One connection alone gets at most a user's share, half; half of that may be queues. */
	uint64_t file_share = files / 2, map_share = maps / 2;

	if (files_of(queues, buffers) > file_share ||
	    maps_of(config, queues, buffers) > map_share) {
		uint64_t left = room(file_share, files_of(0, 0));

		queues = smaller(queues,
				 smaller(left / 2 / QUEUE_FILES, map_share / 2 / QUEUE_MAPS));
		queues = at_least_one(queues);
		buffers = smaller(buffers, room(left, queues * QUEUE_FILES));
		buffers = smaller(buffers,
				  room(map_share, queues * QUEUE_MAPS) / maps_per_buffer(config));
		buffers = at_least_one(buffers);
	}
	lower(&config->max_connections, connections, "max_connections", text, text_size);
	lower(&config->max_queues, queues, "max_queues", text, text_size);
	lower(&config->max_buffers, buffers, "max_buffers", text, text_size);
	length = strlen(text);
	if (length)
		snprintf(text + length, text_size - length,
			 ": %" PRIu64 " files and %" PRIu64 " mappings are allowed", machine->files,
			 machine->maps);
	lower_bytes(&config->max_total_buffer_bytes, machine->memory / 2, "max_total_buffer_bytes",
		    "half of the memory", text, text_size);
	lower_bytes(&config->max_total_queue_bytes, machine->memory / QUEUES_MEMORY_SHARE,
		    "max_total_queue_bytes", "a quarter of the memory", text, text_size);
	if (config->max_buffer_bytes > config->max_total_buffer_bytes)
		config->max_buffer_bytes = config->max_total_buffer_bytes;
}
