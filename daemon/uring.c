/* SPDX-License-Identifier: MIT */
/* Making an io_uring: see uring.h. Owns nothing; the thread that uses the ring. */
#include "daemon/uring.h"

#include <errno.h>

#define ENTRIES 256u /* small: kernels up to 5.11 charge rings to RLIMIT_MEMLOCK */
#define ENTRIES_MIN 8u
#define RESTRICTIONS_MAX 10u

/* Tried in turn: 6.1 and later, 5.19 and later, any. */
static const struct {
	unsigned int flags;
	bool on_request; /* task work runs when it is asked for: uring_use.setup_flags count */
	const char *name;
} setups[] = {
	{IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL, true,
	 "io_uring defer-taskrun"},
	{IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL, true, "io_uring coop-taskrun"},
	{0, false, "io_uring"},
};

#define SETUPS (sizeof(setups) / sizeof(setups[0]))

/*
 * The ring was made disabled. seccomp sees no further than io_uring_enter: what a ring may be asked
 * for stands here. Who enables it is its single issuer.
 */
static int restrict_and_enable(const struct uring_use *use, struct io_uring *ring)
{
	struct io_uring_restriction restrictions[RESTRICTIONS_MAX] = {{0}};
	unsigned int n = 0;

	for (; n < use->opcode_count; n++) {
		restrictions[n].opcode = IORING_RESTRICTION_SQE_OP;
		restrictions[n].sqe_op = use->opcodes[n];
	}
	restrictions[n].opcode = IORING_RESTRICTION_SQE_FLAGS_ALLOWED;
	restrictions[n++].sqe_flags = use->sqe_flags;

	int r = io_uring_register((unsigned int)ring->ring_fd, IORING_REGISTER_RESTRICTIONS,
				  restrictions, n);

	if (r == 0)
		r = io_uring_register((unsigned int)ring->ring_fd, IORING_REGISTER_ENABLE_RINGS,
				      NULL, 0);
	return r < 0 ? r : 0;
}

static int make_ring(const struct uring_use *use, unsigned int entries, size_t setup,
		     struct io_uring *ring, int *ret_unrestricted)
{
	unsigned int flags =
		setups[setup].flags | (setups[setup].on_request ? use->setup_flags : 0);
	int r = io_uring_queue_init(entries, ring, flags | IORING_SETUP_R_DISABLED);

	if (r == 0) {
		r = restrict_and_enable(use, ring);
		if (r == 0) {
			*ret_unrestricted = 0;
			return 0;
		}
		io_uring_queue_exit(ring);
	} else if (r != -EINVAL) {
		return r; /* not for want of the flag, which came with 5.10 */
	}
	*ret_unrestricted = r;
	return io_uring_queue_init(entries, ring, flags);
}

int uring_create(const struct uring_use *use, struct io_uring *ring, struct uring_made *ret)
{
	int r = -EINVAL;

	for (unsigned int entries = ENTRIES; entries >= ENTRIES_MIN; entries /= 2) {
		for (size_t i = 0; i < SETUPS; i++) {
			int unrestricted = 0;

			r = make_ring(use, entries, i, ring, &unrestricted);
			if (r == -EINVAL)
				continue; /* this kernel does not have these flags */
			if (r < 0)
				break;
			/* A filter may let a ring be made and not be used. */
			r = io_uring_get_events(ring);
			if (r < 0) {
				io_uring_queue_exit(ring);
				return r;
			}
			*ret = (struct uring_made){setups[i].name, unrestricted};
			return 0;
		}
		if (r != -ENOMEM)
			break;
	}
	return r;
}
