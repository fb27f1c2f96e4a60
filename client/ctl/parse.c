/* SPDX-License-Identifier: MIT */
/*
 * Numbers with units as people write them on a command line. Owns nothing.
 * Pure functions, any thread.
 */
#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client/ctl/parse.h"

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit sizes[] = {
	{"", 1},
	{"B", 1},
	{"K", UINT64_C(1) << 10},
	{"KiB", UINT64_C(1) << 10},
	{"M", UINT64_C(1) << 20},
	{"MiB", UINT64_C(1) << 20},
	{"G", UINT64_C(1) << 30},
	{"GiB", UINT64_C(1) << 30},
};

static const struct unit durations[] = {
	{"ns", 1},
	{"us", UINT64_C(1000)},
	{"ms", UINT64_C(1000000)},
	{"s", UINT64_C(1000000000)},
	{"min", UINT64_C(60000000000)},
};

/* The digits at *text; *text moves behind them. strtoull() alone would take "-1" and " 1". */
static int parse_digits(const char **text, int base, uint64_t *ret)
{
	char *end;

	if (base == 16 ? !isxdigit((unsigned char)**text) : !isdigit((unsigned char)**text))
		return -EINVAL;
	errno = 0;
	unsigned long long value = strtoull(*text, &end, base);
	if (errno == ERANGE)
		return -ERANGE;
	*text = end;
	*ret = value;
	return 0;
}

static const struct unit *find_unit(const char *name, const struct unit *units, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (strcasecmp(units[i].name, name) == 0)
			return &units[i];
	return NULL;
}

/* More digits behind the point would overflow what they are multiplied with. */
#define FRACTION_DIGITS 8

/* whole[.fraction]unit; what comes out below one byte or nanosecond is cut off. */
static int parse_with_unit(const char *text, const struct unit *units, size_t count, uint64_t *ret)
{
	uint64_t whole, numerator = 0, denominator = 1;
	int r = parse_digits(&text, 10, &whole);

	if (r < 0)
		return r;
	if (*text == '.') {
		const char *first = ++text;

		for (; isdigit((unsigned char)*text); text++) {
			if (text - first == FRACTION_DIGITS)
				return -EINVAL;
			numerator = numerator * 10 + (uint64_t)(*text - '0');
			denominator *= 10;
		}
		if (text == first)
			return -EINVAL;
	}

	const struct unit *unit = find_unit(text, units, count);
	if (!unit)
		return -EINVAL;
	if (__builtin_mul_overflow(whole, unit->factor, &whole) ||
	    __builtin_add_overflow(whole, unit->factor * numerator / denominator, &whole))
		return -ERANGE;
	*ret = whole;
	return 0;
}

int parse_count(const char *text, uint64_t *ret)
{
	uint64_t value;
	int base = 10;

	if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
		base = 16;
		text += 2;
	}
	int r = parse_digits(&text, base, &value);
	if (r < 0)
		return r;
	if (*text)
		return -EINVAL;
	*ret = value;
	return 0;
}

int parse_size(const char *text, uint64_t *ret)
{
	if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
		return parse_count(text, ret);
	return parse_with_unit(text, sizes, sizeof sizes / sizeof *sizes, ret);
}

int parse_duration(const char *text, uint64_t *ret_ns)
{
	if (strcmp(text, "0") == 0) {
		*ret_ns = 0;
		return 0;
	}
	return parse_with_unit(text, durations, sizeof durations / sizeof *durations, ret_ns);
}
