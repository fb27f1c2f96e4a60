/* SPDX-License-Identifier: MIT */
/*
 * What the end-to-end tests share beyond tests/lib/harness.h: clients over the library, and raw
 * ones that write the ring themselves, also what the library would never write. For one thread of a
 * test.
 */
#ifndef TESTS_E2E_SUPPORT_H
#define TESTS_E2E_SUPPORT_H

#include <dmasync/dmasync.h>

#include "proto/message_table.h"
#include "proto/ring_access.h"
#include "tests/lib/harness.h"

#define SIMULATED_CONFIG "[daemon]\nallow_simulated = yes\n"

enum { LINE = 64, PATIENCE_MS = 10000 };
#define PATIENCE_NS INT64_C(10000000000)

/*
 * Where $DMASYNC_E2E_INLINE is set, the clients over the library do all work in-process: the very
 * same cases, with a daemon that nobody asks for anything.
 */
bool client_is_inline(void);

/* ---- a client over the library, with one queue ---- */

struct client {
	struct dmasync *ds;
	struct dmasync_queue *queue;
};

/* Without a queue; connected to this one daemon (test_restart.c is about more of them). */
void client_connect(struct client *client, const char *socket);
void client_connect_with(struct client *client, const char *socket, uint32_t flags);
void client_queue(struct client *client, uint32_t depth, uint32_t units);
void client_open(struct client *client, const char *socket, uint32_t depth, uint32_t units);
void client_close(struct client *client);

/* One entry; rows 0 and 1 are a plain one. */
struct range {
	enum dmasync_sync sync;
	enum dmasync_direction direction;
	uint64_t offset, length, rows, stride;
};

/* Submits and returns at once. */
void client_submit(struct client *client, struct dmasync_buffer *buffer, const struct range *ranges,
		   size_t count, uint64_t user_data);
/* The next completion, whatever its status. */
void client_wait(struct client *client, struct dmasync_completion *ret);
/* Both, for a batch that must succeed. */
void client_run(struct client *client, struct dmasync_buffer *buffer, const struct range *ranges,
		size_t count, struct dmasync_completion *ret);

/* ---- simulated memory, allocated by the library ---- */

struct memory {
	struct dmasync_buffer *buffer;
	uint8_t *cpu, *device;
	size_t size;
};

void memory_alloc(struct memory *memory, struct dmasync *ds, size_t size);
void memory_free(struct memory *memory);

/*
 * What every line of one side should hold. stripe() fills a side with a value that no line has held
 * before; expect_lines() notes the lines of a range as having it; check_side() compares.
 */
struct stripes {
	uint64_t *line; /* by line: the word it is full of */
	size_t lines;
	uint64_t value;
};

void stripes_begin(struct stripes *stripes, size_t size);
void stripes_end(struct stripes *stripes);
void stripe(struct stripes *stripes, uint8_t *side);
/* How many of the range's lines did not have the value yet. */
uint64_t stripes_expect(struct stripes *stripes, const struct range *range);
void stripes_check(const struct stripes *stripes, const uint8_t *side, const struct range *range);

/* ---- a raw client ---- */

struct raw {
	int socket;
	uint64_t cookie;
	struct dmasync_hello_reply hello;
};

void raw_open(struct raw *raw, const char *socket);
void raw_close(struct raw *raw);
/* Fails the case where the reply is an error. */
void raw_call(struct raw *raw, void *request, uint16_t opcode, size_t size, void *reply,
	      size_t reply_size);
uint32_t raw_add_buffer(struct raw *raw, int fd, enum dmasync_backend backend, uint64_t size);
void raw_stats(struct raw *raw, struct dmasync_stats_reply *ret);

/* Simulated memory that the test itself lays out: three regions of one memfd. */
struct raw_memory {
	int fd;
	uint32_t handle;
	size_t size;
	uint8_t *cpu, *device;
};

void raw_memory_alloc(struct raw_memory *memory, struct raw *raw, size_t size);
void raw_memory_free(struct raw_memory *memory);

struct raw_queue {
	uint32_t id;
	uint32_t depth, units;
	struct dmasync_ring ring;
	void *memory;
	size_t size;
	const struct dmasync_worker_page *page;
	int doorbell, notification;
	uint32_t submitted, completed, unit_position;
};

void raw_queue_open(struct raw_queue *queue, struct raw *raw, uint32_t depth, uint32_t units);
/* Without a class it is normal. */
void raw_queue_open_as(struct raw_queue *queue, struct raw *raw, enum dmasync_class klass,
		       uint32_t depth, uint32_t units);
/* Closes this side alone; the daemon learns of it with the connection, or by raw_queue_remove(). */
void raw_queue_close(struct raw_queue *queue);
void raw_queue_remove(struct raw_queue *queue, struct raw *raw);

/* Writes units and publishes the submission as it is; rings no bell. */
void raw_publish(struct raw_queue *queue, const struct dmasync_unit *units, uint32_t count,
		 struct dmasync_submission *submission);
/* The same for an honest batch. */
void raw_submit(struct raw_queue *queue, const struct dmasync_unit *units, uint32_t count,
		uint64_t user_data);
void raw_ring_bell(struct raw_queue *queue);
void raw_await_sleep(const struct raw_queue *queue);
bool raw_peek(struct raw_queue *queue, struct dmasync_ring_completion *ret);
void raw_wait(struct raw_queue *queue, struct dmasync_ring_completion *ret);

struct dmasync_unit raw_unit(uint32_t handle, enum dmasync_sync sync,
			     enum dmasync_direction direction, uint64_t offset, uint32_t length);

/* ---- what the daemon holds, before and after ---- */

struct holdings {
	unsigned int fds, shared_maps;
};

/* Threads are not compared: helpers come and go. */
struct holdings holdings_of(const struct harness_daemon *daemon);
/* Waits until it holds no more than then; fails the case where that does not come. */
void holdings_await(const struct harness_daemon *daemon, const struct holdings *before);

#endif
