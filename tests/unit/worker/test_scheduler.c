/* SPDX-License-Identifier: MIT */
/*
 * Who has the next slice: exact shares of classes, users, connections and queues, counted in
 * credit. No worker, no time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/scheduler.h"

#define SLICE 4096u

/* A queue that always has another batch: each slice of it costs so much. */
struct busy {
	struct scheduler_flow flow; /* first */
	uint32_t cost;
	bool leaves; /* the line after each slice, and comes back when another was served */
	bool away;
	uint64_t used;
};

static struct scheduler scheduler;
/* Never looked into by the scheduler. */
#define BATCH(busy) ((struct batch *)(void *)(busy))

static int setup(void **state)
{
	(void)state;
	memset(&scheduler, 0, sizeof scheduler);
	scheduler_tune(&scheduler, SLICE, 10, 5);
	return 0;
}

/* Each test detaches what it attached: then nothing may be left. */
static int teardown(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < HASH_LISTS; i++)
		if (scheduler.groups[i])
			return -1;
	for (int i = 0; i < DMASYNC_CLASSES; i++)
		if (scheduler.classes[i].lines[0].first || scheduler.classes[i].lines[1].first)
			return -1;
	return 0;
}

static void begin(struct busy *busy, enum dmasync_class klass, uint32_t uid, uintptr_t client,
		  uint32_t cost)
{
	*busy = (struct busy){.cost = cost};
	assert_int_equal(
		scheduler_attach(&scheduler, &busy->flow, klass, uid, (const void *)client), 0);
	busy->cost = cost;
	scheduler_add(&scheduler, &busy->flow, BATCH(busy));
}

static void end(struct busy *busy)
{
	scheduler_detach(&scheduler, &busy->flow);
}

static struct busy *serve(void)
{
	struct busy *busy = (struct busy *)scheduler_next(&scheduler);

	assert_non_null(busy);
	assert_non_null(busy->flow.batch);
	scheduler_charge(&scheduler, &busy->flow, busy->cost);
	busy->used += busy->cost;
	if (busy->leaves) {
		scheduler_remove(&scheduler, &busy->flow);
		busy->away = true;
	}
	return busy;
}

static void come_back(struct busy *busy)
{
	if (!busy->away)
		return;
	busy->away = false;
	scheduler_add(&scheduler, &busy->flow, BATCH(busy));
}

/* ---- classes ---- */

static void classes_have_their_shares(void **state)
{
	struct busy realtime, normal, bulk;
	unsigned int slices[DMASYNC_CLASSES] = {0};
	enum dmasync_class last = DMASYNC_CLASS_REALTIME;

	(void)state;
	begin(&realtime, DMASYNC_CLASS_REALTIME, 0, 1, SLICE);
	begin(&normal, DMASYNC_CLASS_NORMAL, 1, 2, SLICE);
	begin(&bulk, DMASYNC_CLASS_BULK, 2, 3, SLICE);
	for (unsigned int i = 0; i < 2000; i++) {
		enum dmasync_class klass = serve()->flow.klass;

		slices[klass]++;
		/* After one slice of a lower class the first one is served. */
		assert_true(last == DMASYNC_CLASS_REALTIME || klass == DMASYNC_CLASS_REALTIME);
		last = klass;
		/* Guaranteed in every stretch, not at its end alone. */
		assert_in_range(slices[DMASYNC_CLASS_NORMAL], i / 10, i / 10 + 2);
		assert_in_range(slices[DMASYNC_CLASS_BULK], i / 20, i / 20 + 2);
	}
	assert_int_equal(slices[DMASYNC_CLASS_NORMAL], 200);
	assert_int_equal(slices[DMASYNC_CLASS_BULK], 100);
	end(&realtime);
	end(&normal);
	end(&bulk);
}

static void shares_are_of_work_and_not_of_turns(void **state)
{
	struct busy realtime, bulk;

	(void)state;
	begin(&realtime, DMASYNC_CLASS_REALTIME, 0, 1, 20);
	begin(&bulk, DMASYNC_CLASS_BULK, 2, 3, SLICE);
	for (unsigned int i = 0; i < 100000; i++)
		serve();
	uint64_t all = realtime.used + bulk.used;

	assert_in_range(bulk.used, all / 20 - SLICE, all / 20 + SLICE);
	end(&realtime);
	end(&bulk);
}

static void the_lowest_class_is_served_where_nobody_else_waits(void **state)
{
	struct busy bulk;

	(void)state;
	begin(&bulk, DMASYNC_CLASS_BULK, 2, 3, SLICE);
	for (unsigned int i = 0; i < 10; i++)
		assert_ptr_equal(serve(), &bulk);
	end(&bulk);
	assert_null(scheduler_next(&scheduler));
	assert_true(scheduler_is_empty(&scheduler));
}

/* Whenever it comes, the very next slice is its: it has waited for one, never for two. */
static void realtime_waits_for_the_slice_that_is_on(void **state)
{
	struct busy realtime, normal, bulk;
	unsigned int of_bulk = 0;

	(void)state;
	begin(&realtime, DMASYNC_CLASS_REALTIME, 0, 1, 20);
	realtime.leaves = true;
	begin(&normal, DMASYNC_CLASS_NORMAL, 1, 2, SLICE);
	begin(&bulk, DMASYNC_CLASS_BULK, 2, 3, SLICE);
	serve();
	for (unsigned int i = 0; i < 1000; i++) {
		for (unsigned int n = 0; n <= i % 7; n++)
			of_bulk += serve() == &bulk;
		come_back(&realtime);
		assert_ptr_equal(serve(), &realtime);
	}
	assert_true(of_bulk > 0); /* and bulk had its share meanwhile */
	end(&realtime);
	end(&normal);
	end(&bulk);
}

/* What a class did not want it cannot save up. */
static void an_idle_class_is_owed_nothing(void **state)
{
	struct busy realtime, bulk;
	unsigned int before = 0;

	(void)state;
	begin(&realtime, DMASYNC_CLASS_REALTIME, 0, 1, SLICE);
	for (unsigned int i = 0; i < 1000; i++)
		serve();
	begin(&bulk, DMASYNC_CLASS_BULK, 2, 3, SLICE);
	for (unsigned int i = 0; i < 40; i++)
		before += serve() == &bulk;
	assert_in_range(before, 2, 3);
	end(&realtime);
	end(&bulk);
}

/* However little normal batches cost, they do not stand between bulk and its share. */
static void bulk_has_its_share_beside_short_normal_batches(void **state)
{
	struct busy realtime, normal, bulk;

	(void)state;
	begin(&realtime, DMASYNC_CLASS_REALTIME, 0, 1, SLICE);
	begin(&normal, DMASYNC_CLASS_NORMAL, 1, 2, 20);
	begin(&bulk, DMASYNC_CLASS_BULK, 2, 3, SLICE);
	for (unsigned int i = 0; i < 10000; i++)
		serve();
	uint64_t all = realtime.used + normal.used + bulk.used;

	assert_in_range(bulk.used, all / 20 - SLICE, all / 20 + SLICE);
	end(&realtime);
	end(&normal);
	end(&bulk);
}

/* What turns of one slice could not make up for is not saved up either. */
static void a_class_of_short_batches_saves_nothing_up(void **state)
{
	struct busy realtime, normal;
	unsigned int of_normal = 0;

	(void)state;
	begin(&realtime, DMASYNC_CLASS_REALTIME, 0, 1, SLICE);
	begin(&normal, DMASYNC_CLASS_NORMAL, 1, 2, 20);
	for (unsigned int i = 0; i < 10000; i++)
		serve();
	normal.cost = SLICE;
	for (unsigned int i = 0; i < 100; i++)
		of_normal += serve() == &normal;
	assert_in_range(of_normal, 10, 10 + 3);
	end(&realtime);
	end(&normal);
}

/* ---- within a class ---- */

#define QUEUES 64

static void users_are_equal_whatever_their_queues(void **state)
{
	static struct busy one, many[QUEUES];
	uint64_t used = 0;

	(void)state;
	begin(&one, DMASYNC_CLASS_NORMAL, 1000, 1, SLICE);
	for (uintptr_t i = 0; i < QUEUES; i++) /* on 16 connections */
		begin(&many[i], DMASYNC_CLASS_NORMAL, 1001, 2 + i % 16, SLICE);
	for (unsigned int i = 0; i < QUEUES * 20; i++)
		serve();
	for (unsigned int i = 0; i < QUEUES; i++) {
		assert_in_range(many[i].used, 9 * SLICE, 11 * SLICE);
		used += many[i].used;
	}
	assert_int_equal(one.used, QUEUES * 10 * SLICE);
	assert_int_equal(used, QUEUES * 10 * SLICE);
	end(&one);
	for (unsigned int i = 0; i < QUEUES; i++)
		end(&many[i]);
}

static void connections_of_a_user_are_equal_whatever_their_queues(void **state)
{
	static struct busy one, many[QUEUES];

	(void)state;
	begin(&one, DMASYNC_CLASS_BULK, 1000, 1, SLICE);
	for (uintptr_t i = 0; i < QUEUES; i++)
		begin(&many[i], DMASYNC_CLASS_BULK, 1000, 2, SLICE);
	for (unsigned int i = 0; i < 1000; i++)
		serve();
	assert_int_equal(one.used, 500 * SLICE);
	end(&one);
	for (unsigned int i = 0; i < QUEUES; i++)
		end(&many[i]);
}

/* Small batches against whole slices: equal work, not equal turns. */
static void work_is_shared_and_not_turns(void **state)
{
	static const uint32_t costs[] = {19, 4096, 700, 1, 64, 2048, 4111, 333};
	enum { COUNT = sizeof costs / sizeof *costs };
	struct busy busy[COUNT];
	uint64_t sum = 0;

	(void)state;
	for (uintptr_t i = 0; i < COUNT; i++)
		begin(&busy[i], DMASYNC_CLASS_NORMAL, (uint32_t)i, i, costs[i]);
	for (unsigned int i = 0; i < 1000000; i++)
		serve();
	for (unsigned int i = 0; i < COUNT; i++)
		sum += busy[i].used;
	for (unsigned int i = 0; i < COUNT; i++) {
		assert_in_range(busy[i].used, sum / COUNT - 2 * SLICE, sum / COUNT + 2 * SLICE);
		end(&busy[i]);
	}
}

/* Jain's index, (sum x)^2 / (n * sum x^2), of 16 equal clients: at least 0.95. */
static void equal_clients_get_equal_work(void **state)
{
	enum { COUNT = 16 };
	static struct busy busy[COUNT];
	uint64_t sum = 0, squares = 0;

	(void)state;
	for (uintptr_t i = 0; i < COUNT; i++) {
		begin(&busy[i], DMASYNC_CLASS_NORMAL, 1000, i, 300 + (uint32_t)i);
		busy[i].leaves = i % 2; /* one batch at a time, and deep queues */
	}
	for (unsigned int i = 0; i < 20000; i++) {
		const struct busy *served = serve();

		for (unsigned int k = 0; k < COUNT; k++)
			if (&busy[k] != served)
				come_back(&busy[k]);
	}
	for (unsigned int i = 0; i < COUNT; i++) {
		sum += busy[i].used;
		squares += busy[i].used * busy[i].used;
		end(&busy[i]);
	}
	assert_true(100 * sum * sum >= 95 * COUNT * squares);
}

/* Leaving the line pays no debt: a batch of one slice at a time has no more than a long one. */
static void who_comes_and_goes_gets_no_more(void **state)
{
	struct busy comes, stays;

	(void)state;
	begin(&comes, DMASYNC_CLASS_NORMAL, 1000, 1, SLICE);
	comes.leaves = true;
	begin(&stays, DMASYNC_CLASS_NORMAL, 1001, 2, SLICE);
	for (unsigned int i = 0; i < 1000; i++) {
		come_back(&comes);
		serve();
	}
	assert_in_range(comes.used, 499 * SLICE, 501 * SLICE);
	end(&comes);
	end(&stays);
}

/* Short batches do not wait for a slice of one another. */
static void turns_are_of_one_batch(void **state)
{
	enum { COUNT = 5 };
	static struct busy busy[COUNT];

	(void)state;
	for (uintptr_t i = 0; i < COUNT; i++)
		begin(&busy[i], DMASYNC_CLASS_NORMAL, 1000, i % 2, 20);
	for (unsigned int i = 0; i < 1000; i++) {
		const struct busy *served = serve();

		assert_int_equal(served->flow.connection->key, i % 2); /* connections by turns */
	}
	for (unsigned int i = 0; i < COUNT; i++) {
		/* Of the even ones there are three, of the odd ones two. */
		assert_in_range(busy[i].used, 20 * (i % 2 ? 249 : 165), 20 * (i % 2 ? 251 : 168));
		end(&busy[i]);
	}
}

/* As a stream of SYNC messages: each is a flow of its own, which is new and has no past. */
static void new_flows_without_end_starve_nobody(void **state)
{
	struct busy stays, fresh;

	(void)state;
	begin(&stays, DMASYNC_CLASS_NORMAL, 1000, 1, SLICE);
	begin(&fresh, DMASYNC_CLASS_NORMAL, 1001, 2, SLICE);
	for (unsigned int i = 0; i < 1000; i++) {
		if (serve() == &stays)
			continue;
		end(&fresh);
		begin(&fresh, DMASYNC_CLASS_NORMAL, 1001, 2, SLICE);
	}
	assert_true(stays.used >= 499 * SLICE);
	end(&stays);
	end(&fresh);
}

/* A new one is served after one slice of each of the others at most. */
static void a_new_queue_waits_for_one_round(void **state)
{
	enum { COUNT = 20 };
	static struct busy busy[COUNT];
	struct busy late;

	(void)state;
	for (uintptr_t i = 0; i < COUNT; i++)
		begin(&busy[i], DMASYNC_CLASS_NORMAL, 1000, 1, SLICE);
	for (unsigned int i = 0; i < 777; i++)
		serve();
	begin(&late, DMASYNC_CLASS_NORMAL, 1000, 1, SLICE);
	unsigned int waited = 0;

	while (serve() != &late)
		waited++;
	assert_true(waited <= COUNT + 1);

	/* Of two, the new one is next. */
	for (unsigned int i = 1; i < COUNT; i++)
		scheduler_remove(&scheduler, &busy[i].flow);
	scheduler_remove(&scheduler, &late.flow);
	for (unsigned int i = 0; i < 10; i++)
		assert_ptr_equal(serve(), &busy[0]);
	end(&late);
	begin(&late, DMASYNC_CLASS_NORMAL, 1000, 2, SLICE);
	assert_ptr_equal(serve(), &late);
	end(&late);
	for (unsigned int i = 0; i < COUNT; i++)
		end(&busy[i]);
}

/* A smaller slice later: whoever is in debt by the old one is served all the same. */
static void a_slice_may_be_tuned(void **state)
{
	struct busy a, b;

	(void)state;
	begin(&a, DMASYNC_CLASS_NORMAL, 1000, 1, SLICE);
	begin(&b, DMASYNC_CLASS_NORMAL, 1001, 1, SLICE);
	serve();
	serve();
	scheduler_tune(&scheduler, 64, 1, 25);
	a.cost = b.cost = 64;
	for (unsigned int i = 0; i < 1000; i++)
		serve();
	assert_in_range(a.used, SLICE + 499 * 64 - 2 * SLICE, SLICE + 501 * 64 + 2 * SLICE);
	end(&a);
	end(&b);
}

static void what_was_never_detached_is_freed(void **state)
{
	struct busy busy[3];

	(void)state;
	for (uintptr_t i = 0; i < 3; i++)
		begin(&busy[i], (enum dmasync_class)i, 7, i, SLICE);
	scheduler_free(&scheduler);
	memset(&scheduler, 0, sizeof scheduler);
}

static uint32_t random_below(uint64_t *seed, uint32_t n)
{
	*seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (uint32_t)(*seed >> 33) % n;
}

/* In any order: who is served has a batch, who has one is served in the end, and nothing is left.
 */
static void anything_in_any_order(void **state)
{
	enum { COUNT = 12 };
	static struct busy busy[COUNT];
	uint64_t seed = 1;

	(void)state;
	memset(busy, 0, sizeof busy);
	for (unsigned int step = 0; step < 300000; step++) {
		struct busy *one = &busy[random_below(&seed, COUNT)];
		unsigned int with_batch = 0;

		switch (random_below(&seed, 8)) {
		case 0:
			if (one->flow.connection)
				end(one);
			else
				begin(one, (enum dmasync_class)random_below(&seed, DMASYNC_CLASSES),
				      random_below(&seed, 3), random_below(&seed, 3), 1);
			one->used = 0;
			break;
		case 1:
			if (one->flow.connection)
				scheduler_remove(&scheduler, &one->flow);
			break;
		case 2:
		case 3:
			if (one->flow.connection && !one->flow.batch) {
				scheduler_add(&scheduler, &one->flow, BATCH(one));
				one->used = 0;
			}
			break;
		default:
			if (scheduler_is_empty(&scheduler))
				break;
			for (unsigned int i = 0; i < COUNT; i++) /* turns that each has waited */
				busy[i].used += busy[i].flow.connection && busy[i].flow.batch;
			one = (struct busy *)scheduler_next(&scheduler);
			assert_non_null(one->flow.batch);
			/* Each before it had a slice or two, and for bulk nineteen in twenty. */
			assert_true(one->used <= 40 * COUNT);
			one->used = 0;
			scheduler_charge(&scheduler, &one->flow,
					 1 + random_below(&seed, SLICE + 16));
			if (random_below(&seed, 2))
				scheduler_remove(&scheduler, &one->flow);
			break;
		}
		for (unsigned int i = 0; i < COUNT; i++)
			with_batch += busy[i].flow.connection && busy[i].flow.batch;
		assert_int_equal(scheduler_is_empty(&scheduler), with_batch == 0);
	}
	for (unsigned int i = 0; i < COUNT; i++)
		if (busy[i].flow.connection)
			end(&busy[i]);
	assert_int_equal(scheduler.waiting, 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(classes_have_their_shares),
		CASE(shares_are_of_work_and_not_of_turns),
		CASE(the_lowest_class_is_served_where_nobody_else_waits),
		CASE(realtime_waits_for_the_slice_that_is_on),
		CASE(an_idle_class_is_owed_nothing),
		CASE(bulk_has_its_share_beside_short_normal_batches),
		CASE(a_class_of_short_batches_saves_nothing_up),
		CASE(users_are_equal_whatever_their_queues),
		CASE(connections_of_a_user_are_equal_whatever_their_queues),
		CASE(work_is_shared_and_not_turns),
		CASE(equal_clients_get_equal_work),
		CASE(who_comes_and_goes_gets_no_more),
		CASE(turns_are_of_one_batch),
		CASE(new_flows_without_end_starve_nobody),
		CASE(a_new_queue_waits_for_one_round),
		CASE(a_slice_may_be_tuned),
		CASE(what_was_never_detached_is_freed),
		CASE(anything_in_any_order),
	};

	return cmocka_run_group_tests_name("worker-scheduler", tests, NULL, NULL);
}
