/* SPDX-License-Identifier: MIT */
/*
 * The daemon as the commands reach it: by libdmasync, and by its request/answer code for the
 * messages that the library has no call for. Main thread.
 */
#ifndef DMASYNC_CTL_CONNECT_H
#define DMASYNC_CTL_CONNECT_H

#include "client/ctl/options.h"
#include "client/internal.h"

/* Connects; a failure is told on stderr and returned as CTL_FAILED. */
int connect_daemon(const struct ctl *ctl, struct dmasync **ret);

/* In its place: inline mode, simulated buffers allowed. */
int connect_inline(struct dmasync **ret);

/* Options of a command without operands, then connect_daemon(). False: return *ret_status. */
bool connect_command(struct ctl *ctl, const struct option_usage *usage, int argc, char **argv,
		     struct dmasync **ret, int *ret_status);

/* connect_daemon() without a word: a negative errno, and the sentence in `text`. */
int connect_quietly(const struct ctl *ctl, struct dmasync **ret, char *text, size_t size);

/*
 * One request and its reply of `reply_min` to `reply_max` bytes; fd: sent along, or -1. The reply
 * begins with its header, as the request does. Negative errno: *ret_size is untouched and
 * connect_explain() has the sentence.
 */
int connect_request(struct dmasync *ds, enum dmasync_opcode opcode, struct dmasync_message *request,
		    size_t request_size, int fd, void *reply, size_t reply_min, size_t reply_max,
		    size_t *ret_size);

/* Tells the last failure of this connection on stderr; returns CTL_FAILED. `what`: "stats". */
int connect_explain(struct dmasync *ds, const char *what, int error);

static inline void connect_cleanup(struct dmasync **ds)
{
	dmasync_disconnect(*ds);
}

#define _connection_ __attribute__((cleanup(connect_cleanup)))

#endif
