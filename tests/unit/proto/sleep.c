/* SPDX-License-Identifier: MIT */
/*
 * The sleep protocol between two real processes, over memfds and pipes as the daemon makes them: a
 * client and a worker hand batches to and fro and sleep as often as they can.
 *
 * Every wait has a watchdog: a sleeper that finds work in its ring when its time-out strikes was
 * not woken. Built with DMASYNC_TEST_NO_FENCE the full fences are left out and the time-out is
 * short: that variant counts what it loses and shows that this test can see a loss.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef DMASYNC_TEST_NO_FENCE
#define RING_FENCE() __asm__ volatile("" ::: "memory")
#define BATCHES 100000u
#define WATCHDOG_MS 3
#else
#define BATCHES 600000u
#define WATCHDOG_MS 20000
#endif
#include "proto/ring_access.h"

#define DEPTH 2u
#define UNITS 2u

/* What one side counts; the worker's stands in shared memory for the client to add up. */
struct tally {
	uint64_t sleeps;	 /* went to sleep */
	uint64_t signals_sent;	 /* bytes written to the other's pipe */
	uint64_t pipe_full;	 /* already signalled */
	uint64_t bytes_received; /* from its own pipe */
	uint64_t woken;		 /* sleeps that a byte ended */
	uint64_t lost;		 /* sleeps that the watchdog ended although there was work */
};

struct side {
	struct dmasync_ring ring;
	struct dmasync_worker_page *page;
	uint32_t *own_flag;
	int wait_fd, signal_fd; /* both O_NONBLOCK */
	struct tally *tally;
	uint32_t random;
};

static void die(const char *what)
{
	perror(what);
	_exit(2);
}

/* Work of a random length, so that one side publishes while the other is about to sleep. */
static void linger(struct side *side)
{
	side->random = side->random * 1664525u + 1013904223u;
	for (uint32_t n = side->random >> 19; n > 0; n--)
		__asm__ volatile("" ::: "memory");
}

static void signal_peer(struct side *side)
{
	if (write(side->signal_fd, "!", 1) == 1)
		side->tally->signals_sent++;
	else if (errno == EAGAIN)
		side->tally->pipe_full++;
	else
		die("write");
}

static void drain(struct side *side)
{
	char bytes[256];
	ssize_t n;

	while ((n = read(side->wait_fd, bytes, sizeof bytes)) > 0)
		side->tally->bytes_received += (uint64_t)n;
	if (n < 0 && errno != EAGAIN)
		die("read");
}

static bool wait_for_byte(struct side *side)
{
	struct pollfd pollfd = {.fd = side->wait_fd, .events = POLLIN};
	int r = poll(&pollfd, 1, WATCHDOG_MS);

	if (r < 0)
		die("poll");
	return r > 0;
}

/* Until `ready` says true: drain, announce, look once more, sleep. */
static void sleep_until(struct side *side, bool (*ready)(struct side *, uint32_t),
			uint32_t position)
{
	linger(side);
	while (!ready(side, position)) {
		drain(side);
		dmasync_ring_announce_sleep(side->own_flag);
		if (!ready(side, position)) {
			bool woken = false, lost = false;

			side->tally->sleeps++;
			while (!woken && !lost) {
				woken = wait_for_byte(side);
				/* For work that has come the byte may be on its way: once more. */
				if (!woken && ready(side, position)) {
					woken = wait_for_byte(side);
					lost = !woken;
				}
			}
			side->tally->woken += woken;
			side->tally->lost += lost;
		}
		dmasync_ring_announce_awake(side->own_flag);
	}
}

static bool submission_ready(struct side *side, uint32_t position)
{
	return dmasync_ring_poll_submission(&side->ring, position) != DMASYNC_RING_EMPTY;
}

static bool completion_ready(struct side *side, uint32_t position)
{
	struct dmasync_ring_completion completion;

	return dmasync_ring_poll_completion(&side->ring, position, &completion) !=
	       DMASYNC_RING_EMPTY;
}

static void run_worker(struct side *side)
{
	for (uint32_t n = 0; n < BATCHES; n++) {
		uint32_t position = DMASYNC_RING_START + n;
		struct dmasync_submission submission;

		sleep_until(side, submission_ready, position);
		dmasync_ring_copy_submission(&side->ring, position, &submission);

		struct dmasync_ring_completion completion = {.user_data = submission.user_data};

		linger(side);
		dmasync_ring_complete(&side->ring, position, &completion);
		if (dmasync_ring_take_sleeper(&side->ring.header->client_sleeping))
			signal_peer(side);
	}
}

static uint32_t run_client(struct side *side)
{
	uint32_t right = 0;

	for (uint32_t n = 0; n < BATCHES; n++) {
		uint32_t position = DMASYNC_RING_START + n;
		struct dmasync_submission submission = {.user_data = n};
		struct dmasync_ring_completion completion = {.user_data = UINT64_MAX};

		dmasync_ring_submit(&side->ring, position, &submission);
		if (dmasync_ring_is_sleeping(&side->page->sleeping))
			signal_peer(side);
		sleep_until(side, completion_ready, position);
		if (dmasync_ring_poll_completion(&side->ring, position, &completion) ==
			    DMASYNC_RING_READY &&
		    completion.user_data == n)
			right++;
		dmasync_ring_consume_completion(&side->ring, position + 1);
	}
	return right;
}

/* The second CPU is left to the peer where there are two: on one there is no race to lose. */
static void pin(int which)
{
	cpu_set_t allowed, one;

	if (sched_getaffinity(0, sizeof allowed, &allowed) != 0 || CPU_COUNT(&allowed) < 2)
		return;
	CPU_ZERO(&one);
	for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &allowed) && which-- == 0)
			CPU_SET(cpu, &one);
	}
	if (sched_setaffinity(0, sizeof one, &one) != 0)
		die("sched_setaffinity");
}

static int make_memory(const char *name, off_t size)
{
	int fd = memfd_create(name, MFD_CLOEXEC);

	if (fd < 0 || ftruncate(fd, size) != 0)
		die(name);
	return fd;
}

static void *map(int fd, size_t size, int protection)
{
	void *memory = mmap(NULL, size, protection, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		die("mmap");
	return memory;
}

static void print(const char *name, const struct tally *tally)
{
	printf("%s: %llu sleeps, %llu woken, %llu lost, %llu signals sent, %llu received\n", name,
	       (unsigned long long)tally->sleeps, (unsigned long long)tally->woken,
	       (unsigned long long)tally->lost, (unsigned long long)tally->signals_sent,
	       (unsigned long long)tally->bytes_received);
}

int main(void)
{
	struct dmasync_ring_layout layout = {0};
	int doorbell[2], notification[2];

	if (!dmasync_ring_layout(DEPTH, UNITS, &layout))
		return 2;
	int ring_fd = make_memory("ring", layout.size);
	int page_fd = make_memory("page", DMASYNC_RING_PAGE);
	struct tally *tallies = mmap(NULL, 2 * sizeof *tallies, PROT_READ | PROT_WRITE,
				     MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (tallies == MAP_FAILED || pipe2(doorbell, O_CLOEXEC | O_NONBLOCK) != 0 ||
	    pipe2(notification, O_CLOEXEC | O_NONBLOCK) != 0)
		die("set up");

	struct dmasync_ring ring;
	void *memory = map(ring_fd, layout.size, PROT_READ | PROT_WRITE);

	dmasync_ring_attach(&ring, memory, &layout);
	dmasync_ring_initialise(&ring, &layout);

	pid_t child = fork();

	if (child < 0)
		die("fork");
	if (child == 0) {
		struct side worker = {
			.ring = ring,
			.page = map(page_fd, DMASYNC_RING_PAGE, PROT_READ | PROT_WRITE),
			.wait_fd = doorbell[0],
			.signal_fd = notification[1],
			.tally = &tallies[1],
			.random = 1,
		};

		worker.own_flag = &worker.page->sleeping;
		pin(1);
		run_worker(&worker);
		_exit(0);
	}

	/* A mapping of its own, and the worker's page to read alone. */
	struct side client = {
		.page = map(page_fd, DMASYNC_RING_PAGE, PROT_READ),
		.wait_fd = notification[0],
		.signal_fd = doorbell[1],
		.tally = &tallies[0],
		.random = 2,
	};

	munmap(memory, layout.size);
	dmasync_ring_attach(&client.ring, map(ring_fd, layout.size, PROT_READ | PROT_WRITE),
			    &layout);
	client.own_flag = &client.ring.header->client_sleeping;
	pin(0);

	uint32_t right = run_client(&client);
	int status = 0;

	if (waitpid(child, &status, 0) != child || status != 0) {
		fprintf(stderr, "the worker process ended with status %#x\n", (unsigned int)status);
		return 1;
	}
	/* What is still in the pipes was sent to somebody who was not asleep after all. */
	struct side worker_end = {.wait_fd = doorbell[0], .tally = &tallies[1]};

	drain(&client);
	drain(&worker_end);
	print("client", &tallies[0]);
	print("worker", &tallies[1]);

	const struct tally *c = &tallies[0], *w = &tallies[1];
	uint64_t sleeps = c->sleeps + w->sleeps, lost = c->lost + w->lost;

	printf("%u of %u batches right, %llu sleeps, %llu lost\n", right, BATCHES,
	       (unsigned long long)sleeps, (unsigned long long)lost);
#ifdef DMASYNC_TEST_NO_FENCE
	if (lost == 0)
		printf("skipped: without fences no wake-up was lost this time\n");
	return lost > 0 ? 0 : 77;
#else
	/* Every sleep was ended by a signal, every signal arrived, every batch came back once. */
	return right == BATCHES && sleeps == c->woken + w->woken && lost == 0 &&
			       c->signals_sent == w->bytes_received &&
			       w->signals_sent == c->bytes_received
		       ? 0
		       : 1;
#endif
}
