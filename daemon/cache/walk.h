/* SPDX-License-Identifier: MIT */
/*
 * The loop over the lines of a range: one inline function over a one-line operation, shared by
 * every architecture and by the tests, which swap the operation and never the loop. Any thread.
 */
#ifndef DMASYNC_CACHE_WALK_H
#define DMASYNC_CACHE_WALK_H

#include <stddef.h>
#include <stdint.h>

/*
 * What is done to one line, by its address. An instruction needs no more; `line`, its size, is for
 * operations in software.
 */
typedef void cache_line_op(uintptr_t address, size_t line);

#define CACHE_WALK_INLINE static inline __attribute__((always_inline))

/* Four lines; returns the address after them. */
CACHE_WALK_INLINE uintptr_t cache_walk_four(uintptr_t address, size_t line, cache_line_op *op)
{
	op(address, line);
	address += line;
	op(address, line);
	address += line;
	op(address, line);
	address += line;
	op(address, line);
	return address + line;
}

/*
 * [start, end), both multiples of `line`. `op` is a constant where this is inlined, so that the
 * instruction itself stands in the loop.
 *
 * Sixteen lines a turn: an operation takes its address from a register, so each line costs the
 * instruction and one addition, and comparing and branching are shared by sixteen.
 */
CACHE_WALK_INLINE void cache_walk(uintptr_t start, uintptr_t end, size_t line, cache_line_op *op)
{
	uintptr_t address = start;
	/* Half of the address space at most, so signed; an address ahead could lie beyond its top.
	 */
	intptr_t turn = (intptr_t)(16 * line);
	intptr_t left = (intptr_t)(end - start) - turn;

	for (; left >= 0; left -= turn) {
		address = cache_walk_four(address, line, op);
		address = cache_walk_four(address, line, op);
		address = cache_walk_four(address, line, op);
		address = cache_walk_four(address, line, op);
	}
	for (; address != end; address += line)
		op(address, line);
}

#endif
