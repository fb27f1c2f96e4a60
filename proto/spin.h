/* SPDX-License-Identifier: MIT */
/*
 * How long a side of a ring looks before it sleeps: the rule that worker and client both follow.
 * Owned by one thread; plain arithmetic, so that a test needs no clock.
 */
#ifndef DMASYNC_PROTO_SPIN_H
#define DMASYNC_PROTO_SPIN_H

#include <stdint.h>

/* Below this a look is not worth the two readings of the clock that bound it. */
#define DMASYNC_SPIN_GRAIN_NS UINT64_C(1000)

/* All in nanoseconds. least_ns <= window_ns <= most_ns, always. */
struct dmasync_spin {
	uint64_t least_ns, most_ns;
	uint64_t window_ns; /* how long the next look may last */
};

/* The bounds, at first or anew. A look may last as long as it may, until it has proved vain. */
static inline void dmasync_spin_bounds(struct dmasync_spin *spin, uint64_t least_ns,
				       uint64_t most_ns)
{
	spin->most_ns = most_ns;
	spin->least_ns = least_ns < most_ns ? least_ns : most_ns;
	spin->window_ns = most_ns;
}

/*
 * What was waited for came gap_ns after the look had begun, seen by the look or slept through.
 *
 * Within the window: it stays. Within the bound, and a longer look would have seen it: twice as
 * long as that would have taken, or an eighth of the bound at least, so that a burst after a pause
 * costs few wake-ups. Beyond the bound every look was in vain: half of the window, so that after a
 * few a rare batch costs no CPU time.
 */
static inline void dmasync_spin_learn(struct dmasync_spin *spin, uint64_t gap_ns)
{
	uint64_t window = spin->window_ns;

	if (gap_ns > spin->most_ns) {
		window /= 2;
		if (window < DMASYNC_SPIN_GRAIN_NS)
			window = 0;
	} else if (gap_ns >= window) {
		window = 2 * gap_ns;
		if (window < spin->most_ns / 8)
			window = spin->most_ns / 8;
	}
	if (window < spin->least_ns)
		window = spin->least_ns;
	if (window > spin->most_ns)
		window = spin->most_ns;
	spin->window_ns = window;
}

#endif
