/* SPDX-License-Identifier: MIT */
/*
 * What the files of dmasync/iomem.h share, and what their tests reach. Any thread.
 */
#ifndef DMASYNC_CLIENT_IOMEM_H
#define DMASYNC_CLIENT_IOMEM_H

#include <dmasync/iomem.h>

#include "client/internal.h"

/* ---- iomem_barrier.c ---- */

/*
 * Do block writes need a barrier on the machine whose /sys lies below `root`? `midr`: what the
 * environment says of every CPU, or NULL. `arm64`: of this architecture.
 */
bool io_barrier_decide(const char *root, const char *midr, bool arm64);

/* ---- iomem_map.c ---- */

/* As dmasync_io_map(), with sysfs below `root`. */
int io_map_below(const char *root, const struct dmasync_io_map_params *params, void **ret_address,
		 uint64_t *ret_length);

#endif
