/* SPDX-License-Identifier: MIT */
/* The table, for a terminal and for a document. Owns nothing. Main thread. */
#include <stdio.h>

#include "client/ctl/format.h"
#include "tests/compare/compare.h"

#define TEXT 32
#define BUSY 0.5 /* of a load average: somebody else runs half of the time */

/* Three digits that count: 0.043, 1.02, 97.1, 1046. */
static const char *figure(char text[TEXT], double value)
{
	double size = value < 0 ? -value : value;
	int digits = size == 0 ? 0 : size < 1 ? 3 : size < 10 ? 2 : size < 100 ? 1 : 0;

	if (size > 0 && size < 0.01)
		digits = 5;
	snprintf(text, TEXT, "%.*f", digits, value);
	return text;
}

static void machine_line(const struct compare *compare)
{
	struct machine machine;

	machine_read(compare, &machine);
	printf("%s, kernel %s, %d CPUs%s%s; client on CPU %d, worker on CPU %d\n", machine.cpu,
	       machine.kernel, compare->cpu_count, machine.governor[0] ? ", governor " : "",
	       machine.governor, compare->client_cpu, compare->worker_cpu);
	printf("%s, lines of %zu bytes, clean %.2f ns a (clean) line, barrier %.2f ns\n",
	       compare->cache.ops.name, compare->cache.line, compare->cache.clean_ps / 1e3,
	       compare->cache.barrier_ps / 1e3);
	if (compare->load > BUSY)
		printf("NOT IDLE: a load of %.2f before the start\n", compare->load);
	printf("medians of %u rounds, the best of %u runs; noise: how far the worst run is from "
	       "the best%s\n\n",
	       compare->rounds, compare->runs,
	       compare->short_form ? "; SHORT FORM: no figure of it means anything" : "");
}

static const char *goal_text(const struct compare *compare, enum row row, char text[TEXT + 8])
{
	char number[TEXT];

	if (!row_infos[row].has_goal)
		return "none";
	snprintf(text, TEXT + 8, "%s %s", row_infos[row].better == BETTER_LESS ? "<=" : ">=",
		 figure(number, row_goal(compare, row)));
	return text;
}

static const char *met_text(enum row row, const struct summary *summary)
{
	if (!row_infos[row].has_goal)
		return "";
	return summary->met ? "yes" : "NO";
}

/* "barrier per entry 959 us, daemon end to end 804 us" */
static void print_values(const struct measured *measured)
{
	char number[TEXT];

	for (uint32_t i = 0; i < measured->value_count; i++) {
		const struct value *value = &measured->values[i];

		printf("%s%s %s%s%s", i ? ", " : "", value->name, figure(number, value->value),
		       value->unit[0] ? " " : "", value->unit);
	}
}

void report_table(const struct compare *compare)
{
	struct table *_table_ table = table_new("lrrrll");
	static const char *const heads[] = {"key", "figure", "noise", "goal", "met", "what"};

	machine_line(compare);
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
		table_cell(table, "%s", heads[i]);
	for (enum row row = 0; row < ROWS; row++) {
		char a[TEXT], b[TEXT], goal[TEXT + 8];
		struct summary s;

		summarize(compare, row, &s);
		table_cell(table, "%s", row_infos[row].key);
		table_cell(table, "%s", s.there ? figure(a, s.best) : "-");
		table_cell(table, "%s", s.there ? figure(b, s.noise) : "-");
		table_cell(table, "%s", goal_text(compare, row, goal));
		table_cell(table, "%s", s.there ? met_text(row, &s) : "-");
		table_cell(table, "%s", s.there ? row_infos[row].what : compare->why[row]);
	}
	table_print(table, stdout);
	puts("\nabsolute values of the best run:");
	for (enum row row = 0; row < ROWS; row++) {
		struct summary s;

		summarize(compare, row, &s);
		if (!s.there)
			continue;
		printf("%s: ", row_infos[row].key);
		print_values(s.measured);
		putchar('\n');
	}
}

void report_markdown(const struct compare *compare)
{
	machine_line(compare);
	puts("| key | what | figure | noise | goal | met | absolute values of the best run |\n"
	     "| --- | --- | --- | --- | --- | --- | --- |");
	for (enum row row = 0; row < ROWS; row++) {
		char a[TEXT], b[TEXT], goal[TEXT + 8];
		struct summary s;

		summarize(compare, row, &s);
		printf("| %s | %s | ", row_infos[row].key, row_infos[row].what);
		if (!s.there) {
			printf("| | %s | | %s |\n", goal_text(compare, row, goal),
			       compare->why[row]);
			continue;
		}
		printf("%s | %s | %s | %s | ", figure(a, s.best), figure(b, s.noise),
		       goal_text(compare, row, goal), met_text(row, &s));
		print_values(s.measured);
		puts(" |");
	}
}
