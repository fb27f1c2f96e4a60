/* SPDX-License-Identifier: MIT */
/*
 * The block writes as plain loops, which compilers turn into something else: check_stores.py has to
 * refuse each. Never run.
 */
#include <stddef.h>
#include <stdint.h>

#include <dmasync/iomem.h>

void dmasync_io_memset(volatile void *to, int value, size_t length, uint32_t flags)
{
	unsigned char *bytes = (unsigned char *)(uintptr_t)to;

	(void)flags;
	for (size_t i = 0; i < length; i++)
		bytes[i] = (unsigned char)value;
}

void dmasync_io_memcpy_to(volatile void *to, const void *from, size_t length, uint32_t flags)
{
	unsigned char *restrict bytes = (unsigned char *)(uintptr_t)to;
	const unsigned char *source = from;

	(void)flags;
	for (size_t i = 0; i < length; i++)
		bytes[i] = source[i];
}

void dmasync_io_write32_copy(volatile void *to, const void *from, size_t words, uint32_t flags)
{
	uint32_t *restrict target = (uint32_t *)(uintptr_t)to;
	const uint32_t *source = from;

	(void)flags;
	for (size_t i = 0; i < words; i++)
		target[i] = source[i];
}

void dmasync_io_write64_copy(volatile void *to, const void *from, size_t words, uint32_t flags)
{
	uint64_t *restrict target = (uint64_t *)(uintptr_t)to;
	const uint64_t *source = from;

	(void)flags;
	for (size_t i = 0; i < words; i++)
		target[i] = source[i];
}
