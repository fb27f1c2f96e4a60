/* SPDX-License-Identifier: MIT */
/*
 * Clients over the library, simulated memory and its expected contents. For one thread of a test.
 */
#include "tests/e2e/support.h"

#include <stdlib.h>
#include <string.h>

bool client_is_inline(void)
{
	return getenv("DMASYNC_E2E_INLINE") != NULL;
}

void client_connect_with(struct client *client, const char *socket, uint32_t flags)
{
	char text[512] = "";
	struct dmasync_connect_params params;

	dmasync_connect_params_init(&params);
	params.socket = socket;
	params.flags = flags;
	params.timeout_ms = (uint32_t)harness_scaled_ms(PATIENCE_MS);
	params.error_text = text;
	params.error_text_size = sizeof text;
	if (dmasync_connect_with(&params, &client->ds) < 0)
		fail_case("%s: %s", socket, text);
}

void client_connect(struct client *client, const char *socket)
{
	client_connect_with(client, socket,
			    client_is_inline() ? DMASYNC_INLINE | DMASYNC_INLINE_SIMULATED
					       : DMASYNC_NO_RECONNECT);
}

void client_queue(struct client *client, uint32_t depth, uint32_t units)
{
	struct dmasync_queue_params params;

	dmasync_queue_params_init(&params);
	params.depth = depth;
	params.units = units;
	check_int(dmasync_queue_create(client->ds, &params, &client->queue), 0);
}

void client_open(struct client *client, const char *socket, uint32_t depth, uint32_t units)
{
	client_connect(client, socket);
	client_queue(client, depth, units);
}

void client_close(struct client *client)
{
	dmasync_queue_destroy(client->queue);
	dmasync_disconnect(client->ds);
}

void client_submit(struct client *client, struct dmasync_buffer *buffer, const struct range *ranges,
		   size_t count, uint64_t user_data)
{
	struct dmasync_batch *batch;

	check_int(dmasync_batch_begin(client->queue, &batch), 0);
	for (size_t i = 0; i < count; i++) {
		const struct range *range = &ranges[i];

		if (range->rows > 1)
			check_int(dmasync_batch_add_rows(batch, buffer, range->sync,
							 range->direction, range->offset,
							 range->length, range->rows, range->stride),
				  0);
		else
			check_int(dmasync_batch_add(batch, buffer, range->sync, range->direction,
						    range->offset, range->length),
				  0);
	}
	check_int(dmasync_batch_submit(batch, user_data), 0);
}

void client_wait(struct client *client, struct dmasync_completion *ret)
{
	check_int(dmasync_wait(client->queue, ret, PATIENCE_NS), 0);
	check_int(!!(ret->flags & DMASYNC_COMPLETION_INLINE), client_is_inline());
}

void client_run(struct client *client, struct dmasync_buffer *buffer, const struct range *ranges,
		size_t count, struct dmasync_completion *ret)
{
	client_submit(client, buffer, ranges, count, 0);
	client_wait(client, ret);
	check_int(ret->status, 0);
	check_int(ret->entries, count);
	check_int(ret->bytes, ret->lines * LINE);
}

void memory_alloc(struct memory *memory, struct dmasync *ds, size_t size)
{
	struct dmasync_buffer_params params;

	dmasync_buffer_params_init(&params);
	params.bytes = size;
	params.memory = DMASYNC_MEMORY_SIMULATED;
	memory->size = size;
	check_int(dmasync_buffer_alloc(ds, &params, &memory->buffer), 0);
	memory->cpu = dmasync_buffer_map(memory->buffer);
	memory->device = dmasync_buffer_map_device(memory->buffer);
	check(memory->cpu && memory->device && memory->cpu != memory->device);
}

void memory_free(struct memory *memory)
{
	dmasync_buffer_destroy(memory->buffer);
}

void stripes_begin(struct stripes *stripes, size_t size)
{
	stripes->lines = size / LINE;
	stripes->line = calloc(stripes->lines, sizeof *stripes->line);
	stripes->value = 0;
	check(stripes->line);
}

void stripes_end(struct stripes *stripes)
{
	free(stripes->line);
}

void stripe(struct stripes *stripes, uint8_t *side)
{
	uint64_t *words = (uint64_t *)(void *)side;

	stripes->value++;
	for (size_t i = 0; i < stripes->lines * LINE / sizeof *words; i++)
		words[i] = stripes->value;
}

uint64_t stripes_expect(struct stripes *stripes, const struct range *range)
{
	uint64_t rows = range->rows ? range->rows : 1, changed = 0;

	/* From line to line: no rounding of the tested code is repeated here. */
	for (uint64_t row = 0; row < rows; row++) {
		uint64_t start = range->offset + row * range->stride;

		for (uint64_t byte = start; byte < start + range->length;
		     byte = (byte / LINE + 1) * LINE) {
			changed += stripes->line[byte / LINE] != stripes->value;
			stripes->line[byte / LINE] = stripes->value;
		}
	}
	return changed;
}

void stripes_check(const struct stripes *stripes, const uint8_t *side, const struct range *range)
{
	const uint64_t *words = (const uint64_t *)(const void *)side;

	for (size_t line = 0; line < stripes->lines; line++)
		for (size_t i = 0; i < LINE / sizeof *words; i++)
			if (words[line * (LINE / sizeof *words) + i] != stripes->line[line])
				fail_case("line %zu holds %llu instead of %llu after offset %llu, "
					  "length %llu, rows %llu, stride %llu (value %llu)",
					  line,
					  (unsigned long long)
						  words[line * (LINE / sizeof *words) + i],
					  (unsigned long long)stripes->line[line],
					  (unsigned long long)range->offset,
					  (unsigned long long)range->length,
					  (unsigned long long)range->rows,
					  (unsigned long long)range->stride,
					  (unsigned long long)stripes->value);
}

struct holdings holdings_of(const struct harness_daemon *daemon)
{
	return (struct holdings){
		.fds = harness_count_fds(daemon->pid),
		.shared_maps = harness_count_shared_maps(daemon->pid),
	};
}

void holdings_await(const struct harness_daemon *daemon, const struct holdings *before)
{
	harness_until(harness_count_fds(daemon->pid) <= before->fds, PATIENCE_MS);
	harness_until(harness_count_shared_maps(daemon->pid) <= before->shared_maps, PATIENCE_MS);
}
