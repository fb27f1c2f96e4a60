/* SPDX-License-Identifier: MIT */
/*
 * The scenarios. A thread keeps everything in locals, because it is run again and again from its
 * start; memory is only what set_up names.
 */
#include "scenarios.h"

#include <stdlib.h>

enum broken_rule broken_rule;

/* Addresses only: the simulator keeps the contents. */
static _Alignas(DMASYNC_RING_PAGE) char memory[4 * DMASYNC_RING_PAGE];
static struct dmasync_worker_page page, other_page;
static struct dmasync_ring ring;

static bool rule(enum broken_rule which)
{
	return broken_rule != which;
}

static uint32_t position_of(uint32_t n)
{
	return DMASYNC_RING_START + n;
}

/* ---- memory ---- */

static void attach(uint32_t depth, uint32_t units)
{
	struct dmasync_ring_layout layout = {0};

	if (!dmasync_ring_layout(depth, units, &layout) || layout.size > sizeof memory)
		abort();
	dmasync_ring_attach(&ring, memory, &layout);
	sim_location(&ring.header->completions_read, 4, true, false);
	sim_location(&ring.header->client_sleeping, 4, true, false);
	for (uint32_t i = 0; i < depth; i++) {
		sim_location(&ring.submissions[i].seq, 4, true, false);
		sim_location(&ring.completions[i].seq, 4, true, false);
	}
	sim_location(&ring.header->ring_always, 4, true, false);
	sim_location(&page.sleeping, 4, true, false);
	sim_location(&other_page.sleeping, 4, true, false);
}

static void set_up_words(void)
{
	struct dmasync_ring_layout layout = {0};

	attach(2, 2);
	if (dmasync_ring_layout(2, 2, &layout))
		dmasync_ring_initialise(&ring, &layout);
}

/* A body is read and written in pieces, so that it can be torn. */
static void set_up_completion_bodies(void)
{
	for (uint32_t i = 0; i < ring.depth; i++) {
		struct dmasync_ring_completion *slot = &ring.completions[i];

		sim_location(&slot->status, 20, false, true); /* with the flags */
		sim_location(&slot->lines, 40, false, false);
		sim_location(&slot->fence_ns, 64, false, false);
	}
}

static void set_up_completions(void)
{
	set_up_words();
	set_up_completion_bodies();
}

static void set_up_transfer(void)
{
	struct dmasync_ring_layout layout = {0};

	attach(2, 4);
	for (uint32_t i = 0; i < ring.depth; i++) {
		sim_location(&ring.submissions[i].flags, 28, false, false);
		sim_location(&ring.submissions[i].entry, 32, false, false);
	}
	for (uint32_t i = 0; i < ring.unit_count; i++)
		sim_location(&ring.units[i], 16, false, false);
	set_up_completion_bodies();
	if (dmasync_ring_layout(2, 4, &layout))
		dmasync_ring_initialise(&ring, &layout);
}

/* ---- transfer ---- */

#define TRANSFERS 6u

/* 0: the entry in place. Slots are used three times, units more than twice. */
static uint32_t units_of(uint32_t n)
{
	static const uint32_t units[TRANSFERS] = {2, 1, 0, 3, 1, 2};

	return units[n];
}

static uint32_t first_unit(uint32_t n)
{
	uint32_t position = DMASYNC_RING_START;

	for (uint32_t i = 0; i < n; i++)
		position += units_of(i);
	return position;
}

static struct dmasync_ring_completion completion_of(uint32_t n)
{
	return (struct dmasync_ring_completion){
		.user_data = n + 1,
		.lines = n + 100,
		.flags = n % 2 ? DMASYNC_COMPLETION_EXTENDED : 0,
		.batch_id = n + 200,
	};
}

static void check_completion(const struct dmasync_ring_completion *seen, uint32_t n)
{
	sim_check(seen->user_data == n + 1, "the first part of a completion is stale or torn");
	sim_check(seen->lines == n + 100, "the second part of a completion is stale or torn");
	sim_check(seen->batch_id == (n % 2 ? n + 200 : 0),
		  "the second line of a completion is stale or torn");
}

static void submit_transfer(uint32_t n)
{
	struct dmasync_submission submission = {
		.user_data = n + 1,
		.unit_position = first_unit(n),
		.unit_count = units_of(n),
		.entry = {.offset = n + 300},
	};

	for (uint32_t i = 0; i < submission.unit_count; i++) {
		struct dmasync_unit unit = {.length = i + 1, .offset = n + 400};

		dmasync_ring_write_unit(&ring, submission.unit_position + i, &unit);
	}
	dmasync_ring_submit(&ring, position_of(n), &submission);
}

static void transfer_client(void)
{
	struct dmasync_ring_completion seen[TRANSFERS];

	for (uint32_t n = 0, read = 0; read < TRANSFERS; n++) {
		bool full = n - read == ring.depth || n == TRANSFERS;

		if (full && (n == TRANSFERS || rule(RULE_READ_BEFORE_REUSE))) {
			enum dmasync_ring_poll poll =
				dmasync_ring_poll_completion(&ring, position_of(read), &seen[read]);

			if (poll == DMASYNC_RING_EMPTY)
				sim_retry();
			sim_check(poll == DMASYNC_RING_READY, "a completion's seq is broken");
			read++;
			if (n < TRANSFERS && !rule(RULE_INDEX_BEFORE_REUSE))
				submit_transfer(n++);
			dmasync_ring_consume_completion(&ring, position_of(read));
		}
		if (n < TRANSFERS)
			submit_transfer(n);
		else
			n = TRANSFERS - 1;
	}
	sim_use();
	for (uint32_t n = 0; n < TRANSFERS; n++)
		check_completion(&seen[n], n);
}

/* A submission that was polled READY. */
static void work_transfer(uint32_t n)
{
	struct dmasync_submission seen;
	struct dmasync_unit mirror[4];

	dmasync_ring_copy_submission(&ring, position_of(n), &seen);
	sim_use();
	sim_check(seen.user_data == n + 1, "the first part of a submission is stale");
	sim_check(seen.entry.offset == n + 300, "the entry of a submission is stale");
	sim_check(seen.unit_count == units_of(n), "the unit count is stale");
	dmasync_ring_copy_units(&ring, seen.unit_position, seen.unit_count, mirror);

	struct dmasync_ring_completion completion = completion_of(n);

	dmasync_ring_complete(&ring, position_of(n), &completion);
	sim_use();
	for (uint32_t i = 0; i < seen.unit_count; i++) {
		const struct dmasync_unit *unit = &mirror[(seen.unit_position + i) & 3];

		sim_check(unit->offset == n + 400 && unit->length == i + 1,
			  "a unit is stale, or of a later batch");
	}
}

static void transfer_worker(void)
{
	uint32_t read = DMASYNC_RING_START;

	for (uint32_t n = 0; n < TRANSFERS; n++) {
		enum dmasync_ring_poll poll = dmasync_ring_poll_submission(&ring, position_of(n));

		if (poll == DMASYNC_RING_EMPTY)
			sim_retry();
		sim_check(poll == DMASYNC_RING_READY, "a submission's seq is broken");
		/* As the daemon: the index is read only where there seems to be no room. */
		if (position_of(n) - read >= ring.depth)
			read = dmasync_ring_completions_read(&ring);
		sim_check(position_of(n) - read < ring.depth,
			  "a batch was submitted without room for its completion");
		work_transfer(n);
	}
}

/* As the library: the index is stored only where a submission would find no room without it. */
static void lazy_client(void)
{
	struct dmasync_ring_completion seen[TRANSFERS];
	uint32_t stored = 0;

	for (uint32_t n = 0, read = 0; read < TRANSFERS;) {
		if (n < TRANSFERS && n - read < ring.depth) {
			if (n - stored >= ring.depth) {
				stored = read;
				dmasync_ring_consume_completion(&ring, position_of(read));
			}
			submit_transfer(n++);
			continue;
		}

		enum dmasync_ring_poll poll =
			dmasync_ring_poll_completion(&ring, position_of(read), &seen[read]);

		if (poll == DMASYNC_RING_EMPTY)
			sim_retry();
		sim_check(poll == DMASYNC_RING_READY, "a completion's seq is broken");
		read++;
	}
	sim_use();
	for (uint32_t n = 0; n < TRANSFERS; n++)
		check_completion(&seen[n], n);
}

const struct sim_scenario scenario_lazy_index = {
	.set_up = set_up_transfer,
	.thread = {lazy_client, transfer_worker},
};

const struct sim_scenario scenario_transfer = {
	.set_up = set_up_transfer,
	.thread = {transfer_client, transfer_worker},
};

/* ---- completions alone ---- */

#define COMPLETIONS 6u

static void completions_worker(void)
{
	for (uint32_t n = 0; n < COMPLETIONS; n++) {
		struct dmasync_ring_completion completion = completion_of(n);

		if (rule(RULE_ROOM_FOR_THE_COMPLETION) &&
		    position_of(n) - dmasync_ring_completions_read(&ring) >= ring.depth)
			sim_retry();
		dmasync_ring_complete(&ring, position_of(n), &completion);
	}
}

static void completions_client(void)
{
	struct dmasync_ring_completion seen[COMPLETIONS];

	for (uint32_t n = 0; n < COMPLETIONS; n++) {
		enum dmasync_ring_poll poll =
			dmasync_ring_poll_completion(&ring, position_of(n), &seen[n]);

		if (poll == DMASYNC_RING_EMPTY)
			sim_retry();
		sim_check(poll == DMASYNC_RING_READY, "an unread completion was overwritten");
		dmasync_ring_consume_completion(&ring, position_of(n + 1));
	}
	sim_use();
	for (uint32_t n = 0; n < COMPLETIONS; n++)
		check_completion(&seen[n], n);
}

const struct sim_scenario scenario_completions = {
	.set_up = set_up_completions,
	.thread = {completions_client, completions_worker},
};

/* ---- sleeping ---- */

/* Until ready() says yes: drain, announce, look once more, sleep. */
static void sleep_until(bool (*ready)(uint32_t), uint32_t n, uint32_t *flag, uint32_t pipe)
{
	bool announced = false;

	while (!ready(n)) {
		if (rule(RULE_DRAIN_BEFORE_ANNOUNCING))
			sim_drain(pipe);
		if (!rule(RULE_LOOK_AFTER_ANNOUNCING)) {
			bool found = ready(n);

			dmasync_ring_announce_sleep(flag);
			if (!found)
				sim_sleep(pipe);
		} else {
			if (!announced || rule(RULE_ANNOUNCE_EVERY_SLEEP))
				dmasync_ring_announce_sleep(flag);
			announced = true;
			if (!ready(n)) {
				if (!rule(RULE_DRAIN_BEFORE_ANNOUNCING))
					sim_drain(pipe);
				sim_sleep(pipe);
			}
		}
		if (rule(RULE_ANNOUNCE_EVERY_SLEEP))
			dmasync_ring_announce_awake(flag);
	}
}

static bool submission_ready(uint32_t n)
{
	return dmasync_ring_poll_submission(&ring, position_of(n)) == DMASYNC_RING_READY;
}

static bool completion_ready(uint32_t n)
{
	struct dmasync_ring_completion seen;

	return dmasync_ring_poll_completion(&ring, position_of(n), &seen) == DMASYNC_RING_READY;
}

static void submit_and_ring(uint32_t n, uint32_t pipe)
{
	struct dmasync_submission submission = {.user_data = n};

	dmasync_ring_submit(&ring, position_of(n), &submission);
	if (rule(RULE_CHECK_FOR_SLEEPER) && dmasync_ring_is_sleeping(&page.sleeping))
		sim_signal(pipe);
}

static void complete_and_notify(uint32_t n, uint32_t pipe)
{
	struct dmasync_ring_completion completion = {.user_data = n};

	dmasync_ring_complete(&ring, position_of(n), &completion);
	if (rule(RULE_CHECK_FOR_SLEEPER) &&
	    dmasync_ring_take_sleeper(&ring.header->client_sleeping))
		sim_signal(pipe);
}

static void doorbell_client(void)
{
	submit_and_ring(0, 0);
	submit_and_ring(1, 0);
}

static void doorbell_worker(void)
{
	sleep_until(submission_ready, 0, &page.sleeping, 0);
	sleep_until(submission_ready, 1, &page.sleeping, 0);
}

const struct sim_scenario scenario_doorbell = {
	.set_up = set_up_words,
	.thread = {doorbell_client, doorbell_worker},
};

/* Slots 0 and 1 stand for two queues; the worker's ring waits for either doorbell. */
static void first_client(void)
{
	submit_and_ring(0, 0);
}

static void second_client(void)
{
	submit_and_ring(1, 0);
}

const struct sim_scenario scenario_two_clients = {
	.set_up = set_up_words,
	.thread = {first_client, second_client, doorbell_worker},
};

static void notification_worker(void)
{
	complete_and_notify(0, 1);
	complete_and_notify(1, 1);
}

static void notification_client(void)
{
	sleep_until(completion_ready, 0, &ring.header->client_sleeping, 1);
	sleep_until(completion_ready, 1, &ring.header->client_sleeping, 1);
}

const struct sim_scenario scenario_notification = {
	.set_up = set_up_words,
	.thread = {notification_client, notification_worker},
};

static void both_client(void)
{
	for (uint32_t n = 0; n < 2; n++) {
		submit_and_ring(n, 0);
		sleep_until(completion_ready, n, &ring.header->client_sleeping, 1);
	}
}

static void both_worker(void)
{
	for (uint32_t n = 0; n < 2; n++) {
		sleep_until(submission_ready, n, &page.sleeping, 0);
		complete_and_notify(n, 1);
	}
}

const struct sim_scenario scenario_both = {
	.set_up = set_up_words,
	.thread = {both_client, both_worker},
};

static void one_announcement(void)
{
	dmasync_ring_announce_sleep(&ring.header->client_sleeping);
	if (!completion_ready(0) && !completion_ready(1))
		sim_sleep(1);
}

static void first_publisher(void)
{
	complete_and_notify(0, 1);
}

static void second_publisher(void)
{
	complete_and_notify(1, 1);
}

static const char *at_most_one(const uint32_t signals[SIM_MAX_PIPES])
{
	return signals[1] > 1 ? "one announcement was signalled twice" : NULL;
}

const struct sim_scenario scenario_one_signal = {
	.set_up = set_up_words,
	.thread = {one_announcement, first_publisher, second_publisher},
	.at_end = at_most_one,
};

/* ---- a queue that goes to another worker ---- */

static void submit_to_moved(uint32_t n)
{
	struct dmasync_submission submission = {.user_data = n};
	const uint32_t *sleeping = &page.sleeping;

	dmasync_ring_submit(&ring, position_of(n), &submission);
	if (rule(RULE_RING_WHEN_MOVED) ? dmasync_ring_wants_doorbell(&ring, sleeping)
				       : dmasync_ring_is_sleeping(sleeping))
		sim_signal(0);
}

static void moved_client(void)
{
	submit_to_moved(0);
	submit_to_moved(1);
}

static void second_worker(void)
{
	if (rule(RULE_MOVE_BEFORE_SLEEP))
		dmasync_ring_announce_move(&ring.header->ring_always);
	sleep_until(submission_ready, 0, &other_page.sleeping, 0);
	if (!rule(RULE_MOVE_BEFORE_SLEEP))
		dmasync_ring_announce_move(&ring.header->ring_always);
	sleep_until(submission_ready, 1, &other_page.sleeping, 0);
}

const struct sim_scenario scenario_move = {
	.set_up = set_up_words,
	.thread = {moved_client, second_worker},
};
