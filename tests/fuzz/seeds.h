/* SPDX-License-Identifier: MIT */
/* A seed on its way into a file. One thread. */
#ifndef TESTS_FUZZ_SEEDS_H
#define TESTS_FUZZ_SEEDS_H

#include "fuzz.h"

struct seed {
	uint8_t bytes[16384];
	size_t size;
};

static inline void put(struct seed *seed, const void *bytes, size_t size)
{
	claim(seed->size + size <= sizeof seed->bytes);
	memcpy(seed->bytes + seed->size, bytes, size);
	seed->size += size;
}

static inline void put_u8(struct seed *seed, unsigned int value)
{
	put(seed, &(uint8_t){(uint8_t)value}, 1);
}

static inline void put_u16(struct seed *seed, unsigned int value)
{
	put(seed, &(uint16_t){(uint16_t)value}, 2);
}

static inline void put_u32(struct seed *seed, uint32_t value)
{
	put(seed, &value, 4);
}

/* Writes DIRECTORY/target/name-how. */
void seed_save(const struct seed *seed, const char *target, const char *name, const char *how);

/* seeds_entries.c: of the targets that take entries */
void seeds_write_batches(void);
void seeds_write_rings(void);
void seeds_write_clients(void);

#endif
