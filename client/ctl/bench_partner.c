/* SPDX-License-Identifier: MIT */
/*
 * A thread on the worker's CPU that answers as fast as a thread can. Owns the thread, two pipes and
 * one cache line. Made and used by one thread.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/ctl/bench.h"
#include "client/ctl/bench_partner.h"

/* 128: the adjacent-line prefetcher of x86 fetches lines in pairs. */
#define APART 128

struct partner {
	_Alignas(APART) _Atomic uint32_t ball; /* odd: the partner's turn; even: the other's */
	_Alignas(APART) pthread_t thread;
	int cpu;
	int error;	    /* of pinning, told by the first answer */
	int to[2], from[2]; /* pipes */
};

/* What goes through the pipe `to`: so many rounds of ping-pong, or one of these. */
#define MESSAGE_WAKE 0u
#define MESSAGE_STOP UINT32_MAX

static void play(struct partner *partner, uint32_t rounds)
{
	for (uint32_t i = 0; i < rounds; i++) {
		/* Acquire and release pair with those of partner_ping_pong(). */
		while (atomic_load_explicit(&partner->ball, memory_order_acquire) != 2 * i + 1)
			;
		atomic_store_explicit(&partner->ball, 2 * i + 2, memory_order_release);
	}
}

static void *serve(void *argument)
{
	struct partner *partner = argument;
	char byte = 0;
	uint32_t message;

	if (partner->cpu >= 0)
		partner->error = bench_pin_thread(partner->cpu);
	for (;;) {
		if (read(partner->to[0], &message, sizeof message) != sizeof message ||
		    message == MESSAGE_STOP)
			return NULL;
		if (message != MESSAGE_WAKE)
			play(partner, message);
		else if (write(partner->from[1], &byte, 1) != 1)
			return NULL;
	}
}

static int send_message(struct partner *partner, uint32_t message)
{
	return write(partner->to[1], &message, sizeof message) == sizeof message ? 0 : -errno;
}

static void free_partner(struct partner *partner)
{
	for (int i = 0; i < 2; i++) {
		close_fd(partner->to[i]);
		close_fd(partner->from[i]);
	}
	free(partner);
}

int partner_start(int cpu, struct partner **ret)
{
	struct partner *partner = aligned_alloc(APART, sizeof *partner);
	uint64_t ns;
	int r = 0;

	if (!partner)
		return -ENOMEM;
	*partner = (struct partner){.cpu = cpu, .to = {-1, -1}, .from = {-1, -1}};
	if (pipe2(partner->to, O_CLOEXEC) < 0 || pipe2(partner->from, O_CLOEXEC) < 0)
		r = -errno;
	if (r >= 0)
		r = -pthread_create(&partner->thread, NULL, serve, partner);
	if (r < 0) {
		free_partner(partner);
		return r;
	}
	/* Its first answer comes after it was pinned: the pipe orders what it wrote. */
	r = partner_wake(partner, &ns);
	if (r >= 0)
		r = partner->error;
	if (r < 0) {
		partner_stop(partner);
		return r;
	}
	*ret = partner;
	return 0;
}

void partner_stop(struct partner *partner)
{
	if (!partner)
		return;
	send_message(partner, MESSAGE_STOP);
	pthread_join(partner->thread, NULL);
	free_partner(partner);
}

int partner_ping_pong(struct partner *partner, uint32_t warm, uint32_t rounds, uint64_t *ret_ns)
{
	int r;

	atomic_store_explicit(&partner->ball, 0, memory_order_relaxed);
	r = send_message(partner, warm + rounds); /* the pipe orders the store before it */
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < warm + rounds; i++) {
		int64_t start = now_ns();

		/* Release and acquire pair with those of play(). */
		atomic_store_explicit(&partner->ball, 2 * i + 1, memory_order_release);
		while (atomic_load_explicit(&partner->ball, memory_order_acquire) != 2 * i + 2)
			;
		if (i >= warm)
			ret_ns[i - warm] = (uint64_t)(now_ns() - start);
	}
	return 0;
}

int partner_wake(struct partner *partner, uint64_t *ret_ns)
{
	int64_t start = now_ns();
	ssize_t n;
	char byte;
	int r = send_message(partner, MESSAGE_WAKE);

	if (r < 0)
		return r;
	do
		n = read(partner->from[0], &byte, 1);
	while (n < 0 && errno == EINTR);
	if (n != 1)
		return n < 0 ? -errno : -EPIPE;
	*ret_ns = (uint64_t)(now_ns() - start);
	return 0;
}
