/* SPDX-License-Identifier: MIT */
/*
 * Dma-bufs of the exporters that a lab kernel has, by a name each. For programs that run in a guest
 * of tests/vm; one thread.
 */
#ifndef TESTS_VM_EXPORTER_BUFFERS_H
#define TESTS_VM_EXPORTER_BUFFERS_H

#include <stddef.h>
#include <stdint.h>

struct exporter_buffer {
	int fd;
	int device;	 /* kept open: of DRM and V4L2 */
	uint32_t handle; /* of DRM */
	uint64_t bytes;
	void *memory; /* mapped by this process and written to */
};

/*
 * source: heap:NAME, udmabuf, drm:DRIVER, v4l2:DRIVER, v4l2-non-coherent:DRIVER. Buffers of heaps,
 * udmabuf and DRM have `bytes`; of V4L2 the format's size. -errno.
 */
int exporter_buffer_make(const char *source, uint64_t bytes, struct exporter_buffer *ret);
void exporter_buffer_free(struct exporter_buffer *buffer);

/* Attached to labdev's device and mapped there until the fd returned is closed. -errno. */
int exporter_buffer_attach(const struct exporter_buffer *buffer);

/* "cached", "write-combining", "device": what the MMU says of our own mapping. */
const char *exporter_buffer_kind(const struct exporter_buffer *buffer);

/* Every exp_name line of its fdinfo, the first one first, joined by commas. */
void exporter_buffer_names(const struct exporter_buffer *buffer, char *text, size_t size);

#endif
