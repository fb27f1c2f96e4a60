/* SPDX-License-Identifier: MIT */
/*
 * A daemon that does anything, in the client's own thread: it answers when the library sends, and
 * acts when the library waits. Time passes only so, too. What it does comes from the input. For
 * one connection at a time.
 */
#ifndef TESTS_FUZZ_HOSTILE_HERE_H
#define TESTS_FUZZ_HOSTILE_HERE_H

#include "fuzz.h"

void hostile_begin(struct input *input);
void hostile_act(void); /* one deed */
void hostile_end(void); /* lets go of all it has */
/* It writes into a pipe itself: whoever else raises SIGPIPE is the library, and must not. */
extern volatile bool hostile_writes;
/* Mappings that were made and not unmapped, its own included. */
int hostile_maps(void);

#endif
