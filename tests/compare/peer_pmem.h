/* SPDX-License-Identifier: MIT */
/* libpmem, looked for at run time: its flush and drain over a list. One thread. */
#ifndef TESTS_COMPARE_PEER_PMEM_H
#define TESTS_COMPARE_PEER_PMEM_H

#include "client/ctl/bench_list.h"

/* Loads it once. NULL, or in a sentence why there is none to measure beside. */
const char *pmem_missing(void);

/* Nanoseconds. pmem_persist() per entry; pmem_flush() each and one pmem_drain(). */
uint64_t pmem_persist_each(const struct bench_list *list);
uint64_t pmem_flush_each(const struct bench_list *list);

#endif
