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
#include "proto/spin.h"

#define DMASYNC_PUBLIC __attribute__((visibility("default")))

#define CLIENT_ERROR_TEXT_SIZE 512
#define CLIENT_CACHE_LINE 64

struct inline_side;
struct inline_worker;
/* How far the way back to a daemon is gone (reconnect.c). */
struct link {
	enum {
		LINK_UP,
		LINK_DOWN,	  /* nobody answers; tried again at next_look_ns */
		LINK_GREETING,	  /* HELLO is sent and not answered yet */
		LINK_REGISTERING, /* it is answered, and not every buffer is registered */
		LINK_ENDED,
	} state;
	int64_t up_ns;	  /* since when it is up */
	int64_t lost_ns;  /* since when it is not */
	int64_t pause_ns; /* before the next attempt */
	int64_t hello_ns; /* when HELLO was sent */
	uint64_t cookie;  /* and its cookie, which tells this attempt from others */
};

struct dmasync {
	/* constant after connect */
	const uint32_t *alive; /* one page that fork() wipes: 1 here, 0 in a child (fork.c) */
	uint32_t flags;	       /* DMASYNC_NO_RECONNECT, DMASYNC_INLINE* */
	uint32_t timeout_ms, connect_timeout_ms, give_up_ms;
	int socket; /* -1 in inline mode; else the number stays: reconnect.c puts other sockets
		       there */
	/* What the first daemon said; one that comes after it can do as much (reconnect.c). */
	struct dmasync_hello_reply hello;
	char *path;
	char name[DMASYNC_NAME_SIZE];

	/*
	 * Which life of the connection this is: odd while connected. One more at a loss
	 * (control_break()), one more when a daemon has taken over (reconnect.c). What was made in
	 * one life means nothing in another. Read on the hot path.
	 */
	_Atomic uint32_t life;
	_Atomic int ended;	      /* 1: there will be no other life; never goes back */
	_Atomic int64_t next_look_ns; /* before it a step back to a daemon does nothing */
	_Atomic bool unanswered;      /* the last attempt at a daemon came to nothing */
	_Atomic uint64_t restarts, replayed;

	/* Held for moments only: changes of life and of what the callback was told. */
	pthread_mutex_t life_lock;
	dmasync_state_fn state_callback;
	void *state_context;
	enum dmasync_state state_told;

	/* One request at a time (control.c), or one step back to a daemon (reconnect.c). */
	pthread_mutex_t request_lock;
	uint64_t cookie; /* of the last request sent */
	char *receive;	 /* DMASYNC_MESSAGE_MAX bytes */
	struct link link;
	struct dmasync_buffer *buffers; /* what a new daemon must register again */

	/* Inline mode: what is in the daemon's place (inline.h). NULL: nothing is. */
	struct inline_side *in_process;
	bool fallback; /* it is so while none answers: every buffer is known to both sides */
	uint64_t features_wanted; /* of a daemon that takes over */

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
	enum dmasync_backend backend; /* under life_lock: a later daemon may choose another */
	uint32_t import_flags;
	struct dmasync_buffer *next; /* request_lock */
	uint64_t attempt; /* request_lock: the last one (link.cookie) that registered it again */
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

/* What the library remembers of a batch in flight. */
struct client_slot {
	uint32_t unit_end;  /* position behind its last unit */
	uint64_t user_data; /* the application's, mostly a pointer: not to be had from the ring */
	uint64_t submit_ns; /* when it was submitted */
	int64_t late_ns;    /* of a replayed one: from its submit until it was submitted again */
};

/* The daemon's ends of a queue, as QUEUE_CREATE gave them in one life of the connection. */
struct queue_ends {
	uint32_t life;
	uint32_t id;
	struct dmasync_ring ring;
	const struct dmasync_worker_page *worker_page;
	void *memory;
	size_t memory_size;
	int doorbell_fd, notification_fd;
	int worker_cpu; /* -1: not pinned */
	struct inline_worker *in_process;
};

/* Batches in flight that no daemon will complete: replay.c completes them with an error. */
enum queue_lost {
	LOST_NONE,
	LOST_FIRST, /* the oldest one */
	LOST_ALL,
};

struct dmasync_queue {
	/*
	 * Changed by the queue's thread alone, and only where it attaches to a new daemon
	 * (replay.c): ring, shift and submitted under queues_lock, for those who look from outside.
	 */
	struct dmasync *ds;
	struct dmasync_ring ring;
	const struct dmasync_worker_page *worker_page;
	struct client_slot *slots; /* ring.depth */
	uint32_t life;		   /* of the connection, that the ends are of */
	/* Completions that dmasync_sync() read while it waited for its own; depth of them. */
	struct dmasync_completion *stash;
	void *memory;
	size_t memory_size;
	struct inline_worker *in_process; /* does the work inside submit (inline.h); else NULL */
	int doorbell_fd, notification_fd;
	uint32_t id;
	int worker_cpu; /* at creation; -1: not pinned */
	uint32_t shift; /* what a position lacks to the count of batches since creation */
	enum dmasync_class klass;
	uint64_t serial;
	struct dmasync_queue *next;

	/* the queue's thread */
	_Alignas(CLIENT_CACHE_LINE) struct dmasync_batch batch;
	uint32_t read;		 /* position of the next completion to read */
	uint32_t read_published; /* what the worker was told of it */
	uint32_t unit_head;	 /* position of the next free unit */
	uint32_t unit_tail;	 /* position of the first unit in use */
	uint32_t stash_first, stash_count;
	int error;		  /* sticky: -EPROTO, the ring is damaged */
	struct dmasync_spin spin; /* how long dmasync_wait() looks before it sleeps */
	int64_t next_check_ns;	  /* when an empty peek looks at the socket again */
	bool plain_doorbell;	  /* the kernel has no RWF_NOSIGNAL */
	bool notify_armed;	  /* the sleeping flag was set for the sake of queue_fd */
	bool event_set;		  /* event_fd is readable */
	int epoll_fd, event_fd;	  /* -1 until dmasync_queue_fd() is called */
	int timer_fd;		  /* says when to look again while no daemon answers */
	int watch_fd;		  /* a dup of the socket, -1 while the queue is attached to none */

	uint32_t replayed; /* the first so many in flight were submitted again */
	uint32_t attempts; /* how many daemons had the first of them, and went */
	enum queue_lost lost;
	int64_t next_attach_ns; /* before it nobody is asked for new ends */
	int64_t attach_pause_ns;

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
	uint32_t life;		      /* of the connection, in which it came */
};

/*
 * Sends a request (its header is filled in here) with one fd, or -1 for none, and waits for the
 * answer: at most the connection's time-out from the moment it is this caller's turn. The answer's
 * body is as the daemon sent it: the caller checks it. On failure the sentence goes into the error
 * text. Where the daemon is gone, or goes before it answers, it waits as long for another and asks
 * that one. Any thread.
 */
int control_call(struct dmasync *ds, enum dmasync_opcode opcode, struct dmasync_message *request,
		 size_t size, int fd, struct control_reply *reply);

/* The same of this life alone: -ECONNRESET where it is over. */
int control_call_in(struct dmasync *ds, uint32_t life, enum dmasync_opcode opcode,
		    struct dmasync_message *request, size_t size, int fd,
		    struct control_reply *reply);

/* Under request_lock, whatever the life: a request, and its answer until `deadline`. */
int control_exchange(struct dmasync *ds, enum dmasync_opcode opcode,
		     struct dmasync_message *request, size_t size, int fd,
		     struct control_reply *reply, int64_t deadline);

/* Its halves, for who does not want to wait in between. */
int control_send(struct dmasync *ds, enum dmasync_opcode opcode, struct dmasync_message *request,
		 size_t size, int fd, int64_t deadline);
int control_await(struct dmasync *ds, enum dmasync_opcode opcode, uint64_t cookie,
		  struct control_reply *reply, int64_t deadline);

/* Has the daemon forget a buffer, and waits for no answer. Under request_lock, whatever the life.
 */
void control_forget_buffer(struct dmasync *ds, uint32_t handle);

/* Checks a zero-padded string of the daemon: makes sure it ends. */
static inline void control_text(char *text, size_t size)
{
	text[size - 1] = '\0';
}

/*
 * The daemon of this life is gone. Nothing where that life is over already: old evidence must not
 * end a new life. Returns `error`.
 */
int control_break(struct dmasync *ds, uint32_t life, int error);

/* The daemon cannot be trusted, or none can take over: the connection ends for good. */
int control_end(struct dmasync *ds, int error);

/*
 * Its socket hung up: says so, and breaks its life. request_lock is held, so that no other life can
 * begin meanwhile. -ECONNRESET.
 */
int control_gone(struct dmasync *ds);

/* Looks whether the daemon of this life hung up, waiting at most timeout_ns. False where it did. */
bool control_alive(struct dmasync *ds, uint32_t life, int64_t timeout_ns);

/* Acquire: pairs with the release of up() in reconnect.c, so that its buffers are registered. */
static inline uint32_t control_life(struct dmasync *ds)
{
	return atomic_load_explicit(&ds->life, memory_order_acquire);
}

static inline bool life_is_up(uint32_t life)
{
	return life & 1;
}

/* No daemon, and there will be none. */
static inline bool control_broken(struct dmasync *ds)
{
	return atomic_load_explicit(&ds->ended, memory_order_relaxed) ||
	       (ds->flags & DMASYNC_NO_RECONNECT &&
		!life_is_up(atomic_load_explicit(&ds->life, memory_order_relaxed)));
}

/* Remembers a sentence for dmasync_error_text(). Returns `error`. Any thread. */
int control_error(struct dmasync *ds, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- connection.c ---- */

/* The sentence for a connect() that failed with `error`, which it returns. */
int connection_explain(struct dmasync *ds, int error);

void connection_fill_hello(const struct dmasync *ds, uint64_t required, struct dmasync_hello *ret);
/* Is this a daemon that we can talk to? Makes sure that its names end. */
int connection_check_hello(struct dmasync *ds, struct dmasync_hello_reply *hello,
			   uint64_t required);

/* ---- reconnect.c ---- */

/*
 * One step back to a daemon, where there is none: waits for nothing but, once a daemon has answered
 * HELLO, the registration of some buffers. 1 where one is connected, 0 where not yet: look again at
 * next_look_ns; negative where there will be none. Any thread, no lock held: it tells the callback.
 */
int reconnect_step(struct dmasync *ds);

/* Errors of a daemon that is starting or stopping, or full for the moment; others stay. */
bool reconnect_may_pass(int error);

/*
 * No daemon, and the last look was in vain: DMASYNC_INLINE_FALLBACK does the work. False for every
 * other connection.
 */
static inline bool reconnect_falls_back(struct dmasync *ds)
{
	return ds->fallback && !life_is_up(control_life(ds)) &&
	       atomic_load_explicit(&ds->unanswered, memory_order_relaxed);
}

/* There is no daemon at connect: as if one had just gone, and the first look had been in vain. */
void reconnect_begin_without(struct dmasync *ds);

/* Steps until one is connected. -ENOTCONN: reconnect_falls_back(). -ETIMEDOUT at the deadline, or
 * another negative errno. */
int reconnect_until(struct dmasync *ds, int64_t deadline);

/* ---- buffer.c, allocate.c ---- */

/* Registers a buffer with a new daemon, under its handle. request_lock is held. */
int buffer_register_again(struct dmasync_buffer *buffer);

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

/* Its ends are of the life that is, or the library's own. */
static inline bool queue_current(const struct dmasync_queue *queue)
{
	return queue->in_process ||
	       atomic_load_explicit(&queue->ds->life, memory_order_relaxed) == queue->life;
}

static inline bool queue_in_flight(const struct dmasync_queue *queue)
{
	return atomic_load_explicit(&queue->submitted, memory_order_relaxed) != queue->read;
}

/* Asks the daemon for the ends of a queue, in this life, or in any where it is 0. */
int queue_ends_create(struct dmasync *ds, uint32_t life, const struct dmasync_ring_layout *layout,
		      enum dmasync_class klass, struct queue_ends *ret);
/* Makes ends of its own: the library does the work. */
int queue_ends_create_inline(struct dmasync *ds, const struct dmasync_ring_layout *layout,
			     struct queue_ends *ret);
void queue_ends_free(struct queue_ends *ends);
/* What the queue has, and the way back; its thread, under queues_lock once it is linked. */
void queue_ends_of(const struct dmasync_queue *queue, struct queue_ends *ret);
void queue_ends_set(struct dmasync_queue *queue, const struct queue_ends *ends);

/* Waits until every batch that was submitted to any queue so far has completed. Any thread. */
void queues_drain(struct dmasync *ds);

/* ---- replay.c ---- */

/*
 * One step for a queue whose life is over: reconnects, and attaches the queue to the new daemon
 * once all that the old one has completed was read. 1: it is current. 0: not yet, or there is
 * something to read first. Negative: there will be no other daemon. The queue's thread.
 */
int queue_recover(struct dmasync_queue *queue);

/*
 * DMASYNC_INLINE_FALLBACK, nothing in flight and no batch open: the queue goes to the side that
 * works.
 */
void queue_choose_side(struct dmasync_queue *queue);

/* When the next step makes sense. */
int64_t queue_next_look(struct dmasync_queue *queue);

/* As completion_take(), for what no daemon will complete. */
int queue_take_lost(struct dmasync_queue *queue, struct dmasync_completion *ret);

/* Marks the completion of a batch that was submitted again. */
void queue_mark_replayed(struct dmasync_queue *queue, struct dmasync_completion *completion);

/* ---- doorbell.c ---- */

/* Wakes the worker. Never raises SIGPIPE. A worker that is gone breaks the connection. */
void doorbell_ring(struct dmasync_queue *queue);

/* ---- completion.c ---- */

/* As dmasync_peek(), of the ring alone and without noticing a dead daemon. */
int completion_take(struct dmasync_queue *queue, struct dmasync_completion *ret);

/* As dmasync_wait(). 1 on success. */
int completion_wait(struct dmasync_queue *queue, struct dmasync_completion *ret,
		    int64_t timeout_ns);

/* How long dmasync_wait() would look now before it sleeps, in nanoseconds. */
uint64_t completion_look_ns(const struct dmasync_queue *queue);

/* Empties the notification pipe. False where its other end is closed. */
bool notification_drain(struct dmasync_queue *queue);

/* ---- queue_fd.c ---- */

/*
 * Makes queue_fd say the truth again after somebody looked for completions, and found some or not.
 * Nothing where nobody asked for it.
 */
void queue_fd_settle(struct dmasync_queue *queue, bool found);
/* Before the ends are closed: lets go of them. */
void queue_fd_leave(struct dmasync_queue *queue);
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
