/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: a worker and rings whose client does anything. Entries good and bad, slots out of
 * turn, bytes of the ring changed between two turns, at a line operation, and (a mode of the input)
 * by a second thread all the time. Whatever the ring says: line operations lie inside a buffer that
 * was registered, a slice keeps its budget, completions come in order, once, and never into a slot
 * that was not read; and in the end nothing is held. One thread, and the one that flips.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "fuzz.h"
#include "helpers_here.h"
#include "model.h"
#include "worker_here.h"

#define LINE 64u
#define AREA UINT64_C(0x7f0000000000) /* never accessed: the operations are recorded */
#define BUFFERS 7u
#define QUEUES 2u
#define FENCED 4u /* buffer that has fences */
#define EVENTFD_FULL (UINT64_MAX - 1)

/* One batch as it was submitted, for the result it must have. */
struct submitted {
	uint64_t user_data;
	uint32_t first_unit;
	uint32_t broken, entries, elided; /* as struct model_entry; entries before the bad one */
	bool must_fail, may_fail;
};

struct end {
	struct queue *queue;
	int fds[DMASYNC_QUEUE_FDS];
	struct dmasync_ring ring;
	uint32_t submitted, reaped, units;
	uint32_t completed; /* of the queue, when it was last looked at */
	bool honest;	    /* all that was written into it is right */
	struct worker_command remove;
	struct submitted batch[64];
};

static struct mailbox events;
static struct worker *workers[2], *worker; /* waiting in an io_uring and in epoll; this input's */
static struct cache cache;
static struct buffer buffers[BUFFERS];
static _Atomic(struct buffer *) slots[BUFFERS];
static struct buffer_table table = {.size = BUFFERS, .slot = slots};
static struct batch_owner owner;
static struct end ends[QUEUES];
static int fence_fd, events_fd;
static bool open_now;	      /* an opening fence without its barrier */
static uint64_t turn_lines;   /* recorded in this turn */
static struct client *client; /* never looked into */

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

static void set_flipping(struct end *end)
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

/* ---- the operations ---- */

static void record(uintptr_t start, uintptr_t end, size_t line)
{
	bool inside = false;

	if (late.end) {
		poke(late.end, late.offset, late.value);
		late.end = NULL;
	}
	claim(open_now && line == LINE && start < end && start % LINE == 0 && end % LINE == 0);
	for (uint32_t i = 0; i < BUFFERS; i++) {
		const struct cache_buffer *buffer = &buffers[i].cache;

		inside |= buffer->backend == DMASYNC_BACKEND_DIRECT && start >= buffer->base &&
			  end <= buffer->base + (buffer->size + LINE - 1) / LINE * LINE;
	}
	claim(inside);
	turn_lines += (end - start) / LINE;
}

static void record_open(void)
{
	open_now = true;
}

static void record_complete(bool flushed)
{
	(void)flushed;
}

/* ---- a worker for all inputs ---- */

static void set_buffer(uint32_t index, struct cache_buffer what, int fd)
{
	buffers[index] =
		(struct buffer){.cache = what, .handle = 1u << BUFFER_INDEX_BITS | index, .fd = fd};
}

static void set_up(void)
{
	int memory = memfd_create("simulated", MFD_CLOEXEC);
	void *simulated;

	signal(SIGPIPE, SIG_IGN);
	cache = (struct cache){.ops = {.name = "recorded",
				       .open = record_open,
				       .clean = record,
				       .flush = record,
				       .complete = record_complete},
			       .line = LINE,
			       .granule = LINE};
	events_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	fence_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	claim(events_fd >= 0 && fence_fd >= 0 && memory >= 0);
	claim(ftruncate(memory, CACHE_SIMULATED_REGIONS * 8192) == 0);
	claim(cache_simulated_map(memory, 8192, &simulated) == 0);
	set_buffer(0, (struct cache_buffer){AREA, 4096, DMASYNC_BACKEND_DIRECT, true, false}, -1);
	set_buffer(
		1,
		(struct cache_buffer){AREA + 8192, 1u << 20, DMASYNC_BACKEND_DIRECT, true, false},
		-1);
	set_buffer(2,
		   (struct cache_buffer){AREA + (4u << 20), 5000, DMASYNC_BACKEND_DIRECT, false,
					 false},
		   -1);
	set_buffer(3, (struct cache_buffer){0, 4096, DMASYNC_BACKEND_NONE, true, false}, -1);
	set_buffer(
		FENCED,
		(struct cache_buffer){AREA + (8u << 20), 65536, DMASYNC_BACKEND_DIRECT, true, true},
		fence_fd);
	set_buffer(5, (struct cache_buffer){0, 65536, DMASYNC_BACKEND_KERNEL, true, false}, memory);
	set_buffer(6,
		   (struct cache_buffer){(uintptr_t)simulated, 8192, DMASYNC_BACKEND_SIMULATED,
					 true, false},
		   -1);

	for (uint32_t i = 0; i < 2; i++) {
		const struct worker_params params = {.loop = i ? LOOP_EPOLL : LOOP_AUTO,
						     .cache = &cache,
						     .slice_lines = 64,
						     .events = &events,
						     .events_fd = events_fd};

		claim(worker_here_start(&params, &workers[i]) == 0);
	}
	client = (struct client *)&client;
}

static void tune(struct input *input)
{
	uint8_t lines = input_u8(input), share = input_u8(input);
	struct worker_command *command = calloc(1, sizeof *command);

	claim(command);
	command->type = WORKER_TUNE;
	command->slice_lines = 64u + lines;
	command->max_batch_lines = lines & 1 ? 512 : 65536;
	command->normal_share = command->bulk_share = 10;
	command->share_barrier_lines = share & 1 ? 64u + share : 0;
	command->share_barrier_us = share & 1 ? 1000000 : 0;
	worker_post(worker, command);
}

static void set_fence(uint8_t how)
{
	const uint64_t values[] = {1, 0, EVENTFD_FULL, 1};
	uint64_t value = values[how % 4];

	if (read(fence_fd, &(uint64_t){0}, sizeof(uint64_t)) < 0)
		claim(errno == EAGAIN);
	if (value)
		claim(write(fence_fd, &value, sizeof value) == sizeof value);
}

static void take_events(void)
{
	struct mailbox_node *node = mailbox_take(&events);

	(void)!read(events_fd, &(uint64_t){0}, sizeof(uint64_t));
	while (node) {
		struct worker_command *command = (struct worker_command *)node;

		node = node->next;
		claim(command->type != WORKER_FAULT);
		if (command->type == WORKER_TUNE)
			free(command);
		else if (command->type == WORKER_QUEUE_BROKEN)
			claim(command->queue->broken && command->text);
		else
			command->context = &events; /* it has come back */
	}
}

/* ---- what must hold after each turn ---- */

static void look_at_result(struct end *end)
{
	struct dmasync_ring_completion completion;
	enum dmasync_ring_poll poll =
		dmasync_ring_poll_completion(&end->ring, end->reaped, &completion);
	const struct submitted *batch = &end->batch[end->reaped % 64];

	claim(poll == DMASYNC_RING_READY);
	claim(completion.seq == end->reaped && completion.user_data == batch->user_data);
	if (completion.status < 0) {
		claim(completion.lines == 0 && completion.reason != DMASYNC_REASON_NONE);
		if (completion.reason == DMASYNC_REASON_KERNEL_SYNC ||
		    completion.reason == DMASYNC_REASON_UNKNOWN_BUFFER ||
		    completion.reason == DMASYNC_REASON_CANCELLED)
			return; /* of memory that is no dma-buf; of a buffer taken away meanwhile */
		if (batch->may_fail && completion.reason == DMASYNC_REASON_TOO_MANY_LINES)
			return;
		claim(batch->must_fail && batch->broken & 1u << completion.reason);
		claim(completion.bad_entry == batch->entries);
		return;
	}
	claim(!batch->must_fail);
	claim(completion.entries == batch->entries && completion.elided == batch->elided);
}

static void look(void)
{
	for (uint32_t i = 0; i < QUEUES; i++) {
		struct end *end = &ends[i];
		struct queue *queue = end->queue;

		if (!queue)
			continue;
		claim(queue->fetched - queue->completed <= 1); /* one in work */
		claim(queue->completed - queue->completions_read <= queue->ring.depth);
		claim(queue->completed - end->completed <= 1 || !end->honest ||
		      queue->completed - end->completed <= queue->ring.depth);
		end->completed = queue->completed;
	}
}

static bool take_turn(void)
{
	uint64_t entries = worker->work_entries;
	bool worked;

	turn_lines = 0;
	worked = worker_here_turn(worker);
	claim(turn_lines <= worker->slice);
	claim(worker->work_entries - entries <= worker->slice);
	take_events();
	look();
	return worked;
}

/* ---- the client ---- */

static bool open_end(struct end *end, uint8_t shape)
{
	struct dmasync_ring_layout layout = {0};
	uint32_t depth = 2u << (shape & 3), units = 2u << (shape >> 2 & 7);
	struct worker_command add = {.type = WORKER_QUEUE_ADD};

	memset(end, 0, sizeof *end);
	if (queue_create(depth, units, worker->page_fd, &end->queue, end->fds) < 0)
		return false;
	end->queue->client = client;
	end->queue->buffers = &table;
	end->queue->owner = &owner;
	end->queue->id = 1;
	end->queue->klass = (enum dmasync_class)((shape >> 5) % DMASYNC_CLASSES);
	end->submitted = end->reaped = end->units = end->completed = DMASYNC_RING_START;
	end->honest = true;
	claim(dmasync_ring_layout(depth, units, &layout));
	dmasync_ring_attach(&end->ring, end->queue->memory, &layout);
	add.queue = end->queue;
	add.client = client;
	worker_post(worker, &add);
	while (!add.context)
		take_turn();
	claim(add.error == 0);
	return true;
}

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
		model_entry(entry, rows, buffer_table_lookup(&table, handle), LINE);

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

static void submit(struct end *end, struct input *input)
{
	struct dmasync_ring *ring = &end->ring;
	struct dmasync_submission submission = {.unit_position = end->units};
	struct submitted *batch = &end->batch[end->submitted % 64];
	uint32_t entries = input_u8(input) % 32, units = 0, room;
	uint64_t least = 0, most = 0, max_lines = worker->params.max_batch_lines;
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

static void reap(struct end *end)
{
	struct dmasync_ring_completion completion;

	if (end->honest) {
		while (end->reaped != end->queue->completed) {
			look_at_result(end);
			dmasync_ring_consume_completion(&end->ring, ++end->reaped);
		}
		return;
	}
	while (dmasync_ring_poll_completion(&end->ring, end->reaped, &completion) ==
	       DMASYNC_RING_READY)
		dmasync_ring_consume_completion(&end->ring, ++end->reaped);
}

static void rewrite(struct end *end, struct input *input)
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

static void close_end(struct end *end, uint8_t which)
{
	int *fd = &end->fds[which % DMASYNC_QUEUE_FDS];

	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void step(struct input *input)
{
	uint8_t what = input_u8(input);
	struct end *end = &ends[what >> 7];

	if (!end->queue)
		end = &ends[0];
	switch (what & 15) {
	case 0:
	case 1:
	case 2:
		submit(end, input);
		break;
	case 3:
		reap(end);
		break;
	case 4:
	case 5:
		for (uint8_t i = what >> 4 & 7; i < 8; i++)
			take_turn();
		break;
	case 6:
		for (int i = 0; i < 200 && take_turn(); i++)
			;
		break;
	case 7:
		rewrite(end, input);
		break;
	case 8:
		set_fence(what >> 4);
		break;
	case 9:
		worker_here_nap(worker);
		take_turn();
		break;
	case 10:
		close_end(end, what >> 4);
		break;
	case 11: /* it may be put back: a removed buffer's memory outlives its batches */
		atomic_store(&slots[(what >> 4) % BUFFERS],
			     what & 0x80 ? &buffers[(what >> 4) % BUFFERS] : NULL);
		for (uint32_t i = 0; i < QUEUES; i++)
			if (ends[i].submitted != ends[i].reaped)
				ends[i].honest = false;
		break;
	case 12:
		helpers_here_run_one();
		break;
	case 13:
		if (end->fds[DMASYNC_QUEUE_DOORBELL] >= 0)
			(void)!write(end->fds[DMASYNC_QUEUE_DOORBELL], "", 1);
		break;
	case 14:
		__atomic_store_n(&end->ring.header->client_sleeping, 1, __ATOMIC_SEQ_CST);
		break;
	default:
		tune(input);
		for (uint32_t i = 0; i < QUEUES; i++)
			if (ends[i].submitted != ends[i].reaped)
				ends[i].honest = false;
		take_turn();
		break;
	}
}

static void close_all(bool by_client)
{
	struct worker_command stop = {.type = WORKER_CLIENT_STOP, .client = client};

	for (uint32_t i = 0; i < QUEUES; i++) {
		struct end *end = &ends[i];

		if (!end->queue)
			continue;
		end->remove = (struct worker_command){
			.type = WORKER_QUEUE_REMOVE, .queue = end->queue, .client = client};
		if (!by_client)
			worker_post(worker, &end->remove);
	}
	if (by_client)
		worker_post(worker, &stop);
	for (int i = 0; worker->queues || worker->client_count; i++) {
		claim(i < 100000); /* else it is stuck */
		if (i > 100)
			set_fence(0);
		helpers_here_run_one();
		if (!take_turn())
			worker_here_nap(worker);
	}
	if (by_client)
		claim(stop.context && stop.error == 0);
	for (uint32_t i = 0; i < QUEUES; i++) {
		struct end *end = &ends[i];

		if (!end->queue)
			continue;
		claim(by_client || (end->remove.context && end->remove.error == 0));
		for (uint8_t j = 0; j < DMASYNC_QUEUE_FDS; j++)
			close_end(end, j);
		queue_free(end->queue);
		end->queue = NULL;
	}
	claim(scheduler_is_empty(&worker->scheduler));
	claim(worker->fences == 0 && worker->cancels == 0 && worker_queue_count(worker) == 0);
	claim(worker->issued.count == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {data, size};
	uint8_t mode = input_u8(&input);

	if (!workers[0])
		set_up();
	worker = workers[mode >> 3 & 1];
	unsigned int fds = open_fds();

	for (uint32_t i = 0; i < BUFFERS; i++)
		atomic_store(&slots[i], &buffers[i]);
	set_fence(mode >> 4);
	tune(&input);
	late.end = NULL;
	for (uint32_t i = 0; i < QUEUES; i++)
		if (i == 0 || mode & 1)
			claim(open_end(&ends[i], input_u8(&input)));
	if (mode & 2) {
		ends[0].honest = false;
		set_flipping(&ends[0]);
	}
	while (input.left)
		step(&input);
	for (int i = 0; i < 1000 && take_turn(); i++)
		;
	for (uint32_t i = 0; i < QUEUES; i++)
		if (ends[i].queue)
			reap(&ends[i]);
	set_flipping(NULL);
	close_all(mode & 4);
	claim(open_fds() == fds);
	return 0;
}
