/* SPDX-License-Identifier: MIT */
/*
 * See worker_here.h. This file stands in the place of daemon/worker.c, whose turns it calls: the
 * linker takes it first and leaves the archive's member where it is.
 */
#include "worker_here.h"

#include "daemon/worker.c"

int worker_here_start(const struct worker_params *params, struct worker **ret)
{
	struct worker *worker = calloc(1, sizeof *worker);

	if (!worker)
		return -ENOMEM;
	worker->params = *params;
	worker->params.cpu = -1;
	atomic_init(&worker->cpu, -1);
	atomic_init(&worker->free, true);
	worker_tuned(worker);
	worker->page_fd = -1;
	worker->here = -1;
	worker->wake_fd = eventfd(0, EFD_CLOEXEC);
	int r = worker->wake_fd < 0 ? -errno : make_page(worker);

	if (r == 0)
		r = worker_wait_setup(worker, params->loop);
	if (r < 0) {
		free_worker(worker);
		return r;
	}
	worker_spin_tune(worker);
	worker->running = true;
	*ret = worker;
	return 0;
}

bool worker_here_turn(struct worker *worker)
{
	counter_add(&worker->stats.alive, 1);
	return turn(worker);
}

void worker_here_nap(struct worker *worker)
{
	ssize_t n = write(worker->wake_fd, &(uint64_t){1}, sizeof(uint64_t));

	(void)n;
	sleep_in_ring(worker);
}

bool worker_here_is_empty(const struct worker *worker)
{
	for (size_t i = 0; i < sizeof worker->clients / sizeof worker->clients[0]; i++)
		if (worker->clients[i])
			return false;
	return !worker->queues && worker_queue_count(worker) == 0;
}
