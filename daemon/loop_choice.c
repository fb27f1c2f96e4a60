/* SPDX-License-Identifier: MIT */
/* See loop_choice.h. Owns nothing; control thread. */
#include "daemon/loop_choice.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "daemon/log.h"
#include "daemon/uring.h"

/* Where io_uring is refused for good, a restart does not help. */
static enum daemon_status demanded(const char *who, int error)
{
	char why[DMASYNC_TEXT_SIZE];

	uring_refusal(error, why, sizeof(why));
	log_error("%s cannot be started: loop = uring, and io_uring is refused (%s): %s; loop = "
		  "auto would run on epoll",
		  who, strerror(-error), why);
	return error == -EPERM || error == -ENOSYS ? DAEMON_MISCONFIGURED : DAEMON_FAILED;
}

enum daemon_status loop_choose(struct daemon *daemon)
{
	char text[DMASYNC_TEXT_SIZE];
	int r = loop_create(daemon->config.loop, &daemon->loop);

	if (r < 0 && daemon->config.loop == LOOP_URING)
		return demanded("the control loop", r);
	if (r < 0) {
		log_error("the control loop cannot be started: %s", strerror(-r));
		return DAEMON_FAILED;
	}
	if (loop_refused(daemon->loop)) {
		loop_choice_text(daemon, text, sizeof(text));
		log_notice("%s; running on epoll", text);
	}
	return DAEMON_DRAINED;
}

/* io_uring was refused to the control loop, or is not wanted: then for the workers, too. */
enum loop_kind loop_choice_of_workers(const struct daemon *daemon)
{
	return loop_kind(daemon->loop) == LOOP_EPOLL ? LOOP_EPOLL : daemon->config.loop;
}

void loop_choice_worker_started(const struct worker *worker)
{
	char why[DMASYNC_TEXT_SIZE];
	int error = worker_loop_refused(worker);

	if (!error)
		return;
	uring_refusal(error, why, sizeof(why));
	log_notice("io_uring is refused (%s) to worker %" PRIu32 ": %s; it runs on epoll",
		   strerror(-error), worker_index(worker), why);
}

enum daemon_status loop_choice_worker_failed(const struct daemon *daemon, int error)
{
	if (loop_choice_of_workers(daemon) == LOOP_URING)
		return demanded("a worker", error);
	log_error("a worker cannot be started: %s", strerror(-error));
	return DAEMON_FAILED;
}

void loop_choice_text(const struct daemon *daemon, char *text, size_t text_size)
{
	int error = loop_refused(daemon->loop);
	char why[DMASYNC_TEXT_SIZE];

	if (error) {
		uring_refusal(error, why, sizeof(why));
		snprintf(text, text_size, "io_uring is refused (%s): %s", strerror(-error), why);
		return;
	}
	switch (loop_kind(daemon->loop)) {
	case LOOP_URING:
		error = loop_unrestricted(daemon->loop);
		if (error)
			snprintf(text, text_size,
				 "not restricted to the operations it uses, which kernels from "
				 "5.10 on can: %s",
				 strerror(-error));
		else
			snprintf(text, text_size, "restricted to the operations it uses");
		return;
	case LOOP_EPOLL:
	case LOOP_AUTO:
		snprintf(text, text_size, "the configuration says loop = %s",
			 loop_kind_name(daemon->config.loop));
		return;
	}
}
