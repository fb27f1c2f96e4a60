/* SPDX-License-Identifier: MIT */
/*
 * The demo's pipeline: what its three processes share. sensor.c, isp.c and consumer.c are one
 * process each; pipeline.c starts them and waits for them.
 */
#ifndef DEMO_PIPELINE_H
#define DEMO_PIPELINE_H

#include <dmasync/dmasync.h>
#include <stdbool.h>
#include <stdint.h>

#include "frame.h"

enum { PIPELINE_BUFFERS = 4, LINE = 64, FRAME_LINES = FRAME_BYTES / LINE };

/* The sync that the ISP leaves out on purpose. */
enum left_out {
	LEFT_OUT_NOTHING,
	LEFT_OUT_FOR_CPU,
	LEFT_OUT_FOR_DEVICE,
};

struct pipeline {
	const char *socket; /* of the daemon */
	bool simulated;	    /* else the real instructions, on ... */
	enum dmasync_memory memory;
	uint32_t frames;
	enum left_out left_out;
};

/* Written by ISP and consumer in memory they share with the parent, which reads it afterwards. */
struct results {
	/* ISP */
	uint32_t batches;
	uint64_t lines_for_cpu, lines_for_device;
	enum dmasync_memory memory;

	/* consumer */
	uint32_t frames_checked, frames_wrong, exposures_wrong;
	uint64_t lines_wrong, lines_wrong_in_overlay, bytes_wrong;
	struct exposure measured, expected; /* of the first frame that was wrong */
	uint32_t wrong_in_zone[ZONE_ROWS + ZONE_ROWS / 2][ZONE_COLUMNS]; /* luma, then chroma */
};

/* One process each. `link`s are their ends of socket pairs. Return an exit status. */
int sensor_run(const struct pipeline *pipeline, int isp_link, int consumer_link);
int isp_run(const struct pipeline *pipeline, int sensor_link, int consumer_link,
	    struct results *results);
int consumer_run(const struct pipeline *pipeline, int isp_link, int sensor_link,
		 struct results *results);

/* Runs the three of them. 0: all three ended well; *ret is filled. Negative: one failed, or a
 * signal came (-EINTR), and none of them is left. */
int pipeline_run(const struct pipeline *pipeline, struct results *ret);

/* device.c: the end of sensor and consumer, which play devices. */
struct device {
	struct dmasync *ds;
	struct dmasync_buffer *buffers[PIPELINE_BUFFERS];
	uint8_t *memory[PIPELINE_BUFFERS]; /* as the device sees it */
};

/* Receives the buffers from the ISP and imports them. Negative errno, after a sentence. */
int device_open(const struct pipeline *pipeline, const char *name, int isp_link,
		struct device *device);
void device_close(struct device *device);

/* Connects under a name, with a sentence on stderr where it fails. */
int pipeline_connect(const struct pipeline *pipeline, const char *name, struct dmasync **ret);

/* "who: what: why" on stderr, with the library's sentence for the errno. Returns the error. */
int complain(const char *who, const char *what, int error);

#endif
