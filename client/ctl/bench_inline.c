/* SPDX-License-Identifier: MIT */
/* See bench_inline.h. */
#include "client/ctl/bench_inline.h"

#include "client/ctl/names.h"
#include "client/internal.h"

int bench_inline_open(struct bench_inline *in_process, struct dmasync *daemon,
		      const struct dmasync_buffer_info *info, uint32_t units)
{
	struct dmasync_queue_params params;
	char text[CLIENT_ERROR_TEXT_SIZE];
	int r = dmasync_connect(NULL, DMASYNC_INLINE | DMASYNC_INLINE_SIMULATED, &in_process->ds);

	if (r < 0)
		return control_error(daemon, r, "inline mode: %s", describe(r));
	r = dmasync_buffer_import(in_process->ds, info->fd, names_backend_flag((int)info->backend),
				  &in_process->buffer);
	dmasync_queue_params_init(&params);
	params.units = units;
	if (r == 0)
		r = dmasync_queue_create(in_process->ds, &params, &in_process->queue);
	if (r == 0)
		return 0;
	dmasync_error_text(in_process->ds, text, sizeof text);
	return control_error(daemon, r, "inline mode: %s", text);
}

void bench_inline_close(struct bench_inline *in_process)
{
	dmasync_queue_destroy(in_process->queue);
	dmasync_buffer_destroy(in_process->buffer);
	dmasync_disconnect(in_process->ds);
}

int bench_inline_sync(struct bench_inline *in_process, enum dmasync_sync sync,
		      enum dmasync_direction direction, const struct dmasync_range *ranges,
		      uint32_t count, uint64_t *ret_ns)
{
	struct dmasync_completion completion;
	struct dmasync_batch *batch;
	int64_t start = now_ns();
	int r = dmasync_batch_begin(in_process->queue, &batch);

	if (r < 0)
		return r;
	dmasync_batch_add_ranges(batch, in_process->buffer, sync, direction, ranges, count);
	r = dmasync_batch_submit(batch, 0); /* the work is in here */
	if (r == 0)
		r = dmasync_wait(in_process->queue, &completion, 0);
	if (r < 0)
		return r;
	*ret_ns = (uint64_t)(now_ns() - start);
	return completion.status;
}
