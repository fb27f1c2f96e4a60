/* SPDX-License-Identifier: MIT */
/*
 * Requests by raw bytes, for the tests of the daemon's control side. One thread; a call that cannot
 * be made fails the case.
 */
#ifndef TESTS_CONNECTION_REQUESTS_H
#define TESTS_CONNECTION_REQUESTS_H

#include "proto/message_table.h"
#include "proto/ring_access.h"
#include "tests/lib/harness.h"

union reply {
	struct dmasync_message header;
	struct dmasync_error error;
	struct dmasync_hello_reply hello;
	struct dmasync_buffer_add_reply buffer;
	struct dmasync_queue_create_reply queue;
	struct dmasync_sync_reply sync;
	struct dmasync_stats_reply stats;
	struct dmasync_histogram_reply histogram;
	struct dmasync_clients_reply clients;
	struct dmasync_users_reply users;
	struct dmasync_batches_reply batches;
	struct dmasync_probe_reply probe;
	unsigned char bytes[DMASYNC_MESSAGE_MAX];
};

/* Connected and greeted. */
int requests_connect(const struct harness_daemon *daemon);
/* As root: connected as user and group 65534 with these groups. */
int requests_connect_as_nobody(const struct harness_daemon *daemon, const gid_t *groups,
			       size_t count);

/* Fills in the header (size, opcode, a new cookie), calls, and returns the errno of the answer. */
int requests_call(int socket, uint16_t opcode, void *request, size_t size, const int *fds,
		  size_t fd_count, union reply *ret);
/* The same, and the answer must be this error with this text in its sentence. */
void requests_refused(int socket, uint16_t opcode, void *request, size_t size, const int *fds,
		      size_t fd_count, int error, const char *text);

void requests_stats(int socket, struct dmasync_stats_reply *ret); /* also: the connection lives */

/* BUFFER_ADD of an fd that stays the caller's; the errno. */
int requests_add(int socket, int fd, uint32_t flags, enum dmasync_backend backend, uint64_t size,
		 union reply *ret);
int requests_remove(int socket, uint32_t handle);

/* QUEUE_CREATE; the errno. Without a class it is NORMAL. */
int requests_queue_of_class(int socket, enum dmasync_class klass, uint32_t depth, uint32_t units,
			    union reply *ret, int fds[DMASYNC_QUEUE_FDS]);
int requests_queue(int socket, uint32_t depth, uint32_t units, union reply *ret,
		   int fds[DMASYNC_QUEUE_FDS]);
int requests_queue_remove(int socket, uint32_t queue);

/* SYNC; the errno of the call, the batch's own in ret. */
int requests_sync(int socket, const struct dmasync_unit *units, uint32_t count, union reply *ret);
struct dmasync_unit requests_unit(uint32_t buffer, uint64_t offset, uint32_t length);

/* The peer's error, then the end of the connection. */
void requests_closed_with(int socket, int error);

/* A TCP socket whose close waits until its peer is closed, 5 s at most. */
int requests_lingering_socket(int *ret_peer);

/* Nothing is charged to anybody but this connection's socket and pidfd. */
bool requests_alone(int socket);
/* The record of the client with this id, or of the user; it must be there. */
void requests_client(int socket, uint64_t id, struct dmasync_client_record *ret);
void requests_user(int socket, uint32_t uid, struct dmasync_user_record *ret);

/* What the daemon holds, and the wait until it holds just that again. */
struct requests_holdings {
	unsigned int fds, shared_maps;
};
struct requests_holdings requests_holdings(const struct harness_daemon *daemon);
void requests_same_holdings(const struct harness_daemon *daemon, struct requests_holdings before);

#endif
