/* SPDX-License-Identifier: MIT */
/* See honest.h. One thread. */
#include "tests/hostile/honest.h"

#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/e2e/support.h"
#include "tests/unit/connection/requests.h"

enum {
	BYTES = 4096, /* a page, so that its sides can be mapped */
	DEPTH = 8,
	ROUNDS = 32, /* until it closes all it has and begins anew */
	PAGE = 4,    /* rounds between two looks at its records: the daemon keeps 1024 of all */
};

static const struct group *group(void)
{
	const struct group *found;

	if (getuid() != 0)
		return NULL;
	setgrent();
	while ((found = getgrent()) && found->gr_gid == 0)
		;
	endgrent();
	return found;
}

const char *honest_group(void)
{
	const struct group *found = group();

	return found ? found->gr_name : NULL;
}

void honest_become(uid_t uid, const gid_t *in)
{
	if (getuid() != 0)
		return;
	if (setgroups(in ? 1 : 0, in) < 0 || setresgid(uid, uid, uid) < 0 ||
	    setresuid(uid, uid, uid) < 0)
		harness_skip("root here cannot become user %u: %s", (unsigned)uid, strerror(errno));
	prctl(PR_SET_DUMPABLE, 1);
}

static void keep_most(_Atomic uint64_t *most, uint64_t n)
{
	if (n > atomic_load(most))
		atomic_store(most, n);
}

/* Its own records since the last look; who runs the daemon is shown others' as well. */
static void look_at_records(struct honest *honest, const struct raw *raw, uint64_t *last)
{
	struct dmasync_batches request = {.count = DMASYNC_BATCHES_PAGE};
	static union reply reply;
	struct dmasync_batch_record record;

	check_int(requests_call(raw->socket, DMASYNC_OP_BATCHES, &request, sizeof request, NULL, 0,
				&reply),
		  0);
	for (uint32_t i = 0; i < reply.batches.count; i++) {
		memcpy(&record, reply.bytes + sizeof reply.batches + i * sizeof record,
		       sizeof record);
		if (record.batch_id <= *last || record.pid != (uint32_t)getpid() ||
		    record.klass != DMASYNC_CLASS_NORMAL)
			continue;
		*last = record.batch_id;
		atomic_fetch_add(&honest->records, 1);
		keep_most(&honest->waited_lines, record.waited_lines);
		keep_most(&honest->waited_entries, record.waited_entries);
	}
}

static void urgent_open(struct client *client, struct memory *memory, const char *socket)
{
	struct dmasync_queue_params params;

	client_connect(client, socket);
	dmasync_queue_params_init(&params);
	params.depth = DEPTH;
	params.units = DEPTH;
	params.klass = DMASYNC_CLASS_REALTIME;
	check_int(dmasync_queue_create(client->ds, &params, &client->queue), 0);
	memory_alloc(memory, client->ds, BYTES);
}

static void one_life(struct honest *honest, const char *socket)
{
	static const struct range whole = {DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, BYTES, 0, 0};
	struct raw raw;
	struct raw_memory memory;
	struct raw_queue queue;
	struct client urgent;
	struct memory urgent_memory;
	struct dmasync_completion urgent_done;
	struct dmasync_ring_completion done;
	uint64_t last = 0;

	raw_open(&raw, socket);
	raw_memory_alloc(&memory, &raw, BYTES);
	raw_queue_open(&queue, &raw, DEPTH, DEPTH);
	urgent_open(&urgent, &urgent_memory, socket);

	struct dmasync_unit unit =
		raw_unit(memory.handle, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, BYTES);

	for (int round = 1; round <= ROUNDS && !atomic_load(&honest->stop); round++) {
		memset(memory.cpu, round, BYTES);
		memset(urgent_memory.cpu, round, BYTES);
		raw_submit(&queue, &unit, 1, (uint64_t)round);
		client_run(&urgent, urgent_memory.buffer, &whole, 1, &urgent_done);
		raw_wait(&queue, &done);
		check_int(done.status, 0);
		check_int(done.user_data, round);
		check_int(done.lines, BYTES / LINE);
		check_int(memcmp(memory.cpu, memory.device, BYTES), 0);
		check_int(memcmp(urgent_memory.cpu, urgent_memory.device, BYTES), 0);
		atomic_fetch_add(&honest->rounds, 1);
		if (round % PAGE == 0)
			look_at_records(honest, &raw, &last);
	}
	memory_free(&urgent_memory);
	client_close(&urgent);
	raw_queue_remove(&queue, &raw);
	raw_memory_free(&memory);
	raw_close(&raw);
}

pid_t honest_start(const char *socket, uid_t uid, struct honest *honest)
{
	pid_t pid = fork();

	check(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	const struct group *found = group();

	honest_become(uid, found ? &found->gr_gid : NULL);
	while (!atomic_load(&honest->stop))
		one_life(honest, socket);
	_exit(0);
}
