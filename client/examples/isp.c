/* SPDX-License-Identifier: MIT */
/*
 * The ISP process: the CPU's part of the pipeline, and the one that syncs. It owns the buffers. Per
 * frame: one batch for the CPU with what it is going to read, one for the device with what it
 * wrote. One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link.h"
#include "pipeline.h"

/* A completion takes microseconds. Who waits without a bound hangs with whom it waits for. */
static const int64_t patience_ns = INT64_C(5000000000);

struct isp {
	const struct pipeline *pipeline;
	struct dmasync *ds;
	struct dmasync_queue *queue;
	struct dmasync_buffer *buffers[PIPELINE_BUFFERS];
	uint8_t *memory[PIPELINE_BUFFERS];
	struct results *results;
};

/* One wait for the whole batch. A batch that failed has synced nothing. */
static int submit_and_wait(struct isp *isp, struct dmasync_batch *batch, uint64_t user_data,
			   uint64_t *lines)
{
	struct dmasync_completion completion;
	char text[512];
	int r = dmasync_batch_submit(batch, user_data); /* the first error of add, too */

	if (r < 0)
		return complain("isp", "cannot submit a batch", r);
	r = dmasync_wait(isp->queue, &completion, patience_ns);
	if (r < 0)
		return complain("isp", "no completion", r);
	if (completion.status < 0) {
		dmasync_completion_text(&completion, text, sizeof text);
		fprintf(stderr, "isp: a batch failed: %s\n", text);
		return completion.status;
	}
	*lines += completion.lines;
	isp->results->batches++;
	return 0;
}

/* Before the CPU reads what a device wrote: exactly what is read, however it lies in the buffer. */
static int sync_for_cpu(struct isp *isp, uint32_t number, struct dmasync_buffer *frame)
{
	const struct rectangle *roi = &region_of_interest;
	struct dmasync_batch *batch;
	int r = dmasync_batch_begin(isp->queue, &batch);

	if (r < 0)
		return complain("isp", "cannot begin a batch", r);
	dmasync_batch_add_rows(batch, frame, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, FRAME_STATISTICS,
			       ZONE_ROW_BYTES, ZONE_ROWS, ZONE_STRIDE);
	dmasync_batch_add_rows(batch, frame, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, luma_offset(roi),
			       roi->width, roi->height, FRAME_STRIDE);
	dmasync_batch_add_rows(batch, frame, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE,
			       chroma_offset(roi), roi->width, roi->height / 2, FRAME_STRIDE);
	return submit_and_wait(isp, batch, number, &isp->results->lines_for_cpu);
}

/*
 * After the CPU wrote, before a device reads. Bidirectional, for the sensor will write this buffer
 * again: a line that is still dirty then would later be written back over the new picture. The
 * overlay is all that this process dirties, so nothing else needs cleaning.
 */
static int sync_for_device(struct isp *isp, uint32_t number, struct dmasync_buffer *frame)
{
	struct dmasync_batch *batch;
	int r = dmasync_batch_begin(isp->queue, &batch);

	if (r < 0)
		return complain("isp", "cannot begin a batch", r);
	dmasync_batch_add_rows(batch, frame, DMASYNC_FOR_DEVICE, DMASYNC_BIDIRECTIONAL,
			       luma_offset(&overlay), overlay.width, overlay.height, FRAME_STRIDE);
	dmasync_batch_add_rows(batch, frame, DMASYNC_FOR_DEVICE, DMASYNC_BIDIRECTIONAL,
			       chroma_offset(&overlay), overlay.width, overlay.height / 2,
			       FRAME_STRIDE);
	return submit_and_wait(isp, batch, number, &isp->results->lines_for_device);
}

static int process_frame(struct isp *isp, struct frame_message *message)
{
	struct dmasync_buffer *buffer = isp->buffers[message->buffer];
	uint8_t *memory = isp->memory[message->buffer];
	int r = 0;

	if (isp->pipeline->left_out != LEFT_OUT_FOR_CPU)
		r = sync_for_cpu(isp, message->number, buffer);
	if (r < 0)
		return r;

	frame_measure(memory, &message->exposure);
	frame_draw_overlay(memory, message->number, &message->exposure);

	if (isp->pipeline->left_out != LEFT_OUT_FOR_DEVICE)
		r = sync_for_device(isp, message->number, buffer);
	return r;
}

static int process_frames(struct isp *isp, int sensor_link, int consumer_link)
{
	struct frame_message message;
	int r;

	while ((r = link_receive(sensor_link, &message)) > 0) {
		r = process_frame(isp, &message);
		if (r < 0)
			return r;
		r = link_send(consumer_link, &message);
		if (r < 0)
			return complain("isp", "the consumer went away", r);
	}
	return r;
}

static int allocate_buffers(struct isp *isp)
{
	struct dmasync_buffer_params params;

	dmasync_buffer_params_init(&params);
	params.bytes = FRAME_BYTES;
	params.memory = isp->pipeline->memory;
	if (isp->pipeline->simulated)
		params.memory = DMASYNC_MEMORY_SIMULATED;
	else
		params.flags = DMASYNC_IMPORT_DIRECT;

	for (uint32_t i = 0; i < PIPELINE_BUFFERS; i++) {
		int r = dmasync_buffer_alloc(isp->ds, &params, &isp->buffers[i]);

		if (r < 0) {
			char text[512];

			dmasync_error_text(isp->ds, text, sizeof text);
			fprintf(stderr, "isp: cannot allocate a buffer of %d bytes: %s\n",
				FRAME_BYTES, text);
			return r;
		}
		isp->memory[i] = dmasync_buffer_map(isp->buffers[i]);
		if (!isp->memory[i])
			return complain("isp", "cannot map a buffer", -ENOMEM);
	}
	return 0;
}

static int share_buffers(struct isp *isp, int sensor_link, int consumer_link)
{
	struct dmasync_buffer_info info = {.size = sizeof info};
	int fds[PIPELINE_BUFFERS];
	int r;

	for (uint32_t i = 0; i < PIPELINE_BUFFERS; i++) {
		r = dmasync_buffer_get_info(isp->buffers[i], &info);
		if (r < 0)
			return complain("isp", "what is this buffer?", r);
		fds[i] = info.fd;
	}
	isp->results->memory = info.memory;
	r = link_send_fds(sensor_link, fds, PIPELINE_BUFFERS);
	if (r == 0)
		r = link_send_fds(consumer_link, fds, PIPELINE_BUFFERS);
	return r < 0 ? complain("isp", "cannot pass the buffers on", r) : 0;
}

int isp_run(const struct pipeline *pipeline, int sensor_link, int consumer_link,
	    struct results *results)
{
	struct isp isp = {.pipeline = pipeline, .results = results};
	struct dmasync_queue_params params;
	int r = pipeline_connect(pipeline, "demo-isp", &isp.ds);

	if (r < 0)
		return EXIT_FAILURE;
	dmasync_queue_params_init(&params);
	r = dmasync_queue_create(isp.ds, &params, &isp.queue);
	if (r < 0)
		complain("isp", "cannot create a queue", r);
	if (r == 0)
		r = allocate_buffers(&isp);
	if (r == 0)
		r = share_buffers(&isp, sensor_link, consumer_link);
	if (r == 0)
		r = process_frames(&isp, sensor_link, consumer_link);

	for (uint32_t i = 0; i < PIPELINE_BUFFERS; i++)
		dmasync_buffer_destroy(isp.buffers[i]);
	dmasync_queue_destroy(isp.queue);
	dmasync_disconnect(isp.ds);
	return r == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
