/* SPDX-License-Identifier: MIT */
/*
 * CPUs on which line operations need special treatment, told by their MIDR. Any thread.
 */
#ifndef DMASYNC_CACHE_ERRATA_H
#define DMASYNC_CACHE_ERRATA_H

#define CACHE_ERRATA_SYSFS "/sys/devices/system/cpu"

/*
 * Is there a CPU for whose sake the kernel traps the line operations of EL0? Linux then does so on
 * every CPU of the machine. Returns the CPU and its errata in words, constant; NULL where there is
 * none. `sysfs`: CACHE_ERRATA_SYSFS, or a copy of it in tests.
 */
const char *cache_errata_trapping(const char *sysfs);

#endif
