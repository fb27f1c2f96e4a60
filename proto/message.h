/* SPDX-License-Identifier: MIT */
/*
 * Control messages: what crosses the SOCK_SEQPACKET socket. One message is one packet; every struct
 * is fixed-width, little-endian and naturally aligned. message_table.h lists them all.
 */
#ifndef DMASYNC_PROTO_MESSAGE_H
#define DMASYNC_PROTO_MESSAGE_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "ring.h"
#include "types.h"

#define DMASYNC_SOCKET_PATH "/run/dmasync/socket"
#define DMASYNC_PROTOCOL_VERSION 1u
#define DMASYNC_MESSAGE_MAX 65536u /* bytes, header included */
#define DMASYNC_MESSAGE_FDS 4	   /* most fds that any message carries */
#define DMASYNC_NAME_SIZE 32	   /* names, zero-terminated and zero-padded */
#define DMASYNC_TEXT_SIZE 232	   /* sentence of an error, zero-terminated and zero-padded */

/* dmasync_message.flags */
#define DMASYNC_MESSAGE_REPLY (1u << 0) /* daemon to client: answers the request of this cookie */
#define DMASYNC_MESSAGE_ERROR (1u << 1) /* with REPLY: the body is a dmasync_error */
#define DMASYNC_MESSAGE_EVENT (1u << 2) /* daemon to client, unasked; cookie is that of WATCH */

struct dmasync_message {
	uint32_t size;	 /* 0: bytes of the packet, this header included */
	uint16_t opcode; /* 4 */
	uint16_t flags;	 /* 6: 0 in a request */
	uint64_t cookie; /* 8: the requester's, comes back in the reply */
};

struct dmasync_error {
	struct dmasync_message header;
	int32_t error;	    /* 16: a negative errno */
	uint32_t reason;    /* 20: enum dmasync_reason where it is about an entry, else 0 */
	uint32_t bad_entry; /* 24: or DMASYNC_NO_ENTRY */
	uint32_t reserved;  /* 28 */
	char text[DMASYNC_TEXT_SIZE]; /* 32 */
};

/* ---- HELLO: the first message of a connection, once ---- */

struct dmasync_hello {
	struct dmasync_message header;
	uint32_t version_min;	      /* 16: protocol versions the client speaks */
	uint32_t version_max;	      /* 20 */
	uint64_t features_required;   /* 24: refused with -EOPNOTSUPP where one is missing */
	char name[DMASYNC_NAME_SIZE]; /* 32: for `dmasyncctl clients`; may be empty */
};

struct dmasync_hello_reply {
	struct dmasync_message header;
	uint32_t version;	   /*  16: chosen */
	uint32_t line_size;	   /*  20: bytes, of the line operations; 0 where none work */
	uint64_t features;	   /*  24: DMASYNC_FEATURE_* */
	uint64_t instance;	   /*  32: random at the daemon's start: tells a restart */
	uint64_t max_buffer_bytes; /*  40: mapped by one connection, in all */
	uint64_t max_batch_lines;  /*  48 */
	uint32_t granule; /*  56: bytes; buffers that share one may disturb each other (CTR_EL0.CWG)
			   */
	uint32_t max_buffers;		   /*  60: of one connection */
	uint32_t max_queues;		   /*  64 */
	uint32_t max_depth;		   /*  68 */
	uint32_t max_units;		   /*  72: of one queue */
	uint32_t max_requests;		   /*  76: unanswered requests of one connection */
	char daemon[DMASYNC_NAME_SIZE];	   /*  80: version, as `dmasyncd --version` */
	char cache_ops[DMASYNC_NAME_SIZE]; /* 112: line operations chosen, "none" where none work */
};

/* ---- BUFFER_ADD (one fd), BUFFER_REMOVE ---- */

/* dmasync_buffer_add.flags */
#define DMASYNC_BUFFER_NO_CLEAN (1u << 0) /* do not clean the whole buffer at registration */

/* dmasync_buffer_add_reply.flags */
#define DMASYNC_BUFFER_LOCKED (1u << 0) /* populated and locked in memory */
#define DMASYNC_BUFFER_GUARANTEE                                                                   \
	(1u << 1) /* a sync of it is known to reach the point of coherency */

struct dmasync_buffer_add {
	struct dmasync_message header;
	uint32_t flags;	   /* 16 */
	uint32_t backend;  /* 20: enum dmasync_backend, AUTO for the daemon's policy */
	uint64_t size;	   /* 24: bytes to register from the start; 0: the whole file */
	uint32_t handle;   /* 32: one that the client had before and would like again; 0: any */
	uint32_t reserved; /* 36: 0 */
};

struct dmasync_buffer_add_reply {
	struct dmasync_message header;
	uint32_t handle;		  /* 16: 24 bits: index and generation */
	uint32_t backend;		  /* 20: enum dmasync_backend, never AUTO */
	uint32_t kind;			  /* 24: enum dmasync_buffer_kind */
	uint32_t flags;			  /* 28 */
	uint64_t size;			  /* 32: bytes */
	char exporter[DMASYNC_NAME_SIZE]; /* 40: exp_name of a dma-buf, "" for a memfd */
};

/*
 * Takes effect when the daemon handles it: a batch checked before finishes, one fetched later is
 * refused. Answered when no worker uses the buffer any more and it is unmapped.
 */
struct dmasync_buffer_remove {
	struct dmasync_message header;
	uint32_t handle;   /* 16 */
	uint32_t reserved; /* 20: 0 */
};

/* ---- QUEUE_CREATE, QUEUE_REMOVE ---- */

struct dmasync_queue_create {
	struct dmasync_message header;
	uint32_t depth; /* 16: a power of two, 2 to max_depth */
	uint32_t units; /* 20: a power of two, 2 to max_units */
	uint32_t klass; /* 24: enum dmasync_class */
	uint32_t flags; /* 28: 0 */
};

/* With four fds, in this order: */
enum dmasync_queue_fd {
	DMASYNC_QUEUE_RING = 0,		/* memfd, map read-write */
	DMASYNC_QUEUE_WORKER_PAGE = 1,	/* memfd, map read-only: struct dmasync_worker_page */
	DMASYNC_QUEUE_DOORBELL = 2,	/* pipe, write end, O_NONBLOCK: wakes the worker */
	DMASYNC_QUEUE_NOTIFICATION = 3, /* pipe, read end, O_NONBLOCK: readable when asked for */
	DMASYNC_QUEUE_FDS = 4,
};

struct dmasync_queue_create_reply {
	struct dmasync_message header;
	uint32_t queue;	  /* 16: id on this connection */
	uint32_t worker;  /* 20: index of the worker that serves it */
	uint32_t depth;	  /* 24 */
	uint32_t units;	  /* 28 */
	int32_t cpu;	  /* 32: the CPU the worker is pinned to, -1 where it is not */
	uint32_t spin_us; /* 36: the worker spins so long before it sleeps */
};

/* What has been fetched finishes; the rest is dropped. Answered when the worker has let go. */
struct dmasync_queue_remove {
	struct dmasync_message header;
	uint32_t queue;	   /* 16 */
	uint32_t reserved; /* 20: 0 */
};

/* ---- SYNC: a batch in the message itself, `count` units behind the struct ---- */

struct dmasync_sync_request {
	struct dmasync_message header;
	uint32_t count;	    /* 16: units that follow */
	uint32_t reserved;  /* 20: 0 */
	uint64_t user_data; /* 24 */
			    /* 32: struct dmasync_unit units[count] */
};

struct dmasync_sync_reply {
	struct dmasync_message header;
	struct dmasync_ring_completion completion; /* 16: seq is 0; a failed batch has status < 0 */
};

/* ---- STATS and HISTOGRAM: totals since the daemon started ---- */

/* No body: STATS, and WATCH's stop. */
struct dmasync_stats_reply {
	struct dmasync_message header;
	uint64_t uptime_ns;	 /*  16 */
	uint64_t connections;	 /*  24: accepted since start */
	uint64_t batches;	 /*  32: completed, failed ones included */
	uint64_t failed;	 /*  40: completed with an error */
	uint64_t entries;	 /*  48 */
	uint64_t elided;	 /*  56 */
	uint64_t lines;		 /*  64 */
	uint64_t bytes;		 /*  72 */
	uint64_t barriers;	 /*  80: completion barriers executed */
	uint64_t kernel_syncs;	 /*  88: DMA_BUF_IOCTL_SYNC calls */
	uint64_t reissued;	 /*  96: batches issued again after a change of CPU */
	uint64_t suspect_times;	 /* 104: submit_ns out of bounds: kept out of the histograms */
	uint64_t faults;	 /* 112: SIGBUS or SIGSEGV on a client's mapping */
	uint64_t worker_sleeps;	 /* 120 */
	uint64_t refused;	 /* 128: requests answered with an error */
	uint64_t mapped_bytes;	 /* 136: now */
	uint32_t clients;	 /* 144: now */
	uint32_t buffers;	 /* 148: now */
	uint32_t queues;	 /* 152: now */
	uint32_t workers;	 /* 156 */
	uint64_t slice_overruns; /* 160: slices that took far longer than one may */
	/* By enum dmasync_class: */
	uint64_t class_batches[DMASYNC_CLASSES]; /* 168 */
	uint64_t class_lines[DMASYNC_CLASSES];	 /* 192 */
	uint64_t class_slices[DMASYNC_CLASSES];	 /* 216 */
	/* The most that any batch waited for, as in dmasync_batch_record. */
	uint64_t class_waited_lines[DMASYNC_CLASSES];	/* 240 */
	uint64_t class_waited_entries[DMASYNC_CLASSES]; /* 264 */
	uint32_t users;					/* 288: now: uids with a connection */
	uint32_t files;					/* 292: now: open for clients */
	uint32_t maps;	   /* 296: now: mappings of buffers and queues */
	uint32_t places;   /* 300: now: for batches in flight: depths of queues, and SYNCs */
	uint32_t requests; /* 304: now: unanswered */
	uint32_t answers;  /* 308: now: kept for clients that do not read */
	uint32_t watches;  /* 312: now */
	uint32_t realtime_workers; /* 316: now: under SCHED_FIFO */
	uint64_t queue_bytes;	   /* 320: now: rings, and the daemon's copies of their units */
	uint64_t messages;	   /* 328: received since start */
	uint64_t over_limit;	   /* 336: refused for a limit or a share since start */
	uint64_t sum_errors;	   /* 344: sums that were wrong: always 0 */
	/* Several workers for a batch, several batches behind a barrier: */
	uint64_t batches_split;	  /* 352: of batches: issued by several workers */
	uint64_t parts;		  /* 360: workers that issued these, summed */
	uint64_t barriers_shared; /* 368: of barriers: more than one batch waited behind it */
	uint64_t page_faults;	  /* 376: of the workers' threads, when each last went to sleep */
	uint64_t realtime_drops; /* 384: SCHED_FIFO lost by a worker for using more than rt_share */
	uint64_t moved_queues;	 /* 392: queues and SYNC batches that went to the slow worker */
};

/* Log-linear histogram: daemon/histogram.h has the arithmetic and PROTOCOL.md the formula. */
#define DMASYNC_HISTOGRAM_SUB_BITS 4	  /* 16 buckets per power of two: 6.25 % wide at most */
#define DMASYNC_HISTOGRAM_MAX_EXPONENT 40 /* values above 2^40 ns (18 minutes) go into the last */
#define DMASYNC_HISTOGRAM_BUCKETS                                                                  \
	((DMASYNC_HISTOGRAM_MAX_EXPONENT - DMASYNC_HISTOGRAM_SUB_BITS + 1)                         \
	 << DMASYNC_HISTOGRAM_SUB_BITS)

struct dmasync_histogram {
	struct dmasync_message header;
	uint32_t phase;	   /* 16: enum dmasync_phase */
	uint32_t reserved; /* 20: 0 */
};

struct dmasync_histogram_reply {
	struct dmasync_message header;
	uint32_t phase;				    /* 16 */
	uint32_t buckets;			    /* 20: DMASYNC_HISTOGRAM_BUCKETS */
	uint64_t count;				    /* 24: of all buckets */
	uint64_t max_ns;			    /* 32: the largest value, exactly */
	uint64_t sum_ns;			    /* 40 */
	uint64_t bucket[DMASYNC_HISTOGRAM_BUCKETS]; /* 48 */
};

/* ---- CLIENTS: who is connected, paged ---- */

struct dmasync_clients {
	struct dmasync_message header;
	uint64_t after; /* 16: records with a larger id; 0 from the start */
};

struct dmasync_client_record {
	uint64_t id;		      /*  0: grows for ever */
	uint32_t pid;		      /*  8 */
	uint32_t uid;		      /* 12 */
	uint32_t buffers;	      /* 16 */
	uint32_t queues;	      /* 20 */
	uint64_t mapped_bytes;	      /* 24 */
	uint64_t batches;	      /* 32 */
	uint64_t failed;	      /* 40 */
	uint64_t lines;		      /* 48 */
	uint64_t connected_ns;	      /* 56: since it connected */
	char name[DMASYNC_NAME_SIZE]; /* 64 */
	uint32_t realtime_queues;     /* 96: of its queues */
	uint32_t bulk_queues;	      /* 100: the others are normal */
	uint64_t queue_bytes;	      /* 104: rings, and the daemon's copies of their units */
	uint32_t files;		      /* 112: open for it */
	uint32_t maps;		      /* 116: mappings of its buffers and queues */
	uint32_t places;	      /* 120: for its batches in flight */
	uint32_t requests;	      /* 124: unanswered */
	uint32_t answers;	      /* 128: kept because it does not read */
	uint32_t watches;	      /* 132 */
	uint32_t moved_queues; /* 136: its queues and SYNC batches that went to the slow worker */
	uint32_t reserved;     /* 140: 0 */
};

#define DMASYNC_CLIENTS_PAGE 256u

struct dmasync_clients_reply {
	struct dmasync_message header;
	uint32_t count;	   /* 16: records that follow, at most DMASYNC_CLIENTS_PAGE */
	uint32_t reserved; /* 20 */
			   /* 24: struct dmasync_client_record records[count], by id */
};

/* ---- USERS: what each user's connections have together, paged ---- */

struct dmasync_users {
	struct dmasync_message header;
	uint32_t from;	   /* 16: records with this uid or a larger one; 0 from the start */
	uint32_t reserved; /* 20: 0 */
};

/* As in a client's record, summed up. */
struct dmasync_user_record {
	uint32_t uid;	       /*  0 */
	uint32_t connections;  /*  4: those that were dropped and hold fds that hang included */
	uint32_t buffers;      /*  8 */
	uint32_t queues;       /* 12 */
	uint64_t mapped_bytes; /* 16 */
	uint64_t queue_bytes;  /* 24 */
	uint32_t files;	       /* 32 */
	uint32_t maps;	       /* 36 */
	uint32_t places;       /* 40 */
	uint32_t requests;     /* 44 */
	uint32_t answers;      /* 48 */
	uint32_t watches;      /* 52 */
	uint64_t over_limit;   /* 56: refused for a limit or a share since its first connection */
};

#define DMASYNC_USERS_PAGE 512u

struct dmasync_users_reply {
	struct dmasync_message header;
	uint32_t count;	   /* 16: records that follow, at most DMASYNC_USERS_PAGE */
	uint32_t reserved; /* 20 */
			   /* 24: struct dmasync_user_record records[count], by uid */
};

/* ---- BATCHES and WATCH: batch records; others' are not for everybody (PROTOCOL.md) ---- */

struct dmasync_batches {
	struct dmasync_message header;
	uint32_t count;	   /* 16: the last so many, at most DMASYNC_BATCHES_PAGE */
	uint32_t reserved; /* 20: 0 */
};

struct dmasync_batch_record {
	uint64_t batch_id;	 /*  0: over all workers, unique, grows on each of them */
	uint64_t client_id;	 /*  8 */
	uint64_t end_ns;	 /* 16: CLOCK_MONOTONIC just before the completion was published */
	uint64_t user_data;	 /* 24 */
	uint64_t lines;		 /* 32 */
	uint64_t bytes;		 /* 40 */
	uint64_t queued_ns;	 /* 48 */
	uint64_t issue_ns;	 /* 56 */
	uint64_t barrier_ns;	 /* 64 */
	uint64_t fence_ns;	 /* 72 */
	uint32_t entries;	 /* 80 */
	uint32_t elided;	 /* 84 */
	uint32_t flags;		 /* 88: DMASYNC_COMPLETION_* */
	int32_t status;		 /* 92 */
	uint32_t reason;	 /* 96 */
	uint32_t bad_entry;	 /* 100 */
	uint32_t queue;		 /* 104: id on its connection; 0 for SYNC */
	uint32_t worker;	 /* 108 */
	uint32_t pid;		 /* 112: of the client */
	uint32_t waited_entries; /* 116: of other batches, checked while it waited for its turn */
	uint64_t waited_lines;	 /* 120: of other batches, issued while it waited for its turn */
	uint32_t klass;		 /* 128: enum dmasync_class */
	uint16_t workers;	 /* 132: that issued it, 0 for one */
	uint16_t shared_by;	 /* 134: batches behind the same barrier, 0 for one */
};

#define DMASYNC_BATCHES_PAGE 400u

/* The reply to BATCHES, and each event of WATCH (flags EVENT). */
struct dmasync_batches_reply {
	struct dmasync_message header;
	uint32_t count; /* 16: records that follow, oldest first */
	uint32_t lost;	/* 20: events only: records overwritten since the last event */
			/* 24: struct dmasync_batch_record records[count] */
};

struct dmasync_watch {
	struct dmasync_message header;
	uint32_t enable;   /* 16: 1 or 0 */
	uint32_t reserved; /* 20: 0 */
};

/* ---- PROBE: what the daemon knows of its machine, and of an fd (none or one) ---- */

/* dmasync_probe_reply.errata */
#define DMASYNC_ERRATUM_CORTEX_A53_R0P1 (1u << 0)     /* 819472, 824069, 826319, 827319 */
#define DMASYNC_ERRATUM_CORTEX_A53_R0P2 (1u << 1)     /* 824069, 826319, 827319 */
#define DMASYNC_ERRATUM_SI_L1_4311569 (1u << 2)	      /* operations are issued twice */
#define DMASYNC_ERRATUM_NEOVERSE_N1_1542419 (1u << 3) /* changes nothing */
#define DMASYNC_ERRATUM_OLYMPUS_T410_1027 (1u << 4)   /* libdmasync's writes to device memory */

struct dmasync_probe_reply {
	struct dmasync_message header;
	uint32_t line_size;	    /*  16 */
	uint32_t granule;	    /*  20 */
	uint32_t clean_picoseconds; /*  24: per line operation, measured at start on clean lines */
	uint32_t flush_picoseconds; /*  28 */
	uint32_t barrier_picoseconds; /*  32: of a completion barrier with nothing outstanding */
	uint32_t workers;	      /*  36 */
	uint32_t trapped;	      /*  40: 1: line operations work but trap into the kernel */
	uint32_t fd_known;	      /*  44: 1: the fields below are about the fd */
	char cache_ops[DMASYNC_NAME_SIZE]; /*  48 */
	char loop[DMASYNC_NAME_SIZE];	   /*  80: "io_uring defer-taskrun", "epoll" */
	uint32_t backend;		   /* 112: what BUFFER_ADD would choose with AUTO */
	uint32_t kind;			   /* 116 */
	uint32_t flags;			   /* 120: DMASYNC_BUFFER_GUARANTEE */
	int32_t error; /* 124: what BUFFER_ADD would answer; 0: it would succeed */
	uint64_t size; /* 128 */
	char exporter[DMASYNC_NAME_SIZE];  /* 136 */
	char why[DMASYNC_TEXT_SIZE];	   /* 168: a sentence */
	uint32_t errata;		   /* 400: DMASYNC_ERRATUM_* in force */
	uint32_t reserved;		   /* 404: 0 */
	char loop_text[DMASYNC_TEXT_SIZE]; /* 408: about it; for epoll, why it is not io_uring */
};

/* A reply without a body: BUFFER_REMOVE, QUEUE_REMOVE, WATCH. */
struct dmasync_done_reply {
	struct dmasync_message header;
};

static_assert(sizeof(struct dmasync_message) == 16, "message layout");
static_assert(sizeof(struct dmasync_error) == 264, "message layout");
static_assert(sizeof(struct dmasync_hello) == 64, "message layout");
static_assert(sizeof(struct dmasync_hello_reply) == 144, "message layout");
static_assert(sizeof(struct dmasync_buffer_add) == 40, "message layout");
static_assert(sizeof(struct dmasync_buffer_add_reply) == 72, "message layout");
static_assert(sizeof(struct dmasync_buffer_remove) == 24, "message layout");
static_assert(sizeof(struct dmasync_queue_create) == 32, "message layout");
static_assert(sizeof(struct dmasync_queue_create_reply) == 40, "message layout");
static_assert(sizeof(struct dmasync_queue_remove) == 24, "message layout");
static_assert(sizeof(struct dmasync_sync_request) == 32, "message layout");
static_assert(sizeof(struct dmasync_sync_reply) == 144, "message layout");
static_assert(sizeof(struct dmasync_stats_reply) == 400, "message layout");
static_assert(sizeof(struct dmasync_histogram) == 24, "message layout");
static_assert(sizeof(struct dmasync_histogram_reply) == 48 + 8 * 592, "message layout");
static_assert(sizeof(struct dmasync_clients) == 24, "message layout");
static_assert(sizeof(struct dmasync_client_record) == 144, "message layout");
static_assert(sizeof(struct dmasync_clients_reply) == 24, "message layout");
static_assert(sizeof(struct dmasync_users) == 24, "message layout");
static_assert(sizeof(struct dmasync_user_record) == 64, "message layout");
static_assert(sizeof(struct dmasync_users_reply) == 24, "message layout");
static_assert(sizeof(struct dmasync_batches) == 24, "message layout");
static_assert(sizeof(struct dmasync_batch_record) == 136, "message layout");
static_assert(sizeof(struct dmasync_batches_reply) == 24, "message layout");
static_assert(sizeof(struct dmasync_watch) == 24, "message layout");
static_assert(sizeof(struct dmasync_probe_reply) == 640, "message layout");

#endif
