/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: libdmasync and a daemon that answers, publishes and dies as the input says. Every
 * call comes back, with 0 or a negative errno; nothing completes that was not submitted; in the end
 * no fd and no mapping is left. One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <dmasync/dmasync.h>

#include "fuzz.h"
#include "hostile_here.h"

#define QUEUES 2u
#define BUFFERS 3u

struct user {
	struct dmasync *ds;
	struct dmasync_queue *queues[QUEUES];
	uint64_t submitted[QUEUES], completed[QUEUES];
	struct dmasync_buffer *buffers[BUFFERS];
};

static int memory = -1;
static uint64_t states;

static void broken_pipe(int number)
{
	(void)number;
	claim(hostile_writes);
}

static void is_error(int r)
{
	claim(r <= 0 && r >= -4095);
}

static void state_changed(struct dmasync *ds, enum dmasync_state state, void *context)
{
	claim(context == &states && ds && state <= DMASYNC_STATE_INLINE);
	states++;
}

static void come(struct user *user, uint8_t how)
{
	char text[64] = "";
	struct dmasync_connect_params params;

	if (user->ds)
		return;
	dmasync_connect_params_init(&params);
	params.flags = how & 1	 ? DMASYNC_NO_RECONNECT
		       : how & 2 ? DMASYNC_INLINE_FALLBACK | DMASYNC_INLINE_SIMULATED
				 : 0;
	params.socket = "/nowhere";
	params.timeout_ms = 20;
	params.give_up_ms = how & 4 ? 0 : 100;
	params.error_text = text;
	params.error_text_size = sizeof text;

	int r = dmasync_connect_with(&params, &user->ds);

	is_error(r);
	claim(r == 0 || strnlen(text, sizeof text) < sizeof text);
	if (r < 0)
		return;
	if (how & 8)
		claim(dmasync_set_state_callback(user->ds, state_changed, &states) == 0);
}

static void destroy_queue(struct user *user, uint32_t i)
{
	dmasync_queue_destroy(user->queues[i]);
	user->queues[i] = NULL;
	user->submitted[i] = user->completed[i] = 0;
}

static void leave(struct user *user)
{
	for (uint32_t i = 0; i < QUEUES; i++)
		destroy_queue(user, i);
	for (uint32_t i = 0; i < BUFFERS; i++) {
		dmasync_buffer_destroy(user->buffers[i]);
		user->buffers[i] = NULL;
	}
	dmasync_disconnect(user->ds);
	user->ds = NULL;
}

static void make_buffer(struct user *user, uint32_t i, uint8_t how)
{
	struct dmasync_buffer_params params;
	struct dmasync_buffer_info info = {.size = sizeof info};
	int r;

	if (user->buffers[i])
		return;
	dmasync_buffer_params_init(&params);
	params.bytes = 1 + how * 16u;
	params.memory = how & 1 ? DMASYNC_MEMORY_SIMULATED : DMASYNC_MEMORY_MEMFD;
	if (how & 2)
		r = dmasync_buffer_import(user->ds, memory, how & 4 ? DMASYNC_IMPORT_DIRECT : 0,
					  &user->buffers[i]);
	else
		r = dmasync_buffer_alloc(user->ds, &params, &user->buffers[i]);
	is_error(r);
	claim((r == 0) == (user->buffers[i] != NULL));
	if (r == 0)
		claim(dmasync_buffer_get_info(user->buffers[i], &info) == 0);
}

static void make_queue(struct user *user, uint32_t i, uint8_t how)
{
	struct dmasync_queue_params params;
	int r;

	if (user->queues[i])
		return;
	dmasync_queue_params_init(&params);
	params.depth = 2u << (how & 3);
	params.units = 4u << (how >> 2 & 3);
	params.spin_us = how >> 4;
	r = dmasync_queue_create(user->ds, &params, &user->queues[i]);
	is_error(r);
	claim((r == 0) == (user->queues[i] != NULL));
}

static void submit(struct user *user, uint32_t i, struct input *input)
{
	struct dmasync_batch *batch;
	uint8_t entries = input_u8(input);
	int r = dmasync_batch_begin(user->queues[i], &batch);

	is_error(r);
	if (r < 0)
		return;
	for (uint8_t j = 0; j < entries % 16; j++) {
		struct dmasync_buffer *buffer = user->buffers[j % BUFFERS];
		uint16_t offset = input_u16(input), length = input_u16(input);

		if (!buffer)
			continue;
		if (j & 1)
			is_error(dmasync_batch_add_rows(batch, buffer, DMASYNC_FOR_CPU,
							DMASYNC_FROM_DEVICE, offset % 512,
							length % 64, 1 + j, 128));
		else
			is_error(dmasync_batch_add(batch, buffer, DMASYNC_FOR_DEVICE,
						   DMASYNC_TO_DEVICE, offset, length));
	}
	if (entries & 0x80) {
		dmasync_batch_abort(batch);
		return;
	}
	r = dmasync_batch_submit(batch, ++user->submitted[i]);
	is_error(r);
	if (r < 0)
		user->submitted[i]--;
}

/* What submit() refused may have been one that completes all the same: never more than were begun.
 */
static void completes(struct user *user, uint32_t i, const struct dmasync_completion *completion)
{
	char text[256];

	claim(++user->completed[i] <= user->submitted[i]);
	is_error(completion->status);
	claim(dmasync_completion_text(completion, text, sizeof text) > 0);
	claim(strnlen(text, sizeof text) < sizeof text);
}

static void use_queue(struct user *user, uint32_t i, uint8_t what, struct input *input)
{
	struct dmasync_completion completion;
	int r;

	switch (what) {
	case 3:
	case 4:
		submit(user, i, input);
		break;
	case 5:
		r = dmasync_peek(user->queues[i], &completion);
		is_error(r == 1 ? 0 : r);
		if (r == 1)
			completes(user, i, &completion);
		break;
	case 6:
		r = dmasync_wait(user->queues[i], &completion, input_u16(input) * INT64_C(1000));
		is_error(r);
		if (r == 0)
			completes(user, i, &completion);
		break;
	case 7:
		if (!user->buffers[0])
			break;
		r = dmasync_sync(user->queues[i], user->buffers[0], DMASYNC_FOR_DEVICE,
				 DMASYNC_TO_DEVICE, 0, 16);
		is_error(r);
		user->submitted[i] += r < 0; /* it may come as a completion later */
		break;
	default:
		r = dmasync_queue_fd(user->queues[i]);
		claim(r >= 0 || r >= -4095);
		break;
	}
}

static void ask(struct user *user)
{
	struct dmasync_state_info state = {.size = sizeof state};
	struct dmasync_info info = {.size = sizeof info};
	char text[512];

	claim(dmasync_get_state(user->ds, &state) == 0 && state.state <= DMASYNC_STATE_INLINE);
	claim(dmasync_get_info(user->ds, &info) == 0);
	claim(strnlen(info.daemon_version, sizeof info.daemon_version) <
	      sizeof info.daemon_version);
	dmasync_error_text(user->ds, text, sizeof text);
	claim(strnlen(text, sizeof text) < sizeof text);
}

static void step(struct user *user, struct input *input)
{
	uint8_t what = input_u8(input), how = what >> 4;
	uint32_t queue = how & (QUEUES - 1), buffer = how % BUFFERS;

	if (!user->ds) {
		come(user, what);
		return;
	}
	switch (what & 15) {
	case 0:
	case 1:
		make_buffer(user, buffer, input_u8(input));
		break;
	case 2:
		make_queue(user, queue, input_u8(input));
		break;
	case 8:
		hostile_act();
		break;
	case 9:
		destroy_queue(user, queue);
		break;
	case 10:
		dmasync_buffer_destroy(user->buffers[buffer]);
		user->buffers[buffer] = NULL;
		break;
	case 12:
		ask(user);
		break;
	case 13:
		leave(user);
		break;
	default:
		if (user->queues[queue])
			use_queue(user, queue, what & 15, input);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {data, size};
	struct user user = {0};

	if (memory < 0) {
		memory = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		claim(memory >= 0 && ftruncate(memory, 8192) == 0);
		claim(fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
		claim(signal(SIGPIPE, broken_pipe) != SIG_ERR);
	}
	unsigned int fds = open_fds();
	int maps = hostile_maps();

	hostile_begin(&input);
	while (input.left)
		step(&user, &input);
	leave(&user);
	hostile_end();
	claim(hostile_maps() == maps);
	claim(open_fds() == fds);
	return 0;
}
