/* SPDX-License-Identifier: MIT */
/*
 * json-c with less writing: every call adds one member to an object. Keys are constants. A failed
 * allocation ends the program: a document with a hole would be worse. Main thread.
 */
#ifndef DMASYNC_CTL_JSON_H
#define DMASYNC_CTL_JSON_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/ctl/percentiles.h"

typedef struct json_object json;

json *json_new_object(void);
json *json_new_array(void);

void json_add(json *object, const char *key, json *value); /* takes value over */
void json_append(json *array, json *value);		   /* takes value over */
void json_add_uint(json *object, const char *key, uint64_t value);
void json_add_int(json *object, const char *key, int64_t value);
void json_add_bool(json *object, const char *key, bool value);
void json_add_null(json *object, const char *key);
void json_add_decimal(json *object, const char *key, double value, int digits);
void json_add_string(json *object, const char *key, const char *value);
/* A fixed-size, zero-padded field of a peer; see format_text(). */
void json_add_field(json *object, const char *key, const char *field, size_t size);
/* {"count", "mean", "p50", "p90", "p99", "p99_9", "max"} */
void json_add_percentiles(json *object, const char *key, const struct percentiles *percentiles);

void json_print(json *object);	    /* a document on standard output; frees it */
void json_print_line(json *object); /* one line, flushed: for streams; frees it */

#endif
