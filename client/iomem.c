/* SPDX-License-Identifier: MIT */
/*
 * Writes to device memory: the block helpers and the single ones. No state but what
 * iomem_barrier.c has found out. Any thread.
 */
#include "client/iomem.h"
#include "client/iomem_store.h"

/* What stands between and behind the stores of a call. */
enum form {
	PLAIN,	      /* nothing */
	ORDER,	      /* io_order() behind the last */
	FLUSH,	      /* io_flush() behind the last */
	EACH_ORDERED, /* every store ordered before later loads */
	EACH_FLUSHED, /* io_flush() after every store */
};

static enum form form_of(uint32_t flags)
{
	bool each = flags & DMASYNC_IO_EACH;

	if (flags & DMASYNC_IO_ORDERED ||
	    (!(flags & DMASYNC_IO_RELAXED) && dmasync_io_needs_barrier()))
		return each ? EACH_ORDERED : ORDER;
	if (flags & DMASYNC_IO_FLUSH)
		return each ? EACH_FLUSHED : FLUSH;
	return PLAIN;
}

/* `form` is a constant wherever these are inlined. */
#define STORE(bits)                                                                                \
	IO_INLINE void store##bits(volatile char *to, uint##bits##_t value, enum form form)        \
	{                                                                                          \
		if (form == EACH_ORDERED)                                                          \
			io_store##bits##_ordered(to, value);                                       \
		else                                                                               \
			io_store##bits(to, value);                                                 \
		if (form == EACH_FLUSHED)                                                          \
			io_flush();                                                                \
	}
STORE(8)
STORE(32)
STORE(64)

static void finish(enum form form)
{
	if (form == ORDER)
		io_order();
	else if (form == FLUSH)
		io_flush();
}

/* Bytes until a multiple of 8. */
static size_t bytes_to_word(uintptr_t address, size_t length)
{
	size_t bytes = -address & 7;

	return bytes < length ? bytes : length;
}

static uint32_t load32_plain(const char *from)
{
	uint32_t value;

	memcpy(&value, from, sizeof value);
	return value;
}

static uint64_t load64_plain(const char *from)
{
	uint64_t value;

	memcpy(&value, from, sizeof value);
	return value;
}

IO_INLINE void set_block(volatile char *to, uint8_t value, size_t length, enum form form)
{
	uint64_t word = UINT64_C(0x0101010101010101) * value;
	size_t bytes = bytes_to_word((uintptr_t)to, length);

	length -= bytes;
	for (; bytes; bytes--)
		store8(to++, value, form);
	for (; length >= 8; length -= 8, to += 8)
		store64(to, word, form);
	for (; length; length--)
		store8(to++, value, form);
}

IO_INLINE void copy_block(volatile char *to, const char *from, size_t length, enum form form)
{
	size_t bytes = bytes_to_word((uintptr_t)to, length);

	length -= bytes;
	for (; bytes; bytes--)
		store8(to++, (uint8_t)*from++, form);
	for (; length >= 8; length -= 8, to += 8, from += 8)
		store64(to, load64_plain(from), form);
	for (; length; length--)
		store8(to++, (uint8_t)*from++, form);
}

IO_INLINE void copy_words32(volatile char *to, const char *from, size_t words, enum form form)
{
	for (; words; words--, to += 4, from += 4)
		store32(to, load32_plain(from), form);
}

IO_INLINE void copy_words64(volatile char *to, const char *from, size_t words, enum form form)
{
	for (; words; words--, to += 8, from += 8)
		store64(to, load64_plain(from), form);
}

/* One loop for each kind of store; what stands behind the last is not the loop's. */
#define IN_FORM(form, call, ...)                                                                   \
	do {                                                                                       \
		switch (form) {                                                                    \
		case PLAIN:                                                                        \
		case ORDER:                                                                        \
		case FLUSH:                                                                        \
			call(__VA_ARGS__, PLAIN);                                                  \
			break;                                                                     \
		case EACH_ORDERED:                                                                 \
			call(__VA_ARGS__, EACH_ORDERED);                                           \
			break;                                                                     \
		case EACH_FLUSHED:                                                                 \
			call(__VA_ARGS__, EACH_FLUSHED);                                           \
			break;                                                                     \
		}                                                                                  \
	} while (0)

DMASYNC_PUBLIC void dmasync_io_memset(volatile void *to, int value, size_t length, uint32_t flags)
{
	enum form form = form_of(flags);

	IN_FORM(form, set_block, to, (uint8_t)value, length);
	finish(form);
}

DMASYNC_PUBLIC void dmasync_io_memcpy_to(volatile void *to, const void *from, size_t length,
					 uint32_t flags)
{
	enum form form = form_of(flags);

	IN_FORM(form, copy_block, to, from, length);
	finish(form);
}

/* The hint that a copy ends in where nothing stronger does. */
static void finish_copy(enum form form)
{
	finish(form == PLAIN && IO_FLUSH_IS_HINT ? FLUSH : form);
}

DMASYNC_PUBLIC void dmasync_io_write32_copy(volatile void *to, const void *from, size_t words,
					    uint32_t flags)
{
	enum form form = form_of(flags);

	IN_FORM(form, copy_words32, to, from, words);
	finish_copy(form);
}

DMASYNC_PUBLIC void dmasync_io_write64_copy(volatile void *to, const void *from, size_t words,
					    uint32_t flags)
{
	enum form form = form_of(flags);

	IN_FORM(form, copy_words64, to, from, words);
	finish_copy(form);
}

DMASYNC_PUBLIC void dmasync_io_read_from(void *to, const volatile void *from, size_t length)
{
	const volatile char *device = from;
	char *out = to;
	size_t bytes = bytes_to_word((uintptr_t)device, length);

	length -= bytes;
	for (; bytes; bytes--)
		*out++ = (char)io_load8(device++);
	for (; length >= 8; length -= 8, device += 8, out += 8) {
		uint64_t word = io_load64(device);

		memcpy(out, &word, sizeof word);
	}
	for (; length; length--)
		*out++ = (char)io_load8(device++);
}

/*
 * Earlier stores first, then this one. ORDERED holds later loads back also where the store itself,
 * released for the erratum, would do: the architecture does not say so.
 */
#define WRITE(bits)                                                                                \
	DMASYNC_PUBLIC void dmasync_io_write##bits(volatile void *to, uint##bits##_t value,        \
						   uint32_t flags)                                 \
	{                                                                                          \
		io_stores_first();                                                                 \
		if (!(flags & (DMASYNC_IO_RELAXED | DMASYNC_IO_ORDERED)) &&                        \
		    dmasync_io_needs_barrier())                                                    \
			io_store##bits##_ordered(to, value);                                       \
		else                                                                               \
			io_store##bits(to, value);                                                 \
		if (flags & DMASYNC_IO_ORDERED)                                                    \
			io_order();                                                                \
		else if (flags & DMASYNC_IO_FLUSH)                                                 \
			io_flush();                                                                \
	}
WRITE(8)
WRITE(16)
WRITE(32)
WRITE(64)
