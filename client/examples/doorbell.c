/* SPDX-License-Identifier: MIT */
/*
 * What comes after a sync: a descriptor is written into a device's memory and its doorbell rung.
 * A batch cannot do that: the daemon never writes device memory for a client.
 *
 *	doorbell /sys/bus/pci/devices/0000:00:02.0/resource2_wc [OFFSET]
 *	doorbell /dev/uio0 [OFFSET]
 *
 * OVERWRITES 64 bytes there: a ring of one descriptor of 32 bytes, and a doorbell of 4 bytes behind
 * it. Needs no daemon: the sync is done in this process.
 * Build it with: cc doorbell.c $(pkg-config --cflags --libs libdmasync)
 */
#include <dmasync/dmasync.h>
#include <dmasync/iomem.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_BYTES 65536u
#define RING 0	    /* where in the device's memory */
#define DOORBELL 32 /* its register */

/* As an imagined device reads it. */
struct descriptor {
	uint64_t address, length, cookie, flags;
};

static int fail(const char *what, int error)
{
	char text[256];

	dmasync_strerror(error, text, sizeof text);
	fprintf(stderr, "%s: %s\n", what, text);
	return 1;
}

int main(int argc, char **argv)
{
	if (argc < 2 || argc > 3) {
		fprintf(stderr, "usage: doorbell FILE [OFFSET]\n");
		return 2;
	}

	struct dmasync_io_map_params map;
	char text[256] = "";
	void *address;
	uint64_t length;
	dmasync_io_map_params_init(&map);
	map.path = argv[1];
	map.offset = argc == 3 ? strtoull(argv[2], NULL, 0) : 0;
	map.length = 64;
	map.error_text = text;
	map.error_text_size = sizeof text;
	int r = dmasync_io_map(&map, &address, &length);
	if (r < 0) {
		fprintf(stderr, "%s\n", text);
		return 1;
	}
	char *device = address;

	struct dmasync *ds;
	r = dmasync_connect(NULL, DMASYNC_INLINE, &ds);
	if (r < 0)
		return fail("connect", r);
	struct dmasync_buffer_params buffer_params;
	struct dmasync_buffer *frame;
	dmasync_buffer_params_init(&buffer_params);
	buffer_params.bytes = FRAME_BYTES;
	r = dmasync_buffer_alloc(ds, &buffer_params, &frame);
	if (r < 0)
		return fail("buffer", r);
	struct dmasync_queue_params queue_params;
	struct dmasync_queue *queue;
	dmasync_queue_params_init(&queue_params);
	r = dmasync_queue_create(ds, &queue_params, &queue);
	if (r < 0)
		return fail("queue", r);

	/* The data: written, and synced. When this returns it has reached the point of coherency.
	 */
	memset(dmasync_buffer_map(frame), 0x5a, FRAME_BYTES);
	r = dmasync_sync(queue, frame, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, FRAME_BYTES);
	if (r < 0)
		return fail("sync", r);

	/*
	 * Where it is: four 64-bit stores. FLUSH, as the mapping may be write-combining: on x86-64
	 * the doorbell could overtake them otherwise.
	 */
	const struct descriptor descriptor = {0x80000000, FRAME_BYTES, 42, 1};
	dmasync_io_write64_copy(device + RING, &descriptor, sizeof descriptor / 8,
				DMASYNC_IO_FLUSH);

	/* And that it is there: one 32-bit store, after all before it. */
	dmasync_io_write32(device + DOORBELL, 1, DMASYNC_IO_FLUSH);

	struct descriptor seen;
	dmasync_io_read_from(&seen, device + RING, sizeof seen);
	printf("descriptor in device memory: address %#" PRIx64 ", length %" PRIu64
	       ", cookie %" PRIu64 "\n",
	       seen.address, seen.length, seen.cookie);

	dmasync_queue_destroy(queue);
	dmasync_buffer_destroy(frame);
	dmasync_disconnect(ds);
	dmasync_io_unmap(address, length);
	return memcmp(&seen, &descriptor, sizeof seen) != 0;
}
