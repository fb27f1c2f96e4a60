/* SPDX-License-Identifier: MIT */
/*
 * The one file that touches ring memory, for both sides. Each function says which thread may call
 * it and names the partner of every acquire and release.
 *
 * The macros below are replaced by tests/unit/proto/simulator.h, which runs these very functions
 * on a model of store buffers; nothing here may bypass them.
 */
#ifndef DMASYNC_PROTO_RING_ACCESS_H
#define DMASYNC_PROTO_RING_ACCESS_H

#include <string.h>

#include "ring.h"

#ifndef RING_LOAD_ACQUIRE
#define RING_LOAD_ACQUIRE(word) __atomic_load_n((word), __ATOMIC_ACQUIRE)
#define RING_LOAD_RELAXED(word) __atomic_load_n((word), __ATOMIC_RELAXED)
#define RING_STORE_RELEASE(word, value) __atomic_store_n((word), (value), __ATOMIC_RELEASE)
#define RING_STORE_RELAXED(word, value) __atomic_store_n((word), (value), __ATOMIC_RELAXED)
#define RING_EXCHANGE(word, value) __atomic_exchange_n((word), (value), __ATOMIC_SEQ_CST)
/*
 * Plain memory, covered by a seq. The empty asm keeps the compiler from reading the source a second
 * time after the copy was checked: the peer may be writing to it.
 */
#define RING_READ(destination, source, size)                                                       \
	do {                                                                                       \
		memcpy((destination), (source), (size));                                           \
		__asm__ volatile("" ::: "memory");                                                 \
	} while (0)
#define RING_WRITE(destination, source, size) memcpy((destination), (source), (size))
/* The body of a slot: whole 32-bit words. */
#define RING_WRITE_BODY(destination, source, size)                                                 \
	dmasync_ring_write_words((destination), (source), (size))
#endif
#ifndef RING_FENCE
/* A full fence under the builtin's older name: gcc's thread sanitizer build refuses the newer. */
#define RING_FENCE() __sync_synchronize()
#endif

/*
 * Word by word, whence the volatile: a load wider than the stores before it waits until they have
 * left the store buffer, and behind a completion barrier that is when the last line has reached
 * memory.
 */
static inline void dmasync_ring_write_words(void *destination, const void *source, size_t size)
{
	uint32_t *to = destination;
	const volatile uint32_t *from = source;

#pragma GCC unroll 16
	for (size_t i = 0; i < size / sizeof *to; i++)
		to[i] = from[i];
}

/* One side's view of a mapped ring. Sizes come from the layout, never from ring memory. */
struct dmasync_ring {
	struct dmasync_ring_header *header;
	struct dmasync_submission *submissions;
	struct dmasync_ring_completion *completions;
	struct dmasync_unit *units;
	uint32_t depth, unit_count;
};

static inline void dmasync_ring_attach(struct dmasync_ring *ring, void *memory,
				       const struct dmasync_ring_layout *layout)
{
	char *base = memory;

	ring->header = memory;
	ring->submissions = (void *)(base + layout->submissions_offset);
	ring->completions = (void *)(base + layout->completions_offset);
	ring->units = (void *)(base + layout->units_offset);
	ring->depth = layout->depth;
	ring->unit_count = layout->units;
}

/*
 * Daemon, before the memfd is sent to anybody. Every slot gets the seq of the lap before the first
 * one: zeroed memory would read as published where position 0 falls on a slot not yet used.
 */
static inline void dmasync_ring_initialise(struct dmasync_ring *ring,
					   const struct dmasync_ring_layout *layout)
{
	struct dmasync_ring_header header = {
		.magic = DMASYNC_RING_MAGIC,
		.layout = DMASYNC_RING_LAYOUT,
		.depth = layout->depth,
		.units = layout->units,
		.submissions_offset = layout->submissions_offset,
		.units_offset = layout->units_offset,
		.completions_offset = layout->completions_offset,
		.size = layout->size,
		.start = DMASYNC_RING_START,
		.completions_read = DMASYNC_RING_START,
	};

	RING_WRITE(ring->header, &header, sizeof header);
	for (uint32_t i = 0; i < layout->depth; i++) {
		uint32_t position = DMASYNC_RING_START + i;
		uint32_t slot = position & (layout->depth - 1);

		RING_STORE_RELAXED(&ring->submissions[slot].seq, position - layout->depth);
		RING_STORE_RELAXED(&ring->completions[slot].seq, position - layout->depth);
	}
}

/* Client, before it uses a ring that it was given: is this the layout both sides agreed on? */
static inline int dmasync_ring_header_matches(const struct dmasync_ring *ring,
					      const struct dmasync_ring_layout *layout)
{
	struct dmasync_ring_header header;

	RING_READ(&header, ring->header, sizeof header);
	return header.magic == DMASYNC_RING_MAGIC && header.layout == DMASYNC_RING_LAYOUT &&
	       header.depth == layout->depth && header.units == layout->units &&
	       header.submissions_offset == layout->submissions_offset &&
	       header.units_offset == layout->units_offset &&
	       header.completions_offset == layout->completions_offset &&
	       header.size == layout->size && header.start == DMASYNC_RING_START;
}

enum dmasync_ring_poll {
	DMASYNC_RING_EMPTY,
	DMASYNC_RING_READY,
	DMASYNC_RING_BROKEN, /* a seq that no correct peer writes */
};

/* ---- submissions: the client produces, the worker consumes ---- */

/*
 * Client, queue's thread. The units of a batch are written before its submission is published and
 * are not touched again until its completion was read: the worker's copy is made in between.
 */
static inline void dmasync_ring_write_unit(struct dmasync_ring *ring, uint32_t position,
					   const struct dmasync_unit *unit)
{
	RING_WRITE(&ring->units[position & (ring->unit_count - 1)], unit, sizeof *unit);
}

/*
 * Client, queue's thread. The slot is free: its previous batch's completion was read (acquire in
 * dmasync_ring_poll_completion), so the worker's reads of the old contents are over.
 */
static inline void dmasync_ring_submit(struct dmasync_ring *ring, uint32_t position,
				       const struct dmasync_submission *submission)
{
	struct dmasync_submission *slot = &ring->submissions[position & (ring->depth - 1)];

	RING_WRITE_BODY(&slot->flags, &submission->flags,
			sizeof *slot - offsetof(struct dmasync_submission, flags));
	/*
	 * Release: the slot's body, its units, and the client's own stores to the buffers come
	 * before the seq. Pairs with the acquire in dmasync_ring_poll_submission().
	 */
	RING_STORE_RELEASE(&slot->seq, position);
}

/* Worker. A look at one word; nothing is copied. */
static inline enum dmasync_ring_poll dmasync_ring_poll_submission(const struct dmasync_ring *ring,
								  uint32_t position)
{
	/*
	 * Acquire: pairs with the release in dmasync_ring_submit(). What the client wrote before is
	 * visible to this CPU; the opening fence then orders it before the line operations.
	 */
	uint32_t seq = RING_LOAD_ACQUIRE(&ring->submissions[position & (ring->depth - 1)].seq);

	if (seq == position)
		return DMASYNC_RING_READY;
	return seq == position - ring->depth ? DMASYNC_RING_EMPTY : DMASYNC_RING_BROKEN;
}

/*
 * Worker: the word that the client writes when it submits at `position`, and what stands in it
 * until then; for dmasync_ring_look().
 */
static inline const uint32_t *dmasync_ring_submission_word(const struct dmasync_ring *ring,
							   uint32_t position, uint32_t *ret_until)
{
	*ret_until = position - ring->depth;
	return &ring->submissions[position & (ring->depth - 1)].seq;
}

/* Worker: the same for a client that has yet to read results, the last of them before `read`. */
static inline const uint32_t *dmasync_ring_room_word(const struct dmasync_ring *ring, uint32_t read,
						     uint32_t *ret_until)
{
	*ret_until = read;
	return &ring->header->completions_read;
}

/*
 * Worker: whether it is worth a true look. Relaxed: nothing is taken from the word but that it has
 * changed; dmasync_ring_poll_submission() and dmasync_ring_completions_read() follow with their
 * acquire.
 */
static inline uint32_t dmasync_ring_look(const uint32_t *word)
{
	return RING_LOAD_RELAXED(word);
}

/* Worker, after READY. Copied once; only the copy is checked and used. */
static inline void dmasync_ring_copy_submission(const struct dmasync_ring *ring, uint32_t position,
						struct dmasync_submission *ret)
{
	RING_READ(ret, &ring->submissions[position & (ring->depth - 1)], sizeof *ret);
}

/*
 * Worker, after READY: copies `count` units, starting at `position`, to the same places of a
 * private mirror of the unit ring. At most unit_count.
 */
static inline void dmasync_ring_copy_units(const struct dmasync_ring *ring, uint32_t position,
					   uint32_t count, struct dmasync_unit *mirror)
{
	uint32_t first = position & (ring->unit_count - 1);
	uint32_t until_wrap = ring->unit_count - first;
	uint32_t head = count < until_wrap ? count : until_wrap;

	RING_READ(&mirror[first], &ring->units[first], head * sizeof *mirror);
	if (count > head)
		RING_READ(&mirror[0], &ring->units[0], (count - head) * sizeof *mirror);
}

/*
 * Worker: asks for the cache lines of units that will be copied soon. They lie dirty in the
 * client's cache, tens of nanoseconds away each; asked for together they come together. No access:
 * the units may be garbage still.
 */
static inline void dmasync_ring_prefetch_units(const struct dmasync_ring *ring, uint32_t position,
					       uint32_t count)
{
	for (uint32_t i = 0; i < count; i += 64 / sizeof *ring->units)
		__builtin_prefetch(&ring->units[(position + i) & (ring->unit_count - 1)]);
}

/*
 * Worker, before the barrier of a batch: where the client has submitted the next one already, asks
 * for its units, at most `most` of them, and for the slot of the result that comes now. The barrier
 * takes as long as these lines do. unit_position and unit_count may be anything: nothing is done
 * with them but this, and the submission is read anew when it is fetched. Not where the client
 * waits for this very batch: it looks at that slot, and would have to fetch it twice.
 */
static inline void dmasync_ring_prefetch_next(const struct dmasync_ring *ring, uint32_t submission,
					      uint32_t completion, uint32_t most)
{
	const struct dmasync_submission *slot = &ring->submissions[submission & (ring->depth - 1)];
	uint32_t units[2];

	/* Acquire: pairs with the release in dmasync_ring_submit(), before the body is read. */
	if (RING_LOAD_ACQUIRE(&slot->seq) != submission)
		return;
	static_assert(offsetof(struct dmasync_submission, unit_count) ==
			      offsetof(struct dmasync_submission, unit_position) + sizeof *units,
		      "read together");
	RING_READ(units, &slot->unit_position, sizeof units);
	dmasync_ring_prefetch_units(ring, units[0], units[1] < most ? units[1] : most);
	__builtin_prefetch(&ring->completions[completion & (ring->depth - 1)], 1);
}

/* ---- completions: the worker produces, the client consumes ---- */

/*
 * Worker: how far the client says it has read. The one index taken from a client; the caller checks
 * that it lies between what it was before and what has been written.
 */
static inline uint32_t dmasync_ring_completions_read(const struct dmasync_ring *ring)
{
	/*
	 * Acquire: pairs with the release in dmasync_ring_consume_completion(). The client's reads
	 * of the slots up to here are over before the worker writes them again.
	 */
	return RING_LOAD_ACQUIRE(&ring->header->completions_read);
}

/* Worker. There is room: position - completions_read < depth. */
static inline void dmasync_ring_complete(struct dmasync_ring *ring, uint32_t position,
					 const struct dmasync_ring_completion *completion)
{
	struct dmasync_ring_completion *slot = &ring->completions[position & (ring->depth - 1)];
	const size_t second = offsetof(struct dmasync_ring_completion, fence_ns);

	RING_WRITE_BODY(&slot->status, &completion->status,
			second - offsetof(struct dmasync_ring_completion, status));
	if (completion->flags & DMASYNC_COMPLETION_EXTENDED)
		RING_WRITE_BODY(&slot->fence_ns, &completion->fence_ns, sizeof *slot - second);
	/*
	 * Release: the slot's body comes before the seq. Pairs with the acquire in
	 * dmasync_ring_poll_completion(). That the lines have reached the point of coherency is not
	 * the release's work but the completion barrier's, which the caller has executed.
	 */
	RING_STORE_RELEASE(&slot->seq, position);
}

/* Client, queue's thread. Copies out where READY; *ret is untouched otherwise. */
static inline enum dmasync_ring_poll dmasync_ring_poll_completion(
	const struct dmasync_ring *ring, uint32_t position, struct dmasync_ring_completion *ret)
{
	const struct dmasync_ring_completion *slot =
		&ring->completions[position & (ring->depth - 1)];
	/*
	 * Acquire: pairs with the release in dmasync_ring_complete(). The client's later reads of
	 * the buffers (for_cpu) come after the batch's barrier.
	 */
	uint32_t seq = RING_LOAD_ACQUIRE(&slot->seq);

	if (seq != position)
		return seq == position - ring->depth ? DMASYNC_RING_EMPTY : DMASYNC_RING_BROKEN;

	RING_READ(ret, slot, offsetof(struct dmasync_ring_completion, fence_ns));
	if (ret->flags & DMASYNC_COMPLETION_EXTENDED) {
		RING_READ(&ret->fence_ns, &slot->fence_ns,
			  sizeof *ret - offsetof(struct dmasync_ring_completion, fence_ns));
	} else {
		memset(&ret->fence_ns, 0,
		       sizeof *ret - offsetof(struct dmasync_ring_completion, fence_ns));
		ret->bad_entry = DMASYNC_NO_ENTRY;
	}
	return DMASYNC_RING_READY;
}

/*
 * Client, any thread: has the batch at `position` completed? Copies nothing. True also where its
 * slot was used again since; the distance is taken modulo 2^32.
 */
static inline int dmasync_ring_completion_reached(const struct dmasync_ring *ring,
						  uint32_t position)
{
	/* Acquire: pairs with the release in dmasync_ring_complete(). */
	uint32_t seq = RING_LOAD_ACQUIRE(&ring->completions[position & (ring->depth - 1)].seq);

	return (int32_t)(seq - position) >= 0;
}

/*
 * Client, queue's thread: every completion before `next` has been copied out. Called before the
 * submission that reuses the slot is published: then the worker, which acquires that submission,
 * finds room for its completion, and nobody ever has to be woken because of this index.
 */
static inline void dmasync_ring_consume_completion(struct dmasync_ring *ring, uint32_t next)
{
	/* Release: pairs with the acquire in dmasync_ring_completions_read(). */
	RING_STORE_RELEASE(&ring->header->completions_read, next);
}

/* ---- sleeping and waking, both directions alike ---- */

/*
 * Sleeper: says that it is about to sleep, after which it must look at its ring once more and only
 * then sleep. Its pipe is drained before this call, never after it: the byte that a drain takes
 * after the look may be the only one. A publisher may have taken the flag, so every further sleep
 * is announced anew. The fence orders the store of the flag before that look; it pairs with the
 * fence in dmasync_ring_is_sleeping(): of two store-then-load sides with a full fence each, at
 * least one sees the other's store, so either the sleeper sees the new seq or the publisher
 * sees the flag.
 */
static inline void dmasync_ring_announce_sleep(uint32_t *flag)
{
	RING_STORE_RELAXED(flag, 1);
	RING_FENCE();
}

/*
 * Worker, and the control thread when it pins it: where the worker is. `cpu` as sched_getcpu()
 * gives it, negative where that is not known. Nothing is ordered by this word.
 */
static inline void dmasync_ring_say_cpu(uint32_t *word, int cpu)
{
	RING_STORE_RELAXED(word, (uint32_t)(cpu + 1));
}

/* Client: where the worker said it is; -1 where it did not. */
static inline int dmasync_ring_said_cpu(const uint32_t *word)
{
	return (int)RING_LOAD_RELAXED(word) - 1;
}

/* Sleeper, awake again. */
static inline void dmasync_ring_announce_awake(uint32_t *flag)
{
	RING_STORE_RELAXED(flag, 0);
}

/* Sleeper: has a publisher taken the announcement? Then its signal has come or will come. */
static inline int dmasync_ring_sleep_was_taken(const uint32_t *flag)
{
	return RING_LOAD_RELAXED(flag) == 0;
}

/*
 * Publisher, after its store of a seq: must the sleeper be signalled? For a flag that is mapped
 * read-only or has several publishers with a pipe each.
 */
static inline int dmasync_ring_is_sleeping(const uint32_t *flag)
{
	RING_FENCE(); /* pairs with the fence in dmasync_ring_announce_sleep() */
	return RING_LOAD_RELAXED(flag) != 0;
}

/*
 * Worker that takes a queue over from another one, before it first looks at the ring: the page that
 * the client was given tells it no more whether its worker sleeps, so it is to ring after every
 * submission. Never taken back. The worker does not sleep without dmasync_ring_announce_sleep() and
 * a look at the ring after it: the fence in there orders this store, too, before that look, and
 * pairs with the one in dmasync_ring_wants_doorbell(). So either the worker sees the new seq, or
 * the client sees this word and rings. A byte that the worker before has taken from the pipe is of
 * a submission that came before; it let go of the ring after that, and this worker sees the seq.
 */
static inline void dmasync_ring_announce_move(uint32_t *ring_always)
{
	RING_STORE_RELAXED(ring_always, 1);
}

/*
 * Client: has its queue gone to another worker than that of its page? Then it is no use to look
 * where that one is, or to wait for it awake. Nothing is ordered by this look.
 */
static inline int dmasync_ring_was_moved(const struct dmasync_ring *ring)
{
	return RING_LOAD_RELAXED(&ring->header->ring_always) != 0;
}

/*
 * Client, queue's thread, after its submission: must the worker be rung for? One fence for both
 * looks; it pairs with the one in dmasync_ring_announce_sleep().
 */
static inline int dmasync_ring_wants_doorbell(const struct dmasync_ring *ring,
					      const uint32_t *worker_sleeping)
{
	return dmasync_ring_is_sleeping(worker_sleeping) || dmasync_ring_was_moved(ring);
}

/* Publisher with a writable flag: true for exactly one caller per announcement, who signals. */
static inline int dmasync_ring_take_sleeper(uint32_t *flag)
{
	return dmasync_ring_is_sleeping(flag) && RING_EXCHANGE(flag, 0) != 0;
}

#endif
