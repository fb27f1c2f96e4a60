/* SPDX-License-Identifier: MIT */
/* The worker side of the ring's target: see ring_bed.h. Its line operations are recorded. */
#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ring_bed.h"

#define AREA UINT64_C(0x7f0000000000) /* never accessed: the operations are recorded */
#define FENCED 4u		      /* buffer that has fences */
#define EVENTFD_FULL (UINT64_MAX - 1)

struct worker *ring_worker;
struct buffer ring_buffers[RING_BUFFERS];
struct batch_owner ring_owner;
struct client *ring_client = (struct client *)&ring_client;
uint64_t ring_turn_lines;

static _Atomic(struct buffer *) slots[RING_BUFFERS];
struct buffer_table ring_table = {.size = RING_BUFFERS, .slot = slots};

static struct mailbox events;
static struct worker *workers[2]; /* waiting in an io_uring and in epoll */
static struct cache cache;
static int fence_fd, events_fd;
static bool open_now; /* an opening fence was executed */

/* ---- the operations ---- */

static void record(uintptr_t start, uintptr_t end, size_t line)
{
	bool inside = false;

	ring_be_late(true);
	claim(open_now && line == RING_LINE && start < end && start % RING_LINE == 0 &&
	      end % RING_LINE == 0);
	for (uint32_t i = 0; i < RING_BUFFERS; i++) {
		const struct cache_buffer *buffer = &ring_buffers[i].cache;

		inside |= buffer->backend == DMASYNC_BACKEND_DIRECT && start >= buffer->base &&
			  end <= buffer->base +
					  (buffer->size + RING_LINE - 1) / RING_LINE * RING_LINE;
	}
	claim(inside);
	ring_turn_lines += (end - start) / RING_LINE;
}

static void record_open(void)
{
	open_now = true;
}

static void record_complete(bool flushed)
{
	(void)flushed;
}

/* ---- a worker for all inputs ---- */

static void set_buffer(uint32_t index, struct cache_buffer what, int fd)
{
	ring_buffers[index] =
		(struct buffer){.cache = what, .handle = 1u << BUFFER_INDEX_BITS | index, .fd = fd};
}

static void set_up(void)
{
	int memory = memfd_create("simulated", MFD_CLOEXEC);
	void *simulated;

	signal(SIGPIPE, SIG_IGN);
	cache = (struct cache){.ops = {.name = "recorded",
				       .open = record_open,
				       .clean = record,
				       .flush = record,
				       .complete = record_complete},
			       .line = RING_LINE,
			       .granule = RING_LINE};
	events_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	fence_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	claim(events_fd >= 0 && fence_fd >= 0 && memory >= 0);
	claim(ftruncate(memory, CACHE_SIMULATED_REGIONS * 8192) == 0);
	claim(cache_simulated_map(memory, 8192, &simulated) == 0);
	set_buffer(0, (struct cache_buffer){AREA, 4096, DMASYNC_BACKEND_DIRECT, true, false}, -1);
	set_buffer(
		1,
		(struct cache_buffer){AREA + 8192, 1u << 20, DMASYNC_BACKEND_DIRECT, true, false},
		-1);
	set_buffer(2,
		   (struct cache_buffer){AREA + (4u << 20), 5000, DMASYNC_BACKEND_DIRECT, false,
					 false},
		   -1);
	set_buffer(3, (struct cache_buffer){0, 4096, DMASYNC_BACKEND_NONE, true, false}, -1);
	set_buffer(
		FENCED,
		(struct cache_buffer){AREA + (8u << 20), 65536, DMASYNC_BACKEND_DIRECT, true, true},
		fence_fd);
	set_buffer(5, (struct cache_buffer){0, 65536, DMASYNC_BACKEND_KERNEL, true, false}, memory);
	set_buffer(6,
		   (struct cache_buffer){(uintptr_t)simulated, 8192, DMASYNC_BACKEND_SIMULATED,
					 true, false},
		   -1);

	for (uint32_t i = 0; i < 2; i++) {
		const struct worker_params params = {.loop = i ? LOOP_EPOLL : LOOP_AUTO,
						     .cache = &cache,
						     .slice_lines = 64,
						     .events = &events,
						     .events_fd = events_fd};

		claim(worker_here_start(&params, &workers[i]) == 0);
	}
}

void ring_worker_tune(struct input *input)
{
	uint8_t lines = input_u8(input), share = input_u8(input);
	struct worker_command *command = calloc(1, sizeof *command);

	claim(command);
	command->type = WORKER_TUNE;
	command->slice_lines = 64u + lines;
	command->max_batch_lines = lines & 1 ? 512 : 65536;
	command->normal_share = command->bulk_share = 10;
	command->share_barrier_lines = share & 1 ? 64u + share : 0;
	command->share_barrier_us = share & 1 ? 1000000 : 0;
	worker_post(ring_worker, command);
}

void ring_worker_set_fence(uint8_t how)
{
	const uint64_t values[] = {1, 0, EVENTFD_FULL, 1};
	uint64_t value = values[how % 4];

	if (read(fence_fd, &(uint64_t){0}, sizeof(uint64_t)) < 0)
		claim(errno == EAGAIN);
	if (value)
		claim(write(fence_fd, &value, sizeof value) == sizeof value);
}

void ring_worker_take_events(void)
{
	struct mailbox_node *node = mailbox_take(&events);

	(void)!read(events_fd, &(uint64_t){0}, sizeof(uint64_t));
	while (node) {
		struct worker_command *command = (struct worker_command *)node;

		node = node->next;
		claim(command->type != WORKER_FAULT);
		if (command->type == WORKER_TUNE)
			free(command);
		else if (command->type == WORKER_QUEUE_BROKEN)
			claim(command->queue->broken && command->text);
		else
			command->context = &events; /* it has come back */
	}
}

void ring_worker_begin(bool epoll)
{
	if (!workers[0])
		set_up();
	ring_worker = workers[epoll];
	for (uint32_t i = 0; i < RING_BUFFERS; i++)
		atomic_store(&slots[i], &ring_buffers[i]);
}
