/* SPDX-License-Identifier: MIT */
/*
 * Does the cross compiler have its C library? Compiled when the build is configured, never run.
 */
#include <stdio.h>

int main(void)
{
	return puts("yes") < 0;
}
