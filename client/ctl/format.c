/* SPDX-License-Identifier: MIT */
/*
 * Figures and tables for people. A table owns copies of its cells.
 * Any thread, one table by one thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/format.h"

const char *format_bytes(char text[FORMAT_SIZE], uint64_t bytes)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	unsigned int unit = 0;
	double value = (double)bytes;

	while (value >= 1024 && unit < 6) {
		value /= 1024;
		unit++;
	}
	if (bytes == (bytes >> 10 * unit) << 10 * unit)
		snprintf(text, FORMAT_SIZE, "%" PRIu64 " %s", bytes >> 10 * unit, units[unit]);
	else
		snprintf(text, FORMAT_SIZE, "%.1f %s", value, units[unit]);
	return text;
}

/* Three significant digits, so that columns of times stay narrow. */
static void format_scaled(char text[FORMAT_SIZE], double value, const char *unit)
{
	int digits = value < 10 ? 2 : value < 100 ? 1 : 0;

	snprintf(text, FORMAT_SIZE, "%.*f %s", digits, value, unit);
}

const char *format_ns(char text[FORMAT_SIZE], uint64_t ns)
{
	if (ns < 1000)
		snprintf(text, FORMAT_SIZE, "%" PRIu64 " ns", ns);
	else if (ns < 1000000)
		format_scaled(text, (double)ns / 1e3, "us");
	else if (ns < 1000000000)
		format_scaled(text, (double)ns / 1e6, "ms");
	else
		format_scaled(text, (double)ns / 1e9, "s");
	return text;
}

const char *format_ps(char text[FORMAT_SIZE], uint64_t picoseconds)
{
	if (picoseconds < 1000000)
		format_scaled(text, (double)picoseconds / 1e3, "ns");
	else
		format_ns(text, picoseconds / 1000);
	return text;
}

const char *format_age(char text[FORMAT_SIZE], uint64_t ns)
{
	uint64_t seconds = ns / 1000000000, minutes = seconds / 60, hours = minutes / 60;

	if (minutes == 0)
		snprintf(text, FORMAT_SIZE, "%" PRIu64 " s", seconds);
	else if (hours == 0)
		snprintf(text, FORMAT_SIZE, "%" PRIu64 " min %02" PRIu64 " s", minutes,
			 seconds % 60);
	else if (hours < 24)
		snprintf(text, FORMAT_SIZE, "%" PRIu64 " h %02" PRIu64 " min", hours, minutes % 60);
	else
		snprintf(text, FORMAT_SIZE, "%" PRIu64 " d %02" PRIu64 " h", hours / 24,
			 hours % 24);
	return text;
}

const char *format_text(char *text, size_t text_size, const char *field, size_t size)
{
	size_t length = strnlen(field, size);

	if (length >= text_size)
		length = text_size - 1;
	for (size_t i = 0; i < length; i++)
		text[i] = field[i] >= ' ' && field[i] <= '~' ? field[i] : '?';
	text[length] = '\0';
	return text;
}

const char *format_user(char text[FORMAT_SIZE], uint32_t uid)
{
	const struct passwd *user = getpwuid(uid);

	snprintf(text, FORMAT_SIZE, "%u", uid);
	if (user)
		format_text(text, FORMAT_SIZE, user->pw_name, FORMAT_SIZE);
	return text;
}

struct table {
	const char *columns;
	size_t width; /* columns */
	char **cells;
	size_t count, room;
	bool failed;
};

struct table *table_new(const char *columns)
{
	struct table *table = calloc(1, sizeof *table);

	if (!table)
		return NULL;
	table->columns = columns;
	table->width = strlen(columns);
	return table;
}

void table_free(struct table *table)
{
	if (!table)
		return;
	for (size_t i = 0; i < table->count; i++)
		free(table->cells[i]);
	free(table->cells);
	free(table);
}

void table_cell(struct table *table, const char *format, ...)
{
	if (!table || table->failed)
		return;
	if (table->count == table->room) {
		size_t room = table->room ? table->room * 2 : 64;
		char **cells = reallocarray(table->cells, room, sizeof *cells);

		if (!cells) {
			table->failed = true;
			return;
		}
		table->cells = cells;
		table->room = room;
	}

	va_list arguments;
	char *cell;

	va_start(arguments, format);
	int n = vasprintf(&cell, format, arguments);
	va_end(arguments);
	if (n < 0) {
		table->failed = true;
		return;
	}
	table->cells[table->count++] = cell;
}

/* The widest cell of a column. */
static int column_width(const struct table *table, size_t column)
{
	size_t width = 0;

	for (size_t i = column; i < table->count; i += table->width)
		if (strlen(table->cells[i]) > width)
			width = strlen(table->cells[i]);
	return (int)width;
}

int table_print(const struct table *table, FILE *file)
{
	if (!table || table->failed)
		return -ENOMEM;
	int *widths = calloc(table->width, sizeof *widths);
	if (!widths)
		return -ENOMEM;
	for (size_t column = 0; column < table->width; column++)
		widths[column] = column_width(table, column);

	for (size_t row = 0; row < table->count; row += table->width) {
		int pending = 0; /* spaces not yet written: a line must not end in them */

		for (size_t column = 0; column < table->width && row + column < table->count;
		     column++) {
			const char *cell = table->cells[row + column];
			int length = (int)strlen(cell), gap = widths[column] - length;

			if (table->columns[column] == 'r')
				pending += gap;
			if (length > 0) {
				fprintf(file, "%*s%s", pending, "", cell);
				pending = 0;
			}
			if (table->columns[column] == 'l')
				pending += gap;
			pending += 2;
		}
		fputc('\n', file);
	}
	free(widths);
	return 0;
}
