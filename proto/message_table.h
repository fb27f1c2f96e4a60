/* SPDX-License-Identifier: MIT */
/*
 * Every request of the protocol in one table: it drives the daemon's dispatch and checks, the
 * library, the golden-byte tests, the fuzz dictionary and the table in PROTOCOL.md.
 *
 * X(NAME, opcode, handler, request struct, trailing unit, reply struct, fds min, fds max,
 *   reply fds, state)
 *
 * trailing: bytes of one element that may follow the struct, 0 where its size is exact.
 * state: NEW before HELLO was answered, READY after.
 * The handler's name is handle_##handler in the daemon.
 */
#ifndef DMASYNC_PROTO_MESSAGE_TABLE_H
#define DMASYNC_PROTO_MESSAGE_TABLE_H

#include "message.h"

/* clang-format off */
#define DMASYNC_MESSAGES(X)                                                                                              \
	X(HELLO,         1,  hello,         struct dmasync_hello,         0,  struct dmasync_hello_reply,        0, 0, 0, NEW)   \
	X(BUFFER_ADD,    2,  buffer_add,    struct dmasync_buffer_add,    0,  struct dmasync_buffer_add_reply,   1, 1, 0, READY) \
	X(BUFFER_REMOVE, 3,  buffer_remove, struct dmasync_buffer_remove, 0,  struct dmasync_done_reply,         0, 0, 0, READY) \
	X(QUEUE_CREATE,  4,  queue_create,  struct dmasync_queue_create,  0,  struct dmasync_queue_create_reply, 0, 0, 4, READY) \
	X(QUEUE_REMOVE,  5,  queue_remove,  struct dmasync_queue_remove,  0,  struct dmasync_done_reply,         0, 0, 0, READY) \
	X(SYNC,          6,  sync,          struct dmasync_sync_request,  16, struct dmasync_sync_reply,         0, 0, 0, READY) \
	X(STATS,         7,  stats,         struct dmasync_message,       0,  struct dmasync_stats_reply,        0, 0, 0, READY) \
	X(HISTOGRAM,     8,  histogram,     struct dmasync_histogram,     0,  struct dmasync_histogram_reply,    0, 0, 0, READY) \
	X(CLIENTS,       9,  clients,       struct dmasync_clients,       0,  struct dmasync_clients_reply,      0, 0, 0, READY) \
	X(BATCHES,       10, batches,       struct dmasync_batches,       0,  struct dmasync_batches_reply,      0, 0, 0, READY) \
	X(WATCH,         11, watch,         struct dmasync_watch,         0,  struct dmasync_done_reply,         0, 0, 0, READY) \
	X(PROBE,         12, probe,         struct dmasync_message,       0,  struct dmasync_probe_reply,        0, 1, 0, READY) \
	X(USERS,         13, users,         struct dmasync_users,         0,  struct dmasync_users_reply,        0, 0, 0, READY)
/* clang-format on */

enum dmasync_opcode {
#define DMASYNC_OPCODE_(name, opcode, ...) DMASYNC_OP_##name = opcode,
	DMASYNC_MESSAGES(DMASYNC_OPCODE_)
#undef DMASYNC_OPCODE_
	/* Unasked: struct dmasync_batches_reply with DMASYNC_MESSAGE_EVENT has opcode WATCH. */
};

#endif
