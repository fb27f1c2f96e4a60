/* SPDX-License-Identifier: MIT */
/*
 * The calls of dmasync/iomem.h, each between marks that count_plugin.c knows, on ordinary memory.
 * Prints "needs a barrier" or "needs none", then the name of each case; what each must have
 * executed stands in check_stores_executed.py. The n-th case lies between the n-th pair of mark 0
 * and mark 1.
 */
#include <dmasync/iomem.h>
#include <stdio.h>

#define MARK(number) __asm__ volatile("hint #%c0" ::"i"(96 + (number)) : "memory")

/* The name is printed behind the marks: printing is many stores. */
#define CASE(name, call)                                                                           \
	do {                                                                                       \
		MARK(0);                                                                           \
		call;                                                                              \
		MARK(1);                                                                           \
		puts(name);                                                                        \
	} while (0)

static _Alignas(64) unsigned char memory[8192], source[8192];

int main(void)
{
	const uint32_t each = DMASYNC_IO_EACH | DMASYNC_IO_ORDERED;

	/* A store that has to fetch its page first is executed twice, and counted so. */
	for (size_t i = 0; i < sizeof memory; i++)
		*(volatile unsigned char *)&memory[i] = source[i] = (unsigned char)i;

	/* The first call finds out which CPUs there are. */
	puts(dmasync_io_needs_barrier() ? "needs a barrier" : "needs none");

	CASE("memset 4096", dmasync_io_memset(memory, 1, 4096, 0));
	CASE("memcpy_to 4096", dmasync_io_memcpy_to(memory, source, 4096, 0));
	CASE("memcpy_to 4096, source unaligned", dmasync_io_memcpy_to(memory, source + 3, 4096, 0));
	CASE("write64_copy 512", dmasync_io_write64_copy(memory, source, 512, 0));
	CASE("write32_copy 1024", dmasync_io_write32_copy(memory, source, 1024, 0));

	CASE("memset 4096, each", dmasync_io_memset(memory, 1, 4096, each));
	CASE("memcpy_to 4096, each", dmasync_io_memcpy_to(memory, source, 4096, each));
	CASE("write64_copy 512, each", dmasync_io_write64_copy(memory, source, 512, each));
	CASE("write32_copy 1024, each", dmasync_io_write32_copy(memory, source, 1024, each));
	CASE("memset 4096, each without ORDERED",
	     dmasync_io_memset(memory, 1, 4096, DMASYNC_IO_EACH));

	CASE("memset 4096, ordered", dmasync_io_memset(memory, 1, 4096, DMASYNC_IO_ORDERED));
	CASE("memset 4096, relaxed", dmasync_io_memset(memory, 1, 4096, DMASYNC_IO_RELAXED));
	CASE("memset 4096, flush", dmasync_io_memset(memory, 1, 4096, DMASYNC_IO_FLUSH));
	CASE("write64_copy 512, relaxed",
	     dmasync_io_write64_copy(memory, source, 512, DMASYNC_IO_RELAXED));

	/* 5 bytes to the next multiple of 8, 3 words, 4 bytes. */
	CASE("memset 33 at 3", dmasync_io_memset(memory + 3, 1, 33, 0));
	CASE("memcpy_to 33 at 3", dmasync_io_memcpy_to(memory + 3, source, 33, 0));
	CASE("memset 33 at 3, each", dmasync_io_memset(memory + 3, 1, 33, each));
	CASE("memset 4 at 3", dmasync_io_memset(memory + 3, 1, 4, 0));
	CASE("memset 0", dmasync_io_memset(memory, 1, 0, 0));

	CASE("write8", dmasync_io_write8(memory, 1, 0));
	CASE("write16", dmasync_io_write16(memory, 1, 0));
	CASE("write32", dmasync_io_write32(memory, 1, 0));
	CASE("write64", dmasync_io_write64(memory, 1, 0));
	CASE("write32, ordered", dmasync_io_write32(memory, 1, DMASYNC_IO_ORDERED));
	CASE("write32, relaxed", dmasync_io_write32(memory, 1, DMASYNC_IO_RELAXED));

	/* The way back stores to ordinary memory, in words. */
	CASE("read_from 4096", dmasync_io_read_from(memory, source, 4096));
	return 0;
}
