/* SPDX-License-Identifier: MIT */
/*
 * Queues through a whole daemon: order, fullness, the wrap of the positions, many clients at once,
 * large work beside small. Parent and forked clients, one thread each.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/e2e/support.h"

enum { PAGE = 4096 };

static struct harness_daemon server;

static const struct range one_line = {DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, LINE, 0, 0};

/* Submits while there is room, reads when there is none; every completion in its turn. */
static void run_in_order(struct client *client, struct dmasync_buffer *buffer, uint64_t batches)
{
	struct dmasync_completion done;
	uint64_t submitted = 0, completed = 0;

	while (completed < batches) {
		struct dmasync_batch *batch;
		int r = submitted < batches ? dmasync_batch_begin(client->queue, &batch) : -EAGAIN;

		if (r == 0) {
			struct range range = one_line;

			range.offset = submitted % (PAGE / LINE) * LINE;
			check_int(dmasync_batch_add(batch, buffer, range.sync, range.direction,
						    range.offset, range.length),
				  0);
			check_int(dmasync_batch_submit(batch, submitted++), 0);
			continue;
		}
		check_int(r, -EAGAIN);
		client_wait(client, &done);
		check_int(done.status, 0);
		check_int(done.user_data, completed++);
	}
	check_int(dmasync_peek(client->queue, &done), 0);
	check_int(dmasync_wait(client->queue, &done, 0), -ENODATA);
}

static void completions_come_in_order(void)
{
	struct client client;
	struct memory memory;

	harness_daemon_start(&server, SIMULATED_CONFIG, NULL);
	client_open(&client, server.socket, 16, 16);
	memory_alloc(&memory, client.ds, PAGE);
	run_in_order(&client, memory.buffer, rounds(20000));
	memory_free(&memory);
	client_close(&client);
	harness_daemon_stop(&server);
}

/* Neither side ever spins: every batch is a wake-up of the worker and one of the client. */
static void batches_between_sleepers(void)
{
	static const char *const options[] = {"--spin-us", "0", NULL};
	struct dmasync_queue_params params;
	struct client client;
	struct memory memory;

	harness_daemon_start(&server, SIMULATED_CONFIG, options);
	client_connect(&client, server.socket);
	dmasync_queue_params_init(&params);
	params.depth = 2;
	params.units = 2;
	params.spin_us = 0;
	check_int(dmasync_queue_create(client.ds, &params, &client.queue), 0);
	memory_alloc(&memory, client.ds, PAGE);
	run_in_order(&client, memory.buffer, rounds(2000));
	memory_free(&memory);
	client_close(&client);
	harness_daemon_stop(&server);
}

/* Positions start 256 below 2^32; five units a batch in a ring of eight also wrap inside. */
static void batches_span_the_wrap(void)
{
	enum { RANGES = 5 };
	struct stripes stripes;
	struct client client;
	struct memory memory;
	struct range ranges[RANGES];
	struct dmasync_completion done;

	harness_daemon_start(&server, SIMULATED_CONFIG, NULL);
	client_open(&client, server.socket, 2, 8);
	memory_alloc(&memory, client.ds, PAGE);
	stripes_begin(&stripes, PAGE);
	for (uint64_t i = 0; i < 300 + rounds(1700); i++) {
		stripe(&stripes, memory.cpu);
		for (uint64_t k = 0; k < RANGES; k++) {
			ranges[k] = one_line;
			ranges[k].offset = (i * RANGES + 2 * k) % (PAGE / LINE) * LINE;
			stripes_expect(&stripes, &ranges[k]);
		}
		client_run(&client, memory.buffer, ranges, RANGES, &done);
		stripes_check(&stripes, memory.device, &ranges[0]);
	}
	stripes_end(&stripes);
	memory_free(&memory);
	client_close(&client);
	harness_daemon_stop(&server);
}

static void a_full_ring_says_so(void)
{
	enum { DEPTH = 4, UNITS = 8 };
	struct client client;
	struct memory memory;
	struct dmasync_batch *batch, *second;
	struct dmasync_completion done;

	harness_daemon_start(&server, SIMULATED_CONFIG, NULL);
	client_open(&client, server.socket, DEPTH, UNITS);
	memory_alloc(&memory, client.ds, PAGE);

	/* Unread completions hold their slots, whether done or not. */
	for (uint64_t i = 0; i < DEPTH; i++)
		client_submit(&client, memory.buffer, &one_line, 1, i);
	check_int(dmasync_batch_begin(client.queue, &batch), -EAGAIN);
	client_wait(&client, &done);
	check_int(done.user_data, 0);
	check_int(dmasync_batch_begin(client.queue, &batch), 0);
	check_int(dmasync_batch_begin(client.queue, &second), -EBUSY);
	dmasync_batch_abort(batch);
	for (uint64_t i = 1; i < DEPTH; i++) {
		client_wait(&client, &done);
		check_int(done.user_data, i);
	}

	/* More units than the ring has can never be; more than are free now can later. */
	check_int(dmasync_batch_begin(client.queue, &batch), 0);
	for (int i = 0; i < UNITS; i++)
		check_int(dmasync_batch_add(batch, memory.buffer, one_line.sync, one_line.direction,
					    0, LINE),
			  0);
	check_int(
		dmasync_batch_add(batch, memory.buffer, one_line.sync, one_line.direction, 0, LINE),
		-EMSGSIZE);
	check_int(dmasync_batch_submit(batch, 0), -EMSGSIZE);

	struct range ranges[UNITS - 1];

	for (int i = 0; i < UNITS - 1; i++)
		ranges[i] = one_line;
	client_submit(&client, memory.buffer, ranges, UNITS - 1, 10);
	check_int(dmasync_batch_begin(client.queue, &batch), 0);
	check_int(
		dmasync_batch_add(batch, memory.buffer, one_line.sync, one_line.direction, 0, LINE),
		0);
	check_int(
		dmasync_batch_add(batch, memory.buffer, one_line.sync, one_line.direction, 0, LINE),
		-EAGAIN);
	check_int(dmasync_batch_submit(batch, 0), -EAGAIN);
	client_wait(&client, &done);
	check_int(done.user_data, 10);
	client_run(&client, memory.buffer, ranges, UNITS - 1, &done);
	memory_free(&memory);
	client_close(&client);
	harness_daemon_stop(&server);
}

/* The rest of a client's completions wait while dmasync_sync() looks for its own. */
static void sync_keeps_other_completions(void)
{
	struct client client;
	struct memory memory;
	struct dmasync_completion done;

	harness_daemon_start(&server, SIMULATED_CONFIG, NULL);
	client_open(&client, server.socket, 8, 8);
	memory_alloc(&memory, client.ds, PAGE);
	for (uint64_t round = rounds(100); round > 0; round--) {
		for (uint64_t i = 0; i < 5; i++)
			client_submit(&client, memory.buffer, &one_line, 1, i);
		check_int(dmasync_sync(client.queue, memory.buffer, DMASYNC_FOR_DEVICE,
				       DMASYNC_TO_DEVICE, 0, PAGE),
			  0);
		for (uint64_t i = 0; i < 5; i++) {
			check_int(dmasync_peek(client.queue, &done), 1);
			check_int(done.user_data, i);
		}
		check_int(dmasync_peek(client.queue, &done), 0);
	}
	memory_free(&memory);
	client_close(&client);
	harness_daemon_stop(&server);
}

/* A client's work of many shapes, its content checked; in a process of its own. */
static void run_client(int number)
{
	enum { SIZE = 65536 };
	unsigned short seed[3] = {7, 8, (unsigned short)number};
	struct stripes stripes;
	struct client client;
	struct memory memory;
	struct dmasync_completion done;

	client_open(&client, server.socket, 8, 64);
	memory_alloc(&memory, client.ds, SIZE);
	stripes_begin(&stripes, SIZE);
	for (uint64_t round = rounds(400); round > 0; round--) {
		struct range ranges[8];

		stripe(&stripes, memory.cpu);
		for (int i = 0; i < 8; i++) {
			ranges[i] = one_line;
			ranges[i].length = (uint64_t)nrand48(seed) % 500;
			ranges[i].rows = 1 + (uint64_t)nrand48(seed) % 8;
			ranges[i].stride = ranges[i].length + (uint64_t)nrand48(seed) % 500;
			ranges[i].offset = (uint64_t)nrand48(seed) % (SIZE - 8000);
			stripes_expect(&stripes, &ranges[i]);
		}
		client_run(&client, memory.buffer, ranges, 8, &done);
		stripes_check(&stripes, memory.device, &ranges[0]);
	}
	run_in_order(&client, memory.buffer, rounds(500));
	stripes_end(&stripes);
	memory_free(&memory);
	client_close(&client);
}

static void run_clients(const char *const *options)
{
	enum { CLIENTS = 16 };
	pid_t clients[CLIENTS];
	struct holdings before;

	harness_daemon_start(&server, SIMULATED_CONFIG, options);
	before = holdings_of(&server);
	for (int i = 0; i < CLIENTS; i++) {
		clients[i] = fork();
		check(clients[i] >= 0);
		if (clients[i] == 0) {
			run_client(i);
			_exit(0);
		}
	}
	for (int i = 0; i < CLIENTS; i++) {
		int status;

		check_int(waitpid(clients[i], &status, 0), clients[i]);
		check_int(status, 0);
	}
	holdings_await(&server, &before);
	harness_daemon_stop(&server);
}

static void many_clients_at_once(void)
{
	run_clients(NULL);
}

/* More workers than some machines have CPUs for. */
static void many_clients_of_several_workers(void)
{
	static const char *const options[] = {"--workers", "3", NULL};

	run_clients(options);
}

static void several_queues_of_one_client(void)
{
	enum { QUEUES = 8 };
	struct dmasync_queue_params params;
	struct dmasync_queue *queues[QUEUES];
	struct client connection;
	struct memory memory;
	struct holdings before;

	harness_daemon_start(&server, SIMULATED_CONFIG, NULL);
	before = holdings_of(&server);
	client_connect(&connection, server.socket);
	memory_alloc(&memory, connection.ds, PAGE);
	dmasync_queue_params_init(&params);
	params.depth = 4;
	params.units = 4;
	for (int i = 0; i < QUEUES; i++)
		check_int(dmasync_queue_create(connection.ds, &params, &queues[i]), 0);
	for (uint64_t n = 0; n < rounds(500); n++) {
		for (int i = 0; i < QUEUES; i++) {
			struct client client = {.ds = connection.ds, .queue = queues[i]};

			client_submit(&client, memory.buffer, &one_line, 1,
				      n * QUEUES + (uint64_t)i);
		}
		/* The other way round than submitted. */
		for (int i = QUEUES - 1; i >= 0; i--) {
			struct client client = {.ds = connection.ds, .queue = queues[i]};
			struct dmasync_completion done;

			client_wait(&client, &done);
			check_int(done.status, 0);
			check_int(done.user_data, n * QUEUES + (uint64_t)i);
		}
	}
	for (int i = 0; i < QUEUES; i++)
		dmasync_queue_destroy(queues[i]);
	memory_free(&memory);
	dmasync_disconnect(connection.ds);
	holdings_await(&server, &before);
	harness_daemon_stop(&server);
}

/* Of its own last batch: others' are not for everybody. */
static void last_record(struct raw *raw, struct dmasync_batch_record *ret)
{
	struct dmasync_batches request = {.count = 1};
	struct {
		struct dmasync_batches_reply reply;
		struct dmasync_batch_record record;
	} reply;

	raw_call(raw, &request, DMASYNC_OP_BATCHES, sizeof request, &reply, sizeof reply);
	check_int(reply.reply.count, 1);
	*ret = reply.record;
}

/*
 * Both batches are in their rings before the worker wakes up, the large one first: the small one
 * ends first all the same, after one slice of the other. By order, not by time.
 */
static void a_small_batch_passes_a_large_one(void)
{
	enum { LARGE = 4 << 20, SLICE = 64 };
	static const char *const options[] = {"--slice-lines", "64", NULL};
	struct raw bulk, urgent;
	struct raw_memory large, small;
	struct raw_queue bulk_queue, urgent_queue;
	struct dmasync_ring_completion done;
	struct dmasync_batch_record first, last;

	harness_daemon_start(&server, SIMULATED_CONFIG, options);
	raw_open(&bulk, server.socket);
	raw_open(&urgent, server.socket);
	raw_memory_alloc(&large, &bulk, LARGE);
	raw_memory_alloc(&small, &urgent, PAGE);
	raw_queue_open(&bulk_queue, &bulk, 2, 2);
	raw_queue_open(&urgent_queue, &urgent, 2, 2);

	struct dmasync_unit whole =
		raw_unit(large.handle, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, LARGE);
	struct dmasync_unit line =
		raw_unit(small.handle, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, LINE);

	memset(large.cpu, 1, LARGE);
	raw_await_sleep(&bulk_queue);
	raw_submit(&bulk_queue, &whole, 1, 1);
	raw_submit(&urgent_queue, &line, 1, 2);
	raw_ring_bell(&bulk_queue);
	raw_wait(&urgent_queue, &done);
	check_int(done.status, 0);
	raw_wait(&bulk_queue, &done);
	check_int(done.status, 0);
	check_int(done.lines, LARGE / LINE);
	check_int(memcmp(large.cpu, large.device, LARGE), 0);

	last_record(&urgent, &first);
	last_record(&bulk, &last);
	check(first.end_ns <= last.end_ns);

	raw_queue_close(&bulk_queue);
	raw_queue_close(&urgent_queue);
	raw_memory_free(&large);
	raw_memory_free(&small);
	raw_close(&bulk);
	raw_close(&urgent);
	harness_daemon_stop(&server);
}

/* live777 410: a buffer that goes while a batch still works on it. */
static void destroying_a_buffer_waits_for_its_batches(void)
{
	enum { SIZE = 8 << 20, ROUNDS = 10 };
	struct range whole = {DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, SIZE, 0, 0};
	struct client client;
	struct holdings before;

	harness_daemon_start(&server, SIMULATED_CONFIG, NULL);
	client_open(&client, server.socket, 4, 4);
	before = holdings_of(&server);
	for (int round = 0; round < ROUNDS; round++) {
		struct memory memory;
		struct dmasync_completion done;

		memory_alloc(&memory, client.ds, SIZE);
		memset(memory.cpu, round + 1, SIZE);
		client_submit(&client, memory.buffer, &whole, 1, 1);
		client_submit(&client, memory.buffer, &whole, 1, 2);
		memory_free(&memory);
		for (uint64_t i = 1; i <= 2; i++) {
			check_int(dmasync_peek(client.queue, &done), 1);
			check_int(done.status, 0);
			check_int(done.user_data, i);
			check_int(done.lines, SIZE / LINE);
		}
	}
	holdings_await(&server, &before);
	client_close(&client);
	harness_daemon_stop(&server);
}

static void queues_go_with_work_in_flight(void)
{
	enum { SIZE = 8 << 20, ROUNDS = 10 };
	struct range whole = {DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, SIZE, 0, 0};
	struct holdings before;
	struct memory memory;
	struct client other;

	harness_daemon_start(&server, SIMULATED_CONFIG, NULL);
	client_open(&other, server.socket, 4, 4);
	memory_alloc(&memory, other.ds, SIZE);
	before = holdings_of(&server);
	for (int round = 0; round < ROUNDS; round++) {
		struct dmasync_queue_params params;
		struct client client = {.ds = other.ds};
		struct dmasync_completion done;

		dmasync_queue_params_init(&params);
		check_int(dmasync_queue_create(other.ds, &params, &client.queue), 0);
		for (uint64_t i = 0; i < 8; i++)
			client_submit(&client, memory.buffer, &whole, 1, i);
		dmasync_queue_destroy(client.queue);
		client_run(&other, memory.buffer, &one_line, 1, &done);
	}
	holdings_await(&server, &before);
	memory_free(&memory);
	client_close(&other);
	harness_daemon_stop(&server);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(completions_come_in_order),
	HARNESS_CASE(batches_between_sleepers),
	HARNESS_CASE(batches_span_the_wrap),
	HARNESS_CASE(a_full_ring_says_so),
	HARNESS_CASE(sync_keeps_other_completions),
	HARNESS_CASE(many_clients_at_once, .timeout_s = 60),
	HARNESS_CASE(many_clients_of_several_workers, .timeout_s = 60),
	HARNESS_CASE(several_queues_of_one_client),
	HARNESS_CASE(a_small_batch_passes_a_large_one),
	HARNESS_CASE(destroying_a_buffer_waits_for_its_batches),
	HARNESS_CASE(queues_go_with_work_in_flight),
};

HARNESS_MAIN(cases)
