/* SPDX-License-Identifier: MIT */
/*
 * What a daemon costs that has clients and nothing to do: how often it wakes up, and its private
 * memory. One thread.
 */
#include <inttypes.h>
#include <stdio.h>

#include "tests/compare/compare.h"
#include "tests/lib/harness.h"

#define CLIENTS 16u
#define BUFFERS 64u
#define BYTES 65536u

static void sleep_s(double seconds)
{
	struct timespec t = to_timespec((int64_t)(seconds * 1e9));

	nanosleep(&t, NULL);
}

static int rss_anon(pid_t pid, double *ret_mib)
{
	char path[64], line[256];
	uint64_t kib;
	int r = -ENODATA;

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	FILE *file = fopen(path, "re");

	if (!file)
		return -errno;
	while (r < 0 && fgets(line, sizeof line, file))
		if (sscanf(line, "RssAnon: %" SCNu64 " kB", &kib) == 1) {
			*ret_mib = (double)kib / 1024;
			r = 0;
		}
	fclose(file);
	return r;
}

static int idle(struct compare *compare, struct rig *rig, struct rig_client clients[])
{
	const double seconds = compare->short_form ? 0.5 : 10;
	pid_t pid = spawn_pid(rig->spawn);
	uint64_t before, after;
	int r = 0;

	for (uint32_t i = 0; r >= 0 && i < CLIENTS; i++)
		r = rig_wake(rig, &clients[i]);
	if (r < 0)
		return r;
	/* Until the last work is really over; a status line is held back for 2 s. */
	sleep_s(compare->short_form ? 0.5 : 3);
	before = harness_count_sleeps(pid);
	sleep_s(seconds);
	after = harness_count_sleeps(pid);
	row_set(compare, ROW_IDLE_WAKEUPS, (double)(after - before));
	row_value(compare, ROW_IDLE_WAKEUPS, "seconds", "s", seconds);
	row_value(compare, ROW_IDLE_WAKEUPS, "threads", "", harness_count_threads(pid));
	return 0;
}

static int memory(struct compare *compare, struct rig *rig, struct rig_client clients[])
{
	struct dmasync_buffer *buffers[CLIENTS * BUFFERS] = {NULL};
	double bare, with;
	int r = rss_anon(spawn_pid(rig->spawn), &bare);

	/* Each has one already. */
	for (uint32_t i = 0; r >= 0 && i < CLIENTS * (BUFFERS - 1); i++)
		r = rig_buffer(rig, clients[i % CLIENTS].ds, BYTES, &buffers[i]);
	if (r >= 0)
		r = rss_anon(spawn_pid(rig->spawn), &with);
	for (uint32_t i = 0; i < CLIENTS * BUFFERS; i++)
		dmasync_buffer_destroy(buffers[i]);
	if (r < 0)
		return r;
	row_set(compare, ROW_RSS_ANON, with);
	row_value(compare, ROW_RSS_ANON, "with one buffer each", "MiB", bare);
	return 0;
}

int group_idle(struct compare *compare)
{
	struct rig_client clients[CLIENTS] = {0};
	struct dmasync_queue_params params;
	struct rig rig;
	int r = rig_open(compare, &rig, "");

	dmasync_queue_params_init(&params);
	/* The smallest ring, whose mirror does not count. */
	params.units = 16;
	params.depth = 2;
	for (uint32_t i = 0; r >= 0 && i < CLIENTS; i++)
		r = rig_client_open(&rig, BYTES, &params, &clients[i]);
	if (r >= 0)
		r = memory(compare, &rig, clients);
	if (r >= 0)
		r = idle(compare, &rig, clients);
	for (uint32_t i = 0; i < CLIENTS; i++)
		rig_client_close(&clients[i]);
	rig_close(&rig);
	return r;
}
