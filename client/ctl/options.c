/* SPDX-License-Identifier: MIT */
/*
 * Long options of one command, from one table. Owns nothing: values go where the table points.
 * Main thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/format.h"
#include "client/ctl/options.h"
#include "client/ctl/parse.h"

const char options_common_help[] =
	"  --json               one JSON document on standard output instead of tables\n"
	"  --socket PATH        the daemon's socket (default: $DMASYNC_SOCKET, else\n"
	"                       /run/dmasync/socket)\n"
	"  --help               this text\n";

static void print_help(const struct option_usage *usage)
{
	printf("usage: dmasyncctl %s\n\n%s\n", usage->synopsis, usage->about);
	for (size_t i = 0; i < usage->count; i++) {
		const struct option *option = &usage->options[i];
		char left[64];

		snprintf(left, sizeof left, "--%s%s%s%s", option->name,
			 !option->argument		? ""
			 : option->kind == OPTION_MAYBE ? "[="
							: " ",
			 option->argument ? option->argument : "",
			 option->kind == OPTION_MAYBE ? "]" : "");
		printf("  %-20s %s", left, option->help);
		if (option->kind == OPTION_CHOICE) {
			fputs(": ", stdout);
			for (const struct option_choice *c = option->choices; c->name; c++)
				printf("%s%s", c == option->choices ? "" : ", ", c->name);
		}
		putchar('\n');
	}
	fputs(options_common_help, stdout);
}

static int wrong_value(const struct option *option, const char *text, const char *allowed)
{
	return ctl_usage("--%s: \"%s\" is not %s", option->name, text, allowed);
}

static int set_choice(const struct option *option, const char *text)
{
	char allowed[256] = "one of: ";
	size_t length = strlen(allowed);

	for (const struct option_choice *choice = option->choices; choice->name; choice++) {
		if (strcmp(choice->name, text) == 0) {
			*(int *)option->value = choice->value;
			return CTL_OK;
		}
		int n = snprintf(allowed + length, sizeof allowed - length, "%s%s",
				 choice == option->choices ? "" : ", ", choice->name);
		if (n > 0 && length + (size_t)n < sizeof allowed)
			length += (size_t)n;
	}
	return wrong_value(option, text, allowed);
}

static int set_number(const struct option *option, const char *text)
{
	int (*parse)(const char *, uint64_t *) = parse_count;
	const char *form = "a whole number";
	char low[FORMAT_SIZE], high[FORMAT_SIZE];
	uint64_t value;

	snprintf(low, sizeof low, "%" PRIu64, option->min);
	snprintf(high, sizeof high, "%" PRIu64, option->max);
	if (option->kind == OPTION_SIZE) {
		parse = parse_size;
		form = "a size as 4096, 64K, 10M or 1G";
		format_bytes(low, option->min);
		format_bytes(high, option->max);
	} else if (option->kind == OPTION_DURATION) {
		parse = parse_duration;
		form = "a time with its unit as 20us, 33ms or 1.5s";
		format_ns(low, option->min);
		format_ns(high, option->max);
	}

	int r = parse(text, &value);
	if (r == -EINVAL)
		return wrong_value(option, text, form);
	if (r < 0 || value < option->min || value > option->max)
		return ctl_usage("--%s: \"%s\" is out of bounds; %s to %s are allowed",
				 option->name, text, low, high);
	*(uint64_t *)option->value = value;
	return CTL_OK;
}

static int set_value(const struct option *option, const char *text)
{
	switch (option->kind) {
	case OPTION_FLAG:
		*(bool *)option->value = true;
		return CTL_OK;
	case OPTION_STRING:
	case OPTION_MAYBE:
		*(const char **)option->value = text;
		return CTL_OK;
	case OPTION_COUNT:
	case OPTION_SIZE:
	case OPTION_DURATION:
		return set_number(option, text);
	case OPTION_CHOICE:
		return set_choice(option, text);
	}
	return CTL_USAGE;
}

static const struct option *find_option(const struct option_usage *usage, const char *name,
					size_t length)
{
	for (size_t i = 0; i < usage->count; i++)
		if (strlen(usage->options[i].name) == length &&
		    memcmp(usage->options[i].name, name, length) == 0)
			return &usage->options[i];
	return NULL;
}

static int unknown_option(const struct option_usage *usage, const char *argument)
{
	char allowed[512];
	size_t length = 0;

	allowed[0] = '\0';
	for (size_t i = 0; i < usage->count; i++) {
		int n = snprintf(allowed + length, sizeof allowed - length, "--%s, ",
				 usage->options[i].name);
		if (n > 0 && length + (size_t)n < sizeof allowed)
			length += (size_t)n;
	}
	return ctl_usage("unknown option \"%s\"; allowed are %s--json, --socket, --help", argument,
			 allowed);
}

int options_common(struct ctl *ctl, const char *argument, const char *next, int *ret_status)
{
	if (strcmp(argument, "--json") == 0) {
		ctl->json = true;
		return 1;
	}
	if (strncmp(argument, "--socket=", 9) == 0) {
		ctl->socket = argument + 9;
		return 1;
	}
	if (strcmp(argument, "--socket") == 0) {
		if (!next) {
			*ret_status = ctl_usage("--socket needs a path");
			return -1;
		}
		ctl->socket = next;
		return 2;
	}
	return 0;
}

/* One argument of the command's own table; returns how many arguments it took, or -1. */
static int parse_own(const struct option_usage *usage, const char *argument, const char *next,
		     int *ret_status)
{
	const char *name = argument + 2, *equals = strchr(name, '=');
	const struct option *option =
		find_option(usage, name, equals ? (size_t)(equals - name) : strlen(name));
	const char *value = equals ? equals + 1 : NULL;
	int took = 1;

	if (!option) {
		*ret_status = unknown_option(usage, argument);
		return -1;
	}
	if (option->kind == OPTION_FLAG && value) {
		*ret_status = ctl_usage("--%s takes no value", option->name);
		return -1;
	}
	if (option->kind == OPTION_MAYBE && !value) {
		value = "";
	} else if (option->kind != OPTION_FLAG && !value) {
		if (!next) {
			*ret_status =
				ctl_usage("--%s needs a value: %s", option->name, option->argument);
			return -1;
		}
		value = next;
		took = 2;
	}
	*ret_status = set_value(option, value);
	return *ret_status == CTL_OK ? took : -1;
}

bool options_parse(struct ctl *ctl, const struct option_usage *usage, int argc, char **argv,
		   const char **ret_operand, int *ret_status)
{
	bool operands_only = false, operand_given = false;

	for (int i = 1; i < argc;) {
		const char *argument = argv[i], *next = i + 1 < argc ? argv[i + 1] : NULL;

		if (operands_only || argument[0] != '-' || argument[1] == '\0') {
			if (!usage->operand || operand_given) {
				*ret_status = ctl_usage("\"%s\" is one argument too many; usage: "
							"dmasyncctl %s",
							argument, usage->synopsis);
				return false;
			}
			*ret_operand = argument;
			operand_given = true;
			i++;
			continue;
		}
		if (strcmp(argument, "--help") == 0 || strcmp(argument, "-h") == 0) {
			print_help(usage);
			*ret_status = CTL_OK;
			return false;
		}
		if (strcmp(argument, "--") == 0) {
			operands_only = true;
			i++;
			continue;
		}
		if (argument[1] != '-') {
			*ret_status = unknown_option(usage, argument);
			return false;
		}

		int took = options_common(ctl, argument, next, ret_status);
		if (took == 0)
			took = parse_own(usage, argument, next, ret_status);
		if (took < 0)
			return false;
		i += took;
	}
	return true;
}
