/* SPDX-License-Identifier: MIT */
/*
 * Whether the device tree calls a device's DMA coherent: the walk that of_dma_is_coherent() does
 * in Linux (drivers/of/address.c), on the copy of the tree in sysfs. Any thread.
 */
#ifndef DMASYNC_CTL_COHERENCE_H
#define DMASYNC_CTL_COHERENCE_H

#include <stdbool.h>

enum coherence {
	COHERENCE_UNKNOWN,
	COHERENCE_COHERENT,
	COHERENCE_NOT_COHERENT,
};

/* What an architecture takes a device for about which the tree says nothing. */
enum coherence_default {
	COHERENCE_ARCHITECTURE,	       /* always coherent: the tree is not asked (x86) */
	COHERENCE_DEFAULT_COHERENT,    /* riscv (CONFIG_ARCH_DMA_DEFAULT_COHERENT) */
	COHERENCE_DEFAULT_NOT_COHERENT /* arm64, arm */
};

struct coherence_answer {
	enum coherence coherence;
	char why[256];
};

/* Of the architecture this program was built for. */
extern const enum coherence_default coherence_here;

/*
 * `root`: "" or a directory that holds a copy of /sys. `device`: the device's directory below
 * <root>/sys/devices, without symbolic links.
 */
void coherence_of_device(const char *root, const char *device, enum coherence_default architecture,
			 struct coherence_answer *ret);

/* "coherent", "not coherent", "unknown" */
const char *coherence_name(enum coherence coherence);

#endif
