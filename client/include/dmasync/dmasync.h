/* SPDX-License-Identifier: MIT */
/*
 * libdmasync: CPU cache maintenance for DMA buffers, many ranges and one wait.
 *
 * Errors are negative errno values; a function that fails leaves its ret_ arguments untouched.
 * The library never logs, never exits, installs no signal handler and has no global state, but for
 * one constant of the machine that iomem.h finds once.
 *
 * Threads: a connection and its buffers may be used by any thread at any time; a queue, its
 * batches and its completions by one thread at a time. Destroying an object while another thread
 * uses it is an error that is not detected.
 *
 * fork(): the child may use nothing of it: every call returns -ECHILD (or does nothing, where it
 * returns nothing), and the rings are not mapped there. exec() is fine: all fds are close-on-exec.
 *
 * Which calls a frame needs, for a device that is not coherent with the CPU caches:
 *
 *	the CPU wrote, the device will read	for_device, to_device
 *	the device will write			for_device, from_device, before it starts
 *	the device has written, the CPU reads	for_cpu, from_device, after it is done
 *
 * Both halves are needed for a buffer that a device writes: a line that is dirty when the device
 * writes is later written back over the device's data, and only the first half prevents it; a
 * line fetched while the device was writing is stale, and only the second half drops it. (The
 * reasoning of the kernel's DMA API: Documentation/core-api/dma-api.rst and
 * arch/arm64/mm/dma-mapping.c.)
 */
#ifndef DMASYNC_DMASYNC_H
#define DMASYNC_DMASYNC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DMASYNC_VERSION_MAJOR 0
#define DMASYNC_VERSION_MINOR 1
#define DMASYNC_VERSION_PATCH 0

struct dmasync;
struct dmasync_buffer;
struct dmasync_queue;
struct dmasync_batch;

/* ---- version and errors ---- */

/* "0.1.0", of the library that is running. Static. Any thread. */
const char *dmasync_version(void);

/*
 * A sentence for a negative errno of this library. Writes at most `size` bytes with the final zero
 * and returns the length it would have had, as snprintf(). Any thread.
 */
size_t dmasync_strerror(int error, char *text, size_t size);

/* ---- connection ---- */

struct dmasync_connect_params {
	uint32_t size;		     /* sizeof this struct, as the caller knows it */
	uint32_t flags;		     /* DMASYNC_INLINE*, DMASYNC_NO_RECONNECT */
	const char *socket;	     /* NULL: $DMASYNC_SOCKET (not in set-user-ID programs), else
				      * /run/dmasync/socket */
	const char *name;	     /* shown by `dmasyncctl clients`; NULL: the program's name */
	uint64_t features_required;  /* DMASYNC_FEATURE_*; -EOPNOTSUPP where the daemon lacks one */
	uint32_t timeout_ms;	     /* for connect and each request; 0: 2000 */
	uint32_t connect_timeout_ms; /* for a connect alone, also a later one; 0: timeout_ms */
	char *error_text; /* out: on failure a sentence, cut to error_text_size; or NULL */
	size_t error_text_size;
	uint32_t give_up_ms; /* no daemon for so long: the connection is broken; 0: never */
	uint32_t reserved;   /* 0 */
};

/* Zeroes and sets size. Any thread. */
void dmasync_connect_params_init(struct dmasync_connect_params *params);

/*
 * Inline mode: no daemon. The same calls do the same checks and operations in this process, by the
 * daemon's own code; the work happens inside dmasync_batch_submit(), on the calling thread, and
 * its completion says DMASYNC_COMPLETION_INLINE. Registering a buffer maps it here a second time,
 * read-only. submit then waits for fences of dma-bufs (at most 5 s), and for the kernel where a
 * buffer gets DMA_BUF_IOCTL_SYNC. The library installs no signal handler: it takes the line
 * operations that CPU and kernel say they have, and a fault on a mapping is the application's.
 */
#define DMASYNC_INLINE (1u << 0)
/*
 * The same while no daemon answers. A queue changes sides when a batch is begun and nothing is in
 * flight on it: to this process once a daemon is gone and the next look finds none, back once one
 * has answered. What was in flight with a daemon that went is submitted again to whoever answers
 * first, the next daemon or this process: no side has it then. Each batch completes exactly once,
 * in its order, and says who did it. No daemon at connect is no error. Every buffer is registered
 * on both sides. A daemon that cannot take over is as none.
 */
#define DMASYNC_INLINE_FALLBACK (1u << 1)
/* With one of the above: simulated buffers are allowed, as by a daemon's allow_simulated. For
 * tests. */
#define DMASYNC_INLINE_SIMULATED (1u << 2)
/* The connection breaks with its daemon: calls return -ECONNRESET, nothing is replayed. */
#define DMASYNC_NO_RECONNECT (1u << 3)

/*
 * Connects and shakes hands, in at most connect_timeout_ms: also a socket unit whose daemon cannot
 * start accepts connections. flags: the bits above, or 0; with DMASYNC_INLINE nothing is connected
 * to.
 *
 * -ENOENT, -ECONNREFUSED: no daemon; start dmasyncd.socket. -EACCES: not in group dmasync.
 * -ETIMEDOUT: it accepts and does not answer. -ECONNRESET: it hung up. -EPROTO: it answers
 * nonsense. -EUSERS, -EMFILE: it serves as many connections as it can. -EOPNOTSUPP: a required
 * feature or every common version is missing. -E2BIG: params has a tail that is not zero and not
 * known here. -EINVAL: unknown flags, reserved fields or an impossible size.
 */
int dmasync_connect(const char *socket, uint32_t flags, struct dmasync **ret);
int dmasync_connect_with(const struct dmasync_connect_params *params, struct dmasync **ret);

/* ---- when the daemon goes ---- */

/*
 * A daemon may die or be restarted at any time. The library notices, connects again, registers the
 * buffers, makes the queues and submits again what was in flight, oldest first: each batch still
 * completes exactly once, and one that was submitted again has DMASYNC_COMPLETION_REPLAYED. There
 * are no threads and no signal handlers for that: it happens in the calls of the application, each
 * of which does what can be done at once. dmasync_wait() and dmasync_sync() go on till they have a
 * completion, and so does a request (buffer, queue) till its time-out. dmasync_peek() and
 * dmasync_get_state() do one step. Only one that meets a daemon which has answered waits for it:
 * for the registration of the next few buffers, or for the queue. begin, add and submit do nothing
 * of it: batches go into the old ring while it has room.
 *
 * The new daemon must be as good as the one before: the same protocol and line size, every feature
 * it had, limits that hold what there is. Else the connection is broken for good: each batch in
 * flight completes once with -ECONNRESET and DMASYNC_REASON_DAEMON_LOST, then calls return
 * -ECONNRESET, and dmasync_error_text() says why. A batch that was the first of its queue when one
 * daemon after another died ends with DMASYNC_REASON_REPLAYED_TOO_OFTEN.
 */
enum dmasync_state {
	DMASYNC_STATE_CONNECTED = 0,
	DMASYNC_STATE_RECONNECTING = 1, /* nobody answers; dmasync_error_text() says who does not */
	DMASYNC_STATE_BROKEN = 2,	/* for good: disconnect, and connect anew */
	DMASYNC_STATE_INLINE = 3,	/* this process does the work */
};

struct dmasync_state_info {
	uint32_t size; /* in: sizeof this struct */
	enum dmasync_state state;
	uint64_t restarts; /* how often another daemon took over */
	uint64_t replayed; /* batches submitted again, all in all */
};

/* Looks at the connection, does one step of the above, and says how it is. Any thread. */
int dmasync_get_state(struct dmasync *ds, struct dmasync_state_info *info);

/*
 * Calls `callback` whenever the state has changed, from the thread whose call found or changed it,
 * before that call goes on; no lock is held, so any function may be called from it but those that
 * destroy and those of a queue, on which that call may be at work. Two threads may call it at once:
 * `state` is what it was, dmasync_get_state() what it is. NULL: none. -ECHILD.
 */
typedef void (*dmasync_state_fn)(struct dmasync *ds, enum dmasync_state state, void *context);
int dmasync_set_state_callback(struct dmasync *ds, dmasync_state_fn callback, void *context);

/*
 * Closes the connection and frees it. Every queue and buffer made on it must have been destroyed
 * before. NULL is fine.
 */
void dmasync_disconnect(struct dmasync *ds);

struct dmasync_info {
	uint32_t size;	      /* in: sizeof this struct */
	uint32_t protocol;    /* version in use */
	uint64_t features;    /* DMASYNC_FEATURE_* of the daemon */
	uint32_t line_size;   /* bytes; 0: no line operation works there */
	uint32_t granule;     /* bytes; buffers sharing one may disturb each other (CTR_EL0.CWG) */
	uint32_t max_buffers; /* of one connection */
	uint32_t max_queues;
	uint32_t max_depth; /* of one queue */
	uint32_t max_units;
	uint64_t max_buffer_bytes; /* of one connection */
	uint64_t max_batch_lines;
	char daemon_version[32];
	char cache_ops[32]; /* "arm64 dc cvac/civac", ... */
};

/*
 * What the daemon said when the connection was made; in inline mode what holds here, and
 * daemon_version is "". -E2BIG, -EINVAL as for params.
 */
int dmasync_get_info(struct dmasync *ds, struct dmasync_info *info);

/*
 * The sentence that came with the last failed request on this connection (buffer, queue and
 * connection calls), from any thread; "" where none failed. Same arguments as dmasync_strerror().
 */
size_t dmasync_error_text(struct dmasync *ds, char *text, size_t size);

/* ---- buffers ---- */

/*
 * Registers a dma-buf, or a memfd that carries F_SEAL_SHRINK. The fd is duplicated; the caller
 * keeps its own. flags: DMASYNC_IMPORT_NO_CLEAN and at most one of the backends below.
 *
 * The whole buffer is cleaned once, so that no line dirtied before can be written back over what
 * a device writes; DMASYNC_IMPORT_NO_CLEAN leaves it out.
 *
 * -EBADF, -EINVAL: no such fd, or neither a dma-buf nor a memfd sealed against shrinking.
 * -EOPNOTSUPP: this buffer or machine cannot be synced that way. -ENOSPC, -ENOMEM, -EMFILE: a
 * limit; the error text names it. -ETIMEDOUT: no daemon answered in time. -ECONNRESET: broken for
 * good.
 */
#define DMASYNC_IMPORT_NO_CLEAN (1u << 0)
#define DMASYNC_IMPORT_DIRECT (1u << 1)	   /* line operations, or fail */
#define DMASYNC_IMPORT_KERNEL (1u << 2)	   /* DMA_BUF_IOCTL_SYNC: for buffers that are bounced */
#define DMASYNC_IMPORT_COHERENT (1u << 3)  /* all its devices are coherent: nothing to do */
#define DMASYNC_IMPORT_SIMULATED (1u << 4) /* a simulated buffer of dmasync_buffer_alloc() */
int dmasync_buffer_import(struct dmasync *ds, int fd, uint32_t flags, struct dmasync_buffer **ret);

enum dmasync_memory {
	DMASYNC_MEMORY_AUTO = 0, /* the first that works of: CMA heap, udmabuf, memfd */
	DMASYNC_MEMORY_CMA = 1,	 /* a CMA dma-heap: physically contiguous */
	DMASYNC_MEMORY_SYSTEM =
		2, /* the system dma-heap: scattered pages, for devices with an IOMMU */
	DMASYNC_MEMORY_UDMABUF = 3, /* /dev/udmabuf on a memfd */
	DMASYNC_MEMORY_MEMFD = 4,   /* no dma-buf: for tests and software */
	DMASYNC_MEMORY_SIMULATED =
		5, /* a simulated non-coherent buffer, where the daemon allows it */
};

struct dmasync_buffer_params {
	uint32_t size;		    /* sizeof this struct */
	uint32_t flags;		    /* DMASYNC_IMPORT_* */
	uint64_t bytes;		    /* at least 1; rounded up to whole pages */
	enum dmasync_memory memory; /* AUTO: contiguous first */
	uint32_t reserved;	    /* 0 */
};

void dmasync_buffer_params_init(struct dmasync_buffer_params *params);

/*
 * Allocates cached memory from what the machine has, maps it in this process and registers it.
 * dmasync_buffer_get_info() says which memory it became. Errors: those of import; -ENODEV: the
 * memory asked for is not there (the error text lists what was tried and why it failed).
 */
int dmasync_buffer_alloc(struct dmasync *ds, const struct dmasync_buffer_params *params,
			 struct dmasync_buffer **ret);

struct dmasync_buffer_info {
	uint32_t size;	 /* in: sizeof this struct */
	uint32_t handle; /* the daemon's, for SYNC messages and logs */
	uint64_t bytes;
	enum dmasync_backend backend; /* chosen by the daemon */
	enum dmasync_buffer_kind kind;
	enum dmasync_memory memory; /* of an allocated buffer; AUTO for an imported one */
	int fd;			    /* the library's; dup it to keep it */
	bool guarantee;		    /* a sync is known to reach the point of coherency */
	bool locked;		    /* the daemon's mapping is populated and locked */
	char exporter[32];	    /* exp_name of a dma-buf, "" for a memfd */
};

int dmasync_buffer_get_info(const struct dmasync_buffer *buffer, struct dmasync_buffer_info *info);

/*
 * The buffer in this process, readable and writable, mapped at the first call (an imported buffer
 * may not be mappable: NULL). Valid until the buffer is destroyed. Any thread.
 */
void *dmasync_buffer_map(struct dmasync_buffer *buffer);

/* The device's side of a simulated buffer: what a device would read and write. Else NULL. */
void *dmasync_buffer_map_device(struct dmasync_buffer *buffer);

/*
 * Waits for what is in flight on the connection's queues (at most the connection's time-out; in
 * inline mode until the thread that is in submit has done it), so that no batch names it any more,
 * then unregisters and frees it. NULL is fine.
 */
void dmasync_buffer_destroy(struct dmasync_buffer *buffer);

/* ---- queues ---- */

struct dmasync_queue_params {
	uint32_t size;		  /* sizeof this struct */
	uint32_t flags;		  /* 0 */
	uint32_t depth;		  /* batches in flight, a power of two; init sets 64 */
	uint32_t units;		  /* entries in flight (a strided one counts twice), a power of two;
				   * init sets 4096 */
	enum dmasync_class klass; /* init sets NORMAL; REALTIME is not for everybody: -EPERM */
	uint32_t spin_us;	  /* dmasync_wait() looks so long before it sleeps, less where
				   * completions took longer of late; init sets 50. 0: never; at
				   * most 1000000. Not used on a machine with one CPU, and while
				   * the caller runs on the worker's own */
};

void dmasync_queue_params_init(struct dmasync_queue_params *params);

/*
 * First in, first out; one producer thread. -EINVAL: a size is no power of two or out of bounds.
 * -EPERM: that class is not for you. -ENOSPC, -EMFILE, -ENOMEM: a limit; the error text names it.
 */
int dmasync_queue_create(struct dmasync *ds, const struct dmasync_queue_params *params,
			 struct dmasync_queue **ret);

/* Waits for what is in flight (at most the connection's time-out), then frees. NULL is fine. */
void dmasync_queue_destroy(struct dmasync_queue *queue);

/*
 * A descriptor for poll(), epoll and event loops, owned by the library: readable while completions
 * are unread, and when the daemon is gone: now and then while the library looks for another, which
 * the next dmasync_peek() does. The same number for the queue's whole life.
 */
int dmasync_queue_fd(struct dmasync_queue *queue);

/* ---- batches: built in place in the ring ---- */

/*
 * Opens the queue's next batch. -EAGAIN: the ring is full, read a completion. -EBUSY: one is open.
 * -ECONNRESET: the connection is broken for good.
 */
int dmasync_batch_begin(struct dmasync_queue *queue, struct dmasync_batch **ret);

/*
 * Adds one range, or `rows` ranges of `length` bytes that start `stride` bytes apart. Lengths of 0
 * touch no line; ranges are rounded out to whole lines. length and rows are below 2^32.
 *
 * An error is returned, remembered, and returned again by submit, so a pipeline may check once:
 * -ERANGE: outside the buffer. -EOVERFLOW. -EINVAL: sync, direction, rows or stride (< length), or
 * a buffer of another connection. -EOPNOTSUPP: no DMASYNC_FEATURE_STRIDED.
 * -EMSGSIZE: more units than the queue has. -EAGAIN: more than are free now.
 */
int dmasync_batch_add(struct dmasync_batch *batch, struct dmasync_buffer *buffer,
		      enum dmasync_sync sync, enum dmasync_direction direction, uint64_t offset,
		      uint64_t length);
int dmasync_batch_add_rows(struct dmasync_batch *batch, struct dmasync_buffer *buffer,
			   enum dmasync_sync sync, enum dmasync_direction direction,
			   uint64_t offset, uint64_t length, uint64_t rows, uint64_t stride);

/*
 * Adds a scatter-gather list: `count` ranges of one buffer, synced alike, in a third of the time of
 * as many calls of dmasync_batch_add(). On an error none of the list is added. Errors as there. A
 * count of 0 adds nothing.
 */
struct dmasync_range {
	uint64_t offset; /* bytes from the start of the buffer */
	uint64_t length; /* bytes */
};
int dmasync_batch_add_ranges(struct dmasync_batch *batch, struct dmasync_buffer *buffer,
			     enum dmasync_sync sync, enum dmasync_direction direction,
			     const struct dmasync_range *ranges, size_t count);

/*
 * Hands the batch to the daemon and returns at once; the batch is over and `batch` invalid, also on
 * error. All the calling thread's earlier stores are seen by the batch (a store-release). -EINVAL:
 * it is empty; or the first error of add.
 */
int dmasync_batch_submit(struct dmasync_batch *batch, uint64_t user_data);

/* Drops an open batch. */
void dmasync_batch_abort(struct dmasync_batch *batch);

/* ---- completions ---- */

/*
 * 128 bytes for ever; the reserved tail is zero. Times in nanoseconds. Where an erratum has each
 * operation issued twice (second_pass of dmasyncd.conf(5)), lines counts both and bytes once.
 */
struct dmasync_completion {
	uint64_t user_data;
	int32_t status;	    /* 0, or a negative errno: then nothing is assumed synced */
	uint32_t flags;	    /* DMASYNC_COMPLETION_* */
	uint32_t entries;   /* of the batch */
	uint32_t elided;    /* entries that needed no operation */
	uint64_t lines;	    /* line operations issued */
	uint64_t bytes;	    /* lines * line size: what was really covered */
	uint64_t queued_ns; /* submit until the worker fetched it */
	uint64_t fence_ns;  /* waited for fences */
	uint64_t issue_ns; /* opening fence until the last operation; of one entry also its check */
	/*
	 * From then until the barrier was through. Of a SPLIT batch issue_ns ends when its home
	 * worker found nothing left to issue, barrier_ns when the last worker's barrier is through.
	 */
	uint64_t barrier_ns;
	uint64_t batch_id;  /* the daemon's number where the completion is extended, else 0 */
	uint32_t bad_entry; /* index of the entry that failed the batch, or DMASYNC_NO_ENTRY */
	uint32_t reason;    /* enum dmasync_reason */
	uint32_t shared_by; /* batches behind the same barrier, 0 for one */
	uint32_t workers;   /* that issued it (SPLIT), 0 for one */
	uint32_t reserved[8];
};

/* Copies out the next completion and returns 1; 0 where none is there. Never blocks, but
 * see above, where a new daemon takes over. -ECONNRESET: the connection is broken for good and
 * every completion was handed out. -EPROTO: the ring is damaged. */
int dmasync_peek(struct dmasync_queue *queue, struct dmasync_completion *ret);

/*
 * As peek, and waits: at most timeout_ns, for ever if it is negative. 0 on success. -ETIMEDOUT.
 * -ENODATA: nothing is in flight, so nothing can come. -EINTR: a signal handler ran.
 */
int dmasync_wait(struct dmasync_queue *queue, struct dmasync_completion *ret, int64_t timeout_ns);

/*
 * One range, submitted and waited for. Completions of earlier batches are kept for the next peek or
 * wait. The batch's status, or an error of begin, add, submit, wait; signals do not end it.
 */
int dmasync_sync(struct dmasync_queue *queue, struct dmasync_buffer *buffer, enum dmasync_sync sync,
		 enum dmasync_direction direction, uint64_t offset, uint64_t length);

/* A sentence about a completion that failed: entry, reason, errno. As dmasync_strerror(). */
size_t dmasync_completion_text(const struct dmasync_completion *completion, char *text,
			       size_t size);

#ifdef __cplusplus
}
#endif

#endif
