/* SPDX-License-Identifier: MIT */
/*
 * Class: clocks that lie. Times of submission before the queue was there, in the future and at the
 * ends of their type: told apart, and kept out of everybody's histograms. One thread.
 */
#include "tests/hostile/target.h"

enum { BYTES = 4096, DEPTH = 64, ROUNDS = 100 };

static uint64_t in_histogram(struct raw *raw, enum dmasync_phase phase, uint64_t *ret_max_ns)
{
	struct dmasync_histogram request = {.phase = (uint32_t)phase};
	struct dmasync_histogram_reply reply;

	raw_call(raw, &request, DMASYNC_OP_HISTOGRAM, sizeof request, &reply, sizeof reply);
	*ret_max_ns = reply.max_ns;
	return reply.count;
}

ATTACK(times_that_cannot_be, .connections = 1, .queues = 1)
{
	static const uint64_t lies[] = {
		0, 1, UINT64_MAX, UINT64_MAX - 1, UINT64_C(1) << 63, INT64_MAX, UINT64_C(1) << 62};
	struct target target;
	struct dmasync_ring_completion done;
	struct dmasync_stats_reply before, after;
	uint64_t suspects = 0, max_ns, count;

	target_open(&target, attack, BYTES, DEPTH, DEPTH);
	raw_stats(&target.raw, &before);
	for (uint64_t round = 0; round < rounds(ROUNDS); round++) {
		for (uint32_t i = 0; i < DEPTH; i++) {
			struct dmasync_submission submission = {
				.submit_ns = lies[i % (sizeof lies / sizeof lies[0])],
				.entry = target_unit(&target, 0, LINE),
				.client_cpu = attack_random(), /* a hint that may lie, too */
			};

			raw_publish(&target.queue, NULL, 0, &submission);
		}
		for (uint32_t i = 0; i < DEPTH; i++, suspects++) {
			raw_wait(&target.queue, &done);
			check_int(done.status, 0);
			check(done.flags & DMASYNC_COMPLETION_SUSPECT_TIME);
			check_int(done.queued_ns, 0);
		}
	}
	count = in_histogram(&target.raw, DMASYNC_PHASE_QUEUED, &max_ns);
	raw_stats(&target.raw, &after);
	check_int(after.suspect_times - before.suspect_times, suspects);
	/* Others have done fewer batches between the two requests than were lied about. */
	check(count <= after.batches - suspects);
	check(max_ns <= after.uptime_ns);
	others_go_on(attack);
	target_close(&target);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(times_that_cannot_be),
};

HARNESS_MAIN(cases)
