/* SPDX-License-Identifier: MIT */
/*
 * The loop that a test is to run on, by DMASYNC_TEST_LOOP: "uring", "epoll" or "auto", which is the
 * default. tests/lib/daemon.c hands it to the daemons that it starts. Any thread.
 */
#ifndef DMASYNC_TESTS_LIB_LOOP_KIND_H
#define DMASYNC_TESTS_LIB_LOOP_KIND_H

#include <stdio.h>
#include <stdlib.h>

#include "daemon/loop.h"

static inline enum loop_kind test_loop_kind(void)
{
	const char *name = getenv("DMASYNC_TEST_LOOP");
	int kind = loop_kind_from_name(name ? name : "auto");

	if (kind < 0) {
		fprintf(stderr, "DMASYNC_TEST_LOOP=%s: not a loop\n", name);
		abort();
	}
	return (enum loop_kind)kind;
}

#endif
