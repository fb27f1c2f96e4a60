/* SPDX-License-Identifier: MIT */
/* Choosing the CPUs of the workers. Owns nothing. Control thread. */
#include "daemon/placement.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

static int choose_named(const char *list, const cpu_set_t *allowed, int cpus[CONFIG_CPUS_MAX],
			uint32_t *ret_count, char *text, size_t text_size)
{
	uint32_t named[CONFIG_CPUS_MAX], count;
	int r = config_parse_cpus(list, named, &count);

	if (r < 0) {
		snprintf(text, text_size, "cpus = %s: not a list of CPUs", list);
		return r;
	}
	for (uint32_t i = 0; i < count; i++) {
		if (!CPU_ISSET(named[i], allowed)) {
			snprintf(text, text_size,
				 "cpus = %s: CPU %" PRIu32
				 " is offline or not allowed for this process; see "
				 "Cpus_allowed_list in /proc/self/status",
				 list, named[i]);
			return -EINVAL;
		}
		cpus[i] = (int)named[i];
	}
	*ret_count = count;
	return 0;
}

int placement_choose(const struct config *config, const cpu_set_t *allowed,
		     int cpus[CONFIG_CPUS_MAX], uint32_t *ret_count, char *text, size_t text_size)
{
	uint32_t available = (uint32_t)CPU_COUNT(allowed);
	uint32_t count = config->workers, skip, found = 0;

	*text = '\0';
	if (config->cpus)
		return choose_named(config->cpus, allowed, cpus, ret_count, text, text_size);
	if (count > available) {
		snprintf(text, text_size,
			 "workers = %" PRIu32 ", but only %" PRIu32
			 " CPUs are allowed for this process: one worker for each of these",
			 count, available);
		count = available;
	}
	skip = available - count;
	for (int cpu = 0; cpu < CPU_SETSIZE && found < count; cpu++) {
		if (!CPU_ISSET((unsigned int)cpu, allowed))
			continue;
		if (skip > 0)
			skip--;
		else
			cpus[found++] = cpu;
	}
	*ret_count = found;
	return 0;
}

int placement_again(int home, const cpu_set_t *allowed, const cpu_set_t *taken)
{
	if (CPU_ISSET((unsigned int)home, allowed))
		return home;
	for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
		if (CPU_ISSET((unsigned int)cpu, allowed) && !CPU_ISSET((unsigned int)cpu, taken))
			return cpu;
	return -1;
}

void placement_beside(const cpu_set_t *allowed, const cpu_set_t *taken, cpu_set_t *ret)
{
	*ret = *allowed;
	for (unsigned cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, taken))
			CPU_CLR(cpu, ret);
	if (CPU_COUNT(ret) == 0)
		*ret = *allowed;
}
