/* SPDX-License-Identifier: MIT */
/*
 * Which backend a buffer gets, and whether its sync is known to do something: one table of
 * exporters, the configuration's word, the client's wish. Pure; any thread.
 */
#ifndef DMASYNC_BUFFER_POLICY_H
#define DMASYNC_BUFFER_POLICY_H

#include <stdbool.h>

#include "proto/message.h"

struct policy_facts {
	enum dmasync_buffer_kind kind;
	const char *exporter;		 /* exp_name of a dma-buf, "" for a memfd */
	enum dmasync_backend requested;	 /* AUTO: nothing asked for */
	enum dmasync_backend configured; /* of [exporter NAME]; AUTO where it says nothing */
	bool refuse;			 /* [exporter NAME] backend=refuse */
	bool line_operations;		 /* at least one works on this CPU */
	bool allow_simulated;
};

struct policy {
	int error; /* 0, or why it is refused; then only `why` counts */
	enum dmasync_backend backend;
	bool guarantee; /* a sync is known to reach the point of coherency */
	char why[DMASYNC_TEXT_SIZE];
};

void policy_choose(const struct policy_facts *facts, struct policy *ret);

/* For logs, sentences and the man page: "direct", "kernel", ... */
const char *policy_backend_name(enum dmasync_backend backend);

#endif
