/* SPDX-License-Identifier: MIT */
/* The steps of an input of fuzz_control.c, for who writes seeds. Constant. */
#ifndef TESTS_FUZZ_FUZZ_CONTROL_H
#define TESTS_FUZZ_FUZZ_CONTROL_H

/* Bits 0 to 2 of a step's first byte; bits 3 and 4 are the slot, but for PROGRESS. */
enum fuzz_step {
	FUZZ_STEP_PACKET, /* then a byte of FUZZ_PACKET_*, one of fds, a length (16 bit), bytes */
	FUZZ_STEP_PACKET_TOO,
	FUZZ_STEP_CONNECT,
	FUZZ_STEP_GREET,    /* connects where it is not, HELLO, settles */
	FUZZ_STEP_LEAVE,    /* then a byte: 0 closes, 2 and 3 shut down one way */
	FUZZ_STEP_PROGRESS, /* bits 3 to 5: 0 loop, 2 workers, 4 a helper, 5 timers, 6 all */
	FUZZ_STEP_READ,	    /* bit 5: from now on it reads or does not */
	FUZZ_STEP_READ_NOW,
};

#define FUZZ_PACKET_RIGHT 1  /* size and flags are put right */
#define FUZZ_PACKET_NAMES 2  /* the last buffer's handle, queue's id, count of units filled in */
#define FUZZ_PACKET_SETTLE 4 /* until all is done */

/* Bits 0 to 2 of the byte of fds: what; bits 3 and 4: how many; 0xff: as many as there may be. */
enum fuzz_fd {
	FUZZ_FD_SEALED,
	FUZZ_FD_UNSEALED,
	FUZZ_FD_PIPE,
	FUZZ_FD_NULL,
	FUZZ_FD_SOCKET,
	FUZZ_FD_EMPTY,
	FUZZ_FD_LARGE,
	FUZZ_FD_UNEVEN,
};

#endif
