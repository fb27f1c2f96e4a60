/* SPDX-License-Identifier: MIT */
/*
 * dmasyncctl selftest: does a device's frame reach the CPU's eyes, without sync and with the sync
 * of each backend? Owns the three copies of what was read. Main thread.
 *
 * A round: the CPU reads the old frame, so that it lies in the caches; the device writes a new one;
 * the CPU reads again, after a sync or without. What the device really wrote is read last: past the
 * cache where that can be had, else after a sync and after other memory was walked that displaces
 * what the caches hold. So a sync that does nothing cannot vouch for itself.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/bench.h"
#include "client/ctl/format.h"
#include "client/ctl/names.h"
#include "client/ctl/selftest.h"
#include "daemon/cache/cache.h"

#define WAYS_MAX 3u
#define TOUCH_STEP 32u	 /* the smallest line of the CPUs that this is about */
#define DEFAULT_LINE 64u /* of the map, where the kernel alone syncs */

struct selftest {
	struct bench bench;
	/* options */
	const char *v4l2;
	bool simulated;
	uint64_t size, rounds, evict;
	int memory, backend;

	struct selftest_device *device;
	size_t line;
	char *old, *seen, *new; /* copies of the first `size` bytes */
	char *scratch;		/* `evict` bytes that displace the caches */
	struct selftest_way ways[WAYS_MAX];
	size_t count;
};

void selftest_touch(const void *memory, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += TOUCH_STEP)
		(void)*((const volatile char *)memory + at);
}

static int sync_all(struct selftest_way *way, struct dmasync_queue *queue,
		    struct dmasync_buffer *buffer, enum dmasync_sync sync)
{
	char text[CLIENT_ERROR_TEXT_SIZE];
	int r = dmasync_sync(queue, buffer, sync, DMASYNC_FROM_DEVICE, 0, way->info.bytes);

	if (r >= 0)
		return CTL_OK;
	dmasync_strerror(r, text, sizeof text);
	return ctl_fail("selftest: sync by backend %s: %s",
			names_of(names_backends, (int)way->info.backend), text);
}

/* What the device wrote becomes s->new. */
static int read_truth(struct selftest *s, struct selftest_way *way, struct dmasync_queue *queue,
		      struct dmasync_buffer *buffer)
{
	const void *truth = s->device->written(s->device);

	if (!truth) {
		int r = sync_all(way, queue, buffer, DMASYNC_FOR_CPU);

		if (r != CTL_OK)
			return r;
		/* Twice: caches do not replace strictly by age. */
		selftest_touch(s->scratch, s->evict);
		selftest_touch(s->scratch, s->evict);
		truth = dmasync_buffer_map(buffer);
	}
	memcpy(s->new, truth, (size_t)s->size);
	return CTL_OK;
}

static int run_round(struct selftest *s, struct selftest_way *way, struct dmasync_queue *queue,
		     struct dmasync_buffer *buffer)
{
	const char *memory = dmasync_buffer_map(buffer);
	int r = CTL_OK;

	if (way->synced)
		r = sync_all(way, queue, buffer, DMASYNC_FOR_DEVICE);
	if (r != CTL_OK)
		return r;
	memcpy(s->old, memory, (size_t)s->size);
	r = s->device->frame(s->device, s->size);
	if (r == CTL_OK && way->synced)
		r = sync_all(way, queue, buffer, DMASYNC_FOR_CPU);
	if (r != CTL_OK)
		return r;
	memcpy(s->seen, memory, (size_t)s->size);
	r = read_truth(s, way, queue, buffer);
	if (r != CTL_OK)
		return r;
	selftest_judge(way, s->old, s->seen, s->new);
	/* The next round's old frame is this one, whatever way it is read. */
	return way->synced ? CTL_OK : sync_all(way, queue, buffer, DMASYNC_FOR_CPU);
}

static int run_rounds(struct selftest *s, struct selftest_way *way, struct dmasync_buffer *buffer)
{
	struct dmasync_queue_params params;
	struct dmasync_queue *queue = NULL;
	int r = dmasync_buffer_get_info(buffer, &way->info), status = CTL_OK;

	if (r < 0 || !dmasync_buffer_map(buffer))
		return ctl_fail("selftest: the buffer cannot be mapped");
	if (s->size > way->info.bytes) {
		s->size = way->info.bytes;
		way->count = (size_t)s->size / way->line;
	}
	dmasync_queue_params_init(&params);
	r = dmasync_queue_create(s->bench.ds, &params, &queue);
	if (r < 0)
		return connect_explain(s->bench.ds, "queue", r);
	for (uint64_t i = 0; i < s->rounds && status == CTL_OK; i++) {
		if (bench_progress(&s->bench, "selftest", i, s->rounds))
			status = ctl_fail("selftest: stopped by a signal");
		else
			status = run_round(s, way, queue, buffer);
	}
	bench_progress(&s->bench, "selftest", s->rounds, s->rounds);
	dmasync_queue_destroy(queue);
	return status;
}

/* One way, with buffers of its own. Not to be had here is no failure. */
static int run_way(struct selftest *s, struct selftest_way *way)
{
	struct dmasync_buffer *buffer = NULL;
	uint32_t flags = s->simulated ? 0 : names_backend_flag((int)way->backend);
	int r = s->device->attach(s->device, s->bench.ds, flags, &buffer);

	if (r < 0) {
		way->refused = true;
		if (dmasync_error_text(s->bench.ds, way->why, sizeof way->why) == 0)
			dmasync_strerror(r, way->why, sizeof way->why);
		r = CTL_OK;
	} else if (r == CTL_OK) {
		r = run_rounds(s, way, buffer);
	}
	s->device->detach(s->device);
	return r;
}

static int add_way(struct selftest *s, bool synced, enum dmasync_backend backend)
{
	struct selftest_way *way = &s->ways[s->count];

	*way = (struct selftest_way){
		.synced = synced,
		.backend = backend,
		.info = {.size = sizeof way->info},
		.line = s->line,
		.count = (size_t)s->size / s->line,
	};
	way->lines = calloc(way->count, 1);
	if (!way->lines)
		return ctl_fail("no memory");
	s->count++;
	return CTL_OK;
}

/*
 * Without sync first. Its buffers are registered as for `auto`, which cleans them once, and are
 * synced only after they have been looked at.
 */
static int add_ways(struct selftest *s)
{
	int status = add_way(s, false, DMASYNC_BACKEND_AUTO);

	if (status != CTL_OK)
		return status;
	if (s->simulated)
		return add_way(s, true, DMASYNC_BACKEND_SIMULATED);
	if (s->backend != DMASYNC_BACKEND_AUTO)
		return add_way(s, true, (enum dmasync_backend)s->backend);
	status = add_way(s, true, DMASYNC_BACKEND_DIRECT);
	return status == CTL_OK ? add_way(s, true, DMASYNC_BACKEND_KERNEL) : status;
}

static int prepare(struct selftest *s)
{
	struct dmasync_info info = {.size = sizeof info};
	int r = dmasync_get_info(s->bench.ds, &info);

	if (r < 0)
		return connect_explain(s->bench.ds, "selftest", r);
	s->line = s->simulated	   ? CACHE_SIMULATED_LINE
		  : info.line_size ? info.line_size
				   : DEFAULT_LINE;
	s->size -= s->size % s->line;
	s->old = malloc((size_t)s->size);
	s->seen = malloc((size_t)s->size);
	s->new = malloc((size_t)s->size);
	/* Read-only zero pages would all be one page: it has to be written. */
	s->scratch = malloc((size_t)s->evict);
	if (!s->old || !s->seen || !s->new || !s->scratch)
		return ctl_fail("no memory");
	memset(s->scratch, 1, (size_t)s->evict);
	if (!s->simulated) {
		s->device = selftest_v4l2_open(s->v4l2, (enum dmasync_memory)s->memory);
		return s->device ? add_ways(s) : CTL_FAILED;
	}
	s->device = selftest_simulated_new(s->size);
	return s->device ? add_ways(s) : ctl_fail("no memory");
}

static void release(struct selftest *s)
{
	if (s->device)
		s->device->close(s->device);
	for (size_t i = 0; i < s->count; i++)
		free(s->ways[i].lines);
	free(s->old);
	free(s->seen);
	free(s->new);
	free(s->scratch);
}

static void print_way(const struct selftest_way *way)
{
	size_t unchanged = selftest_count(way, SELFTEST_UNCHANGED);
	size_t stale = selftest_count(way, SELFTEST_STALE);
	size_t mixed = selftest_count(way, SELFTEST_MIXED);

	if (way->synced)
		printf("backend %s: ",
		       names_of(names_backends,
				(int)(way->refused ? way->backend : way->info.backend)));
	else
		printf("without sync: ");
	if (way->refused) {
		printf("not possible: %s\n", way->why);
		return;
	}
	printf("%zu of %zu lines stale, %zu mixed; %zu did not change%s\n", stale, way->count,
	       mixed, unchanged, way->synced && !way->info.guarantee ? "; gives no guarantee" : "");
	if (stale + mixed > 0)
		selftest_print_map(way, stdout);
}

static void print_result(const struct selftest *s, enum selftest_verdict verdict)
{
	char size[FORMAT_SIZE];
	const struct selftest_way *way = s->ways;

	printf("device: %s; changes: %s\n", s->device->name, s->device->note);
	while (way->refused)
		way++;
	printf("buffer: %s%s%s; looked at: first %s, lines of %zu bytes, %" PRIu64 " rounds\n",
	       names_of(names_memories, (int)way->info.memory),
	       way->info.exporter[0] ? ", exporter " : "", way->info.exporter,
	       format_bytes(size, s->size), s->line, s->rounds);
	for (size_t i = 0; i < s->count; i++)
		print_way(&s->ways[i]);
	printf("%s: %s\n", selftest_verdict_name(verdict),
	       selftest_why(s->ways, s->count, verdict));
}

static json *way_json(const struct selftest_way *way)
{
	json *object = json_new_object();

	json_add_bool(object, "synced", way->synced);
	if (way->refused) {
		json_add_string(object, "backend", names_of(names_backends, (int)way->backend));
		json_add_string(object, "refused", way->why);
		return object;
	}
	json_add_string(object, "backend", names_of(names_backends, (int)way->info.backend));
	json_add_bool(object, "guarantee", way->info.guarantee);
	json_add_uint(object, "rounds", way->rounds);
	json_add_uint(object, "lines", way->count);
	json_add_uint(object, "stale", selftest_count(way, SELFTEST_STALE));
	json_add_uint(object, "mixed", selftest_count(way, SELFTEST_MIXED));
	json_add_uint(object, "fresh", selftest_count(way, SELFTEST_FRESH));
	json_add_uint(object, "unchanged", selftest_count(way, SELFTEST_UNCHANGED));
	json_add(object, "wrong_ranges", selftest_json_ranges(way));
	return object;
}

static void print_result_json(const struct selftest *s, enum selftest_verdict verdict)
{
	json *document = json_new_object(), *ways = json_new_array();
	const struct selftest_way *way = s->ways;

	while (way->refused)
		way++;
	json_add_string(document, "device", s->device->name);
	json_add_string(document, "changes", s->device->note);
	json_add_string(document, "memory", names_of(names_memories, (int)way->info.memory));
	json_add_field(document, "exporter", way->info.exporter, sizeof way->info.exporter);
	json_add_uint(document, "window_bytes", s->size);
	json_add_uint(document, "line_bytes", s->line);
	for (size_t i = 0; i < s->count; i++)
		json_append(ways, way_json(&s->ways[i]));
	json_add(document, "ways", ways);
	json_add_string(document, "verdict", selftest_verdict_name(verdict));
	json_add_string(document, "why", selftest_why(s->ways, s->count, verdict));
	json_print(document);
}

static int conclude(const struct selftest *s)
{
	enum selftest_verdict verdict = selftest_conclude(s->ways, s->count);
	bool any = false;

	for (size_t i = 0; i < s->count; i++)
		any = any || !s->ways[i].refused;
	if (!any)
		return ctl_fail("selftest: no way to try it: %s", s->ways[0].why);
	if (s->bench.ctl->json)
		print_result_json(s, verdict);
	else
		print_result(s, verdict);
	switch (verdict) {
	case SELFTEST_WORKS:
		return CTL_OK;
	case SELFTEST_BROKEN:
		return CTL_BROKEN;
	case SELFTEST_INCONCLUSIVE:
		return CTL_INCONCLUSIVE;
	}
	return CTL_FAILED;
}

static int run(struct selftest *s)
{
	int status = bench_open(&s->bench);

	if (status == CTL_OK)
		status = prepare(s);
	for (size_t i = 0; i < s->count && status == CTL_OK; i++)
		status = run_way(s, &s->ways[i]);
	if (status == CTL_OK)
		status = conclude(s);
	release(s);
	bench_close(&s->bench);
	return status;
}

int cmd_selftest(struct ctl *ctl, int argc, char **argv)
{
	struct selftest s = {
		.bench = {.ctl = ctl, .spawn_config = "[daemon]\nallow_simulated = yes\n"},
		.size = 128 << 10,
		.rounds = 8,
		.evict = 32 << 20,
		.memory = DMASYNC_MEMORY_AUTO,
		.backend = DMASYNC_BACKEND_AUTO,
	};
	/* clang-format off */
	const struct option options[] = {
		{.name = "v4l2", .argument = "DEVICE", .kind = OPTION_STRING, .value = &s.v4l2,
		 .help = "a capture device, in its present format: /dev/video0"},
		{.name = "simulated", .kind = OPTION_FLAG, .value = &s.simulated,
		 .help = "a simulated non-coherent device, to see what the test shows"},
		{.name = "rounds", .argument = "N", .kind = OPTION_COUNT, .value = &s.rounds, .min = 1, .max = 100000,
		 .help = "frames for each way of reading them (default 8)"},
		{.name = "size", .argument = "SIZE", .kind = OPTION_SIZE, .value = &s.size, .min = 4096, .max = 1 << 28,
		 .help = "so much of each frame, less than the caches hold (default 128K)"},
		{.name = "evict", .argument = "SIZE", .kind = OPTION_SIZE, .value = &s.evict, .min = 1 << 20, .max = 1 << 30,
		 .help = "memory walked to displace the caches, several times their size (default 32M)"},
		{.name = "memory", .argument = "KIND", .kind = OPTION_CHOICE, .value = &s.memory, .choices = names_memories,
		 .help = "memory of the frames (default auto)"},
		{.name = "backend", .argument = "NAME", .kind = OPTION_CHOICE, .value = &s.backend, .choices = names_backends,
		 .help = "only this one (default: direct and kernel)"},
		BENCH_SPAWN_OPTION(&s.bench),
	};
	/* clang-format on */
	const struct option_usage usage = {
		.synopsis = "selftest --v4l2 DEVICE | --simulated [OPTION...]",
		.about = "Frames of a device, read without sync and with the sync of each backend: "
			 "which\n"
			 "lines does the CPU see as they were before?\n",
		.options = options,
		.count = sizeof options / sizeof *options,
	};
	int status;

	if (!options_parse(ctl, &usage, argc, argv, NULL, &status))
		return status;
	if (!s.v4l2 == !s.simulated)
		return ctl_usage("selftest: either --v4l2 DEVICE or --simulated is needed");
	if (s.simulated && (s.memory != DMASYNC_MEMORY_AUTO || s.backend != DMASYNC_BACKEND_AUTO))
		return ctl_usage("selftest: --memory and --backend go with --v4l2; a simulated "
				 "device has its own");
	return run(&s);
}
