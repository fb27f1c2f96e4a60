/* SPDX-License-Identifier: MIT */
/*
 * Client and worker as two threads on one mapping with the real atomics, for ThreadSanitizer: two
 * mappings of one memfd would hide every race from it. Also a plain test of the ring under load.
 */
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/ring_access.h"
#include "tests/lib/rounds.h"

#define DEPTH 8u
#define UNITS 16u

struct shared {
	struct dmasync_ring ring;
	unsigned char *buffer; /* stands for a client's buffer: written before submit */
	uint32_t batches;
	uint32_t wrong_submissions, wrong_units, wrong_data;
};

static uint32_t units_of(uint32_t n)
{
	return n % 4; /* 0: in place */
}

static void fail(const char *what, uint32_t batch)
{
	fprintf(stderr, "threads: %s at batch %u\n", what, batch);
	exit(1);
}

static void *worker(void *context)
{
	struct shared *shared = context;
	struct dmasync_ring *ring = &shared->ring;
	struct dmasync_unit mirror[UNITS];

	for (uint32_t n = 0; n < shared->batches; n++) {
		uint32_t position = DMASYNC_RING_START + n;
		struct dmasync_submission submission;
		enum dmasync_ring_poll poll;

		while ((poll = dmasync_ring_poll_submission(ring, position)) == DMASYNC_RING_EMPTY)
			sched_yield();
		if (poll == DMASYNC_RING_BROKEN)
			fail("broken submission seq", n);
		if (position - dmasync_ring_completions_read(ring) >= DEPTH)
			fail("no room for the completion", n);
		dmasync_ring_copy_submission(ring, position, &submission);
		dmasync_ring_copy_units(ring, submission.unit_position, submission.unit_count,
					mirror);
		if (submission.user_data != n || submission.unit_count != units_of(n))
			shared->wrong_submissions++;
		for (uint32_t i = 0; i < submission.unit_count; i++) {
			uint32_t place = (submission.unit_position + i) & (UNITS - 1);

			if (mirror[place].offset != n || mirror[place].length != i)
				shared->wrong_units++;
		}
		if (shared->buffer[position & (DEPTH - 1)] != (unsigned char)n)
			shared->wrong_data++;

		struct dmasync_ring_completion completion = {
			.user_data = n,
			.lines = n,
			.flags = n % 2 ? DMASYNC_COMPLETION_EXTENDED : 0,
			.batch_id = n,
		};

		dmasync_ring_complete(ring, position, &completion);
		if (dmasync_ring_take_sleeper(&ring->header->client_sleeping))
			sched_yield();
	}
	return NULL;
}

int main(void)
{
	struct dmasync_ring_layout layout;
	struct shared shared = {.batches = (uint32_t)rounds(500000)};
	uint32_t unit_position = DMASYNC_RING_START, submitted = 0, taken = 0;
	pthread_t thread;

	if (!dmasync_ring_layout(DEPTH, UNITS, &layout))
		return 1;
	void *memory = aligned_alloc(DMASYNC_RING_PAGE, layout.size);
	shared.buffer = calloc(DEPTH, 1);
	if (!memory || !shared.buffer)
		return 1;
	memset(memory, 0, layout.size);
	dmasync_ring_attach(&shared.ring, memory, &layout);
	dmasync_ring_initialise(&shared.ring, &layout);
	if (pthread_create(&thread, NULL, worker, &shared) != 0)
		return 1;

	for (uint32_t read = 0; read < shared.batches; read++) {
		struct dmasync_ring_completion completion;
		enum dmasync_ring_poll poll;

		/* At most 4 batches of at most 3 units: the unit ring never overflows. */
		for (; submitted < shared.batches && submitted - read < 4; submitted++) {
			struct dmasync_submission submission = {
				.user_data = submitted,
				.unit_position = unit_position,
				.unit_count = units_of(submitted),
			};

			for (uint32_t i = 0; i < submission.unit_count; i++) {
				struct dmasync_unit unit = {.offset = submitted, .length = i};

				dmasync_ring_write_unit(&shared.ring, unit_position++, &unit);
			}
			shared.buffer[(DMASYNC_RING_START + submitted) & (DEPTH - 1)] =
				(unsigned char)submitted;
			dmasync_ring_submit(&shared.ring, DMASYNC_RING_START + submitted,
					    &submission);
		}
		while ((poll = dmasync_ring_poll_completion(&shared.ring, DMASYNC_RING_START + read,
							    &completion)) == DMASYNC_RING_EMPTY) {
			dmasync_ring_announce_sleep(&shared.ring.header->client_sleeping);
			sched_yield();
			dmasync_ring_announce_awake(&shared.ring.header->client_sleeping);
		}
		if (poll == DMASYNC_RING_BROKEN)
			fail("broken completion seq", read);
		if (completion.user_data != read || completion.lines != read ||
		    completion.batch_id != (read % 2 ? read : 0))
			fail("wrong completion", read);
		taken++;
		dmasync_ring_consume_completion(&shared.ring, DMASYNC_RING_START + read + 1);
	}
	pthread_join(thread, NULL);
	printf("%u batches: %u completions, %u wrong submissions, %u wrong units, %u wrong data\n",
	       shared.batches, taken, shared.wrong_submissions, shared.wrong_units,
	       shared.wrong_data);
	free(shared.buffer);
	free(memory);
	return shared.wrong_submissions || shared.wrong_units || shared.wrong_data;
}
