/* SPDX-License-Identifier: MIT */
/*
 * Bad batches, written straight into the ring: each reason with its errno and the index of the bad
 * entry, no line touched, the connection and its queue alive. One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/e2e/support.h"

enum { SIZE = 65536, UNITS = 16, MAX_LINES = 2048 };

static struct harness_daemon server;
static struct raw raw;
static struct raw_memory memory;
static struct raw_queue queue;

static void begin(void)
{
	/* More lines than the buffer has, in several entries, are needed to exceed the limit. */
	harness_daemon_start(&server,
			     "[daemon]\nallow_simulated = yes\n[limits]\nmax_batch_lines = 2048\n",
			     NULL);
	raw_open(&raw, server.socket);
	check_int(raw.hello.max_batch_lines, MAX_LINES);
	raw_memory_alloc(&memory, &raw, SIZE);
	raw_queue_open(&queue, &raw, 4, UNITS);
}

static void end(void)
{
	raw_queue_close(&queue);
	raw_memory_free(&memory);
	raw_close(&raw);
	harness_daemon_stop(&server);
}

static struct dmasync_unit good(uint64_t offset, uint32_t length)
{
	return raw_unit(memory.handle, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, offset, length);
}

static void dirty(void)
{
	static uint8_t value;

	memset(memory.device, 0, SIZE);
	memset(memory.cpu, ++value | 0x80, SIZE);
}

static void check_untouched(const char *what)
{
	for (size_t i = 0; i < SIZE; i++)
		if (memory.device[i] != 0)
			fail_case("%s: byte %zu of the device's side was written", what, i);
}

/* The queue still works, and the batch it carries is whole. */
static void check_alive(const char *what)
{
	struct dmasync_unit unit = good(0, SIZE);
	struct dmasync_ring_completion done;

	raw_submit(&queue, &unit, 1, 77);
	raw_wait(&queue, &done);
	if (done.status != 0 || done.user_data != 77 || done.lines != SIZE / LINE)
		fail_case("%s: the good batch after it ended with status %d", what, done.status);
	check_int(memcmp(memory.device, memory.cpu, SIZE), 0);
}

static void expect_refusal(const struct dmasync_unit *units, uint32_t count,
			   struct dmasync_submission *submission, enum dmasync_reason reason,
			   uint32_t bad_entry)
{
	static const struct {
		const char *name;
		int error;
	} reasons[] = {
#define REASON(name, value, error, text) [value] = {#name, error},
		DMASYNC_REASONS(REASON)
#undef REASON
	};
	struct dmasync_ring_completion done;

	dirty();
	submission->user_data = 0x1122334455667788;
	raw_publish(&queue, units, count, submission);
	raw_wait(&queue, &done);
	if (done.reason != reason || done.bad_entry != bad_entry ||
	    done.status != -reasons[reason].error)
		fail_case("%s at entry %d: answered with status %d, reason %u, entry %d",
			  reasons[reason].name, (int)bad_entry, done.status, done.reason,
			  (int)done.bad_entry);
	check_int(done.user_data, 0x1122334455667788);
	check_int(done.lines, 0);
	check(done.flags & DMASYNC_COMPLETION_EXTENDED);
	check_untouched(reasons[reason].name);
	check_alive(reasons[reason].name);
}

/* `bad` as the last of three entries: the two good ones before it must not be done. */
static void expect_bad_entry(const struct dmasync_unit *bad, uint32_t bad_count,
			     enum dmasync_reason reason)
{
	struct dmasync_unit units[4] = {good(0, 4096), good(8192, 4096)};
	struct dmasync_submission submission = {
		.unit_position = queue.unit_position,
		.unit_count = 2 + bad_count,
	};

	memcpy(&units[2], bad, bad_count * sizeof *bad);
	expect_refusal(units, 2 + bad_count, &submission, reason, 2);

	/* Alone, inside its submission. */
	if (bad_count == 1 && !(bad->word & DMASYNC_UNIT_STRIDED)) {
		struct dmasync_submission alone = {.entry = *bad};

		expect_refusal(NULL, 0, &alone, reason, 0);
	}
}

static void expect_bad_unit(struct dmasync_unit bad, enum dmasync_reason reason)
{
	expect_bad_entry(&bad, 1, reason);
}

static void expect_bad_rows(uint64_t offset, uint32_t length, struct dmasync_unit_rows rows,
			    enum dmasync_reason reason)
{
	struct dmasync_unit bad[2] = {good(offset, length)};

	bad[0].word |= DMASYNC_UNIT_STRIDED;
	memcpy(&bad[1], &rows, sizeof rows);
	expect_bad_entry(bad, 2, reason);
}

static void bad_entries(void)
{
	struct dmasync_unit unit;

	begin();
	unit = good(0, 64);
	unit.word = (unit.word & ~DMASYNC_UNIT_BUFFER_MASK) | ((memory.handle + 1) & 0xffffff);
	expect_bad_unit(unit, DMASYNC_REASON_UNKNOWN_BUFFER);
	unit.word = (unit.word & ~DMASYNC_UNIT_BUFFER_MASK) | (memory.handle ^ (1u << 20));
	expect_bad_unit(unit, DMASYNC_REASON_UNKNOWN_BUFFER);
	unit.word = unit.word & ~DMASYNC_UNIT_BUFFER_MASK;
	expect_bad_unit(unit, DMASYNC_REASON_UNKNOWN_BUFFER);

	unit = good(0, 64);
	unit.word &= ~(3u << DMASYNC_UNIT_SYNC_SHIFT);
	expect_bad_unit(unit, DMASYNC_REASON_BAD_SYNC);
	unit.word |= 3u << DMASYNC_UNIT_SYNC_SHIFT;
	expect_bad_unit(unit, DMASYNC_REASON_BAD_SYNC);

	unit = good(0, 64);
	unit.word &= ~(3u << DMASYNC_UNIT_DIRECTION_SHIFT);
	expect_bad_unit(unit, DMASYNC_REASON_BAD_DIRECTION);

	for (uint32_t bit = 29; bit < 32; bit++) {
		unit = good(0, 64);
		unit.word |= 1u << bit;
		expect_bad_unit(unit, DMASYNC_REASON_RESERVED_BITS);
	}
	end();
}

static void bad_ranges(void)
{
	static const struct {
		uint64_t offset;
		uint32_t length;
		enum dmasync_reason reason;
	} bad[] = {
		{SIZE, 1, DMASYNC_REASON_OUT_OF_RANGE},
		{SIZE + 1, 0, DMASYNC_REASON_OUT_OF_RANGE},
		{SIZE - 1, 2, DMASYNC_REASON_OUT_OF_RANGE},
		{SIZE - 63, 64, DMASYNC_REASON_OUT_OF_RANGE},
		{0, SIZE + 1, DMASYNC_REASON_OUT_OF_RANGE},
		{0, UINT32_MAX, DMASYNC_REASON_OUT_OF_RANGE},
		{UINT32_MAX, 64, DMASYNC_REASON_OUT_OF_RANGE},
		{UINT64_C(1) << 32, 64, DMASYNC_REASON_OUT_OF_RANGE},
		{UINT64_MAX - 64, 64, DMASYNC_REASON_OUT_OF_RANGE},
		{UINT64_MAX - 62, 64, DMASYNC_REASON_OVERFLOW},
		{UINT64_MAX, UINT32_MAX, DMASYNC_REASON_OVERFLOW},
	};

	begin();
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		expect_bad_unit(good(bad[i].offset, bad[i].length), bad[i].reason);
	end();
}

static void bad_rows(void)
{
	static const struct {
		uint64_t offset;
		uint32_t length;
		struct dmasync_unit_rows rows;
		enum dmasync_reason reason;
	} bad[] = {
		{0, 64, {.rows = 0, .stride = 64}, DMASYNC_REASON_BAD_STRIDE},
		{0, 64, {.rows = 2, .stride = 63}, DMASYNC_REASON_BAD_STRIDE},
		{0, 64, {.rows = 2, .stride = 0}, DMASYNC_REASON_BAD_STRIDE},
		{0, 64, {.rows = 2, .reserved = 1, .stride = 64}, DMASYNC_REASON_RESERVED_BITS},
		{0, 64, {.rows = 1025, .stride = 64}, DMASYNC_REASON_OUT_OF_RANGE},
		{1, 64, {.rows = 1024, .stride = 64}, DMASYNC_REASON_OUT_OF_RANGE},
		{0, 64, {.rows = 2, .stride = SIZE - 63}, DMASYNC_REASON_OUT_OF_RANGE},
		{0, 64, {.rows = UINT32_MAX, .stride = 64}, DMASYNC_REASON_OUT_OF_RANGE},
		{0, 64, {.rows = 3, .stride = UINT64_MAX / 2}, DMASYNC_REASON_OVERFLOW},
		{0, 64, {.rows = 5, .stride = UINT64_MAX / 4 + 1}, DMASYNC_REASON_OVERFLOW},
		{0, 64, {.rows = UINT32_MAX, .stride = UINT64_MAX}, DMASYNC_REASON_OVERFLOW},
		{64, 64, {.rows = 2, .stride = UINT64_MAX - 100}, DMASYNC_REASON_OVERFLOW},
	};

	begin();
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		expect_bad_rows(bad[i].offset, bad[i].length, bad[i].rows, bad[i].reason);

	/* A strided entry whose second unit is not part of the batch, or has no place at all. */
	struct dmasync_unit truncated = good(0, 64);

	truncated.word |= DMASYNC_UNIT_STRIDED;
	expect_bad_entry(&truncated, 1, DMASYNC_REASON_TRUNCATED_ENTRY);

	struct dmasync_submission alone = {.entry = truncated};

	expect_refusal(NULL, 0, &alone, DMASYNC_REASON_TRUNCATED_ENTRY, 0);
	end();
}

/* Rows of length 0 are no lines, however many there are. */
static void rows_without_bytes_are_fine(void)
{
	struct dmasync_unit units[2];
	struct dmasync_unit_rows rows = {.rows = UINT32_MAX, .stride = 0};
	struct dmasync_ring_completion done;

	begin();
	dirty();
	units[0] = good(100, 0);
	units[0].word |= DMASYNC_UNIT_STRIDED;
	memcpy(&units[1], &rows, sizeof rows);
	raw_submit(&queue, units, 2, 1);
	raw_wait(&queue, &done);
	check_int(done.status, 0);
	check_int(done.lines, 0);
	check_untouched("rows without bytes");
	end();
}

static void bad_submissions(void)
{
	struct dmasync_unit units[UNITS];

	begin();
	for (uint32_t i = 0; i < UNITS; i++)
		units[i] = good(4096 * i, 64);

	struct dmasync_submission submission = {
		.flags = 1, .unit_position = queue.unit_position, .unit_count = 1};

	expect_refusal(units, 1, &submission, DMASYNC_REASON_BAD_FLAGS, DMASYNC_NO_ENTRY);

	static const uint32_t too_many[] = {UNITS + 1, 1u << 31, UINT32_MAX};

	for (size_t i = 0; i < sizeof too_many / sizeof too_many[0]; i++) {
		submission = (struct dmasync_submission){.unit_position = queue.unit_position,
							 .unit_count = too_many[i]};
		expect_refusal(units, UNITS, &submission, DMASYNC_REASON_TOO_MANY_UNITS,
			       DMASYNC_NO_ENTRY);
	}

	submission = (struct dmasync_submission){
		.unit_position = queue.unit_position, .unit_count = 1, .deadline_us = 1};
	expect_refusal(units, 1, &submission, DMASYNC_REASON_RESERVED_BITS, DMASYNC_NO_ENTRY);
	for (int i = 0; i < 2; i++) {
		submission = (struct dmasync_submission){.unit_position = queue.unit_position,
							 .unit_count = 1};
		submission.reserved[i] = 1;
		expect_refusal(units, 1, &submission, DMASYNC_REASON_RESERVED_BITS,
			       DMASYNC_NO_ENTRY);
	}
	/* No units, and no entry in the submission either. */
	submission = (struct dmasync_submission){0};
	expect_refusal(NULL, 0, &submission, DMASYNC_REASON_EMPTY_BATCH, DMASYNC_NO_ENTRY);
	/* Units in the ring, and an entry in the submission as well. */
	submission = (struct dmasync_submission){
		.unit_position = queue.unit_position, .unit_count = 1, .entry = good(0, 64)};
	expect_refusal(units, 1, &submission, DMASYNC_REASON_RESERVED_BITS, DMASYNC_NO_ENTRY);
	end();
}

static void too_many_lines(void)
{
	struct dmasync_unit units[3];

	begin();
	for (int i = 0; i < 3; i++)
		units[i] = good(0, SIZE);

	/* Twice the buffer is the limit exactly; the next entry is one too many. */
	struct dmasync_submission submission = {.unit_position = queue.unit_position,
						.unit_count = 3};

	expect_refusal(units, 3, &submission, DMASYNC_REASON_TOO_MANY_LINES, 2);

	struct dmasync_ring_completion done;

	raw_submit(&queue, units, 2, 5);
	raw_wait(&queue, &done);
	check_int(done.status, 0);
	end();
}

/* A batch in a message: the same checks. */
static void sync_messages(void)
{
	struct {
		struct dmasync_sync_request request;
		struct dmasync_unit units[3];
	} message = {.request = {.user_data = 9}};
	struct dmasync_sync_reply reply;

	begin();
	dirty();
	raw_call(&raw, &message, DMASYNC_OP_SYNC, sizeof message.request, &reply, sizeof reply);
	check_int(reply.completion.status, -EINVAL);
	check_int(reply.completion.reason, DMASYNC_REASON_EMPTY_BATCH);
	check_int(reply.completion.bad_entry, DMASYNC_NO_ENTRY);
	check_int(reply.completion.flags, 0); /* EXTENDED is for rings */

	message.request.count = 3;
	message.units[0] = good(0, 4096);
	message.units[1] = good(4096, 4096);
	message.units[2] = good(SIZE, 1);
	raw_call(&raw, &message, DMASYNC_OP_SYNC, sizeof message, &reply, sizeof reply);
	check_int(reply.completion.status, -ERANGE);
	check_int(reply.completion.reason, DMASYNC_REASON_OUT_OF_RANGE);
	check_int(reply.completion.bad_entry, 2);
	check_untouched("SYNC");

	message.units[2] = good(8192, 1);
	raw_call(&raw, &message, DMASYNC_OP_SYNC, sizeof message, &reply, sizeof reply);
	check_int(reply.completion.status, 0);
	check_int(reply.completion.user_data, 9);
	check_int(reply.completion.entries, 3);
	check_int(reply.completion.lines, 8192 / LINE + 1);
	check_int(memcmp(memory.device, memory.cpu, 8192 + LINE), 0);
	check_int(memory.device[8192 + LINE], 0);
	check_alive("SYNC");
	end();
}

/* A handle is dead after BUFFER_REMOVE, also when its place in the table is used again. */
static void removed_buffers_are_unknown(void)
{
	struct dmasync_buffer_remove request = {0};
	struct dmasync_done_reply reply;
	struct raw_memory second;

	begin();
	raw_memory_alloc(&second, &raw, SIZE);
	request.handle = second.handle;
	raw_call(&raw, &request, DMASYNC_OP_BUFFER_REMOVE, sizeof request, &reply, sizeof reply);

	struct dmasync_unit stale =
		raw_unit(second.handle, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, 64);

	expect_bad_unit(stale, DMASYNC_REASON_UNKNOWN_BUFFER);
	raw_memory_free(&second);
	raw_memory_alloc(&second, &raw, SIZE);
	check(second.handle != (stale.word & DMASYNC_UNIT_BUFFER_MASK));
	expect_bad_unit(stale, DMASYNC_REASON_UNKNOWN_BUFFER);
	raw_memory_free(&second);
	end();
}

static const struct harness_case cases[] = {
	HARNESS_CASE(bad_entries),     HARNESS_CASE(bad_ranges),
	HARNESS_CASE(bad_rows),	       HARNESS_CASE(rows_without_bytes_are_fine),
	HARNESS_CASE(bad_submissions), HARNESS_CASE(too_many_lines),
	HARNESS_CASE(sync_messages),   HARNESS_CASE(removed_buffers_are_unknown),
};

HARNESS_MAIN(cases)
