/* SPDX-License-Identifier: MIT */
/*
 * Single values of the configuration, from text and to text. Owns nothing; any thread.
 */
#include "daemon/config_value.h"

#include <ctype.h>
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "daemon/log.h"

static const char byte_suffixes[] = "KMGT"; /* each 1024 times the one before */

static int parse_digits(const char **cursor, uint64_t *ret)
{
	uint64_t number = 0;
	const char *c = *cursor;

	if (!isdigit((unsigned char)*c))
		return -EINVAL;
	for (; isdigit((unsigned char)*c); c++) {
		if (__builtin_mul_overflow(number, 10u, &number) ||
		    __builtin_add_overflow(number, (uint64_t)(*c - '0'), &number))
			return -ERANGE;
	}
	*cursor = c;
	*ret = number;
	return 0;
}

static int parse_number(const struct config_key *key, const char *value, uint64_t *ret,
			const char **ret_problem)
{
	const char *rest = value;
	uint64_t number;
	int r = parse_digits(&rest, &number);

	if (r == -EINVAL) {
		*ret_problem = *value ? "not a whole number" : "no value";
		return r;
	}
	if (r == 0 && key->type == CONFIG_BYTES && *rest) {
		const char *suffix = strchr(byte_suffixes, toupper((unsigned char)*rest));

		if (!suffix || rest[1]) {
			*ret_problem = "not a size: only K, M, G or T may follow the number";
			return -EINVAL;
		}
		for (const char *s = byte_suffixes; s <= suffix; s++) {
			if (__builtin_mul_overflow(number, 1024u, &number))
				r = -ERANGE;
		}
	} else if (r == 0 && *rest) {
		*ret_problem = "not a whole number: write no unit, it is a part of the key's name";
		return -EINVAL;
	}
	if (r < 0 || number < key->min || number > key->max) {
		*ret_problem = "out of range";
		return -ERANGE;
	}
	*ret = number;
	return 0;
}

static int parse_bool(const char *value, bool *ret)
{
	static const struct {
		const char *name;
		bool value;
	} words[] = {{"yes", true}, {"no", false},  {"true", true}, {"false", false},
		     {"on", true},  {"off", false}, {"1", true},    {"0", false}};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (strcmp(value, words[i].name) == 0) {
			*ret = words[i].value;
			return 0;
		}
	}
	return -EINVAL;
}

int config_parse_cpus(const char *list, uint32_t cpus[CONFIG_CPUS_MAX], uint32_t *ret_count)
{
	bool seen[CONFIG_CPU_LIMIT] = {false};
	const char *cursor = list;
	uint32_t count = 0;

	for (;;) {
		uint64_t first, last;
		int r = parse_digits(&cursor, &first);

		if (r < 0)
			return r;
		last = first;
		if (*cursor == '-') {
			cursor++;
			r = parse_digits(&cursor, &last);
			if (r < 0)
				return r;
		}
		if (first > last)
			return -EINVAL;
		if (last >= CONFIG_CPU_LIMIT)
			return -ERANGE;
		for (uint64_t cpu = first; cpu <= last; cpu++) {
			if (seen[cpu])
				return -EINVAL;
			if (count == CONFIG_CPUS_MAX)
				return -ERANGE;
			seen[cpu] = true;
			cpus[count++] = (uint32_t)cpu;
		}
		if (*cursor == '\0')
			break;
		if (*cursor++ != ',')
			return -EINVAL;
	}
	*ret_count = count;
	return 0;
}

static int check_text(const struct config_key *key, const char *value, const char **ret_problem)
{
	uint32_t cpus[CONFIG_CPUS_MAX], count;

	if (!*value) {
		*ret_problem = "no value";
		return -EINVAL;
	}
	if (key->type == CONFIG_PATH_NAME) {
		if (value[0] != '/') {
			*ret_problem = "not an absolute path";
			return -EINVAL;
		}
		if (strlen(value) > key->max) {
			*ret_problem = "too long for the address of a socket";
			return -ERANGE;
		}
	} else if (key->type == CONFIG_GROUP) {
		if (!getgrnam(value)) {
			*ret_problem = "there is no such group";
			return -EINVAL;
		}
	} else {
		int r = config_parse_cpus(value, cpus, &count);

		if (r < 0) {
			*ret_problem = r == -ERANGE ? "a CPU number or the list is too large"
						    : "not a list of CPUs, each named once";
			return r;
		}
	}
	return 0;
}

static int set_text(char **field, const char *value)
{
	char *copy = NULL;

	if (value) {
		copy = strdup(value);
		if (!copy)
			return -ENOMEM;
	}
	free(*field);
	*field = copy;
	return 0;
}

int config_value_set(struct config *config, const struct config_key *key, const char *value,
		     const char **ret_problem)
{
	char *field = (char *)config + key->offset;
	uint64_t number;
	int r;

	switch (key->type) {
	case CONFIG_COUNT:
		r = parse_number(key, value, &number, ret_problem);
		if (r == 0)
			*(uint32_t *)(void *)field = (uint32_t)number;
		return r;
	case CONFIG_COUNT64:
	case CONFIG_BYTES:
		r = parse_number(key, value, &number, ret_problem);
		if (r == 0)
			*(uint64_t *)(void *)field = number;
		return r;
	case CONFIG_BOOL:
		*ret_problem = "neither yes nor no";
		return parse_bool(value, (bool *)(void *)field);
	case CONFIG_LEVEL:
		*ret_problem = "not a level";
		r = log_level_from_name(value);
		if (r >= 0)
			*(int *)(void *)field = r;
		return r < 0 ? r : 0;
	case CONFIG_POLICY:
		*ret_problem = "not a policy";
		if (strcmp(value, "other") != 0 && strcmp(value, "fifo") != 0)
			return -EINVAL;
		*(bool *)(void *)field = strcmp(value, "fifo") == 0;
		return 0;
	case CONFIG_LOOP:
		*ret_problem = "not a loop";
		r = loop_kind_from_name(value);
		if (r >= 0)
			*(enum loop_kind *)(void *)field = (enum loop_kind)r;
		return r < 0 ? r : 0;
	case CONFIG_PATH_NAME:
	case CONFIG_GROUP:
	case CONFIG_CPUS:
		r = value ? check_text(key, value, ret_problem) : 0;
		return r < 0 ? r : set_text((char **)(void *)field, value);
	case CONFIG_BACKEND:
		break; /* of an exporter, not of the configuration */
	}
	return -EINVAL;
}

static void bytes_text(uint64_t bytes, char *text, size_t text_size)
{
	size_t suffix = 0;

	while (bytes && bytes % 1024 == 0 && suffix < strlen(byte_suffixes)) {
		bytes /= 1024;
		suffix++;
	}
	snprintf(text, text_size, "%" PRIu64 "%.1s", bytes,
		 suffix ? &byte_suffixes[suffix - 1] : "");
}

void config_value(const struct config *config, const struct config_key *key, char *text,
		  size_t text_size)
{
	const char *field = (const char *)config + key->offset;

	switch (key->type) {
	case CONFIG_COUNT:
		snprintf(text, text_size, "%" PRIu32, *(const uint32_t *)(const void *)field);
		return;
	case CONFIG_COUNT64:
		snprintf(text, text_size, "%" PRIu64, *(const uint64_t *)(const void *)field);
		return;
	case CONFIG_BYTES:
		bytes_text(*(const uint64_t *)(const void *)field, text, text_size);
		return;
	case CONFIG_BOOL:
		snprintf(text, text_size, "%s", *(const bool *)(const void *)field ? "yes" : "no");
		return;
	case CONFIG_LEVEL:
		snprintf(text, text_size, "%s", log_level_name(*(const int *)(const void *)field));
		return;
	case CONFIG_POLICY:
		snprintf(text, text_size, "%s",
			 *(const bool *)(const void *)field ? "fifo" : "other");
		return;
	case CONFIG_LOOP:
		snprintf(text, text_size, "%s",
			 loop_kind_name(*(const enum loop_kind *)(const void *)field));
		return;
	case CONFIG_PATH_NAME:
	case CONFIG_GROUP:
	case CONFIG_CPUS: {
		const char *value = *(char *const *)(const void *)field;

		snprintf(text, text_size, "%s", value ? value : "");
		return;
	}
	case CONFIG_BACKEND:
		snprintf(text, text_size, "%s", "");
		return;
	}
}

void config_allowed(const struct config_key *key, char *text, size_t text_size)
{
	char min[32], max[32];

	switch (key->type) {
	case CONFIG_COUNT:
	case CONFIG_COUNT64:
		snprintf(text, text_size, "%" PRIu64 " to %" PRIu64 "%s%s", key->min, key->max,
			 key->unit ? " " : "", key->unit ? key->unit : "");
		return;
	case CONFIG_BYTES:
		bytes_text(key->min, min, sizeof(min));
		bytes_text(key->max, max, sizeof(max));
		snprintf(text, text_size, "%s to %s bytes", min, max);
		return;
	case CONFIG_BOOL:
		snprintf(text, text_size, "yes or no");
		return;
	case CONFIG_LEVEL:
		snprintf(text, text_size, "err, warning, notice, info or debug");
		return;
	case CONFIG_POLICY:
		snprintf(text, text_size, "other or fifo");
		return;
	case CONFIG_LOOP:
		snprintf(text, text_size, "auto, uring or epoll");
		return;
	case CONFIG_PATH_NAME:
		snprintf(text, text_size, "an absolute path of at most %" PRIu64 " bytes",
			 key->max);
		return;
	case CONFIG_GROUP:
		snprintf(text, text_size, "the name of a group");
		return;
	case CONFIG_CPUS:
		snprintf(text, text_size, "up to %u CPU numbers below %u, as 2,3 or 4-7",
			 CONFIG_CPUS_MAX, CONFIG_CPU_LIMIT);
		return;
	case CONFIG_BACKEND:
		snprintf(text, text_size, "auto, direct, kernel, none or refuse");
		return;
	}
}

static const struct {
	const char *name;
	enum dmasync_backend backend;
	bool refuse;
} backends[] = {
	{"auto", DMASYNC_BACKEND_AUTO, false},	   {"direct", DMASYNC_BACKEND_DIRECT, false},
	{"kernel", DMASYNC_BACKEND_KERNEL, false}, {"none", DMASYNC_BACKEND_NONE, false},
	{"refuse", DMASYNC_BACKEND_AUTO, true},
};

int config_backend_parse(const char *value, struct config_exporter *exporter)
{
	for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
		if (strcmp(value, backends[i].name) == 0) {
			exporter->backend = backends[i].backend;
			exporter->refuse = backends[i].refuse;
			return 0;
		}
	}
	return -EINVAL;
}

const char *config_backend_name(const struct config_exporter *exporter)
{
	for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
		if (exporter->backend == backends[i].backend &&
		    exporter->refuse == backends[i].refuse)
			return backends[i].name;
	}
	return "auto";
}
