/* SPDX-License-Identifier: MIT */
/* Stopping a daemon that has work, against the real one. One thread. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/unit/connection/requests.h"

/* Minutes of work in its queue: nobody waits for them once it has gone. */
static void stop_drains_for_the_living(void)
{
	enum { DEPTH = 1024, UNITS = 16, BYTES = 16 << 20 };
	struct harness_daemon daemon;
	struct dmasync_ring_layout layout;
	struct dmasync_ring ring;
	union reply reply;
	int fds[DMASYNC_QUEUE_FDS];

	harness_daemon_start(&daemon, "", NULL);
	int socket = requests_connect(&daemon), fd = harness_memfd(BYTES, F_SEAL_SHRINK);
	int other = requests_connect(&daemon);

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
	check_int(kill(daemon.pid, SIGTERM), 0);
	harness_pause();
	munmap(memory, layout.size);
	for (int i = 0; i < DMASYNC_QUEUE_FDS; i++)
		close(fds[i]);
	close(fd);
	close(socket);
	check_int(harness_daemon_wait(&daemon, 10000), 0);
	close(other);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(stop_drains_for_the_living),
};

HARNESS_MAIN(cases)
