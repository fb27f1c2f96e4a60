/* SPDX-License-Identifier: MIT */
/*
 * Helper threads for everything that may block: mapping, populating, unmapping, DMA_BUF_IOCTL_SYNC,
 * and close of any fd that a client sent. At most `per_client` jobs of one client run at a time,
 * and of one user at most half of what the others leave: whose files hang takes some of the threads
 * and never all, however many connections it makes.
 */
#ifndef DMASYNC_HELPER_H
#define DMASYNC_HELPER_H

#include <stdint.h>
#include <sys/types.h>

#include "daemon/mailbox.h"

struct helpers;

struct helper_job {
	struct mailbox_node node;	     /* first: comes back through `done` */
	void (*run)(struct helper_job *job); /* on a helper thread; may block */
	uint64_t client_id;		     /* whose quota it counts on; 0: the daemon's own */
	uint64_t user_id;		     /* helper_user_id(); 0 where client_id is 0 */
	struct mailbox *done;		     /* where it goes afterwards; NULL: freed with free() */
	int done_fd;			     /* eventfd written after posting there, -1 for none */
	void (*finished)(struct helper_job *job); /* for the taker of `done` to call; helpers never
						   * look at it */
	struct helper_job *next;		  /* helpers' own */
};

static inline uint64_t helper_user_id(uid_t uid)
{
	return (uint64_t)uid + 1;
}

/* `threads` at most, started as needed; `per_client` jobs at once for one client id. */
int helpers_create(uint32_t threads, uint32_t per_client, struct helpers **ret);

/* Any thread; takes a mutex for a few instructions, never waits for a job. */
void helpers_submit(struct helpers *helpers, struct helper_job *job);

/* Waits for jobs that are running, up to timeout_ms, then leaves the stuck ones behind. */
void helpers_free(struct helpers *helpers, uint32_t timeout_ms);

#endif
