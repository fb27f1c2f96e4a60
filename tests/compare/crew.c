/* SPDX-License-Identifier: MIT */
/*
 * Clients that are processes. Owns them, one shared mapping and a pipe by which they answer. The
 * parent's thread; each child has one.
 */
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "tests/compare/crew.h"

#define ENTRY 4096u

enum order { ORDER_DIRTY, ORDER_RUN, ORDER_STOP };

/* What a child writes of a round; a line of its own. */
struct report {
	_Alignas(128) int64_t start, end;
};

struct shared {
	_Atomic uint32_t turn; /* grows with each order; children sleep on it */
	uint32_t order;
	struct report reports[];
};

struct crew {
	struct rig *rig;
	struct crew_params params;
	struct shared *shared;
	size_t shared_size;
	pid_t *children;
	uint32_t count;
	int answers[2]; /* int32_t of each child after each order: 0 or a negative errno */
};

/* Release and acquire of `turn` order the order's kind before it. */
static void give_order(struct shared *shared, enum order order)
{
	shared->order = order;
	atomic_fetch_add_explicit(&shared->turn, 1, memory_order_release);
	syscall(SYS_futex, &shared->turn, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static enum order take_order(struct shared *shared, uint32_t turn)
{
	while (atomic_load_explicit(&shared->turn, memory_order_acquire) == turn)
		syscall(SYS_futex, &shared->turn, FUTEX_WAIT, turn, NULL, NULL, 0);
	return (enum order)shared->order;
}

static int submit_and_reap(struct crew *crew, struct rig_client *client,
			   const struct bench_list *list, struct report *report)
{
	const struct crew_params *params = &crew->params;
	struct dmasync_completion completion;
	struct dmasync_batch *batch;
	int r = 0;

	report->start = now_ns();
	for (uint32_t i = 0; r >= 0 && i < params->batches; i++) {
		r = dmasync_batch_begin(client->queue, &batch);
		if (r < 0)
			break;
		dmasync_batch_add_ranges(batch, client->buffer, list->sync, list->direction,
					 list->ranges + (size_t)i * params->entries,
					 params->entries);
		r = dmasync_batch_submit(batch, i);
	}
	for (uint32_t i = 0; r >= 0 && i < params->batches; i++)
		r = rig_reap(crew->rig, client->queue, &completion);
	report->end = now_ns();
	return r;
}

static int serve(struct crew *crew, uint32_t index, struct rig_client *client,
		 struct bench_list *list)
{
	int32_t answer = 0;

	for (uint32_t turn = 0;; turn++) {
		if (write(crew->answers[1], &answer, sizeof answer) != sizeof answer || answer < 0)
			return answer;
		switch (take_order(crew->shared, turn)) {
		case ORDER_DIRTY:
			bench_list_dirty(list, turn);
			break;
		case ORDER_RUN:
			answer = submit_and_reap(crew, client, list, &crew->shared->reports[index]);
			break;
		case ORDER_STOP:
			return 0;
		}
	}
}

static int child(struct crew *crew, uint32_t index)
{
	struct compare *compare = crew->rig->compare;
	const struct crew_params *params = &crew->params;
	const uint32_t entries = params->batches * params->entries;
	struct bench_list list = {
		.cache = &compare->cache,
		.size = (uint64_t)entries * ENTRY,
		.entry = ENTRY,
		.seed = compare->seed + index,
		.random = true,
		.sync = DMASYNC_FOR_DEVICE,
		.direction = DMASYNC_TO_DEVICE,
	};
	struct dmasync_queue_params queue;
	struct rig_client client;
	int r = bench_list_make(&list);

	if (r < 0)
		return r;
	list.count = entries; /* all of them, where the list alone stops earlier */
	dmasync_queue_params_init(&queue);
	while (queue.depth < params->batches)
		queue.depth *= 2;
	while (queue.units < entries)
		queue.units *= 2;
	/* More clients than CPUs: one that looks keeps another from submitting. */
	queue.spin_us = 0;
	r = rig_client_open(crew->rig, list.size, &queue, &client);
	if (r < 0)
		return r;
	list.memory = client.memory;
	rig_pin_beside(compare);
	r = serve(crew, index, &client, &list);
	rig_client_close(&client);
	bench_list_clear(&list);
	return r;
}

static _Noreturn void run_child(struct crew *crew, uint32_t index, pid_t parent)
{
	int32_t answer;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	answer = child(crew, index);
	if (answer < 0) {
		fprintf(stderr, "dmasync-compare: client %u: %s\n", index,
			crew->rig->compare->failure);
		/* Who waits for an answer gets one; one too many is read by nobody. */
		if (write(crew->answers[1], &answer, sizeof answer) < 0)
			_exit(2);
	}
	_exit(answer < 0);
}

static int await_answers(struct crew *crew)
{
	int error = 0;

	for (uint32_t i = 0; i < crew->count; i++) {
		int32_t answer;

		if (read(crew->answers[0], &answer, sizeof answer) != sizeof answer)
			return -EPIPE;
		if (answer < 0)
			return compare_fail(crew->rig->compare, answer, "a client of %u: %s",
					    crew->count, strerror(-answer));
	}
	return error;
}

int crew_start(struct rig *rig, const struct crew_params *params, struct crew **ret)
{
	struct crew *crew = calloc(1, sizeof *crew);
	pid_t self = getpid();
	int r = 0;

	if (!crew)
		return -ENOMEM;
	*crew = (struct crew){.rig = rig, .params = *params, .answers = {-1, -1}};
	crew->shared_size = sizeof(struct shared) + params->clients * sizeof(struct report) +
			    sizeof(struct report);
	crew->children = calloc(params->clients, sizeof *crew->children);
	crew->shared = mmap(NULL, crew->shared_size, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (crew->shared == MAP_FAILED)
		crew->shared = NULL;
	if (!crew->children || !crew->shared)
		r = -ENOMEM;
	else if (pipe2(crew->answers, O_CLOEXEC) < 0)
		r = -errno;
	/* One after the other: the daemon's limit of unanswered handshakes is not the subject. */
	fflush(NULL);
	while (r >= 0 && crew->count < params->clients) {
		pid_t pid = fork();

		if (pid == 0)
			run_child(crew, crew->count, self);
		if (pid < 0)
			r = -errno;
		else
			crew->children[crew->count++] = pid;
	}
	if (r >= 0)
		r = await_answers(crew);
	if (r < 0) {
		crew_stop(crew);
		return r;
	}
	*ret = crew;
	return 0;
}

void crew_stop(struct crew *crew)
{
	if (!crew)
		return;
	if (crew->shared)
		give_order(crew->shared, ORDER_STOP);
	/* Before the pipe is read no more: a child may be about to answer. */
	for (uint32_t i = 0; i < crew->count; i++)
		waitpid(crew->children[i], NULL, 0);
	close_fd(crew->answers[0]);
	close_fd(crew->answers[1]);
	if (crew->shared)
		munmap(crew->shared, crew->shared_size);
	free(crew->children);
	free(crew);
}

int crew_round(struct crew *crew, uint64_t *ret_ns)
{
	const struct report *reports = crew->shared->reports;
	int64_t start = INT64_MAX, end = 0;
	int r;

	give_order(crew->shared, ORDER_DIRTY);
	r = await_answers(crew);
	if (r < 0)
		return r;
	give_order(crew->shared, ORDER_RUN);
	r = await_answers(crew);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < crew->count; i++) {
		start = reports[i].start < start ? reports[i].start : start;
		end = reports[i].end > end ? reports[i].end : end;
	}
	*ret_ns = (uint64_t)(end - start);
	return 0;
}
