/* SPDX-License-Identifier: MIT */
/*
 * One NV12 frame of the demo: its geometry, and what sensor and ISP do with it, in plain memory.
 * Nothing here knows of sharing or syncing. Any thread.
 */
#ifndef DEMO_FRAME_H
#define DEMO_FRAME_H

#include <stdint.h>

/* A rectangle of pixels. In NV12 two pixels share a chroma pair, so everything is even. */
struct rectangle {
	uint32_t x, y, width, height;
};

enum {
	FRAME_WIDTH = 1920,
	FRAME_HEIGHT = 1080,
	FRAME_STRIDE = 1920,

	/* Where things stand in the buffer, in bytes. */
	FRAME_LUMA = 0,
	FRAME_CHROMA = FRAME_STRIDE * FRAME_HEIGHT,
	FRAME_STATISTICS = (FRAME_CHROMA + FRAME_CHROMA / 2 + 4095) & ~4095,

	/*
	 * The sensor's statistics block: one sum for each zone of 60 x 60 pixels. The hardware pads
	 * its rows, so what is worth reading is strided, as a region of a picture is.
	 */
	ZONE_COLUMNS = 32,
	ZONE_ROWS = 18,
	ZONE_ROW_BYTES = ZONE_COLUMNS * (int)sizeof(uint32_t),
	ZONE_STRIDE = 512,

	FRAME_BYTES = FRAME_STATISTICS + ZONE_ROWS * ZONE_STRIDE,

	HISTOGRAM_BINS = 32,
};

/*
 * What the ISP reads and where it draws. Both start and end on a line of 64 bytes: an overlay that
 * covered a part of a line would share it with the sensor's pixels, and would have to sync those
 * for the CPU before it draws.
 */
static const struct rectangle region_of_interest = {832, 476, 256, 128};
static const struct rectangle overlay = {64, 64, 256, 64};

static inline uint32_t luma_offset(const struct rectangle *r)
{
	return FRAME_LUMA + r->y * FRAME_STRIDE + r->x;
}

/* Interleaved pairs at half resolution: as many bytes a row as luma, half as many rows. */
static inline uint32_t chroma_offset(const struct rectangle *r)
{
	return FRAME_CHROMA + r->y / 2 * FRAME_STRIDE + r->x;
}

struct exposure {
	uint32_t mean;	      /* luma of the whole picture, from the statistics block */
	uint32_t region_mean; /* luma of the region of interest */
	uint32_t region_blue; /* its Cb */
	uint32_t histogram[HISTOGRAM_BINS]; /* of its luma */
};

/* The sensor: picture `number` and its statistics block. Differs from its neighbours everywhere. */
void frame_capture(uint8_t *frame, uint32_t number);

/* The ISP: reads the statistics block and the region of interest, and nothing else. */
void frame_measure(const uint8_t *frame, struct exposure *ret);

/*
 * The ISP: draws the histogram, and the mean as a bar above it. Writes the overlay alone.
 *
 * Its greys move with the number, so that every line differs from what this buffer held before:
 * simulated memory knows a write by its bytes, while hardware also takes one that changes nothing.
 */
void frame_draw_overlay(uint8_t *frame, uint32_t number, const struct exposure *exposure);

#endif
