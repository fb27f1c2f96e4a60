/* SPDX-License-Identifier: MIT */
/*
 * Queues: what the daemon gave for one (ring, worker page, two pipes) and the library's own books
 * beside it. Creation and destruction by any thread, everything else by the queue's.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "client/inline.h"
#include "client/internal.h"

#define QUEUE_DEPTH 64
#define QUEUE_UNITS 4096
#define QUEUE_SPIN_US 50
/* A spinning dmasync_wait() does not notice the daemon's death. */
#define QUEUE_SPIN_US_MAX 1000000

/* Look again at batches in flight: first soon, then seldom. */
#define DRAIN_FIRST_NS 20000
#define DRAIN_LAST_NS 1000000

DMASYNC_PUBLIC void dmasync_queue_params_init(struct dmasync_queue_params *params)
{
	memset(params, 0, sizeof *params);
	params->size = sizeof *params;
	params->depth = QUEUE_DEPTH;
	params->units = QUEUE_UNITS;
	params->klass = DMASYNC_CLASS_NORMAL;
	params->spin_us = QUEUE_SPIN_US;
}

int queue_check(const struct dmasync_queue *queue)
{
	if (!fork_guard_ok(queue->ds))
		return -ECHILD;
	if (queue->error)
		return queue->error;
	/* While no daemon answers, batches go into the old ring, as long as it has room. */
	return !queue_current(queue) && control_broken(queue->ds) ? -ECONNRESET : 0;
}

/* ---- in flight ---- */

/* `count`: of batches since the queue's creation, which no restart of the daemon changes. */
static bool completed_all(const struct dmasync_queue *queue, uint32_t count)
{
	return dmasync_ring_completion_reached(&queue->ring, count - queue->shift - 1);
}

/* The queue with the smallest serial number above `after`; queues_lock is held. */
static struct dmasync_queue *queue_after(struct dmasync *ds, uint64_t after)
{
	struct dmasync_queue *found = NULL;

	for (struct dmasync_queue *q = ds->queues; q; q = q->next)
		if (q->serial > after && (!found || q->serial < found->serial))
			found = q;
	return found;
}

enum drain { DRAINED, WAITS_FOR_DAEMON, AT_WORK_HERE };

/* Has `queue` completed its first `count` batches, or does it exist no more? */
static enum drain look_at_queue(struct dmasync *ds, uint64_t serial, uint32_t count)
{
	struct dmasync_queue *queue;
	enum drain drain = DRAINED;

	pthread_mutex_lock(&ds->queues_lock);
	queue = queue_after(ds, serial - 1);
	if (queue && queue->serial == serial && !completed_all(queue, count))
		drain = queue->in_process ? AT_WORK_HERE : WAITS_FOR_DAEMON;
	pthread_mutex_unlock(&ds->queues_lock);
	return drain;
}

/* The lock is given up between looks, so that nobody's creation or destruction waits. */
static void queue_drain(struct dmasync *ds, uint64_t serial, uint32_t count, int64_t deadline)
{
	int64_t pause = DRAIN_FIRST_NS;

	for (;;) {
		enum drain drain = look_at_queue(ds, serial, count);

		if (drain == DRAINED)
			return;
		/*
		 * A daemon keeps what its batches use. In-process another thread is inside submit,
		 * with the mapping and the fd in its hands, and comes out of it by itself.
		 */
		if (drain == WAITS_FOR_DAEMON && (now_ns() >= deadline || control_broken(ds)))
			return;
		/* A new daemon gets the batches from the queue's own thread. */
		if (reconnect_step(ds) == 1) {
			control_alive(ds, control_life(ds), pause);
		} else {
			struct timespec nap = to_timespec(pause);

			nanosleep(&nap, NULL);
		}
		pause = pause < DRAIN_LAST_NS / 2 ? pause * 2 : DRAIN_LAST_NS;
	}
}

void queues_drain(struct dmasync *ds)
{
	int64_t deadline = now_ns() + (int64_t)ds->timeout_ms * 1000000;
	uint64_t serial = 0;

	for (;;) {
		struct dmasync_queue *queue;
		uint32_t count = 0;

		pthread_mutex_lock(&ds->queues_lock);
		queue = queue_after(ds, serial);
		if (queue) {
			serial = queue->serial;
			/* Acquire: pairs with the release in dmasync_batch_submit(). */
			count = queue->shift +
				atomic_load_explicit(&queue->submitted, memory_order_acquire);
		}
		pthread_mutex_unlock(&ds->queues_lock);
		if (!queue)
			return;
		queue_drain(ds, serial, count, deadline);
	}
}

static void queue_link(struct dmasync *ds, struct dmasync_queue *queue)
{
	pthread_mutex_lock(&ds->queues_lock);
	queue->serial = ++ds->last_serial;
	queue->next = ds->queues;
	ds->queues = queue;
	pthread_mutex_unlock(&ds->queues_lock);
}

static void queue_unlink(struct dmasync *ds, struct dmasync_queue *queue)
{
	pthread_mutex_lock(&ds->queues_lock);
	for (struct dmasync_queue **place = &ds->queues; *place; place = &(*place)->next) {
		if (*place == queue) {
			*place = queue->next;
			break;
		}
	}
	pthread_mutex_unlock(&ds->queues_lock);
}

/* ---- creation ---- */

/* Maps a memfd of the daemon's, which must not be able to shrink under us. */
static int map_shared(int fd, size_t size, int protection, void **ret)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat file;
	void *memory;

	if (seals < 0 || !(seals & F_SEAL_SHRINK))
		return -EPROTO;
	if (fstat(fd, &file) < 0 || file.st_size < 0 || (uint64_t)file.st_size < size)
		return -EPROTO;
	/* Populated, as it is on the daemon's side: no batch is to fault. */
	memory = mmap(NULL, size, protection, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (memory == MAP_FAILED)
		return -errno;
	/* A child that wrote here would be a second producer. */
	if (madvise(memory, size, MADV_DONTFORK) < 0) {
		int r = -errno;

		munmap(memory, size);
		return r;
	}
	*ret = memory;
	return 0;
}

/* The daemon's ends have flags of their own; ours must never block, nor be read without end. */
static int take_pipe(int fd)
{
	struct stat file;
	int flags;

	if (fstat(fd, &file) < 0 || !S_ISFIFO(file.st_mode))
		return -EPROTO;
	flags = fcntl(fd, F_GETFL);
	if (flags < 0)
		return -errno;
	if (!(flags & O_NONBLOCK) && fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

static int map_ends(struct queue_ends *ends, const struct dmasync_ring_layout *layout,
		    const int *fds)
{
	void *page;
	int r;

	ends->doorbell_fd = fds[DMASYNC_QUEUE_DOORBELL];
	ends->notification_fd = fds[DMASYNC_QUEUE_NOTIFICATION];
	r = take_pipe(ends->doorbell_fd);
	if (r == 0)
		r = take_pipe(ends->notification_fd);
	if (r == 0)
		r = map_shared(fds[DMASYNC_QUEUE_RING], layout->size, PROT_READ | PROT_WRITE,
			       &ends->memory);
	if (r < 0)
		return r;
	ends->memory_size = layout->size;
	r = map_shared(fds[DMASYNC_QUEUE_WORKER_PAGE], sizeof(struct dmasync_worker_page),
		       PROT_READ, &page);
	if (r < 0)
		return r;
	ends->worker_page = page;
	dmasync_ring_attach(&ends->ring, ends->memory, layout);
	return dmasync_ring_header_matches(&ends->ring, layout) ? 0 : -EPROTO;
}

void queue_ends_free(struct queue_ends *ends)
{
	inline_worker_free(ends->in_process);
	if (ends->memory)
		munmap(ends->memory, ends->memory_size);
	if (ends->worker_page)
		munmap((void *)(uintptr_t)ends->worker_page, sizeof *ends->worker_page);
	close_fd(ends->doorbell_fd);
	close_fd(ends->notification_fd);
}

void queue_ends_of(const struct dmasync_queue *queue, struct queue_ends *ret)
{
	*ret = (struct queue_ends){
		.life = queue->life,
		.id = queue->id,
		.ring = queue->ring,
		.worker_page = queue->worker_page,
		.memory = queue->memory,
		.memory_size = queue->memory_size,
		.doorbell_fd = queue->doorbell_fd,
		.notification_fd = queue->notification_fd,
		.worker_cpu = queue->worker_cpu,
		.in_process = queue->in_process,
	};
}

void queue_ends_set(struct dmasync_queue *queue, const struct queue_ends *ends)
{
	queue->life = ends->life;
	queue->id = ends->id;
	queue->ring = ends->ring;
	queue->worker_page = ends->worker_page;
	queue->memory = ends->memory;
	queue->memory_size = ends->memory_size;
	queue->doorbell_fd = ends->doorbell_fd;
	queue->notification_fd = ends->notification_fd;
	queue->worker_cpu = ends->worker_cpu;
	queue->in_process = ends->in_process;
}

static void queue_free(struct dmasync_queue *queue)
{
	struct queue_ends ends;

	queue_fd_close(queue);
	queue_ends_of(queue, &ends);
	queue_ends_free(&ends);
	free(queue->slots);
	free(queue->stash);
	free(queue);
}

static struct dmasync_queue *queue_new(struct dmasync *ds, uint32_t depth)
{
	struct dmasync_queue *queue = aligned_alloc(_Alignof(struct dmasync_queue), sizeof *queue);

	if (!queue)
		return NULL;
	memset(queue, 0, sizeof *queue);
	queue->ds = ds;
	queue->doorbell_fd = queue->notification_fd = -1;
	queue->epoll_fd = queue->event_fd = queue->timer_fd = queue->watch_fd = -1;
	queue->read = queue->read_published = DMASYNC_RING_START;
	queue->unit_head = queue->unit_tail = DMASYNC_RING_START;
	atomic_init(&queue->submitted, DMASYNC_RING_START);
	queue->slots = calloc(depth, sizeof *queue->slots);
	queue->stash = calloc(depth, sizeof *queue->stash);
	if (!queue->slots || !queue->stash) {
		queue_free(queue);
		return NULL;
	}
	/* Which no compiler leaves out: their pages come now and not with a batch. */
	explicit_bzero(queue->slots, depth * sizeof *queue->slots);
	explicit_bzero(queue->stash, depth * sizeof *queue->stash);
	return queue;
}

/* On a machine with one CPU a spinning client only keeps the worker from running. */
static bool may_spin(void)
{
	return sysconf(_SC_NPROCESSORS_ONLN) != 1;
}

static int check_params(struct dmasync *ds, const struct dmasync_queue_params *params,
			struct dmasync_ring_layout *ret)
{
	if (params->flags)
		return control_error(ds, -EINVAL, "queue flags 0x%x: none are known",
				     params->flags);
	if ((unsigned int)params->klass > DMASYNC_CLASS_BULK)
		return control_error(ds, -EINVAL,
				     "queue class %u: 0 (normal), 1 (realtime) or 2 "
				     "(bulk)",
				     (unsigned int)params->klass);
	if (params->spin_us > QUEUE_SPIN_US_MAX)
		return control_error(ds, -EINVAL, "spin_us %u: at most %u", params->spin_us,
				     QUEUE_SPIN_US_MAX);
	if (!dmasync_ring_layout(params->depth, params->units, ret))
		return control_error(ds, -EINVAL,
				     "a queue of depth %u and %u units: powers of two, depth %u to "
				     "%u, units %u to %u",
				     params->depth, params->units, DMASYNC_RING_MIN_DEPTH,
				     DMASYNC_RING_MAX_DEPTH, DMASYNC_RING_MIN_UNITS,
				     DMASYNC_RING_MAX_UNITS);
	return 0;
}

/* Tells the daemon of that life to forget a queue. */
static void queue_remove(struct dmasync *ds, uint32_t life, uint32_t id)
{
	struct dmasync_queue_remove request = {.queue = id};
	struct dmasync_done_reply done;
	struct control_reply reply = {.message = &done, .size = sizeof done};

	if (control_life(ds) == life)
		control_call_in(ds, life, DMASYNC_OP_QUEUE_REMOVE, &request.header, sizeof request,
				-1, &reply);
}

int queue_ends_create(struct dmasync *ds, uint32_t life, const struct dmasync_ring_layout *layout,
		      enum dmasync_class klass, struct queue_ends *ret)
{
	struct dmasync_queue_create request = {
		.depth = layout->depth,
		.units = layout->units,
		.klass = (uint32_t)klass,
	};
	struct queue_ends ends = {.doorbell_fd = -1, .notification_fd = -1};
	struct dmasync_queue_create_reply created = {0};
	struct control_reply reply = {
		.message = &created,
		.size = sizeof created,
		.fd_count = DMASYNC_QUEUE_FDS,
	};
	int r;

	if (life)
		r = control_call_in(ds, life, DMASYNC_OP_QUEUE_CREATE, &request.header,
				    sizeof request, -1, &reply);
	else
		r = control_call(ds, DMASYNC_OP_QUEUE_CREATE, &request.header, sizeof request, -1,
				 &reply);
	if (r < 0)
		return r;
	if (created.depth == layout->depth && created.units == layout->units)
		r = map_ends(&ends, layout, reply.fds);
	else
		r = -EPROTO;
	close_fd(reply.fds[DMASYNC_QUEUE_RING]);
	close_fd(reply.fds[DMASYNC_QUEUE_WORKER_PAGE]);
	if (ends.doorbell_fd < 0) {
		close_fd(reply.fds[DMASYNC_QUEUE_DOORBELL]);
		close_fd(reply.fds[DMASYNC_QUEUE_NOTIFICATION]);
	}
	if (r < 0)
		queue_ends_free(&ends);
	if (r == -EPROTO)
		return control_error(ds, control_end(ds, r),
				     "dmasyncd at %s made a queue whose ring, seals or pipes are "
				     "not as the protocol says; the connection was ended",
				     ds->path);
	if (r < 0) {
		queue_remove(ds, reply.life, created.queue);
		return control_error(ds, r, "cannot map a queue of %u bytes: %s", layout->size,
				     describe(r));
	}
	ends.life = reply.life;
	ends.id = created.queue;
	ends.worker_cpu = created.cpu;
	*ret = ends;
	return 0;
}

/* A ring of the same layout in private memory, and the library in the worker's place. */
int queue_ends_create_inline(struct dmasync *ds, const struct dmasync_ring_layout *layout,
			     struct queue_ends *ret)
{
	struct queue_ends ends = {
		.life = control_life(ds),
		.doorbell_fd = -1,
		.notification_fd = -1,
		.worker_cpu = -1,
	};
	int notification[2] = {-1, -1}, r = 0;
	void *memory = mmap(NULL, layout->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);

	if (memory == MAP_FAILED)
		return control_error(ds, -errno, "cannot map a queue of %u bytes: %s", layout->size,
				     describe(-errno));
	ends.memory = memory;
	ends.memory_size = layout->size;
	/* A child gets -ECHILD from every call, and no ring, as with a daemon. */
	if (madvise(memory, layout->size, MADV_DONTFORK) < 0 ||
	    pipe2(notification, O_CLOEXEC | O_NONBLOCK) < 0)
		r = control_error(ds, -errno, "cannot make a queue: %s", describe(-errno));
	ends.notification_fd = notification[0];
	dmasync_ring_attach(&ends.ring, memory, layout);
	dmasync_ring_initialise(&ends.ring, layout);
	if (r == 0 && inline_worker_create(ds->in_process, &ends.ring, notification[1],
					   &ends.in_process) < 0) {
		close(notification[1]);
		r = control_error(ds, -ENOMEM, "no memory for a queue of %u units", layout->units);
	}
	if (r < 0) {
		queue_ends_free(&ends);
		return r;
	}
	*ret = ends;
	return 0;
}

DMASYNC_PUBLIC int dmasync_queue_create(struct dmasync *ds,
					const struct dmasync_queue_params *params,
					struct dmasync_queue **ret)
{
	struct dmasync_ring_layout layout;
	struct dmasync_queue_params own;
	struct dmasync_queue *queue;
	struct queue_ends ends;
	int r;

	if (!fork_guard_ok(ds))
		return -ECHILD;
	r = params_take(ds, "dmasync_queue_params", &own, sizeof own, params);
	if (r < 0)
		return r;
	r = check_params(ds, &own, &layout);
	if (r < 0)
		return r;
	queue = queue_new(ds, own.depth);
	if (!queue)
		return control_error(ds, -ENOMEM, "no memory for a queue of depth %u", own.depth);
	r = -ENOTCONN;
	if (!ds->in_process || ds->fallback)
		r = queue_ends_create(ds, 0, &layout, own.klass, &ends);
	if (r == -ENOTCONN && ds->in_process)
		r = queue_ends_create_inline(ds, &layout, &ends);
	if (r < 0) {
		queue_free(queue);
		return r;
	}
	queue_ends_set(queue, &ends);
	queue->klass = own.klass;
	dmasync_spin_bounds(&queue->spin, 0, may_spin() ? own.spin_us * UINT64_C(1000) : 0);
	queue_link(ds, queue);
	*ret = queue;
	return 0;
}

DMASYNC_PUBLIC void dmasync_queue_destroy(struct dmasync_queue *queue)
{
	struct dmasync_completion dropped;
	struct dmasync *ds;
	int64_t deadline;

	if (!queue || !fork_guard_ok(queue->ds))
		return;
	ds = queue->ds;
	deadline = now_ns() + (int64_t)ds->timeout_ms * 1000000;
	/* Also over a restart of the daemon. */
	while (queue->error == 0 && queue_in_flight(queue)) {
		int64_t left = deadline - now_ns();
		int r = left > 0 ? completion_wait(queue, &dropped, left) : -ETIMEDOUT;

		if (r < 0 && r != -EINTR)
			break;
	}
	queue_unlink(ds, queue);
	if (!queue->in_process)
		queue_remove(ds, queue->life, queue->id);
	queue_free(queue);
}
