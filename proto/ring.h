/* SPDX-License-Identifier: MIT */
/*
 * The shared ring of one queue: layout of the memfd, byte for byte. Only layout stands here;
 * ring_access.h is the one file that touches ring memory.
 *
 * All fields are little-endian. Only 32-bit words are ever accessed atomically, so that 32-bit
 * clients can take part; everything else is plain and covered by the seq of its slot.
 */
#ifndef DMASYNC_PROTO_RING_H
#define DMASYNC_PROTO_RING_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "types.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the ring is little-endian and so must be the host"
#endif

#define DMASYNC_RING_MAGIC UINT32_C(0x52534d44) /* "DMSR" */
#define DMASYNC_RING_LAYOUT 1

/*
 * Positions count batches (and units) since the queue was made, modulo 2^32; a position's place in
 * its array is position & (size - 1). They start here so that every queue crosses 2^32 early in
 * its life.
 */
#define DMASYNC_RING_START UINT32_C(0xffffff00)

#define DMASYNC_RING_MIN_DEPTH 2u
#define DMASYNC_RING_MAX_DEPTH 4096u
#define DMASYNC_RING_MIN_UNITS 2u
#define DMASYNC_RING_MAX_UNITS 131072u /* 65536 strided entries, 2 MiB */

/*
 * One page at the start of the memfd. The daemon writes the constants once, and ring_always when
 * another worker takes the queue over, and reads neither back; the client writes completions_read
 * and client_sleeping.
 */
struct dmasync_ring_header {
	uint32_t magic;		     /*   0: DMASYNC_RING_MAGIC */
	uint32_t layout;	     /*   4: DMASYNC_RING_LAYOUT */
	uint32_t depth;		     /*   8: slots of either kind, a power of two */
	uint32_t units;		     /*  12: units in the unit ring, a power of two */
	uint32_t submissions_offset; /*  16: bytes from the start of the memfd */
	uint32_t units_offset;	     /*  20 */
	uint32_t completions_offset; /*  24 */
	uint32_t size;		     /*  28: bytes of the memfd */
	uint32_t start;		     /*  32: DMASYNC_RING_START */
	uint32_t ring_always;	   /*  36: the worker writes: 1 once it is not the worker page's */
	uint32_t reserved0[22];	   /*  40 */
	uint32_t completions_read; /* 128: client writes: position of the next unread completion */
	uint32_t reserved1[31];	   /* 132 */
	uint32_t client_sleeping;  /* 256: 1 while the client wants a notification */
	uint32_t reserved2[31];	   /* 260 */
};

/*
 * One unit of the unit ring. `word` says what it is:
 *
 *	bits  0..23	buffer handle, as BUFFER_ADD gave it
 *	bits 24..25	enum dmasync_direction
 *	bits 26..27	enum dmasync_sync
 *	bit  28		strided: the next unit is a struct dmasync_unit_rows
 *	bits 29..31	0: an entry. Others are refused (later: fences)
 */
struct dmasync_unit {
	uint32_t word;	 /* 0 */
	uint32_t length; /* 4: bytes; 0 touches no line */
	uint64_t offset; /* 8: bytes from the start of the buffer */
};

/* The second unit of a strided entry: `rows` ranges of `length` bytes, `stride` bytes apart. */
struct dmasync_unit_rows {
	uint32_t rows;	   /* 0: at least 1 */
	uint32_t reserved; /* 4: 0 */
	uint64_t stride;   /* 8: bytes; >= length where rows > 1 */
};

#define DMASYNC_UNIT_BUFFER_MASK UINT32_C(0x00ffffff)
#define DMASYNC_UNIT_DIRECTION_SHIFT 24
#define DMASYNC_UNIT_SYNC_SHIFT 26
#define DMASYNC_UNIT_STRIDED (UINT32_C(1) << 28)
#define DMASYNC_UNIT_RESERVED UINT32_C(0xe0000000)

/* A submission: one cache line, so that the line the reader polls carries the data. */
struct dmasync_submission {
	uint32_t seq;		   /*  0: its position once published, position - depth before */
	uint32_t flags;		   /*  4: 0 */
	uint64_t user_data;	   /*  8: comes back in the completion */
	uint64_t submit_ns;	   /* 16: CLOCK_MONOTONIC at submit; the client's word */
	uint32_t unit_position;	   /* 24: of its first unit in the unit ring */
	uint32_t unit_count;	   /* 28: 0: the batch is the one entry below */
	struct dmasync_unit entry; /* 32: all zero where unit_count > 0 */
	uint32_t deadline_us;	   /* 48: reserved for later, 0 */
	uint32_t client_cpu;  /* 52: the CPU it was submitted on, plus 1; 0: not said. A hint */
	uint32_t reserved[2]; /* 56: 0 */
};

/*
 * A completion. The first cache line is always written. The second one is written only where
 * DMASYNC_COMPLETION_EXTENDED is set; where it is not, its fields are 0 and bad_entry is
 * DMASYNC_NO_ENTRY by definition, and neither side touches the line.
 */
struct dmasync_ring_completion {
	uint32_t seq;	     /*   0: its position once published */
	int32_t status;	     /*   4: 0 or a negative errno */
	uint64_t user_data;  /*   8 */
	uint32_t entries;    /*  16: entries of the batch, as submitted */
	uint32_t flags;	     /*  20: DMASYNC_COMPLETION_* */
	uint64_t lines;	     /*  24: line operations issued */
	uint64_t bytes;	     /*  32: lines * line size, what was really covered */
	uint64_t queued_ns;  /*  40: submit until fetched */
	uint64_t issue_ns;   /*  48: opening fence until the last line operation was issued */
	uint64_t barrier_ns; /*  56: from then until the completion barrier was through */
	uint64_t fence_ns;   /*  64: waited for fences of the batch's dma-bufs */
	uint64_t
		batch_id; /*  72: the daemon's number of the batch, as `dmasyncctl batches` shows */
	uint32_t bad_entry; /*  80: index of the entry that failed the batch, or DMASYNC_NO_ENTRY */
	uint32_t reason;    /*  84: enum dmasync_reason */
	uint32_t elided; /*  88: entries that needed no operation (coherent, for_cpu to_device) */
	uint32_t shared_by;   /*  92: batches that waited behind the same barrier, 0 for one */
	uint32_t workers;     /*  96: workers that issued it, 0 for one */
	uint32_t reserved[7]; /* 100: 0 */
};

/* A memfd of one page per worker, mapped read-only by the clients of its queues. */
struct dmasync_worker_page {
	uint32_t sleeping;     /* 0: 1 while the worker wants a doorbell */
	uint32_t cpu;	       /* 4: the CPU the worker is on, plus 1; 0: not said. A hint */
	uint32_t reserved[14]; /* 8 */
};

static_assert(sizeof(struct dmasync_ring_header) == 384, "ring layout");
static_assert(offsetof(struct dmasync_ring_header, completions_read) == 128, "ring layout");
static_assert(offsetof(struct dmasync_ring_header, client_sleeping) == 256, "ring layout");
static_assert(sizeof(struct dmasync_unit) == 16, "ring layout");
static_assert(sizeof(struct dmasync_unit_rows) == 16, "ring layout");
static_assert(sizeof(struct dmasync_submission) == 64, "ring layout");
static_assert(offsetof(struct dmasync_submission, entry) == 32, "ring layout");
static_assert(offsetof(struct dmasync_submission, reserved) == 56, "ring layout");
static_assert(sizeof(struct dmasync_ring_completion) == 128, "ring layout");
static_assert(offsetof(struct dmasync_ring_completion, barrier_ns) == 56, "ring layout");
static_assert(offsetof(struct dmasync_ring_completion, reserved) == 100, "ring layout");
static_assert(sizeof(struct dmasync_worker_page) == 64, "ring layout");

#define DMASYNC_RING_PAGE 4096u

/* The layout of a queue's memfd, from its two sizes alone. */
struct dmasync_ring_layout {
	uint32_t depth, units;
	uint32_t submissions_offset, units_offset, completions_offset, size;
};

static inline int dmasync_ring_is_power_of_two(uint32_t n)
{
	return n != 0 && (n & (n - 1)) == 0;
}

/* False where depth or units is no power of two or out of bounds; then *ret is untouched. */
static inline int dmasync_ring_layout(uint32_t depth, uint32_t units,
				      struct dmasync_ring_layout *ret)
{
	if (!dmasync_ring_is_power_of_two(depth) || depth < DMASYNC_RING_MIN_DEPTH ||
	    depth > DMASYNC_RING_MAX_DEPTH || !dmasync_ring_is_power_of_two(units) ||
	    units < DMASYNC_RING_MIN_UNITS || units > DMASYNC_RING_MAX_UNITS)
		return 0;
	ret->depth = depth;
	ret->units = units;
	ret->submissions_offset = DMASYNC_RING_PAGE;
	ret->completions_offset =
		ret->submissions_offset + depth * (uint32_t)sizeof(struct dmasync_submission);
	ret->units_offset =
		ret->completions_offset + depth * (uint32_t)sizeof(struct dmasync_ring_completion);
	ret->size = ret->units_offset + units * (uint32_t)sizeof(struct dmasync_unit);
	ret->size = (ret->size + DMASYNC_RING_PAGE - 1) & ~(DMASYNC_RING_PAGE - 1);
	return 1;
}

static inline uint32_t dmasync_unit_word(uint32_t buffer, enum dmasync_sync sync,
					 enum dmasync_direction direction, int strided)
{
	return (buffer & DMASYNC_UNIT_BUFFER_MASK) |
	       (uint32_t)direction << DMASYNC_UNIT_DIRECTION_SHIFT |
	       (uint32_t)sync << DMASYNC_UNIT_SYNC_SHIFT | (strided ? DMASYNC_UNIT_STRIDED : 0);
}

#endif
