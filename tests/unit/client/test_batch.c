/* SPDX-License-Identifier: MIT */
/*
 * Batches as the worker finds them in the ring, every error of add, and the ring's limits.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "client/internal.h"
#include "tests/unit/client/bench.h"

#define BYTES UINT64_C(0x10000)

static int add(struct bench *b, struct dmasync_batch *batch, uint64_t offset, uint64_t length)
{
	return dmasync_batch_add(batch, b->buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, offset,
				 length);
}

static struct dmasync_batch *begin(struct bench *b)
{
	struct dmasync_batch *batch = NULL;

	assert_int_equal(dmasync_batch_begin(b->queue, &batch), 0);
	return batch;
}

/* One batch of `entries` plain entries. */
static void submit(struct bench *b, uint32_t entries, uint64_t user_data)
{
	struct dmasync_batch *batch = begin(b);

	for (uint32_t i = 0; i < entries; i++)
		assert_int_equal(add(b, batch, i * 64, 64), 0);
	assert_int_equal(dmasync_batch_submit(batch, user_data), 0);
}

static void reap(struct bench *b, uint64_t user_data)
{
	struct dmasync_completion completion;

	assert_int_equal(dmasync_peek(b->queue, &completion), 1);
	assert_true(completion.user_data == user_data);
}

static void one_plain_entry_travels_in_the_submission(void **state)
{
	struct bench b = bench_start(4, 8, BYTES, 0);
	struct dmasync_batch *batch = begin(&b);
	struct fake_batch seen;
	int64_t before = now_ns();

	(void)state;
	assert_false(fake_fetch(b.fq, &seen));
	assert_int_equal(dmasync_batch_add(batch, b.buffer, DMASYNC_FOR_DEVICE,
					   DMASYNC_BIDIRECTIONAL, 0x1234, 0x88),
			 0);
	assert_false(fake_fetch(b.fq, &seen));
	assert_int_equal(dmasync_batch_submit(batch, UINT64_C(0xfedcba9876543210)), 0);
	assert_true(fake_fetch(b.fq, &seen));
	assert_int_equal(seen.position, DMASYNC_RING_START);
	assert_int_equal(seen.submission.unit_count, 0);
	assert_int_equal(seen.submission.flags, 0);
	assert_true(seen.submission.user_data == UINT64_C(0xfedcba9876543210));
	assert_true((int64_t)seen.submission.submit_ns >= before);
	assert_true((int64_t)seen.submission.submit_ns <= now_ns());
	assert_int_equal(seen.submission.entry.word,
			 dmasync_unit_word(1, DMASYNC_FOR_DEVICE, DMASYNC_BIDIRECTIONAL, 0));
	assert_true(seen.submission.entry.offset == 0x1234);
	assert_int_equal(seen.submission.entry.length, 0x88);
	assert_int_equal(seen.submission.deadline_us | seen.submission.reserved[0] |
				 seen.submission.reserved[1],
			 0);
	fake_complete(b.fq,
		      &(struct dmasync_ring_completion){.user_data = UINT64_C(0xfedcba9876543210)});
	reap(&b, UINT64_C(0xfedcba9876543210));
	bench_stop(&b);
}

static void more_entries_use_units(void **state)
{
	struct bench b = bench_start(4, 8, BYTES, 0);
	struct dmasync_batch *batch = begin(&b);
	struct dmasync_unit_rows rows;
	struct fake_batch seen;

	(void)state;
	assert_int_equal(add(&b, batch, 0, 1), 0);
	assert_int_equal(dmasync_batch_add_rows(batch, b.buffer, DMASYNC_FOR_CPU,
						DMASYNC_FROM_DEVICE, 64, 32, 3, 4096),
			 0);
	assert_int_equal(add(&b, batch, 2, 0), 0);
	assert_int_equal(dmasync_batch_submit(batch, 1), 0);
	assert_true(fake_fetch(b.fq, &seen));
	assert_int_equal(seen.submission.unit_count, 4);
	assert_int_equal(seen.submission.unit_position, DMASYNC_RING_START);
	assert_int_equal(seen.submission.entry.word, 0);
	assert_true(seen.submission.entry.offset == 0);
	assert_true(seen.unit[0].offset == 0);
	assert_int_equal(seen.unit[0].length, 1);
	assert_int_equal(seen.unit[1].word,
			 dmasync_unit_word(1, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 1));
	assert_true(seen.unit[1].offset == 64);
	assert_int_equal(seen.unit[1].length, 32);
	memcpy(&rows, &seen.unit[2], sizeof rows);
	assert_int_equal(rows.rows, 3);
	assert_int_equal(rows.reserved, 0);
	assert_true(rows.stride == 4096);
	assert_int_equal(seen.unit[3].length, 0);
	fake_complete(b.fq, &(struct dmasync_ring_completion){.user_data = 1});
	reap(&b, 1);

	/* A lone strided entry has its two units in the ring as well; one row is a plain entry. */
	batch = begin(&b);
	assert_int_equal(dmasync_batch_add_rows(batch, b.buffer, DMASYNC_FOR_CPU,
						DMASYNC_FROM_DEVICE, 64, 32, 2, 32),
			 0);
	assert_int_equal(dmasync_batch_submit(batch, 2), 0);
	assert_true(fake_fetch(b.fq, &seen));
	assert_int_equal(seen.submission.unit_count, 2);
	assert_int_equal(seen.submission.unit_position, DMASYNC_RING_START + 4);
	fake_complete(b.fq, &(struct dmasync_ring_completion){.user_data = 2});
	reap(&b, 2);
	batch = begin(&b);
	assert_int_equal(dmasync_batch_add_rows(batch, b.buffer, DMASYNC_FOR_CPU,
						DMASYNC_FROM_DEVICE, 64, 32, 1, 0),
			 0);
	assert_int_equal(dmasync_batch_submit(batch, 3), 0);
	assert_true(fake_fetch(b.fq, &seen));
	assert_int_equal(seen.submission.unit_count, 0);
	assert_int_equal(seen.submission.entry.word & DMASYNC_UNIT_STRIDED, 0);
	fake_complete(b.fq, &(struct dmasync_ring_completion){.user_data = 3});
	reap(&b, 3);
	bench_stop(&b);
}

static void a_list_is_its_ranges(void **state)
{
	const struct dmasync_range list[] = {{64, 1}, {0, 0}, {4096, 128}};
	struct bench b = bench_start(4, 8, BYTES, 0);
	struct dmasync_batch *batch = begin(&b);
	struct fake_batch seen;

	(void)state;
	assert_int_equal(add(&b, batch, 7, 9), 0);
	assert_int_equal(dmasync_batch_add_ranges(batch, b.buffer, DMASYNC_FOR_CPU,
						  DMASYNC_FROM_DEVICE, list, 3),
			 0);
	assert_int_equal(dmasync_batch_add_ranges(batch, b.buffer, DMASYNC_FOR_CPU,
						  DMASYNC_FROM_DEVICE, list, 0),
			 0);
	assert_int_equal(dmasync_batch_submit(batch, 1), 0);
	assert_true(fake_fetch(b.fq, &seen));
	assert_int_equal(seen.submission.unit_count, 4);
	assert_true(seen.unit[0].offset == 7 && seen.unit[0].length == 9);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(seen.unit[i + 1].word,
				 dmasync_unit_word(1, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0));
		assert_true(seen.unit[i + 1].offset == list[i].offset);
		assert_true(seen.unit[i + 1].length == list[i].length);
	}
	fake_complete(b.fq, &(struct dmasync_ring_completion){.user_data = 1});
	reap(&b, 1);

	/* A list of one travels inside its submission. */
	batch = begin(&b);
	assert_int_equal(dmasync_batch_add_ranges(batch, b.buffer, DMASYNC_FOR_CPU,
						  DMASYNC_FROM_DEVICE, list, 1),
			 0);
	assert_int_equal(dmasync_batch_submit(batch, 2), 0);
	assert_true(fake_fetch(b.fq, &seen));
	assert_int_equal(seen.submission.unit_count, 0);
	assert_true(seen.submission.entry.offset == 64);
	fake_complete(b.fq, &(struct dmasync_ring_completion){.user_data = 2});
	reap(&b, 2);
	bench_stop(&b);
}

static void a_bad_list_fails_the_batch(void **state)
{
	static const struct {
		struct dmasync_range bad;
		int error;
	} cases[] = {
		{{UINT64_MAX, 2}, -EOVERFLOW},
		{{0, UINT64_MAX}, -ERANGE},
		{{UINT64_C(1) << 40, 1}, -ERANGE},
	};
	struct bench b = bench_start(4, 8, BYTES, 0);
	struct dmasync_range list[9] = {{0}};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct dmasync_batch *batch = begin(&b);

		list[2] = cases[i].bad;
		assert_int_equal(dmasync_batch_add_ranges(batch, b.buffer, DMASYNC_FOR_CPU,
							  DMASYNC_FROM_DEVICE, list, 3),
				 cases[i].error);
		assert_int_equal(dmasync_batch_submit(batch, 0), cases[i].error);
	}
	list[2] = (struct dmasync_range){0};
	for (size_t count = 8; count <= 9; count++) {
		struct dmasync_batch *batch = begin(&b);

		assert_int_equal(dmasync_batch_add_ranges(batch, b.buffer, DMASYNC_FOR_CPU,
							  DMASYNC_FROM_DEVICE, list, count),
				 count == 8 ? 0 : -EMSGSIZE);
		dmasync_batch_abort(batch);
	}
	bench_stop(&b);
}

/* Each error is returned at once, kept, and returned by submit; the ring is untouched. */
static void every_error_of_add(void **state)
{
	struct bench b = bench_start(4, 8, BYTES, 0);
	struct dmasync *other_ds = NULL;
	struct fake *other = fake_start();
	struct dmasync_buffer *foreign;
	const struct {
		enum dmasync_sync sync;
		enum dmasync_direction direction;
		uint64_t offset, length;
		int error;
	} plain[] = {
		{(enum dmasync_sync)0, DMASYNC_TO_DEVICE, 0, 1, -EINVAL},
		{(enum dmasync_sync)3, DMASYNC_TO_DEVICE, 0, 1, -EINVAL},
		{DMASYNC_FOR_CPU, (enum dmasync_direction)0, 0, 1, -EINVAL},
		{DMASYNC_FOR_CPU, (enum dmasync_direction)4, 0, 1, -EINVAL},
		{DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE, BYTES, 1, -ERANGE},
		{DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE, BYTES - 1, 2, -ERANGE},
		{DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE, BYTES + 1, 0, -ERANGE},
		{DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE, 0, BYTES + 1, -ERANGE},
		{DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE, 0, UINT64_C(1) << 32, -ERANGE},
		{DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE, UINT64_MAX, 1, -EOVERFLOW},
		{DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE, 1, UINT64_MAX, -EOVERFLOW},
	};
	const struct {
		uint64_t offset, length, rows, stride;
		int error;
	} strided[] = {
		{0, 64, 0, 64, -EINVAL},
		{0, 64, 2, 63, -EINVAL},
		{0, 64, UINT64_C(1) << 32, 64, -EOVERFLOW},
		{0, 64, 2, UINT64_MAX, -EOVERFLOW},
		{0, 64, UINT32_MAX, UINT64_C(1) << 40, -EOVERFLOW},
		{UINT64_MAX, 64, 2, 64, -EOVERFLOW},
		{0, UINT64_C(1) << 32, 2, UINT64_C(1) << 32, -EOVERFLOW},
		{0, 64, 1025, 64, -ERANGE},
		{1, 64, 1024, 64, -ERANGE},
		{0, 64, 2, BYTES - 63, -ERANGE},
		{0, 0, UINT32_MAX, 1, -ERANGE},
	};
	struct fake_batch seen;

	(void)state;
	other_ds = fake_connect(other);
	foreign = fake_buffer(other_ds, 4096);
	for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
		struct dmasync_batch *batch = begin(&b);

		assert_int_equal(add(&b, batch, 0, 64), 0);
		assert_int_equal(dmasync_batch_add(batch, b.buffer, plain[i].sync,
						   plain[i].direction, plain[i].offset,
						   plain[i].length),
				 plain[i].error);
		assert_int_equal(add(&b, batch, 0, 64), plain[i].error);
		assert_int_equal(dmasync_batch_submit(batch, 0), plain[i].error);
		assert_int_equal(dmasync_batch_submit(batch, 0), -EINVAL);
	}
	for (size_t i = 0; i < sizeof strided / sizeof *strided; i++) {
		struct dmasync_batch *batch = begin(&b);

		assert_int_equal(dmasync_batch_add_rows(batch, b.buffer, DMASYNC_FOR_CPU,
							DMASYNC_FROM_DEVICE, strided[i].offset,
							strided[i].length, strided[i].rows,
							strided[i].stride),
				 strided[i].error);
		assert_int_equal(dmasync_batch_submit(batch, 0), strided[i].error);
	}
	for (int i = 0; i < 2; i++) {
		struct dmasync_batch *batch = begin(&b);

		assert_int_equal(dmasync_batch_add(batch, i ? foreign : NULL, DMASYNC_FOR_CPU,
						   DMASYNC_FROM_DEVICE, 0, 1),
				 -EINVAL);
		dmasync_batch_abort(batch);
		assert_int_equal(add(&b, batch, 0, 64), -EINVAL);
	}
	assert_int_equal(dmasync_batch_submit(begin(&b), 0), -EINVAL);
	assert_false(fake_fetch(b.fq, &seen));
	/* The very ends of the buffer are fine. */
	{
		struct dmasync_batch *batch = begin(&b);

		assert_int_equal(add(&b, batch, 0, BYTES), 0);
		assert_int_equal(add(&b, batch, BYTES, 0), 0);
		assert_int_equal(dmasync_batch_add_rows(batch, b.buffer, DMASYNC_FOR_CPU,
							DMASYNC_FROM_DEVICE, 0, 64, 1024, 64),
				 0);
		dmasync_batch_abort(batch);
		dmasync_batch_abort(NULL);
	}
	dmasync_buffer_destroy(foreign);
	dmasync_disconnect(other_ds);
	fake_stop(other);
	bench_stop(&b);
}

static void no_strided_entries_without_the_feature(void **state)
{
	struct fake *fake = fake_start();
	struct dmasync_queue *queue;
	struct dmasync_batch *batch;
	struct dmasync_buffer *buffer;
	struct dmasync *ds;

	(void)state;
	atomic_store(&fake->features, 0);
	ds = fake_connect(fake);
	queue = fake_queue_create(ds, 2, 2, 0);
	buffer = fake_buffer(ds, 4096);
	assert_int_equal(dmasync_batch_begin(queue, &batch), 0);
	assert_int_equal(dmasync_batch_add_rows(batch, buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE,
						0, 1, 2, 64),
			 -EOPNOTSUPP);
	assert_int_equal(dmasync_batch_submit(batch, 0), -EOPNOTSUPP);
	dmasync_buffer_destroy(buffer);
	dmasync_queue_destroy(queue);
	dmasync_disconnect(ds);
	fake_stop(fake);
}

static void the_ring_is_full(void **state)
{
	struct bench b = bench_start(4, 8, BYTES, 0);
	struct dmasync_batch *batch, *other;

	(void)state;
	batch = begin(&b);
	assert_int_equal(dmasync_batch_begin(b.queue, &other), -EBUSY);
	dmasync_batch_abort(batch);
	for (uint64_t i = 0; i < 4; i++)
		submit(&b, 1, i);
	assert_int_equal(dmasync_batch_begin(b.queue, &batch), -EAGAIN);
	/* A completion that is there but unread gives nothing back. */
	fake_serve(b.fq, 4);
	assert_int_equal(dmasync_batch_begin(b.queue, &batch), -EAGAIN);
	for (uint64_t i = 0; i < 4; i++) {
		reap(&b, i);
		submit(&b, 1, 10 + i);
		assert_int_equal(dmasync_batch_begin(b.queue, &batch), -EAGAIN);
	}
	fake_serve(b.fq, 4);
	for (uint64_t i = 0; i < 4; i++)
		reap(&b, 10 + i);
	bench_stop(&b);
}

static void units_are_full(void **state)
{
	struct bench b = bench_start(4, 8, BYTES, 0);
	struct dmasync_batch *batch = begin(&b);

	(void)state;
	/* More than the queue has, ever. */
	for (int i = 0; i < 8; i++)
		assert_int_equal(add(&b, batch, 0, 64), 0);
	assert_int_equal(add(&b, batch, 0, 64), -EMSGSIZE);
	assert_int_equal(dmasync_batch_submit(batch, 0), -EMSGSIZE);
	batch = begin(&b);
	for (int i = 0; i < 7; i++)
		assert_int_equal(add(&b, batch, 0, 64), 0);
	assert_int_equal(dmasync_batch_add_rows(batch, b.buffer, DMASYNC_FOR_CPU,
						DMASYNC_FROM_DEVICE, 0, 1, 2, 64),
			 -EMSGSIZE);
	dmasync_batch_abort(batch);

	/* More than are free now. A failed batch has given its own back. */
	submit(&b, 5, 1);
	batch = begin(&b);
	for (int i = 0; i < 3; i++)
		assert_int_equal(add(&b, batch, 0, 64), 0);
	assert_int_equal(add(&b, batch, 0, 64), -EAGAIN);
	assert_int_equal(dmasync_batch_submit(batch, 0), -EAGAIN);
	submit(&b, 3, 2);
	/* No unit is left, and a batch of one plain entry needs none. */
	submit(&b, 1, 3);
	fake_serve(b.fq, 3);
	reap(&b, 1);
	submit(&b, 5, 4);
	reap(&b, 2);
	reap(&b, 3);
	fake_serve(b.fq, 1);
	reap(&b, 4);
	bench_stop(&b);
}

/* Positions, slots and units cross 2^32, with batches of every size in every place. */
static void positions_wrap(void **state)
{
	struct bench b = bench_start(4, 8, BYTES, 0);
	uint64_t submitted = 0, read = 0;
	uint32_t in_flight = 0, units = 0, sizes[4] = {0};

	(void)state;
	while (read < 2000) {
		uint32_t entries = (uint32_t)(submitted * 7 % 5) + 1;
		uint32_t need = entries == 1 ? 0 : entries;
		struct fake_batch seen;

		if (in_flight < 4 && units + need <= 8) {
			struct dmasync_batch *batch = begin(&b);

			for (uint32_t i = 0; i < entries; i++)
				assert_int_equal(add(&b, batch, submitted % 1000, i), 0);
			assert_int_equal(dmasync_batch_submit(batch, submitted), 0);
			sizes[submitted++ % 4] = need;
			units += need;
			in_flight++;
			continue;
		}
		assert_true(fake_fetch(b.fq, &seen));
		assert_int_equal(seen.units, read * 7 % 5 + 1);
		for (uint32_t i = 0; i < seen.units; i++) {
			assert_true(seen.unit[i].offset == read % 1000);
			assert_int_equal(seen.unit[i].length, i);
		}
		fake_complete(b.fq, &(struct dmasync_ring_completion){.user_data = read});
		reap(&b, read);
		units -= sizes[read++ % 4];
		in_flight--;
	}
	assert_true(b.queue->read < DMASYNC_RING_START); /* it did */
	assert_true(b.queue->unit_head < DMASYNC_RING_START);
	while (in_flight--) {
		fake_serve(b.fq, 1);
		reap(&b, read++);
	}
	bench_stop(&b);
}

/* The worker's page says whether the doorbell is rung. */
static void the_doorbell_is_for_sleepers(void **state)
{
	struct bench b = bench_start(4, 8, BYTES, 0);
	char bytes[8];

	(void)state;
	submit(&b, 1, 0);
	assert_int_equal(read(b.fq->doorbell_fd, bytes, sizeof bytes), -1);
	fake_say_asleep(b.fq, true);
	submit(&b, 1, 1);
	assert_int_equal(read(b.fq->doorbell_fd, bytes, sizeof bytes), 1);
	fake_say_asleep(b.fq, false);
	submit(&b, 2, 2);
	assert_int_equal(read(b.fq->doorbell_fd, bytes, sizeof bytes), -1);
	fake_serve(b.fq, 3);
	for (uint64_t i = 0; i < 3; i++)
		reap(&b, i);
	bench_stop(&b);
}

/*
 * The line of completions_read is written once per depth batches where few are in flight, and
 * always before a submission that would find no room (fake_fetch asserts that).
 */
static void reading_is_published_lazily(void **state)
{
	struct bench b = bench_start(8, 8, BYTES, 0);
	uint32_t changes = 0, last = DMASYNC_RING_START;

	(void)state;
	for (uint64_t i = 0; i < 64; i++) {
		uint32_t now;

		submit(&b, 1, i);
		fake_serve(b.fq, 1);
		reap(&b, i);
		now = dmasync_ring_completions_read(&b.fq->ring);
		changes += now != last;
		last = now;
	}
	assert_int_equal(changes, 7);
	bench_stop(&b);
}

static void parameters(void **state)
{
	struct fake *fake = fake_start();
	struct dmasync *ds = fake_connect(fake);
	static const uint32_t wrong[][2] = {
		{0, 8}, {1, 8}, {3, 8}, {8192, 8},   {UINT32_C(1) << 31, 8},
		{4, 0}, {4, 1}, {4, 7}, {4, 262144},
	};
	struct dmasync_queue_params params;
	struct dmasync_queue *queue = NULL;
	char text[256];

	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		dmasync_queue_params_init(&params);
		params.depth = wrong[i][0];
		params.units = wrong[i][1];
		assert_int_equal(dmasync_queue_create(ds, &params, &queue), -EINVAL);
		dmasync_error_text(ds, text, sizeof text);
		assert_non_null(strstr(text, "2 to 4096"));
	}
	dmasync_queue_params_init(&params);
	params.flags = 1;
	assert_int_equal(dmasync_queue_create(ds, &params, &queue), -EINVAL);
	dmasync_queue_params_init(&params);
	params.klass = (enum dmasync_class)3;
	assert_int_equal(dmasync_queue_create(ds, &params, &queue), -EINVAL);
	dmasync_queue_params_init(&params);
	params.spin_us = 1000001;
	assert_int_equal(dmasync_queue_create(ds, &params, &queue), -EINVAL);
	dmasync_queue_params_init(&params);
	params.size = 0;
	assert_int_equal(dmasync_queue_create(ds, &params, &queue), -EINVAL);
	assert_null(queue);
	assert_int_equal(fake_requests(fake, DMASYNC_OP_QUEUE_CREATE), 0);
	dmasync_queue_destroy(NULL);
	dmasync_disconnect(ds);
	fake_stop(fake);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		fake_test(one_plain_entry_travels_in_the_submission),
		fake_test(more_entries_use_units),
		fake_test(a_list_is_its_ranges),
		fake_test(a_bad_list_fails_the_batch),
		fake_test(every_error_of_add),
		fake_test(no_strided_entries_without_the_feature),
		fake_test(the_ring_is_full),
		fake_test(units_are_full),
		fake_test(positions_wrap),
		fake_test(the_doorbell_is_for_sleepers),
		fake_test(reading_is_published_lazily),
		fake_test(parameters),
	};

	return cmocka_run_group_tests_name("client batch", tests, NULL, NULL);
}
