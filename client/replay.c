/* SPDX-License-Identifier: MIT */
/*
 * A queue's way to a new daemon: what the old one had completed is read, the rest is submitted
 * again from the old ring. The queue's thread; reconnect.c has the connection's part.
 *
 * Why each batch reaches the application exactly once, wherever the daemon dies. What is published
 * is published by the store-release of its slot's seq and nothing else: a death before it (at the
 * fetch, in mid-issue, after the barrier, with the slot half written) leaves a batch that is
 * submitted again, which may repeat operations, and they are idempotent; a death after it (before
 * the wake as well) leaves a completion that is read from the old ring, and its batch is not
 * submitted again. A queue is FIFO, so what is published is a prefix of what is in flight. The look
 * that divides the two comes after the notification pipe has hung up: the daemon's end is closed
 * by the end of its process, or once the worker has let go of the queue, and then nobody publishes
 * any more. So the look is final.
 */
#include <poll.h>
#include <stdlib.h>

#include "client/inline.h"
#include "client/internal.h"

/*
 * So many daemons in a row may go while the same batch is the first of its queue. More, and it may
 * be the batch that kills them, for everybody.
 */
#define ATTEMPTS_MAX 16

#define PAUSE_FIRST_NS 200000
#define PAUSE_LAST_NS 50000000

static void attach_later(struct dmasync_queue *queue)
{
	int64_t pause = queue->attach_pause_ns ? queue->attach_pause_ns : PAUSE_FIRST_NS;

	queue->next_attach_ns = now_ns() + pause;
	queue->attach_pause_ns = pause < PAUSE_LAST_NS / 2 ? pause * 2 : PAUSE_LAST_NS;
}

int64_t queue_next_look(struct dmasync_queue *queue)
{
	/* A step that another thread is doing ends we know not when. */
	int64_t soon = now_ns() + PAUSE_FIRST_NS, when;

	if (life_is_up(control_life(queue->ds)))
		when = queue->next_attach_ns;
	else
		when = atomic_load_explicit(&queue->ds->next_look_ns, memory_order_relaxed);
	return when > soon ? when : soon;
}

/* Has the old worker let go of the queue? Not yet for a daemon that lives and has much to do. */
static bool let_go(const struct dmasync_queue *queue)
{
	struct pollfd p = {.fd = queue->notification_fd};

	return poll(&p, 1, 0) == 1 && p.revents & POLLHUP;
}

static uint32_t in_flight(const struct dmasync_queue *queue)
{
	return atomic_load_explicit(&queue->submitted, memory_order_relaxed) - queue->read;
}

/*
 * Everything in flight into the new ring, oldest first, and the units of an open batch. Handles are
 * the same as before, so units are copied as they stand, to the places they had.
 */
static void submit_again(struct dmasync_queue *queue, struct dmasync_ring *ring,
			 struct client_slot *slots)
{
	uint32_t units = queue->unit_head - queue->unit_tail, count = in_flight(queue);
	int64_t now = now_ns();

	if (queue->batch.open)
		units += queue->batch.units;
	dmasync_ring_copy_units(&queue->ring, queue->unit_tail, units, ring->units);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t from = queue->read + i, to = DMASYNC_RING_START + i;
		const struct client_slot *old = &queue->slots[from & (ring->depth - 1)];
		struct client_slot *slot = &slots[to & (ring->depth - 1)];
		struct dmasync_submission submission;

		dmasync_ring_copy_submission(&queue->ring, from, &submission);
		/* What is known here is not taken from the ring: the old daemon could write there.
		 */
		slot->unit_end = old->unit_end;
		slot->user_data = submission.user_data = old->user_data;
		slot->submit_ns = (uint64_t)now;
		slot->late_ns = now - (int64_t)old->submit_ns;
		if (i < queue->replayed)
			slot->late_ns += old->late_ns;
		/* The daemon does not believe in times before the queue was made. */
		submission.submit_ns = (uint64_t)now;
		dmasync_ring_submit(ring, to, &submission);
	}
}

/* From here on the queue is the new daemon's. */
static void move(struct dmasync_queue *queue, const struct queue_ends *ends,
		 struct client_slot *slots)
{
	struct dmasync *ds = queue->ds;
	struct client_slot *old_slots = queue->slots;
	struct queue_ends old;
	uint32_t count = in_flight(queue);

	queue_fd_leave(queue);
	queue_ends_of(queue, &old);
	/* queues_drain() of other threads looks at these. */
	pthread_mutex_lock(&ds->queues_lock);
	queue_ends_set(queue, ends);
	queue->shift += queue->read - DMASYNC_RING_START;
	atomic_store_explicit(&queue->submitted, DMASYNC_RING_START + count, memory_order_release);
	pthread_mutex_unlock(&ds->queues_lock);
	queue->slots = slots;
	queue->read = queue->read_published = DMASYNC_RING_START;
	queue->attempts = queue->replayed ? queue->attempts + 1 : count != 0;
	queue->replayed = count;
	queue->notify_armed = false;
	queue->next_check_ns = queue->next_attach_ns = queue->attach_pause_ns = 0;
	atomic_fetch_add_explicit(&ds->replayed, count, memory_order_relaxed);
	queue_ends_free(&old);
	free(old_slots);
	if (queue->in_process) {
		if (!inline_worker_run(queue->in_process))
			queue->error = -EPROTO;
	} else if (count &&
		   dmasync_ring_wants_doorbell(&queue->ring, &queue->worker_page->sleeping)) {
		doorbell_ring(queue);
	}
}

/* `life` 0: to the library itself. 1, 0: later, or an error that has ended the connection. */
static int attach(struct dmasync_queue *queue, uint32_t life)
{
	struct dmasync *ds = queue->ds;
	struct dmasync_ring_layout layout;
	struct client_slot *slots = calloc(queue->ring.depth, sizeof *slots);
	struct queue_ends ends;
	int r = slots ? 0 : -ENOMEM;

	if (r == 0 && !dmasync_ring_layout(queue->ring.depth, queue->ring.unit_count, &layout))
		r = -EINVAL;
	if (r == 0 && life)
		r = queue_ends_create(ds, life, &layout, queue->klass, &ends);
	else if (r == 0)
		r = queue_ends_create_inline(ds, &layout, &ends);
	if (r == 0) {
		submit_again(queue, &ends.ring, slots);
		move(queue, &ends, slots);
		return 1;
	}
	free(slots);
	/* With a side of our own to stay on, a daemon's refusal is no end. */
	if (reconnect_may_pass(r) || ds->fallback) {
		attach_later(queue);
		return 0;
	}
	return control_end(ds, r);
}

int queue_recover(struct dmasync_queue *queue)
{
	struct dmasync *ds = queue->ds;
	uint32_t life;
	int r;

	if (queue->error)
		return queue->error;
	r = reconnect_step(ds);
	if (r < 0) {
		if (!(ds->flags & DMASYNC_NO_RECONNECT))
			queue->lost = LOST_ALL;
		return r;
	}
	life = control_life(ds);
	if (r == 0 || !life_is_up(life)) {
		if (!reconnect_falls_back(ds))
			return 0;
		life = 0;
	}
	if (life ? queue->life == life && !queue->in_process : queue->in_process != NULL)
		return 1;
	if (now_ns() < queue->next_attach_ns)
		return 0;
	if (!queue->in_process && !let_go(queue)) {
		attach_later(queue);
		return 0;
	}
	if (in_flight(queue) && dmasync_ring_completion_reached(&queue->ring, queue->read))
		return 0; /* to be read first */
	if (queue->attempts >= ATTEMPTS_MAX) {
		queue->lost = LOST_FIRST;
		return 0;
	}
	r = attach(queue, life);
	if (r < 0) {
		queue->lost = LOST_ALL;
		reconnect_step(ds); /* tells the callback */
	}
	return r < 0 ? -ECONNRESET : r;
}

int queue_take_lost(struct dmasync_queue *queue, struct dmasync_completion *ret)
{
	const struct client_slot *slot = &queue->slots[queue->read & (queue->ring.depth - 1)];

	*ret = (struct dmasync_completion){
		.user_data = slot->user_data,
		.status = -ECONNRESET,
		.bad_entry = DMASYNC_NO_ENTRY,
		.reason = queue->lost == LOST_FIRST ? DMASYNC_REASON_REPLAYED_TOO_OFTEN
						    : DMASYNC_REASON_DAEMON_LOST,
	};
	if (queue->replayed)
		queue_mark_replayed(queue, ret);
	if (queue->lost == LOST_FIRST)
		queue->lost = LOST_NONE;
	queue->unit_tail = slot->unit_end;
	queue->read++;
	return 1;
}

void queue_mark_replayed(struct dmasync_queue *queue, struct dmasync_completion *completion)
{
	const struct client_slot *slot = &queue->slots[queue->read & (queue->ring.depth - 1)];

	completion->flags |= DMASYNC_COMPLETION_REPLAYED;
	if (completion->status == 0)
		completion->queued_ns += (uint64_t)slot->late_ns;
	queue->replayed--;
	queue->attempts = 0;
}

void queue_choose_side(struct dmasync_queue *queue)
{
	struct dmasync *ds = queue->ds;
	uint32_t life = control_life(ds);

	if (life_is_up(life)) {
		if (queue->life == life && !queue->in_process)
			return;
	} else if (queue->in_process &&
		   now_ns() < atomic_load_explicit(&ds->next_look_ns, memory_order_relaxed)) {
		return; /* the daemon is looked for now and then, not with every batch */
	}
	queue_recover(queue);
	/* A submit tells nobody by itself: who polls must be watching the new ends by then. */
	queue_fd_settle(queue, false);
}
