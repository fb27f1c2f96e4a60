/* SPDX-License-Identifier: MIT */
/* The client's side of the ring's target, good and bad: see ring_bed.h. */
#include <pthread.h>
#include <unistd.h>

#include "model.h"
#include "ring_bed.h"

struct end ring_ends[RING_QUEUES];

/* A change of the ring that is due at the next line operation: behind the check. */
static struct late {
	struct end *end;
	uint32_t offset, value;
} late;

/* ---- the thread that flips ---- */

static _Atomic(struct end *) flipping;
static _Atomic(struct end *) flipped; /* what it has seen of it */

static void poke(struct end *end, uint32_t offset, uint32_t value)
{
	uint32_t *words = end->queue->memory;
	size_t count = end->queue->memory_size / sizeof *words;

	__atomic_store_n(&words[offset % count], value, __ATOMIC_RELAXED);
}

static void *flip(void *argument)
{
	uint64_t state = 1;

	(void)argument;
	for (;;) {
		struct end *end = atomic_load(&flipping);

		atomic_store(&flipped, end);
		if (!end) {
			usleep(10);
			continue;
		}
		state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);

		uint32_t where = (uint32_t)(state >> 33), bit = (uint32_t)(state >> 28) & 31;
		const uint32_t *words = end->queue->memory;
		uint32_t count = (uint32_t)(end->queue->memory_size / sizeof *words);

		/* Half of it in what the worker copies: the last words are the units. */
		if (where & 1)
			where = 1024 + where % (count - 1024);
		poke(end, where, words[where % count] ^ 1u << bit);
	}
	return NULL;
}

void ring_flip(struct end *end)
{
	static pthread_t thread;
	static bool there;

#ifdef FUZZ_NO_RACE
	end = NULL; /* a sanitizer would say of this very thread that it races */
#endif

	if (!there && end) {
		claim(pthread_create(&thread, NULL, flip, NULL) == 0);
		there = true;
	}
	if (!there)
		return;
	atomic_store(&flipping, end);
	while (atomic_load(&flipped) != end)
		usleep(1);
}

/* ---- batches ---- */

/* Offsets and lengths of all sizes, most of them near those of buffers. */
static struct dmasync_unit read_entry(struct input *input, uint8_t *ret_kind)
{
	uint8_t kind = input_u8(input), what = input_u8(input);
	struct dmasync_unit unit = {
		.word = dmasync_unit_word(1u << BUFFER_INDEX_BITS | (kind & 7),
					  (enum dmasync_sync)(what & 3),
					  (enum dmasync_direction)(what >> 2 & 3), kind & 0x40),
		.length = input_u16(input),
		.offset = input_u16(input),
	};

	if (kind & 0x10)
		unit.length <<= 8;
	if (kind & 0x20)
		unit.offset <<= what >> 4;
	if (kind & 0x80)
		unit.word ^= input_u32(input);
	*ret_kind = kind;
	return unit;
}

static void expect(struct submitted *batch, const struct dmasync_unit *entry,
		   const struct dmasync_unit_rows *rows, uint64_t *least, uint64_t *most,
		   uint64_t max_lines)
{
	uint32_t handle = entry->word & DMASYNC_UNIT_BUFFER_MASK;
	struct model_entry model =
		model_entry(entry, rows, buffer_table_lookup(&ring_table, handle), RING_LINE);

	if (batch->must_fail)
		return;
	*least += model.least;
	if (__builtin_add_overflow(*most, model.most, most))
		*most = UINT64_MAX;
	if (!model.broken && *least > max_lines)
		model.broken = 1u << DMASYNC_REASON_TOO_MANY_LINES;
	batch->may_fail |= *most > max_lines;
	if (model.broken) {
		batch->must_fail = true;
		batch->broken = model.broken;
		return;
	}
	batch->entries++;
	batch->elided += model.elided;
}

void ring_submit(struct end *end, struct input *input)
{
	struct dmasync_ring *ring = &end->ring;
	struct dmasync_submission submission = {.unit_position = end->units};
	struct submitted *batch = &end->batch[end->submitted % 64];
	uint32_t entries = input_u8(input) % 32, units = 0, room;
	uint64_t least = 0, most = 0, max_lines = ring_worker->params.max_batch_lines;
	bool alone = entries == 1;

	if (end->submitted - end->reaped >= ring->depth)
		return;
	*batch = (struct submitted){.user_data = end->submitted * UINT64_C(0x100000001),
				    .first_unit = end->units};
	/* Beside the units of the batches whose completions were not read yet. */
	room = ring->unit_count - (end->units - end->batch[end->reaped % 64].first_unit);
	for (uint32_t i = 0; i < entries && units + 2 <= room; i++) {
		uint8_t kind;
		struct dmasync_unit entry = read_entry(input, &kind);
		struct dmasync_unit_rows rows = {0};
		bool strided = entry.word & DMASYNC_UNIT_STRIDED;

		if (strided) {
			rows.rows = input_u8(input);
			rows.stride = input_u16(input);
			if (kind & 0x10)
				rows.stride += UINT64_C(1) << 63;
			alone = false;
		}
		expect(batch, &entry, strided ? &rows : NULL, &least, &most, max_lines);
		if (alone) {
			submission.entry = entry;
			continue;
		}
		dmasync_ring_write_unit(ring, end->units + units++, &entry);
		if (strided)
			dmasync_ring_write_unit(ring, end->units + units++,
						(struct dmasync_unit *)&rows);
	}
	if (!alone && units == 0) {
		batch->must_fail = true;
		batch->broken = 1u << DMASYNC_REASON_EMPTY_BATCH;
		batch->entries = DMASYNC_NO_ENTRY;
	} else if (alone && !(submission.entry.word | submission.entry.length) &&
		   !submission.entry.offset) {
		batch->must_fail = true;
		batch->broken = 1u << DMASYNC_REASON_EMPTY_BATCH;
		batch->entries = DMASYNC_NO_ENTRY;
	}
	submission.user_data = batch->user_data;
	submission.unit_count = alone ? 0 : units;
	end->units += units;
	dmasync_ring_submit(ring, end->submitted++, &submission);
}

/* ---- what no client should write ---- */

void ring_rewrite(struct end *end, struct input *input)
{
	uint8_t what = input_u8(input);
	uint32_t value = input_u32(input), slot = what >> 3;
	struct dmasync_ring *ring = &end->ring;
	uint32_t submission = ring->depth - 1 < slot ? ring->depth - 1 : slot;

	end->honest = false;
	switch (what & 7) {
	case 0:
		__atomic_store_n(&ring->header->completions_read, value, __ATOMIC_RELEASE);
		break;
	case 1: /* near what would be right */
		__atomic_store_n(&ring->header->completions_read, end->queue->completed + what,
				 __ATOMIC_RELEASE);
		break;
	case 2:
		__atomic_store_n(&ring->submissions[submission].seq, value, __ATOMIC_RELEASE);
		break;
	case 3: /* a submission of whatever the slot holds */
		__atomic_store_n(&ring->submissions[end->queue->fetched & (ring->depth - 1)].seq,
				 end->queue->fetched, __ATOMIC_RELEASE);
		break;
	case 4:
		input_copy(input, (char *)&ring->submissions[submission] + 4,
			   sizeof *ring->submissions - 4);
		break;
	case 5:
		ring->submissions[submission].unit_count = value;
		break;
	case 6:
		poke(end, input_u16(input), value);
		break;
	case 7:
		late = (struct late){end, input_u16(input), value};
		break;
	}
}

void ring_be_late(bool now)
{
	if (now && late.end)
		poke(late.end, late.offset, late.value);
	late.end = NULL;
}
