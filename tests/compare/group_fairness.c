/* SPDX-License-Identifier: MIT */
/*
 * Who gets how many lines while all have more to do: 16 equal clients, and two users, one with one
 * queue and one with 64. Jain's index of the lines each got in a time. One thread is all clients:
 * it keeps every queue full, so that the shares are the daemon's work and not this machine's.
 */
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/compare/compare.h"

#define CLIENTS 16u
#define QUEUES 64u
#define BATCH_BYTES (UINT64_C(1) << 20)
#define IN_FLIGHT 32u /* of a queue: work for a millisecond in which this thread is kept off */
#define WINDOW_NS 30000000

/* Nobody's, and one that no system gives to anybody: connections are told apart by their user. */
static const uid_t users[2] = {65534, 65533};

struct share {
	struct dmasync_queue *queue;
	struct dmasync_buffer *buffer;
	uint32_t owner; /* whose lines these are */
};

static int submit(const struct share *share)
{
	struct dmasync_batch *batch;
	int r = dmasync_batch_begin(share->queue, &batch);

	if (r < 0)
		return r;
	dmasync_batch_add(batch, share->buffer, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0,
			  BATCH_BYTES);
	return dmasync_batch_submit(batch, 0);
}

/* One look at every queue: what is complete is counted and submitted anew. */
static int sweep(const struct share *shares, uint32_t count, uint64_t lines[], bool again)
{
	struct dmasync_completion completion;
	int r;

	for (uint32_t i = 0; i < count; i++)
		while ((r = dmasync_peek(shares[i].queue, &completion)) != 0) {
			if (r < 0 || completion.status < 0)
				return r < 0 ? r : completion.status;
			lines[shares[i].owner] += completion.lines;
			r = again ? submit(&shares[i]) : 0;
			if (r < 0)
				return r;
		}
	return 0;
}

static double jain(const uint64_t lines[], uint32_t owners)
{
	double sum = 0, squares = 0;

	for (uint32_t i = 0; i < owners; i++) {
		sum += (double)lines[i];
		squares += (double)lines[i] * (double)lines[i];
	}
	return squares > 0 ? sum * sum / (owners * squares) : 0;
}

/*
 * The index of each window, its median as the result. A window before the first fills the queues.
 */
static int measure(struct compare *compare, const struct share *shares, uint32_t count,
		   uint32_t owners, double *ret_index, double *ret_least, double *ret_most)
{
	uint64_t *_samples_ indexes = samples_new(compare->rounds);
	uint64_t lines[CLIENTS], total[CLIENTS] = {0};
	int r = 0;

	for (uint32_t i = 0; i < count * IN_FLIGHT; i++) {
		r = submit(&shares[i % count]);
		if (r < 0)
			return r;
	}
	for (uint64_t i = 0; r >= 0 && i <= compare->rounds; i++) {
		int64_t end = now_ns() + WINDOW_NS;

		memset(lines, 0, sizeof lines);
		while (r >= 0 && now_ns() < end)
			r = sweep(shares, count, lines, true);
		/* Kept as an integer for the one median there is: parts of a million. */
		indexes[i ? i - 1 : 0] = (uint64_t)(jain(lines, owners) * 1e6);
		for (uint32_t n = 0; i && n < owners; n++)
			total[n] += lines[n];
	}
	*ret_index = percentiles_median(indexes, compare->rounds) / 1e6;
	*ret_least = *ret_most = (double)total[0];
	for (uint32_t n = 1; n < owners; n++) {
		*ret_least = (double)total[n] < *ret_least ? (double)total[n] : *ret_least;
		*ret_most = (double)total[n] > *ret_most ? (double)total[n] : *ret_most;
	}
	return r;
}

static void report(struct compare *compare, enum row row, double index, double least, double most)
{
	double us = (double)compare->rounds * WINDOW_NS / 1e3;

	row_set(compare, row, index);
	row_value(compare, row, "least lines per us of one", "", least / us);
	row_value(compare, row, "most lines per us of one", "", most / us);
}

static int equal_clients(struct compare *compare)
{
	struct rig_client clients[CLIENTS] = {0};
	struct share shares[CLIENTS];
	struct dmasync_queue_params params;
	struct rig rig;
	double index, least, most;
	int r = rig_open(compare, &rig, "");

	dmasync_queue_params_init(&params);
	for (uint32_t i = 0; r >= 0 && i < CLIENTS; i++) {
		r = rig_client_open(&rig, BATCH_BYTES, &params, &clients[i]);
		shares[i] = (struct share){clients[i].queue, clients[i].buffer, i};
	}
	if (r >= 0)
		r = rig_pin(compare);
	if (r >= 0)
		r = measure(compare, shares, CLIENTS, CLIENTS, &index, &least, &most);
	if (r >= 0)
		report(compare, ROW_FAIRNESS_CLIENTS, index, least, most);
	for (uint32_t i = 0; i < CLIENTS; i++)
		rig_client_close(&clients[i]);
	rig_close(&rig);
	return r;
}

/* As another user for the moment of the connect: that is whose connection it is. */
static int open_as(struct rig *rig, uid_t user, const struct dmasync_queue_params *params,
		   struct rig_client *ret)
{
	struct dmasync *ds;
	int r;

	*ret = (struct rig_client){0};
	if (geteuid() != 0)
		return compare_fail(rig->compare, -EPERM,
				    "only root can connect as two users; run it as root");
	if (seteuid(user) < 0)
		return compare_fail(rig->compare, -errno, "seteuid(%u): %s", user, strerror(errno));
	r = rig_connect(rig, &ds);
	if (seteuid(0) < 0)
		return compare_fail(rig->compare, -errno, "seteuid(0) failed");
	if (r < 0)
		return r;
	ret->ds = ds;
	r = rig_buffer(rig, ds, BATCH_BYTES, &ret->buffer);
	return r < 0 ? r : rig_queue(rig, ds, params, &ret->queue);
}

static int two_users(struct compare *compare)
{
	struct rig_client clients[2] = {0};
	struct dmasync_queue *queues[QUEUES] = {NULL};
	struct share shares[QUEUES + 1];
	struct dmasync_queue_params params;
	struct rig rig;
	double index, least, most;
	int r = rig_open(compare, &rig, "[limits]\nmax_queues = 80\n");

	dmasync_queue_params_init(&params);
	if (r >= 0)
		r = rig_admit_all(&rig);
	for (uint32_t i = 0; r >= 0 && i < 2; i++)
		r = open_as(&rig, users[i], &params, &clients[i]);
	shares[0] = (struct share){clients[0].queue, clients[0].buffer, 0};
	shares[1] = (struct share){clients[1].queue, clients[1].buffer, 1};
	for (uint32_t i = 2; r >= 0 && i <= QUEUES; i++) {
		r = rig_queue(&rig, clients[1].ds, &params, &queues[i - 1]);
		shares[i] = (struct share){queues[i - 1], clients[1].buffer, 1};
	}
	if (r >= 0)
		r = rig_pin(compare);
	if (r >= 0)
		r = measure(compare, shares, QUEUES + 1, 2, &index, &least, &most);
	if (r >= 0)
		report(compare, ROW_FAIRNESS_USERS, index, least, most);
	for (uint32_t i = 0; i < QUEUES; i++)
		dmasync_queue_destroy(queues[i]);
	rig_client_close(&clients[0]);
	rig_client_close(&clients[1]);
	rig_close(&rig);
	return r;
}

int group_fairness(struct compare *compare)
{
	int r = rig_needs_two(compare);

	if (r >= 0)
		r = equal_clients(compare);
	return r < 0 ? r : two_users(compare);
}
