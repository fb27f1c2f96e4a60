/* SPDX-License-Identifier: MIT */
/* Making and freeing a queue: memfd, mapping, mirror, pipes. Control thread. */
#include "daemon/queue.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/populate.h"
#include "daemon/worker.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* linux/memfd.h, since 6.3 */
#endif

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/*
 * A memfd that nobody can shrink, grow or unseal: no access to the ring ends in SIGBUS. A seal
 * against holes is not to be had, as it would refuse the client its writable mapping: who punches
 * one finds zeroes there, as if he had written them, and costs the worker a page fault.
 */
static int ring_memfd(size_t size)
{
	int fd = memfd_create("dmasync-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create("dmasync-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)size) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		int r = -errno;

		close(fd);
		return r;
	}
	return fd;
}

/*
 * Each end has an O_NONBLOCK of its own, and the client holds only one end: it can block nobody but
 * itself. The ends that are written get it; a full pipe means already signalled. The notification's
 * read end is the client's, who polls. The doorbell's read end stays blocking: IORING_OP_READ on an
 * O_NONBLOCK pipe fails at once on old kernels.
 */
static int make_pipes(int *doorbell_read, int *doorbell_write, int *notification_read,
		      int *notification_write)
{
	int doorbell[2], notification[2];

	if (pipe2(doorbell, O_CLOEXEC) < 0)
		return -errno;
	if (pipe2(notification, O_CLOEXEC | O_NONBLOCK) < 0) {
		int r = -errno;

		close(doorbell[0]);
		close(doorbell[1]);
		return r;
	}
	if (fcntl(doorbell[1], F_SETFL, O_NONBLOCK) < 0) {
		int r = -errno;

		close(doorbell[0]);
		close(doorbell[1]);
		close(notification[0]);
		close(notification[1]);
		return r;
	}
	*doorbell_read = doorbell[0];
	*doorbell_write = doorbell[1];
	*notification_read = notification[0];
	*notification_write = notification[1];
	return 0;
}

static int map_memory(struct queue *queue, int ring_fd, const struct dmasync_ring_layout *layout)
{
	void *memory = mmap(NULL, layout->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
			    ring_fd, 0);

	if (memory == MAP_FAILED)
		return -errno;
	queue->memory = memory;
	queue->memory_size = layout->size;

	/* The mirror is charged and populated now: nothing is allocated on a batch's way. */
	void *mirror = mmap(NULL, layout->units * sizeof *queue->mirror, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (mirror == MAP_FAILED)
		return -errno;
	queue->mirror = mirror;
	dmasync_ring_attach(&queue->ring, memory, layout);
	dmasync_ring_initialise(&queue->ring, layout);
	return 0;
}

uint64_t queue_bytes(uint32_t depth, uint32_t units)
{
	struct dmasync_ring_layout layout;

	if (!dmasync_ring_layout(depth, units, &layout))
		return 0;
	return layout.size + layout.units * sizeof(union cache_unit);
}

int queue_create(uint32_t depth, uint32_t units, int worker_page_fd, struct queue **ret,
		 int ret_fds[DMASYNC_QUEUE_FDS])
{
	struct dmasync_ring_layout layout;
	int fds[DMASYNC_QUEUE_FDS] = {-1, -1, -1, -1};
	int r;

	if (!dmasync_ring_layout(depth, units, &layout))
		return -EINVAL;

	struct queue *queue = calloc(1, sizeof *queue);

	if (!queue)
		return -ENOMEM;
	populate(queue, sizeof *queue);
	queue->doorbell_fd = queue->notification_fd = -1;
	queue->fetched = queue->completed = queue->completions_read = DMASYNC_RING_START;
	queue->event = calloc(1, sizeof *queue->event);
	queue->move = calloc(1, sizeof *queue->move);
	if (!queue->event || !queue->move) {
		r = -ENOMEM;
		goto fail;
	}

	r = ring_memfd(layout.size);
	if (r < 0)
		goto fail;
	fds[DMASYNC_QUEUE_RING] = r;
	r = map_memory(queue, r, &layout);
	if (r < 0)
		goto fail;
	r = fcntl(worker_page_fd, F_DUPFD_CLOEXEC, 3);
	if (r < 0) {
		r = -errno;
		goto fail;
	}
	fds[DMASYNC_QUEUE_WORKER_PAGE] = r;
	r = make_pipes(&queue->doorbell_fd, &fds[DMASYNC_QUEUE_DOORBELL],
		       &fds[DMASYNC_QUEUE_NOTIFICATION], &queue->notification_fd);
	if (r < 0)
		goto fail;

	queue->created_ns = clock_ns();
	for (int i = 0; i < DMASYNC_QUEUE_FDS; i++)
		ret_fds[i] = fds[i];
	*ret = queue;
	return 0;

fail:
	for (int i = 0; i < DMASYNC_QUEUE_FDS; i++)
		close_fd(&fds[i]);
	queue_free(queue);
	return r;
}

void queue_discard(struct queue *queue)
{
	/* A hole: the seals are against shrinking and growing. An error leaves what was. */
	(void)madvise(queue->memory, queue->memory_size, MADV_REMOVE);
}

void queue_free(struct queue *queue)
{
	if (!queue)
		return;
	if (queue->memory)
		munmap(queue->memory, queue->memory_size);
	if (queue->mirror)
		munmap(queue->mirror, queue->ring.unit_count * sizeof *queue->mirror);
	close_fd(&queue->doorbell_fd);
	close_fd(&queue->notification_fd);
	free(queue->event);
	free(queue->move);
	free(queue);
}
