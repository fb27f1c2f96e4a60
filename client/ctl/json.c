/* SPDX-License-Identifier: MIT */
/*
 * json-c with less writing. Owns nothing: objects belong to the object they were added to.
 * Main thread.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/ctl/ctl.h"
#include "client/ctl/format.h"
#include "client/ctl/json.h"

static json *need(json *object)
{
	if (!object) {
		ctl_fail("no memory for the JSON document");
		exit(CTL_FAILED);
	}
	return object;
}

json *json_new_object(void)
{
	return need(json_object_new_object());
}

json *json_new_array(void)
{
	return need(json_object_new_array());
}

void json_add(json *object, const char *key, json *value)
{
	if (json_object_object_add(object, key, value) < 0)
		need(NULL);
}

void json_append(json *array, json *value)
{
	if (json_object_array_add(array, need(value)) < 0)
		need(NULL);
}

void json_add_uint(json *object, const char *key, uint64_t value)
{
	json_add(object, key, need(json_object_new_uint64(value)));
}

void json_add_int(json *object, const char *key, int64_t value)
{
	json_add(object, key, need(json_object_new_int64(value)));
}

void json_add_bool(json *object, const char *key, bool value)
{
	json_add(object, key, need(json_object_new_boolean(value)));
}

void json_add_null(json *object, const char *key)
{
	json_add(object, key, NULL);
}

void json_add_decimal(json *object, const char *key, double value, int digits)
{
	char text[64];

	snprintf(text, sizeof text, "%.*f", digits, value);
	json_add(object, key, need(json_object_new_double_s(value, text)));
}

void json_add_string(json *object, const char *key, const char *value)
{
	json_add(object, key, need(json_object_new_string(value)));
}

void json_add_field(json *object, const char *key, const char *field, size_t size)
{
	char text[256];

	json_add_string(object, key, format_text(text, sizeof text, field, size));
}

void json_add_percentiles(json *object, const char *key, const struct percentiles *percentiles)
{
	json *value = json_new_object();

	json_add_uint(value, "count", percentiles->count);
	json_add_uint(value, "mean", percentiles->mean);
	json_add_uint(value, "p50", percentiles->p50);
	json_add_uint(value, "p90", percentiles->p90);
	json_add_uint(value, "p99", percentiles->p99);
	json_add_uint(value, "p99_9", percentiles->p99_9);
	json_add_uint(value, "max", percentiles->max);
	json_add(object, key, value);
}

static void print(json *object, int flags)
{
	const char *text =
		json_object_to_json_string_ext(object, flags | JSON_C_TO_STRING_NOSLASHESCAPE);

	if (!text)
		need(NULL);
	puts(text);
	json_object_put(object);
}

void json_print(json *object)
{
	print(object, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED);
}

void json_print_line(json *object)
{
	print(object, JSON_C_TO_STRING_PLAIN);
	fflush(stdout);
}
