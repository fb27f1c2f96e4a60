/* SPDX-License-Identifier: MIT */
/*
 * A daemon for the library's tests: a thread that answers on a private socket, well or badly, and a
 * worker's side of the ring that a test steps by hand or lets run in a thread of its own.
 */
#ifndef DMASYNC_TESTS_CLIENT_FAKE_H
#define DMASYNC_TESTS_CLIENT_FAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <dmasync/dmasync.h>

#include "proto/message_table.h"
#include "proto/ring_access.h"

#define FAKE_OPCODES 16
#define FAKE_QUEUES 8

/* How the answer to one opcode is spoiled. */
enum fake_mode {
	FAKE_GOOD,
	FAKE_REFUSE,	     /* an error answer: -ENOSPC and a sentence */
	FAKE_REFUSE_SUPPORT, /* an error answer: -EOPNOTSUPP */
	FAKE_BAD_ERRNO,	     /* an error answer with errno +5 */
	FAKE_SILENT,	     /* none */
	FAKE_SLOW,	     /* a good one, after 5 ms */
	FAKE_HANG_UP,	     /* the socket is closed instead */
	FAKE_SHORT,	     /* one byte is missing */
	FAKE_LONG,	     /* eight bytes too many */
	FAKE_HEADER_ONLY,    /* 8 bytes */
	FAKE_LYING_SIZE,     /* header.size differs from the packet's */
	FAKE_WRONG_OPCODE,
	FAKE_WRONG_FLAGS,
	FAKE_FUTURE_COOKIE,
	FAKE_EXTRA_FD,
	FAKE_NO_FDS,
	FAKE_MANY_FDS,	     /* 200 of them */
	FAKE_EVENT_FIRST,    /* an event nobody asked for, then a good answer */
	FAKE_BAD_BODY,	     /* right in form, impossible in content */
	FAKE_LATE,	     /* kept back until fake_release() */
	FAKE_BAD_RING,	     /* QUEUE_CREATE: a ring header of another layout */
	FAKE_UNSEALED_RING,  /* QUEUE_CREATE: a ring that can shrink */
	FAKE_SMALL_RING,     /* QUEUE_CREATE: one page short */
	FAKE_TOO_LARGE,	     /* BUFFER_ADD: a byte more than the file has */
	FAKE_OTHER_HANDLE,   /* BUFFER_ADD: not the one that is asked for */
	FAKE_BLOCKING_PIPES, /* QUEUE_CREATE: pipes without O_NONBLOCK */
	FAKE_NO_PIPE,	     /* QUEUE_CREATE: a file in place of the notification pipe */
};

/* The worker's side of one queue. */
struct fake_queue {
	bool used;
	struct dmasync_ring_layout layout;
	struct dmasync_ring ring; /* the fake's own mapping, or the client's after fake_share() */
	void *memory;
	struct dmasync_worker_page *page;
	int doorbell_fd, notification_fd;
	struct dmasync_unit *mirror;
	uint32_t fetched, completed;
	_Atomic uint64_t doorbells, notifications;
};

struct fake_batch {
	uint32_t position;
	struct dmasync_submission submission;
	uint32_t units;
	struct dmasync_unit unit[64]; /* the first of them, the ring's wrap undone */
};

struct fake {
	char directory[64];
	char path[96];
	int listen_fd, stop_fd, connection_fd;
	pthread_t thread;
	_Atomic int mode[FAKE_OPCODES];
	_Atomic uint32_t requests[FAKE_OPCODES];
	_Atomic uint32_t version;
	_Atomic uint64_t features;
	pthread_mutex_t lock;
	struct dmasync_buffer_add last_add;
	struct dmasync_buffer_remove last_remove;
	struct dmasync_queue_remove last_queue_remove;
	struct dmasync_hello last_hello;
	uint32_t last_handle;
	char late[512];
	size_t late_size;
	int late_fds[DMASYNC_QUEUE_FDS];
	size_t late_fd_count;
	struct fake_queue queue[FAKE_QUEUES];
	uint32_t queue_count;
};

struct fake *fake_start(void);
void fake_stop(struct fake *fake);
void fake_set(struct fake *fake, enum dmasync_opcode opcode, enum fake_mode mode);
/* Sends the answer that FAKE_LATE kept back. */
void fake_release(struct fake *fake);
/* Dies as SIGKILL would: socket and pipes are closed. Call with the worker's thread at rest. */
void fake_die(struct fake *fake);
/* Another daemon on the same listening socket, as with a socket unit, or on a new one. */
void fake_live(struct fake *fake);
void fake_listen(struct fake *fake);
/* Nobody listens any more; call after fake_die(). */
void fake_close(struct fake *fake);
uint32_t fake_requests(struct fake *fake, enum dmasync_opcode opcode);

/* Connects to it, without reconnects: test_reconnect.c is about them. Asserts success. */
struct dmasync *fake_connect(struct fake *fake);
struct dmasync_queue *fake_queue_create(struct dmasync *ds, uint32_t depth, uint32_t units,
					uint32_t spin_us);
struct dmasync_buffer *fake_buffer(struct dmasync *ds, uint64_t bytes);

/* The newest queue made. */
struct fake_queue *fake_queue(struct fake *fake);
/* From now on the worker's side uses the client's very mapping, so that TSan sees both. */
void fake_share(struct fake_queue *fq, struct dmasync_queue *queue);
/* False where nothing is submitted. */
bool fake_fetch(struct fake_queue *fq, struct fake_batch *ret);
/* Publishes the next completion and wakes the client if it sleeps. */
void fake_complete(struct fake_queue *fq, const struct dmasync_ring_completion *completion);
/* fetch and complete, `count` times; asserts that so many are there. */
void fake_serve(struct fake_queue *fq, uint32_t count);
/* A worker that serves `count` batches, sleeping by the protocol when it finds none. */
void fake_work(struct fake_queue *fq, uint64_t count, uint32_t looks);
void fake_say_asleep(struct fake_queue *fq, bool asleep);

/* A test after which the process has the fds it had before. */
#define fake_test(function) cmocka_unit_test_setup_teardown(function, fds_remember, fds_compare)
int fds_remember(void **state);
int fds_compare(void **state);

/* How many fds this process has open. */
unsigned int open_fds(void);

#endif
