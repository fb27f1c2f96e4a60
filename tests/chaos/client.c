/* SPDX-License-Identifier: MIT */
/*
 * One client of the chaos run: submits batches on frames of simulated memory, plays the device, and
 * checks of every completion that it is the next one and that its frame is right. One thread in a
 * process of its own, which may be killed anywhere.
 */
#include "tests/chaos/chaos.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/e2e/support.h"

#define DEPTH 8u
#define UNITS 256u
#define FRAME_BYTES 16384u
#define FRAME_LINES (FRAME_BYTES / LINE)
#define PATIENCE_S 60

struct chaos_client {
	struct chaos_board *board;
	struct chaos_slot *slot;
	enum manner manner;
	const char *socket;
	unsigned short seed[3];
	uint64_t mark; /* of this very client, in every value it writes */

	struct dmasync *ds;
	struct dmasync_queue *queue;
	struct dmasync_buffer *buffer;
	uint8_t *cpu, *device;

	uint64_t submitted, completed; /* batches; frame i % DEPTH is batch i's */
	bool for_cpu[DEPTH];
	int64_t submit_ns[DEPTH];
};

static int64_t monotonic_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static uint32_t chance(struct chaos_client *client, uint32_t of)
{
	return (uint32_t)nrand48(client->seed) % of;
}

static void __attribute__((format(printf, 3, 4)))
problem(struct chaos_client *client, _Atomic uint64_t *counter, const char *format, ...)
{
	va_list arguments;

	if (atomic_fetch_add(counter, 1) > 0 || client->slot->problem[0])
		return;
	va_start(arguments, format);
	vsnprintf(client->slot->problem, sizeof client->slot->problem, format, arguments);
	va_end(arguments);
}

/* ---- connecting: a daemon that is away just now is met later ---- */

/* True where it is worth another try; a problem where it is not. */
static bool try_again(struct chaos_client *client, const char *what, int r, int64_t since)
{
	bool away = r == -ENOENT || r == -ECONNREFUSED || r == -ECONNRESET || r == -ETIMEDOUT;
	char text[512] = "";

	if (away && monotonic_ns() - since < PATIENCE_S * INT64_C(1000000000)) {
		usleep(10000);
		return true;
	}
	if (client->ds)
		dmasync_error_text(client->ds, text, sizeof text);
	problem(client, &client->slot->failed, "%s: %s: %s", what, strerror(-r), text);
	return false;
}

static bool open_connection(struct chaos_client *client, uint32_t flags, struct dmasync **ret)
{
	struct dmasync_connect_params params;
	int64_t since = monotonic_ns();
	int r;

	dmasync_connect_params_init(&params);
	params.socket = client->socket;
	params.name = "chaos";
	params.timeout_ms = PATIENCE_S * 1000;
	params.flags = flags;
	do {
		r = dmasync_connect_with(&params, ret);
		if (r == 0)
			return true;
	} while (try_again(client, "connect", r, since));
	return false;
}

static bool open_queue(struct chaos_client *client, struct dmasync *ds, struct dmasync_queue **ret)
{
	struct dmasync_queue_params params;
	int64_t since = monotonic_ns();
	int r;

	dmasync_queue_params_init(&params);
	params.depth = DEPTH;
	params.units = UNITS;
	if (client->manner != MANNER_WAITS && client->manner != MANNER_FALLBACK_WAITS)
		params.spin_us = 0;
	do {
		r = dmasync_queue_create(ds, &params, ret);
		if (r == 0)
			return true;
	} while (try_again(client, "queue", r, since));
	return false;
}

static bool open_buffer(struct chaos_client *client, struct dmasync *ds,
			struct dmasync_buffer **ret)
{
	struct dmasync_buffer_params params;
	int64_t since = monotonic_ns();
	int r;

	dmasync_buffer_params_init(&params);
	params.bytes = DEPTH * FRAME_BYTES;
	params.memory = DMASYNC_MEMORY_SIMULATED;
	do {
		r = dmasync_buffer_alloc(ds, &params, ret);
		if (r == 0)
			return true;
	} while (try_again(client, "buffer", r, since));
	return false;
}

static bool open_both(struct chaos_client *client)
{
	if (!open_buffer(client, client->ds, &client->buffer) ||
	    !open_queue(client, client->ds, &client->queue))
		return false;
	client->cpu = dmasync_buffer_map(client->buffer);
	client->device = dmasync_buffer_map_device(client->buffer);
	if (client->cpu && client->device)
		return true;
	problem(client, &client->slot->failed, "the buffer cannot be mapped");
	return false;
}

static bool is_fallback(const struct chaos_client *client)
{
	return client->manner == MANNER_FALLBACK_WAITS || client->manner == MANNER_FALLBACK_POLLS;
}

static bool open_all(struct chaos_client *client)
{
	uint32_t flags =
		is_fallback(client) ? DMASYNC_INLINE_FALLBACK | DMASYNC_INLINE_SIMULATED : 0;

	return open_connection(client, flags, &client->ds) && open_both(client);
}

static void close_both(struct chaos_client *client)
{
	dmasync_queue_destroy(client->queue);
	dmasync_buffer_destroy(client->buffer);
	client->queue = NULL;
	client->buffer = NULL;
}

/* ---- frames ---- */

/*
 * One word of each line tells whose the line is, the rest stays zero: a daemon may be killed in the
 * middle of copying a line, which no cache would do by halves, and a single word is copied whole.
 */
static uint64_t *word_of(uint8_t *side, uint64_t batch, uint32_t line)
{
	uint8_t *start = side + batch % DEPTH * FRAME_BYTES + (size_t)line * LINE;

	return (uint64_t *)(void *)start + line % (LINE / sizeof(uint64_t));
}

static uint64_t value_of(const struct chaos_client *client, uint64_t batch, uint32_t line)
{
	return client->mark + batch * FRAME_LINES + line + 1;
}

static void write_frame(struct chaos_client *client, uint8_t *side, uint64_t batch)
{
	for (uint32_t line = 0; line < FRAME_LINES; line++)
		*word_of(side, batch, line) = value_of(client, batch, line);
}

static void check_frame(struct chaos_client *client, uint8_t *side, uint64_t batch)
{
	for (uint32_t line = 0; line < FRAME_LINES; line++) {
		uint64_t has = *word_of(side, batch, line), wants = value_of(client, batch, line);

		if (has == wants)
			continue;
		problem(client, &client->slot->wrong,
			"batch %llu, %s: line %u holds %llx instead of %llx",
			(unsigned long long)batch, side == client->cpu ? "for_cpu" : "for_device",
			line, (unsigned long long)has, (unsigned long long)wants);
		return;
	}
}

/* ---- batches ---- */

/* The whole frame, as one range, as a list of pieces, or as two combs of rows. */
static void add_frame(struct chaos_client *client, struct dmasync_batch *batch,
		      enum dmasync_sync sync, enum dmasync_direction direction, uint64_t offset)
{
	enum { PIECES = 16 };
	struct dmasync_range pieces[PIECES];

	/* As a broken daemon would: the run must notice. */
	if (client->board->without_sync && chance(client, 50) == 0) {
		dmasync_batch_add(batch, client->buffer, sync, direction, offset, LINE);
		return;
	}
	switch (chance(client, 3)) {
	case 0:
		dmasync_batch_add(batch, client->buffer, sync, direction, offset, FRAME_BYTES);
		break;
	case 1:
		for (uint32_t i = 0; i < PIECES; i++)
			pieces[i] = (struct dmasync_range){
				offset + (i * 5 % PIECES) * (FRAME_BYTES / PIECES),
				FRAME_BYTES / PIECES,
			};
		dmasync_batch_add_ranges(batch, client->buffer, sync, direction, pieces, PIECES);
		break;
	case 2:
		for (uint32_t i = 0; i < 2; i++)
			dmasync_batch_add_rows(batch, client->buffer, sync, direction,
					       offset + (uint64_t)i * LINE, LINE, FRAME_LINES / 2,
					       UINT64_C(2) * LINE);
		break;
	}
}

/* Writes the frame of the next batch: as the CPU, or as the device. */
static void prepare_frame(struct chaos_client *client, bool for_cpu)
{
	uint64_t number = client->submitted;

	client->for_cpu[number % DEPTH] = for_cpu;
	write_frame(client, for_cpu ? client->device : client->cpu, number);
	client->submit_ns[number % DEPTH] = monotonic_ns();
}

/* 1: submitted, 0: no room. */
static int submit(struct chaos_client *client)
{
	uint64_t number = client->submitted;
	struct dmasync_batch *batch;
	bool for_cpu = chance(client, 2);
	int r = dmasync_batch_begin(client->queue, &batch);

	if (r == -EAGAIN)
		return 0;
	if (r == 0) {
		prepare_frame(client, for_cpu);
		add_frame(client, batch, for_cpu ? DMASYNC_FOR_CPU : DMASYNC_FOR_DEVICE,
			  for_cpu ? DMASYNC_FROM_DEVICE : DMASYNC_TO_DEVICE,
			  number % DEPTH * FRAME_BYTES);
		r = dmasync_batch_submit(batch, number);
	}
	if (r < 0) {
		problem(client, &client->slot->failed, "batch %llu: submitted with %s",
			(unsigned long long)number, strerror(-r));
		return r;
	}
	client->submitted++;
	return 1;
}

static void account(struct chaos_client *client, uint64_t number)
{
	histogram_add(&client->slot->latency,
		      (uint64_t)(monotonic_ns() - client->submit_ns[number % DEPTH]));
	check_frame(client, client->for_cpu[number % DEPTH] ? client->cpu : client->device, number);
	atomic_fetch_add(&client->slot->batches, 1);
	client->completed = number + 1;
}

static void complete(struct chaos_client *client, const struct dmasync_completion *done)
{
	uint64_t number = done->user_data;

	if (number < client->completed || number >= client->submitted) {
		problem(client, &client->slot->duplicated, "batch %llu completes after %llu",
			(unsigned long long)number, (unsigned long long)client->completed);
		return;
	}
	if (number > client->completed) {
		problem(client, &client->slot->lost, "batch %llu completes, %llu did not",
			(unsigned long long)number, (unsigned long long)client->completed);
		client->completed = number;
	}
	if (done->status != 0) {
		char text[256];

		dmasync_completion_text(done, text, sizeof text);
		problem(client, &client->slot->failed, "batch %llu: %s", (unsigned long long)number,
			text);
	}
	if (done->flags & DMASYNC_COMPLETION_REPLAYED)
		atomic_fetch_add(&client->slot->replayed, 1);
	if (done->flags & DMASYNC_COMPLETION_INLINE)
		atomic_fetch_add(&client->slot->in_process, 1);
	account(client, number);
}

/* ---- taking completions, each in its manner: 1 at least one, negative: none came ---- */

static int take_by_wait(struct chaos_client *client)
{
	struct dmasync_completion done;
	int r = dmasync_wait(client->queue, &done, PATIENCE_S * INT64_C(1000000000));

	if (r < 0)
		return r;
	complete(client, &done);
	return 1;
}

static int take_by_peek(struct chaos_client *client)
{
	int64_t end = monotonic_ns() + PATIENCE_S * INT64_C(1000000000);
	struct dmasync_completion done;

	for (;;) {
		int r = dmasync_peek(client->queue, &done);

		if (r == 1)
			complete(client, &done);
		if (r != 0)
			return r;
		if (monotonic_ns() > end)
			return -ETIMEDOUT;
		usleep(50);
	}
}

static int take_by_poll(struct chaos_client *client)
{
	struct pollfd p = {.fd = dmasync_queue_fd(client->queue), .events = POLLIN};
	int64_t end = monotonic_ns() + PATIENCE_S * INT64_C(1000000000);
	struct dmasync_completion done;

	if (p.fd < 0)
		return p.fd;
	for (;;) {
		int taken = 0, r;

		/* Nothing but its readiness brings us here: one that never came is a problem. */
		if (poll(&p, 1, PATIENCE_S * 1000) == 0)
			return -ETIMEDOUT;
		while ((r = dmasync_peek(client->queue, &done)) == 1) {
			complete(client, &done);
			taken = 1;
		}
		if (r < 0 || taken)
			return r < 0 ? r : 1;
		if (monotonic_ns() > end)
			return -ETIMEDOUT;
	}
}

static int take(struct chaos_client *client)
{
	switch (client->manner) {
	case MANNER_WAITS:
	case MANNER_SLEEPS:
	case MANNER_SYNCS:
	case MANNER_CHANGES:
	case MANNER_FALLBACK_WAITS:
		return take_by_wait(client);
	case MANNER_PEEKS:
		return take_by_peek(client);
	case MANNER_POLLS:
	case MANNER_FALLBACK_POLLS:
		return take_by_poll(client);
	case MANNERS:
		break;
	}
	return -EINVAL;
}

static bool drain(struct chaos_client *client)
{
	while (client->completed < client->submitted) {
		int r = take(client);

		if (r < 0) {
			problem(client, &client->slot->lost, "batch %llu: %s instead of it",
				(unsigned long long)client->completed, strerror(-r));
			return false;
		}
	}
	return true;
}

/* One batch by the call that does all of it. */
static bool sync_one(struct chaos_client *client)
{
	uint64_t number = client->submitted;
	bool for_cpu = chance(client, 2);
	int r;

	prepare_frame(client, for_cpu);
	r = dmasync_sync(client->queue, client->buffer,
			 for_cpu ? DMASYNC_FOR_CPU : DMASYNC_FOR_DEVICE,
			 for_cpu ? DMASYNC_FROM_DEVICE : DMASYNC_TO_DEVICE,
			 number % DEPTH * FRAME_BYTES, FRAME_BYTES);
	client->submitted++;
	if (r < 0) {
		problem(client, &client->slot->failed, "sync %llu: %s", (unsigned long long)number,
			strerror(-r));
		return false;
	}
	account(client, number);
	return true;
}

static bool turn(struct chaos_client *client)
{
	uint32_t wanted = 1 + chance(client, DEPTH);

	/* As a camera's frames come: 32 clients that never rest would leave a daemon no CPU. */
	usleep(chance(client, 8000));
	if (client->manner == MANNER_SYNCS)
		return sync_one(client);
	if (client->manner == MANNER_CHANGES && chance(client, 30) == 0) {
		if (!drain(client))
			return false;
		close_both(client);
		if (!open_both(client))
			return false;
	}
	while (client->submitted - client->completed < wanted) {
		int r = submit(client);

		if (r < 0)
			return false;
		if (r == 0)
			break;
	}
	if (chance(client, 4) == 0)
		return drain(client);
	if (take(client) > 0)
		return true;
	problem(client, &client->slot->lost, "batch %llu: nothing came",
		(unsigned long long)client->completed);
	return false;
}

/* ---- what it holds at the end ---- */

struct held {
	unsigned int fds, maps;
};

static struct held held(void)
{
	return (struct held){harness_count_fds(0), harness_count_shared_maps(0)};
}

/* Until a daemon does the batches again: then what belongs to inline mode is gone. */
static bool return_to_daemon(struct chaos_client *client)
{
	int64_t since = monotonic_ns();
	uint64_t before;

	do {
		before = atomic_load(&client->slot->in_process);
		if (submit(client) != 1 || !drain(client))
			return false;
		if (atomic_load(&client->slot->in_process) == before)
			return true;
		usleep(10000);
	} while (monotonic_ns() - since < PATIENCE_S * INT64_C(1000000000));
	problem(client, &client->slot->failed, "the daemon is back and the batches are not");
	return false;
}

/*
 * A connection that has lived through all this holds no more than a fresh one does that has done
 * the same things.
 */
static void compare_with_fresh(struct chaos_client *client, struct held before)
{
	struct chaos_client fresh = {
		.board = client->board,
		.slot = client->slot,
		.manner = client->manner,
		.socket = client->socket,
	};
	struct held with_old = held(), with_both;

	if (!open_all(&fresh))
		return;
	if (client->manner == MANNER_POLLS || client->manner == MANNER_FALLBACK_POLLS)
		dmasync_queue_fd(fresh.queue);
	with_both = held();
	if (with_old.fds - before.fds > with_both.fds - with_old.fds ||
	    with_old.maps - before.maps > with_both.maps - with_old.maps)
		problem(client, &client->slot->failed,
			"an old connection holds %u fds and %u shared maps, a fresh one %u and %u",
			with_old.fds - before.fds, with_old.maps - before.maps,
			with_both.fds - with_old.fds, with_both.maps - with_old.maps);
	close_both(&fresh);
	dmasync_disconnect(fresh.ds);
}

int chaos_client_run(struct chaos_board *board, uint32_t number, uint32_t seed, const char *socket)
{
	struct chaos_client client = {
		.board = board,
		.slot = &board->slots[number],
		.manner = (enum manner)(number % MANNERS),
		.socket = socket,
		.seed = {(unsigned short)number, (unsigned short)seed, 0x330e},
		.mark = (uint64_t)seed << 40,
	};
	struct held before = held(), after;
	bool good = open_all(&client);

	while (good && !atomic_load(&board->stop))
		good = turn(&client);
	if (good && drain(&client) && (!is_fallback(&client) || return_to_daemon(&client)))
		compare_with_fresh(&client, before);
	if (client.ds) {
		close_both(&client);
		dmasync_disconnect(client.ds);
	}
	after = held();
	if (after.fds != before.fds || after.maps != before.maps)
		problem(&client, &client.slot->failed, "%u fds and %u shared maps are left over",
			after.fds - before.fds, after.maps - before.maps);
	return client.slot->problem[0] ? 1 : 0;
}
