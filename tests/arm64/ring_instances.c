/* SPDX-License-Identifier: MIT */
/*
 * The functions of ring_access.h whose ordering rests on single instructions, each compiled by
 * itself so that check_disassembly.py can look at it. With RELAXED they are wrong on purpose: the
 * check must then find fault with every one.
 */
#include <string.h>

#ifdef RELAXED
#define RING_LOAD_ACQUIRE(word) __atomic_load_n((word), __ATOMIC_RELAXED)
#define RING_LOAD_RELAXED(word) __atomic_load_n((word), __ATOMIC_RELAXED)
#define RING_STORE_RELEASE(word, value) __atomic_store_n((word), (value), __ATOMIC_RELAXED)
#define RING_STORE_RELAXED(word, value) __atomic_store_n((word), (value), __ATOMIC_RELAXED)
#define RING_EXCHANGE(word, value) __atomic_exchange_n((word), (value), __ATOMIC_RELAXED)
#define RING_FENCE() __asm__ volatile("" ::: "memory")
#define RING_READ(destination, source, size) memcpy((destination), (source), (size))
#define RING_WRITE(destination, source, size) memcpy((destination), (source), (size))
#define RING_WRITE_BODY(destination, source, size) RING_WRITE(destination, source, size)
#endif

#include "proto/ring_access.h"

void submit(struct dmasync_ring *ring, uint32_t position,
	    const struct dmasync_submission *submission);
void submit(struct dmasync_ring *ring, uint32_t position,
	    const struct dmasync_submission *submission)
{
	dmasync_ring_submit(ring, position, submission);
}

enum dmasync_ring_poll fetch(const struct dmasync_ring *ring, uint32_t position,
			     struct dmasync_submission *ret);
enum dmasync_ring_poll fetch(const struct dmasync_ring *ring, uint32_t position,
			     struct dmasync_submission *ret)
{
	enum dmasync_ring_poll poll = dmasync_ring_poll_submission(ring, position);

	if (poll == DMASYNC_RING_READY)
		dmasync_ring_copy_submission(ring, position, ret);
	return poll;
}

void publish(struct dmasync_ring *ring, uint32_t position,
	     const struct dmasync_ring_completion *completion);
void publish(struct dmasync_ring *ring, uint32_t position,
	     const struct dmasync_ring_completion *completion)
{
	dmasync_ring_complete(ring, position, completion);
}

enum dmasync_ring_poll reap(const struct dmasync_ring *ring, uint32_t position,
			    struct dmasync_ring_completion *ret);
enum dmasync_ring_poll reap(const struct dmasync_ring *ring, uint32_t position,
			    struct dmasync_ring_completion *ret)
{
	return dmasync_ring_poll_completion(ring, position, ret);
}

void consume(struct dmasync_ring *ring, uint32_t next);
void consume(struct dmasync_ring *ring, uint32_t next)
{
	dmasync_ring_consume_completion(ring, next);
}

uint32_t completions_read(const struct dmasync_ring *ring);
uint32_t completions_read(const struct dmasync_ring *ring)
{
	return dmasync_ring_completions_read(ring);
}

/* The sleeper: the store of the flag, the fence, the second look. */
uint32_t announce_and_look(uint32_t *flag, const uint32_t *word);
uint32_t announce_and_look(uint32_t *flag, const uint32_t *word)
{
	dmasync_ring_announce_sleep(flag);
	return RING_LOAD_RELAXED(word);
}

/* The publisher: the store of the seq, the fence, the look at the flag. */
int publish_and_look(uint32_t *word, uint32_t value, const uint32_t *flag);
int publish_and_look(uint32_t *word, uint32_t value, const uint32_t *flag)
{
	RING_STORE_RELAXED(word, value);
	return dmasync_ring_is_sleeping(flag);
}

int take_sleeper(uint32_t *flag);
int take_sleeper(uint32_t *flag)
{
	return dmasync_ring_take_sleeper(flag);
}
