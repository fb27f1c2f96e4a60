/* SPDX-License-Identifier: MIT */
/*
 * Writes to device memory, by their content on ordinary memory: every alignment, every length,
 * every form, and nothing beside it. And which CPUs need a barrier. Needs no daemon. One thread,
 * where it does not say otherwise.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/iomem.h"

#define ALIGNMENTS 16u
#define LONGEST 257u
#define GUARD 32u
#define ROOM (GUARD + ALIGNMENTS + LONGEST + 7 + GUARD)

static const uint32_t forms[] = {
	0,
	DMASYNC_IO_ORDERED,
	DMASYNC_IO_FLUSH,
	DMASYNC_IO_RELAXED,
	DMASYNC_IO_EACH,
	DMASYNC_IO_EACH | DMASYNC_IO_ORDERED,
	DMASYNC_IO_EACH | DMASYNC_IO_FLUSH,
	DMASYNC_IO_ORDERED | DMASYNC_IO_FLUSH,
	UINT32_MAX,
	1u << 31,
};
#define FORMS (sizeof forms / sizeof forms[0])

static _Alignas(64) unsigned char memory[ROOM], expected[ROOM], source[ROOM];

static void fill(void)
{
	for (size_t i = 0; i < ROOM; i++) {
		memory[i] = expected[i] = (unsigned char)(0xa0 + i % 7);
		source[i] = (unsigned char)(i * 37 + i / 256 + 1);
	}
}

static void compare(const char *what, uint32_t form, size_t to, size_t from, size_t length)
{
	if (memcmp(memory, expected, ROOM) != 0)
		fail_msg("%s: flags %#x, to %zu, from %zu, length %zu", what, form, to, from,
			 length);
}

static void memset_writes_its_bytes_and_no_other(void **state)
{
	(void)state;
	for (size_t f = 0; f < FORMS; f++) {
		for (size_t to = GUARD; to < GUARD + ALIGNMENTS; to++) {
			for (size_t length = 0; length <= LONGEST; length++) {
				fill();
				memset(expected + to, 0x5c, length);
				/* As memset(): the lowest byte of the value. */
				dmasync_io_memset(memory + to, 0x75c, length, forms[f]);
				compare("memset", forms[f], to, 0, length);
			}
		}
	}
}

static void memcpy_to_copies_from_any_alignment(void **state)
{
	(void)state;
	for (size_t f = 0; f < FORMS; f++) {
		for (size_t to = GUARD; to < GUARD + ALIGNMENTS; to++) {
			for (size_t from = 0; from < ALIGNMENTS; from += f ? 5 : 1) {
				for (size_t length = 0; length <= LONGEST; length++) {
					fill();
					memcpy(expected + to, source + from, length);
					dmasync_io_memcpy_to(memory + to, source + from, length,
							     forms[f]);
					compare("memcpy_to", forms[f], to, from, length);
				}
			}
		}
	}
}

static void word_copies_from_any_alignment(void **state)
{
	(void)state;
	for (size_t f = 0; f < FORMS; f++) {
		for (size_t from = 0; from < ALIGNMENTS; from++) {
			for (size_t to = GUARD; to < GUARD + ALIGNMENTS; to += 4) {
				for (size_t words = 0; words <= LONGEST / 4; words++) {
					fill();
					memcpy(expected + to, source + from, 4 * words);
					dmasync_io_write32_copy(memory + to, source + from, words,
								forms[f]);
					compare("write32_copy", forms[f], to, from, words);
				}
			}
			for (size_t to = GUARD; to < GUARD + ALIGNMENTS; to += 8) {
				for (size_t words = 0; words <= LONGEST / 8; words++) {
					fill();
					memcpy(expected + to, source + from, 8 * words);
					dmasync_io_write64_copy(memory + to, source + from, words,
								forms[f]);
					compare("write64_copy", forms[f], to, from, words);
				}
			}
		}
	}
}

static void read_from_reads_any_alignment(void **state)
{
	(void)state;
	for (size_t to = GUARD; to < GUARD + ALIGNMENTS; to++) {
		for (size_t from = 0; from < ALIGNMENTS; from++) {
			for (size_t length = 0; length <= LONGEST; length++) {
				fill();
				memcpy(expected + to, source + from, length);
				dmasync_io_read_from(memory + to, source + from, length);
				compare("read_from", 0, to, from, length);
			}
		}
	}
}

static void single_writes(void **state)
{
	const uint64_t value = UINT64_C(0x8182838485868788);

	(void)state;
	for (size_t f = 0; f < FORMS; f++) {
		for (size_t to = GUARD; to < GUARD + ALIGNMENTS; to++) {
			fill();
			memcpy(expected + to, &value, 1);
			dmasync_io_write8(memory + to, (uint8_t)value, forms[f]);
			compare("write8", forms[f], to, 0, 1);
			if (to % 2 == 0) {
				memcpy(expected + to, &value, 2);
				dmasync_io_write16(memory + to, (uint16_t)value, forms[f]);
				compare("write16", forms[f], to, 0, 2);
			}
			if (to % 4 == 0) {
				memcpy(expected + to, &value, 4);
				dmasync_io_write32(memory + to, (uint32_t)value, forms[f]);
				compare("write32", forms[f], to, 0, 4);
			}
			if (to % 8 == 0) {
				memcpy(expected + to, &value, 8);
				dmasync_io_write64(memory + to, value, forms[f]);
				compare("write64", forms[f], to, 0, 8);
			}
		}
	}
}

/* ---- which CPUs need a barrier ---- */

static void write_midr(const char *root, const char *text)
{
	char path[256];
	FILE *file;

	snprintf(path, sizeof path, "mkdir -p %s/sys/devices/system/cpu/cpu0/regs/identification",
		 root);
	assert_int_equal(system(path), 0);
	snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu0/regs/identification/midr_el1",
		 root);
	file = fopen(path, "we");
	assert_non_null(file);
	fputs(text, file);
	fclose(file);
}

static void decided_by_midr(void **state)
{
	char root[] = "/tmp/dmasync-iomem-XXXXXX", command[64];

	(void)state;
	assert_non_null(mkdtemp(root));
	/* No MIDR at all: where there should be one, the barrier. */
	assert_true(io_barrier_decide(root, NULL, true));
	assert_false(io_barrier_decide(root, NULL, false));
	write_midr(root, "0x000000004e0f0100\n");
	assert_true(io_barrier_decide(root, NULL, true));
	assert_false(io_barrier_decide(root, NULL, false));
	write_midr(root, "0x00000000410fd0c1\n");
	assert_false(io_barrier_decide(root, NULL, true));
	/* The environment's word goes before, if it is one. */
	assert_true(io_barrier_decide(root, "0x4e0f0100", true));
	assert_true(io_barrier_decide(root, "0x4e2f0101", false));
	assert_true(io_barrier_decide(root, "1309606144", true));
	assert_false(io_barrier_decide(root, "0x410fd032", true));
	write_midr(root, "0x000000004e0f0100\n");
	assert_false(io_barrier_decide(root, "0x410fd032", true));
	assert_true(io_barrier_decide(root, "", true));
	assert_true(io_barrier_decide(root, "0x410fd032x", true));
	assert_true(io_barrier_decide(root, "-1", true));
	assert_true(io_barrier_decide(root, "0x1410fd032", true));
	snprintf(command, sizeof command, "rm -r %s", root);
	assert_int_equal(system(command), 0);
}

#define THREADS 8

static pthread_barrier_t together;

static void *ask(void *argument)
{
	(void)argument;
	pthread_barrier_wait(&together);
	return dmasync_io_needs_barrier() ? argument : NULL;
}

/* In a child, whose first call this is: all threads at once, and then for ever. */
static int first_calls(const char *midr, bool needed)
{
	static char yes;
	pthread_t threads[THREADS];
	int wrong = 0;

	setenv("DMASYNC_IO_MIDR", midr, 1);
	pthread_barrier_init(&together, NULL, THREADS);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, ask, &yes);
	for (int i = 0; i < THREADS; i++) {
		void *answer;

		pthread_join(threads[i], &answer);
		wrong += (answer != NULL) != needed;
	}
	setenv("DMASYNC_IO_MIDR", needed ? "0x410fd034" : "0x4e0f0100", 1);
	wrong += dmasync_io_needs_barrier() != needed;
	return wrong;
}

static void decided_once(void **state)
{
	(void)state;
	for (int needed = 0; needed < 2; needed++) {
		pid_t child = fork();
		int status;

		assert_true(child >= 0);
		if (child == 0)
			_exit(first_calls(needed ? "0x4e0f0100" : "0x410fd034", needed));
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(decided_once), /* first: its children must not have asked yet */
		cmocka_unit_test(decided_by_midr),
		cmocka_unit_test(memset_writes_its_bytes_and_no_other),
		cmocka_unit_test(memcpy_to_copies_from_any_alignment),
		cmocka_unit_test(word_copies_from_any_alignment),
		cmocka_unit_test(read_from_reads_any_alignment),
		cmocka_unit_test(single_writes),
	};

	return cmocka_run_group_tests_name("client-iomem", tests, NULL, NULL);
}
