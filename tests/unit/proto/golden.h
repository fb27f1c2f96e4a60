/* SPDX-License-Identifier: MIT */
/* One example of every message and slot; golden/NAME.hex holds its bytes. */
#ifndef DMASYNC_TEST_GOLDEN_H
#define DMASYNC_TEST_GOLDEN_H

#include "layout.h"

struct golden_case {
	const char *name;
	const char *type; /* the struct at its start; elements may follow */
	const void *bytes;
	size_t size;
};

extern const struct golden_case golden_cases[];
extern const size_t golden_case_count;

#endif
