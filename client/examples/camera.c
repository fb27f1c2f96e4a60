/* SPDX-License-Identifier: MIT */
/*
 * A V4L2 camera into cached dma-bufs: for each frame, sync for the CPU only the statistics rows and
 * a region of interest, measure them, draw the region's border, and sync just that for the device.
 *
 *	dmasync-camera [--frames N] [--pool N] [--control ID=VALUE]... [--expect-luma Y] /dev/video0
 *
 * V4L2 leaves the CPU's access to imported dma-bufs to the application, as long as the same dma-buf
 * stays at the same index. One that changes is detached and mapped anew, which on a dma-heap's
 * buffer cleans and invalidates all of it in the kernel, every time: --pool 8 shows what that
 *costs.
 */
#include <dmasync/dmasync.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/videodev2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define WIDTH 640u
#define HEIGHT 480u
#define INDICES 4u     /* V4L2 buffers */
#define POOL_MAX 16u   /* dma-bufs that take turns in them */
#define STATS_ROWS 16u /* at the top of the frame */
#define REGION_X 160u  /* of interest: in pixels */
#define REGION_Y 120u
#define REGION_WIDTH 320u
#define REGION_HEIGHT 240u
#define PIXEL 2u /* bytes: YUYV */
#define LUMA_TOLERANCE 2u

struct camera {
	int fd;
	uint32_t stride, bytes;
	struct dmasync *ds;
	struct dmasync_queue *queue;
	struct dmasync_buffer *pool[POOL_MAX];
	unsigned int pool_size, next;	    /* the pool's next to be queued */
	struct dmasync_buffer *at[INDICES]; /* which of the pool is queued there */
	uint64_t lines, sync_ns;
};

static _Noreturn __attribute__((format(printf, 1, 2))) void fail(const char *format, ...)
{
	va_list arguments;

	fputs("dmasync-camera: ", stderr);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
	exit(1);
}

static void request(const struct camera *camera, unsigned long number, void *argument,
		    const char *name)
{
	int r;

	do
		r = ioctl(camera->fd, number, argument);
	while (r < 0 && errno == EINTR);
	if (r < 0)
		fail("%s: %s", name, strerror(errno));
}
#define REQUEST(camera, number, argument) request(camera, number, argument, #number)

static void check(int r, const char *what)
{
	char text[256];

	if (r >= 0)
		return;
	dmasync_strerror(r, text, sizeof text);
	fail("%s: %s", what, text);
}

/* ---- setting up ---- */

static void set_format(struct camera *camera)
{
	struct v4l2_format format = {
		.type = V4L2_BUF_TYPE_VIDEO_CAPTURE,
		.fmt.pix = {.width = WIDTH,
			    .height = HEIGHT,
			    .pixelformat = V4L2_PIX_FMT_YUYV,
			    .field = V4L2_FIELD_NONE},
	};

	REQUEST(camera, VIDIOC_S_FMT, &format);
	if (format.fmt.pix.width != WIDTH || format.fmt.pix.height != HEIGHT ||
	    format.fmt.pix.pixelformat != V4L2_PIX_FMT_YUYV)
		fail("the camera does not do %ux%u YUYV", WIDTH, HEIGHT);
	camera->stride = format.fmt.pix.bytesperline;
	camera->bytes = format.fmt.pix.sizeimage;
}

static void set_control(struct camera *camera, const char *text)
{
	struct v4l2_control control;
	char *end;

	control.id = (uint32_t)strtoul(text, &end, 0);
	if (*end != '=')
		fail("--control %s: ID=VALUE is wanted", text);
	control.value = (int32_t)strtol(end + 1, NULL, 0);
	REQUEST(camera, VIDIOC_S_CTRL, &control);
}

/* Cached memory, contiguous where the machine has a CMA heap; cleaned once by the daemon. */
static void allocate_pool(struct camera *camera)
{
	struct dmasync_buffer_params params;
	struct dmasync_buffer_info info = {.size = sizeof info};

	dmasync_buffer_params_init(&params);
	params.bytes = camera->bytes;
	for (unsigned int i = 0; i < camera->pool_size; i++)
		check(dmasync_buffer_alloc(camera->ds, &params, &camera->pool[i]), "buffer");
	check(dmasync_buffer_get_info(camera->pool[0], &info), "buffer");
	if (info.kind != DMASYNC_KIND_DMABUF)
		fail("no allocator of dma-bufs here: see `dmasyncctl probe`");
	printf("%u dma-bufs of exporter %s for %u indices\n", camera->pool_size, info.exporter,
	       INDICES);
}

static void queue_buffer(struct camera *camera, uint32_t index)
{
	struct dmasync_buffer_info info = {.size = sizeof info};
	struct v4l2_buffer buffer = {
		.index = index,
		.type = V4L2_BUF_TYPE_VIDEO_CAPTURE,
		.memory = V4L2_MEMORY_DMABUF,
	};

	/* Where there are as many dma-bufs as indices, each keeps its own. */
	if (camera->pool_size > INDICES)
		camera->at[index] = camera->pool[camera->next++ % camera->pool_size];
	else
		camera->at[index] = camera->pool[index];
	check(dmasync_buffer_get_info(camera->at[index], &info), "buffer");
	buffer.m.fd = info.fd;
	buffer.length = (uint32_t)info.bytes;
	REQUEST(camera, VIDIOC_QBUF, &buffer);
}

static void start(struct camera *camera)
{
	struct v4l2_requestbuffers buffers = {
		.count = INDICES,
		.type = V4L2_BUF_TYPE_VIDEO_CAPTURE,
		.memory = V4L2_MEMORY_DMABUF,
	};
	int type = V4L2_BUF_TYPE_VIDEO_CAPTURE;

	REQUEST(camera, VIDIOC_REQBUFS, &buffers);
	if (buffers.count != INDICES)
		fail("the camera gives %u indices instead of %u", buffers.count, INDICES);
	for (uint32_t i = 0; i < INDICES; i++)
		queue_buffer(camera, i);
	REQUEST(camera, VIDIOC_STREAMON, &type);
}

/* ---- one frame ---- */

static uint64_t region_offset(const struct camera *camera, unsigned int row)
{
	return (uint64_t)(REGION_Y + row) * camera->stride + REGION_X * PIXEL;
}

/* Submits and waits. A pipeline would do something else meanwhile, or poll dmasync_queue_fd(). */
static void run_batch(struct camera *camera, struct dmasync_batch *batch)
{
	struct dmasync_completion done;
	char text[256];

	check(dmasync_batch_submit(batch, 0), "submit"); /* also what add had to say */
	check(dmasync_wait(camera->queue, &done, 1000000000), "wait");
	if (done.status < 0) {
		dmasync_completion_text(&done, text, sizeof text);
		fail("%s", text);
	}
	camera->lines += done.lines;
	camera->sync_ns += done.issue_ns + done.barrier_ns;
}

/* The device has written: what is read of it, and no more. */
static void sync_for_cpu(struct camera *camera, struct dmasync_buffer *buffer)
{
	struct dmasync_batch *batch;

	check(dmasync_batch_begin(camera->queue, &batch), "begin");
	dmasync_batch_add(batch, buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE, 0,
			  (uint64_t)STATS_ROWS * camera->stride);
	dmasync_batch_add_rows(batch, buffer, DMASYNC_FOR_CPU, DMASYNC_FROM_DEVICE,
			       region_offset(camera, 0), REGION_WIDTH * PIXEL, REGION_HEIGHT,
			       camera->stride);
	run_batch(camera, batch);
}

/* The CPU has written the border's rows; dirty lines would overwrite the device's next frame. */
static void sync_for_device(struct camera *camera, struct dmasync_buffer *buffer)
{
	struct dmasync_batch *batch;

	check(dmasync_batch_begin(camera->queue, &batch), "begin");
	dmasync_batch_add_rows(batch, buffer, DMASYNC_FOR_DEVICE, DMASYNC_BIDIRECTIONAL,
			       region_offset(camera, 0), REGION_WIDTH * PIXEL, 2,
			       (uint64_t)(REGION_HEIGHT - 1) * camera->stride);
	run_batch(camera, batch);
}

static unsigned int mean_luma(const unsigned char *rows, unsigned int width, unsigned int height,
			      size_t stride)
{
	uint64_t sum = 0;

	for (unsigned int y = 0; y < height; y++)
		for (unsigned int x = 0; x < width; x++)
			sum += rows[y * stride + x * PIXEL];
	return (unsigned int)(sum / ((uint64_t)width * height));
}

static void draw_border(unsigned char *row)
{
	for (unsigned int x = 0; x < REGION_WIDTH; x++)
		row[x * PIXEL] = (unsigned char)(255 - row[x * PIXEL]);
}

static bool is_expected(unsigned int luma, int expected)
{
	return expected < 0 || (unsigned int)abs((int)luma - expected) <= LUMA_TOLERANCE;
}

/* False where the frame is not of the expected brightness. */
static bool process_frame(struct camera *camera, int expected_luma)
{
	struct v4l2_buffer buffer = {
		.type = V4L2_BUF_TYPE_VIDEO_CAPTURE,
		.memory = V4L2_MEMORY_DMABUF,
	};
	bool good;

	/* The fence of V4L2: what DQBUF returns, the device has done with. */
	REQUEST(camera, VIDIOC_DQBUF, &buffer);
	struct dmasync_buffer *frame = camera->at[buffer.index];
	unsigned char *pixels = dmasync_buffer_map(frame);
	if (!pixels)
		fail("a buffer cannot be mapped");

	sync_for_cpu(camera, frame);
	unsigned int stats = mean_luma(pixels, WIDTH, STATS_ROWS, camera->stride);
	unsigned int region = mean_luma(pixels + region_offset(camera, 0), REGION_WIDTH,
					REGION_HEIGHT, camera->stride);
	good = is_expected(stats, expected_luma) && is_expected(region, expected_luma);
	if (!good)
		fprintf(stderr,
			"frame %u: luma of the statistics rows %u, of the region %u, "
			"not %d\n",
			buffer.sequence, stats, region, expected_luma);

	draw_border(pixels + region_offset(camera, 0));
	draw_border(pixels + region_offset(camera, REGION_HEIGHT - 1));
	sync_for_device(camera, frame);
	/* Here the frame would go to the encoder; when that is done, back to the camera. */
	queue_buffer(camera, buffer.index);
	return good;
}

static void stop(struct camera *camera)
{
	struct v4l2_requestbuffers none = {
		.type = V4L2_BUF_TYPE_VIDEO_CAPTURE,
		.memory = V4L2_MEMORY_DMABUF,
	};
	int type = V4L2_BUF_TYPE_VIDEO_CAPTURE;

	REQUEST(camera, VIDIOC_STREAMOFF, &type);
	REQUEST(camera, VIDIOC_REQBUFS, &none);
	dmasync_queue_destroy(camera->queue);
	for (unsigned int i = 0; i < camera->pool_size; i++)
		dmasync_buffer_destroy(camera->pool[i]);
	dmasync_disconnect(camera->ds);
	close(camera->fd);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"frames", required_argument, NULL, 'f'},
		{"pool", required_argument, NULL, 'p'},
		{"control", required_argument, NULL, 'c'},
		{"expect-luma", required_argument, NULL, 'l'},
		{0},
	};
	struct camera camera = {.pool_size = INDICES};
	struct dmasync_queue_params params;
	const char *controls[8];
	unsigned int frames = 100, wrong = 0, control_count = 0;
	int expected_luma = -1, option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		if (option == 'f')
			frames = (unsigned int)strtoul(optarg, NULL, 0);
		else if (option == 'p')
			camera.pool_size = (unsigned int)strtoul(optarg, NULL, 0);
		else if (option == 'c' && control_count < sizeof controls / sizeof *controls)
			controls[control_count++] = optarg;
		else if (option == 'l')
			expected_luma = (int)strtol(optarg, NULL, 0);
		else
			return 2;
	}
	if (optind != argc - 1 || frames == 0 || camera.pool_size < INDICES ||
	    camera.pool_size > POOL_MAX)
		fail("usage: [--frames N] [--pool %u..%u] [--control ID=VALUE]... "
		     "[--expect-luma Y] DEVICE",
		     INDICES, POOL_MAX);
	camera.fd = open(argv[optind], O_RDWR | O_CLOEXEC);
	if (camera.fd < 0)
		fail("%s: %s", argv[optind], strerror(errno));
	set_format(&camera);
	for (unsigned int i = 0; i < control_count; i++)
		set_control(&camera, controls[i]);
	check(dmasync_connect(NULL, 0, &camera.ds), "dmasyncd");
	dmasync_queue_params_init(&params);
	check(dmasync_queue_create(camera.ds, &params, &camera.queue), "queue");
	allocate_pool(&camera);

	start(&camera);
	for (unsigned int i = 0; i < frames; i++)
		wrong += !process_frame(&camera, expected_luma);
	stop(&camera);
	printf("%u frames, %u wrong; a frame: %.1f lines of %.1f, %.2f us of sync\n", frames, wrong,
	       (double)camera.lines / frames, camera.bytes / 64.0,
	       (double)camera.sync_ns / frames / 1e3);
	return wrong > 0;
}
