/* SPDX-License-Identifier: MIT */
/*
 * mark N: executes the hint by which tests/arm64/count_plugin.c reports what ran since the last
 * one, 0 or 1. For scripts of a guest.
 */
int main(int argc, char **argv)
{
	if (argc == 2 && argv[1][0] == '0')
		__asm__ volatile("hint #96" ::: "memory");
	else if (argc == 2 && argv[1][0] == '1')
		__asm__ volatile("hint #97" ::: "memory");
	else
		return 2;
	return 0;
}
