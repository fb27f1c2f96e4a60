/* SPDX-License-Identifier: MIT */
/*
 * See fake.h. fake_thread() owns the sockets; everything else is the test's thread's.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/internal.h"
#include "tests/unit/client/fake.h"

/* ---- answers ---- */

static int mode_of(struct fake *fake, uint16_t opcode)
{
	return opcode < FAKE_OPCODES ? atomic_load(&fake->mode[opcode]) : FAKE_GOOD;
}

static void send_raw(struct fake *fake, const void *data, size_t size, const int *fds, size_t n)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int) * 253)];
	} control = {0};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	if (n) {
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(sizeof(int) * n);
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(sizeof(int) * n);
		memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * n);
	}
	(void)!sendmsg(fake->connection_fd, &message, MSG_NOSIGNAL);
}

static void close_all(int *fds, size_t n)
{
	for (size_t i = 0; i < n; i++)
		close(fds[i]);
}

/* Sends a good answer the way `mode` wants it. Takes the fds. */
static void send_reply(struct fake *fake, int mode, void *reply, size_t size, int *fds, size_t n)
{
	struct dmasync_message *header = reply;
	char packet[1024] = {0};
	size_t body = size;
	int many[200];

	header->size = (uint32_t)size;
	header->flags = DMASYNC_MESSAGE_REPLY;
	switch (mode) {
	case FAKE_SHORT:
		header->size = (uint32_t)--size;
		break;
	case FAKE_LONG:
		header->size = (uint32_t)(size += 8);
		break;
	case FAKE_LYING_SIZE:
		header->size++;
		break;
	case FAKE_HEADER_ONLY:
		size = 8;
		break;
	case FAKE_WRONG_OPCODE:
		header->opcode++;
		break;
	case FAKE_WRONG_FLAGS:
		header->flags = 0x40;
		break;
	case FAKE_FUTURE_COOKIE:
		header->cookie += 1000;
		break;
	}
	memcpy(packet, reply, body);
	if (mode == FAKE_EVENT_FIRST) {
		struct dmasync_batches_reply event = {
			.header = {sizeof event, DMASYNC_OP_WATCH, DMASYNC_MESSAGE_EVENT, 1},
		};

		send_raw(fake, &event, sizeof event, NULL, 0);
	}
	if (mode == FAKE_LATE) {
		pthread_mutex_lock(&fake->lock);
		memcpy(fake->late, packet, size);
		fake->late_size = size;
		for (size_t i = 0; i < n; i++)
			fake->late_fds[i] = fds[i];
		fake->late_fd_count = n;
		pthread_mutex_unlock(&fake->lock);
		return;
	}
	if (mode == FAKE_MANY_FDS || mode == FAKE_EXTRA_FD) {
		size_t more = mode == FAKE_MANY_FDS ? 200 : n + 1;

		for (size_t i = 0; i < more; i++)
			many[i] = fake->stop_fd;
		send_raw(fake, packet, size, many, more);
	} else {
		send_raw(fake, packet, size, fds, mode == FAKE_NO_FDS ? 0 : n);
	}
	close_all(fds, n);
}

static void send_error(struct fake *fake, const struct dmasync_message *request, int error,
		       const char *text)
{
	struct dmasync_error reply = {
		.header = {sizeof reply, request->opcode,
			   DMASYNC_MESSAGE_REPLY | DMASYNC_MESSAGE_ERROR, request->cookie},
		.error = error,
		.bad_entry = DMASYNC_NO_ENTRY,
	};

	snprintf(reply.text, sizeof reply.text, "%s", text);
	send_raw(fake, &reply, sizeof reply, NULL, 0);
}

static void answer_hello(struct fake *fake, int mode, const struct dmasync_message *request)
{
	struct dmasync_hello_reply reply = {
		.header = *request,
		.version = atomic_load(&fake->version),
		.line_size = mode == FAKE_BAD_BODY ? 65 : 64,
		.features = atomic_load(&fake->features),
		.granule = 128,
		.instance = 1,
		.max_buffers = 16,
		.max_queues = FAKE_QUEUES,
		.max_depth = 4096,
		.max_units = 131072,
		.max_requests = 16,
		.max_buffer_bytes = 1 << 30,
		.max_batch_lines = 1 << 20,
		.daemon = "0.1.0-fake",
	};

	/* A name that does not end: the library must end it. */
	memset(reply.cache_ops, 'x', sizeof reply.cache_ops);
	send_reply(fake, mode, &reply, sizeof reply, NULL, 0);
}

static void answer_buffer_add(struct fake *fake, int mode, const struct dmasync_buffer_add *request,
			      int fd)
{
	struct dmasync_buffer_add_reply reply = {
		.header = request->header,
		.backend = request->backend ? request->backend : DMASYNC_BACKEND_DIRECT,
		.kind = DMASYNC_KIND_MEMFD,
		.flags = DMASYNC_BUFFER_LOCKED,
	};
	struct stat file = {0};

	fstat(fd, &file);
	reply.size = (uint64_t)file.st_size;
	if (reply.backend == DMASYNC_BACKEND_SIMULATED)
		reply.size /= 3;
	pthread_mutex_lock(&fake->lock);
	reply.handle = request->handle && mode != FAKE_OTHER_HANDLE ? request->handle
								    : ++fake->last_handle;
	pthread_mutex_unlock(&fake->lock);
	if (mode == FAKE_BAD_BODY)
		reply.handle = 0x1000001;
	if (mode == FAKE_TOO_LARGE)
		reply.size++;
	memset(reply.exporter, 'e', sizeof reply.exporter);
	send_reply(fake, mode, &reply, sizeof reply, NULL, 0);
}

static int memfd(size_t size, bool sealed)
{
	int fd = memfd_create("fake", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	if (sealed)
		assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
				 0);
	return fd;
}

static void *map(int fd, size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	assert_ptr_not_equal(memory, MAP_FAILED);
	return memory;
}

static void forget_queue(struct fake_queue *fq)
{
	fq->doorbell_fd = close_fd(fq->doorbell_fd);
	fq->notification_fd = close_fd(fq->notification_fd);
	munmap(fq->memory, fq->layout.size);
	munmap(fq->page, 4096);
	free(fq->mirror);
	fq->used = false;
}

static void answer_queue_create(struct fake *fake, int mode,
				const struct dmasync_queue_create *request)
{
	struct dmasync_queue_create_reply reply = {
		.header = request->header,
		.queue = fake->queue_count + 1,
		.depth = request->depth,
		.units = request->units,
		.cpu = -1,
		.spin_us = 50,
	};
	struct fake_queue *fq = &fake->queue[fake->queue_count++ % FAKE_QUEUES];
	int fds[DMASYNC_QUEUE_FDS], flags = mode == FAKE_BLOCKING_PIPES ? 0 : O_NONBLOCK;
	int doorbell[2], notification[2];
	size_t size;

	if (fq->used) /* of a daemon that died long ago */
		forget_queue(fq);
	assert_int_equal(dmasync_ring_layout(request->depth, request->units, &fq->layout), 1);
	size = fq->layout.size;
	fds[DMASYNC_QUEUE_RING] =
		memfd(mode == FAKE_SMALL_RING ? size - 4096 : size, mode != FAKE_UNSEALED_RING);
	fds[DMASYNC_QUEUE_WORKER_PAGE] = memfd(4096, true);
	fq->page = map(fds[DMASYNC_QUEUE_WORKER_PAGE], 4096);
	if (mode == FAKE_SMALL_RING)
		fq->memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
				  -1, 0);
	else
		fq->memory = map(fds[DMASYNC_QUEUE_RING], size);
	dmasync_ring_attach(&fq->ring, fq->memory, &fq->layout);
	dmasync_ring_initialise(&fq->ring, &fq->layout);
	if (mode == FAKE_BAD_RING)
		fq->ring.header->units_offset += 64;
	if (mode == FAKE_BAD_BODY)
		reply.depth *= 2;
	assert_int_equal(pipe2(doorbell, O_CLOEXEC | flags), 0);
	assert_int_equal(pipe2(notification, O_CLOEXEC | O_NONBLOCK), 0);
	if (mode == FAKE_NO_PIPE) {
		close(notification[0]);
		notification[0] = memfd(4096, true);
	}
	fq->doorbell_fd = doorbell[0];
	fcntl(fq->doorbell_fd, F_SETFL, O_NONBLOCK);
	fds[DMASYNC_QUEUE_DOORBELL] = doorbell[1];
	fds[DMASYNC_QUEUE_NOTIFICATION] = notification[0];
	fq->notification_fd = notification[1];
	fq->mirror = calloc(request->units, sizeof *fq->mirror);
	fq->fetched = fq->completed = DMASYNC_RING_START;
	fq->used = true;
	send_reply(fake, mode, &reply, sizeof reply, fds, DMASYNC_QUEUE_FDS);
}

static void answer(struct fake *fake, void *data, int fd)
{
	struct dmasync_message *request = data;
	struct dmasync_done_reply done = {.header = *request};
	int mode = mode_of(fake, request->opcode);

	/* Noted before the answer goes out: who has the answer finds the note. */
	pthread_mutex_lock(&fake->lock);
	if (request->opcode == DMASYNC_OP_HELLO)
		memcpy(&fake->last_hello, data, sizeof fake->last_hello);
	if (request->opcode == DMASYNC_OP_BUFFER_ADD)
		memcpy(&fake->last_add, data, sizeof fake->last_add);
	if (request->opcode == DMASYNC_OP_BUFFER_REMOVE)
		memcpy(&fake->last_remove, data, sizeof fake->last_remove);
	if (request->opcode == DMASYNC_OP_QUEUE_REMOVE)
		memcpy(&fake->last_queue_remove, data, sizeof fake->last_queue_remove);
	pthread_mutex_unlock(&fake->lock);
	if (request->opcode < FAKE_OPCODES)
		atomic_fetch_add(&fake->requests[request->opcode], 1);

	if (mode == FAKE_SLOW)
		usleep(5000);
	if (mode == FAKE_REFUSE) {
		send_error(fake, request, -ENOSPC, "too many of these: at most 16 (max_buffers)");
	} else if (mode == FAKE_REFUSE_SUPPORT) {
		send_error(fake, request, -EOPNOTSUPP, "this fake syncs nothing");
	} else if (mode == FAKE_BAD_ERRNO) {
		send_error(fake, request, 5, "");
	} else if (mode == FAKE_HANG_UP) {
		shutdown(fake->connection_fd, SHUT_RDWR);
	} else if (mode == FAKE_SILENT) {
		/* nothing is the answer */
	} else if (request->opcode == DMASYNC_OP_HELLO) {
		answer_hello(fake, mode, request);
	} else if (request->opcode == DMASYNC_OP_BUFFER_ADD) {
		answer_buffer_add(fake, mode, data, fd);
	} else if (request->opcode == DMASYNC_OP_QUEUE_CREATE) {
		answer_queue_create(fake, mode, data);
	} else {
		send_reply(fake, mode, &done, sizeof done, NULL, 0);
	}
}

/* One request of the connection. False at its end. */
static bool serve_connection(struct fake *fake)
{
	union {
		struct cmsghdr header;
		char room[CMSG_SPACE(sizeof(int) * 4)];
	} control;
	union {
		struct dmasync_message header;
		char room[1024];
	} data = {0};
	struct iovec iov = {.iov_base = &data, .iov_len = sizeof data};
	struct msghdr message = {.msg_iov = &iov,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof control};
	ssize_t n = recvmsg(fake->connection_fd, &message, MSG_CMSG_CLOEXEC);
	struct cmsghdr *c;
	int fd = -1;

	if (n <= 0)
		return false;
	c = CMSG_FIRSTHDR(&message);
	if (c)
		memcpy(&fd, CMSG_DATA(c), sizeof fd);
	answer(fake, &data, fd);
	if (fd >= 0)
		close(fd);
	return true;
}

static void *fake_thread(void *argument)
{
	struct fake *fake = argument;

	for (;;) {
		struct pollfd p[] = {
			{.fd = fake->stop_fd, .events = POLLIN},
			{.fd = fake->connection_fd >= 0 ? fake->connection_fd : fake->listen_fd,
			 .events = POLLIN},
		};

		poll(p, 2, -1);
		if (p[0].revents)
			break;
		if (fake->connection_fd < 0) {
			fake->connection_fd = accept4(fake->listen_fd, NULL, NULL, SOCK_CLOEXEC);
		} else if (!serve_connection(fake)) {
			close(fake->connection_fd);
			fake->connection_fd = -1;
		}
	}
	if (fake->connection_fd >= 0)
		close(fake->connection_fd);
	fake->connection_fd = -1;
	return NULL;
}

/* ---- its life ---- */

void fake_listen(struct fake *fake)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	strcpy(address.sun_path, fake->path);
	fake->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(fake->listen_fd, (void *)&address, sizeof address), 0);
	assert_int_equal(listen(fake->listen_fd, 4), 0);
}

void fake_close(struct fake *fake)
{
	fake->listen_fd = close_fd(fake->listen_fd);
	unlink(fake->path);
}

void fake_live(struct fake *fake)
{
	uint64_t stopped;

	assert_int_equal(read(fake->stop_fd, &stopped, sizeof stopped), sizeof stopped);
	assert_int_equal(pthread_create(&fake->thread, NULL, fake_thread, fake), 0);
}

struct fake *fake_start(void)
{
	struct fake *fake = calloc(1, sizeof *fake);

	assert_non_null(fake);
	strcpy(fake->directory, "/tmp/dmasync-test-XXXXXX");
	assert_non_null(mkdtemp(fake->directory));
	snprintf(fake->path, sizeof fake->path, "%s/socket", fake->directory);
	fake_listen(fake);
	fake->stop_fd = eventfd(0, EFD_CLOEXEC);
	fake->connection_fd = -1;
	atomic_store(&fake->version, DMASYNC_PROTOCOL_VERSION);
	atomic_store(&fake->features, DMASYNC_FEATURE_STRIDED | DMASYNC_FEATURE_SIMULATED);
	pthread_mutex_init(&fake->lock, NULL);
	assert_int_equal(pthread_create(&fake->thread, NULL, fake_thread, fake), 0);
	return fake;
}

static void end_thread(struct fake *fake)
{
	uint64_t one = 1;

	if (!fake->thread)
		return;
	assert_int_equal(write(fake->stop_fd, &one, sizeof one), sizeof one);
	pthread_join(fake->thread, NULL);
	fake->thread = 0;
}

void fake_die(struct fake *fake)
{
	end_thread(fake);
	for (uint32_t i = 0; i < FAKE_QUEUES; i++) {
		struct fake_queue *fq = &fake->queue[i];

		if (!fq->used)
			continue;
		fq->doorbell_fd = close_fd(fq->doorbell_fd);
		fq->notification_fd = close_fd(fq->notification_fd);
	}
}

void fake_stop(struct fake *fake)
{
	fake_die(fake);
	for (uint32_t i = 0; i < FAKE_QUEUES; i++)
		if (fake->queue[i].used)
			forget_queue(&fake->queue[i]);
	close_all(fake->late_fds, fake->late_fd_count);
	close_fd(fake->listen_fd);
	close(fake->stop_fd);
	unlink(fake->path);
	rmdir(fake->directory);
	pthread_mutex_destroy(&fake->lock);
	free(fake);
}

void fake_set(struct fake *fake, enum dmasync_opcode opcode, enum fake_mode mode)
{
	atomic_store(&fake->mode[opcode], (int)mode);
}

void fake_release(struct fake *fake)
{
	pthread_mutex_lock(&fake->lock);
	send_raw(fake, fake->late, fake->late_size, fake->late_fds, fake->late_fd_count);
	close_all(fake->late_fds, fake->late_fd_count);
	fake->late_fd_count = 0;
	pthread_mutex_unlock(&fake->lock);
}

uint32_t fake_requests(struct fake *fake, enum dmasync_opcode opcode)
{
	return atomic_load(&fake->requests[opcode]);
}
