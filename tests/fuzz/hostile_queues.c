/* SPDX-License-Identifier: MIT */
/* See hostile_queues.h. */
#include "hostile_queues.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hostile_here.h"

struct served hostile_served[HOSTILE_QUEUES];
uint32_t hostile_queue_count;
volatile bool hostile_writes;

static struct input *input;

static void close_fd_(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void forget(struct served *queue)
{
	if (!queue->used)
		return;
	close_fd_(&queue->doorbell);
	close_fd_(&queue->notification);
	munmap(queue->memory, queue->memory_size);
	munmap(queue->page, 4096);
	queue->used = false;
}

static int memory(size_t size, unsigned int seals)
{
	int fd = memfd_create("hostile", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	claim(fd >= 0 && ftruncate(fd, (off_t)size) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

static void *map(int fd, size_t size)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	claim(at != MAP_FAILED);
	return at;
}

bool hostile_queue_make(const struct dmasync_queue_create *create, int fds[DMASYNC_QUEUE_FDS])
{
	const unsigned int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	struct served *queue = &hostile_served[hostile_queue_count++ % HOSTILE_QUEUES];
	uint8_t how = input_u8(input);
	int doorbell[2], notification[2];

	forget(queue);
	*queue = (struct served){.doorbell = -1, .notification = -1};
	if (!dmasync_ring_layout(create->depth, create->units, &queue->layout))
		return false;
	queue->memory_size = queue->layout.size;
	fds[DMASYNC_QUEUE_RING] =
		memory(queue->memory_size + (how == 249 ? 4096 : 0), how == 250 ? 0 : seals);
	fds[DMASYNC_QUEUE_WORKER_PAGE] = memory(4096, seals);
	queue->memory = map(fds[DMASYNC_QUEUE_RING], queue->memory_size);
	queue->page = map(fds[DMASYNC_QUEUE_WORKER_PAGE], 4096);
	dmasync_ring_attach(&queue->ring, queue->memory, &queue->layout);
	dmasync_ring_initialise(&queue->ring, &queue->layout);
	if (how >= 240 && how < 249)
		((uint32_t *)queue->memory)[how - 240] ^= input_u32(input);
	claim(pipe2(doorbell, O_CLOEXEC | (how == 251 ? 0 : O_NONBLOCK)) == 0);
	claim(pipe2(notification, O_CLOEXEC | O_NONBLOCK) == 0);
	queue->doorbell = doorbell[0];
	queue->notification = notification[1];
	fds[DMASYNC_QUEUE_DOORBELL] = doorbell[1];
	fds[DMASYNC_QUEUE_NOTIFICATION] = notification[0];
	if (how == 252) {
		close(notification[0]);
		fds[DMASYNC_QUEUE_NOTIFICATION] = memory(4096, seals);
	}
	queue->fetched = queue->completed = DMASYNC_RING_START;
	return queue->used = true;
}

void hostile_queue_notify(struct served *queue)
{
	hostile_writes = true;
	if (queue->notification >= 0)
		(void)!write(queue->notification, "", 1);
	hostile_writes = false;
}

static void serve_queue(struct served *queue)
{
	struct dmasync_submission submission;

	for (uint32_t i = 0; i < queue->layout.depth; i++) {
		if (dmasync_ring_poll_submission(&queue->ring, queue->fetched) !=
		    DMASYNC_RING_READY)
			break;
		dmasync_ring_copy_submission(&queue->ring, queue->fetched++, &submission);
		struct dmasync_ring_completion completion = {.user_data = submission.user_data,
							     .entries = 1};

		dmasync_ring_complete(&queue->ring, queue->completed++, &completion);
		hostile_queue_notify(queue);
	}
	if (queue->doorbell >= 0) {
		char bytes[64];

		fcntl(queue->doorbell, F_SETFL, O_NONBLOCK);
		(void)!read(queue->doorbell, bytes, sizeof bytes);
	}
}

void hostile_queue_complete(struct served *queue)
{
	struct dmasync_ring_completion completion;

	input_copy(input, &completion, 48);
	memset((char *)&completion + 48, 0, sizeof completion - 48);
	dmasync_ring_complete(&queue->ring, queue->completed++, &completion);
	hostile_queue_notify(queue);
}

void hostile_queue_spoil(struct served *queue, uint8_t what)
{
	switch (what & 15) {
	case 5:
		hostile_queue_complete(queue);
		break;
	case 6: {
		uint16_t where = input_u16(input);
		uint32_t value = input_u32(input);

		((uint32_t *)queue->memory)[where % (queue->memory_size / 4)] = value;
		break;
	}
	case 7:
		((uint32_t *)queue->page)[what >> 6 & 1] = input_u32(input);
		break;
	case 8:
		close_fd_(what & 0x80 ? &queue->doorbell : &queue->notification);
		break;
	case 9:
		for (int i = 0; i < 3; i++)
			hostile_queue_notify(queue);
		break;
	case 10: { /* a seq near what is right */
		struct dmasync_ring *ring = &queue->ring;
		uint32_t position = queue->completed++;

		__atomic_store_n(&ring->completions[position & (ring->depth - 1)].seq,
				 position + (what >> 6), __ATOMIC_RELEASE);
		break;
	}
	}
}

void hostile_queues_serve(void)
{
	for (uint32_t i = 0; i < HOSTILE_QUEUES; i++)
		if (hostile_served[i].used)
			serve_queue(&hostile_served[i]);
}

void hostile_queues_hang_up(void)
{
	for (uint32_t i = 0; i < HOSTILE_QUEUES; i++) {
		close_fd_(&hostile_served[i].doorbell);
		close_fd_(&hostile_served[i].notification);
	}
}

void hostile_queues_begin(struct input *from)
{
	input = from;
	hostile_queue_count = 0;
	for (uint32_t i = 0; i < HOSTILE_QUEUES; i++)
		hostile_served[i] = (struct served){.doorbell = -1, .notification = -1};
}

void hostile_queues_end(void)
{
	for (uint32_t i = 0; i < HOSTILE_QUEUES; i++)
		forget(&hostile_served[i]);
}
