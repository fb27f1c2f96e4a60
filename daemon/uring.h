/* SPDX-License-Identifier: MIT */
/*
 * Making an io_uring: as small, as cheap and as restricted as this kernel has it. The thread that
 * makes one is the one that uses it.
 */
#ifndef DMASYNC_URING_H
#define DMASYNC_URING_H

#include <liburing.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a ring is for; everything else is refused on it with -EACCES where the kernel can. */
struct uring_use {
	uint8_t opcodes[8]; /* IORING_OP_* */
	size_t opcode_count;
	uint8_t sqe_flags; /* IOSQE_* */
	/* IORING_SETUP_* in addition, where tasks run on request: IORING_SETUP_TASKRUN_FLAG. */
	unsigned int setup_flags;
};

struct uring_made {
	const char *name; /* "io_uring defer-taskrun", under DMASYNC_NAME_SIZE bytes */
	int unrestricted; /* 0: it is; else the negative errno with which the kernel refused to */
};

/*
 * Errors: negative errno; -EPERM, -ENOSYS, -ENOMEM where the kernel, its configuration or a filter
 * refuses io_uring. Free with io_uring_queue_exit().
 */
int uring_create(const struct uring_use *use, struct io_uring *ring, struct uring_made *ret);

/*
 * Why io_uring_create() was refused, and what to do, as half a sentence: "sysctl
 * kernel.io_uring_disabled is 2, which ...". Reads /proc; any thread.
 */
void uring_refusal(int error, char *text, size_t text_size);

#endif
