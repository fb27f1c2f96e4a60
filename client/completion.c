/* SPDX-License-Identifier: MIT */
/*
 * Reading completions: peek, wait, and sync. The queue's thread. No lock, and no system call while
 * completions are there or come within spin_us.
 */
#include <poll.h>
#include <sched.h>
#include <string.h>

#include "client/internal.h"

/* A caller that never sleeps asks the socket for a hang-up at most so often. */
#define CHECK_NS 10000000
/* Reads of notification_drain(): what a pipe holds. The daemon may write on and on. */
#define DRAIN_READS 1024
/* Looks at the ring between two looks at the clock. */
#define SPIN_LOOKS 16
/*
 * Looks without a pause before the first one with it: a pause is 15 to 50 ns on x86, and a short
 * batch is back within a microsecond.
 */
#define EAGER_LOOKS 128

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__) || (defined(__arm__) && __ARM_ARCH >= 7)
	__asm__ volatile("yield" ::: "memory");
#else
	__asm__ volatile("" ::: "memory");
#endif
}

static void translate(const struct dmasync_ring_completion *from, struct dmasync_completion *to)
{
	static_assert(sizeof *to == 128, "a completion is 128 bytes for ever");
	/* Field by field: to zero it first would take as long as all the rest of a look. */
	to->user_data = from->user_data;
	to->status = from->status;
	to->flags = from->flags & ~DMASYNC_COMPLETION_EXTENDED;
	to->entries = from->entries;
	to->elided = from->elided;
	to->lines = from->lines;
	to->bytes = from->bytes;
	to->queued_ns = from->queued_ns;
	to->fence_ns = from->fence_ns;
	to->issue_ns = from->issue_ns;
	to->barrier_ns = from->barrier_ns;
	to->batch_id = from->batch_id;
	to->bad_entry = from->bad_entry;
	to->reason = from->reason;
	to->shared_by = from->shared_by;
	to->workers = from->workers;
	for (size_t i = 0; i < sizeof to->reserved / sizeof *to->reserved; i++)
		to->reserved[i] = 0;
}

/* 1, 0 where none is there, or -EPROTO. */
static int ring_take(struct dmasync_queue *queue, struct dmasync_completion *ret)
{
	uint32_t submitted = atomic_load_explicit(&queue->submitted, memory_order_relaxed);
	const struct client_slot *slot = &queue->slots[queue->read & (queue->ring.depth - 1)];
	struct dmasync_ring_completion completion;

	if (queue->error)
		return queue->error;
	/*
	 * Nothing is in flight: the slot is not looked at, so that no completion is believed for
	 * which there was no batch.
	 */
	if (queue->read == submitted)
		return 0;
	switch (dmasync_ring_poll_completion(&queue->ring, queue->read, &completion)) {
	case DMASYNC_RING_EMPTY:
		return queue->lost == LOST_NONE ? 0 : queue_take_lost(queue, ret);
	case DMASYNC_RING_BROKEN:
		return queue->error = -EPROTO;
	case DMASYNC_RING_READY:
		break;
	}
	/* First in, first out: it can only be the oldest one's. */
	if (completion.status > 0 || completion.status < -4095 ||
	    completion.user_data != slot->user_data)
		return queue->error = -EPROTO;
	translate(&completion, ret);
	if (queue->replayed)
		queue_mark_replayed(queue, ret);
	/* The slot and the units are free again; the worker hears of it in publish_read(). */
	queue->unit_tail = slot->unit_end;
	queue->read++;
	return 1;
}

int completion_take(struct dmasync_queue *queue, struct dmasync_completion *ret)
{
	if (queue->stash_count) {
		*ret = queue->stash[queue->stash_first];
		queue->stash_first = (queue->stash_first + 1) & (queue->ring.depth - 1);
		queue->stash_count--;
		return 1;
	}
	return ring_take(queue, ret);
}

bool notification_drain(struct dmasync_queue *queue)
{
	char bytes[64];
	ssize_t n = sizeof bytes;

	for (int i = 0; i < DRAIN_READS && n == (ssize_t)sizeof bytes; i++) {
		do
			n = read(queue->notification_fd, bytes, sizeof bytes);
		while (n < 0 && errno == EINTR);
	}
	return n != 0;
}

/*
 * A dead daemon writes nothing into the ring, so a caller that never sleeps must be told by
 * somebody: now and then this asks the socket. Whoever came because queue_fd was readable may have
 * come for that very reason, and is told at once.
 */
static bool daemon_gone(struct dmasync_queue *queue)
{
	int64_t now;

	if (!queue_current(queue))
		return true;
	if (queue->in_process)
		return false;
	now = now_ns();
	if (now < queue->next_check_ns && queue->epoll_fd < 0)
		return false;
	queue->next_check_ns = now + CHECK_NS;
	return !control_alive(queue->ds, queue->life, 0);
}

/* 1: a completion. 0: none yet. Negative: the last completion is read, no daemon will come. */
static int recover_once(struct dmasync_queue *queue, struct dmasync_completion *ret)
{
	int r = queue_recover(queue);
	/* What the old daemon had published; what a new one has by now; what is lost. */
	int taken = completion_take(queue, ret);

	if (taken != 0)
		return taken;
	return r < 0 ? r : 0;
}

DMASYNC_PUBLIC int dmasync_peek(struct dmasync_queue *queue, struct dmasync_completion *ret)
{
	int r;

	if (!fork_guard_ok(queue->ds))
		return -ECHILD;
	r = completion_take(queue, ret);
	if (r == 1)
		queue_fd_settle(queue, true);
	if (r != 0)
		return r;
	if (daemon_gone(queue)) {
		r = recover_once(queue, ret);
		queue_fd_settle(queue, r == 1);
		return r;
	}
	/* Where that took a system call: what came meanwhile is worth more than a readable fd. */
	if (queue->epoll_fd >= 0)
		r = completion_take(queue, ret);
	queue_fd_settle(queue, r == 1);
	return r;
}

/*
 * On the worker's own CPU, the one it is on now, a look would only keep the worker from running.
 * The slow worker does not say where it is, and nothing is quick there.
 */
static bool is_no_use(const struct dmasync_queue *queue)
{
	int cpu = dmasync_ring_said_cpu(&queue->worker_page->cpu);

	return (cpu >= 0 && cpu == sched_getcpu()) || dmasync_ring_was_moved(&queue->ring);
}

uint64_t completion_look_ns(const struct dmasync_queue *queue)
{
	return is_no_use(queue) ? 0 : queue->spin.window_ns;
}

/* Looks at the ring as long as that is worth it. 1, 0, or an error of completion_take(). */
static int spin(struct dmasync_queue *queue, struct dmasync_completion *ret, int64_t start,
		int64_t deadline)
{
	uint64_t look_ns = completion_look_ns(queue);
	int64_t end = start + (int64_t)look_ns;

	if (look_ns == 0)
		return 0;
	if (end > deadline)
		end = deadline;
	for (int i = 0; i < EAGER_LOOKS; i++) {
		int r = completion_take(queue, ret);

		if (r != 0)
			return r;
	}
	do {
		for (int i = 0; i < SPIN_LOOKS; i++) {
			int r = completion_take(queue, ret);

			if (r != 0)
				return r;
			relax();
		}
	} while (now_ns() < end && !is_no_use(queue));
	return 0;
}

/* After a sleep: would a longer look have seen it? The waking itself is not counted. */
static void learn(struct dmasync_queue *queue, const struct dmasync_completion *completion,
		  int64_t start)
{
	const struct client_slot *slot = &queue->slots[(queue->read - 1) & (queue->ring.depth - 1)];
	uint64_t done = slot->submit_ns + completion->queued_ns + completion->fence_ns +
			completion->issue_ns + completion->barrier_ns;

	dmasync_spin_learn(&queue->spin, done > (uint64_t)start ? done - (uint64_t)start : 0);
}

/* Sleeps until notification, hang-up, signal or deadline. 1, 0 at the deadline, negative errno. */
static int sleep_once(struct dmasync_queue *queue, int64_t deadline)
{
	struct pollfd p[] = {
		{.fd = queue->notification_fd, .events = POLLIN},
		{.fd = queue->ds->socket, .events = POLLRDHUP},
	};
	struct timespec timeout;
	int64_t left = 1;
	int r;

	if (deadline != INT64_MAX) {
		left = deadline - now_ns();
		timeout = to_timespec(left < 0 ? 0 : left);
	}
	r = ppoll(p, 2, deadline == INT64_MAX ? NULL : &timeout, NULL);
	if (r < 0)
		return -errno;
	if (p[0].revents && !notification_drain(queue))
		p[1].revents |= POLLHUP;
	if (p[1].revents) {
		control_break(queue->ds, queue->life, 0);
		return -ECONNRESET;
	}
	/* Notifications that bring no completion, one after the other, must not hold it up. */
	return r == 0 || left <= 0 ? 0 : 1;
}

/*
 * The sleeper's side of the protocol in ring_access.h: announce, look once more, sleep. A
 * notification left over from before only makes one round more.
 */
static int sleep_for(struct dmasync_queue *queue, struct dmasync_completion *ret, int64_t deadline)
{
	uint32_t *flag = &queue->ring.header->client_sleeping;
	int r, why = 1;

	do {
		dmasync_ring_announce_sleep(flag);
		r = completion_take(queue, ret);
		if (r != 0)
			break;
		why = sleep_once(queue, deadline);
	} while (why == 1);
	dmasync_ring_announce_awake(flag);
	queue->notify_armed = false;
	/* Whatever ended the sleep, a completion that is there now goes first. */
	if (r == 0)
		r = completion_take(queue, ret);
	if (r != 0)
		return r;
	return why == 0 ? -ETIMEDOUT : why;
}

/*
 * Until the queue is attached to a daemon: 0. A completion, -ETIMEDOUT, -EINTR and the end of the
 * connection come before it. Waits for nothing where nothing is in flight.
 */
static int recover_until(struct dmasync_queue *queue, struct dmasync_completion *ret,
			 int64_t deadline)
{
	for (;;) {
		int r = recover_once(queue, ret);
		int64_t now, when;
		struct timespec pause;

		if (r != 0)
			return r;
		if (queue_current(queue) || !queue_in_flight(queue))
			return 0;
		now = now_ns();
		if (now >= deadline)
			return -ETIMEDOUT;
		/* Nobody can wake us: there is no daemon. */
		when = queue_next_look(queue);
		pause = to_timespec((when < deadline ? when : deadline) - now);
		if (when > now && ppoll(NULL, 0, &pause, NULL) < 0)
			return -errno;
	}
}

int completion_wait(struct dmasync_queue *queue, struct dmasync_completion *ret, int64_t timeout_ns)
{
	int64_t start, deadline = INT64_MAX;
	int r = completion_take(queue, ret);

	if (r != 0)
		return r;
	if (timeout_ns == 0) {
		if (queue_current(queue) && !queue_in_flight(queue))
			return -ENODATA;
		r = daemon_gone(queue) ? recover_once(queue, ret) : 0;
		if (r == 0)
			r = queue_in_flight(queue) ? -ETIMEDOUT : -ENODATA;
		return r;
	}
	start = now_ns();
	if (timeout_ns > 0 && __builtin_add_overflow(start, timeout_ns, &deadline))
		deadline = INT64_MAX;
	/* Once more for every daemon that goes while we wait. */
	for (;;) {
		if (!queue_current(queue)) {
			r = recover_until(queue, ret, deadline);
			if (r != 0)
				return r;
		}
		if (!queue_in_flight(queue))
			return -ENODATA;
		r = spin(queue, ret, start, deadline);
		if (r != 0)
			return r;
		r = sleep_for(queue, ret, deadline);
		if (r == 1)
			learn(queue, ret, start);
		if (r != -ECONNRESET)
			return r;
		start = now_ns();
	}
}

DMASYNC_PUBLIC int dmasync_wait(struct dmasync_queue *queue, struct dmasync_completion *ret,
				int64_t timeout_ns)
{
	int r;

	if (!fork_guard_ok(queue->ds))
		return -ECHILD;
	r = completion_wait(queue, ret, timeout_ns);
	queue_fd_settle(queue, r > 0);
	return r > 0 ? 0 : r;
}

/* Waits for the queue's batch number `own`; what completes before it goes to the stash. */
static int wait_for_own(struct dmasync_queue *queue, uint32_t own, struct dmasync_completion *ret)
{
	uint32_t kept = queue->stash_count, first = queue->stash_first;
	int r;

	/* Out of sight meanwhile, so that completion_take() reads the ring. */
	queue->stash_count = 0;
	for (;;) {
		/* A new daemon's positions are others, their sum with the shift is the same. */
		uint32_t next = queue->read + queue->shift;

		r = completion_wait(queue, ret, -1);
		if (r == -EINTR)
			continue;
		if (r < 0 || next == own)
			break;
		queue->stash[(first + kept++) & (queue->ring.depth - 1)] = *ret;
	}
	queue->stash_first = first;
	queue->stash_count = kept;
	return r;
}

DMASYNC_PUBLIC int dmasync_sync(struct dmasync_queue *queue, struct dmasync_buffer *buffer,
				enum dmasync_sync sync, enum dmasync_direction direction,
				uint64_t offset, uint64_t length)
{
	struct dmasync_completion completion;
	struct dmasync_batch *batch;
	uint32_t own;
	int r = dmasync_batch_begin(queue, &batch);

	if (r < 0)
		return r;
	dmasync_batch_add(batch, buffer, sync, direction, offset, length);
	own = atomic_load_explicit(&queue->submitted, memory_order_relaxed) + queue->shift;
	r = dmasync_batch_submit(batch, 0);
	if (r < 0)
		return r;
	r = wait_for_own(queue, own, &completion);
	queue_fd_settle(queue, true);
	return r < 0 ? r : completion.status;
}
