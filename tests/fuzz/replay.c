/* SPDX-License-Identifier: MIT */
/*
 * A target without libFuzzer, for any compiler: runs the inputs that stand in files and folders,
 * and so many changed ones after each. Files *.hex are hex digits with # comments: findings that
 * became tests (tests/fuzz/found). One thread.
 *
 * usage: fuzz-TARGET [--changed=N] FILE-OR-FOLDER...
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"

#define LARGEST 65536

static const char *current;
static uint64_t change; /* of the current file; 0: none */
static unsigned long inputs;
static unsigned long changed;

/* A status as a test that fails has it. */
static void say_where(int number)
{
	char text[512];
	int n = snprintf(text, sizeof text, "\nthe input was %s, change %llu\n", current,
			 (unsigned long long)change);

	(void)number;
	(void)!write(2, text, (size_t)n);
	_exit(1);
}

static size_t read_hex(const uint8_t *text, size_t size, uint8_t *bytes)
{
	size_t count = 0, digits = 0;

	for (size_t i = 0; i < size; i++) {
		if (text[i] == '#')
			while (i < size && text[i] != '\n')
				i++;
		if (i == size || !isxdigit(text[i]))
			continue;
		int digit = isdigit(text[i]) ? text[i] - '0' : tolower(text[i]) - 'a' + 10;

		bytes[count] = (uint8_t)(bytes[count] << 4 | digit);
		if (++digits % 2 == 0)
			count++;
	}
	return count;
}

static uint32_t next_random(uint64_t *state)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*state >> 33);
}

/* The same ones each time: cut, filled, bits turned, small numbers put in. */
static size_t change_bytes(const uint8_t *bytes, size_t size, uint8_t *out)
{
	uint64_t state = change;
	size_t length = size;

	memcpy(out, bytes, size);
	for (uint32_t i = next_random(&state) % 4 + 1; i > 0; i--) {
		size_t at = next_random(&state) % (length + 1);

		switch (next_random(&state) % 5) {
		case 0:
			length = at;
			break;
		case 1:
			if (at < length)
				out[at] ^= (uint8_t)(1u << next_random(&state) % 8);
			break;
		case 2:
			if (at < length)
				out[at] = (uint8_t)(next_random(&state) % 4 - 1);
			break;
		case 3:
			if (length < LARGEST)
				out[length++] = (uint8_t)next_random(&state);
			break;
		case 4: /* from elsewhere in it */
			for (size_t j = at, from = next_random(&state) % (length + 1);
			     j < length && from < length && j < at + 8; j++, from++)
				out[j] = out[from];
			break;
		}
	}
	return length;
}

static void run(const uint8_t *bytes, size_t size)
{
	/* A copy of its very size, so that a sanitizer sees a read beyond it. */
	uint8_t *copy = malloc(size ? size : 1);

	claim(copy);
	memcpy(copy, bytes, size);
	LLVMFuzzerTestOneInput(copy, size);
	free(copy);
	inputs++;
}

static void run_file(const char *path)
{
	static uint8_t text[4 * LARGEST], bytes[LARGEST + 1], out[LARGEST + 1];
	FILE *file = fopen(path, "re");
	size_t length = strlen(path), size;

	if (!file) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		exit(1);
	}
	size = fread(text, 1, sizeof text, file);
	fclose(file);
	memset(bytes, 0, sizeof bytes);
	if (length > 4 && strcmp(path + length - 4, ".hex") == 0)
		size = read_hex(text, size < LARGEST * 2 ? size : LARGEST * 2, bytes);
	else
		memcpy(bytes, text, size = size < LARGEST ? size : LARGEST);
	current = path;
	change = 0;
	run(bytes, size);
	for (change = 1; change <= changed; change++)
		run(out, change_bytes(bytes, size, out));
}

static void run_path(const char *path)
{
	struct dirent **names;
	struct stat what;
	int count;

	if (stat(path, &what) < 0) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		exit(1);
	}
	if (!S_ISDIR(what.st_mode)) {
		run_file(path);
		return;
	}
	count = scandir(path, &names, NULL, alphasort);
	for (int i = 0; i < count; i++) {
		char inside[4096];

		snprintf(inside, sizeof inside, "%s/%s", path, names[i]->d_name);
		if (names[i]->d_name[0] != '.' && strcmp(names[i]->d_name, "README.md"))
			run_file(inside);
		free(names[i]);
	}
	if (count >= 0)
		free(names);
}

int main(int argc, char **argv)
{
	signal(SIGABRT, say_where);
	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], "--changed=", 10) == 0)
			changed = strtoul(argv[i] + 10, NULL, 10);
		else
			run_path(argv[i]);
	}
	printf("%lu inputs, all through\n", inputs);
	return inputs == 0;
}
