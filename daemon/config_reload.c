/* SPDX-License-Identifier: MIT */
/* Copying a configuration, and taking over what changes while the daemon runs. Control thread. */
#include "daemon/config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/config_value.h"

/* A text of any length, where the key has one. */
static bool is_text(const struct config_key *key)
{
	return key->type == CONFIG_PATH_NAME || key->type == CONFIG_GROUP ||
	       key->type == CONFIG_CPUS;
}

static const char *text_of(const struct config *config, const struct config_key *key)
{
	return *(char *const *)(const void *)((const char *)config + key->offset);
}

static int key_copy(const struct config *from, struct config *to, const struct config_key *key)
{
	char value[64];
	const char *problem;

	if (is_text(key))
		return config_value_set(to, key, text_of(from, key), &problem);
	config_value(from, key, value, sizeof(value));
	return config_value_set(to, key, value, &problem);
}

static bool key_differs(const struct config *a, const struct config *b,
			const struct config_key *key)
{
	char a_value[64], b_value[64];

	if (is_text(key)) {
		const char *a_text = text_of(a, key), *b_text = text_of(b, key);

		return a_text && b_text ? strcmp(a_text, b_text) != 0 : a_text != b_text;
	}
	config_value(a, key, a_value, sizeof(a_value));
	config_value(b, key, b_value, sizeof(b_value));
	return strcmp(a_value, b_value) != 0;
}

static int exporters_copy(const struct config *from, struct config *to)
{
	struct config_exporter *exporters = NULL;

	if (from->exporter_count) {
		exporters = reallocarray(NULL, from->exporter_count, sizeof(*exporters));
		if (!exporters)
			return -ENOMEM;
		memcpy(exporters, from->exporters, from->exporter_count * sizeof(*exporters));
	}
	free(to->exporters);
	to->exporters = exporters;
	to->exporter_count = from->exporter_count;
	return 0;
}

int config_copy(const struct config *config, struct config *copy)
{
	size_t count;
	const struct config_key *keys = config_keys(&count);
	int r = 0;

	*copy = (struct config){0};
	for (size_t i = 0; r == 0 && i < count; i++) {
		if (keys[i].type != CONFIG_BACKEND)
			r = key_copy(config, copy, &keys[i]);
	}
	if (r == 0)
		r = exporters_copy(config, copy);
	if (r == 0 && config->file) {
		copy->file = strdup(config->file);
		r = copy->file ? 0 : -ENOMEM;
	}
	for (size_t i = 0; r == 0 && i < config->override_count; i++)
		r = config_override_add(copy, &config->overrides[i]);
	if (r < 0)
		config_clear(copy);
	return r;
}

static bool exporters_differ(const struct config *a, const struct config *b)
{
	if (a->exporter_count != b->exporter_count)
		return true;
	for (size_t i = 0; i < a->exporter_count; i++) {
		const struct config_exporter *other = config_exporter(b, a->exporters[i].name);

		if (!other || other->backend != a->exporters[i].backend ||
		    other->refuse != a->exporters[i].refuse)
			return true;
	}
	return false;
}

static void append_change(char *text, size_t text_size, const struct config_key *key,
			  const char *before, const char *after)
{
	char change[600];

	snprintf(change, sizeof(change), "%s%s %s -> %s", *text ? ", " : "", key->key,
		 *before ? before : "unset", *after ? after : "unset");
	config_append(text, text_size, change);
}

int config_reload(struct config *config, const struct config *fresh, char *text, size_t text_size)
{
	char value[256], fresh_value[256], later[CONFIG_TEXT_SIZE] = "";
	size_t count;
	const struct config_key *keys = config_keys(&count);

	*text = '\0';
	for (size_t i = 0; i < count; i++) {
		const struct config_key *key = &keys[i];

		if (key->type == CONFIG_BACKEND)
			continue;
		if (!key_differs(config, fresh, key))
			continue;
		config_value(config, key, value, sizeof(value));
		config_value(fresh, key, fresh_value, sizeof(fresh_value));
		if (!key->reload) {
			config_append(later, sizeof(later), *later ? ", " : "");
			config_append(later, sizeof(later), key->key);
			continue;
		}

		int r = key_copy(fresh, config, key);

		if (r < 0)
			return r;
		append_change(text, text_size, key, value, fresh_value);
	}
	if (exporters_differ(config, fresh)) {
		config_append(text, text_size, *text ? ", " : "");
		config_append(text, text_size, "exporter sections");
	}
	if (*later) {
		config_append(text, text_size, *text ? "; a change of " : "a change of ");
		config_append(text, text_size, later);
		config_append(text, text_size, " needs a restart");
	}

	int r = exporters_copy(fresh, config);

	return r < 0 ? r : *later != '\0';
}
