/* SPDX-License-Identifier: MIT */
/*
 * The daemon's log: to the journal with structured fields where stderr is the journal
 * ($JOURNAL_STREAM), as plain text lines on stderr elsewhere. Any thread. Only the daemon links it.
 */
#ifndef DMASYNC_LOG_H
#define DMASYNC_LOG_H

#include <syslog.h> /* LOG_ERR ... LOG_DEBUG */

void log_open(int max_level);
void log_set_level(int max_level);
/* "err", "warning", "notice", "info", "debug"; -EINVAL for any other. */
int log_level_from_name(const char *name);
const char *log_level_name(int level);

/* One sentence, no newline. Fields follow as "KEY=value" strings: log_fields(). */
void log_message(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* `fields`: NULL-terminated array of "DMASYNC_PID=12" strings, shown in the journal only. */
void log_fields(int level, const char *const *fields, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

#define log_error(...) log_message(LOG_ERR, __VA_ARGS__)
#define log_warning(...) log_message(LOG_WARNING, __VA_ARGS__)
#define log_notice(...) log_message(LOG_NOTICE, __VA_ARGS__)
#define log_info(...) log_message(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_message(LOG_DEBUG, __VA_ARGS__)

#endif
