/* SPDX-License-Identifier: MIT */
/* compare.json: all that was measured, for check.py and draw.py. Owns nothing. Main thread. */
#include <stdio.h>
#include <stdlib.h>

#include "client/ctl/json.h"
#include "tests/compare/compare.h"

static json *machine_json(const struct compare *compare)
{
	json *object = json_new_object();
	struct machine machine;

	machine_read(compare, &machine);
	json_add_string(object, "cpu", machine.cpu);
	json_add_int(object, "cpus", compare->cpu_count);
	json_add_string(object, "governor", machine.governor);
	json_add_string(object, "kernel", machine.kernel);
	json_add_int(object, "client_cpu", compare->client_cpu);
	json_add_int(object, "worker_cpu", compare->worker_cpu);
	json_add_string(object, "line_operation", compare->cache.ops.name);
	json_add_uint(object, "line_bytes", compare->cache.line);
	json_add_decimal(object, "load", compare->load, 2);
	json_add_decimal(object, "clean_ns", compare->cache.clean_ps / 1e3, 3);
	json_add_decimal(object, "flush_ns", compare->cache.flush_ps / 1e3, 3);
	json_add_decimal(object, "barrier_ns", compare->cache.barrier_ps / 1e3, 3);
	return object;
}

/* A value by its name in all runs: the lowest and the highest. */
static void value_range(const struct compare *compare, enum row row, const char *name,
			double *ret_low, double *ret_high)
{
	for (uint32_t run = 0; run < compare->runs; run++) {
		const struct measured *measured = &compare->all[run].rows[row];

		for (uint32_t i = 0; i < measured->value_count; i++) {
			double value = measured->values[i].value;

			if (measured->values[i].name != name)
				continue;
			*ret_low = value < *ret_low ? value : *ret_low;
			*ret_high = value > *ret_high ? value : *ret_high;
		}
	}
}

static json *values_json(const struct compare *compare, enum row row,
			 const struct measured *measured)
{
	json *array = json_new_array();

	for (uint32_t i = 0; i < measured->value_count; i++) {
		const struct value *value = &measured->values[i];
		double low = value->value, high = value->value;
		json *object = json_new_object();

		value_range(compare, row, value->name, &low, &high);
		json_add_string(object, "name", value->name);
		json_add_string(object, "unit", value->unit);
		json_add_decimal(object, "value", value->value, 4);
		json_add_decimal(object, "low", low, 4);
		json_add_decimal(object, "high", high, 4);
		json_append(array, object);
	}
	return array;
}

static json *row_json(const struct compare *compare, enum row row)
{
	const struct row_info *info = &row_infos[row];
	json *object = json_new_object(), *runs = json_new_array();
	struct summary s;

	summarize(compare, row, &s);
	json_add_string(object, "key", info->key);
	json_add_string(object, "what", info->what);
	json_add_string(object, "unit", info->unit);
	json_add_string(object, "better", info->better == BETTER_LESS ? "less" : "more");
	if (info->has_goal)
		json_add_decimal(object, "goal", row_goal(compare, row), 3);
	else
		json_add_null(object, "goal");
	if (!s.there) {
		json_add_null(object, "ratio");
		json_add_null(object, "noise");
		json_add_null(object, "met");
		json_add_string(object, "why", compare->why[row]);
		json_add(object, "runs", runs);
		json_add(object, "values", json_new_array());
		return object;
	}
	json_add_decimal(object, "ratio", s.best, 6);
	json_add_decimal(object, "noise", s.noise, 6);
	if (info->has_goal)
		json_add_bool(object, "met", s.met);
	else
		json_add_null(object, "met");
	json_add_null(object, "why");
	for (uint32_t run = 0; run < compare->runs; run++)
		if (compare->all[run].rows[row].there)
			json_append(runs,
				    json_object_new_double(compare->all[run].rows[row].ratio));
	json_add(object, "runs", runs);
	json_add(object, "values", values_json(compare, row, s.measured));
	return object;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Of the runs that have a number; 0 where none has. */
static double median_of_runs(double values[], size_t count)
{
	if (!count)
		return 0;
	qsort(values, count, sizeof *values, by_size);
	return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

/* For the pictures: medians of the runs. */
static json *entry_sizes_json(const struct compare *compare)
{
	json *array = json_new_array();

	for (size_t size = 0; size < ENTRY_SIZES; size++) {
		json *object = json_new_object();

		json_add_uint(object, "entry_bytes", entry_sizes[size]);
		for (int way = 0; way < WAYS; way++) {
			double values[COMPARE_RUNS_MAX];
			size_t count = 0;

			for (uint32_t run = 0; run < compare->runs; run++)
				if (compare->all[run].way_us[size][way] > 0)
					values[count++] = compare->all[run].way_us[size][way];
			if (count)
				json_add_decimal(object, way_keys[way],
						 median_of_runs(values, count), 3);
			else
				json_add_null(object, way_keys[way]);
		}
		json_append(array, object);
	}
	return array;
}

static double percentile(const struct percentiles *p, int which)
{
	const uint64_t values[] = {p->p50, p->p90, p->p99, p->p99_9, p->max};

	return (double)values[which];
}

static json *latency_json(const struct compare *compare)
{
	static const char *const keys[] = {"p50_ns", "p90_ns", "p99_ns", "p99_9_ns", "max_ns"};
	json *array = json_new_array();

	for (int series = 0; series < SERIES; series++) {
		json *object = json_new_object();
		double values[COMPARE_RUNS_MAX];
		size_t count = 0;

		json_add_string(object, "key", series_keys[series]);
		json_add_string(object, "name", series_names[series]);
		for (int which = 0; which < 5; which++) {
			count = 0;
			for (uint32_t run = 0; run < compare->runs; run++) {
				const struct percentiles *p = &compare->all[run].series[series];

				if (p->count)
					values[count++] = percentile(p, which);
			}
			json_add_decimal(object, keys[which], median_of_runs(values, count), 0);
		}
		if (count)
			json_append(array, object);
		else
			json_object_put(object);
	}
	return array;
}

int report_json(const struct compare *compare, const char *path)
{
	json *document = json_new_object(), *rows = json_new_array();
	int r;

	json_add_uint(document, "version", 1);
	json_add_bool(document, "short", compare->short_form);
	json_add_uint(document, "runs", compare->runs);
	json_add_uint(document, "rounds", compare->rounds);
	json_add_uint(document, "seed", compare->seed);
	json_add(document, "machine", machine_json(compare));
	for (enum row row = 0; row < ROWS; row++)
		json_append(rows, row_json(compare, row));
	json_add(document, "rows", rows);
	json_add(document, "entry_sizes", entry_sizes_json(compare));
	json_add(document, "latency", latency_json(compare));
	r = json_object_to_file_ext(path, document,
				    JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED);
	if (r < 0)
		fprintf(stderr, "dmasync-compare: %s: %s\n", path, json_util_get_last_err());
	json_object_put(document);
	return r < 0 ? -EIO : 0;
}
