/* SPDX-License-Identifier: MIT */
/*
 * Figures and tables for people. Text that came from a peer passes format_text() before it reaches
 * a terminal. Any thread, one table by one thread.
 */
#ifndef DMASYNC_CTL_FORMAT_H
#define DMASYNC_CTL_FORMAT_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define FORMAT_SIZE 32 /* large enough for every figure below */

/* Each returns `text`. */
const char *format_bytes(char text[FORMAT_SIZE], uint64_t bytes);    /* "64 B", "10 MiB" */
const char *format_ns(char text[FORMAT_SIZE], uint64_t ns);	     /* "812 ns", "5.27 us" */
const char *format_ps(char text[FORMAT_SIZE], uint64_t picoseconds); /* "0.85 ns" */
const char *format_age(char text[FORMAT_SIZE], uint64_t ns);	     /* "3 h 02 min" */
/* The user's name, or the number where it has none. Main thread (getpwuid). */
const char *format_user(char text[FORMAT_SIZE], uint32_t uid);

/*
 * At most `size` bytes of a fixed-size, zero-padded field of a peer, without what could steer a
 * terminal: everything but printable ASCII becomes '?'. Returns `text`, of text_size bytes.
 */
const char *format_text(char *text, size_t text_size, const char *field, size_t size);

/* A table whose columns are as wide as their widest cell. */
struct table;

/* `columns`: one letter for each, 'l' left or 'r' right. NULL: no memory. */
struct table *table_new(const char *columns);
void table_free(struct table *table);

/* The next cell, left to right, row by row. Failure is remembered for table_print(). */
void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Two spaces between columns, none at the end of a line. -ENOMEM. */
int table_print(const struct table *table, FILE *file);

static inline void table_cleanup(struct table **table)
{
	table_free(*table);
}

#define _table_ __attribute__((cleanup(table_cleanup)))

#endif
