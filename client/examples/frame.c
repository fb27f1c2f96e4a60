/* SPDX-License-Identifier: MIT */
/*
 * What is in a frame: a moving ramp whose brightness rises and falls, and its measurement.
 * Plain memory only. Any thread.
 */
#include "frame.h"

#include <stdbool.h>
#include <string.h>

enum { RAMP_PERIOD = 256, BLACK = 16, WHITE = 235, NO_COLOUR = 128, SHADES = 13 };

/* One period longer than a row, so that a row that starts anywhere in the period is one copy. */
static void make_ramp(uint8_t ramp[FRAME_WIDTH + RAMP_PERIOD], uint32_t number)
{
	uint32_t step = number % 128;
	uint32_t brightness = 64 + 3 * (step < 64 ? step : 127 - step); /* 64 .. 253 of 256 */

	for (uint32_t i = 0; i < FRAME_WIDTH + RAMP_PERIOD; i++)
		ramp[i] = (uint8_t)(i % RAMP_PERIOD * brightness / 256);
}

static void sum_zones(uint8_t *frame)
{
	enum { WIDTH = FRAME_WIDTH / ZONE_COLUMNS, HEIGHT = FRAME_HEIGHT / ZONE_ROWS };

	for (uint32_t row = 0; row < ZONE_ROWS; row++) {
		uint32_t sums[ZONE_COLUMNS] = {0};

		for (uint32_t y = row * HEIGHT; y < (row + 1) * HEIGHT; y++) {
			const uint8_t *pixel = frame + FRAME_LUMA + y * FRAME_STRIDE;

			for (uint32_t column = 0; column < ZONE_COLUMNS; column++)
				for (uint32_t x = 0; x < WIDTH; x++)
					sums[column] += *pixel++;
		}
		memcpy(frame + FRAME_STATISTICS + row * ZONE_STRIDE, sums, sizeof sums);
	}
}

void frame_capture(uint8_t *frame, uint32_t number)
{
	uint8_t ramp[FRAME_WIDTH + RAMP_PERIOD];

	make_ramp(ramp, number);
	for (uint32_t y = 0; y < FRAME_HEIGHT; y++)
		memcpy(frame + FRAME_LUMA + y * FRAME_STRIDE,
		       ramp + (3 * y + 7 * number) % RAMP_PERIOD, FRAME_WIDTH);
	for (uint32_t y = 0; y < FRAME_HEIGHT / 2; y++)
		memcpy(frame + FRAME_CHROMA + y * FRAME_STRIDE,
		       ramp + (5 * y + 11 * number) % RAMP_PERIOD, FRAME_WIDTH);
	sum_zones(frame);
}

void frame_measure(const uint8_t *frame, struct exposure *ret)
{
	const struct rectangle *roi = &region_of_interest;
	uint64_t sum = 0, region_sum = 0, blue_sum = 0;

	memset(ret, 0, sizeof *ret);
	for (uint32_t row = 0; row < ZONE_ROWS; row++) {
		uint32_t sums[ZONE_COLUMNS];

		memcpy(sums, frame + FRAME_STATISTICS + row * ZONE_STRIDE, sizeof sums);
		for (uint32_t column = 0; column < ZONE_COLUMNS; column++)
			sum += sums[column];
	}
	for (uint32_t y = 0; y < roi->height; y++) {
		const uint8_t *pixel = frame + luma_offset(roi) + y * FRAME_STRIDE;

		for (uint32_t x = 0; x < roi->width; x++) {
			region_sum += pixel[x];
			ret->histogram[pixel[x] / (256 / HISTOGRAM_BINS)]++;
		}
	}
	for (uint32_t y = 0; y < roi->height / 2; y++) {
		const uint8_t *pair = frame + chroma_offset(roi) + y * FRAME_STRIDE;

		for (uint32_t x = 0; x < roi->width; x += 2)
			blue_sum += pair[x];
	}
	ret->mean = (uint32_t)(sum / (FRAME_WIDTH * FRAME_HEIGHT));
	ret->region_mean = (uint32_t)(region_sum / (roi->width * roi->height));
	ret->region_blue = (uint32_t)(blue_sum / (roi->width * roi->height / 4));
}

void frame_draw_overlay(uint8_t *frame, uint32_t number, const struct exposure *exposure)
{
	enum { BAR_ROWS = 4 };
	const uint32_t column_width = overlay.width / HISTOGRAM_BINS;
	const uint32_t columns_height = overlay.height - BAR_ROWS;
	const uint8_t shade = (uint8_t)(number % SHADES);
	uint32_t largest = 1;

	for (uint32_t bin = 0; bin < HISTOGRAM_BINS; bin++)
		if (exposure->histogram[bin] > largest)
			largest = exposure->histogram[bin];

	for (uint32_t y = 0; y < overlay.height; y++) {
		uint8_t *pixel = frame + luma_offset(&overlay) + y * FRAME_STRIDE;

		for (uint32_t x = 0; x < overlay.width; x++) {
			uint32_t count = exposure->histogram[x / column_width];
			uint32_t top = overlay.height - count * columns_height / largest;
			bool lit = y < BAR_ROWS ? x < exposure->mean : y >= top;

			pixel[x] = (uint8_t)((lit ? WHITE - SHADES : BLACK) + shade);
		}
	}
	for (uint32_t y = 0; y < overlay.height / 2; y++)
		memset(frame + chroma_offset(&overlay) + y * FRAME_STRIDE, NO_COLOUR + shade,
		       overlay.width);
}
