/* SPDX-License-Identifier: MIT */
/*
 * A ring whose pages its client takes away: the worker faults outside of line operations, too. Each
 * fault is made to take 30 ms by userfaultfd. Skipped where there is none.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "fixture.h"

#ifndef UFFD_USER_MODE_ONLY
#define UFFD_USER_MODE_ONLY 1 /* linux/userfaultfd.h, since 5.11 */
#endif

#define HANDLE (fixture.buffer.handle)
#define OVERRUNS 3u
#define OTHER ((struct client *)(uintptr_t)0x2000)
#define PAGE 4096u
#define NAP_NS 30000000
#define BATCHES 100u

static struct fixture fixture;
static int faults_fd;
static _Alignas(PAGE) char header[PAGE]; /* as it was before it was taken away */
static _Atomic uint32_t faults;
static _Atomic bool over;

static void *bring_back(void *argument)
{
	struct uffd_msg message;

	(void)argument;
	while (!atomic_load(&over)) {
		struct pollfd fault = {.fd = faults_fd, .events = POLLIN};

		/* O_NONBLOCK: a fault may be over before it is read. */
		if (poll(&fault, 1, 10) <= 0 ||
		    read(faults_fd, &message, sizeof message) != (ssize_t)sizeof message)
			continue;
		struct uffdio_copy copy = {.dst = message.arg.pagefault.address & ~(PAGE - 1ull),
					   .src = (uintptr_t)header,
					   .len = PAGE};

		if (message.event != UFFD_EVENT_PAGEFAULT)
			continue;
		atomic_fetch_add(&faults, 1);
		nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
		ioctl(faults_fd, UFFDIO_COPY, &copy);
	}
	return NULL;
}

static bool register_page(void *page)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register range = {.range = {.start = (uintptr_t)page, .len = PAGE},
					.mode = UFFDIO_REGISTER_MODE_MISSING};

	faults_fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (faults_fd < 0)
		return false;
	if (ioctl(faults_fd, UFFDIO_API, &api) == 0 &&
	    ioctl(faults_fd, UFFDIO_REGISTER, &range) == 0)
		return true;
	close(faults_fd);
	return false;
}

/* Always rings: to look at ring_always would bring the header back before the worker finds it gone.
 */
static void submit_line(struct client_queue *queue, uint64_t user_data)
{
	struct dmasync_submission submission = {
		.user_data = user_data,
		.entry = entry(HANDLE, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, LINE),
	};

	dmasync_ring_submit(&queue->ring, queue->submitted++, &submission);
	assert_int_equal(write(queue->fds[DMASYNC_QUEUE_DOORBELL], "", 1), 1);
}

/* What faults is the look for a sleeping client, after the publish: the queue leaves without one.
 */
static void a_header_that_faults_moves_its_queue(void **state)
{
	struct dmasync_ring_completion completion;
	struct client_queue other;
	pthread_t thread;
	uint64_t n = 0, read = 0;

	(void)state;
	fixture_start_slow(&fixture, 1, 256, 0, OVERRUNS);
	queue_open(&fixture, &other, 128, 64, OTHER);
	void *page = other.queue->memory;

	memcpy(header, page, PAGE);
	if (!register_page(page)) {
		queue_release(&fixture, &other);
		fixture_stop(&fixture);
		skip();
	}
	assert_int_equal(pthread_create(&thread, NULL, bring_back, NULL), 0);
	while (!event_is_there(&fixture, WORKER_QUEUE_MOVED)) {
		assert_true(n < BATCHES); /* less than its depth: nobody reads the index */
		assert_int_equal(madvise(page, PAGE, MADV_REMOVE), 0);
		submit_line(&other, n++);
		nanosleep(&(struct timespec){.tv_nsec = 2 * NAP_NS}, NULL);
	}
	assert_true(atomic_load(&faults) >= OVERRUNS);
	struct worker_command *moved = await_event(&fixture, WORKER_QUEUE_MOVED);

	assert_ptr_equal(moved->queue, other.queue);
	fixture.worker = fixture.workers[1];
	post_and_wait(&fixture, WORKER_QUEUE_ADD, other.queue, OTHER);
	submit_line(&other, n++);
	for (; read < n; read++) {
		reap(&other, &completion);
		assert_int_equal(completion.user_data, read);
		assert_int_equal(completion.status, 0);
	}
	queue_release(&fixture, &other);
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	close(faults_fd);
	fixture.worker = fixture.workers[0];
	fixture_stop(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_header_that_faults_moves_its_queue),
	};

	return cmocka_run_group_tests_name("worker-slow-ring", tests, NULL, NULL);
}
