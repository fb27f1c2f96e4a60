/* SPDX-License-Identifier: MIT */
/*
 * The contract of dmasync/iomem.h by content, on whatever memory: for guests and user emulation,
 * which have no cmocka. One thread.
 */
#ifndef TESTS_CROSS_WRITE_EVERYTHING_H
#define TESTS_CROSS_WRITE_EVERYTHING_H

/*
 * Writes the first kilobyte of `memory`, aligned to 8, with every helper at alignments 0 to 15 and
 * lengths 0 to 257, reads it back and compares; ends the program with 1 at the first difference.
 * Returns how many comparisons there were.
 */
unsigned long write_everything(void *memory);

#endif
