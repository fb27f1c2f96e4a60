/* SPDX-License-Identifier: MIT */
/* See exporter_buffers.h. */
#include "tests/vm/exporter_buffers.h"

#include <drm/drm.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/dma-heap.h>
#include <linux/udmabuf.h>
#include <linux/videodev2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/vm/labdev.h"

#define DEVICES 16 /* /dev/dri/card* and /dev/video* looked at */

#ifndef V4L2_MEMORY_FLAG_NON_COHERENT
#define V4L2_MEMORY_FLAG_NON_COHERENT (1 << 0) /* linux/videodev2.h, since 5.16 */
#endif

static int make_heap(const char *name, uint64_t bytes, struct exporter_buffer *ret)
{
	struct dma_heap_allocation_data data = {.len = bytes, .fd_flags = O_RDWR | O_CLOEXEC};
	char path[64];

	snprintf(path, sizeof path, "/dev/dma_heap/%s", name);
	int heap = open(path, O_RDONLY | O_CLOEXEC);

	if (heap < 0)
		return -errno;
	int r = ioctl(heap, DMA_HEAP_IOCTL_ALLOC, &data) < 0 ? -errno : 0;

	close(heap);
	ret->fd = (int)data.fd;
	ret->bytes = bytes;
	return r;
}

static int make_udmabuf(uint64_t bytes, struct exporter_buffer *ret)
{
	int memfd = memfd_create("exporter", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int device = open("/dev/udmabuf", O_RDWR | O_CLOEXEC);
	int r = -ENODEV;

	if (memfd >= 0 && device >= 0 && ftruncate(memfd, (off_t)bytes) == 0 &&
	    fcntl(memfd, F_ADD_SEALS, F_SEAL_SHRINK) == 0) {
		struct udmabuf_create create = {
			.memfd = (uint32_t)memfd, .flags = UDMABUF_FLAGS_CLOEXEC, .size = bytes};

		r = ioctl(device, UDMABUF_CREATE, &create);
		if (r < 0)
			r = -errno;
	}
	if (memfd >= 0)
		close(memfd);
	if (device >= 0)
		close(device);
	if (r < 0)
		return r;
	ret->fd = r;
	ret->bytes = bytes;
	return 0;
}

static int open_card(const char *driver)
{
	for (int i = 0; i < DEVICES; i++) {
		char path[64], name[32] = "";
		struct drm_version version = {.name = name, .name_len = sizeof name - 1};

		snprintf(path, sizeof path, "/dev/dri/card%d", i);
		int card = open(path, O_RDWR | O_CLOEXEC);

		if (card < 0)
			continue;
		if (ioctl(card, DRM_IOCTL_VERSION, &version) == 0 && strcmp(name, driver) == 0)
			return card;
		close(card);
	}
	return -ENODEV;
}

static int make_drm(const char *driver, uint64_t bytes, struct exporter_buffer *ret)
{
	struct drm_mode_create_dumb dumb = {
		.width = 64, .height = (uint32_t)(bytes / 256), .bpp = 32};

	ret->device = open_card(driver);
	if (ret->device < 0)
		return ret->device;
	if (ioctl(ret->device, DRM_IOCTL_MODE_CREATE_DUMB, &dumb) < 0)
		return -errno;

	struct drm_prime_handle prime = {.handle = dumb.handle, .flags = DRM_CLOEXEC | DRM_RDWR};

	if (ioctl(ret->device, DRM_IOCTL_PRIME_HANDLE_TO_FD, &prime) < 0)
		return -errno;
	ret->handle = dumb.handle;
	ret->fd = prime.fd;
	ret->bytes = dumb.size;
	return 0;
}

/* The first device of the driver that captures single-planar. */
static int open_video(const char *driver)
{
	for (int i = 0; i < DEVICES; i++) {
		struct v4l2_capability capability = {0};
		char path[64];

		snprintf(path, sizeof path, "/dev/video%d", i);
		int video = open(path, O_RDWR | O_CLOEXEC);

		if (video < 0)
			continue;
		if (ioctl(video, VIDIOC_QUERYCAP, &capability) == 0 &&
		    strcmp((const char *)capability.driver, driver) == 0 &&
		    capability.device_caps & V4L2_CAP_VIDEO_CAPTURE)
			return video;
		close(video);
	}
	return -ENODEV;
}

static int make_v4l2(const char *driver, uint32_t flags, struct exporter_buffer *ret)
{
	struct v4l2_requestbuffers request = {
		.count = 1, .type = V4L2_BUF_TYPE_VIDEO_CAPTURE, .memory = V4L2_MEMORY_MMAP};
	struct v4l2_exportbuffer export = {.type = V4L2_BUF_TYPE_VIDEO_CAPTURE,
					   .flags = O_RDWR | O_CLOEXEC};

	memcpy((char *)&request + offsetof(struct v4l2_requestbuffers, capabilities) +
		       sizeof request.capabilities,
	       &(uint8_t){(uint8_t)flags}, 1); /* .flags, which old headers do not name */
	ret->device = open_video(driver);
	if (ret->device < 0)
		return ret->device;
	if (ioctl(ret->device, VIDIOC_REQBUFS, &request) < 0 ||
	    ioctl(ret->device, VIDIOC_EXPBUF, &export) < 0)
		return -errno;
	ret->fd = export.fd;

	off_t end = lseek(ret->fd, 0, SEEK_END);

	if (end <= 0)
		return -ENODEV;
	ret->bytes = (uint64_t)end;
	return 0;
}

static const char *after(const char *text, const char *prefix)
{
	return strncmp(text, prefix, strlen(prefix)) == 0 ? text + strlen(prefix) : NULL;
}

int exporter_buffer_make(const char *source, uint64_t bytes, struct exporter_buffer *ret)
{
	const char *name;
	int r = -EINVAL;

	*ret = (struct exporter_buffer){.fd = -1, .device = -1};
	if ((name = after(source, "heap:")))
		r = make_heap(name, bytes, ret);
	else if (strcmp(source, "udmabuf") == 0)
		r = make_udmabuf(bytes, ret);
	else if ((name = after(source, "drm:")))
		r = make_drm(name, bytes, ret);
	else if ((name = after(source, "v4l2:")))
		r = make_v4l2(name, 0, ret);
	else if ((name = after(source, "v4l2-non-coherent:")))
		r = make_v4l2(name, V4L2_MEMORY_FLAG_NON_COHERENT, ret);
	if (r == 0) {
		ret->memory =
			mmap(NULL, ret->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ret->fd, 0);
		r = ret->memory == MAP_FAILED ? -errno : 0;
	}
	if (r < 0) {
		ret->memory = NULL;
		exporter_buffer_free(ret);
		return r;
	}
	memset(ret->memory, 1, ret->bytes);
	return 0;
}

void exporter_buffer_free(struct exporter_buffer *buffer)
{
	if (buffer->memory)
		munmap(buffer->memory, buffer->bytes);
	if (buffer->fd >= 0)
		close(buffer->fd);
	if (buffer->device >= 0)
		close(buffer->device);
	*buffer = (struct exporter_buffer){.fd = -1, .device = -1};
}

int exporter_buffer_attach(const struct exporter_buffer *buffer)
{
	struct labdev_attach attach = {.fd = buffer->fd};
	int device = open(LABDEV_PATH, O_RDWR | O_CLOEXEC);

	if (device < 0)
		return -errno;
	if (ioctl(device, LABDEV_ATTACH, &attach) < 0) {
		int r = -errno;

		close(device);
		return r;
	}
	return device;
}

const char *exporter_buffer_kind(const struct exporter_buffer *buffer)
{
	uint64_t par = (uintptr_t)buffer->memory;
	int device = open(LABDEV_PATH, O_RDWR | O_CLOEXEC);
	int r = device < 0 ? -1 : ioctl(device, LABDEV_PAR, &par);

	if (device >= 0)
		close(device);
	if (r < 0 || par & 1) /* PAR_EL1.F: no translation */
		return "unknown";
	switch (par >> 56) { /* PAR_EL1.ATTR, as MAIR_EL1 */
	case 0xff:
		return "cached";
	case 0x44:
		return "write-combining";
	default:
		return par >> 60 ? "other" : "device";
	}
}

void exporter_buffer_names(const struct exporter_buffer *buffer, char *text, size_t size)
{
	char path[64], line[256];

	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", buffer->fd);
	FILE *file = fopen(path, "re");

	*text = '\0';
	while (file && fgets(line, sizeof line, file)) {
		const char *name = after(line, "exp_name:\t");

		line[strcspn(line, "\n")] = '\0';
		if (name)
			snprintf(text + strlen(text), size - strlen(text), "%s%s", *text ? "," : "",
				 name);
	}
	if (file)
		fclose(file);
}
