/* SPDX-License-Identifier: MIT */
/*
 * Where a log message goes: the journal with its fields, or a line on stderr. Any thread; what is
 * shared is two atomics, written by the control thread.
 */
#define SD_JOURNAL_SUPPRESS_LOCATION

#include "daemon/log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-journal.h>
#include <unistd.h>

#define MESSAGE_MAX 1024 /* bytes of a message; the rest is cut off */
#define FIELDS_MAX 16

static atomic_int max_level = LOG_INFO;
static atomic_bool to_journal;

static const char *const level_names[] = {
	[LOG_ERR] = "err",   [LOG_WARNING] = "warning", [LOG_NOTICE] = "notice",
	[LOG_INFO] = "info", [LOG_DEBUG] = "debug",
};

/* systemd names the journal's stream by device and inode, so that an inherited variable whose
 * stderr was redirected since does not mislead. */
static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	uintmax_t device, inode;
	struct stat st;

	if (!stream || sscanf(stream, "%" SCNuMAX ":%" SCNuMAX, &device, &inode) != 2)
		return false;
	return fstat(STDERR_FILENO, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

void log_open(int level)
{
	atomic_store_explicit(&to_journal, stderr_is_journal(), memory_order_relaxed);
	log_set_level(level);
}

/* Relaxed, with the load in log_write(): a message more or less while it changes does not matter.
 */
void log_set_level(int level)
{
	atomic_store_explicit(&max_level, level, memory_order_relaxed);
}

int log_level_from_name(const char *name)
{
	for (int level = LOG_ERR; level <= LOG_DEBUG; level++) {
		if (strcmp(level_names[level], name) == 0)
			return level;
	}
	return -EINVAL;
}

const char *log_level_name(int level)
{
	return level >= LOG_ERR && level <= LOG_DEBUG ? level_names[level] : "err";
}

static struct iovec iovec_of(const char *text)
{
	return (struct iovec){.iov_base = (char *)(uintptr_t)text, .iov_len = strlen(text)};
}

/* False where nobody received it. */
static bool write_journal(int level, const char *message, const char *const *fields)
{
	char text[sizeof("MESSAGE=") + MESSAGE_MAX];
	char priority[sizeof("PRIORITY=7")];
	struct iovec iov[3 + FIELDS_MAX];
	int n = 0;

	snprintf(text, sizeof(text), "MESSAGE=%s", message);
	snprintf(priority, sizeof(priority), "PRIORITY=%d", level & 7);
	iov[n++] = iovec_of(text);
	iov[n++] = iovec_of(priority);
	iov[n++] = iovec_of("SYSLOG_IDENTIFIER=dmasyncd");
	for (size_t i = 0; fields && fields[i] && i < FIELDS_MAX; i++)
		iov[n++] = iovec_of(fields[i]);
	return sd_journal_sendv(iov, n) >= 0;
}

/* One write, so that lines of several threads do not mix. */
static void write_line(int level, const char *message)
{
	struct iovec iov[] = {
		iovec_of("dmasyncd: "), iovec_of(log_level_name(level)),
		iovec_of(": "),		iovec_of(message),
		iovec_of("\n"),
	};
	ssize_t n = writev(STDERR_FILENO, iov, sizeof(iov) / sizeof(iov[0]));

	(void)n; /* nowhere to tell */
}

static void __attribute__((format(printf, 3, 0)))
log_write(int level, const char *const *fields, const char *format, va_list arguments)
{
	char message[MESSAGE_MAX];
	int saved_errno = errno;

	if (level > atomic_load_explicit(&max_level, memory_order_relaxed))
		return;
	vsnprintf(message, sizeof(message), format, arguments);
	/* A client's name stands in messages: it must not draw on a terminal or forge a line. */
	for (char *c = message; *c; c++) {
		if ((unsigned char)*c < ' ' || *c == 0x7f)
			*c = '?';
	}
	if (!atomic_load_explicit(&to_journal, memory_order_relaxed) ||
	    !write_journal(level, message, fields))
		write_line(level, message);
	errno = saved_errno;
}

void log_message(int level, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	log_write(level, NULL, format, arguments);
	va_end(arguments);
}

void log_fields(int level, const char *const *fields, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	log_write(level, fields, format, arguments);
	va_end(arguments);
}
