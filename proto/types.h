/* SPDX-License-Identifier: MIT */
/*
 * The words both sides of the process border share: sync, direction, backend, class, reasons.
 * The values are part of protocol layout 1 and never change. Included by <dmasync/dmasync.h>.
 */
#ifndef DMASYNC_PROTO_TYPES_H
#define DMASYNC_PROTO_TYPES_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * When a range is synced, seen from the device, as in the kernel's DMA API
 * (dma_sync_sg_for_device(), dma_sync_sg_for_cpu()). 0 is no sync, so that a zeroed entry is
 * refused.
 */
enum dmasync_sync {
	DMASYNC_FOR_DEVICE = 1, /* before the device touches the range */
	DMASYNC_FOR_CPU = 2,	/* after the device has touched the range */
};

/* Which way the data goes, as enum dma_data_direction in the kernel. A mask of two bits. */
enum dmasync_direction {
	DMASYNC_TO_DEVICE = 1,	   /* the device reads */
	DMASYNC_FROM_DEVICE = 2,   /* the device writes */
	DMASYNC_BIDIRECTIONAL = 3, /* the device does both */
};

/* How a buffer is maintained. */
enum dmasync_backend {
	DMASYNC_BACKEND_AUTO = 0,   /* in requests only: the daemon's policy chooses */
	DMASYNC_BACKEND_DIRECT = 1, /* line operations on the daemon's mapping */
	DMASYNC_BACKEND_KERNEL = 2, /* DMA_BUF_IOCTL_SYNC, always the whole buffer */
	DMASYNC_BACKEND_NONE = 3,   /* all devices coherent: elided; fence and barrier are kept */
	DMASYNC_BACKEND_SIMULATED = 4, /* a memfd with a device side of its own, for tests */
};

/* What a buffer's file descriptor turned out to be. */
enum dmasync_buffer_kind {
	DMASYNC_KIND_MEMFD = 1,
	DMASYNC_KIND_DMABUF = 2,
};

/* Priority class of a queue. */
enum dmasync_class {
	DMASYNC_CLASS_NORMAL = 0,
	DMASYNC_CLASS_REALTIME = 1,
	DMASYNC_CLASS_BULK = 2,
};
#define DMASYNC_CLASSES 3

/* The four phases a batch's time is told in, and the index of their histograms. */
enum dmasync_phase {
	DMASYNC_PHASE_QUEUED = 0,  /* submit until the daemon fetched the batch */
	DMASYNC_PHASE_ISSUE = 1,   /* opening fence until the last line operation was issued */
	DMASYNC_PHASE_BARRIER = 2, /* the completion barrier alone */
	DMASYNC_PHASE_TOTAL = 3,   /* submit until just before the completion was published */
	DMASYNC_PHASES = 4,
};

/* Feature bits of HELLO. A bit once given is never reused. */
#define DMASYNC_FEATURE_STRIDED (UINT64_C(1) << 0)   /* strided entries */
#define DMASYNC_FEATURE_SIMULATED (UINT64_C(1) << 1) /* simulated buffers: a daemon for tests */
#define DMASYNC_FEATURE_KERNEL (UINT64_C(1) << 2)    /* the kernel backend */
#define DMASYNC_FEATURE_DIRECT (UINT64_C(1) << 3)    /* line operations work on this CPU */
#define DMASYNC_FEATURE_WATCH (UINT64_C(1) << 4)     /* WATCH: a stream of batch records */

/* X(bit, word): for sentences */
#define DMASYNC_FEATURES(X)                                                                        \
	X(DMASYNC_FEATURE_STRIDED, "strided")                                                      \
	X(DMASYNC_FEATURE_SIMULATED, "simulated")                                                  \
	X(DMASYNC_FEATURE_KERNEL, "kernel")                                                        \
	X(DMASYNC_FEATURE_DIRECT, "direct")                                                        \
	X(DMASYNC_FEATURE_WATCH, "watch")

/* dmasync_completion.flags */
#define DMASYNC_COMPLETION_EXTENDED (1u << 0) /* wire only: the second cache line is written */
#define DMASYNC_COMPLETION_MIXED (1u << 1)    /* the barrier also waited for other batches' lines */
#define DMASYNC_COMPLETION_NO_GUARANTEE (1u << 2) /* a kernel sync that may do nothing */
#define DMASYNC_COMPLETION_REISSUED (1u << 3)	  /* the worker changed CPU: issued a second time */
#define DMASYNC_COMPLETION_KERNEL (1u << 4)	  /* at least one DMA_BUF_IOCTL_SYNC was made */
#define DMASYNC_COMPLETION_SUSPECT_TIME (1u << 5) /* submit_ns was impossible: queued_ns is 0 */
#define DMASYNC_COMPLETION_REPLAYED                                                                \
	(1u << 6) /* set by the library: submitted again to a new daemon */
#define DMASYNC_COMPLETION_INLINE (1u << 7) /* set by the library: done in the client's process */
#define DMASYNC_COMPLETION_SPLIT (1u << 8)  /* several workers issued it */

/*
 * Why a batch failed, and the errno that stands in its status. X(NAME, value, errno, sentence):
 * one table for the daemon, the library and PROTOCOL.md. The sentence follows "entry N: " where
 * the reason is about one entry.
 */
#define DMASYNC_REASONS(X)                                                                         \
	X(NONE, 0, 0, "no error")                                                                  \
	X(UNKNOWN_BUFFER, 1, ENOENT,                                                               \
	  "the entry names a buffer that is not registered on this connection; register it with "  \
	  "BUFFER_ADD, and do not use a handle after BUFFER_REMOVE")                               \
	X(BAD_SYNC, 2, EINVAL, "sync must be for_device (1) or for_cpu (2)")                       \
	X(BAD_DIRECTION, 3, EINVAL,                                                                \
	  "direction must be to_device (1), from_device (2) or bidirectional (3)")                 \
	X(OUT_OF_RANGE, 4, ERANGE, "the range does not lie inside its buffer")                     \
	X(OVERFLOW, 5, EOVERFLOW, "offset, length, rows and stride overflow 64 bits")              \
	X(BAD_STRIDE, 6, EINVAL,                                                                   \
	  "rows must be at least 1, and with more than one row stride must not be below length")   \
	X(RESERVED_BITS, 7, EINVAL, "a reserved bit or field is not zero")                         \
	X(TRUNCATED_ENTRY, 8, EINVAL, "the strided entry's second unit is missing")                \
	X(EMPTY_BATCH, 9, EINVAL, "the batch has no entry")                                        \
	X(TOO_MANY_UNITS, 10, EMSGSIZE, "the batch has more units than its queue")                 \
	X(TOO_MANY_LINES, 11, E2BIG, "the batch covers more lines than max_batch_lines allows")    \
	X(FAULT, 12, EFAULT, "the buffer's memory could not be reached: was it truncated?")        \
	X(KERNEL_SYNC, 13, EIO, "DMA_BUF_IOCTL_SYNC failed")                                       \
	X(CANCELLED, 14, ECANCELED, "the batch was cancelled: its queue is going away")            \
	X(BAD_FLAGS, 15, EINVAL, "the submission sets unknown flags")                              \
	X(FENCE, 16, ETIMEDOUT,                                                                    \
	  "a fence of the buffer was not signalled within fence_timeout_ms: a device still uses "  \
	  "the buffer, or hangs")                                                                  \
	X(DAEMON_LOST, 17, ECONNRESET,                                                             \
	  "dmasyncd went away before the batch was done, and nothing that can take over came "     \
	  "after "                                                                                 \
	  "it; dmasync_error_text() says why")                                                     \
	X(REPLAYED_TOO_OFTEN, 18, ECONNRESET,                                                      \
	  "dmasyncd went away again and again while the batch was the first of its queue; it was " \
	  "given up")

enum dmasync_reason {
#define DMASYNC_REASON_ENUM_(name, value, error, text) DMASYNC_REASON_##name = value,
	DMASYNC_REASONS(DMASYNC_REASON_ENUM_)
#undef DMASYNC_REASON_ENUM_
};

/* The value of bad_entry where no entry is to blame. */
#define DMASYNC_NO_ENTRY UINT32_MAX

#ifdef __cplusplus
}
#endif

#endif
