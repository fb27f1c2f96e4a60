/* SPDX-License-Identifier: MIT */
/* See model.h. In 128 bits, so that nothing here can overflow. */
#include "model.h"

typedef unsigned __int128 wide;

#define BIT(reason) (UINT32_C(1) << DMASYNC_REASON_##reason)

static wide lines_of(wide first_byte, wide length, uint32_t step)
{
	return (first_byte + length - 1) / step - first_byte / step + 1;
}

struct model_entry model_entry(const struct dmasync_unit *entry,
			       const struct dmasync_unit_rows *rows,
			       const struct cache_buffer *buffer, uint32_t line)
{
	struct model_entry model = {0};
	uint32_t sync = entry->word >> DMASYNC_UNIT_SYNC_SHIFT & 3;
	uint32_t direction = entry->word >> DMASYNC_UNIT_DIRECTION_SHIFT & 3;
	wide count = rows ? rows->rows : 1, stride = rows && count > 1 ? rows->stride : 0;
	wide end = (wide)entry->offset + (count ? count - 1 : 0) * stride + entry->length;

	if (entry->word & DMASYNC_UNIT_RESERVED || (rows && rows->reserved))
		model.broken |= BIT(RESERVED_BITS);
	if (sync != DMASYNC_FOR_DEVICE && sync != DMASYNC_FOR_CPU)
		model.broken |= BIT(BAD_SYNC);
	if (direction == 0)
		model.broken |= BIT(BAD_DIRECTION);
	if (count == 0 || (count > 1 && stride < entry->length))
		model.broken |= BIT(BAD_STRIDE);
	if (!buffer)
		model.broken |= BIT(UNKNOWN_BUFFER);
	if (end > UINT64_MAX)
		model.broken |= BIT(OVERFLOW);
	if (buffer && end > buffer->size)
		model.broken |= BIT(OUT_OF_RANGE);
	if (model.broken)
		return model;

	model.flush = sync == DMASYNC_FOR_CPU;
	model.kernel = buffer->backend == DMASYNC_BACKEND_KERNEL;
	model.elided = entry->length == 0 || buffer->backend == DMASYNC_BACKEND_NONE ||
		       (sync == DMASYNC_FOR_CPU && direction == DMASYNC_TO_DEVICE);
	model.step = buffer->backend == DMASYNC_BACKEND_SIMULATED ? CACHE_SIMULATED_LINE : line;
	if (model.elided || model.kernel)
		return model;
	/* At least the lines of one row, and one more for each further one that has a gap. */
	wide one = lines_of((wide)buffer->base + entry->offset, entry->length, model.step);
	wide all = (wide)count * (((wide)entry->length - 1) / model.step + 2);
	wide span = lines_of((wide)buffer->base + entry->offset, end - entry->offset, model.step);

	model.least = (uint64_t)one;
	model.most = (uint64_t)(all > span ? all : span);
	return model;
}

void model_lines(const struct dmasync_unit *entry, const struct dmasync_unit_rows *rows,
		 const struct cache_buffer *buffer, uint32_t step,
		 void (*each)(void *context, uint64_t address), void *context)
{
	for (uint64_t row = 0; row < (rows ? rows->rows : 1); row++) {
		uint64_t first = buffer->base + entry->offset + (row ? row * rows->stride : 0);
		uint64_t last = first + entry->length - 1;

		for (uint64_t at = first / step * step; at <= last; at += step)
			each(context, at);
	}
}
