/* SPDX-License-Identifier: MIT */
/* write_everything() on ordinary memory, for user emulation of each architecture. */
#include <stdio.h>

#include "tests/cross/write_everything.h"

int main(void)
{
	static _Alignas(64) unsigned char memory[1024];

	printf("%lu writes and reads compared\n", write_everything(memory));
	return 0;
}
