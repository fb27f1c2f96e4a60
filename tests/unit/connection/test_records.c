/* SPDX-License-Identifier: MIT */
/* What clients see of each other and of batches: CLIENTS, BATCHES, WATCH, HISTOGRAM. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/connection/requests.h"

static const char simulated[] = "[daemon]\nallow_simulated=yes\n";

static void client_list(void)
{
	struct harness_daemon daemon;
	struct dmasync_clients request = {0};
	struct dmasync_hello hello = {
		.version_min = 1, .version_max = 1, .name = "isp\n\033[31m\xff"};
	union reply reply;
	int sockets[5], fd = harness_memfd(3 * 4096, F_SEAL_SHRINK);

	harness_daemon_start(&daemon, simulated, NULL);
	for (int i = 0; i < 5; i++)
		sockets[i] = harness_connect(daemon.socket);
	for (int i = 0; i < 4; i++) /* the last one says nothing and is not listed */
		check_int(requests_call(sockets[i], DMASYNC_OP_HELLO, &hello, sizeof hello, NULL, 0,
					&reply),
			  0);
	check_int(requests_add(sockets[2], fd, 0, DMASYNC_BACKEND_SIMULATED, 0, &reply), 0);
	struct dmasync_unit unit = requests_unit(reply.buffer.handle, 0, 128);

	check_int(requests_sync(sockets[2], &unit, 1, &reply), 0);

	check_int(requests_call(sockets[0], DMASYNC_OP_CLIENTS, &request, sizeof request, NULL, 0,
				&reply),
		  0);
	const struct dmasync_client_record *records = (void *)(&reply.clients + 1);

	check_int(reply.clients.count, 4);
	check_int(reply.header.size, sizeof reply.clients + 4 * sizeof *records);
	for (int i = 0; i < 4; i++) {
		check(i == 0 || records[i].id > records[i - 1].id);
		check_int(records[i].pid, getpid());
		check_int(records[i].uid, geteuid());
		check_text(records[i].name, "isp??[31m?");
		check_int(records[i].buffers, i == 2);
		check_int(records[i].batches, i == 2);
		check_int(records[i].lines, i == 2 ? 2 : 0);
		check_int(records[i].mapped_bytes, i == 2 ? 3 * 4096 : 0);
	}
	request.after = records[1].id;
	check_int(requests_call(sockets[0], DMASYNC_OP_CLIENTS, &request, sizeof request, NULL, 0,
				&reply),
		  0);
	check_int(reply.clients.count, 2);
	request.after = UINT64_MAX;
	check_int(requests_call(sockets[0], DMASYNC_OP_CLIENTS, &request, sizeof request, NULL, 0,
				&reply),
		  0);
	check_int(reply.clients.count, 0);
	for (int i = 0; i < 5; i++)
		close(sockets[i]);
	close(fd);
	harness_daemon_stop(&daemon);
}

static void run_syncs(int socket, unsigned int count)
{
	union reply reply;

	for (unsigned int i = 0; i < count; i++)
		check_int(requests_sync(socket, NULL, 0, &reply), 0);
}

static uint32_t batches_seen(int socket, uint32_t most, union reply *ret)
{
	struct dmasync_batches request = {.count = most};

	check_int(requests_call(socket, DMASYNC_OP_BATCHES, &request, sizeof request, NULL, 0, ret),
		  0);
	check_int(ret->header.size,
		  sizeof ret->batches + ret->batches.count * sizeof(struct dmasync_batch_record));
	return ret->batches.count;
}

static void others_records(void)
{
	struct harness_daemon daemon;
	union reply reply;
	struct group *group = getgrnam("daemon");
	char text[128];

	if (geteuid() != 0 || !group)
		harness_skip("needs root, and a group named daemon");
	gid_t observers = group->gr_gid;

	snprintf(text, sizeof text, "[daemon]\nworkers=2\nobserver_group=daemon\n");
	harness_daemon_start(&daemon, text, NULL);
	check_int(chmod(harness_directory(), 0755), 0);
	check_int(chmod(daemon.socket, 0666), 0);
	int root = requests_connect(&daemon);
	int nobody = requests_connect_as_nobody(&daemon, NULL, 0);
	int observer = requests_connect_as_nobody(&daemon, (const gid_t[]){12345, observers}, 2);

	run_syncs(root, 7);
	run_syncs(nobody, 4);
	check_int(batches_seen(root, 100, &reply), 11);
	check_int(batches_seen(observer, 100, &reply), 11);
	check_int(batches_seen(nobody, 100, &reply), 4);
	const struct dmasync_batch_record *records = (void *)(&reply.batches + 1);

	for (uint32_t i = 0; i < 4; i++) {
		check_int(records[i].client_id, records[0].client_id);
		check_int(records[i].status, -EINVAL);
		check_int(records[i].reason, DMASYNC_REASON_EMPTY_BATCH);
		check_int(records[i].queue, 0);
		check(i == 0 || records[i].end_ns >= records[i - 1].end_ns);
	}
	/* The last ones, and none. */
	check_int(batches_seen(nobody, 3, &reply), 3);
	check_int(batches_seen(root, 0, &reply), 0);
	run_syncs(root, DMASYNC_BATCHES_PAGE);
	check_int(batches_seen(root, DMASYNC_BATCHES_PAGE, &reply), DMASYNC_BATCHES_PAGE);
	close(root);
	close(nobody);
	close(observer);
	harness_daemon_stop(&daemon);
}

/* How often the control thread, the first one, has gone to sleep. */
static unsigned long control_sleeps(pid_t pid)
{
	static const char key[] = "voluntary_ctxt_switches:";
	char path[64], line[256];
	unsigned long sleeps = 0;
	bool found = false;

	snprintf(path, sizeof path, "/proc/%d/task/%d/status", (int)pid, (int)pid);
	FILE *file = fopen(path, "re");

	check(file);
	while (!found && fgets(line, sizeof line, file)) {
		found = strncmp(line, key, sizeof key - 1) == 0;
		if (found)
			sleeps = strtoul(line + sizeof key - 1, NULL, 10);
	}
	fclose(file);
	check(found);
	return sleeps;
}

static void watched(void)
{
	struct harness_daemon daemon;
	struct dmasync_watch watch = {.enable = 1};
	union reply reply;
	uint32_t seen = 0;

	harness_daemon_start(&daemon, "", NULL);
	int watcher = requests_connect(&daemon), worker = requests_connect(&daemon);

	run_syncs(worker, 3); /* before: not seen */
	check_int(requests_call(watcher, DMASYNC_OP_WATCH, &watch, sizeof watch, NULL, 0, &reply),
		  0);
	uint64_t cookie = reply.header.cookie;

	run_syncs(worker, 20);
	while (seen < 20) {
		check(harness_receive(watcher, &reply, sizeof reply, NULL, NULL, 5000) > 0);
		check_int(reply.header.opcode, DMASYNC_OP_WATCH);
		check_int(reply.header.flags, DMASYNC_MESSAGE_EVENT);
		check_int(reply.header.cookie, cookie);
		check_int(reply.batches.lost, 0);
		check(reply.batches.count > 0);
		seen += reply.batches.count;
	}
	check_int(seen, 20);
	watch.enable = 0;
	check_int(requests_call(watcher, DMASYNC_OP_WATCH, &watch, sizeof watch, NULL, 0, &reply),
		  0);
	/* Nobody watches: the timer has stopped, and the loop sleeps. */
	for (int i = 0; i < 50; i++)
		harness_pause();
	unsigned long sleeps = control_sleeps(daemon.pid);

	for (int i = 0; i < 300; i++)
		harness_pause();
	check_int(control_sleeps(daemon.pid), sleeps);
	close(watcher);
	close(worker);
	harness_daemon_stop(&daemon);
}

/* Too slow: events are skipped, what was overwritten is counted, nothing waits. */
static void slow_watcher(void)
{
	struct harness_daemon daemon;
	struct dmasync_watch watch = {.enable = 1};
	union reply reply;
	uint64_t seen = 0, lost = 0, batches = 0;
	int64_t end;

	harness_daemon_start(&daemon, "", NULL);
	int watcher = requests_connect(&daemon), worker = requests_connect(&daemon);

	check_int(requests_call(watcher, DMASYNC_OP_WATCH, &watch, sizeof watch, NULL, 0, &reply),
		  0);
	/* Its socket has room for three of the largest events or so. */
	for (end = harness_now_ms() + 1200; harness_now_ms() < end; batches += 10)
		run_syncs(worker, 10);
	while (seen + lost < batches) {
		check(harness_receive(watcher, &reply, sizeof reply, NULL, NULL, 5000) > 0);
		seen += reply.batches.count;
		lost += reply.batches.lost;
	}
	check_int(seen + lost, batches);
	close(watcher);
	close(worker);
	harness_daemon_stop(&daemon);
}

#define BURST 4096u

struct bursts {
	struct dmasync_ring_layout layout;
	struct dmasync_ring ring;
	void *memory;
	int fds[DMASYNC_QUEUE_FDS];
	uint32_t position;
};

static void bursts_open(struct bursts *bursts, int socket)
{
	struct dmasync_unit unit = requests_unit(1, 0, 64);
	union reply reply;

	check_int(requests_queue(socket, BURST, 16, &reply, bursts->fds), 0);
	check(dmasync_ring_layout(BURST, 16, &bursts->layout));
	bursts->memory = mmap(NULL, bursts->layout.size, PROT_READ | PROT_WRITE, MAP_SHARED,
			      bursts->fds[DMASYNC_QUEUE_RING], 0);
	check(bursts->memory != MAP_FAILED);
	dmasync_ring_attach(&bursts->ring, bursts->memory, &bursts->layout);
	dmasync_ring_write_unit(&bursts->ring, DMASYNC_RING_START, &unit);
	bursts->position = DMASYNC_RING_START;
}

/* As many batches as fast as a worker can; none is valid. */
static void bursts_run(struct bursts *bursts)
{
	for (uint32_t i = 0; i < BURST; i++) {
		struct dmasync_submission submission = {.unit_position = DMASYNC_RING_START,
							.unit_count = 1};

		dmasync_ring_submit(&bursts->ring, bursts->position++, &submission);
	}
	check_int(write(bursts->fds[DMASYNC_QUEUE_DOORBELL], "d", 1), 1);
	harness_until(dmasync_ring_completion_reached(&bursts->ring, bursts->position - 1), 10000);
	dmasync_ring_consume_completion(&bursts->ring, bursts->position);
}

static void bursts_close(struct bursts *bursts)
{
	munmap(bursts->memory, bursts->layout.size);
	for (int i = 0; i < DMASYNC_QUEUE_FDS; i++)
		close(bursts->fds[i]);
}

/*
 * Until something is lost: 4096 batches between two looks, and the records hold 1024. All that ran
 * is seen or lost.
 */
static uint64_t lose_some(int watcher, struct bursts *bursts, int quiet, struct bursts *other)
{
	uint64_t seen = 0, lost = 0, run = 0;
	union reply reply;

	while (lost == 0) {
		check(run < 100 * BURST);
		if (other)
			bursts_run(other);
		bursts_run(bursts);
		run += BURST;
		while (seen + lost < run) {
			check(harness_receive(watcher, &reply, sizeof reply, NULL, NULL, 5000) > 0);
			check_int(reply.header.opcode, DMASYNC_OP_WATCH);
			seen += reply.batches.count;
			lost += reply.batches.lost;
		}
		check_int(seen + lost, run);
	}
	/* Three looks later nothing more has come, and the other watcher was never told a thing. */
	check_int(harness_receive(watcher, &reply, sizeof reply, NULL, NULL, 300), -ETIMEDOUT);
	if (quiet >= 0)
		check_int(harness_receive(quiet, &reply, sizeof reply, NULL, NULL, 0), -ETIMEDOUT);
	return lost;
}

static void lost_records_are_ones_own(void)
{
	struct harness_daemon daemon;
	struct dmasync_watch watch = {.enable = 1};
	struct bursts of_root, of_nobody;
	union reply reply;

	if (geteuid() != 0)
		harness_skip("only root can become another user");
	harness_daemon_start(&daemon, "[daemon]\nworkers=2\n[limits]\nmax_depth=4096\n", NULL);
	check_int(chmod(harness_directory(), 0755), 0);
	check_int(chmod(daemon.socket, 0666), 0);
	int root = requests_connect(&daemon), all = requests_connect(&daemon);
	int nobody = requests_connect_as_nobody(&daemon, NULL, 0);

	bursts_open(&of_root, root);
	bursts_open(&of_nobody, nobody);
	check_int(requests_call(all, DMASYNC_OP_WATCH, &watch, sizeof watch, NULL, 0, &reply), 0);
	check_int(requests_call(nobody, DMASYNC_OP_WATCH, &watch, sizeof watch, NULL, 0, &reply),
		  0);
	/* Others' records are overwritten, and of that the one who may not see them learns nothing.
	 */
	check(lose_some(all, &of_root, nobody, NULL) > 0);
	close(all);
	/* Its own are, beside others': it is told of each of its own. */
	check(lose_some(nobody, &of_nobody, -1, &of_root) > 0);
	bursts_close(&of_root);
	bursts_close(&of_nobody);
	close(root);
	close(nobody);
	harness_daemon_stop(&daemon);
}

static void histograms_add_up(void)
{
	struct harness_daemon daemon;
	union reply reply;

	harness_daemon_start(&daemon, "[daemon]\nallow_simulated=yes\nworkers=2\n", NULL);
	int socket = requests_connect(&daemon), fd = harness_memfd(3 * 4096, F_SEAL_SHRINK);

	check_int(requests_add(socket, fd, 0, DMASYNC_BACKEND_SIMULATED, 0, &reply), 0);
	struct dmasync_unit unit = requests_unit(reply.buffer.handle, 0, 4096);

	for (int i = 0; i < 30; i++) {
		check_int(requests_sync(socket, &unit, 1, &reply), 0);
		check_int(reply.sync.completion.status, 0);
	}
	for (uint32_t phase = 0; phase < DMASYNC_PHASES; phase++) {
		struct dmasync_histogram request = {.phase = phase};
		uint64_t sum = 0;

		check_int(requests_call(socket, DMASYNC_OP_HISTOGRAM, &request, sizeof request,
					NULL, 0, &reply),
			  0);
		check_int(reply.histogram.phase, phase);
		check_int(reply.histogram.buckets, DMASYNC_HISTOGRAM_BUCKETS);
		for (size_t i = 0; i < DMASYNC_HISTOGRAM_BUCKETS; i++)
			sum += reply.histogram.bucket[i];
		check_int(reply.histogram.count, 30);
		check_int(sum, 30);
		check(reply.histogram.max_ns <= reply.histogram.sum_ns);
	}
	close(fd);
	close(socket);
	harness_daemon_stop(&daemon);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(client_list),
	HARNESS_CASE(others_records),
	HARNESS_CASE(watched),
	HARNESS_CASE(slow_watcher),
	HARNESS_CASE(lost_records_are_ones_own),
	HARNESS_CASE(histograms_add_up),
};

HARNESS_MAIN(cases)
