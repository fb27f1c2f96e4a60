/* SPDX-License-Identifier: MIT */
/*
 * Reading the configuration file, line by line through inih, with the place of every mistake.
 * Control thread.
 */
#include "daemon/config.h"

#include <errno.h>
#include <ini.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX 64

struct reader {
	FILE *file;
	const char *path;
	int line;
	int line_max;	 /* bytes that inih reads */
	int broken_line; /* the first that is too long or holds a zero byte; 0: none */
	struct config *config;
	char *text;
	size_t text_size;
	int error; /* of the first refused key */
	int error_line;
	int key_line[KEYS_MAX];	 /* where each key was set; 0: nowhere yet */
	size_t exporters_before; /* set by something else than this file */
};

/* The library builds of inih do not tell the handler its line, so lines are counted here. */
static char *read_line(char *text, int size, void *stream)
{
	struct reader *reader = stream;

	if (reader->broken_line || !fgets(text, size, reader->file))
		return NULL;
	reader->line++;

	size_t length = strlen(text);

	reader->line_max = size - 1;
	if ((length == 0 || text[length - 1] != '\n') && !feof(reader->file)) {
		reader->broken_line = reader->line;
		return NULL;
	}
	/* An indented line would continue the value above it; here it is a line as any other. */
	size_t indent = strspn(text, " \t");

	memmove(text, text + indent, length - indent + 1);
	return text;
}

/* -EEXIST, with the sentence, where this file has set the key before. */
static int check_twice(struct reader *reader, const char *section, const char *name)
{
	size_t count;
	const struct config_key *keys = config_keys(&count);

	for (size_t i = 0; i < count && i < KEYS_MAX; i++) {
		if (strcmp(keys[i].section, section) || strcmp(keys[i].key, name))
			continue;
		if (reader->key_line[i]) {
			snprintf(reader->text, reader->text_size,
				 "%s:%d: %s is already set in line %d; write it once", reader->path,
				 reader->line, name, reader->key_line[i]);
			return -EEXIST;
		}
		reader->key_line[i] = reader->line;
	}
	for (size_t i = reader->exporters_before; i < reader->config->exporter_count; i++) {
		const char *exporter = reader->config->exporters[i].name;
		size_t prefix = strlen(section) - strlen(exporter);

		if (strlen(section) > strlen(exporter) && section[prefix - 1] == ' ' &&
		    strcmp(section + prefix, exporter) == 0 && strcmp(name, "backend") == 0) {
			snprintf(reader->text, reader->text_size,
				 "%s:%d: the backend of exporter %.31s is already set; write it "
				 "once",
				 reader->path, reader->line, exporter);
			return -EEXIST;
		}
	}
	return 0;
}

static int handle(void *user, const char *section, const char *name, const char *value)
{
	struct reader *reader = user;
	char where[PATH_MAX + 16];

	if (reader->error)
		return 0;
	snprintf(where, sizeof(where), "%s:%d", reader->path, reader->line);

	int r = check_twice(reader, section, name);

	if (r == 0 && !*section) {
		snprintf(reader->text, reader->text_size,
			 "%s: %s stands before the first section; write [daemon] above it", where,
			 name);
		r = -EINVAL;
	}
	if (r == 0)
		r = config_set(reader->config, section, name, value, where, reader->text,
			       reader->text_size);
	if (r < 0) {
		reader->error = r == -ENOMEM ? r : -EINVAL;
		reader->error_line = reader->line;
		return 0;
	}
	return 1;
}

static int parse(struct reader *reader)
{
	int line = ini_parse_stream(read_line, reader, handle, reader);

	if (ferror(reader->file)) {
		snprintf(reader->text, reader->text_size, "%s: cannot be read: %s", reader->path,
			 strerror(errno));
		return -EIO;
	}
	if (reader->broken_line && (line == 0 || reader->broken_line < line)) {
		snprintf(reader->text, reader->text_size,
			 "%s:%d: the line holds a zero byte or is too long; at most %d bytes are "
			 "read",
			 reader->path, reader->broken_line, reader->line_max);
		return -EINVAL;
	}
	if (line < 0) {
		snprintf(reader->text, reader->text_size, "%s: out of memory", reader->path);
		return -ENOMEM;
	}
	if (line > 0 && line != reader->error_line) {
		snprintf(reader->text, reader->text_size,
			 "%s:%d: neither [section], nor key = value, nor a comment (# or ;)",
			 reader->path, line);
		return -EINVAL;
	}
	return reader->error;
}

int config_read(struct config *config, const char *path, char *text, size_t text_size)
{
	struct config copy;
	struct reader reader = {.path = path, .text = text, .text_size = text_size};
	int r = config_copy(config, &copy);

	if (r < 0) {
		snprintf(text, text_size, "%s: out of memory", path);
		return r;
	}
	reader.config = &copy;
	reader.exporters_before = copy.exporter_count;
	reader.file = fopen(path, "re");
	if (!reader.file) {
		r = -errno;
		snprintf(text, text_size, "%s: cannot be opened: %s", path, strerror(errno));
	} else {
		r = parse(&reader);
		fclose(reader.file);
	}
	if (r == 0) {
		free(copy.file);
		copy.file = strdup(path);
		r = copy.file ? 0 : -ENOMEM;
	}
	if (r < 0) {
		config_clear(&copy);
		return r;
	}
	config_clear(config);
	*config = copy;
	return 0;
}

int config_reread(const struct config *config, struct config *ret, char *text, size_t text_size)
{
	struct config fresh;
	int r = config_defaults(&fresh);

	if (r < 0) {
		snprintf(text, text_size, "out of memory");
		return r;
	}
	r = config_read(&fresh, config->file ? config->file : CONFIG_PATH, text, text_size);
	if (r == -ENOENT && !config->file)
		r = 0;
	for (size_t i = 0; r == 0 && i < config->override_count; i++) {
		const struct config_override *override = &config->overrides[i];

		r = config_override(&fresh, override->section, override->key, override->value,
				    override->where, text, text_size);
	}
	if (r < 0) {
		config_clear(&fresh);
		return r;
	}
	*ret = fresh;
	return 0;
}
