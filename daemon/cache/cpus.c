/* SPDX-License-Identifier: MIT */
/*
 * Lists of CPUs. Any thread.
 */
#include <errno.h>

#include "daemon/cache/cpus.h"

static int parse_number(const char **text, unsigned int *ret)
{
	const char *digit = *text;
	unsigned int value = 0;

	if (*digit < '0' || *digit > '9')
		return -EINVAL;
	for (; *digit >= '0' && *digit <= '9'; digit++) {
		value = value * 10 + (unsigned int)(*digit - '0');
		if (value >= CPU_SETSIZE)
			return -ERANGE;
	}
	*text = digit;
	*ret = value;
	return 0;
}

int cache_cpus_parse(const char *list, cpu_set_t *ret)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	for (;;) {
		unsigned int first, last;
		int r = parse_number(&list, &first);

		if (r < 0)
			return r;
		last = first;
		if (*list == '-') {
			list++;
			r = parse_number(&list, &last);
			if (r < 0)
				return r;
			if (last < first)
				return -EINVAL;
		}
		for (unsigned int cpu = first; cpu <= last; cpu++)
			CPU_SET(cpu, &set);
		if (*list == '\0')
			break;
		if (*list != ',')
			return -EINVAL;
		list++;
	}
	*ret = set;
	return 0;
}
