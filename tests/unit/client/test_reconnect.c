/* SPDX-License-Identifier: MIT */
/*
 * A daemon that goes and another that comes, both fakes: what is handed out, what is submitted
 * again, who may take over, what the application is told.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "client/internal.h"
#include "tests/unit/client/bench.h"

#define PATIENCE_NS INT64_C(10000000000)

static struct dmasync *connect_for_ever(struct fake *fake, uint32_t give_up_ms)
{
	struct dmasync_connect_params params;
	struct dmasync *ds = NULL;

	dmasync_connect_params_init(&params);
	params.socket = fake->path;
	params.timeout_ms = 10000;
	params.give_up_ms = give_up_ms;
	assert_int_equal(dmasync_connect_with(&params, &ds), 0);
	return ds;
}

static struct bench start_with(uint32_t depth, uint32_t units, uint32_t give_up_ms)
{
	struct bench b = {.fake = fake_start()};

	b.ds = connect_for_ever(b.fake, give_up_ms);
	b.queue = fake_queue_create(b.ds, depth, units, 0);
	b.fq = fake_queue(b.fake);
	b.buffer = fake_buffer(b.ds, 1 << 20);
	return b;
}

static struct bench start(uint32_t depth, uint32_t units)
{
	return start_with(depth, units, 0);
}

static enum dmasync_state state_of(struct dmasync *ds)
{
	struct dmasync_state_info info = {.size = sizeof info};

	assert_int_equal(dmasync_get_state(ds, &info), 0);
	return info.state;
}

/* Steps by peek until the queue is attached to the fake's newest one; nothing may be read. */
static void attach(struct bench *b)
{
	struct dmasync_completion c;
	uint32_t queues = b->fake->queue_count;

	while (fake_requests(b->fake, DMASYNC_OP_QUEUE_CREATE) == queues ||
	       !queue_current(b->queue))
		assert_int_equal(dmasync_peek(b->queue, &c), 0);
	b->fq = fake_queue(b->fake);
}

static void restart(struct bench *b)
{
	fake_die(b->fake);
	fake_live(b->fake);
}

static void expect(struct bench *b, uint64_t user_data, bool replayed)
{
	struct dmasync_completion c;

	assert_int_equal(dmasync_wait(b->queue, &c, PATIENCE_NS), 0);
	assert_true(c.user_data == user_data);
	assert_int_equal(c.status, 0);
	assert_int_equal(!!(c.flags & DMASYNC_COMPLETION_REPLAYED), replayed);
}

/* ---- once each ---- */

/* Three completed and read by nobody, one fetched, two not: at every place of a ring. */
static void each_batch_once(void **state)
{
	struct dmasync_completion c;
	struct fake_batch fetched;

	(void)state;
	for (int round = 0; round < 5; round++) {
		struct bench b = start(8, 8);

		for (int i = 0; i < round; i++) {
			bench_submit(&b, 100);
			fake_serve(b.fq, 1);
			expect(&b, 100, false);
		}
		for (uint64_t i = 0; i < 6; i++)
			bench_submit(&b, i);
		fake_serve(b.fq, 3);
		assert_true(fake_fetch(b.fq, &fetched));
		restart(&b);
		for (uint64_t i = 0; i < 3; i++)
			expect(&b, i, false);
		attach(&b);
		/* The oldest first, with their entries, and later ones behind them. */
		bench_submit(&b, 6);
		for (uint64_t i = 3; i < 7; i++) {
			assert_true(fake_fetch(b.fq, &fetched));
			assert_true(fetched.submission.user_data == i);
			assert_int_equal(fetched.submission.entry.length, 64);
			fake_complete(b.fq, &(struct dmasync_ring_completion){.user_data = i});
		}
		assert_false(fake_fetch(b.fq, &fetched));
		for (uint64_t i = 3; i < 7; i++)
			expect(&b, i, i < 6);
		assert_int_equal(dmasync_peek(b.queue, &c), 0);
		assert_int_equal(dmasync_wait(b.queue, &c, -1), -ENODATA);
		bench_stop(&b);
	}
}

/* The slot's body is there, its seq is not: the daemon died between the two. */
static void half_a_completion_is_none(void **state)
{
	struct bench b = start(8, 8);
	struct fake_batch fetched;
	struct dmasync_ring_completion *slot;

	(void)state;
	bench_submit(&b, 1);
	assert_true(fake_fetch(b.fq, &fetched));
	slot = &b.fq->ring.completions[DMASYNC_RING_START & 7];
	slot->user_data = 77;
	slot->status = -EIO;
	restart(&b);
	attach(&b);
	fake_serve(b.fq, 1);
	expect(&b, 1, true);
	bench_stop(&b);
}

/*
 * The socket alone is gone. The daemon lives and its worker may still publish: nothing is submitted
 * again before it has let go, and what it publishes until then counts.
 */
static void a_daemon_that_lives_lets_go_first(void **state)
{
	struct bench b = start(8, 8);
	struct fake_queue *old = b.fq;
	struct dmasync_completion c;

	(void)state;
	bench_submit(&b, 1);
	bench_submit(&b, 2);
	shutdown(b.ds->socket, SHUT_RDWR);
	while (b.ds->restarts == 0)
		assert_int_equal(dmasync_peek(b.queue, &c), 0);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(dmasync_peek(b.queue, &c), 0);
	assert_int_equal(fake_requests(b.fake, DMASYNC_OP_QUEUE_CREATE), 1);
	assert_int_equal(dmasync_wait(b.queue, &c, 20000000), -ETIMEDOUT);
	fake_serve(old, 1);
	old->doorbell_fd = close_fd(old->doorbell_fd);
	old->notification_fd = close_fd(old->notification_fd);
	expect(&b, 1, false);
	attach(&b);
	fake_serve(b.fq, 1);
	expect(&b, 2, true);
	bench_stop(&b);
}

/* Units, strided ones too, arrive as they were, wherever they stood in the unit ring. */
static void units_arrive_as_they_were(void **state)
{
	(void)state;
	for (uint64_t before = 0; before < 16; before += 3) {
		struct bench b = start(8, 16);
		struct dmasync_batch *batch;
		struct fake_batch fetched;
		uint32_t handle = b.buffer->handle;

		for (uint64_t i = 0; i < before; i++) {
			assert_int_equal(dmasync_batch_begin(b.queue, &batch), 0);
			for (int k = 0; k < 2; k++)
				dmasync_batch_add(batch, b.buffer, DMASYNC_FOR_CPU,
						  DMASYNC_FROM_DEVICE, 0, 1);
			assert_int_equal(dmasync_batch_submit(batch, 0), 0);
			fake_serve(b.fq, 1);
			expect(&b, 0, false);
		}
		for (uint64_t i = 0; i < 3; i++) {
			assert_int_equal(dmasync_batch_begin(b.queue, &batch), 0);
			dmasync_batch_add(batch, b.buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE,
					  i * 4096, 64 + i);
			dmasync_batch_add_rows(batch, b.buffer, DMASYNC_FOR_CPU,
					       DMASYNC_FROM_DEVICE, i, 8, 3 + i, 128);
			assert_int_equal(dmasync_batch_submit(batch, i), 0);
		}
		/* Twice: also what was submitted again is submitted again. */
		for (int life = 0; life < 2; life++) {
			restart(&b);
			attach(&b);
		}
		assert_int_equal(b.fake->last_add.handle, handle);
		assert_int_equal(b.fake->last_add.flags, DMASYNC_BUFFER_NO_CLEAN);
		for (uint64_t i = 0; i < 3; i++) {
			struct dmasync_unit_rows rows;

			assert_true(fake_fetch(b.fq, &fetched));
			assert_true(fetched.submission.user_data == i);
			assert_int_equal(fetched.units, 3);
			assert_int_equal(fetched.unit[0].word & DMASYNC_UNIT_BUFFER_MASK, handle);
			assert_true(fetched.unit[0].offset == i * 4096);
			assert_int_equal(fetched.unit[0].length, 64 + i);
			memcpy(&rows, &fetched.unit[2], sizeof rows);
			assert_int_equal(rows.rows, 3 + i);
			fake_complete(b.fq, &(struct dmasync_ring_completion){.user_data = i});
			expect(&b, i, true);
		}
		bench_stop(&b);
	}
}

/* ---- a batch that kills ---- */

static void a_killer_is_given_up(void **state)
{
	struct bench b = start(8, 8);
	struct dmasync_completion c;
	int deaths = 0, r;

	(void)state;
	bench_submit(&b, 13);
	bench_submit(&b, 14);
	for (;;) {
		restart(&b);
		do {
			r = dmasync_peek(b.queue, &c);
		} while (r == 0 && !queue_current(b.queue));
		if (r != 0)
			break;
		assert_true(++deaths < 100);
	}
	assert_int_equal(deaths, 16);
	assert_int_equal(r, 1);
	assert_true(c.user_data == 13);
	assert_int_equal(c.status, -ECONNRESET);
	assert_int_equal(c.reason, DMASYNC_REASON_REPLAYED_TOO_OFTEN);
	/* The others are none the worse for it. */
	attach(&b);
	fake_serve(b.fq, 1);
	expect(&b, 14, true);
	bench_stop(&b);
}

/* ---- who may take over ---- */

static void expect_lost(struct bench *b, uint64_t first, uint64_t count, const char *why)
{
	struct dmasync_completion c;
	struct dmasync_batch *batch;
	char text[512];

	for (uint64_t i = first; i < first + count; i++) {
		assert_int_equal(dmasync_wait(b->queue, &c, PATIENCE_NS), 0);
		assert_true(c.user_data == i);
		assert_int_equal(c.status, -ECONNRESET);
		assert_int_equal(c.reason, DMASYNC_REASON_DAEMON_LOST);
	}
	assert_int_equal(dmasync_wait(b->queue, &c, -1), -ECONNRESET);
	assert_int_equal(dmasync_batch_begin(b->queue, &batch), -ECONNRESET);
	assert_int_equal(state_of(b->ds), DMASYNC_STATE_BROKEN);
	dmasync_error_text(b->ds, text, sizeof text);
	if (!strstr(text, why))
		fail_msg("the error text is: %s", text);
}

static void strangers_are_refused(void **state)
{
	static const struct {
		uint64_t features;
		uint32_t version;
		int hello, add, create;
		const char *why;
	} strangers[] = {
		{DMASYNC_FEATURE_STRIDED, 1, 0, 0, 0, "features 0x2"},
		{UINT64_MAX, 2, 0, 0, 0, "version 2"},
		{UINT64_MAX, 1, FAKE_BAD_BODY, 0, 0, "65 bytes"},
		{UINT64_MAX, 1, FAKE_WRONG_OPCODE, 0, 0, "opcode"},
		{UINT64_MAX, 1, FAKE_REFUSE_SUPPORT, 0, 0, "this fake"},
		{UINT64_MAX, 1, 0, FAKE_REFUSE_SUPPORT, 0, "this fake"},
		{UINT64_MAX, 1, 0, FAKE_OTHER_HANDLE, 0, "cannot take over"},
		{UINT64_MAX, 1, 0, 0, FAKE_REFUSE_SUPPORT, "this fake"},
		{UINT64_MAX, 1, 0, 0, FAKE_BAD_RING, "not as the protocol says"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++) {
		struct bench b = start(8, 8);

		for (uint64_t k = 0; k < 3; k++)
			bench_submit(&b, k);
		fake_serve(b.fq, 1);
		fake_die(b.fake);
		atomic_store(&b.fake->features, strangers[i].features);
		atomic_store(&b.fake->version, strangers[i].version);
		fake_set(b.fake, DMASYNC_OP_HELLO, (enum fake_mode)strangers[i].hello);
		fake_set(b.fake, DMASYNC_OP_BUFFER_ADD, (enum fake_mode)strangers[i].add);
		fake_set(b.fake, DMASYNC_OP_QUEUE_CREATE, (enum fake_mode)strangers[i].create);
		fake_live(b.fake);
		expect(&b, 0, false);
		expect_lost(&b, 1, 2, strangers[i].why);
		bench_stop(&b);
	}
}

/* What may be otherwise the next time is tried again. */
static void the_next_attempt(void **state)
{
	static const struct {
		enum dmasync_opcode opcode;
		enum fake_mode mode;
	} troubles[] = {
		{DMASYNC_OP_HELLO, FAKE_REFUSE},	{DMASYNC_OP_HELLO, FAKE_HANG_UP},
		{DMASYNC_OP_BUFFER_ADD, FAKE_REFUSE},	{DMASYNC_OP_BUFFER_ADD, FAKE_HANG_UP},
		{DMASYNC_OP_QUEUE_CREATE, FAKE_REFUSE},
	};

	(void)state;
	for (size_t i = 0; i < sizeof troubles / sizeof troubles[0]; i++) {
		struct bench b = start(8, 8);
		struct dmasync_completion c;
		uint32_t before = fake_requests(b.fake, troubles[i].opcode);

		bench_submit(&b, 1);
		fake_die(b.fake);
		fake_set(b.fake, troubles[i].opcode, troubles[i].mode);
		fake_live(b.fake);
		while (fake_requests(b.fake, troubles[i].opcode) < before + 3)
			assert_int_equal(dmasync_peek(b.queue, &c), 0);
		fake_set(b.fake, troubles[i].opcode, FAKE_GOOD);
		while (!queue_current(b.queue))
			assert_int_equal(dmasync_peek(b.queue, &c), 0);
		b.fq = fake_queue(b.fake);
		fake_serve(b.fq, 1);
		expect(&b, 1, true);
		bench_stop(&b);
	}
}

/* It accepts and does not answer; the next attempt is made when connect_timeout_ms are over. */
static void a_silent_socket(void **state)
{
	struct bench b = start(8, 8);
	struct dmasync_completion c;

	(void)state;
	b.ds->connect_timeout_ms = 30;
	bench_submit(&b, 1);
	fake_die(b.fake);
	fake_set(b.fake, DMASYNC_OP_HELLO, FAKE_SILENT);
	fake_live(b.fake);
	while (fake_requests(b.fake, DMASYNC_OP_HELLO) < 4)
		assert_int_equal(dmasync_wait(b.queue, &c, 1000000), -ETIMEDOUT);
	assert_int_equal(state_of(b.ds), DMASYNC_STATE_RECONNECTING);
	fake_set(b.fake, DMASYNC_OP_HELLO, FAKE_GOOD);
	while (!queue_current(b.queue))
		assert_int_equal(dmasync_peek(b.queue, &c), 0);
	b.fq = fake_queue(b.fake);
	fake_serve(b.fq, 1);
	expect(&b, 1, true);
	bench_stop(&b);
}

/* What is meant for a daemon that is gone is not sent to its successor, and does that no harm. */
static void of_another_life(void **state)
{
	struct bench b = start(8, 8);
	struct dmasync_buffer_remove request = {.handle = b.buffer->handle};
	struct dmasync_done_reply done;
	struct control_reply reply = {.message = &done, .size = sizeof done};
	uint32_t life = control_life(b.ds);

	(void)state;
	restart(&b);
	attach(&b);
	assert_int_equal(control_call_in(b.ds, life, DMASYNC_OP_BUFFER_REMOVE, &request.header,
					 sizeof request, -1, &reply),
			 -ECONNRESET);
	control_break(b.ds, life, 0);
	assert_int_equal(fake_requests(b.fake, DMASYNC_OP_BUFFER_REMOVE), 0);
	assert_int_equal(control_life(b.ds), life + 2);
	assert_int_equal(state_of(b.ds), DMASYNC_STATE_CONNECTED);
	bench_submit(&b, 1);
	fake_serve(b.fq, 1);
	expect(&b, 1, false);
	bench_stop(&b);
}

/* ---- time ---- */

/* queued_ns counts from the first submission, and the daemon is told a time it can believe. */
static void times_of_a_replay(void **state)
{
	struct bench b = start(8, 8);
	struct timespec pause = {.tv_nsec = 5000000};
	struct fake_batch fetched;
	struct dmasync_completion c;
	uint64_t before = (uint64_t)now_ns(), between;

	(void)state;
	bench_submit(&b, 1);
	for (int life = 0; life < 2; life++) {
		nanosleep(&pause, NULL);
		between = (uint64_t)now_ns();
		restart(&b);
		attach(&b);
	}
	assert_true(fake_fetch(b.fq, &fetched));
	assert_true(fetched.submission.submit_ns >= between);
	fake_complete(b.fq, &(struct dmasync_ring_completion){.user_data = 1, .queued_ns = 10});
	assert_int_equal(dmasync_peek(b.queue, &c), 1);
	assert_true(c.queued_ns >= 10000000 && c.queued_ns <= (uint64_t)now_ns() - before + 10);
	bench_stop(&b);
}

/* A new socket file, and for a while none. */
static void nobody_listens_for_a_while(void **state)
{
	struct bench b = start_with(8, 8, 0);
	struct dmasync_completion c;
	char text[512];

	(void)state;
	bench_submit(&b, 1);
	fake_die(b.fake);
	fake_close(b.fake);
	for (int i = 0; i < 20; i++)
		assert_int_equal(dmasync_wait(b.queue, &c, 1000000), -ETIMEDOUT);
	dmasync_error_text(b.ds, text, sizeof text);
	assert_non_null(strstr(text, "there is no socket"));
	fake_listen(b.fake);
	fake_live(b.fake);
	attach(&b);
	fake_serve(b.fq, 1);
	expect(&b, 1, true);
	bench_stop(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		fake_test(each_batch_once),
		fake_test(half_a_completion_is_none),
		fake_test(a_daemon_that_lives_lets_go_first),
		fake_test(units_arrive_as_they_were),
		fake_test(a_killer_is_given_up),
		fake_test(strangers_are_refused),
		fake_test(the_next_attempt),
		fake_test(a_silent_socket),
		fake_test(of_another_life),
		fake_test(times_of_a_replay),
		fake_test(nobody_listens_for_a_while),
	};

	return cmocka_run_group_tests_name("client reconnect", tests, NULL, NULL);
}
