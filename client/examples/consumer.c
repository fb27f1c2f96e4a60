/* SPDX-License-Identifier: MIT */
/*
 * The consumer process plays the second device: it reads the device's side of every frame and
 * compares all of it with what the frame should be. One thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "link.h"
#include "pipeline.h"

static bool line_is_in_overlay(uint32_t offset)
{
	uint32_t y = offset / FRAME_STRIDE, x = offset % FRAME_STRIDE;

	if (offset >= FRAME_STATISTICS)
		return false;
	if (offset >= FRAME_CHROMA)
		y = (y - FRAME_HEIGHT) * 2;
	return x >= overlay.x && x < overlay.x + overlay.width && y >= overlay.y &&
	       y < overlay.y + overlay.height;
}

/* Where on the map a line of the picture stands: luma above, chroma (half as high) below. */
static uint32_t *zone_of(struct results *results, uint32_t offset)
{
	uint32_t row = offset / FRAME_STRIDE / (FRAME_HEIGHT / ZONE_ROWS);
	uint32_t column = offset % FRAME_STRIDE / (FRAME_WIDTH / ZONE_COLUMNS);

	return offset < FRAME_STATISTICS && row < ZONE_ROWS + ZONE_ROWS / 2
		       ? &results->wrong_in_zone[row][column]
		       : NULL;
}

static void compare_lines(const uint8_t *frame, const uint8_t *expected, struct results *results)
{
	for (uint32_t offset = 0; offset < FRAME_BYTES; offset += LINE) {
		if (memcmp(frame + offset, expected + offset, LINE) == 0)
			continue;
		results->lines_wrong++;
		if (line_is_in_overlay(offset))
			results->lines_wrong_in_overlay++;

		uint32_t *zone = zone_of(results, offset);

		if (zone)
			++*zone;
		for (uint32_t i = 0; i < LINE; i++)
			results->bytes_wrong += frame[offset + i] != expected[offset + i];
	}
}

static void check_frame(const uint8_t *frame, uint8_t *expected,
			const struct frame_message *message, struct results *results)
{
	struct exposure exposure;

	/* The same stages in private memory, where nothing can be stale. */
	frame_capture(expected, message->number);
	frame_measure(expected, &exposure);
	frame_draw_overlay(expected, message->number, &exposure);

	bool frame_right = memcmp(frame, expected, FRAME_BYTES) == 0;
	bool exposure_right = memcmp(&exposure, &message->exposure, sizeof exposure) == 0;

	results->frames_checked++;
	if (frame_right && exposure_right)
		return;
	if (results->frames_wrong++ == 0) {
		results->measured = message->exposure;
		results->expected = exposure;
	}
	results->exposures_wrong += !exposure_right;
	compare_lines(frame, expected, results);
}

/* On a terminal one line that moves, elsewhere a line per 100 frames. */
static void show_progress(const struct pipeline *pipeline, const struct results *results)
{
	bool terminal = isatty(STDOUT_FILENO);
	uint32_t n = results->frames_checked;

	if (n != pipeline->frames && n % (terminal ? 10 : 100) != 0)
		return;
	printf("%s  frame %u of %u, %u wrong%s", terminal ? "\r" : "", n, pipeline->frames,
	       results->frames_wrong, terminal && n != pipeline->frames ? "" : "\n");
	fflush(stdout);
}

static int check_frames(const struct pipeline *pipeline, const struct device *device,
			uint8_t *expected, int isp_link, int sensor_link, struct results *results)
{
	struct frame_message message;
	int r;

	while ((r = link_receive(isp_link, &message)) > 0) {
		check_frame(device->memory[message.buffer], expected, &message, results);
		show_progress(pipeline, results);
		r = link_send(sensor_link, &message);
		if (r < 0)
			return complain("consumer", "the sensor went away", r);
	}
	if (r == 0 && results->frames_checked != pipeline->frames) {
		fprintf(stderr, "consumer: the ISP stopped after %u of %u frames\n",
			results->frames_checked, pipeline->frames);
		return -1;
	}
	return r;
}

int consumer_run(const struct pipeline *pipeline, int isp_link, int sensor_link,
		 struct results *results)
{
	struct device device;
	uint8_t *expected = calloc(1, FRAME_BYTES);
	int r = device_open(pipeline, "demo-consumer", isp_link, &device);

	if (r == 0 && expected)
		r = check_frames(pipeline, &device, expected, isp_link, sensor_link, results);
	device_close(&device);
	free(expected);
	return r == 0 && expected ? EXIT_SUCCESS : EXIT_FAILURE;
}
