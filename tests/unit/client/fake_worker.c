/* SPDX-License-Identifier: MIT */
/*
 * The worker's side of a queue: see fake.h. Called by one thread per queue.
 */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/internal.h"
#include "tests/unit/client/fake.h"

struct fake_queue *fake_queue(struct fake *fake)
{
	assert_true(fake->queue_count > 0);
	return &fake->queue[(fake->queue_count - 1) % FAKE_QUEUES];
}

void fake_share(struct fake_queue *fq, struct dmasync_queue *queue)
{
	fq->ring = queue->ring;
}

bool fake_fetch(struct fake_queue *fq, struct fake_batch *ret)
{
	struct dmasync_submission *s = &ret->submission;
	enum dmasync_ring_poll poll = dmasync_ring_poll_submission(&fq->ring, fq->fetched);

	assert_int_not_equal(poll, DMASYNC_RING_BROKEN);
	if (poll == DMASYNC_RING_EMPTY)
		return false;
	/* Whatever the client has published has room for its result: nobody can get stuck. */
	assert_true(fq->fetched - dmasync_ring_completions_read(&fq->ring) < fq->ring.depth);
	dmasync_ring_copy_submission(&fq->ring, fq->fetched, s);
	ret->position = fq->fetched++;
	ret->units = s->unit_count;
	if (s->unit_count == 0) {
		ret->units = 1;
		ret->unit[0] = s->entry;
		return true;
	}
	assert_true(s->unit_count <= fq->ring.unit_count);
	dmasync_ring_copy_units(&fq->ring, s->unit_position, s->unit_count, fq->mirror);
	for (uint32_t i = 0; i < s->unit_count && i < 64; i++)
		ret->unit[i] = fq->mirror[(s->unit_position + i) & (fq->ring.unit_count - 1)];
	return true;
}

void fake_complete(struct fake_queue *fq, const struct dmasync_ring_completion *completion)
{
	uint32_t room = fq->completed - dmasync_ring_completions_read(&fq->ring);

	assert_true(room < fq->ring.depth);
	dmasync_ring_complete(&fq->ring, fq->completed++, completion);
	if (dmasync_ring_take_sleeper(&fq->ring.header->client_sleeping)) {
		(void)!write(fq->notification_fd, "n", 1);
		atomic_fetch_add(&fq->notifications, 1);
	}
}

void fake_serve(struct fake_queue *fq, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct dmasync_ring_completion completion = {0};
		struct fake_batch batch;

		assert_true(fake_fetch(fq, &batch));
		completion.user_data = batch.submission.user_data;
		completion.entries = batch.units;
		fake_complete(fq, &completion);
	}
}

void fake_say_asleep(struct fake_queue *fq, bool asleep)
{
	if (asleep)
		dmasync_ring_announce_sleep(&fq->page->sleeping);
	else
		dmasync_ring_announce_awake(&fq->page->sleeping);
}

void fake_work(struct fake_queue *fq, uint64_t count, uint32_t looks)
{
	uint32_t idle = 0;

	for (uint64_t done = 0; done < count;) {
		struct pollfd p = {.fd = fq->doorbell_fd, .events = POLLIN};
		struct fake_batch batch;
		char bytes[64];

		if (fake_fetch(fq, &batch)) {
			struct dmasync_ring_completion completion = {
				.user_data = batch.submission.user_data,
				.entries = batch.units,
			};

			fake_complete(fq, &completion);
			done++;
			idle = 0;
			continue;
		}
		if (idle++ < looks)
			continue;
		dmasync_ring_announce_sleep(&fq->page->sleeping);
		if (dmasync_ring_poll_submission(&fq->ring, fq->fetched) == DMASYNC_RING_EMPTY) {
			/* A wake-up that is lost leaves this sleeping: the test's time-out tells.
			 */
			poll(&p, 1, -1);
			if (p.revents & POLLHUP)
				break;
			while (read(fq->doorbell_fd, bytes, sizeof bytes) > 0)
				atomic_fetch_add(&fq->doorbells, 1);
		}
		dmasync_ring_announce_awake(&fq->page->sleeping);
		idle = 0;
	}
}
