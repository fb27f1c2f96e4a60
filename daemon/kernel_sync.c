/* SPDX-License-Identifier: MIT */
/* The kernel backend of one batch, as a job of a helper thread: see daemon/buffer/kernel.h. */
#include "daemon/kernel_sync.h"

static void run_job(struct helper_job *job)
{
	struct kernel_sync *sync = (struct kernel_sync *)job;

	sync->error = kernel_sync_runs(sync->batch, &sync->calls);
}

void kernel_sync_prepare(struct kernel_sync *sync, const struct cache_batch *batch,
			 uint64_t client_id, uint64_t user_id, struct mailbox *done, int done_fd)
{
	*sync = (struct kernel_sync){
		.job = {.run = run_job,
			.client_id = client_id,
			.user_id = user_id,
			.done = done,
			.done_fd = done_fd},
		.batch = batch,
	};
}
