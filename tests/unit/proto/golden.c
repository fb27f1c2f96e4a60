/* SPDX-License-Identifier: MIT */
/*
 * The examples of golden_messages.c against the bytes in golden/, both ways; the message table
 * against itself; and the ring's functions against the golden slots. One thread.
 *
 * `proto-golden --print NAME` prints a file for a new example, to be read before it is believed.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "daemon/histogram.h"
#include "golden.h"
#include "proto/ring_access.h"

#define LARGEST 8192

static const char *folder;

/* A file is "size N", then lines "OFFSET: BYTES", both in hex; what no line names is zero. */
static size_t load(const char *name, unsigned char bytes[LARGEST])
{
	char path[512], line[256];
	size_t size = 0;

	snprintf(path, sizeof path, "%s/%s.hex", folder, name);
	memset(bytes, 0, LARGEST);
	FILE *file = fopen(path, "re");

	if (!file)
		fail_msg("%s: %s", path, strerror(errno));
	while (fgets(line, sizeof line, file)) {
		char *at = line;

		if (strncmp(line, "size ", 5) == 0) {
			size = strtoul(line + 5, NULL, 10);
			continue;
		}
		if (line[0] == '#')
			continue;

		size_t offset = strtoul(line, &at, 16);

		assert_int_equal(*at, ':');
		for (at++; *at && *at != '\n'; offset++) {
			assert_true(offset < LARGEST);
			bytes[offset] = (unsigned char)strtoul(at, &at, 16);
		}
		assert_true(offset <= size);
	}
	fclose(file);
	assert_true(size > 0 && size <= LARGEST);
	return size;
}

static void print_case(const struct golden_case *example)
{
	const unsigned char *bytes = example->bytes;

	printf("size %zu\n", example->size);
	for (size_t line = 0; line < example->size; line += 16) {
		size_t end = line + 16 < example->size ? line + 16 : example->size;

		while (end > line && bytes[end - 1] == 0)
			end--;
		if (end == line)
			continue;
		printf("%04zx:", line);
		for (size_t i = line; i < end; i++)
			printf(" %02x", (unsigned int)bytes[i]);
		printf("\n");
	}
}

static const struct golden_case *find_case(const char *name)
{
	for (size_t i = 0; i < golden_case_count; i++) {
		if (strcmp(golden_cases[i].name, name) == 0)
			return &golden_cases[i];
	}
	return NULL;
}

static const struct layout_struct *find_struct(const char *name)
{
	for (size_t i = 0; i < layout_struct_count; i++) {
		if (strcmp(layout_structs[i].name, name) == 0)
			return &layout_structs[i];
	}
	fail_msg("layout.h has no struct %s", name);
	return NULL;
}

static void test_bytes(void **state)
{
	static unsigned char golden[LARGEST];

	(void)state;
	for (size_t i = 0; i < golden_case_count; i++) {
		const struct golden_case *example = &golden_cases[i];

		print_message("%s\n", example->name);
		assert_int_equal(load(example->name, golden), example->size);
		assert_memory_equal(golden, example->bytes, example->size);
	}
}

static uint64_t little_endian(const unsigned char *bytes, size_t size)
{
	uint64_t value = 0;

	for (size_t i = size; i > 0; i--)
		value = value << 8 | bytes[i - 1];
	return value;
}

static uint64_t native(const unsigned char *bytes, size_t size)
{
	uint16_t half;
	uint32_t word;
	uint64_t whole;

	switch (size) {
	case 1:
		return *bytes;
	case 2:
		memcpy(&half, bytes, sizeof half);
		return half;
	case 4:
		memcpy(&word, bytes, sizeof word);
		return word;
	default:
		memcpy(&whole, bytes, sizeof whole);
		return whole;
	}
}

/* As another implementation reads it: by the offsets of PROTOCOL.md, a byte at a time. */
static void test_parse(void **state)
{
	static unsigned char golden[LARGEST];

	(void)state;
	for (size_t i = 0; i < golden_case_count; i++) {
		const struct golden_case *example = &golden_cases[i];
		const struct layout_struct *type = find_struct(example->type);

		assert_true(example->size >= type->size);
		load(example->name, golden);
		for (size_t j = 0; j < type->field_count; j++) {
			const struct layout_field *field = &type->fields[j];

			if (field->element > 8) /* a struct of its own */
				continue;
			for (size_t at = 0; at < field->size; at += field->element)
				assert_int_equal(
					little_endian(golden + field->offset + at, field->element),
					native((const unsigned char *)example->bytes +
						       field->offset + at,
					       field->element));
		}
	}
}

/* Every struct has an example, and every opcode one of its request and one of its answer. */
static void test_complete(void **state)
{
	static const struct {
		uint16_t opcode;
		const char *request, *reply;
	} rows[] = {
#define ROW(name, opcode, handler, request, trailing, reply, ...) {opcode, #request, #reply},
		DMASYNC_MESSAGES(ROW)
#undef ROW
	};

	(void)state;
	assert_null(layout_check());
	for (size_t i = 0; i < layout_struct_count; i++) {
		bool found = false;

		for (size_t j = 0; j < golden_case_count; j++)
			found |= strcmp(golden_cases[j].type, layout_structs[i].name) == 0;
		if (!found)
			fail_msg("no example of struct %s", layout_structs[i].name);
	}
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		bool requested = false, answered = false;

		for (size_t j = 0; j < golden_case_count; j++) {
			const struct golden_case *example = &golden_cases[j];
			struct dmasync_message header;

			if (example->size < sizeof header)
				continue;
			memcpy(&header, example->bytes, sizeof header);
			if (header.opcode != rows[i].opcode || header.size != example->size)
				continue;
			requested |= header.flags == 0 &&
				     strcmp(example->type, rows[i].request + 7) == 0;
			answered |= header.flags == DMASYNC_MESSAGE_REPLY &&
				    strcmp(example->type, rows[i].reply + 7) == 0;
		}
		if (!requested || !answered)
			fail_msg("opcode %u has no example of %s", rows[i].opcode,
				 requested ? "its answer" : "its request");
	}
}

static void test_table(void **state)
{
	static const struct {
		uint32_t opcode, size, trailing, reply_size, fds_min, fds_max, reply_fds;
	} rows[] = {
#define ROW(name, opcode, handler, request, trailing, reply, min, max, reply_fds, row_state)       \
	{opcode, sizeof(request), trailing, sizeof(reply), min, max, reply_fds},
		DMASYNC_MESSAGES(ROW)
#undef ROW
	};
	const size_t count = sizeof rows / sizeof *rows;

	(void)state;
	for (size_t i = 0; i < count; i++) {
		/* Unique and without gaps: 1, 2, 3, ... so that a table by opcode has no holes. */
		assert_int_equal(rows[i].opcode, i + 1);
		assert_true(rows[i].size >= sizeof(struct dmasync_message));
		assert_true(rows[i].reply_size >= sizeof(struct dmasync_message));
		assert_true(rows[i].size % 8 == 0 && rows[i].reply_size % 8 == 0);
		assert_true(rows[i].trailing % 8 == 0);
		assert_true(rows[i].size + rows[i].trailing <= DMASYNC_MESSAGE_MAX);
		assert_true(rows[i].reply_size <= DMASYNC_MESSAGE_MAX);
		assert_true(rows[i].fds_min <= rows[i].fds_max);
		assert_true(rows[i].fds_max <= DMASYNC_MESSAGE_FDS);
		assert_true(rows[i].reply_fds <= DMASYNC_MESSAGE_FDS);
	}
	assert_true(sizeof(struct dmasync_clients_reply) +
			    DMASYNC_CLIENTS_PAGE * sizeof(struct dmasync_client_record) <=
		    DMASYNC_MESSAGE_MAX);
	assert_true(sizeof(struct dmasync_users_reply) +
			    DMASYNC_USERS_PAGE * sizeof(struct dmasync_user_record) <=
		    DMASYNC_MESSAGE_MAX);
	assert_true(sizeof(struct dmasync_batches_reply) +
			    DMASYNC_BATCHES_PAGE * sizeof(struct dmasync_batch_record) <=
		    DMASYNC_MESSAGE_MAX);
}

static void test_reasons(void **state)
{
	static const struct {
		int value, error;
		const char *text;
	} rows[] = {
#define ROW(name, value, error, text) {value, error, text},
		DMASYNC_REASONS(ROW)
#undef ROW
	};

	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		assert_int_equal(rows[i].value, i);
		assert_true(i == 0 ? rows[i].error == 0 : rows[i].error > 0);
		assert_true(rows[i].text[0]);
	}
}

/* The functions that write slots make the golden bytes, and those that read them understand. */
static void test_slots(void **state)
{
	static unsigned char golden[LARGEST];
	struct dmasync_ring_layout layout = {0};
	struct dmasync_ring ring = {0};
	struct dmasync_submission submission;
	struct dmasync_ring_completion completion;
	struct dmasync_unit unit;

	(void)state;
	assert_true(dmasync_ring_layout(2, 2, &layout));
	void *memory = aligned_alloc(DMASYNC_RING_PAGE, layout.size);

	assert_non_null(memory);
	memset(memory, 0, layout.size);
	dmasync_ring_attach(&ring, memory, &layout);
	dmasync_ring_initialise(&ring, &layout);

	load("submission", golden);
	memcpy(&submission, golden, sizeof submission);
	submission.seq = 0; /* not the caller's to say */
	dmasync_ring_submit(&ring, DMASYNC_RING_START, &submission);
	assert_memory_equal((char *)memory + layout.submissions_offset, golden, 64);
	dmasync_ring_copy_submission(&ring, DMASYNC_RING_START, &submission);
	assert_memory_equal(&submission, golden, sizeof submission);

	load("unit", golden);
	memcpy(&unit, golden, sizeof unit);
	assert_int_equal(unit.word,
			 dmasync_unit_word(0x030002, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0));
	assert_int_equal(unit.word | DMASYNC_UNIT_STRIDED,
			 dmasync_unit_word(0x030002, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 1));
	dmasync_ring_write_unit(&ring, 0xffffff05, &unit);
	assert_memory_equal((char *)memory + layout.units_offset + 16, golden, 16);

	load("completion", golden);
	memcpy(&completion, golden, sizeof completion);
	completion.seq = 0;
	dmasync_ring_complete(&ring, DMASYNC_RING_START, &completion);
	assert_memory_equal((char *)memory + layout.completions_offset, golden, 64);
	assert_int_equal(dmasync_ring_poll_completion(&ring, DMASYNC_RING_START, &completion),
			 DMASYNC_RING_READY);
	assert_int_equal(completion.bad_entry, DMASYNC_NO_ENTRY);
	completion.bad_entry = 0;
	assert_memory_equal(&completion, golden, sizeof completion);

	load("completion_extended", golden);
	memcpy(&completion, golden, sizeof completion);
	completion.seq = 0;
	dmasync_ring_complete(&ring, UINT32_MAX, &completion);
	assert_memory_equal((char *)memory + layout.completions_offset + 128, golden, 128);
	assert_int_equal(dmasync_ring_poll_completion(&ring, UINT32_MAX, &completion),
			 DMASYNC_RING_READY);
	assert_memory_equal(&completion, golden, sizeof completion);
	free(memory);
}

/* The first seqs of a ring, at every depth: position p finds p - depth in its slot. */
static void test_first_seqs(void **state)
{
	(void)state;
	for (uint32_t depth = DMASYNC_RING_MIN_DEPTH; depth <= DMASYNC_RING_MAX_DEPTH; depth *= 2) {
		struct dmasync_ring_layout layout = {0};
		struct dmasync_ring ring = {0};

		assert_true(dmasync_ring_layout(depth, 2, &layout));
		char *memory = aligned_alloc(DMASYNC_RING_PAGE, layout.size);

		assert_non_null(memory);
		memset(memory, 0, layout.size);
		dmasync_ring_attach(&ring, memory, &layout);
		dmasync_ring_initialise(&ring, &layout);
		for (uint32_t i = 0; i < depth; i++) {
			uint32_t position = UINT32_C(0xffffff00) + i;
			size_t slot = position % depth;
			const char *submission = memory + 4096 + slot * 64;
			const char *completion = memory + 4096 + depth * 64 + slot * 128;

			assert_int_equal(little_endian((const void *)submission, 4),
					 (uint32_t)(position - depth));
			assert_int_equal(little_endian((const void *)completion, 4),
					 (uint32_t)(position - depth));
		}
		assert_int_equal(little_endian((const void *)(memory + 128), 4), 0xffffff00);
		free(memory);
	}
}

/* The formula as PROTOCOL.md has it, in other words than the daemon's. */
static uint32_t bucket_by_the_page(uint64_t v)
{
	uint32_t e = 4;

	if (v < 16)
		return (uint32_t)v;
	if (v >= UINT64_C(1) << 40)
		return 591;
	while (v >= UINT64_C(2) << e)
		e++;
	return 16 * (e - 3) + (uint32_t)((v >> (e - 4)) % 16);
}

static void test_histogram(void **state)
{
	(void)state;
	for (uint32_t e = 0; e < 64; e++) {
		for (uint64_t step = 0; step < 64; step++) {
			uint64_t value = (UINT64_C(1) << e) + ((step << e) >> 6);

			for (uint64_t v = value - 1; v <= value + 1; v++)
				assert_int_equal(histogram_bucket(v), bucket_by_the_page(v));
		}
	}
	for (uint32_t b = 0; b < DMASYNC_HISTOGRAM_BUCKETS; b++) {
		uint32_t s = b < 16 ? 0 : b / 16 - 1;
		uint64_t last = b < 16 ? b : ((UINT64_C(17) + b % 16) << s) - 1;

		assert_int_equal(histogram_bucket_end(b), last);
		assert_int_equal(histogram_bucket(last), b);
		if (b + 1 < DMASYNC_HISTOGRAM_BUCKETS)
			assert_int_equal(histogram_bucket(last + 1), b + 1);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_bytes),	   cmocka_unit_test(test_parse),
		cmocka_unit_test(test_complete),   cmocka_unit_test(test_table),
		cmocka_unit_test(test_reasons),	   cmocka_unit_test(test_slots),
		cmocka_unit_test(test_first_seqs), cmocka_unit_test(test_histogram),
	};

	if (argc == 3 && strcmp(argv[1], "--print") == 0) {
		const struct golden_case *example = find_case(argv[2]);

		if (!example)
			return 1;
		print_case(example);
		return 0;
	}
	if (argc != 2) {
		fprintf(stderr, "usage: proto-golden FOLDER | --print NAME\n");
		return 2;
	}
	folder = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
