/* SPDX-License-Identifier: MIT */
/*
 * How a forked child is told from the process that connected: one private page that the kernel
 * zeroes in the child. Read by every call, on any thread; costs one load and no system call.
 */
#include <sys/mman.h>

#include "client/internal.h"

int fork_guard_create(const uint32_t **ret)
{
	size_t size = (size_t)sysconf(_SC_PAGESIZE);
	uint32_t *page =
		mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return -errno;
	/*
	 * A child has no rings (MADV_DONTFORK) and must not answer for its parent on the socket. A
	 * process id kept aside would cost a system call per look, and pthread_atfork() is process
	 * wide and cannot be taken back.
	 */
	if (madvise(page, size, MADV_WIPEONFORK) < 0) {
		int r = -errno;

		munmap(page, size);
		return r;
	}
	*page = 1;
	*ret = page;
	return 0;
}

void fork_guard_free(const uint32_t *guard)
{
	if (guard)
		munmap((void *)(uintptr_t)guard, (size_t)sysconf(_SC_PAGESIZE));
}
