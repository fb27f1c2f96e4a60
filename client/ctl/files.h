/* SPDX-License-Identifier: MIT */
/* The buffers that a command line names: a path, or a number of an inherited fd. Main thread. */
#ifndef DMASYNC_CTL_FILES_H
#define DMASYNC_CTL_FILES_H

#include <stdint.h>

#define FILES_NO_FD UINT64_MAX

/*
 * Opens `path` or duplicates `fd`, of which at most one may be given (NULL, FILES_NO_FD): a new fd
 * that the caller closes, or -1 where neither is. CTL_OK, or all was said.
 */
int files_choose(const char *path, uint64_t fd, int *ret_fd);

#endif
