/* SPDX-License-Identifier: MIT */
/*
 * The smallest client: allocate a buffer, write to it, sync two ranges for the device, wait once.
 * With --inline it needs no daemon.
 * Build it with: cc minimal.c $(pkg-config --cflags --libs libdmasync)
 */
#include <dmasync/dmasync.h>
#include <stdio.h>
#include <string.h>

static int fail(const char *what, int error)
{
	char text[256];

	dmasync_strerror(error, text, sizeof text);
	fprintf(stderr, "%s: %s\n", what, text);
	return 1;
}

int main(int argc, char **argv)
{
	struct dmasync *ds;
	bool alone = argc == 2 && strcmp(argv[1], "--inline") == 0;
	/* $DMASYNC_SOCKET, or the system's daemon */
	int r = dmasync_connect(NULL, alone ? DMASYNC_INLINE : 0, &ds);
	if (r < 0)
		return fail("connect", r);

	struct dmasync_buffer_params buffer_params;
	struct dmasync_buffer *buffer;
	dmasync_buffer_params_init(&buffer_params);
	buffer_params.bytes = 1 << 20;
	r = dmasync_buffer_alloc(ds, &buffer_params, &buffer); /* or dmasync_buffer_import(fd) */
	if (r < 0)
		return fail("buffer", r);

	struct dmasync_queue_params queue_params;
	struct dmasync_queue *queue;
	dmasync_queue_params_init(&queue_params);
	r = dmasync_queue_create(ds, &queue_params, &queue);
	if (r < 0)
		return fail("queue", r);

	memset(dmasync_buffer_map(buffer), 0x5a, 1 << 20);

	struct dmasync_batch *batch; /* 4096 bytes at the start; 64 bytes of each of 16 rows */
	r = dmasync_batch_begin(queue, &batch);
	if (r < 0)
		return fail("begin", r);
	dmasync_batch_add(batch, buffer, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0, 4096);
	dmasync_batch_add_rows(batch, buffer, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 8192, 64, 16,
			       1024);
	r = dmasync_batch_submit(batch, 1); /* says also what was wrong with an entry */
	if (r < 0)
		return fail("submit", r);

	struct dmasync_completion done; /* the thread could do something else here */
	r = dmasync_wait(queue, &done, 1000000000);
	if (r < 0 || done.status < 0)
		return fail("batch", r < 0 ? r : done.status);
	printf("%u entries, %llu lines: %llu ns to issue, %llu ns barrier\n", done.entries,
	       (unsigned long long)done.lines, (unsigned long long)done.issue_ns,
	       (unsigned long long)done.barrier_ns);

	dmasync_queue_destroy(queue);
	dmasync_buffer_destroy(buffer);
	dmasync_disconnect(ds);
	return 0;
}
