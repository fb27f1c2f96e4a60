/* SPDX-License-Identifier: MIT */
/*
 * A real worker thread (or several, who share batches) with recorded line operations, a queue of
 * its own, and this thread as its client and its control thread.
 */
#ifndef DMASYNC_TESTS_WORKER_FIXTURE_H
#define DMASYNC_TESTS_WORKER_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "daemon/worker.h"
#include "tests/lib/rounds.h"

#define LINE 64u
#define BUFFER_SIZE (4u << 20)
#define FIXTURE_WORKERS 4u

enum trace_kind { TRACE_OPEN, TRACE_CLEAN, TRACE_FLUSH, TRACE_COMPLETE, TRACE_COMPLETE_FLUSHED };

struct trace_event {
	enum trace_kind kind;
	uintptr_t address;
	bool published;	 /* a completion stood in the ring already */
	bool fenced;	 /* the fence was not signalled yet */
	uint32_t thread; /* which one it was: numbered from 1 in the order of their first events */
};

/* One at a time: the operations have no context. */
struct trace {
	struct trace_event *event;
	size_t count, size;
	const struct dmasync_ring *ring; /* looked at for early publication */
	uint32_t next_completion;
	int fence_fd;			 /* looked at for operations before the fence; 0: none */
	void (*hook)(uintptr_t address); /* called before each line operation, on the worker */
	void (*barrier_hook)(void);	 /* the same before each barrier */
	void (*open_hook)(void);	 /* and before each opening fence */
	_Atomic size_t done;		 /* count, for the other thread */
};

struct client_queue {
	struct queue *queue;
	struct dmasync_ring ring; /* the client's own mapping */
	void *memory;
	size_t memory_size;
	const struct dmasync_worker_page *page;
	int fds[DMASYNC_QUEUE_FDS];
	uint32_t submitted, reaped, units;
};

struct fixture {
	struct cache cache;
	struct mailbox events;
	int events_fd;
	struct helpers *helpers;
	struct worker_params params; /* of all, but for index and cpu */
	struct worker *worker;	     /* whose queues are opened, released and commanded */
	struct worker *workers[FIXTURE_WORKERS];
	uint32_t worker_count;
	struct buffer buffer;
	struct buffer_table table;
	_Atomic(struct buffer *) slot[8];
	struct batch_owner owner;
	struct worker_command *stashed; /* events taken while another was waited for */
	struct client_queue first;
};

extern struct trace trace;

struct client; /* never looked into by a worker: any address will do */
#define CLIENT ((struct client *)(uintptr_t)0x1000)

/* The number of the calling worker's thread in the trace. */
uint32_t trace_thread(void);

/* Pinned to `cpu`, or with -1 to the first one there is: who moves issues again. */
void fixture_start(struct fixture *fixture, uint32_t spin_us, uint32_t slice_lines, int cpu);
/*
 * Several workers, pinned to the CPUs there are in turn (who moves issues again), that share
 * batches of more lines; the first one has the queue.
 */
void fixture_start_shared(struct fixture *fixture, uint32_t workers, uint32_t spin_us,
			  uint32_t slice_lines, uint64_t split_lines);
/* The same, and behind them one that takes what has overrun; the test hands it over. */
void fixture_start_slow(struct fixture *fixture, uint32_t ordinary, uint32_t slice_lines,
			uint64_t split_lines, uint32_t overruns_to_move);
void fixture_stop(struct fixture *fixture);

void queue_open(struct fixture *fixture, struct client_queue *queue, uint32_t depth, uint32_t units,
		struct client *client);
/* The same, of a class and a user; else it is normal, and of user 0. */
void queue_open_as(struct fixture *fixture, struct client_queue *queue, uint32_t depth,
		   uint32_t units, struct client *client, enum dmasync_class klass, uint32_t uid);
void queue_close_ends(struct client_queue *queue); /* the client's ends and mapping */
void queue_release(struct fixture *fixture, struct client_queue *queue);

/* Events are waited for (10 s at most, then the test fails). */
struct worker_command *command_new(enum worker_command_type type);
struct worker_command *await_event(struct fixture *fixture, enum worker_command_type type);
bool event_is_there(struct fixture *fixture, enum worker_command_type type);
void post_and_wait(struct fixture *fixture, enum worker_command_type type, struct queue *queue,
		   struct client *client);

struct dmasync_unit entry(uint32_t handle, enum dmasync_sync sync, enum dmasync_direction direction,
			  uint64_t offset, uint32_t length);
void submit_units(struct client_queue *queue, const struct dmasync_unit *units, uint32_t count,
		  uint64_t user_data);
void ring_if_asleep(struct client_queue *queue);
void reap(struct client_queue *queue, struct dmasync_ring_completion *ret); /* 10 s at most */
bool try_reap(struct client_queue *queue, struct dmasync_ring_completion *ret);

#endif
