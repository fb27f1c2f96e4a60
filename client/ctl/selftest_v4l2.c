/* SPDX-License-Identifier: MIT */
/*
 * The selftest's V4L2 capture device: frames into dma-bufs (V4L2_MEMORY_DMABUF), one stream for
 * each frame so that the content can be told apart. Owns the device's fd and the buffers.
 * Main thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/videodev2.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/ctl.h"
#include "client/ctl/format.h"
#include "client/ctl/selftest.h"

#define BUFFERS 4u
#define BUFFERS_MAX 16u
#define FRAME_MS 5000
#define TOUCH_MS 2

struct v4l2 {
	struct selftest_device device; /* first: a device is freed as what it is part of */
	int fd;
	const char *path;
	enum dmasync_memory memory;
	enum v4l2_buf_type type;
	bool multiplanar;
	uint32_t planes;
	uint32_t plane_bytes[VIDEO_MAX_PLANES];
	uint32_t count; /* buffers, of `planes` dma-bufs each */
	struct dmasync_buffer *buffers[BUFFERS_MAX][VIDEO_MAX_PLANES];
	bool streaming;
	bool brightness; /* the device has it: alternates between its bounds */
	int32_t brightness_was, brightness_bound[2];
	unsigned int frames;
};

static struct v4l2 *of(struct selftest_device *device)
{
	return (struct v4l2 *)device;
}

static int request(const struct v4l2 *v4l2, unsigned long number, void *argument)
{
	int r;

	do
		r = ioctl(v4l2->fd, number, argument);
	while (r < 0 && errno == EINTR);
	return r < 0 ? -errno : 0;
}

static int failed(const struct v4l2 *v4l2, const char *what, int error)
{
	return ctl_fail("selftest: %s: %s: %s", v4l2->path, what, strerror(-error));
}

static int request_buffers(const struct v4l2 *v4l2, uint32_t *count)
{
	struct v4l2_requestbuffers buffers = {
		.count = *count,
		.type = v4l2->type,
		.memory = V4L2_MEMORY_DMABUF,
	};
	int r = request(v4l2, VIDIOC_REQBUFS, &buffers);

	if (r >= 0)
		*count = buffers.count;
	return r;
}

static int attach(struct selftest_device *device, struct dmasync *ds, uint32_t flags,
		  struct dmasync_buffer **ret)
{
	struct v4l2 *v4l2 = of(device);
	uint32_t count = BUFFERS;
	int r = request_buffers(v4l2, &count);

	if (r < 0)
		return failed(v4l2, "VIDIOC_REQBUFS with V4L2_MEMORY_DMABUF", r);
	if (count == 0 || count > BUFFERS_MAX)
		return ctl_fail("selftest: %s wants %u buffers; 1 to %u can be served", v4l2->path,
				count, BUFFERS_MAX);
	v4l2->count = count;
	for (uint32_t i = 0; i < count; i++) {
		for (uint32_t plane = 0; plane < v4l2->planes; plane++) {
			struct dmasync_buffer_params params;
			struct dmasync_buffer_info info = {.size = sizeof info};

			dmasync_buffer_params_init(&params);
			params.memory = v4l2->memory;
			params.bytes = v4l2->plane_bytes[plane];
			params.flags = flags;
			r = dmasync_buffer_alloc(ds, &params, &v4l2->buffers[i][plane]);
			if (r < 0)
				return r;
			r = dmasync_buffer_get_info(v4l2->buffers[i][plane], &info);
			if (r < 0)
				return r;
			if (info.kind != DMASYNC_KIND_DMABUF)
				return ctl_fail("selftest: this machine has no allocator of "
						"dma-bufs for this user (see `dmasyncctl probe`); "
						"a device cannot write to a memfd");
		}
	}
	*ret = v4l2->buffers[0][0];
	return CTL_OK;
}

static int queue(const struct v4l2 *v4l2, uint32_t index)
{
	struct v4l2_plane planes[VIDEO_MAX_PLANES] = {0};
	struct v4l2_buffer buffer = {
		.index = index,
		.type = v4l2->type,
		.memory = V4L2_MEMORY_DMABUF,
	};

	for (uint32_t plane = 0; plane < v4l2->planes; plane++) {
		struct dmasync_buffer_info info = {.size = sizeof info};
		int r = dmasync_buffer_get_info(v4l2->buffers[index][plane], &info);

		if (r < 0)
			return r;
		planes[plane].m.fd = info.fd;
		planes[plane].length = (uint32_t)info.bytes;
	}
	if (v4l2->multiplanar) {
		buffer.m.planes = planes;
		buffer.length = v4l2->planes;
	} else {
		buffer.m.fd = planes[0].m.fd;
		buffer.length = planes[0].length;
	}
	return request(v4l2, VIDIOC_QBUF, &buffer);
}

/* The next filled buffer, kept in the caches until it comes; its index, or a negative errno. */
static int dequeue(const struct v4l2 *v4l2, uint64_t window)
{
	const void *memory = dmasync_buffer_map(v4l2->buffers[0][0]);
	struct pollfd ready = {.fd = v4l2->fd, .events = POLLIN};
	struct v4l2_plane planes[VIDEO_MAX_PLANES] = {0};
	struct v4l2_buffer buffer = {.type = v4l2->type, .memory = V4L2_MEMORY_DMABUF};

	if (v4l2->multiplanar) {
		buffer.m.planes = planes;
		buffer.length = VIDEO_MAX_PLANES;
	}
	for (int waited = 0; waited < FRAME_MS; waited += TOUCH_MS) {
		selftest_touch(memory, window);
		int n = poll(&ready, 1, TOUCH_MS);
		if (n < 0 && errno != EINTR)
			return -errno;
		if (n <= 0)
			continue;
		if (ready.revents & POLLERR)
			return -EIO;
		int r = request(v4l2, VIDIOC_DQBUF, &buffer);
		if (r >= 0)
			return (int)buffer.index;
		if (r != -EAGAIN)
			return r;
	}
	return -ETIMEDOUT;
}

static int stop(struct v4l2 *v4l2)
{
	int type = (int)v4l2->type;

	if (!v4l2->streaming)
		return 0;
	v4l2->streaming = false;
	return request(v4l2, VIDIOC_STREAMOFF, &type);
}

static void set_brightness(const struct v4l2 *v4l2, int32_t value)
{
	struct v4l2_control control = {.id = V4L2_CID_BRIGHTNESS, .value = value};

	request(v4l2, VIDIOC_S_CTRL, &control);
}

static int frame(struct selftest_device *device, uint64_t window)
{
	struct v4l2 *v4l2 = of(device);
	int type = (int)v4l2->type, r;

	if (v4l2->brightness)
		set_brightness(v4l2, v4l2->brightness_bound[v4l2->frames++ % 2]);
	for (uint32_t i = 0; i < v4l2->count; i++) {
		r = queue(v4l2, i);
		if (r < 0)
			return failed(v4l2, "VIDIOC_QBUF of a dma-buf", r);
	}
	selftest_touch(dmasync_buffer_map(v4l2->buffers[0][0]), window);
	r = request(v4l2, VIDIOC_STREAMON, &type);
	if (r < 0)
		return failed(v4l2, "VIDIOC_STREAMON", r);
	v4l2->streaming = true;
	/* The first that was queued is the one that is looked at; few drivers reorder. */
	for (uint32_t i = 0; i < v4l2->count; i++) {
		r = dequeue(v4l2, window);
		if (r <= 0)
			break;
	}
	if (r == -ETIMEDOUT)
		return ctl_fail("selftest: %s: no frame within %d s; does `v4l2-ctl -d %s "
				"--stream-mmap` show frames? The pipeline before it must be "
				"configured (media-ctl)",
				v4l2->path, FRAME_MS / 1000, v4l2->path);
	if (r < 0)
		return failed(v4l2, "VIDIOC_DQBUF", r);
	if (r != 0)
		return ctl_fail("selftest: %s filled every buffer but the first", v4l2->path);
	r = stop(v4l2);
	return r < 0 ? failed(v4l2, "VIDIOC_STREAMOFF", r) : CTL_OK;
}

static const void *written(struct selftest_device *device)
{
	(void)device;
	return NULL;
}

static void detach(struct selftest_device *device)
{
	struct v4l2 *v4l2 = of(device);
	uint32_t none = 0;

	stop(v4l2);
	request_buffers(v4l2, &none);
	for (uint32_t i = 0; i < v4l2->count; i++) {
		for (uint32_t plane = 0; plane < v4l2->planes; plane++) {
			dmasync_buffer_destroy(v4l2->buffers[i][plane]);
			v4l2->buffers[i][plane] = NULL;
		}
	}
	v4l2->count = 0;
}

static void close_v4l2(struct selftest_device *device)
{
	struct v4l2 *v4l2 = of(device);

	if (v4l2->brightness)
		set_brightness(v4l2, v4l2->brightness_was);
	if (v4l2->fd >= 0)
		close(v4l2->fd);
	free(v4l2);
}

static int read_format(struct v4l2 *v4l2)
{
	struct v4l2_format format = {.type = v4l2->type};
	int r = request(v4l2, VIDIOC_G_FMT, &format);

	if (r < 0)
		return failed(v4l2, "VIDIOC_G_FMT", r);
	if (v4l2->multiplanar) {
		v4l2->planes = format.fmt.pix_mp.num_planes;
		for (uint32_t i = 0; i < v4l2->planes && i < VIDEO_MAX_PLANES; i++)
			v4l2->plane_bytes[i] = format.fmt.pix_mp.plane_fmt[i].sizeimage;
	} else {
		v4l2->planes = 1;
		v4l2->plane_bytes[0] = format.fmt.pix.sizeimage;
	}
	if (v4l2->planes == 0 || v4l2->planes > VIDEO_MAX_PLANES || v4l2->plane_bytes[0] == 0)
		return ctl_fail("selftest: %s has no format; set one with v4l2-ctl", v4l2->path);
	return CTL_OK;
}

/* Two frames must differ nearly everywhere; a sensor's noise does that, a test picture does not. */
static void find_brightness(struct v4l2 *v4l2)
{
	struct v4l2_queryctrl query = {.id = V4L2_CID_BRIGHTNESS};
	struct v4l2_control control = {.id = V4L2_CID_BRIGHTNESS};

	v4l2->brightness = request(v4l2, VIDIOC_QUERYCTRL, &query) >= 0 &&
			   !(query.flags & V4L2_CTRL_FLAG_DISABLED) &&
			   request(v4l2, VIDIOC_G_CTRL, &control) >= 0;
	v4l2->brightness_was = control.value;
	v4l2->brightness_bound[0] = query.minimum;
	v4l2->brightness_bound[1] = query.maximum;
	snprintf(v4l2->device.note, sizeof v4l2->device.note, "%s",
		 v4l2->brightness ? "the brightness control, to and fro"
				  : "what the device sees; it has no brightness control");
}

static int open_device(struct v4l2 *v4l2)
{
	struct v4l2_capability capability = {0};
	char card[sizeof capability.card + 1];

	v4l2->fd = open(v4l2->path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (v4l2->fd < 0)
		return ctl_fail("selftest: %s: %s", v4l2->path, strerror(errno));
	int r = request(v4l2, VIDIOC_QUERYCAP, &capability);
	if (r < 0)
		return ctl_fail("selftest: %s is no V4L2 device: %s", v4l2->path, strerror(-r));
	uint32_t can = capability.capabilities & V4L2_CAP_DEVICE_CAPS ? capability.device_caps
								      : capability.capabilities;
	if (!(can & (V4L2_CAP_VIDEO_CAPTURE | V4L2_CAP_VIDEO_CAPTURE_MPLANE)) ||
	    !(can & V4L2_CAP_STREAMING))
		return ctl_fail("selftest: %s captures no video by streaming; choose a capture "
				"node (`dmasyncctl probe` lists them)",
				v4l2->path);
	v4l2->multiplanar = !(can & V4L2_CAP_VIDEO_CAPTURE);
	v4l2->type = v4l2->multiplanar ? V4L2_BUF_TYPE_VIDEO_CAPTURE_MPLANE
				       : V4L2_BUF_TYPE_VIDEO_CAPTURE;
	format_text(card, sizeof card, (const char *)capability.card, sizeof capability.card);
	snprintf(v4l2->device.name, sizeof v4l2->device.name, "%s (%s)", v4l2->path, card);
	r = read_format(v4l2);
	if (r == CTL_OK)
		find_brightness(v4l2);
	return r;
}

struct selftest_device *selftest_v4l2_open(const char *path, enum dmasync_memory memory)
{
	struct v4l2 *v4l2 = calloc(1, sizeof *v4l2);

	if (!v4l2) {
		ctl_fail("no memory");
		return NULL;
	}
	v4l2->device = (struct selftest_device){
		.attach = attach,
		.frame = frame,
		.written = written,
		.detach = detach,
		.close = close_v4l2,
	};
	v4l2->path = path;
	v4l2->memory = memory;
	if (open_device(v4l2) != CTL_OK) {
		close_v4l2(&v4l2->device);
		return NULL;
	}
	return &v4l2->device;
}
