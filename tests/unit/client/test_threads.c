/* SPDX-License-Identifier: MIT */
/*
 * Client and worker as two threads on one mapping, so that the thread sanitizer sees both: what the
 * client wrote before submit is there for the worker, what the worker wrote before its completion
 * is there for the client, and no wake-up is lost whoever sleeps.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "client/internal.h"
#include "tests/lib/rounds.h"
#include "tests/unit/client/fake.h"

#define DEPTH 16u

enum reader { READER_WAITS, READER_SPINS, READER_POLLS, READER_PEEKS };

struct race {
	struct fake_queue *fq;
	uint64_t batches;
	uint32_t looks;
	/* Plain memory: ordered by the ring alone. */
	uint64_t to_worker[DEPTH], to_client[DEPTH];
};

/* Serves like fake_work(), and carries a payload beside the ring both ways. */
static void *work(void *argument)
{
	struct race *race = argument;
	struct fake_queue *fq = race->fq;
	uint32_t idle = 0;

	for (uint64_t done = 0; done < race->batches;) {
		struct pollfd p = {.fd = fq->doorbell_fd, .events = POLLIN};
		struct fake_batch batch;
		char bytes[64];

		if (fake_fetch(fq, &batch)) {
			struct dmasync_ring_completion completion = {
				.user_data = batch.submission.user_data,
				.entries = batch.units,
			};

			assert_true(batch.submission.user_data == done);
			assert_true(race->to_worker[done % DEPTH] == done * 3);
			for (uint32_t i = 0; i < batch.units; i++)
				assert_true(batch.unit[i].offset == done % 4096);
			race->to_client[done % DEPTH] = done * 5;
			fake_complete(fq, &completion);
			done++;
			idle = 0;
		} else if (idle++ >= race->looks) {
			dmasync_ring_announce_sleep(&fq->page->sleeping);
			if (dmasync_ring_poll_submission(&fq->ring, fq->fetched) ==
			    DMASYNC_RING_EMPTY) {
				poll(&p, 1, -1);
				while (read(fq->doorbell_fd, bytes, sizeof bytes) > 0)
					;
			}
			dmasync_ring_announce_awake(&fq->page->sleeping);
			idle = 0;
		}
	}
	return NULL;
}

static int next(struct dmasync_queue *queue, enum reader reader, struct dmasync_completion *c)
{
	struct pollfd p = {.events = POLLIN};
	int r;

	switch (reader) {
	case READER_WAITS:
	case READER_SPINS:
		return dmasync_wait(queue, c, -1);
	case READER_POLLS:
		p.fd = dmasync_queue_fd(queue);
		while ((r = dmasync_peek(queue, c)) == 0)
			poll(&p, 1, -1);
		return r == 1 ? 0 : r;
	case READER_PEEKS:
		while ((r = dmasync_peek(queue, c)) == 0)
			sched_yield();
		return r == 1 ? 0 : r;
	}
	return -EINVAL;
}

static void run(enum reader reader, uint32_t in_flight, uint32_t looks)
{
	struct fake *fake = fake_start();
	struct dmasync *ds = fake_connect(fake);
	struct dmasync_queue *queue =
		fake_queue_create(ds, DEPTH, 32, reader == READER_SPINS ? 50 : 0);
	struct dmasync_buffer *buffer = fake_buffer(ds, 8192);
	struct race race = {.fq = fake_queue(fake), .batches = rounds(20000), .looks = looks};
	uint64_t submitted = 0, read = 0;
	pthread_t thread;

	fake_share(race.fq, queue);
	assert_int_equal(pthread_create(&thread, NULL, work, &race), 0);
	while (read < race.batches) {
		struct dmasync_completion c;
		struct dmasync_batch *batch;

		if (submitted < race.batches && submitted - read < in_flight) {
			uint64_t entries = submitted % 2 ? 1 : 2;

			assert_int_equal(dmasync_batch_begin(queue, &batch), 0);
			for (uint64_t i = 0; i < entries; i++)
				assert_int_equal(dmasync_batch_add(batch, buffer, DMASYNC_FOR_CPU,
								   DMASYNC_FROM_DEVICE,
								   submitted % 4096, 64),
						 0);
			race.to_worker[submitted % DEPTH] = submitted * 3;
			assert_int_equal(dmasync_batch_submit(batch, submitted), 0);
			submitted++;
			continue;
		}
		assert_int_equal(next(queue, reader, &c), 0);
		assert_true(c.user_data == read);
		assert_int_equal(c.entries, read % 2 ? 1 : 2);
		assert_true(race.to_client[read % DEPTH] == read * 5);
		read++;
	}
	pthread_join(thread, NULL);
	dmasync_buffer_destroy(buffer);
	dmasync_queue_destroy(queue);
	dmasync_disconnect(ds);
	fake_stop(fake);
}

static void both_sleep(void **state)
{
	(void)state;
	run(READER_WAITS, 1, 0);
	run(READER_WAITS, DEPTH, 0);
}

static void one_spins(void **state)
{
	(void)state;
	run(READER_SPINS, 1, 0);
	run(READER_WAITS, 1, 200);
	run(READER_SPINS, DEPTH, 200);
}

static void an_event_loop(void **state)
{
	(void)state;
	run(READER_POLLS, 1, 0);
	run(READER_POLLS, DEPTH, 0);
}

static void a_peeker(void **state)
{
	(void)state;
	run(READER_PEEKS, 3, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		fake_test(both_sleep),
		fake_test(one_spins),
		fake_test(an_event_loop),
		fake_test(a_peeker),
	};

	return cmocka_run_group_tests_name("client threads", tests, NULL, NULL);
}
