/* SPDX-License-Identifier: MIT */
/*
 * What dmasyncctl reads and writes as figures: sizes, durations, percentiles against a plain model,
 * units, tables, text of peers, JSON documents parsed back.
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "client/ctl/format.h"
#include "client/ctl/json.h"
#include "client/ctl/parse.h"
#include "client/ctl/percentiles.h"
#include "client/ctl/probe.h"
#include "daemon/histogram.h"

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

struct reading {
	const char *text;
	int error;
	uint64_t value;
};

static void check_readings(const struct reading *readings, size_t count,
			   int (*parse)(const char *, uint64_t *))
{
	for (size_t i = 0; i < count; i++) {
		uint64_t value = 4711;
		int r = parse(readings[i].text, &value);

		if (r != readings[i].error)
			fail_msg("\"%s\": %d instead of %d", readings[i].text, r,
				 readings[i].error);
		assert_int_equal(value, r < 0 ? 4711 : readings[i].value);
	}
}

static void sizes_are_read(void **state)
{
	static const struct reading readings[] = {
		{"0", 0, 0},
		{"64", 0, 64},
		{"64B", 0, 64},
		{"4K", 0, 4096},
		{"4k", 0, 4096},
		{"4KiB", 0, 4096},
		{"10M", 0, 10485760},
		{"1.5G", 0, 1610612736},
		{"0.5K", 0, 512},
		{"1.25K", 0, 1280},
		{"0.00000001K", 0, 0},
		{"0x1000", 0, 4096},
		{"18446744073709551615", 0, UINT64_MAX},
		{"17179869183G", 0, UINT64_C(17179869183) << 30},
		{"", -EINVAL, 0},
		{"K", -EINVAL, 0},
		{"-1", -EINVAL, 0},
		{" 1", -EINVAL, 0},
		{"+1", -EINVAL, 0},
		{"1 K", -EINVAL, 0},
		{"1KB", -EINVAL, 0},
		{"1T", -EINVAL, 0},
		{"1.", -EINVAL, 0},
		{".5K", -EINVAL, 0},
		{"1.K", -EINVAL, 0},
		{"1.123456789K", -EINVAL, 0},
		{"0x", -EINVAL, 0},
		{"0xg", -EINVAL, 0},
		{"0x10K", -EINVAL, 0},
		{"18446744073709551616", -ERANGE, 0},
		{"17179869184G", -ERANGE, 0},
		{"17179869183.99999999G", 0, UINT64_C(17179869183) * 1073741824 + 1073741813},
	};

	(void)state;
	check_readings(readings, COUNT_OF(readings), parse_size);
}

static void durations_are_read(void **state)
{
	static const struct reading readings[] = {
		{"0", 0, 0},
		{"0ns", 0, 0},
		{"20us", 0, 20000},
		{"33ms", 0, 33000000},
		{"1.5s", 0, 1500000000},
		{"2min", 0, 120000000000},
		{"18446744073709551615ns", 0, UINT64_MAX},
		{"33", -EINVAL, 0},
		{"ms", -EINVAL, 0},
		{"-1ms", -EINVAL, 0},
		{"1h", -EINVAL, 0},
		{"1m", -EINVAL, 0},
		{"", -EINVAL, 0},
		{"18446744074s", -ERANGE, 0},
	};

	(void)state;
	check_readings(readings, COUNT_OF(readings), parse_duration);
}

static void counts_are_read(void **state)
{
	static const struct reading readings[] = {
		{"7", 0, 7},
		{"0x10", 0, 16},
		{"07", 0, 7},
		{"7K", -EINVAL, 0},
		{"7.5", -EINVAL, 0},
		{"", -EINVAL, 0},
		{"18446744073709551616", -ERANGE, 0},
	};

	(void)state;
	check_readings(readings, COUNT_OF(readings), parse_count);
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* By counting: the smallest value that at least `permille` of all do not exceed. */
static uint64_t model(const uint64_t *sorted, size_t count, unsigned int permille)
{
	for (size_t i = 0; i < count; i++) {
		size_t not_above = 0;

		while (not_above < count && sorted[not_above] <= sorted[i])
			not_above++;
		if (not_above * 1000 >= count * permille)
			return sorted[i];
	}
	return UINT64_MAX;
}

static uint64_t next_value(uint64_t *state, unsigned int bits)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return *state >> (64 - bits);
}

static void percentiles_agree_with_the_model(void **state)
{
	uint64_t random = 1, samples[700], sorted[700];

	(void)state;
	for (size_t count = 1; count <= COUNT_OF(samples); count += count < 30 ? 1 : 67) {
		struct dmasync_histogram_reply histogram = {0};
		struct percentiles exact, bucketed;
		uint64_t sum = 0;

		for (size_t i = 0; i < count; i++) {
			uint64_t value = next_value(&random, 1 + (unsigned int)(i % 42));

			samples[i] = sorted[i] = value;
			sum += value;
			histogram.bucket[histogram_bucket(value)]++;
			if (value > histogram.max_ns)
				histogram.max_ns = value;
		}
		histogram.sum_ns = sum;
		qsort(sorted, count, sizeof *sorted, compare);
		percentiles_of_samples(samples, count, &exact);
		percentiles_of_histogram(&histogram, &bucketed);

		const struct {
			uint64_t exact, bucketed;
			unsigned int permille;
		} rows[] = {
			{exact.p50, bucketed.p50, 500},
			{exact.p90, bucketed.p90, 900},
			{exact.p99, bucketed.p99, 990},
			{exact.p99_9, bucketed.p99_9, 999},
		};
		for (size_t i = 0; i < COUNT_OF(rows); i++) {
			uint64_t expected = model(sorted, count, rows[i].permille);
			uint64_t end = histogram_bucket_end(histogram_bucket(expected));

			assert_int_equal(rows[i].exact, expected);
			/* The bucket's end, but no value that never was. */
			assert_int_equal(rows[i].bucketed,
					 end < sorted[count - 1] ? end : sorted[count - 1]);
		}
		assert_int_equal(exact.count, count);
		assert_int_equal(bucketed.count, count);
		assert_int_equal(exact.max, sorted[count - 1]);
		assert_int_equal(bucketed.max, sorted[count - 1]);
		assert_int_equal(exact.mean, sum / count);
		assert_int_equal(bucketed.mean, sum / count);
		assert_true(percentiles_median(samples, count) * 2 ==
			    (double)sorted[(count - 1) / 2] + (double)sorted[count / 2]);
	}
}

static void no_value_gives_zeroes(void **state)
{
	static const struct dmasync_histogram_reply histogram = {.max_ns = 5, .sum_ns = 5};
	const struct percentiles zero = {0};
	struct percentiles p = {.p50 = 1};

	(void)state;
	percentiles_of_histogram(&histogram, &p);
	assert_memory_equal(&p, &zero, sizeof p);
	p.p50 = 1;
	percentiles_of_samples(NULL, 0, &p);
	assert_memory_equal(&p, &zero, sizeof p);
	assert_true(percentiles_median(NULL, 0) == 0);
}

/* So many that count * 999 does not fit 64 bits. */
static void large_counts_do_not_overflow(void **state)
{
	static struct dmasync_histogram_reply histogram;
	struct percentiles p;

	(void)state;
	histogram.bucket[1] = (uint64_t)1 << 62;
	histogram.bucket[2] = (uint64_t)1 << 62;
	histogram.max_ns = 2;
	percentiles_of_histogram(&histogram, &p);
	assert_int_equal(p.p50, 1);
	assert_int_equal(p.p90, 2);
	assert_int_equal(p.p99_9, 2);
}

static void figures_have_units(void **state)
{
	char text[FORMAT_SIZE];

	(void)state;
	assert_string_equal(format_bytes(text, 0), "0 B");
	assert_string_equal(format_bytes(text, 1023), "1023 B");
	assert_string_equal(format_bytes(text, 4096), "4 KiB");
	assert_string_equal(format_bytes(text, 1536), "1.5 KiB");
	assert_string_equal(format_bytes(text, UINT64_C(10) << 20), "10 MiB");
	assert_string_equal(format_bytes(text, UINT64_MAX), "16.0 EiB");
	assert_string_equal(format_ns(text, 0), "0 ns");
	assert_string_equal(format_ns(text, 999), "999 ns");
	assert_string_equal(format_ns(text, 5270), "5.27 us");
	assert_string_equal(format_ns(text, 52700), "52.7 us");
	assert_string_equal(format_ns(text, 33000000), "33.0 ms");
	assert_string_equal(format_ns(text, 2100000000), "2.10 s");
	assert_string_equal(format_ps(text, 850), "0.85 ns");
	assert_string_equal(format_ps(text, 2000000), "2.00 us");
	assert_string_equal(format_age(text, 0), "0 s");
	assert_string_equal(format_age(text, UINT64_C(65000000000)), "1 min 05 s");
	assert_string_equal(format_age(text, UINT64_C(3720000000000)), "1 h 02 min");
	assert_string_equal(format_age(text, UINT64_C(90000000000000)), "1 d 01 h");
}

static void text_of_peers_cannot_steer_a_terminal(void **state)
{
	static const char field[8] = {'a', '\033', '[', '\n', (char)0xc3, (char)0xa9, '~', 'x'};
	char text[16], shorter[4];

	(void)state;
	/* Not terminated: all eight belong to it. */
	assert_string_equal(format_text(text, sizeof text, field, sizeof field), "a?[???~x");
	assert_string_equal(format_text(shorter, sizeof shorter, field, sizeof field), "a?[");
	assert_string_equal(format_text(text, sizeof text, "", 1), "");
}

static char *printed(const struct table *table)
{
	char *text = NULL;
	size_t size;
	FILE *file = open_memstream(&text, &size);

	assert_non_null(file);
	assert_int_equal(table_print(table, file), 0);
	fclose(file);
	return text;
}

static void tables_are_aligned(void **state)
{
	struct table *table = table_new("lrl");
	static const char *const cells[] = {"name",	 "n", "why",	 "a",	 "12345", "",
					    "long name", "7", "because", "last", "1"};

	(void)state;
	assert_non_null(table);
	for (size_t i = 0; i < COUNT_OF(cells); i++)
		table_cell(table, "%s", cells[i]);
	char *text = printed(table);
	assert_string_equal(text, "name           n  why\n"
				  "a          12345\n"
				  "long name      7  because\n"
				  "last           1\n");
	free(text);
	table_free(table);
	table_free(NULL);
}

static void cpus_have_names(void **state)
{
	char text[64];

	(void)state;
	probe_midr_text(0x410fd032, text, sizeof text);
	assert_string_equal(text, "Cortex-A53 r0p2");
	probe_midr_text(0x413fd0c1, text, sizeof text);
	assert_string_equal(text, "Neoverse-N1 r3p1");
	probe_midr_text(0x4e0f0100, text, sizeof text);
	assert_string_equal(text, "Olympus r0p0");
	probe_midr_text(0x481fd010, text, sizeof text);
	assert_string_equal(text, "implementer 0x48 part 0xd01 r1p0");
}

static void json_reads_back(void **state)
{
	const struct percentiles p = {9, 8, 1, 2, 3, 4, 5};
	json *document = json_new_object(), *array = json_new_array(), *value;

	(void)state;
	json_add_uint(document, "large", UINT64_MAX);
	json_add_int(document, "negative", INT64_MIN);
	json_add_bool(document, "true", true);
	json_add_null(document, "null");
	json_add_decimal(document, "decimal", 44.0612, 2);
	json_add_field(document, "field", "ab\001\0c", 5);
	json_add_percentiles(document, "latency", &p);
	json_append(array, json_object_new_int(1));
	json_add(document, "array", array);

	json *parsed = json_tokener_parse(json_object_to_json_string(document));
	assert_non_null(parsed);
	assert_true(json_object_object_get_ex(parsed, "large", &value));
	assert_true(json_object_get_uint64(value) == UINT64_MAX);
	assert_true(json_object_object_get_ex(parsed, "negative", &value));
	assert_true(json_object_get_int64(value) == INT64_MIN);
	assert_true(json_object_object_get_ex(parsed, "true", &value));
	assert_true(json_object_is_type(value, json_type_boolean));
	assert_true(json_object_object_get_ex(parsed, "null", &value));
	assert_null(value);
	assert_true(json_object_object_get_ex(parsed, "decimal", &value));
	assert_string_equal(json_object_to_json_string(value), "44.06");
	assert_true(json_object_object_get_ex(parsed, "field", &value));
	assert_string_equal(json_object_get_string(value), "ab?");
	assert_true(json_object_object_get_ex(parsed, "latency", &value));
	static const char *const keys[] = {"count", "mean", "p50", "p90", "p99", "p99_9", "max"};
	static const int values[] = {9, 8, 1, 2, 3, 4, 5};
	assert_int_equal(json_object_object_length(value), COUNT_OF(keys));
	for (size_t i = 0; i < COUNT_OF(keys); i++) {
		json *member;

		assert_true(json_object_object_get_ex(value, keys[i], &member));
		assert_int_equal(json_object_get_int(member), values[i]);
	}
	json_object_put(parsed);
	json_object_put(document);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sizes_are_read),
		cmocka_unit_test(durations_are_read),
		cmocka_unit_test(counts_are_read),
		cmocka_unit_test(percentiles_agree_with_the_model),
		cmocka_unit_test(no_value_gives_zeroes),
		cmocka_unit_test(large_counts_do_not_overflow),
		cmocka_unit_test(figures_have_units),
		cmocka_unit_test(text_of_peers_cannot_steer_a_terminal),
		cmocka_unit_test(tables_are_aligned),
		cmocka_unit_test(cpus_have_names),
		cmocka_unit_test(json_reads_back),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
