/* SPDX-License-Identifier: MIT */
/*
 * A daemon for a group of rows and its clients. Owns the daemon's process; clients belong to who
 * opened them. Main thread, and the children of crew.c for clients of their own.
 */
#include <libgen.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>

#include "client/ctl/bench.h"
#include "tests/compare/compare.h"

static cpu_set_t allowed;

int rig_find_machine(struct compare *compare)
{
	if (sched_getaffinity(0, sizeof allowed, &allowed) < 0)
		return -errno;
	compare->client_cpu = compare->second_cpu = compare->worker_cpu = -1;
	compare->cpu_count = CPU_COUNT(&allowed);
	if (getloadavg(&compare->load, 1) != 1)
		compare->load = 0;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET((size_t)cpu, &allowed))
			continue;
		if (compare->client_cpu < 0)
			compare->client_cpu = cpu;
		compare->second_cpu = compare->worker_cpu;
		compare->worker_cpu = cpu;
	}
	return 0;
}

int rig_needs_two(struct compare *compare)
{
	if (compare->cpu_count >= 2)
		return 0;
	return compare_fail(compare, -EINVAL,
			    "one CPU: worker and client need one each (%d allowed here)",
			    compare->cpu_count);
}

int rig_pin(struct compare *compare)
{
	int r = bench_pin_thread(compare->client_cpu);

	return r < 0 ? compare_fail(compare, r, "CPU %d: %s", compare->client_cpu, strerror(-r))
		     : 0;
}

void rig_unpin(void)
{
	sched_setaffinity(0, sizeof allowed, &allowed);
}

void rig_pin_beside(const struct compare *compare)
{
	cpu_set_t set = allowed;

	if (compare->cpu_count > 1)
		CPU_CLR((size_t)compare->worker_cpu, &set);
	sched_setaffinity(0, sizeof set, &set);
}

int rig_open_on(struct compare *compare, struct rig *rig, const char *cpus, const char *config)
{
	char text[1024];

	*rig = (struct rig){.compare = compare};
	snprintf(text, sizeof text, "[daemon]\nlog_level = warning\ncpus = %s\n%s", cpus, config);
	if (spawn_start(compare->program, text, &rig->spawn) == CTL_OK)
		return 0;
	return compare_fail(compare, -ESRCH, "the daemon did not start; its log stands above");
}

int rig_open(struct compare *compare, struct rig *rig, const char *config)
{
	char cpus[16];

	snprintf(cpus, sizeof cpus, "%d", compare->worker_cpu);
	return rig_open_on(compare, rig, cpus, config);
}

void rig_close(struct rig *rig)
{
	spawn_stop(rig->spawn);
	rig->spawn = NULL;
	rig_unpin();
}

int rig_connect(struct rig *rig, struct dmasync **ret)
{
	char text[CLIENT_ERROR_TEXT_SIZE] = "";
	struct dmasync_connect_params params;
	int r;

	dmasync_connect_params_init(&params);
	params.socket = spawn_socket(rig->spawn);
	params.name = "dmasync-compare";
	/* A buffer of 1 GB is populated, locked and cleaned before the answer. */
	params.timeout_ms = 60000;
	params.error_text = text;
	params.error_text_size = sizeof text;
	r = dmasync_connect_with(&params, ret);
	return r < 0 ? compare_fail(rig->compare, r, "%.190s", text) : 0;
}

int rig_admit_all(struct rig *rig)
{
	char socket[108], directory[108];

	snprintf(socket, sizeof socket, "%s", spawn_socket(rig->spawn));
	snprintf(directory, sizeof directory, "%s", socket);
	if (chmod(dirname(directory), 0711) == 0 && chmod(socket, 0666) == 0)
		return 0;
	return compare_fail(rig->compare, -errno, "%s: %s", socket, strerror(errno));
}

static int fail_request(struct rig *rig, struct dmasync *ds, int error, const char *what)
{
	char text[CLIENT_ERROR_TEXT_SIZE];

	dmasync_error_text(ds, text, sizeof text);
	return compare_fail(rig->compare, error, "%s: %.160s", what,
			    text[0] ? text : strerror(-error));
}

int rig_buffer(struct rig *rig, struct dmasync *ds, uint64_t bytes, struct dmasync_buffer **ret)
{
	struct dmasync_buffer_params params;
	int r;

	dmasync_buffer_params_init(&params);
	params.bytes = bytes;
	params.memory = DMASYNC_MEMORY_MEMFD;
	params.flags = DMASYNC_IMPORT_DIRECT;
	r = dmasync_buffer_alloc(ds, &params, ret);
	if (r >= 0 && !dmasync_buffer_map(*ret))
		r = -ENOMEM;
	return r < 0 ? fail_request(rig, ds, r, "a buffer") : 0;
}

int rig_queue(struct rig *rig, struct dmasync *ds, const struct dmasync_queue_params *params,
	      struct dmasync_queue **ret)
{
	int r = dmasync_queue_create(ds, params, ret);

	return r < 0 ? fail_request(rig, ds, r, "a queue") : 0;
}

int rig_client_open(struct rig *rig, uint64_t bytes, const struct dmasync_queue_params *params,
		    struct rig_client *ret)
{
	int r;

	*ret = (struct rig_client){.bytes = bytes};
	r = rig_connect(rig, &ret->ds);
	if (r >= 0)
		r = rig_buffer(rig, ret->ds, bytes, &ret->buffer);
	if (r >= 0) {
		ret->memory = dmasync_buffer_map(ret->buffer);
		r = rig_queue(rig, ret->ds, params, &ret->queue);
	}
	if (r < 0)
		rig_client_close(ret);
	return r;
}

void rig_client_close(struct rig_client *client)
{
	dmasync_queue_destroy(client->queue);
	dmasync_buffer_destroy(client->buffer);
	dmasync_disconnect(client->ds);
	*client = (struct rig_client){0};
}

int rig_submit(const struct rig_client *client, uint64_t offset, uint64_t length, uint64_t tag)
{
	struct dmasync_batch *batch;
	int r = dmasync_batch_begin(client->queue, &batch);

	if (r < 0)
		return r;
	/* A failed add is remembered and comes back from submit. */
	dmasync_batch_add(batch, client->buffer, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, offset,
			  length);
	return dmasync_batch_submit(batch, tag);
}

int rig_reap(struct rig *rig, struct dmasync_queue *queue, struct dmasync_completion *ret)
{
	int r = compare_stopped() ? -EINTR : dmasync_wait(queue, ret, COMPARE_WAIT_NS);
	char text[160];

	if (r < 0)
		return compare_fail(rig->compare, r, "a batch was not completed: %s", strerror(-r));
	if (ret->status < 0) {
		dmasync_completion_text(ret, text, sizeof text);
		return compare_fail(rig->compare, ret->status, "a batch failed: %s", text);
	}
	return 0;
}

int rig_wake(struct rig *rig, const struct rig_client *client)
{
	struct dmasync_completion completion;
	int r = rig_submit(client, 0, 0, 0);

	if (r < 0)
		return compare_fail(rig->compare, r, "submit: %s", strerror(-r));
	return rig_reap(rig, client->queue, &completion);
}
