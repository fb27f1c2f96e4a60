/* SPDX-License-Identifier: MIT */
/*
 * The selftest's simulated device: this program writes the device's side of a simulated buffer, in
 * which every line stays as the CPU last saw it until it is synced. Owns the buffer. Main thread.
 */
#include <stdlib.h>
#include <string.h>

#include "client/ctl/ctl.h"
#include "client/ctl/selftest.h"

struct simulated {
	struct selftest_device device; /* first: a device is freed as what it is part of */
	uint64_t bytes;
	uint64_t frames;
	struct dmasync_buffer *buffer;
};

static struct simulated *of(struct selftest_device *device)
{
	return (struct simulated *)device;
}

static int attach(struct selftest_device *device, struct dmasync *ds, uint32_t flags,
		  struct dmasync_buffer **ret)
{
	struct dmasync_buffer_params params;

	dmasync_buffer_params_init(&params);
	params.memory = DMASYNC_MEMORY_SIMULATED;
	params.bytes = of(device)->bytes;
	params.flags = flags;
	int r = dmasync_buffer_alloc(ds, &params, &of(device)->buffer);
	if (r >= 0)
		*ret = of(device)->buffer;
	return r;
}

/* Never twice the same bytes at the same place within 2^32 frames. */
static int frame(struct selftest_device *device, uint64_t window)
{
	struct simulated *simulated = of(device);
	char *memory = dmasync_buffer_map_device(simulated->buffer);

	(void)window;
	if (!memory)
		return ctl_fail("selftest: the device's side of the buffer cannot be mapped");
	simulated->frames++;
	for (uint64_t at = 0; at + sizeof(uint64_t) <= simulated->bytes; at += sizeof(uint64_t)) {
		uint64_t word = simulated->frames << 32 | (at & UINT32_MAX);

		memcpy(memory + at, &word, sizeof word);
	}
	return CTL_OK;
}

static const void *written(struct selftest_device *device)
{
	return dmasync_buffer_map_device(of(device)->buffer);
}

static void detach(struct selftest_device *device)
{
	dmasync_buffer_destroy(of(device)->buffer);
	of(device)->buffer = NULL;
}

static void close_simulated(struct selftest_device *device)
{
	free(of(device));
}

struct selftest_device *selftest_simulated_new(uint64_t bytes)
{
	struct simulated *simulated = calloc(1, sizeof *simulated);

	if (!simulated)
		return NULL;
	simulated->bytes = bytes;
	simulated->device = (struct selftest_device){
		.attach = attach,
		.frame = frame,
		.written = written,
		.detach = detach,
		.close = close_simulated,
		.name = "simulated non-coherent device",
		.note = "the frame's number in every word",
	};
	return &simulated->device;
}
