/* SPDX-License-Identifier: MIT */
/*
 * Helper threads: jobs come back, a client whose jobs hang takes its quota and no more, and the
 * pool can be left with a stuck job in it.
 */
#include "daemon/helper.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

struct job {
	struct helper_job job; /* first */
	int wait_fd;	       /* read before it ends; -1: none */
	atomic_uint *running, *most;
};

static void run(struct helper_job *base)
{
	struct job *job = (struct job *)base;
	unsigned int now = atomic_fetch_add(job->running, 1) + 1;
	unsigned int most = atomic_load(job->most);
	char byte;

	while (now > most && !atomic_compare_exchange_weak(job->most, &most, now))
		;
	if (job->wait_fd >= 0) {
		ssize_t n = read(job->wait_fd, &byte, 1);

		(void)n; /* end of file serves as well */
	}
	atomic_fetch_sub(job->running, 1);
}

/* Takes jobs until `count` have come back. */
static void collect(struct mailbox *done, int fd, unsigned int count)
{
	while (count) {
		uint64_t value;

		assert_int_equal(read(fd, &value, sizeof(value)), sizeof(value));
		for (struct mailbox_node *node = mailbox_take(done); node;) {
			struct mailbox_node *next = node->next;

			free(node);
			node = next;
			assert_true(count > 0);
			count--;
		}
	}
}

static struct job *job_new(uint64_t client, struct mailbox *done, int done_fd, int wait_fd,
			   atomic_uint *running, atomic_uint *most)
{
	struct job *job = calloc(1, sizeof(*job));

	assert_non_null(job);
	job->job.run = run;
	job->job.client_id = client;
	job->job.user_id = client; /* a user each */
	job->job.done = done;
	job->job.done_fd = done_fd;
	job->wait_fd = wait_fd;
	job->running = running;
	job->most = most;
	return job;
}

static void test_jobs_come_back(void **state)
{
	struct mailbox done = {.newest = NULL};
	struct helpers *helpers;
	atomic_uint running = 0, most = 0;
	int fd = eventfd(0, EFD_CLOEXEC);

	(void)state;
	assert_int_equal(helpers_create(4, 2, &helpers), 0);
	for (uint64_t i = 0; i < 1000; i++)
		helpers_submit(helpers, &job_new(i % 7, &done, fd, -1, &running, &most)->job);
	collect(&done, fd, 1000);
	assert_int_equal(atomic_load(&running), 0);
	assert_true(atomic_load(&most) <= 4);
	helpers_free(helpers, 10000);
	close(fd);
}

static void test_quota(void **state)
{
	struct mailbox hung = {.newest = NULL}, done = {.newest = NULL};
	struct helpers *helpers;
	atomic_uint running = 0, most = 0, other_running = 0, other_most = 0;
	int hung_fd = eventfd(0, EFD_CLOEXEC), fd = eventfd(0, EFD_CLOEXEC);
	int wait_fds[2];

	(void)state;
	assert_int_equal(pipe(wait_fds), 0);
	assert_int_equal(helpers_create(3, 2, &helpers), 0);
	/* Five jobs that hang, of one client: two threads are taken, the third serves the others.
	 */
	for (int i = 0; i < 5; i++)
		helpers_submit(helpers,
			       &job_new(1, &hung, hung_fd, wait_fds[0], &running, &most)->job);
	for (uint64_t i = 0; i < 100; i++)
		helpers_submit(
			helpers,
			&job_new(2 + i % 5, &done, fd, -1, &other_running, &other_most)->job);
	collect(&done, fd, 100);
	assert_true(atomic_load(&running) <= 2);
	close(wait_fds[1]);
	collect(&hung, hung_fd, 5);
	assert_true(atomic_load(&most) <= 2);
	helpers_free(helpers, 10000);
	close(wait_fds[0]);
	close(fd);
	close(hung_fd);
}

static void test_stuck_job_is_left(void **state)
{
	static atomic_uint running, most;
	struct helpers *helpers;
	int wait_fds[2];

	(void)state;
	assert_int_equal(pipe(wait_fds), 0);
	assert_int_equal(helpers_create(2, 1, &helpers), 0);
	helpers_submit(helpers, &job_new(1, NULL, -1, wait_fds[0], &running, &most)->job);
	while (atomic_load(&running) == 0)
		poll(NULL, 0, 1);
	helpers_free(helpers, 20); /* returns, and that is the test */
	assert_int_equal(atomic_load(&running), 1);
	close(wait_fds[1]); /* the thread that was left behind ends by itself */
	while (atomic_load(&running) == 1)
		poll(NULL, 0, 1);
	close(wait_fds[0]);
}

static void test_waiting_jobs_run_before_the_end(void **state)
{
	struct mailbox done = {.newest = NULL};
	struct helpers *helpers;
	atomic_uint running = 0, most = 0;
	unsigned int count = 0;

	(void)state;
	assert_int_equal(helpers_create(2, 1, &helpers), 0);
	for (int i = 0; i < 50; i++)
		helpers_submit(helpers, &job_new(9, &done, -1, -1, &running, &most)->job);
	helpers_free(helpers, 10000);
	helpers_free(NULL, 0);
	for (struct mailbox_node *node = mailbox_take(&done); node; count++) {
		struct mailbox_node *next = node->next;

		free(node);
		node = next;
	}
	assert_int_equal(count, 50);
}

/* Of a user with many clients, each with a job that hangs: half of the threads, and no more. */
static void test_share(void **state)
{
	struct mailbox hung = {.newest = NULL}, done = {.newest = NULL};
	struct helpers *helpers;
	atomic_uint running = 0, most = 0, other_running = 0, other_most = 0;
	int hung_fd = eventfd(0, EFD_CLOEXEC), fd = eventfd(0, EFD_CLOEXEC);
	int wait_fds[2];

	(void)state;
	assert_int_equal(pipe(wait_fds), 0);
	assert_int_equal(helpers_create(8, 2, &helpers), 0);
	for (uint64_t client = 1; client <= 20; client++) {
		struct job *job = job_new(client, &hung, hung_fd, wait_fds[0], &running, &most);

		job->job.user_id = helper_user_id(1000);
		helpers_submit(helpers, &job->job);
	}
	/* A second user with as many gets half of the rest. */
	for (uint64_t client = 21; client <= 40; client++) {
		struct job *job = job_new(client, &hung, hung_fd, wait_fds[0], &running, &most);

		job->job.user_id = helper_user_id(1001);
		helpers_submit(helpers, &job->job);
	}
	while (atomic_load(&running) < 6)
		poll(NULL, 0, 1);
	for (uint64_t i = 0; i < 100; i++) {
		struct job *job = job_new(50 + i % 5, &done, fd, -1, &other_running, &other_most);

		job->job.user_id = helper_user_id((uid_t)(2000 + i % 3));
		helpers_submit(helpers, &job->job);
	}
	collect(&done, fd, 100);
	assert_int_equal(atomic_load(&running), 6);
	assert_int_equal(atomic_load(&most), 6);
	assert_true(atomic_load(&other_most) <= 2);
	close(wait_fds[1]);
	collect(&hung, hung_fd, 40);
	/* As one goes, the other may have more: never beyond all threads. */
	assert_true(atomic_load(&most) <= 8);
	helpers_free(helpers, 10000);
	close(wait_fds[0]);
	close(fd);
	close(hung_fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_jobs_come_back),
		cmocka_unit_test(test_quota),
		cmocka_unit_test(test_stuck_job_is_left),
		cmocka_unit_test(test_waiting_jobs_run_before_the_end),
		cmocka_unit_test(test_share),
	};

	return cmocka_run_group_tests_name("helper", tests, NULL, NULL);
}
