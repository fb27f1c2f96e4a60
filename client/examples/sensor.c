/* SPDX-License-Identifier: MIT */
/*
 * The sensor process plays the first device: it writes frames to the device's side of a buffer
 * and never syncs, as a device does not. One thread.
 */
#include <stdlib.h>

#include "link.h"
#include "pipeline.h"

static int capture_frames(const struct pipeline *pipeline, const struct device *device,
			  int isp_link, int consumer_link)
{
	struct frame_message message = {0};
	uint32_t in_use = 0;
	int r;

	for (uint32_t number = 0; number < pipeline->frames; number++) {
		/* A new buffer while there is one, then those that the consumer gives back. */
		if (number < PIPELINE_BUFFERS) {
			message.buffer = number;
			in_use++;
		} else {
			r = link_receive(consumer_link, &message);
			if (r <= 0)
				return complain("sensor", "the consumer went away", r);
		}
		message.number = number;
		frame_capture(device->memory[message.buffer], number);
		r = link_send(isp_link, &message);
		if (r < 0)
			return complain("sensor", "the ISP went away", r);
	}
	while (in_use-- > 0) {
		r = link_receive(consumer_link, &message);
		if (r <= 0)
			return complain("sensor", "the consumer went away", r);
	}
	return 0;
}

int sensor_run(const struct pipeline *pipeline, int isp_link, int consumer_link)
{
	struct device device;
	int r = device_open(pipeline, "demo-sensor", isp_link, &device);

	if (r == 0)
		r = capture_frames(pipeline, &device, isp_link, consumer_link);
	device_close(&device);
	return r == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
