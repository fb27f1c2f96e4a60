/* SPDX-License-Identifier: MIT */
/*
 * A close that does not wait: for sockets with fds in them that nobody has received. Owns the
 * handler of SIGALRM. Helper threads.
 */
#ifndef DMASYNC_CLOSE_FILE_H
#define DMASYNC_CLOSE_FILE_H

/* Once, before threads start. Negative errno. */
int close_file_install(void);

/*
 * Interrupts what waits in the kernel (a TCP socket that lingers waits for its peer as long as its
 * owner likes). What was to be let go of is let go of all the same.
 */
void close_file(int fd);

#endif
