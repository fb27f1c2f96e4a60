/* SPDX-License-Identifier: MIT */
/* Stopping a daemon that has work, against the real one. One thread. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/connection/requests.h"

/* A queue with minutes of work in it; its fds and the buffer's are closed. */
static void submit_minutes(int socket, int fds[DMASYNC_QUEUE_FDS])
{
	enum { DEPTH = 1024, UNITS = 16, BYTES = 16 << 20 };
	struct dmasync_ring_layout layout;
	struct dmasync_ring ring;
	union reply reply;
	int fd = harness_memfd(BYTES, F_SEAL_SHRINK);

	check_int(requests_add(socket, fd, 0, DMASYNC_BACKEND_AUTO, 0, &reply), 0);
	uint32_t handle = reply.buffer.handle;

	check_int(requests_queue(socket, DEPTH, UNITS, &reply, fds), 0);
	check(dmasync_ring_layout(DEPTH, UNITS, &layout));
	void *memory = mmap(NULL, layout.size, PROT_READ | PROT_WRITE, MAP_SHARED,
			    fds[DMASYNC_QUEUE_RING], 0);

	check(memory != MAP_FAILED);
	dmasync_ring_attach(&ring, memory, &layout);
	for (uint32_t i = 0; i < UNITS; i++) {
		struct dmasync_unit unit = requests_unit(handle, 0, BYTES);

		/* Not alike, so that they are not merged into one. */
		unit.word = dmasync_unit_word(handle, i % 2 ? DMASYNC_FOR_CPU : DMASYNC_FOR_DEVICE,
					      DMASYNC_BIDIRECTIONAL, 0);
		dmasync_ring_write_unit(&ring, DMASYNC_RING_START + i, &unit);
	}
	for (uint32_t i = 0; i < DEPTH; i++) {
		struct dmasync_submission submission = {.unit_position = DMASYNC_RING_START,
							.unit_count = UNITS};

		dmasync_ring_submit(&ring, DMASYNC_RING_START + i, &submission);
	}
	check_int(write(fds[DMASYNC_QUEUE_DOORBELL], "d", 1), 1);
	munmap(memory, layout.size);
	close(fd);
}

static void close_queue(const int fds[DMASYNC_QUEUE_FDS])
{
	for (int i = 0; i < DMASYNC_QUEUE_FDS; i++)
		close(fds[i]);
}

/* Nobody waits for its work once it has gone. */
static void stop_drains_for_the_living(void)
{
	struct harness_daemon daemon;
	int fds[DMASYNC_QUEUE_FDS];

	harness_daemon_start(&daemon, "[daemon]\nstop_timeout_ms=0\n", NULL);
	int socket = requests_connect(&daemon), other = requests_connect(&daemon);

	submit_minutes(socket, fds);
	check_int(kill(daemon.pid, SIGTERM), 0);
	harness_pause();
	close_queue(fds);
	close(socket);
	check_int(harness_daemon_wait(&daemon, 10000), 0);
	close(other);
}

/* It lives, and its work is dropped when the time is over: on both workers, an orderly end. */
static void stop_times_out(void)
{
	struct harness_daemon daemon;
	int fds[2][DMASYNC_QUEUE_FDS];
	union reply reply;

	harness_daemon_start(&daemon, "[daemon]\nstop_timeout_ms=50\nworkers=2\n", NULL);
	int socket = requests_connect(&daemon), other = requests_connect(&daemon);

	submit_minutes(socket, fds[0]);
	submit_minutes(other, fds[1]);
	check_int(kill(daemon.pid, SIGTERM), 0);
	check_int(harness_receive(socket, &reply, sizeof reply, NULL, NULL, 10000), 0);
	check_int(harness_receive(other, &reply, sizeof reply, NULL, NULL, 10000), 0);
	check_int(harness_daemon_wait(&daemon, 10000), 0);
	close_queue(fds[0]);
	close_queue(fds[1]);
	close(socket);
	close(other);
}

/*
 * A client of both workers dies in the middle of its batches: all it had is let go of, though there
 * were minutes of work left.
 */
static void death_with_batches_on_two_workers(void)
{
	struct harness_daemon daemon;
	struct dmasync_stats_reply stats;
	int ready[2], socket;
	char byte;

	harness_daemon_start(&daemon, "[daemon]\nworkers=2\n", NULL);
	socket = requests_connect(&daemon);
	struct requests_holdings before = requests_holdings(&daemon);

	check_int(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();

	check(pid >= 0);
	if (pid == 0) {
		int mine = requests_connect(&daemon), fds[4][DMASYNC_QUEUE_FDS];

		for (int i = 0; i < 4; i++)
			submit_minutes(mine, fds[i]);
		check_int(write(ready[1], "x", 1), 1);
		for (;;)
			pause();
	}
	check_int(read(ready[0], &byte, 1), 1);
	/* Queues go to the worker that has fewer: two each, and all of them at work. */
	harness_until((requests_stats(socket, &stats), stats.batches >= 4), 10000);
	check_int(kill(pid, SIGKILL), 0);
	check_int(waitpid(pid, NULL, 0), pid);
	requests_same_holdings(&daemon, before);
	harness_until((requests_stats(socket, &stats), stats.clients == 1), 5000);
	check_int(stats.queues, 0);
	check_int(stats.buffers, 0);
	check_int(stats.mapped_bytes, 0);
	check_int(stats.queue_bytes, 0);
	check_int(stats.places, 0);
	check_int(stats.maps, 0);
	check_int(stats.files, 2);
	close(ready[0]);
	close(ready[1]);
	close(socket);
	harness_daemon_stop(&daemon);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(stop_drains_for_the_living),
	HARNESS_CASE(stop_times_out),
	HARNESS_CASE(death_with_batches_on_two_workers),
};

HARNESS_MAIN(cases)
