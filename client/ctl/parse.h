/* SPDX-License-Identifier: MIT */
/*
 * Numbers with units as people write them on a command line. Pure functions, any thread.
 * Errors: -EINVAL (no number, or an unknown unit), -ERANGE (does not fit); *ret is then untouched.
 */
#ifndef DMASYNC_CTL_PARSE_H
#define DMASYNC_CTL_PARSE_H

#include <stdint.h>

/* "4096", "0x1000". */
int parse_count(const char *text, uint64_t *ret);

/* Bytes: "64", "4K", "10M", "1G", also "4KiB" and "4k": powers of 1024, as in lscpu(1). */
int parse_size(const char *text, uint64_t *ret);

/* Nanoseconds: "500ns", "33ms", "1.5s", "20us", "2min". A unit is needed, except for 0. */
int parse_duration(const char *text, uint64_t *ret_ns);

#endif
