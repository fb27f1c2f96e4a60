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

/* Of the daemon itself: rings, eventfds, log, libraries; and what one received packet may bring
 * (SCM_MAX_FD), which is open for a moment whatever it was. */
#define OWN_FILES (64u + 253u)
#define OWN_MAPS 1024u /* libraries, stacks, heap */

#define FILES_PER_CONNECTION 2u	    /* socket, pidfd */
#define FILES_PER_QUEUE 2u	    /* doorbell, notification */
#define FILES_PER_QUEUE_IN_REPLY 4u /* until the reply has gone out */
#define MAPS_PER_QUEUE 2u	    /* ring, mirror */

/* With so few connections it is better to allow each less than to refuse one more. */
#define FEW_CONNECTIONS 16u
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
	return FILES_PER_CONNECTION + FILES_PER_QUEUE_IN_REPLY + queues * FILES_PER_QUEUE + buffers;
}

static uint64_t maps_of(const struct config *config, uint64_t queues, uint64_t buffers)
{
	return queues * MAPS_PER_QUEUE + buffers * (config->allow_simulated ? 3 : 1);
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

void limits_fit(struct config *config, const struct limits_machine *machine, char *text,
		size_t text_size)
{
	uint64_t files = room(machine->files, OWN_FILES), maps = room(machine->maps, OWN_MAPS);
	uint64_t connections = config->max_connections;
	uint64_t queues = config->max_queues, buffers = config->max_buffers;
	size_t length;

	*text = '\0';
	/* Fewer connections first, then less for each of them. */
	uint64_t fit =
		smaller(files / files_of(queues, buffers), maps / maps_of(config, queues, buffers));

	if (fit < connections)
		connections = fit < FEW_CONNECTIONS ? smaller(connections, FEW_CONNECTIONS) : fit;
	/* Half of what is left may be queues, the rest is for buffers. */
	uint64_t file_share = files / connections, map_share = maps / connections;

	if (files_of(queues, buffers) > file_share ||
	    maps_of(config, queues, buffers) > map_share) {
		uint64_t left = room(file_share, files_of(0, 0));

		queues = smaller(queues, smaller(left / 2 / FILES_PER_QUEUE,
						 map_share / 2 / MAPS_PER_QUEUE));
		queues = at_least_one(queues);
		buffers = smaller(buffers, room(left, queues * FILES_PER_QUEUE));
		buffers = smaller(buffers, room(map_share, queues * MAPS_PER_QUEUE) /
						   (config->allow_simulated ? 3 : 1));
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
	if (config->max_total_buffer_bytes > machine->memory / 2) {
		length = strlen(text);
		snprintf(text + length, text_size - length,
			 "%smax_total_buffer_bytes from %" PRIu64 " to %" PRIu64
			 ": half of the memory",
			 length ? "; " : "", config->max_total_buffer_bytes, machine->memory / 2);
		config->max_total_buffer_bytes = machine->memory / 2;
	}
	if (config->max_buffer_bytes > config->max_total_buffer_bytes)
		config->max_buffer_bytes = config->max_total_buffer_bytes;
}
