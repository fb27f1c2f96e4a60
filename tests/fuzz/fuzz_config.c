/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: configuration files, options and lists of CPUs, of any bytes. Refused with a
 * sentence, and nothing is changed then; or taken, and then what is written out from it is read
 * back as the same. One thread.
 */
#include <errno.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/cache/cpus.h"
#include "daemon/config.h"
#include "daemon/options.h"
#include "fuzz.h"

#define VALUE_SIZE 8192u
#define ARGUMENTS_MAX 16

static int file;
static char path[64];
static FILE *nowhere;

static void write_file(const void *bytes, size_t size)
{
	if (!file) {
		file = memfd_create("configuration", MFD_CLOEXEC);
		claim(file >= 0);
		snprintf(path, sizeof path, "/proc/self/fd/%d", file);
		nowhere = fopen("/dev/null", "we");
		claim(nowhere);
	}
	claim(ftruncate(file, 0) == 0);
	claim(pwrite(file, bytes, size, 0) == (ssize_t)size);
}

/* Every key as a file would have it. */
static char *write_out(const struct config *config)
{
	char *text, value[VALUE_SIZE];
	const char *section = "";
	size_t size, count;
	const struct config_key *keys = config_keys(&count);
	FILE *out = open_memstream(&text, &size);

	claim(out);
	for (size_t i = 0; i < count; i++) {
		if (keys[i].type == CONFIG_BACKEND)
			continue;
		config_value(config, &keys[i], value, sizeof value);
		if (!*value)
			continue;
		if (strcmp(section, keys[i].section))
			fprintf(out, "[%s]\n", keys[i].section);
		section = keys[i].section;
		fprintf(out, "%s = %s\n", keys[i].key, value);
	}
	fclose(out);
	return text;
}

static void is_a_sentence(const char *text)
{
	size_t length = strnlen(text, CONFIG_TEXT_SIZE);

	claim(length > 0 && length < CONFIG_TEXT_SIZE);
}

/* The same once more, by what was written out; a line that inih cannot take is left out of it. */
static void read_back(const struct config *config)
{
	struct config again;
	char text[CONFIG_TEXT_SIZE] = "", *written = write_out(config), *rewritten;

	claim(config_defaults(&again) == 0);
	if (strlen(written) < 4000) {
		write_file(written, strlen(written));
		int r = config_read(&again, path, text, sizeof text);

		if (r < 0)
			fprintf(stderr, "%s\n%s\n", text, written);
		claim(r == 0);
		rewritten = write_out(&again);
		claim(strcmp(written, rewritten) == 0);
		free(rewritten);
		claim(config_reload(&again, config, text, sizeof text) >= 0);
		claim(strnlen(text, sizeof text) < sizeof text);
	}
	config_clear(&again);
	free(written);
}

static void read_one(struct input *input)
{
	struct config config;
	char text[CONFIG_TEXT_SIZE] = "", *before, *after;
	int r;

	claim(config_defaults(&config) == 0);
	before = write_out(&config);
	write_file(input->data, input->left);
	r = config_read(&config, path, text, sizeof text);
	after = write_out(&config);
	if (r < 0) {
		is_a_sentence(text);
		claim(strcmp(before, after) == 0 && config.exporter_count == 0);
	} else {
		struct config again;

		claim(!*text);
		claim(config_reread(&config, &again, text, sizeof text) == 0);
		claim(again.exporter_count == config.exporter_count);
		config_clear(&again);
		for (size_t i = 0; i < config.exporter_count; i++) {
			const struct config_exporter *exporter = &config.exporters[i];

			claim(strnlen(exporter->name, sizeof exporter->name) <
			      sizeof exporter->name);
			claim(config_exporter(&config, exporter->name) == exporter);
		}
		read_back(&config);
	}
	free(before);
	free(after);
	config_clear(&config);
}

static void parse_cpus(struct input *input)
{
	char list[512];
	uint32_t cpus[CONFIG_CPUS_MAX], count = 0;
	size_t size = input->left < sizeof list - 1 ? input->left : sizeof list - 1;
	cpu_set_t set;

	input_copy(input, list, size);
	list[size] = 0;
	bool found = cache_cpus_parse(list, &set) == 0;

	if (config_parse_cpus(list, cpus, &count) < 0)
		return;
	claim(found); /* the lists of the kernel are more */
	claim(count > 0 && count <= CONFIG_CPUS_MAX && CPU_COUNT(&set) == (int)count);
	for (uint32_t i = 0; i < count; i++)
		claim(cpus[i] < CONFIG_CPU_LIMIT && CPU_ISSET(cpus[i], &set));
}

/* Arguments end with a zero each. Another file than ours is read by none: it might be a terminal.
 */
static void load_options(struct input *input)
{
	char text[CONFIG_TEXT_SIZE] = "", bytes[1024], own[80];
	char *arguments[ARGUMENTS_MAX + 2] = {bytes};
	size_t size = input->left < sizeof bytes - 1 ? input->left : sizeof bytes - 1;
	int count = 1;
	struct config config;

	input_copy(input, bytes, size);
	bytes[size] = 0;
	write_file("[daemon]\nspin_us = 7\n", 21);
	snprintf(own, sizeof own, "--config=%s", path);
	for (size_t at = strlen(bytes) + 1; at <= size && count < ARGUMENTS_MAX;
	     at += strlen(bytes + at) + 1)
		arguments[count++] = strncmp(bytes + at, "--co", 4) ? bytes + at : own;
	arguments[count] = NULL;
	switch (options_load(count, arguments, nowhere, &config, text, sizeof text)) {
	case OPTIONS_RUN:
		read_back(&config);
		config_clear(&config);
		break;
	case OPTIONS_DONE:
		break;
	case OPTIONS_REFUSED:
		is_a_sentence(text);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {data, size};

	write_file("", 0);
	/* A letter, so that a seed is text as a whole. */
	switch (input_u8(&input)) {
	case 'c':
		parse_cpus(&input);
		break;
	case 'o':
		load_options(&input);
		break;
	default:
		read_one(&input);
		break;
	}
	return 0;
}
