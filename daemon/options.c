/* SPDX-License-Identifier: MIT */
/*
 * Options, each of which is a key of the configuration and goes through its checks. Owns nothing.
 * Control thread, at the start.
 */
#include "daemon/options.h"

#include <errno.h>
#include <getopt.h>
#include <string.h>

/* Values of getopt_long() above every character. */
enum { OPTION_CONFIG = 256, OPTION_KEY };

/* The options that set a key of [daemon]; the index is the option's value less OPTION_KEY. */
static const struct {
	const char *option, *key, *argument;
} key_options[] = {
	{"socket", "socket", "PATH"},
	{"workers", "workers", "N"},
	{"cpus", "cpus", "LIST"},
	{"loop", "loop", "LOOP"},
	{"spin-us", "spin_us", "N"},
	{"slice-lines", "slice_lines", "N"},
	{"log-level", "log_level", "LEVEL"},
};

#define KEY_OPTIONS (sizeof(key_options) / sizeof(key_options[0]))

static const struct config_key *key_of(size_t option)
{
	size_t count;
	const struct config_key *keys = config_keys(&count);

	for (size_t i = 0; i < count; i++) {
		if (strcmp(keys[i].section, "daemon") == 0 &&
		    strcmp(keys[i].key, key_options[option].key) == 0)
			return &keys[i];
	}
	return NULL;
}

static void print_help(FILE *out)
{
	fprintf(out, "dmasyncd: CPU cache maintenance for DMA buffers, as a service\n"
		     "\n"
		     "usage: dmasyncd [OPTION...]\n"
		     "\n"
		     "  --config FILE        configuration; default: " CONFIG_PATH "\n");
	for (size_t i = 0; i < KEY_OPTIONS; i++) {
		const struct config_key *key = key_of(i);
		char usage[32], allowed[128];

		if (!key)
			continue;
		snprintf(usage, sizeof(usage), "--%s %s", key_options[i].option,
			 key_options[i].argument);
		config_allowed(key, allowed, sizeof(allowed));
		fprintf(out, "  %-20s %s\n  %-20s %s; default: %s\n", usage, key->help, "", allowed,
			key->fallback ? key->fallback : "unset");
	}
	fprintf(out, "  --version            print the version\n"
		     "  --help               print this\n"
		     "\n"
		     "An option goes before the same key in the file. See dmasyncd(8) and "
		     "dmasyncd.conf(5).\n"
		     "Exit status: 0 stopped after finishing its work, 1 failed, 2 wrong "
		     "configuration or option.\n");
}

static void fill_options(struct option options[KEY_OPTIONS + 4])
{
	size_t n = 0;

	for (; n < KEY_OPTIONS; n++)
		options[n] = (struct option){key_options[n].option, required_argument, NULL,
					     OPTION_KEY + (int)n};
	options[n++] = (struct option){"config", required_argument, NULL, OPTION_CONFIG};
	options[n++] = (struct option){"version", no_argument, NULL, 'V'};
	options[n++] = (struct option){"help", no_argument, NULL, 'h'};
	options[n] = (struct option){0};
}

static enum options_result refuse(int result, int argc, char *argv[], char *text, size_t text_size)
{
	const char *argument = optind > 0 && optind <= argc ? argv[optind - 1] : "";
	char allowed[128];

	if (result == ':' && optopt >= OPTION_KEY && (size_t)(optopt - OPTION_KEY) < KEY_OPTIONS) {
		config_allowed(key_of((size_t)(optopt - OPTION_KEY)), allowed, sizeof(allowed));
		snprintf(text, text_size, "%s: no value; allowed: %s", argument, allowed);
	} else if (result == ':') {
		snprintf(text, text_size, "%s: no value; a file is expected", argument);
	} else {
		snprintf(text, text_size, "%s: unknown option; dmasyncd --help lists them",
			 argument);
	}
	return OPTIONS_REFUSED;
}

/* Finds the file before the keys, which go over it wherever they stand. */
static enum options_result first_pass(int argc, char *argv[], const struct option *options,
				      FILE *out, const char **ret_file, char *text,
				      size_t text_size)
{
	int result;

	optind = 0; /* glibc: from the start again */
	opterr = 0;
	while ((result = getopt_long(argc, argv, ":hV", options, NULL)) != -1) {
		if (result == 'h') {
			print_help(out);
			return OPTIONS_DONE;
		}
		if (result == 'V') {
			fprintf(out, "dmasyncd " DMASYNC_VERSION "\n");
			return OPTIONS_DONE;
		}
		if (result == OPTION_CONFIG)
			*ret_file = optarg;
		else if (result < OPTION_KEY)
			return refuse(result, argc, argv, text, text_size);
	}
	if (optind < argc) {
		snprintf(text, text_size,
			 "%s: not an option, and no other argument is expected; dmasyncd --help "
			 "lists them",
			 argv[optind]);
		return OPTIONS_REFUSED;
	}
	return OPTIONS_RUN;
}

static int set_keys(int argc, char *argv[], const struct option *options, struct config *config,
		    char *text, size_t text_size)
{
	int result, r = 0;

	optind = 0;
	while (r == 0 && (result = getopt_long(argc, argv, ":hV", options, NULL)) != -1) {
		size_t i = (size_t)(result - OPTION_KEY);
		char where[32];

		if (result < OPTION_KEY)
			continue;
		snprintf(where, sizeof(where), "--%s", key_options[i].option);
		r = config_override(config, "daemon", key_options[i].key, optarg, where, text,
				    text_size);
	}
	return r;
}

enum options_result options_load(int argc, char *argv[], FILE *out, struct config *config,
				 char *text, size_t text_size)
{
	struct option options[KEY_OPTIONS + 4];
	struct config loaded;
	const char *file = NULL;
	enum options_result result;
	int r;

	fill_options(options);
	result = first_pass(argc, argv, options, out, &file, text, text_size);
	if (result != OPTIONS_RUN)
		return result;
	r = config_defaults(&loaded);
	if (r < 0) {
		snprintf(text, text_size, "out of memory");
		return OPTIONS_REFUSED;
	}
	r = config_read(&loaded, file ? file : CONFIG_PATH, text, text_size);
	if (r == -ENOENT && !file)
		r = 0;
	if (r == 0)
		r = set_keys(argc, argv, options, &loaded, text, text_size);
	if (r < 0) {
		config_clear(&loaded);
		return OPTIONS_REFUSED;
	}
	*config = loaded;
	return OPTIONS_RUN;
}
