/* SPDX-License-Identifier: MIT */
/*
 * What the fuzz targets share: an input taken apart, and a claim that ends the process where it is
 * false. One thread.
 */
#ifndef TESTS_FUZZ_FUZZ_H
#define TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Each target's one function, as libFuzzer and replay.c call it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The finding is kept by libFuzzer as a file; replay.c says which input it was. */
#define claim(condition)                                                                           \
	do {                                                                                       \
		if (!(condition)) {                                                                \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);  \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

struct input {
	const uint8_t *data;
	size_t left;
};

/* What lies beyond the end is zero. */
static inline void input_copy(struct input *input, void *ret, size_t size)
{
	size_t there = input->left < size ? input->left : size;

	memset(ret, 0, size);
	if (there)
		memcpy(ret, input->data, there);
	input->data += there;
	input->left -= there;
}

static inline uint8_t input_u8(struct input *input)
{
	uint8_t value;

	input_copy(input, &value, sizeof value);
	return value;
}

static inline uint16_t input_u16(struct input *input)
{
	uint16_t value;

	input_copy(input, &value, sizeof value);
	return value;
}

static inline uint32_t input_u32(struct input *input)
{
	uint32_t value;

	input_copy(input, &value, sizeof value);
	return value;
}

/* How many fds the process has open. */
unsigned int open_fds(void);

#endif
