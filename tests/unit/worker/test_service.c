/* SPDX-License-Identifier: MIT */
/*
 * What a worker owes its clients and the control thread: turns, sleep and wake-up, requests
 * answered when the last batch has let go, damage kept to the queue that did it. Order and counts,
 * no times.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fixture.h"

#include "daemon/clock.h"
#include "daemon/guard.h"

static struct fixture fixture;
static sem_t at_line, go_on; /* the worker waits before a marked line */
static uintptr_t marked;

#define HANDLE (fixture.buffer.handle)
#define BASE (fixture.buffer.cache.base)
#define OTHER_CLIENT ((struct client *)(uintptr_t)0x2000)

static void wait_at_mark(uintptr_t address)
{
	if (address != marked)
		return;
	sem_post(&at_line);
	sem_wait(&go_on);
}

static int start_with(uint32_t spin_us, uint32_t slice_lines)
{
	sem_init(&at_line, 0, 0);
	sem_init(&go_on, 0, 0);
	fixture_start(&fixture, spin_us, slice_lines, -1);
	marked = 0;
	trace.hook = wait_at_mark;
	return 0;
}

static int start(void **state)
{
	(void)state;
	return start_with(50, 256);
}

static int start_sleepy(void **state)
{
	(void)state;
	return start_with(0, 256);
}

static int stop(void **state)
{
	(void)state;
	fixture_stop(&fixture);
	return 0;
}

static struct dmasync_unit clean(uint64_t offset, uint32_t length)
{
	return entry(HANDLE, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, offset, length);
}

static void submit_clean(struct client_queue *queue, uint64_t offset, uint32_t length)
{
	struct dmasync_unit unit = clean(offset, length);

	submit_units(queue, &unit, 1, offset);
}

/* ---- slices ---- */

static void a_large_batch_lets_a_small_one_through(void **state)
{
	(void)state;
	struct client_queue second;
	struct dmasync_ring_completion completion;
	size_t small = 0;

	queue_open(&fixture, &second, 8, 64, OTHER_CLIENT);
	marked = BASE; /* hold the large batch at its first line until the small one is there */
	submit_clean(&fixture.first, 0, 64 * 10000);
	sem_wait(&at_line);
	submit_clean(&second, 2 << 20, 64);
	sem_post(&go_on);

	reap(&second, &completion);
	assert_int_equal(completion.lines, 1);
	assert_true(completion.flags & DMASYNC_COMPLETION_MIXED);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.lines, 10000);

	while (trace.event[small].address != BASE + (2 << 20))
		small++;
	/* One slice of the large one was issued before: at most 256 lines and its fence. */
	assert_true(small <= 256 + 2);
	assert_int_equal(trace.event[small + 1].kind, TRACE_COMPLETE);
	queue_release(&fixture, &second);
}

/* ---- sleeping and waking ---- */

static void no_doorbell_is_lost(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;

	for (uint64_t i = 0; i < rounds(20000); i++) {
		trace.count = 0;
		submit_clean(&fixture.first, 64, 64);
		reap(&fixture.first, &completion);
		assert_int_equal(completion.status, 0);
	}
	assert_true(atomic_load(&worker_stats(fixture.worker)->sleeps) > 0);
}

static void no_notification_is_lost(void **state)
{
	(void)state;
	uint32_t *flag = &fixture.first.ring.header->client_sleeping;
	int fd = fixture.first.fds[DMASYNC_QUEUE_NOTIFICATION];
	struct dmasync_ring_completion completion;
	uint64_t slept = 0;

	for (uint64_t i = 0; i < rounds(20000); i++) {
		trace.count = 0;
		submit_clean(&fixture.first, 64, 64);
		while (!try_reap(&fixture.first, &completion)) {
			struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
			char bytes[16];

			dmasync_ring_announce_sleep(flag);
			if (!try_reap(&fixture.first, &completion)) {
				assert_int_equal(poll(&poll_fd, 1, 10000), 1);
				assert_true(read(fd, bytes, sizeof bytes) > 0);
				slept++;
			} else {
				dmasync_ring_announce_awake(flag);
				break;
			}
		}
	}
	assert_true(slept > 0);
}

/* ---- requests that must wait ---- */

static void removal_of_a_buffer_waits_for_fetched_batches_only(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	struct worker_command *grace = command_new(WORKER_BUFFER_GRACE);

	marked = BASE + 64 * 300; /* in the second slice */
	submit_clean(&fixture.first, 0, 64 * 1000);
	sem_wait(&at_line);
	atomic_store(&fixture.slot[0], NULL); /* what BUFFER_REMOVE does first */
	grace->client = CLIENT;
	worker_post(fixture.worker, grace);
	submit_clean(&fixture.first, 0, 64); /* comes too late */
	assert_false(event_is_there(&fixture, WORKER_BUFFER_GRACE));
	sem_post(&go_on);

	assert_ptr_equal(await_event(&fixture, WORKER_BUFFER_GRACE), grace);
	/* The answer comes after the last line that used the buffer. */
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
	assert_int_equal(completion.lines, 1000);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, -ENOENT);
	assert_int_equal(completion.reason, DMASYNC_REASON_UNKNOWN_BUFFER);
	assert_int_equal(completion.bad_entry, 0);
	free(grace);
}

static void another_clients_batch_holds_up_no_removal(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;

	marked = BASE + 64 * 300;
	submit_clean(&fixture.first, 0, 64 * 1000);
	sem_wait(&at_line);
	struct worker_command *grace = command_new(WORKER_BUFFER_GRACE);

	grace->client = OTHER_CLIENT;
	worker_post(fixture.worker, grace);
	marked = BASE + 64 * 600; /* the worker handles it between slices and stops again */
	sem_post(&go_on);
	sem_wait(&at_line);
	free(await_event(&fixture, WORKER_BUFFER_GRACE));
	assert_false(try_reap(&fixture.first, &completion));
	sem_post(&go_on);
	reap(&fixture.first, &completion);
}

/* Those of one client wait for its batches, each for those before it, and for nobody else's. */
static void removals_are_answered_oldest_first(void **state)
{
	(void)state;
	enum { COUNT = 20 };
	struct worker_command *graces[COUNT], *other = command_new(WORKER_BUFFER_GRACE);
	struct dmasync_ring_completion completion;
	struct client_queue second;

	queue_open(&fixture, &second, 8, 64, OTHER_CLIENT);
	marked = BASE + 64 * 300;
	submit_clean(&fixture.first, 0, 64 * 1000);
	sem_wait(&at_line);
	for (int i = 0; i < COUNT; i++) {
		graces[i] = command_new(WORKER_BUFFER_GRACE);
		graces[i]->client = CLIENT;
		worker_post(fixture.worker, graces[i]);
	}
	other->client = OTHER_CLIENT;
	worker_post(fixture.worker, other);
	marked = BASE + 64 * 900; /* the worker handles them between slices and stops again */
	sem_post(&go_on);
	sem_wait(&at_line);
	assert_ptr_equal(await_event(&fixture, WORKER_BUFFER_GRACE), other);
	assert_false(event_is_there(&fixture, WORKER_BUFFER_GRACE));
	sem_post(&go_on);
	for (int i = 0; i < COUNT; i++) {
		assert_ptr_equal(await_event(&fixture, WORKER_BUFFER_GRACE), graces[i]);
		free(graces[i]);
	}
	reap(&fixture.first, &completion);
	free(other);
	queue_release(&fixture, &second);
}

static void a_client_that_goes_away_is_stopped_in_mid_batch(void **state)
{
	(void)state;
	struct client_queue second;
	struct dmasync_ring_completion completion;

	queue_open(&fixture, &second, 8, 64, OTHER_CLIENT);
	marked = BASE + 64 * 300;
	submit_clean(&second, 0, 64 * 10000);
	sem_wait(&at_line);
	struct worker_command *stop_client = command_new(WORKER_CLIENT_STOP);

	stop_client->client = OTHER_CLIENT;
	worker_post(fixture.worker, stop_client);
	sem_post(&go_on);
	free(await_event(&fixture, WORKER_CLIENT_STOP));
	assert_false(try_reap(&second, &completion));
	assert_true(trace.count < 2000); /* two slices of 10000 lines at most, and fences */
	queue_free(second.queue);
	queue_close_ends(&second);

	size_t before = trace.count;

	submit_clean(&fixture.first, 0, 64); /* the other client's queue goes on */
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
	assert_int_equal(trace.count, before + 3);
	assert_int_equal(worker_queue_count(fixture.worker), 1);
}

static void stopping_drains_what_was_submitted(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	struct worker_command *command = command_new(WORKER_STOP);

	marked = BASE;
	for (uint64_t i = 0; i < 8; i++)
		submit_clean(&fixture.first, i * 65536, 65536);
	sem_wait(&at_line);
	worker_post(fixture.worker, command);
	sem_post(&go_on);
	free(await_event(&fixture, WORKER_STOP));
	for (uint64_t i = 0; i < 8; i++) {
		assert_true(try_reap(&fixture.first, &completion));
		assert_int_equal(completion.status, 0);
		assert_int_equal(completion.user_data, i * 65536);
	}
	helpers_free(fixture.helpers, 1000);
	worker_join(fixture.worker);
	queue_free(fixture.first.queue);
	queue_close_ends(&fixture.first);
	close(fixture.events_fd);
	munmap((void *)BASE, BUFFER_SIZE);
	free(trace.event);
	trace.event = NULL;
}

/* ---- clients that break the rules ---- */

static void a_seq_of_another_lap_ends_that_queue_alone(void **state)
{
	(void)state;
	struct client_queue second;
	struct dmasync_ring_completion completion;
	static const uint32_t bad[] = {1, 8, 16, 0x80000000u, (uint32_t)-1, (uint32_t)-9};

	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		queue_open(&fixture, &second, 8, 64, OTHER_CLIENT);
		__atomic_store_n(&second.ring.submissions[second.submitted & 7].seq,
				 second.submitted + bad[i], __ATOMIC_RELEASE);
		ring_if_asleep(&second);

		struct worker_command *event = await_event(&fixture, WORKER_QUEUE_BROKEN);

		assert_ptr_equal(event->queue, second.queue);
		assert_ptr_equal(event->client, OTHER_CLIENT);
		assert_non_null(event->text);
		queue_release(&fixture, &second);
		submit_clean(&fixture.first, 0, 64);
		reap(&fixture.first, &completion);
		assert_int_equal(completion.status, 0);
	}
}

static void a_lying_completion_index_ends_that_queue(void **state)
{
	(void)state;
	static const uint32_t lies[] = {8 + 1, (uint32_t)-1, 0x80000000u};

	for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
		struct client_queue second;
		struct dmasync_ring_completion completion;

		queue_open(&fixture, &second, 8, 64, OTHER_CLIENT);
		for (uint32_t k = 0; k < 8; k++) {
			submit_clean(&second, 0, 64);
			while (dmasync_ring_poll_completion(&second.ring, second.reaped + k,
							    &completion) == DMASYNC_RING_EMPTY)
				;
		}
		/* The index is looked at only when the ring seems full: the ninth batch does it. */
		dmasync_ring_consume_completion(&second.ring, second.reaped + lies[i]);
		submit_clean(&second, 0, 64);
		struct worker_command *event = await_event(&fixture, WORKER_QUEUE_BROKEN);

		assert_ptr_equal(event->queue, second.queue);
		queue_release(&fixture, &second);
	}
}

static void a_client_that_does_not_read_stalls_itself_alone(void **state)
{
	(void)state;
	struct client_queue second;
	struct dmasync_ring_completion completion;

	queue_open(&fixture, &second, 2, 64, OTHER_CLIENT);
	submit_clean(&second, 0, 64);
	submit_clean(&second, 0, 64);
	while (dmasync_ring_poll_completion(&second.ring, second.reaped + 1, &completion) !=
	       DMASYNC_RING_READY)
		;
	submit_clean(&second, 0, 64); /* one more than there is room for */
	for (uint32_t k = 0; k < 10; k++) {
		submit_clean(&fixture.first, 0, 64);
		reap(&fixture.first, &completion);
	}
	/* Its first slot still holds the first result. */
	assert_int_equal(dmasync_ring_poll_completion(&second.ring, second.reaped, &completion),
			 DMASYNC_RING_READY);
	queue_release(&fixture, &second);
}

static void submission_fields_are_checked(void **state)
{
	(void)state;
	static const struct {
		struct dmasync_submission submission;
		enum dmasync_reason reason;
		int error;
	} cases[] = {
		{{.flags = 1}, DMASYNC_REASON_BAD_FLAGS, -EINVAL},
		{{.deadline_us = 1}, DMASYNC_REASON_RESERVED_BITS, -EINVAL},
		{{.reserved = {0, 1}}, DMASYNC_REASON_RESERVED_BITS, -EINVAL},
		{{.unit_count = 4097}, DMASYNC_REASON_TOO_MANY_UNITS, -EMSGSIZE},
		{{.unit_count = UINT32_MAX}, DMASYNC_REASON_TOO_MANY_UNITS, -EMSGSIZE},
		{{.unit_count = 0}, DMASYNC_REASON_EMPTY_BATCH, -EINVAL},
		{{.unit_count = 1, .entry = {.length = 1}}, DMASYNC_REASON_RESERVED_BITS, -EINVAL},
		{{.entry = {.word = 1u << 24}}, DMASYNC_REASON_BAD_SYNC, -EINVAL},
		{{.entry = {.word = 5u << 24 | 1u << 28}}, DMASYNC_REASON_TRUNCATED_ENTRY, -EINVAL},
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct dmasync_ring_completion completion;

		dmasync_ring_submit(&fixture.first.ring, fixture.first.submitted++,
				    &cases[i].submission);
		ring_if_asleep(&fixture.first);
		reap(&fixture.first, &completion);
		assert_int_equal(completion.reason, cases[i].reason);
		assert_int_equal(completion.status, cases[i].error);
	}
	assert_int_equal(trace.count, 0);
}

static void impossible_times_are_kept_out_of_the_histograms(void **state)
{
	(void)state;
	const struct worker_stats *stats = worker_stats(fixture.worker);
	/* The last one lies before the queue was made. */
	uint64_t times[] = {UINT64_MAX, clock_ns() + UINT64_C(1000000000000), 1};
	struct dmasync_ring_completion completion;

	for (size_t i = 0; i < 3; i++) {
		struct dmasync_submission submission = {
			.submit_ns = times[i],
			.entry = clean(0, 64),
		};

		dmasync_ring_submit(&fixture.first.ring, fixture.first.submitted++, &submission);
		ring_if_asleep(&fixture.first);
		reap(&fixture.first, &completion);
		assert_int_equal(completion.status, 0);
		assert_true(completion.flags & DMASYNC_COMPLETION_SUSPECT_TIME);
		assert_int_equal(completion.queued_ns, 0);
	}
	post_and_wait(&fixture, WORKER_BUFFER_GRACE, NULL, CLIENT); /* all of it is counted */
	assert_int_equal(stats->suspect_times, 3);
	assert_int_equal(stats->phase[DMASYNC_PHASE_QUEUED].count, 0);
	assert_int_equal(stats->phase[DMASYNC_PHASE_TOTAL].count, 0);
	assert_int_equal(stats->phase[DMASYNC_PHASE_ISSUE].count, 3);
}

/* ---- faults, SYNC messages, the kernel backend ---- */

static void touch_line(uintptr_t address)
{
	(void)*(volatile char *)address;
}

static void a_fault_ends_the_batch_and_names_the_client(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	struct client_queue second;
	int fd = memfd_create("truncated", MFD_CLOEXEC);

	assert_int_equal(ftruncate(fd, 8192), 0);
	void *memory = mmap(NULL, 8192, PROT_READ, MAP_SHARED, fd, 0);

	assert_ptr_not_equal(memory, MAP_FAILED);
	struct buffer truncated = fixture.buffer;

	truncated.cache.base = (uintptr_t)memory;
	truncated.cache.size = 8192;
	truncated.handle = 1u << BUFFER_INDEX_BITS | 1;
	atomic_store(&fixture.slot[1], &truncated);
	assert_int_equal(ftruncate(fd, 4096), 0);

	/* Again here: cmocka puts its own handlers in place before each test. */
	assert_int_equal(guard_install(), 0);
	trace.hook = touch_line;
	queue_open(&fixture, &second, 8, 64, OTHER_CLIENT);
	struct dmasync_unit unit =
		entry(truncated.handle, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, 8192);

	submit_units(&second, &unit, 1, 3);
	struct worker_command *event = await_event(&fixture, WORKER_FAULT);

	assert_ptr_equal(event->client, OTHER_CLIENT);
	reap(&second, &completion);
	assert_int_equal(completion.status, -EFAULT);
	assert_int_equal(completion.reason, DMASYNC_REASON_FAULT);
	submit_clean(&fixture.first, 0, 64);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
	queue_release(&fixture, &second);
	atomic_store(&fixture.slot[1], NULL);
	munmap(memory, 8192);
	close(fd);
}

static void a_batch_in_a_message(void **state)
{
	(void)state;
	union cache_unit units[4] = {
		{.entry = clean(0, 128)},
		{.entry = clean(1024, 64)},
		{.entry = clean(4096, 0)},
	};
	struct worker_command *command = command_new(WORKER_SYNC);

	command->client = CLIENT;
	command->buffers = &fixture.table;
	command->owner = &fixture.owner;
	command->user_data = 77;
	command->submit_ns = clock_ns();
	command->units = units;
	command->units_size = 4;
	command->count = 3;
	worker_post(fixture.worker, command);
	assert_ptr_equal(await_event(&fixture, WORKER_SYNC), command);
	assert_int_equal(command->result.status, 0);
	assert_int_equal(command->result.user_data, 77);
	assert_int_equal(command->result.entries, 3);
	assert_int_equal(command->result.elided, 1);
	assert_int_equal(command->result.lines, 3);
	assert_int_equal(trace.count, 5);

	command->count = 0;
	worker_post(fixture.worker, command);
	await_event(&fixture, WORKER_SYNC);
	assert_int_equal(command->result.reason, DMASYNC_REASON_EMPTY_BATCH);
	assert_int_equal(command->result.status, -EINVAL);
	assert_int_equal(trace.count, 5);
	free(command);
}

static void a_kernel_sync_that_fails_fails_the_batch(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	struct buffer no_dmabuf = fixture.buffer;

	no_dmabuf.cache.backend = DMASYNC_BACKEND_KERNEL;
	no_dmabuf.handle = 1u << BUFFER_INDEX_BITS | 1;
	no_dmabuf.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	atomic_store(&fixture.slot[1], &no_dmabuf);

	struct dmasync_unit unit =
		entry(no_dmabuf.handle, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0, 4096);

	submit_units(&fixture.first, &unit, 1, 3);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, -ENOTTY);
	assert_int_equal(completion.reason, DMASYNC_REASON_KERNEL_SYNC);
	assert_int_equal(trace.count, 2); /* fence and barrier, no line of ours */
	close(no_dmabuf.fd);
	atomic_store(&fixture.slot[1], NULL);

	/* include/uapi/linux/dma-buf.h: READ 1, WRITE 2, START 0, END 4. */
	assert_int_equal(kernel_sync_flags(DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE), 1);
	assert_int_equal(kernel_sync_flags(DMASYNC_FOR_CPU, DMASYNC_BIDIRECTIONAL), 3);
	assert_int_equal(kernel_sync_flags(DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE), 6);
}

/* A CPU without line operations, as 32-bit Arm: the kernel backend alone, no fence, no barrier. */
static void without_line_operations(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;

	fixture.cache = (struct cache){0};
	fixture.buffer.cache.backend = DMASYNC_BACKEND_KERNEL;
	fixture.buffer.fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	submit_clean(&fixture.first, 0, 4096);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, -ENOTTY); /* it came as far as the ioctl */

	struct dmasync_unit unit = entry(HANDLE, DMASYNC_FOR_CPU, DMASYNC_TO_DEVICE, 0, 4096);

	submit_units(&fixture.first, &unit, 1, 1);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
	assert_int_equal(completion.elided, 1);
	assert_int_equal(completion.bytes, 0);
	assert_int_equal(trace.count, 0);
	close(fixture.buffer.fd);
}

static void coherent_buffers_are_elided(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;

	fixture.buffer.cache.backend = DMASYNC_BACKEND_NONE;
	submit_clean(&fixture.first, 0, 4096);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.elided, 1);
	assert_int_equal(completion.lines, 0);
	assert_int_equal(trace.count, 2); /* fence and barrier are kept */
}

static void lines_of_a_batch_are_limited(void **state)
{
	(void)state;
	struct dmasync_ring_completion completion;
	struct worker_command *tune = command_new(WORKER_TUNE);

	tune->spin_us = 50;
	tune->slice_lines = 256;
	tune->max_batch_lines = 100;
	worker_post(fixture.worker, tune);
	free(await_event(&fixture, WORKER_TUNE));
	submit_clean(&fixture.first, 0, 64 * 100);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, 0);
	submit_clean(&fixture.first, 1, 64 * 100);
	reap(&fixture.first, &completion);
	assert_int_equal(completion.status, -E2BIG);
	assert_int_equal(completion.reason, DMASYNC_REASON_TOO_MANY_LINES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, start, stop)
		CASE(a_large_batch_lets_a_small_one_through),
		CASE(no_doorbell_is_lost),
		cmocka_unit_test_setup_teardown(no_doorbell_is_lost, start_sleepy, stop),
		CASE(no_notification_is_lost),
		cmocka_unit_test_setup_teardown(no_notification_is_lost, start_sleepy, stop),
		CASE(removal_of_a_buffer_waits_for_fetched_batches_only),
		CASE(another_clients_batch_holds_up_no_removal),
		CASE(removals_are_answered_oldest_first),
		CASE(a_client_that_goes_away_is_stopped_in_mid_batch),
		cmocka_unit_test_setup(stopping_drains_what_was_submitted, start),
		CASE(a_seq_of_another_lap_ends_that_queue_alone),
		CASE(a_lying_completion_index_ends_that_queue),
		CASE(a_client_that_does_not_read_stalls_itself_alone),
		CASE(submission_fields_are_checked),
		CASE(impossible_times_are_kept_out_of_the_histograms),
		CASE(a_fault_ends_the_batch_and_names_the_client),
		CASE(a_batch_in_a_message),
		CASE(a_kernel_sync_that_fails_fails_the_batch),
		CASE(without_line_operations),
		CASE(coherent_buffers_are_elided),
		CASE(lines_of_a_batch_are_limited),
	};

	return cmocka_run_group_tests_name("worker-service", tests, NULL, NULL);
}
