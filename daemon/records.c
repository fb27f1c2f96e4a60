/* SPDX-License-Identifier: MIT */
/* The last batch records of a worker: one writer, any reader, nobody waits. */
#include "daemon/records.h"

#include <assert.h>
#include <string.h>

#define WORDS (sizeof(struct dmasync_batch_record) / 8)

static_assert(sizeof(struct dmasync_batch_record) % 8 == 0, "records are copied by words");

void records_add(struct records *records, const struct dmasync_batch_record *record)
{
	uint64_t n = atomic_load_explicit(&records->written, memory_order_relaxed);
	struct record_slot *slot = &records->slot[n % RECORDS_SIZE];
	uint64_t words[WORDS];

	memcpy(words, record, sizeof words);
	/*
	 * A sequence lock of one record: 2n + 1 while record n is being written, 2n + 2 after. The
	 * release fence keeps the words behind the odd store; it pairs with the acquire fence in
	 * records_read(): a reader that got a new word also sees the odd sequence.
	 */
	atomic_store_explicit(&slot->sequence, 2 * n + 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_release);
	for (size_t i = 0; i < WORDS; i++)
		atomic_store_explicit(&slot->words[i], words[i], memory_order_relaxed);
	/* Release: words before the even sequence; pairs with the first acquire in records_read().
	 */
	atomic_store_explicit(&slot->sequence, 2 * n + 2, memory_order_release);
	/* Release: pairs with the acquire of `written` in records_read(). */
	atomic_store_explicit(&records->written, n + 1, memory_order_release);
}

uint32_t records_read(const struct records *records, uint64_t *cursor, uint32_t max,
		      struct dmasync_batch_record *ret, uint64_t *lost)
{
	uint64_t written = atomic_load_explicit(&records->written, memory_order_acquire);
	uint32_t count = 0;

	if (written - *cursor > RECORDS_SIZE) {
		*lost += written - RECORDS_SIZE - *cursor;
		*cursor = written - RECORDS_SIZE;
	}
	while (*cursor < written && count < max) {
		uint64_t n = (*cursor)++;
		const struct record_slot *slot = &records->slot[n % RECORDS_SIZE];
		uint64_t words[WORDS];
		uint64_t before = atomic_load_explicit(&slot->sequence, memory_order_acquire);

		for (size_t i = 0; i < WORDS; i++)
			words[i] = atomic_load_explicit(&slot->words[i], memory_order_relaxed);
		atomic_thread_fence(memory_order_acquire);
		uint64_t after = atomic_load_explicit(&slot->sequence, memory_order_relaxed);

		if (before != 2 * n + 2 || after != before) {
			++*lost; /* the worker lapped this reader */
			continue;
		}
		memcpy(&ret[count++], words, sizeof words);
	}
	return count;
}
