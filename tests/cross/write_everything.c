/* SPDX-License-Identifier: MIT */
/*
 * Every helper of dmasync/iomem.h at every alignment and length. One thread.
 */
#include "tests/cross/write_everything.h"

#include <dmasync/iomem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENTS 16u
#define LONGEST 257u
#define GUARD 24u
#define WINDOW (GUARD + ALIGNMENTS + LONGEST + GUARD + 7)

static unsigned char *device, source[WINDOW + ALIGNMENTS], expected[WINDOW];
static unsigned long compared;

/* The window before a write: neither zero nor what is written. */
static void prepare(void)
{
	for (size_t i = 0; i < WINDOW; i++)
		expected[i] = 0xee;
	dmasync_io_memset(device, 0xee, WINDOW, DMASYNC_IO_RELAXED);
}

static void compare(const char *what, size_t to, size_t from, size_t length)
{
	unsigned char seen[WINDOW];

	compared++;
	dmasync_io_read_from(seen, device, WINDOW);
	if (memcmp(seen, expected, WINDOW) == 0)
		return;
	for (size_t i = 0; i < WINDOW; i++) {
		if (seen[i] != expected[i])
			printf("%s: to %zu, from %zu, length %zu: byte %zu is %#x, not %#x\n", what,
			       to, from, length, i, seen[i], expected[i]);
	}
	exit(1);
}

static void blocks(size_t to, size_t length)
{
	prepare();
	memset(expected + to, 0x31, length);
	dmasync_io_memset(device + to, 0x31, length, 0);
	compare("memset", to, 0, length);
	for (size_t from = 0; from < ALIGNMENTS; from += 5) {
		prepare();
		memcpy(expected + to, source + from, length);
		dmasync_io_memcpy_to(device + to, source + from, length, 0);
		compare("memcpy_to", to, from, length);
	}
}

/* The word copies, where the address and the length are theirs. */
static void words(size_t to, size_t length)
{
	for (size_t from = 0; from < ALIGNMENTS; from += 5) {
		if (to % 4 == 0 && length % 4 == 0) {
			prepare();
			memcpy(expected + to, source + from, length);
			dmasync_io_write32_copy(device + to, source + from, length / 4, 0);
			compare("write32_copy", to, from, length);
		}
		if (to % 8 == 0 && length % 8 == 0) {
			prepare();
			memcpy(expected + to, source + from, length);
			dmasync_io_write64_copy(device + to, source + from, length / 8, 0);
			compare("write64_copy", to, from, length);
		}
	}
}

static void singles(size_t to)
{
	const uint64_t value = UINT64_C(0x0123456789abcdef);

	prepare();
	memcpy(expected + to, &value, 1);
	dmasync_io_write8(device + to, (uint8_t)value, 0);
	compare("write8", to, 0, 1);
	if (to % 2 == 0) {
		memcpy(expected + to, &value, 2);
		dmasync_io_write16(device + to, (uint16_t)value, 0);
		compare("write16", to, 0, 2);
	}
	if (to % 4 == 0) {
		memcpy(expected + to, &value, 4);
		dmasync_io_write32(device + to, (uint32_t)value, 0);
		compare("write32", to, 0, 4);
	}
	if (to % 8 == 0) {
		memcpy(expected + to, &value, 8);
		dmasync_io_write64(device + to, value, 0);
		compare("write64", to, 0, 8);
	}
}

/* From every alignment of the device's side. */
static void reads(void)
{
	unsigned char seen[WINDOW];

	dmasync_io_memcpy_to(device, source, WINDOW, 0);
	for (size_t from = 0; from < ALIGNMENTS; from++) {
		for (size_t length = 0; length <= LONGEST; length++) {
			memset(seen, 0xee, sizeof seen);
			dmasync_io_read_from(seen + 3, device + from, length);
			compared++;
			if (memcmp(seen + 3, source + from, length) != 0 || seen[2] != 0xee ||
			    seen[3 + length] != 0xee) {
				printf("read_from: from %zu, length %zu\n", from, length);
				exit(1);
			}
		}
	}
}

unsigned long write_everything(void *memory)
{
	device = memory;
	for (size_t i = 0; i < sizeof source; i++)
		source[i] = (unsigned char)(i * 37 + i / 256 + 1);
	for (size_t to = GUARD; to < GUARD + ALIGNMENTS; to++) {
		for (size_t bytes = 0; bytes <= LONGEST; bytes++) {
			blocks(to, bytes);
			words(to, bytes);
		}
		singles(to);
	}
	reads();
	return compared;
}
