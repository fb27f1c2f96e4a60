/* SPDX-License-Identifier: MIT */
/*
 * write-bar FILE OFFSET: maps 128 KiB of device memory and writes it with every helper of
 * dmasync/iomem.h at every alignment and length, each read back and compared. Leaves at OFFSET what
 * check_bar.py looks for on the host.
 */
#include <dmasync/iomem.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/cross/write_everything.h"

#define MAPPED (128u << 10)
#define LEFT 4099u /* check_bar.py */

int main(int argc, char **argv)
{
	struct dmasync_io_map_params params;
	static unsigned char left[LEFT];
	char text[512] = "";
	uint64_t length;
	void *address;
	int r;

	if (argc != 3)
		return 2;
	dmasync_io_map_params_init(&params);
	params.path = argv[1];
	params.offset = strtoull(argv[2], NULL, 0);
	params.length = MAPPED;
	params.error_text = text;
	params.error_text_size = sizeof text;
	r = dmasync_io_map(&params, &address, &length);
	if (r < 0 || length != MAPPED) {
		fprintf(stderr, "write-bar: %s (%d)\n", text, r);
		return 1;
	}
	printf("%lu writes and reads compared\n", write_everything(address));
	for (size_t i = 0; i < LEFT; i++)
		left[i] = (unsigned char)(i * 31 + i / 256 + 7);
	dmasync_io_memcpy_to(address, left, LEFT, DMASYNC_IO_ORDERED);
	dmasync_io_unmap(address, length);
	return 0;
}
