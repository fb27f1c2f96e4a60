/* SPDX-License-Identifier: MIT */
/*
 * Queues whose slices overran and the worker they go to, with this thread as the control thread
 * that hands them over. Counts and order, no times: a slice overruns because an operation takes 30
 * ms and faults, as on a hole that is being punched.
 */
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fixture.h"

#define HANDLE (fixture.buffer.handle)
#define BASE (fixture.buffer.cache.base)
#define SLICE 256u
#define OVERRUNS 3u
#define LINES 4000u /* of a batch: more slices than it takes to move */
#define OTHER ((struct client *)(uintptr_t)0x2000)
#define NAP_NS 30000000
#define PAGES 4096u

static struct fixture fixture;
static char *pages; /* not there yet, one for each fault */
static _Atomic uint32_t naps, faults_left;
static bool nap_without_fault;
static uint32_t hold_nap; /* in this one, if it is not 0, the worker waits */
static bool hold_last;	  /* or in the one after which its queue leaves */
static sem_t held, go_on;

/* One nap in each 256 lines of the first 2048: fewer lines than a slice has. */
static void nap(uintptr_t address)
{
	uintptr_t line = (address - BASE) / LINE;

	if (line % SLICE != 100 || atomic_load(&faults_left) == 0)
		return;
	atomic_fetch_sub(&faults_left, 1);
	if (!nap_without_fault)
		*(volatile char *)(pages + (size_t)atomic_load(&naps) * 4096) = 1;
	uint32_t n = atomic_fetch_add(&naps, 1) + 1;

	/* All that are counted so far are those of slices before this one. */
	bool last = hold_last && atomic_load(&fixture.owner.overruns) == OVERRUNS - 1;

	if (n == hold_nap || last) {
		hold_last = false;
		sem_post(&held);
		sem_wait(&go_on);
	}
	nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
}

static void start_with(uint32_t ordinary, uint64_t split_lines, uint32_t overruns_to_move)
{
	sem_init(&held, 0, 0);
	sem_init(&go_on, 0, 0);
	fixture_start_slow(&fixture, ordinary, SLICE, split_lines, overruns_to_move);
	pages = mmap(NULL, (size_t)PAGES * 4096, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_ptr_not_equal(pages, MAP_FAILED);
	madvise(pages, (size_t)PAGES * 4096, MADV_NOHUGEPAGE);
	atomic_store(&naps, 0);
	atomic_store(&faults_left, UINT32_MAX);
	nap_without_fault = false;
	hold_nap = 0;
	hold_last = false;
	trace.hook = nap;
}

static int start(void **state)
{
	(void)state;
	start_with(1, 0, OVERRUNS);
	return 0;
}

static int start_patient(void **state)
{
	(void)state;
	start_with(1, 0, 1000);
	return 0;
}

static int start_two(void **state)
{
	(void)state;
	start_with(2, 1000, OVERRUNS);
	return 0;
}

static int stop(void **state)
{
	(void)state;
	fixture_stop(&fixture);
	munmap(pages, (size_t)PAGES * 4096);
	return 0;
}

static struct worker *slow(void)
{
	return fixture.workers[fixture.worker_count - 1];
}

static void submit_lines(struct client_queue *queue, uint32_t first, uint32_t lines,
			 uint64_t user_data)
{
	struct dmasync_unit unit = entry(HANDLE, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE,
					 (uint64_t)first * LINE, lines * LINE);

	submit_units(queue, &unit, 1, user_data);
}

/* As the control thread does. */
static void hand_over(struct client_queue *queue)
{
	struct worker_command *moved = await_event(&fixture, WORKER_QUEUE_MOVED);

	assert_ptr_equal(moved, queue->queue->move);
	assert_ptr_equal(moved->queue, queue->queue);
	fixture.worker = slow();
	post_and_wait(&fixture, WORKER_QUEUE_ADD, queue->queue, queue->queue->client);
	fixture.worker = fixture.workers[0];
}

static void release_from(struct worker *worker, struct client_queue *queue)
{
	fixture.worker = worker;
	queue_release(&fixture, queue);
	fixture.worker = fixture.workers[0];
}

static uint32_t records_of(struct worker *worker, struct dmasync_batch_record *ret, uint32_t most)
{
	uint64_t cursor = 0, lost = 0;

	fixture.worker = worker;
	post_and_wait(&fixture, WORKER_BUFFER_GRACE, NULL, CLIENT);
	fixture.worker = fixture.workers[0];
	return records_read(worker_records(worker), &cursor, most, ret, &lost);
}

/* Of the thread that began last: all lines of the batch in order, between its fence and barrier. */
static void assert_issued_whole(uint32_t first, uint32_t lines)
{
	size_t open = trace.count, n = 0;
	uint32_t thread;

	while (open > 0 && trace.event[open - 1].kind != TRACE_OPEN)
		open--;
	assert_true(open > 0);
	thread = trace.event[open - 1].thread;
	for (size_t i = open; i < trace.count; i++) {
		if (trace.event[i].thread != thread)
			continue;
		if (n == lines) {
			assert_int_equal(trace.event[i].kind, TRACE_COMPLETE);
			return;
		}
		assert_int_equal(trace.event[i].kind, TRACE_CLEAN);
		assert_int_equal(trace.event[i].address, BASE + (uintptr_t)(first + n) * LINE);
		n++;
	}
	fail_msg("no barrier after %zu lines", n);
}

/* ---- moving ---- */

static void a_batch_goes_on_there_and_completes_once(void **state)
{
	struct dmasync_ring_completion completion;
	struct client_queue other;

	(void)state;
	queue_open(&fixture, &other, 8, 64, OTHER);
	submit_lines(&other, 0, LINES, 11);
	submit_lines(&other, 0, 50, 12);
	struct worker_command *moved = await_event(&fixture, WORKER_QUEUE_MOVED);

	assert_int_equal(atomic_load(&fixture.owner.overruns), OVERRUNS);
	assert_true(atomic_load(&naps) >= OVERRUNS);
	assert_false(try_reap(&other, &completion));
	assert_ptr_equal(moved->client, OTHER);
	/* Nobody has it: nothing is done. */
	size_t events = trace.count;

	submit_lines(&fixture.first, 60010, 10, 1);
	reap(&fixture.first, &completion);
	for (size_t i = events; i < trace.count; i++)
		if (trace.event[i].kind == TRACE_CLEAN)
			assert_true(trace.event[i].address >= BASE + 60010 * LINE);

	atomic_store(&faults_left, 0);
	fixture.worker = slow();
	post_and_wait(&fixture, WORKER_QUEUE_ADD, other.queue, OTHER);
	fixture.worker = fixture.workers[0];
	reap(&other, &completion);
	assert_int_equal(completion.user_data, 11);
	assert_int_equal(completion.status, 0);
	assert_int_equal(completion.lines, LINES);
	assert_true(completion.flags & DMASYNC_COMPLETION_REISSUED);
	reap(&other, &completion);
	assert_int_equal(completion.user_data, 12);
	for (uint64_t n = 13; n < 30; n++) { /* it sleeps in between: these ring */
		submit_lines(&other, 0, 50, n);
		reap(&other, &completion);
		assert_int_equal(completion.user_data, n);
	}
	assert_false(try_reap(&other, &completion));

	struct dmasync_batch_record records[64];
	uint32_t count = records_of(slow(), records, 64);

	assert_int_equal(count, 19);
	for (uint32_t i = 0; i < count; i++)
		assert_int_equal(records[i].worker, 1);
	release_from(slow(), &other);
}

static void it_is_issued_from_its_first_line(void **state)
{
	struct dmasync_ring_completion completion;
	struct client_queue other;

	(void)state;
	queue_open(&fixture, &other, 8, 64, OTHER);
	submit_lines(&other, 0, LINES, 11);
	hand_over(&other);
	reap(&other, &completion);
	/* Naps go on there: it is slow, and the batch is done all the same. */
	assert_int_equal(completion.status, 0);
	assert_issued_whole(0, LINES);
	assert_true(atomic_load(&worker_stats(slow())->slice_overruns) > 0);
	assert_false(event_is_there(&fixture, WORKER_QUEUE_MOVED));
	release_from(slow(), &other);
}

/* Batches of others wait for no line of it, however long it goes on. */
static void others_do_not_wait_for_it_any_more(void **state)
{
	struct dmasync_ring_completion completion;
	struct dmasync_batch_record records[64];
	struct client_queue other;

	(void)state;
	queue_open(&fixture, &other, 8, 64, OTHER);
	submit_lines(&other, 0, LINES, 11);
	struct worker_command *moved = await_event(&fixture, WORKER_QUEUE_MOVED);

	assert_ptr_equal(moved->queue, other.queue);
	hold_nap = atomic_load(&naps) + 1; /* and so it stands in the middle of the batch */
	fixture.worker = slow();
	post_and_wait(&fixture, WORKER_QUEUE_ADD, other.queue, OTHER);
	fixture.worker = fixture.workers[0];
	sem_wait(&held);
	for (uint32_t n = 0; n < 20; n++) {
		submit_lines(&fixture.first, 60010, 50, 100 + n);
		reap(&fixture.first, &completion);
		assert_int_equal(completion.status, 0);
		assert_int_equal(completion.workers, 0);
	}
	uint32_t count = records_of(fixture.workers[0], records, 64);

	assert_int_equal(count, 20);
	for (uint32_t i = 0; i < count; i++) {
		assert_int_equal(records[i].waited_lines, 0);
		assert_int_equal(records[i].waited_entries, 0);
	}
	assert_false(try_reap(&other, &completion));
	atomic_store(&faults_left, 0);
	sem_post(&go_on);
	reap(&other, &completion);
	release_from(slow(), &other);
}

/* Who lost his CPU, or has a slow memory, has no page faults and stays. */
static void without_faults_nothing_moves(void **state)
{
	struct dmasync_ring_completion completion;

	(void)state;
	nap_without_fault = true;
	/* What the first ones touch is there then (with a sanitizer its shadow, too). */
	for (uint64_t n = 1; n <= 5; n++) {
		trace.count = 0;
		atomic_store(&fixture.owner.overruns, 0);
		submit_lines(&fixture.first, 0, 2048, n);
		reap(&fixture.first, &completion);
		post_and_wait(&fixture, WORKER_BUFFER_GRACE, NULL, CLIENT);
		assert_true(atomic_load(&worker_stats(fixture.worker)->slice_overruns) >= 8 * n);
		if (atomic_load(&fixture.owner.overruns) == 0)
			break;
	}
	assert_int_equal(atomic_load(&fixture.owner.overruns), 0);
	assert_false(event_is_there(&fixture, WORKER_QUEUE_MOVED));
}

/* The next one of the same connection: its first overrun is one too many. */
static void another_queue_of_the_client_follows_sooner(void **state)
{
	struct dmasync_ring_completion completion;
	struct client_queue other, next;

	(void)state;
	queue_open(&fixture, &other, 8, 64, OTHER);
	queue_open(&fixture, &next, 8, 64, OTHER);
	submit_lines(&other, 0, LINES, 11);
	struct worker_command *moved = await_event(&fixture, WORKER_QUEUE_MOVED);

	assert_ptr_equal(moved->queue, other.queue);
	submit_lines(&next, 0, LINES, 21);
	moved = await_event(&fixture, WORKER_QUEUE_MOVED);
	assert_ptr_equal(moved->queue, next.queue);
	assert_int_equal(atomic_load(&fixture.owner.overruns), OVERRUNS + 1);
	atomic_store(&faults_left, 0);
	fixture.worker = slow();
	post_and_wait(&fixture, WORKER_QUEUE_ADD, other.queue, OTHER);
	post_and_wait(&fixture, WORKER_QUEUE_ADD, next.queue, OTHER);
	fixture.worker = fixture.workers[0];
	reap(&other, &completion);
	assert_int_equal(completion.user_data, 11);
	reap(&next, &completion);
	assert_int_equal(completion.user_data, 21);
	release_from(slow(), &other);
	release_from(slow(), &next);
}

static struct worker_command *sync_of(uint32_t lines, union cache_unit *unit)
{
	struct worker_command *command = command_new(WORKER_SYNC);

	unit->entry = entry(HANDLE, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, lines * LINE);
	command->client = OTHER;
	command->buffers = &fixture.table;
	command->owner = &fixture.owner;
	command->user_data = 31;
	command->units = unit;
	command->units_size = 1;
	command->count = 1;
	return command;
}

static void a_sync_message_moves_too(void **state)
{
	union cache_unit unit;
	struct worker_command *command = sync_of(LINES, &unit);

	(void)state;
	worker_post(fixture.worker, command);
	assert_ptr_equal(await_event(&fixture, WORKER_SYNC), command);
	assert_true(command->elsewhere);
	atomic_store(&faults_left, 0);
	worker_post(slow(), command);
	assert_ptr_equal(await_event(&fixture, WORKER_SYNC), command);
	assert_false(command->elsewhere);
	assert_int_equal(command->error, 0);
	assert_int_equal(command->result.status, 0);
	assert_int_equal(command->result.lines, LINES);
	assert_int_equal(command->result.user_data, 31);
	assert_issued_whole(0, LINES);
	free(command);
}

/* A helper's chunk that overran: the home worker takes the batch back, and it leaves. */
static void a_shared_batch_moves_too(void **state)
{
	struct dmasync_ring_completion completion;
	struct client_queue other;

	(void)state;
	queue_open(&fixture, &other, 8, 64, OTHER);
	submit_lines(&other, 0, 30000, 11);
	hand_over(&other);
	atomic_store(&faults_left, 0);
	reap(&other, &completion);
	assert_int_equal(completion.status, 0);
	assert_int_equal(completion.lines, 30000);
	assert_int_equal(completion.workers, 0);
	assert_issued_whole(0, 30000);
	assert_false(try_reap(&other, &completion));
	release_from(slow(), &other);
}

/* ---- ends, while a move is under way ---- */

/* Its first worker is in the slice after which it would leave. */
static void hold_before_leaving(struct client_queue *queue)
{
	queue_open(&fixture, queue, 8, 64, OTHER);
	hold_last = true;
	submit_lines(queue, 0, LINES, 11);
	sem_wait(&held);
}

static struct worker_command *post(struct worker *worker, enum worker_command_type type,
				   struct queue *queue)
{
	struct worker_command *command = command_new(type);

	command->queue = queue;
	command->client = OTHER;
	worker_post(worker, command);
	return command;
}

static void a_client_that_goes_takes_it_along(void **state)
{
	struct client_queue other;

	(void)state;
	hold_before_leaving(&other);
	struct worker_command *gone = post(fixture.worker, WORKER_CLIENT_STOP, NULL);

	sem_post(&go_on);
	assert_ptr_equal(await_event(&fixture, WORKER_CLIENT_STOP), gone);
	assert_false(event_is_there(&fixture, WORKER_QUEUE_MOVED));
	free(gone);
	queue_free(other.queue);
	queue_close_ends(&other);
}

/* The worker that ends finishes what is submitted; nobody would take it over. */
static void a_drain_keeps_it(void **state)
{
	struct dmasync_ring_completion completion;
	struct client_queue other;

	(void)state;
	hold_before_leaving(&other);
	submit_lines(&other, 0, 50, 12);
	struct worker_command *end = post(fixture.worker, WORKER_STOP, NULL);

	atomic_store(&faults_left, 0);
	sem_post(&go_on);
	assert_ptr_equal(await_event(&fixture, WORKER_STOP), end);
	assert_false(event_is_there(&fixture, WORKER_QUEUE_MOVED));
	reap(&other, &completion);
	assert_int_equal(completion.user_data, 11);
	assert_int_equal(completion.lines, LINES);
	reap(&other, &completion);
	assert_int_equal(completion.user_data, 12);
	free(end);
	queue_free(other.queue);
	queue_close_ends(&other);
	/* The fixture's own queue and worker. */
	queue_free(fixture.first.queue);
	queue_close_ends(&fixture.first);
	fixture.worker = slow();
	worker_join(fixture.workers[0]);
	fixture.workers[0] = fixture.workers[1];
	fixture.worker_count = 1;
	queue_open(&fixture, &fixture.first, 8, 64, CLIENT);
}

/* REMOVE comes when the first worker has let go of it already: it is told, and asks the other. */
static void a_removal_follows_it(void **state)
{
	struct dmasync_ring_completion completion;
	struct client_queue other;
	bool before;

	(void)state;
	for (int i = 0; i < 2; i++) {
		before = i == 0; /* or while it is still there */
		hold_before_leaving(&other);
		struct worker_command *remove = NULL;

		if (before)
			remove = post(fixture.worker, WORKER_QUEUE_REMOVE, other.queue);
		sem_post(&go_on);
		struct worker_command *moved = await_event(&fixture, WORKER_QUEUE_MOVED);

		assert_ptr_equal(moved->queue, other.queue);
		if (!remove)
			remove = post(fixture.worker, WORKER_QUEUE_REMOVE, other.queue);
		assert_ptr_equal(await_event(&fixture, WORKER_QUEUE_REMOVE), remove);
		assert_true(remove->elsewhere);
		atomic_store(&faults_left, 0);
		fixture.worker = slow();
		post_and_wait(&fixture, WORKER_QUEUE_ADD, other.queue, OTHER);
		fixture.worker = fixture.workers[0];
		worker_post(slow(), remove);
		assert_ptr_equal(await_event(&fixture, WORKER_QUEUE_REMOVE), remove);
		assert_false(remove->elsewhere);
		/* The batch in work was finished first. */
		reap(&other, &completion);
		assert_int_equal(completion.user_data, 11);
		free(remove);
		queue_free(other.queue);
		queue_close_ends(&other);
		atomic_store(&faults_left, UINT32_MAX);
		atomic_store(&fixture.owner.overruns, 0);
		atomic_store(&naps, 0);
		madvise(pages, (size_t)PAGES * 4096, MADV_DONTNEED);
	}
}

/* The slow worker waits for the batch that came with its queue, as if it had fetched it. */
static void a_grace_period_waits_for_it(void **state)
{
	struct dmasync_ring_completion completion;
	struct client_queue other;

	(void)state;
	queue_open(&fixture, &other, 8, 64, OTHER);
	submit_lines(&other, 0, LINES, 11);
	struct worker_command *moved = await_event(&fixture, WORKER_QUEUE_MOVED);

	assert_ptr_equal(moved->queue, other.queue);
	/* Its first worker has nothing of it, and says so after the move. */
	struct worker_command *grace = post(fixture.worker, WORKER_BUFFER_GRACE, NULL);

	assert_ptr_equal(await_event(&fixture, WORKER_BUFFER_GRACE), grace);
	hold_nap = atomic_load(&naps) + 1;
	fixture.worker = slow();
	post_and_wait(&fixture, WORKER_QUEUE_ADD, other.queue, OTHER);
	fixture.worker = fixture.workers[0];
	sem_wait(&held);
	worker_post(slow(), grace);
	atomic_store(&faults_left, 0);
	assert_false(event_is_there(&fixture, WORKER_BUFFER_GRACE));
	sem_post(&go_on);
	assert_ptr_equal(await_event(&fixture, WORKER_BUFFER_GRACE), grace);
	assert_true(try_reap(&other, &completion));
	assert_int_equal(completion.user_data, 11);
	free(grace);
	release_from(slow(), &other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)
		CASE(a_batch_goes_on_there_and_completes_once),
		CASE(it_is_issued_from_its_first_line),
		CASE(others_do_not_wait_for_it_any_more),
		cmocka_unit_test_setup_teardown(without_faults_nothing_moves, start_patient, stop),
		CASE(another_queue_of_the_client_follows_sooner),
		CASE(a_sync_message_moves_too),
		cmocka_unit_test_setup_teardown(a_shared_batch_moves_too, start_two, stop),
		CASE(a_client_that_goes_takes_it_along),
		CASE(a_drain_keeps_it),
		CASE(a_removal_follows_it),
		CASE(a_grace_period_waits_for_it),
	};

	return cmocka_run_group_tests_name("worker-slow", tests, NULL, NULL);
}
