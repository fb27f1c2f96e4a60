/* SPDX-License-Identifier: MIT */
/*
 * What each user, each connection and all of them have of the daemon: counted by resource, held to
 * the limits of the configuration and of the machine. Control thread only.
 */
#ifndef DMASYNC_ACCOUNT_H
#define DMASYNC_ACCOUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "daemon/config.h"
#include "daemon/machine_limits.h"
#include "proto/message.h"

enum account_resource {
	ACCOUNT_CONNECTIONS, /* from accept until the last fd of it is closed */
	ACCOUNT_BUFFERS,     /* registered, or being mapped or unmapped */
	ACCOUNT_BUFFER_BYTES,
	ACCOUNT_MAPS,  /* of buffers and queues */
	ACCOUNT_FILES, /* the daemon has open: sockets, pipes, dma-bufs, what was sent to it */
	ACCOUNT_QUEUES,
	ACCOUNT_QUEUE_BYTES, /* rings and the copies of their units */
	ACCOUNT_BATCHES,     /* most that can be in flight: a queue's depth; each SYNC is one */
	ACCOUNT_REQUESTS,    /* unanswered */
	ACCOUNT_ANSWERS,     /* that did not fit into the socket of a client that does not read */
	ACCOUNT_WATCHES,     /* streams of batch records */
	ACCOUNT_RESOURCES,
};

/* What something costs; only what it names is looked at. */
struct account_cost {
	uint64_t amount[ACCOUNT_RESOURCES];
};

#define ACCOUNT_COST(...) (&(const struct account_cost){.amount = {__VA_ARGS__}})

/* One for each uid that has an account open. */
struct account_user {
	struct account_user *next, *previous; /* by uid */
	uid_t uid;
	bool trusted; /* root and the daemon's own user: no share, only the limits that are set */
	uint32_t references;
	uint64_t used[ACCOUNT_RESOURCES];
	uint32_t closing; /* fds of ACCOUNT_FILES that helpers are closing */
	uint64_t refused;
	uint64_t logged_ns; /* 0: never */
	uint64_t log_suppressed;
};

/* Of a connection. */
struct account {
	struct account_user *user; /* NULL: not open */
	uint64_t used[ACCOUNT_RESOURCES];
};

/* UINT64_MAX: none. */
struct account_limits {
	uint64_t connection[ACCOUNT_RESOURCES];
	uint64_t user[ACCOUNT_RESOURCES]; /* where it is set; else a share of the total */
	uint64_t total[ACCOUNT_RESOURCES];
};

struct accounts {
	struct account_user *users;
	uint32_t user_count;
	struct account_limits limits;
	uint64_t used[ACCOUNT_RESOURCES];
	uint64_t refused;
	uint64_t errors; /* charges that were not taken back, or more than was charged was */
};

struct account_refusal {
	enum account_resource resource;
	int error; /* negative errno for the answer */
	uint64_t used, amount, limit;
	char text[DMASYNC_TEXT_SIZE];
};

/* From the configuration as it was fitted to the machine. What is in use stays. */
void accounts_set_limits(struct accounts *accounts, const struct config *config,
			 const struct limits_machine *machine);

/* -ENOMEM. */
int account_open(struct accounts *accounts, uid_t uid, struct account *account);
/* Nothing may be charged any more: asserted, and counted as an error. */
void account_close(struct accounts *accounts, struct account *account);

/*
 * Charges all of it or nothing. A negative errno, with the sentence for the client in *ret, where
 * the connection, its user, its user's share or the daemon has no room for it.
 *
 * The share: where no limit of a user is set, one user takes at most half of what the others leave
 * of the total. However many users take what they may, the next one still finds something.
 */
int account_charge(struct accounts *accounts, struct account *account,
		   const struct account_cost *cost, struct account_refusal *ret);
/* For what is there already and cannot be refused. */
void account_force(struct accounts *accounts, struct account *account,
		   const struct account_cost *cost);
void account_uncharge(struct accounts *accounts, struct account *account,
		      const struct account_cost *cost);

/* Whether account_force() has brought the user, or all of them, beyond what is allowed. */
bool account_over(const struct accounts *accounts, const struct account *account,
		  enum account_resource resource, struct account_refusal *ret);
bool accounts_over(const struct accounts *accounts, enum account_resource resource);

/*
 * The first refusal of a user is logged with fields, the later ones at most every ten seconds, with
 * how many were left out. `pid` is of the process that was refused.
 */
void account_log(struct account *account, pid_t pid, const struct account_refusal *refusal);

/* "buffers", for fields and tables. */
const char *account_name(enum account_resource resource);

#endif
