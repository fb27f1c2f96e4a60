/* SPDX-License-Identifier: MIT */
/* Which way a worker waits: see worker_wait.h. Worker thread only. */
#include "daemon/worker_internal.h"

int worker_wait_setup(struct worker *worker, enum loop_kind kind)
{
	int refused = 0;

	if (kind != LOOP_EPOLL) {
		int r = worker_wait_uring_setup(worker);

		if (r == 0 || kind == LOOP_URING)
			return r;
		refused = r;
	}

	int r = worker_wait_epoll_setup(worker);

	if (r == 0)
		worker->wait.refused = refused;
	return r;
}
