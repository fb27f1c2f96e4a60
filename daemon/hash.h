/* SPDX-License-Identifier: MIT */
/*
 * Spreads keys over the lists of a table: addresses and ids, which are alike in most of their bits.
 * Not against who can choose the keys: clients choose none of those it is used for.
 */
#ifndef DMASYNC_HASH_H
#define DMASYNC_HASH_H

#include <stdint.h>

#define HASH_BITS 8u
#define HASH_LISTS (1u << HASH_BITS)

static inline uint32_t hash(uint64_t key)
{
	/* By the golden ratio; the highest bits depend on all of the key. */
	return (uint32_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> (64 - HASH_BITS));
}

#endif
