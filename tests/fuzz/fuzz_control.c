/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: whatever clients write into their sockets, with whatever fds, through the daemon's
 * own connections, handlers and workers. Each message is answered once, in a form that a library
 * can take; in the end nothing is charged, open or mapped. One thread.
 *
 * An input is a list of steps, see step(); fuzz_seeds.c writes some.
 */
#include "fuzz_control.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon_here.h"
#include "fuzz.h"
#include "helpers_here.h"
#include "worker_here.h"

#define SLOTS 4u
#define FDS_MAX 253u

struct slot {
	int fd; /* -1: none */
	bool reads, ended;
	uint32_t sent, answered;
	uint32_t handle, queue; /* of the last answers */
};

static struct daemon *daemon_;
static struct slot slots[SLOTS];
static int kinds[8]; /* of fds that are sent */
static int maps;     /* shared ones, made and not unmapped */

/* ---- mappings are counted where they are made; 64: _FILE_OFFSET_BITS ---- */

void *__real_mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *address, size_t size);
void *__wrap_mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *address, size_t size);

void *__wrap_mmap64(void *address, size_t size, int protection, int flags, int fd, off_t offset)
{
	void *at = __real_mmap64(address, size, protection, flags, fd, offset);

	maps += at != MAP_FAILED && !(flags & MAP_FIXED);
	return at;
}

int __wrap_munmap(void *address, size_t size)
{
	int r = __real_munmap(address, size);

	maps -= r == 0;
	return r;
}

/* ---- a client ---- */

static const struct row {
	uint16_t opcode;
	uint32_t size, trailing;
} rows[] = {
#define ROW_(name, opcode, handler, type, unit, ...) {opcode, sizeof(type), unit},
	DMASYNC_MESSAGES(ROW_)
#undef ROW_
};

static int memory(size_t size, unsigned int seals)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	claim(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	claim(fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

static void set_up(void)
{
	int pipe_fds[2], pair[2];

	claim(pipe2(pipe_fds, O_CLOEXEC) == 0);
	claim(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
	kinds[FUZZ_FD_SEALED] = memory(3 * 4096, F_SEAL_SHRINK);
	kinds[FUZZ_FD_UNSEALED] = memory(3 * 4096, 0);
	kinds[FUZZ_FD_PIPE] = pipe_fds[0];
	kinds[FUZZ_FD_NULL] = open("/dev/null", O_RDWR | O_CLOEXEC);
	kinds[FUZZ_FD_SOCKET] = pair[0];
	kinds[FUZZ_FD_EMPTY] = memory(0, F_SEAL_SHRINK);
	kinds[FUZZ_FD_LARGE] = memory(UINT64_C(1) << 32, F_SEAL_SHRINK);
	kinds[FUZZ_FD_UNEVEN] = memory(5000, F_SEAL_SHRINK | F_SEAL_GROW);
	daemon_ = daemon_here_start();
	for (uint32_t i = 0; i < SLOTS; i++)
		slots[i].fd = -1;
}

static void close_slot(struct slot *slot)
{
	if (slot->fd >= 0)
		close(slot->fd);
	slot->fd = -1;
}

static void look_at_answer(struct slot *slot, const void *bytes, size_t size, uint32_t fd_count)
{
	const struct dmasync_message *header = bytes;
	const struct dmasync_error *error = bytes;

	claim(size >= sizeof *header && header->size == size);
	if (header->flags == DMASYNC_MESSAGE_EVENT) {
		claim(header->opcode == DMASYNC_OP_WATCH && fd_count == 0);
		return;
	}
	slot->answered++;
	if (header->flags & DMASYNC_MESSAGE_ERROR) {
		claim(header->flags == (DMASYNC_MESSAGE_REPLY | DMASYNC_MESSAGE_ERROR));
		claim(size == sizeof *error && error->error < 0 && fd_count == 0);
		claim(error->text[0] && !error->text[sizeof error->text - 1]);
		return;
	}
	claim(header->flags == DMASYNC_MESSAGE_REPLY);
	claim(fd_count == (header->opcode == DMASYNC_OP_QUEUE_CREATE ? DMASYNC_QUEUE_FDS : 0));
	if (header->opcode == DMASYNC_OP_BUFFER_ADD)
		slot->handle = ((const struct dmasync_buffer_add_reply *)bytes)->handle;
	if (header->opcode == DMASYNC_OP_QUEUE_CREATE)
		slot->queue = ((const struct dmasync_queue_create_reply *)bytes)->queue;
}

/* All that is there. */
static void read_slot(struct slot *slot)
{
	static _Alignas(8) unsigned char bytes[DMASYNC_MESSAGE_MAX];

	while (slot->fd >= 0 && slot->reads) {
		struct iovec part = {.iov_base = bytes, .iov_len = sizeof bytes};
		union {
			struct cmsghdr header;
			char space[CMSG_SPACE(FDS_MAX * sizeof(int))];
		} control;
		struct msghdr message = {.msg_iov = &part,
					 .msg_iovlen = 1,
					 .msg_control = &control,
					 .msg_controllen = sizeof control};
		ssize_t n = recvmsg(slot->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		struct cmsghdr *part_of = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
		uint32_t fd_count = 0;

		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			slot->ended = true;
			close_slot(slot);
			return;
		}
		if (part_of && part_of->cmsg_type == SCM_RIGHTS) {
			fd_count = (uint32_t)((part_of->cmsg_len - CMSG_LEN(0)) / sizeof(int));
			for (uint32_t i = 0; i < fd_count; i++)
				close(((int *)CMSG_DATA(part_of))[i]);
		}
		look_at_answer(slot, bytes, (size_t)n, fd_count);
	}
}

static void settle(void)
{
	for (int again = 0; again < 8; again++) {
		daemon_here_settle(daemon_);
		for (uint32_t i = 0; i < SLOTS; i++)
			read_slot(&slots[i]);
	}
	/* Who lives and reads has been answered. */
	for (uint32_t i = 0; i < SLOTS; i++)
		claim(slots[i].fd < 0 || !slots[i].reads || slots[i].answered == slots[i].sent);
}

/* ---- steps ---- */

static void connect_slot(struct slot *slot)
{
	close_slot(slot);
	*slot = (struct slot){.fd = daemon_here_connect(), .reads = true};
}

static void send_packet(struct slot *slot, const void *bytes, size_t size, int kind,
			uint32_t fd_count)
{
	struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(FDS_MAX * sizeof(int))];
	} control;
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};

	if (fd_count) {
		memset(&control, 0, sizeof control);
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);

		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
		for (uint32_t i = 0; i < fd_count; i++)
			memcpy(CMSG_DATA(header) + i * sizeof(int), &kinds[kind], sizeof(int));
	}
	if (sendmsg(slot->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		slot->sent++;
}

/* Size and flags as they must be, and the struct's own size. */
static size_t make_right(unsigned char *bytes, size_t size)
{
	struct dmasync_message header;

	if (size < sizeof header)
		size = sizeof header;
	memcpy(&header, bytes, sizeof header);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		if (rows[i].opcode != header.opcode)
			continue;
		if (rows[i].trailing && size > rows[i].size)
			size -= (size - rows[i].size) % rows[i].trailing;
		else
			size = rows[i].size;
	}
	header.size = (uint32_t)size;
	header.flags = 0;
	memcpy(bytes, &header, sizeof header);
	return size;
}

/* What the daemon has given: a client that knows nothing of it would never guess. */
static void fill_in_names(const struct slot *slot, unsigned char *bytes, size_t size)
{
	const struct dmasync_message *header = (const void *)bytes;
	uint32_t *words = (uint32_t *)(void *)bytes;

	if (header->opcode == DMASYNC_OP_BUFFER_REMOVE)
		words[4] = slot->handle;
	if (header->opcode == DMASYNC_OP_QUEUE_REMOVE)
		words[4] = slot->queue;
	if (header->opcode == DMASYNC_OP_SYNC) {
		words[4] = (uint32_t)((size - sizeof(struct dmasync_sync_request)) / 16);
		words[5] = 0;
		for (size_t at = 8; at + 4 <= size / 4; at += 4)
			words[at] = (words[at] & ~DMASYNC_UNIT_BUFFER_MASK) | slot->handle;
	}
}

static void packet(struct slot *slot, uint8_t how, struct input *input)
{
	static _Alignas(8) unsigned char bytes[DMASYNC_MESSAGE_MAX + 4096];
	uint8_t fds = input_u8(input);
	size_t size = input_u16(input);

	if (size > input->left) /* else most of it would be zeroes */
		size = input->left;
	memset(bytes, 0, 1024);
	input_copy(input, bytes, size);
	if (how & FUZZ_PACKET_RIGHT)
		size = make_right(bytes, size);
	if (how & FUZZ_PACKET_NAMES && size >= sizeof(struct dmasync_sync_request) - 8)
		fill_in_names(slot, bytes, size);
	if (slot->fd < 0)
		return;
	send_packet(slot, bytes, size, fds & 7, fds == 0xff ? FDS_MAX : fds >> 3 & 3);
	if (how & FUZZ_PACKET_SETTLE)
		settle();
}

static void greet(struct slot *slot)
{
	const struct dmasync_hello hello = {
		.header = {.size = sizeof hello, .opcode = DMASYNC_OP_HELLO},
		.version_min = DMASYNC_PROTOCOL_VERSION,
		.version_max = DMASYNC_PROTOCOL_VERSION,
	};

	if (slot->fd < 0)
		connect_slot(slot);
	if (slot->fd >= 0)
		send_packet(slot, &hello, sizeof hello, 0, 0);
}

static void leave(struct slot *slot, uint8_t how)
{
	if (slot->fd < 0)
		return;
	if (how & 2)
		shutdown(slot->fd, how & 1 ? SHUT_WR : SHUT_RD);
	else
		close_slot(slot);
	slot->ended = true;
}

static void progress(uint8_t how)
{
	switch (how & 7) {
	case 0:
	case 1:
		daemon_here_loop(daemon_);
		break;
	case 2:
	case 3:
		daemon_here_workers(daemon_);
		break;
	case 4:
		helpers_here_run_one();
		break;
	case 5:
		daemon_here_timers(daemon_);
		break;
	default:
		settle();
		break;
	}
}

static void step(struct input *input)
{
	uint8_t what = input_u8(input), how = what >> 3;
	struct slot *slot = &slots[how & (SLOTS - 1)];

	switch (what & 7) {
	case FUZZ_STEP_PACKET:
	case FUZZ_STEP_PACKET_TOO:
		packet(slot, input_u8(input), input);
		break;
	case FUZZ_STEP_CONNECT:
		connect_slot(slot);
		break;
	case FUZZ_STEP_GREET:
		greet(slot);
		settle();
		break;
	case FUZZ_STEP_LEAVE:
		leave(slot, input_u8(input));
		break;
	case FUZZ_STEP_PROGRESS:
		progress(how);
		break;
	case FUZZ_STEP_READ:
		slot->reads = how & 4;
		break;
	default:
		read_slot(slot);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input input = {data, size};

	if (!daemon_)
		set_up();
	unsigned int fds = open_fds();
	int maps_before = maps;

	for (uint32_t i = 0; i < SLOTS; i++)
		slots[i] = (struct slot){.fd = -1};
	while (input.left)
		step(&input);

	for (uint32_t i = 0; i < SLOTS; i++)
		slots[i].reads = true;
	settle();
	for (uint32_t i = 0; i < SLOTS; i++)
		close_slot(&slots[i]);
	daemon_here_settle(daemon_);
	daemon_here_timers(daemon_); /* who went with answers unread is looked after by one */
	daemon_here_settle(daemon_);
	claim(!daemon_->clients && !daemon_->accounts.users && daemon_->accounts.errors == 0);
	for (int i = 0; i < ACCOUNT_RESOURCES; i++)
		claim(daemon_->accounts.used[i] == 0);
	for (uint32_t i = 0; i < daemon_->worker_count; i++)
		claim(worker_here_is_empty(daemon_->workers[i]));
	claim(maps == maps_before);
	claim(open_fds() == fds);
	return 0;
}
