/* SPDX-License-Identifier: MIT */
/*
 * What sensor and consumer have in common: buffers of another process, seen as a device sees them.
 * A real device has no part in any of this; here a process plays it. One thread.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "link.h"
#include "pipeline.h"

int complain(const char *who, const char *what, int error)
{
	char text[256];

	dmasync_strerror(error, text, sizeof text);
	fprintf(stderr, "%s: %s: %s\n", who, what, text);
	return error;
}

int pipeline_connect(const struct pipeline *pipeline, const char *name, struct dmasync **ret)
{
	char text[512] = "";
	struct dmasync_connect_params params;

	dmasync_connect_params_init(&params);
	params.socket = pipeline->socket;
	params.name = name;
	/* Say what is needed: the refusal then comes at once, and says what is missing. */
	params.features_required =
		DMASYNC_FEATURE_STRIDED |
		(pipeline->simulated ? DMASYNC_FEATURE_SIMULATED : DMASYNC_FEATURE_DIRECT);
	params.error_text = text;
	params.error_text_size = sizeof text;

	int r = dmasync_connect_with(&params, ret);

	if (r < 0)
		fprintf(stderr, "%s: cannot connect to %s: %s\n", name, pipeline->socket, text);
	return r;
}

int device_open(const struct pipeline *pipeline, const char *name, int isp_link,
		struct device *device)
{
	int fds[PIPELINE_BUFFERS];

	memset(device, 0, sizeof *device);

	int r = pipeline_connect(pipeline, name, &device->ds);

	if (r < 0)
		return r;
	r = link_receive_fds(isp_link, fds, PIPELINE_BUFFERS);
	if (r < 0)
		return complain(name, "no buffers came from the ISP", r);

	/*
	 * The ISP had them cleaned when it allocated them. Cleaned once more here, maybe after its
	 * first frame, they would hide a sync that was left out on purpose.
	 */
	uint32_t flags = DMASYNC_IMPORT_NO_CLEAN |
			 (pipeline->simulated ? DMASYNC_IMPORT_SIMULATED : DMASYNC_IMPORT_DIRECT);

	for (uint32_t i = 0; i < PIPELINE_BUFFERS; i++) {
		if (r == 0)
			r = dmasync_buffer_import(device->ds, fds[i], flags, &device->buffers[i]);
		close(fds[i]); /* the library has its own */
	}
	if (r < 0) {
		char text[512];

		dmasync_error_text(device->ds, text, sizeof text);
		fprintf(stderr, "%s: cannot import a buffer: %s\n", name, text);
		return r;
	}
	for (uint32_t i = 0; i < PIPELINE_BUFFERS; i++) {
		device->memory[i] = pipeline->simulated
					    ? dmasync_buffer_map_device(device->buffers[i])
					    : dmasync_buffer_map(device->buffers[i]);
		if (!device->memory[i])
			return complain(name, "cannot map a buffer", -ENOMEM);
	}
	return 0;
}

void device_close(struct device *device)
{
	for (uint32_t i = 0; i < PIPELINE_BUFFERS; i++)
		dmasync_buffer_destroy(device->buffers[i]);
	dmasync_disconnect(device->ds);
}
