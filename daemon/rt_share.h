/* SPDX-License-Identifier: MIT */
/*
 * How much of the last 100 ms a thread was awake: plain arithmetic over times that it is given.
 * Owned by one worker.
 *
 * Time is cut into steps of 10 ms. What was used in the step that has begun and in the ten before
 * it covers every 100 ms that end now, so no window can hold more than the sum says.
 */
#ifndef DMASYNC_RT_SHARE_H
#define DMASYNC_RT_SHARE_H

#include <stdbool.h>
#include <stdint.h>

#define RT_SHARE_WINDOW_NS UINT64_C(100000000)
#define RT_SHARE_STEP_NS UINT64_C(10000000)
#define RT_SHARE_STEPS (RT_SHARE_WINDOW_NS / RT_SHARE_STEP_NS + 1)

struct rt_share {
	uint64_t step; /* number of the last one: time / RT_SHARE_STEP_NS */
	uint64_t used[RT_SHARE_STEPS];
	uint64_t sum;
};

/* Steps up to `step` begin; what lies further back than the window is forgotten. */
static inline void rt_share_forget(struct rt_share *share, uint64_t step)
{
	if (step - share->step >= RT_SHARE_STEPS) {
		*share = (struct rt_share){.step = step};
		return;
	}
	while (share->step != step) {
		uint64_t *oldest = &share->used[++share->step % RT_SHARE_STEPS];

		share->sum -= *oldest;
		*oldest = 0;
	}
}

/*
 * Awake from one time to the other, both of CLOCK_MONOTONIC and no earlier than those before.
 * Returns what was used of the window, never less than in any 100 ms that end at `to`.
 */
static inline uint64_t rt_share_use(struct rt_share *share, uint64_t from, uint64_t to)
{
	if (to - from > RT_SHARE_WINDOW_NS + RT_SHARE_STEP_NS)
		from = to - (RT_SHARE_WINDOW_NS + RT_SHARE_STEP_NS);
	while (from < to) {
		uint64_t step = from / RT_SHARE_STEP_NS;
		uint64_t end = (step + 1) * RT_SHARE_STEP_NS;
		uint64_t used = (end < to ? end : to) - from;

		rt_share_forget(share, step);
		share->used[step % RT_SHARE_STEPS] += used;
		share->sum += used;
		from += used;
	}
	rt_share_forget(share, to / RT_SHARE_STEP_NS);
	return share->sum;
}

#endif
