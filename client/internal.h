/* SPDX-License-Identifier: MIT */
/*
 * The objects behind libdmasync's opaque handles, and what its files use of each other. Nothing of
 * it is installed.
 */
#ifndef DMASYNC_CLIENT_INTERNAL_H
#define DMASYNC_CLIENT_INTERNAL_H

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <dmasync/dmasync.h>

#include "proto/message_table.h"
#include "proto/ring_access.h"

#define DMASYNC_PUBLIC __attribute__((visibility("default")))

#define CLIENT_ERROR_TEXT_SIZE 512
#define CLIENT_CACHE_LINE 64

struct inline_side;
struct inline_worker;

struct dmasync {
	/* constant after connect */
	const uint32_t *alive; /* one page that fork() wipes: 1 here, 0 in a child (fork.c) */
	int socket;	       /* -1: none, in inline mode */
	uint32_t timeout_ms;
	struct dmasync_hello_reply hello;
	char *path;

	/* 1 once the daemon is gone or talked nonsense; never goes back. Read on the hot path. */
	_Atomic int broken;

	/* One request at a time (control.c). */
	pthread_mutex_t request_lock;
	uint64_t cookie; /* of the last request sent */
	char *receive;	 /* DMASYNC_MESSAGE_MAX bytes */

	/* Inline mode: what is in the daemon's place (inline.h). NULL: nothing is. */
	struct inline_side *in_process;

	pthread_mutex_t text_lock;
	char error_text[CLIENT_ERROR_TEXT_SIZE];

	/* The queues by growing serial number, for dmasync_buffer_destroy(). */
	pthread_mutex_t queues_lock;
	struct dmasync_queue *queues;
	uint64_t last_serial;
};

struct dmasync_buffer {
	struct dmasync *ds;
	int fd;
	uint32_t handle;
	uint32_t flags; /* DMASYNC_BUFFER_LOCKED, _GUARANTEE */
	uint64_t bytes;
	enum dmasync_backend backend;
	enum dmasync_buffer_kind kind;
	enum dmasync_memory memory;
	char exporter[DMASYNC_NAME_SIZE];

	pthread_mutex_t map_lock;
	void *cpu, *device; /* NULL until first asked for */
};

struct dmasync_batch {
	struct dmasync_queue *queue;
	bool open;
	int error; /* the first of add */
	uint32_t entries;
	uint32_t units; /* in the unit ring; the first plain entry is not there yet */
	/* The first entry waits here: if it stays alone it travels inside the submission. */
	struct dmasync_unit first;
	bool first_held;
};

/* What the library remembers of a batch in flight. Replay will keep its submission here. */
struct client_slot {
	uint32_t unit_end; /* position behind its last unit */
};

struct dmasync_queue {
	/* constant after creation */
	struct dmasync *ds;
	struct dmasync_ring ring;
	const struct dmasync_worker_page *worker_page;
	struct client_slot *slots; /* ring.depth */
	/* Completions that dmasync_sync() read while it waited for its own; depth of them. */
	struct dmasync_completion *stash;
	void *memory;
	size_t memory_size;
	struct inline_worker *in_process; /* does the work inside submit (inline.h); else NULL */
	int doorbell_fd, notification_fd;
	uint32_t id;
	int worker_cpu; /* -1: not pinned */
	uint64_t spin_ns;
	uint64_t serial;
	struct dmasync_queue *next;

	/* the queue's thread */
	_Alignas(CLIENT_CACHE_LINE) struct dmasync_batch batch;
	uint32_t read;		 /* position of the next completion to read */
	uint32_t read_published; /* what the worker was told of it */
	uint32_t unit_head;	 /* position of the next free unit */
	uint32_t unit_tail;	 /* position of the first unit in use */
	uint32_t stash_first, stash_count;
	int error;		/* sticky: -EPROTO, the ring is damaged */
	int64_t next_check_ns;	/* when an empty peek looks at the socket again */
	bool plain_doorbell;	/* the kernel has no RWF_NOSIGNAL */
	bool notify_armed;	/* the sleeping flag was set for the sake of queue_fd */
	bool event_set;		/* event_fd is readable */
	int epoll_fd, event_fd; /* -1 until dmasync_queue_fd() is called */

	/* Position of the next submission. Other threads read it in dmasync_buffer_destroy(). */
	_Alignas(CLIENT_CACHE_LINE) _Atomic uint32_t submitted;
};

/* ---- fork.c ---- */

int fork_guard_create(const uint32_t **ret);
void fork_guard_free(const uint32_t *guard);

/* False in a child of the process that connected. */
static inline bool fork_guard_ok(const struct dmasync *ds)
{
	return *ds->alive != 0;
}

/* ---- params.c ---- */

/*
 * Copies a caller's size-versioned struct into ours of `known` bytes, as clone3 does: what the
 * caller's is shorter is zero, what it is longer must be zero. -E2BIG, -EINVAL.
 */
int params_copy(void *destination, size_t known, const void *source);

/* The same for struct `name`, and says in the error text why not. */
int params_take(struct dmasync *ds, const char *name, void *destination, size_t known,
		const void *source);

/* The way back, for the structs that the library fills in; `size` stays the caller's. */
int params_return(void *destination, const void *source, size_t known);

/* ---- control.c ---- */

/* What is expected of an answer, and what came. */
struct control_reply {
	void *message;
	size_t size;	 /* its exact size; where size_max is not 0 its least one, and */
	size_t size_max; /* this its largest: then `size` becomes what came */
	size_t fd_count; /* exactly so many fds must come ... */
	int fds[DMASYNC_MESSAGE_FDS]; /* ... and become the caller's */
};

/*
 * Sends a request (its header is filled in here) with one fd, or -1 for none, and waits for the
 * answer: at most the connection's time-out from the moment it is this caller's turn. The answer's
 * body is as the daemon sent it: the caller checks it. On failure the sentence goes into the error
 * text. Any thread.
 */
int control_call(struct dmasync *ds, enum dmasync_opcode opcode, struct dmasync_message *request,
		 size_t size, int fd, struct control_reply *reply);

/* The same with a deadline of CLOCK_MONOTONIC; 0: as above. */
int control_call_until(struct dmasync *ds, enum dmasync_opcode opcode,
		       struct dmasync_message *request, size_t size, int fd,
		       struct control_reply *reply, int64_t deadline);

/* Checks a zero-padded string of the daemon: makes sure it ends. */
static inline void control_text(char *text, size_t size)
{
	text[size - 1] = '\0';
}

/* The daemon is gone or cannot be trusted: ends the connection. Returns `error`. */
int control_break(struct dmasync *ds, int error);

/* Looks whether the daemon hung up, waiting at most timeout_ns. Returns false where it did. */
bool control_alive(struct dmasync *ds, int64_t timeout_ns);

static inline bool control_broken(struct dmasync *ds)
{
	return atomic_load_explicit(&ds->broken, memory_order_relaxed) != 0;
}

/* Remembers a sentence for dmasync_error_text(). Returns `error`. Any thread. */
int control_error(struct dmasync *ds, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- buffer.c, allocate.c ---- */

/* Registers `fd`, which becomes the buffer's, also on failure. */
int buffer_register(struct dmasync *ds, int fd, uint32_t flags, enum dmasync_memory memory,
		    struct dmasync_buffer **ret);

/* Where the machine's allocators are; tests have their own. */
struct memory_places {
	const char *heaps;   /* a directory of dma-heaps */
	const char *udmabuf; /* a device */
};
extern const struct memory_places memory_places_default;

int buffer_alloc_from(struct dmasync *ds, const struct dmasync_buffer_params *params,
		      const struct memory_places *places, struct dmasync_buffer **ret);

/* ---- queue.c ---- */

/* 0, or why the queue can be used no more. */
int queue_check(const struct dmasync_queue *queue);

/* Waits until every batch that was submitted to any queue so far has completed. Any thread. */
void queues_drain(struct dmasync *ds);

/* ---- doorbell.c ---- */

/* Wakes the worker. Never raises SIGPIPE. A worker that is gone breaks the connection. */
void doorbell_ring(struct dmasync_queue *queue);

/* ---- completion.c ---- */

/* As dmasync_peek(), of the ring alone and without noticing a dead daemon. */
int completion_take(struct dmasync_queue *queue, struct dmasync_completion *ret);

/* Empties the notification pipe. False where its other end is closed. */
bool notification_drain(struct dmasync_queue *queue);

/* ---- queue_fd.c ---- */

/*
 * Makes queue_fd say the truth again after somebody looked for completions, and found some or not.
 * Nothing where nobody asked for it.
 */
void queue_fd_settle(struct dmasync_queue *queue, bool found);
void queue_fd_close(struct dmasync_queue *queue);

/* ---- small things ---- */

static inline int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline struct timespec to_timespec(int64_t ns)
{
	return (struct timespec){
		.tv_sec = (time_t)(ns / 1000000000),
		.tv_nsec = (long)(ns % 1000000000),
	};
}

/* The C library's words for a negative errno. */
static inline const char *describe(int error)
{
	const char *words = strerrordesc_np(-error);

	return words ? words : "unknown error";
}

static inline int close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
	return -1;
}

#endif
