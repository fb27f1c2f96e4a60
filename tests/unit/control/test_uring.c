/* SPDX-License-Identifier: MIT */
/*
 * What the rings of the control loop and of a worker may be asked for: what they use, and nothing
 * else. The kernel answers -EACCES to the rest.
 */
#include "daemon/uring.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/loop_internal.h"
#include "daemon/worker_internal.h"

static int ask(struct io_uring *ring, const struct io_uring_sqe *request)
{
	struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
	struct io_uring_cqe *cqe;

	assert_non_null(sqe);
	*sqe = *request;
	assert_int_equal(io_uring_submit_and_wait(ring, 1), 1);
	assert_int_equal(io_uring_peek_cqe(ring, &cqe), 0);

	int result = cqe->res;

	io_uring_cqe_seen(ring, cqe);
	return result;
}

static void expect_refused(struct io_uring *ring, const uint8_t *allowed, size_t count)
{
	/* Those of 5.10, which has restrictions: an unknown one is refused in another way. */
	for (unsigned int opcode = 0; opcode <= IORING_OP_TEE; opcode++) {
		if (memchr(allowed, (int)opcode, count))
			continue;
		assert_int_equal(ask(ring, &(const struct io_uring_sqe){.opcode = (uint8_t)opcode,
									.fd = -1}),
				 -EACCES);
	}
	/* Nor can the ring be given files, buffers, or other rights. */
	int fds[1] = {0};

	assert_int_equal(
		io_uring_register((unsigned int)ring->ring_fd, IORING_REGISTER_FILES, fds, 1),
		-EACCES);
	assert_int_equal(io_uring_register((unsigned int)ring->ring_fd,
					   IORING_REGISTER_RESTRICTIONS, NULL, 0),
			 -EACCES);
}

static void expect_poll(struct io_uring *ring, uint8_t flags, int result)
{
	struct io_uring_sqe sqe = {0};

	io_uring_prep_poll_add(&sqe, ring->ring_fd, POLLOUT);
	sqe.flags = flags;
	if (result == 0)
		assert_true(ask(ring, &sqe) & POLLOUT);
	else
		assert_int_equal(ask(ring, &sqe), result);
}

static void test_control_loop(void **state)
{
	static const uint8_t allowed[] = {IORING_OP_POLL_ADD, IORING_OP_POLL_REMOVE,
					  IORING_OP_TIMEOUT, IORING_OP_TIMEOUT_REMOVE};
	struct loop *loop;
	int r = loop_create(LOOP_URING, &loop);

	(void)state;
	if (r == -EPERM || r == -ENOSYS)
		skip(); /* io_uring is refused here */
	assert_int_equal(r, 0);
	if (loop_unrestricted(loop)) {
		loop_free(loop);
		skip(); /* before 5.10 */
	}
	expect_refused(loop_uring_ring(loop), allowed, sizeof(allowed));
	expect_poll(loop_uring_ring(loop), 0, 0);
	expect_poll(loop_uring_ring(loop), IOSQE_ASYNC, -EACCES);
	expect_poll(loop_uring_ring(loop), IOSQE_IO_LINK, -EACCES);
	loop_free(loop);
}

static void test_worker(void **state)
{
	static const uint8_t allowed[] = {IORING_OP_READ, IORING_OP_POLL_ADD,
					  IORING_OP_LINK_TIMEOUT, IORING_OP_ASYNC_CANCEL};
	struct worker *worker = calloc(1, sizeof(*worker));

	(void)state;
	assert_non_null(worker);

	int r = worker_wait_uring_setup(worker);

	if (r < 0 || worker->wait.unrestricted) {
		if (r == 0)
			worker->wait.ops->free(worker);
		free(worker);
		assert_true(r == 0 || r == -EPERM || r == -ENOSYS);
		skip();
	}
	expect_refused(&worker->wait.ring, allowed, sizeof(allowed));
	expect_poll(&worker->wait.ring, 0, 0);
	expect_poll(&worker->wait.ring, IOSQE_IO_LINK, 0);
	expect_poll(&worker->wait.ring, IOSQE_ASYNC, -EACCES);
	worker->wait.ops->free(worker);
	free(worker);
}

static void test_refusals_say_why(void **state)
{
	static const int errors[] = {-EPERM, -ENOSYS, -ENOMEM, -EINVAL, -EMFILE};
	char text[DMASYNC_TEXT_SIZE];

	(void)state;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		text[0] = '\0';
		uring_refusal(errors[i], text, sizeof(text));
		assert_true(strlen(text) > 10);
		assert_true(strlen(text) < sizeof(text) - 1); /* whole */
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_control_loop),
		cmocka_unit_test(test_worker),
		cmocka_unit_test(test_refusals_say_why),
	};

	return cmocka_run_group_tests_name("uring", tests, NULL, NULL);
}
