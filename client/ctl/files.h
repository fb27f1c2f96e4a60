/* SPDX-License-Identifier: MIT */
/* The buffers that a command line names: a path, or a number of an inherited fd. Main thread. */
#ifndef DMASYNC_CTL_FILES_H
#define DMASYNC_CTL_FILES_H

/* Both return CTL_OK with a new fd that the caller closes, or tell why not and return CTL_FAILED.
 */
int files_open(const char *path, int *ret_fd);
int files_inherited(int fd, int *ret_fd);

#endif
