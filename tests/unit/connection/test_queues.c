/* SPDX-License-Identifier: MIT */
/* QUEUE_CREATE, QUEUE_REMOVE and what goes through a queue, by raw ring access. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/connection/requests.h"

struct ring {
	int fds[DMASYNC_QUEUE_FDS];
	uint32_t id;
	struct dmasync_ring ring;
	void *memory;
	size_t size;
	const struct dmasync_worker_page *page;
	uint32_t next;
};

static void ring_open(int socket, uint32_t depth, uint32_t units, struct ring *ret)
{
	struct dmasync_ring_layout layout;
	union reply reply;

	check(dmasync_ring_layout(depth, units, &layout));
	check_int(requests_queue(socket, depth, units, &reply, ret->fds), 0);
	check_int(reply.queue.depth, depth);
	check_int(reply.queue.units, units);
	check(reply.queue.queue != 0);
	ret->id = reply.queue.queue;
	ret->size = layout.size;
	ret->memory = mmap(NULL, layout.size, PROT_READ | PROT_WRITE, MAP_SHARED,
			   ret->fds[DMASYNC_QUEUE_RING], 0);
	ret->page = mmap(NULL, DMASYNC_RING_PAGE, PROT_READ, MAP_SHARED,
			 ret->fds[DMASYNC_QUEUE_WORKER_PAGE], 0);
	check(ret->memory != MAP_FAILED && ret->page != MAP_FAILED);
	dmasync_ring_attach(&ret->ring, ret->memory, &layout);
	check_int(ret->ring.header->magic, DMASYNC_RING_MAGIC);
	ret->next = DMASYNC_RING_START;
}

static void ring_close(struct ring *ring)
{
	munmap(ring->memory, ring->size);
	munmap((void *)(uintptr_t)ring->page, DMASYNC_RING_PAGE);
	for (int i = 0; i < DMASYNC_QUEUE_FDS; i++)
		close(ring->fds[i]);
}

static void ring_doorbell(struct ring *ring)
{
	/* EPIPE: the daemon has ended the queue meanwhile. */
	if (dmasync_ring_wants_doorbell(&ring->ring, &ring->page->sleeping))
		check(write(ring->fds[DMASYNC_QUEUE_DOORBELL], "x", 1) == 1 || errno == EAGAIN ||
		      errno == EPIPE);
}

static void ring_run(struct ring *ring, const struct dmasync_submission *submission,
		     struct dmasync_ring_completion *ret)
{
	struct pollfd notified = {.fd = ring->fds[DMASYNC_QUEUE_NOTIFICATION], .events = POLLIN};
	char bytes[64];

	dmasync_ring_submit(&ring->ring, ring->next, submission);
	ring_doorbell(ring);
	for (;;) {
		dmasync_ring_announce_sleep(&ring->ring.header->client_sleeping);
		enum dmasync_ring_poll poll_result =
			dmasync_ring_poll_completion(&ring->ring, ring->next, ret);

		if (poll_result == DMASYNC_RING_READY)
			break;
		check_int(poll_result, DMASYNC_RING_EMPTY);
		check_int(poll(&notified, 1, (int)harness_scaled_ms(5000)), 1);
		check_int(notified.revents, POLLIN);
		check(read(notified.fd, bytes, sizeof bytes) > 0);
	}
	dmasync_ring_announce_awake(&ring->ring.header->client_sleeping);
	ring->next++;
	dmasync_ring_consume_completion(&ring->ring, ring->next);
}

static uint32_t add_simulated(int socket, int fd)
{
	union reply reply;

	check_int(requests_add(socket, fd, 0, DMASYNC_BACKEND_SIMULATED, 0, &reply), 0);
	return reply.buffer.handle;
}

static void batches_through_a_queue(void)
{
	struct harness_daemon daemon;
	struct ring ring;
	struct dmasync_ring_completion completion;
	struct dmasync_stats_reply stats;

	harness_daemon_start(&daemon, "[daemon]\nallow_simulated=yes\n", NULL);
	int socket = requests_connect(&daemon), fd = harness_memfd(3 * 4096, F_SEAL_SHRINK);
	struct requests_holdings before = requests_holdings(&daemon);
	uint32_t handle = add_simulated(socket, fd);

	ring_open(socket, 4, 8, &ring);
	/* More than 0x100, so that the positions go through 2^32. */
	for (uint64_t i = 0; i < 600; i++) {
		struct dmasync_submission submission = {
			.user_data = i, .entry = requests_unit(handle, (i % 64) * 64, 64)};

		ring_run(&ring, &submission, &completion);
		check_int(completion.status, 0);
		check_int(completion.user_data, i);
		check_int(completion.lines, 1);
	}
	/* A batch with a bad entry says which. */
	struct dmasync_unit good = requests_unit(handle, 0, 64);
	struct dmasync_unit bad = requests_unit(handle, 4096, 1);
	struct dmasync_submission two = {
		.user_data = 9, .unit_position = DMASYNC_RING_START, .unit_count = 2};

	dmasync_ring_write_unit(&ring.ring, DMASYNC_RING_START, &good);
	dmasync_ring_write_unit(&ring.ring, DMASYNC_RING_START + 1, &bad);
	ring_run(&ring, &two, &completion);
	check_int(completion.status, -ERANGE);
	check_int(completion.reason, DMASYNC_REASON_OUT_OF_RANGE);
	check_int(completion.bad_entry, 1);

	requests_stats(socket, &stats);
	check_int(stats.queues, 1);
	check_int(stats.batches, 601);
	check_int(stats.failed, 1);
	check_int(stats.lines, 600);

	check_int(requests_queue_remove(socket, ring.id), 0);
	check_int(requests_queue_remove(socket, ring.id), -ENOENT);
	check_int(requests_remove(socket, handle), 0);
	ring_close(&ring);
	requests_same_holdings(&daemon, before);
	requests_stats(socket, &stats);
	check_int(stats.queues, 0);
	close(fd);
	close(socket);
	harness_daemon_stop(&daemon);
}

/* What the client gets may hurt nobody but itself. */
static void queue_fds(void)
{
	struct harness_daemon daemon;
	struct ring ring;

	harness_daemon_start(&daemon, "", NULL);
	int socket = requests_connect(&daemon);

	ring_open(socket, 2, 2, &ring);
	int seals = fcntl(ring.fds[DMASYNC_QUEUE_RING], F_GET_SEALS);

	check(seals & F_SEAL_SHRINK);
	check(seals & F_SEAL_GROW);
	check(seals & F_SEAL_SEAL);
	check(ftruncate(ring.fds[DMASYNC_QUEUE_RING], 0) < 0);
	check(mmap(NULL, DMASYNC_RING_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED,
		   ring.fds[DMASYNC_QUEUE_WORKER_PAGE], 0) == MAP_FAILED);
	check(write(ring.fds[DMASYNC_QUEUE_WORKER_PAGE], "x", 1) < 0);
	check(fcntl(ring.fds[DMASYNC_QUEUE_DOORBELL], F_GETFL) & O_NONBLOCK);
	check_int(fcntl(ring.fds[DMASYNC_QUEUE_DOORBELL], F_GETFL) & O_ACCMODE, O_WRONLY);
	check(fcntl(ring.fds[DMASYNC_QUEUE_NOTIFICATION], F_GETFL) & O_NONBLOCK);
	check_int(fcntl(ring.fds[DMASYNC_QUEUE_NOTIFICATION], F_GETFL) & O_ACCMODE, O_RDONLY);
	ring_close(&ring);
	close(socket);
	harness_daemon_stop(&daemon);
}

static bool has_pages(const struct ring *ring)
{
	struct stat status;

	check_int(fstat(ring->fds[DMASYNC_QUEUE_RING], &status), 0);
	return status.st_blocks > 0;
}

/* Who keeps a ring after its end keeps zeroes that cost the daemon nothing; not where it stops. */
static void rings_after_their_end(void)
{
	struct harness_daemon daemon;
	struct ring removed, left, stopped;

	harness_daemon_start(&daemon, "", NULL);
	int socket = requests_connect(&daemon), other = requests_connect(&daemon);

	ring_open(socket, 2, 2, &removed);
	ring_open(other, 2, 2, &left);
	ring_open(socket, 2, 2, &stopped);
	check(has_pages(&removed) && has_pages(&left) && has_pages(&stopped));
	check_int(requests_queue_remove(socket, removed.id), 0);
	check(!has_pages(&removed));
	close(other);
	harness_until(!has_pages(&left), 5000);
	harness_daemon_stop(&daemon);
	check(has_pages(&stopped));
	ring_close(&removed);
	ring_close(&left);
	ring_close(&stopped);
	close(socket);
}

static void create_refused(int socket, uint32_t depth, uint32_t units, uint32_t klass, int error,
			   const char *text)
{
	struct dmasync_queue_create create = {.depth = depth, .units = units, .klass = klass};

	requests_refused(socket, DMASYNC_OP_QUEUE_CREATE, &create, sizeof create, NULL, 0, error,
			 text);
}

static void queues_that_are_refused(void)
{
	static const uint32_t bad[] = {0, 1, 3, 6, 17, 512, 1u << 31, UINT32_MAX};
	struct harness_daemon daemon;
	struct ring rings[2];

	harness_daemon_start(&daemon, "[limits]\nmax_queues=2\nmax_depth=256\nmax_units=256\n",
			     NULL);
	int socket = requests_connect(&daemon);
	struct requests_holdings before = requests_holdings(&daemon);

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		create_refused(socket, bad[i], 16, DMASYNC_CLASS_NORMAL, -EINVAL, "max_depth=256");
		create_refused(socket, 16, bad[i], DMASYNC_CLASS_NORMAL, -EINVAL, "max_units=256");
	}
	create_refused(socket, 16, 16, 3, -EINVAL, "class");
	requests_same_holdings(&daemon, before);

	ring_open(socket, 256, 256, &rings[0]);
	ring_open(socket, 2, 2, &rings[1]);
	create_refused(socket, 2, 2, DMASYNC_CLASS_NORMAL, -ENOSPC, "max_queues=2");
	check_int(requests_queue_remove(socket, rings[0].id), 0);
	ring_close(&rings[0]);
	ring_open(socket, 2, 2, &rings[0]);
	check(rings[0].id != rings[1].id);
	ring_close(&rings[0]);
	ring_close(&rings[1]);
	close(socket);
	harness_daemon_stop(&daemon);
}

static void create_class(int socket, enum dmasync_class klass)
{
	int fds[DMASYNC_QUEUE_FDS];
	union reply reply;

	check_int(requests_queue_of_class(socket, klass, 16, 16, &reply, fds), 0);
	for (int i = 0; i < DMASYNC_QUEUE_FDS; i++)
		close(fds[i]);
}

/* Realtime for who may: root, our own user, the group; normal and bulk for everybody. */
static void classes_are_granted_or_refused(void)
{
	static const char config[] = "[daemon]\nrealtime_group=daemon\n";
	const struct group *group = getgrnam("daemon");
	struct harness_daemon daemon;
	gid_t realtime[2];

	if (geteuid() != 0 || !group)
		harness_skip("needs root, and a group named daemon");
	realtime[0] = 12345;
	realtime[1] = group->gr_gid;
	harness_daemon_start(&daemon, config, NULL);
	check_int(chmod(harness_directory(), 0755), 0);
	check_int(chmod(daemon.socket, 0666), 0);
	int root = requests_connect(&daemon);
	int nobody = requests_connect_as_nobody(&daemon, NULL, 0);
	int member = requests_connect_as_nobody(&daemon, realtime, 2);

	create_class(root, DMASYNC_CLASS_REALTIME);
	create_class(member, DMASYNC_CLASS_REALTIME);
	create_refused(nobody, 16, 16, DMASYNC_CLASS_REALTIME, -EPERM,
		       "realtime_group in [daemon]");
	create_refused(nobody, 16, 16, DMASYNC_CLASS_REALTIME, -EPERM, "user 65534");
	create_class(nobody, DMASYNC_CLASS_NORMAL);
	create_class(nobody, DMASYNC_CLASS_BULK);
	close(root);
	close(nobody);
	close(member);
	harness_daemon_stop(&daemon);
}

static size_t unread_bytes(int socket)
{
	int bytes = 0;

	check_int(ioctl(socket, FIONREAD, &bytes), 0);
	return (size_t)bytes;
}

/* Answers that lie unread hold memory and fds: there may be so many as queues. */
static void unread_answers(void)
{
	struct harness_daemon daemon;
	struct dmasync_queue_create create = {
		.header = {.size = sizeof create, .opcode = DMASYNC_OP_QUEUE_CREATE},
		.depth = 2,
		.units = 2,
	};
	struct dmasync_queue_remove remove = {
		.header = {.size = sizeof remove, .opcode = DMASYNC_OP_QUEUE_REMOVE}};
	union reply reply;
	unsigned int created = 0, refused = 0, removed = 0;
	int fds[DMASYNC_QUEUE_FDS];
	struct ring ring;

	harness_daemon_start(&daemon, "[limits]\nmax_queues=2\n", NULL);
	int socket = requests_connect(&daemon);
	struct requests_holdings before = requests_holdings(&daemon);

	for (uint32_t i = 1; i <= 2; i++) {
		check_int(harness_send(socket, &create, sizeof create, NULL, 0), 0);
		remove.queue = i;
		check_int(harness_send(socket, &remove, sizeof remove, NULL, 0), 0);
	}
	size_t answers = 2 * (sizeof reply.queue + sizeof remove.header);

	harness_until(unread_bytes(socket) == answers, 5000);
	requests_same_holdings(&daemon, before); /* all gone but their answers */
	check_int(harness_send(socket, &create, sizeof create, NULL, 0), 0);
	harness_until(unread_bytes(socket) > answers, 5000);
	for (int i = 0; i < 5; i++) {
		size_t count = DMASYNC_QUEUE_FDS;

		check(harness_receive(socket, &reply, sizeof reply, fds, &count, 5000) > 0);
		for (size_t j = 0; j < count; j++)
			close(fds[j]);
		if (reply.header.flags & DMASYNC_MESSAGE_ERROR) {
			check_int(reply.error.error, -EBUSY);
			refused++;
		} else if (reply.header.opcode == DMASYNC_OP_QUEUE_CREATE) {
			created++;
		} else {
			removed++;
		}
	}
	check_int(created, 2);
	check_int(removed, 2);
	check_int(refused, 1);
	ring_open(socket, 2, 2, &ring);
	ring_close(&ring);
	close(socket);
	harness_daemon_stop(&daemon);
}

/* A client that breaks its ring loses that queue, and its other queue goes on. */
static void broken_ring(void)
{
	struct harness_daemon daemon;
	struct ring broken, good;
	struct dmasync_ring_completion completion;
	struct dmasync_stats_reply stats;

	harness_daemon_start(&daemon, "[daemon]\nallow_simulated=yes\n", NULL);
	int socket = requests_connect(&daemon), fd = harness_memfd(3 * 4096, F_SEAL_SHRINK);
	unsigned int fds = harness_count_fds(daemon.pid);
	uint32_t handle = add_simulated(socket, fd);

	harness_until(harness_count_fds(daemon.pid) == fds, 5000); /* the buffer's is closed */
	ring_open(socket, 4, 8, &good);
	requests_stats(socket, &stats); /* the daemon has closed its copies of the queue's fds */
	struct requests_holdings before = requests_holdings(&daemon);

	ring_open(socket, 4, 8, &broken);
	__atomic_store_n(&broken.ring.submissions[broken.next & 3].seq, broken.next + 1,
			 __ATOMIC_RELEASE);
	ring_doorbell(&broken);

	struct pollfd ended = {.fd = broken.fds[DMASYNC_QUEUE_NOTIFICATION], .events = POLLIN};

	check_int(poll(&ended, 1, (int)harness_scaled_ms(5000)), 1);
	check(ended.revents & POLLHUP);
	requests_same_holdings(&daemon, before);
	check_int(requests_queue_remove(socket, broken.id), -ENOENT);
	harness_until((requests_stats(socket, &stats), stats.queues == 1), 5000);

	struct dmasync_submission submission = {.entry = requests_unit(handle, 0, 4096)};

	ring_run(&good, &submission, &completion);
	check_int(completion.status, 0);
	check_int(completion.lines, 64);
	ring_close(&broken);
	ring_close(&good);
	close(fd);
	close(socket);
	harness_daemon_stop(&daemon);
}

/*
 * Removed while a batch that names it is at work: that batch finishes, the next one does not find
 * it, and the answer comes when it is unmapped.
 */
static void buffer_removed_under_a_batch(void)
{
	struct harness_daemon daemon;
	struct ring ring;
	struct dmasync_stats_reply stats;

	harness_daemon_start(&daemon, "[daemon]\nallow_simulated=yes\n", NULL);
	int socket = requests_connect(&daemon), fd = harness_memfd(3 * 262144, F_SEAL_SHRINK);

	ring_open(socket, 64, 64, &ring);
	for (int round = 0; round < 20; round++) {
		uint32_t handle = add_simulated(socket, fd), found = 0;

		for (uint32_t i = 0; i < 8; i++) {
			struct dmasync_submission submission = {
				.entry = requests_unit(handle, 0, 262144)};

			dmasync_ring_submit(&ring.ring, ring.next + i, &submission);
		}
		ring_doorbell(&ring);
		check_int(requests_remove(socket, handle), 0);
		requests_stats(socket, &stats);
		check_int(stats.buffers, 0);
		check_int(stats.mapped_bytes, 0);
		for (uint32_t i = 0; i < 8; i++) {
			struct dmasync_ring_completion completion;

			harness_until(dmasync_ring_poll_completion(&ring.ring, ring.next + i,
								   &completion) ==
					      DMASYNC_RING_READY,
				      5000);
			if (completion.status == 0) {
				check_int(found, i); /* in order: none after the first refused */
				check_int(completion.lines, 4096);
				found++;
			} else {
				check_int(completion.reason, DMASYNC_REASON_UNKNOWN_BUFFER);
				check_int(completion.lines, 0);
			}
		}
		ring.next += 8;
		dmasync_ring_consume_completion(&ring.ring, ring.next);
	}
	ring_close(&ring);
	close(fd);
	close(socket);
	harness_daemon_stop(&daemon);
}

/* SIGTERM: what was submitted is done before the daemon goes. */
static void stop_drains(void)
{
	struct harness_daemon daemon;
	struct ring ring;

	harness_daemon_start(&daemon, "[daemon]\nallow_simulated=yes\n", NULL);
	int socket = requests_connect(&daemon), fd = harness_memfd(3 * 65536, F_SEAL_SHRINK);
	uint32_t handle = add_simulated(socket, fd);

	ring_open(socket, 64, 64, &ring);
	for (uint32_t i = 0; i < 64; i++) {
		struct dmasync_submission submission = {.user_data = i,
							.entry = requests_unit(handle, 0, 65536)};

		dmasync_ring_submit(&ring.ring, ring.next + i, &submission);
	}
	ring_doorbell(&ring);
	harness_daemon_stop(&daemon);
	for (uint32_t i = 0; i < 64; i++) {
		struct dmasync_ring_completion completion;

		check_int(dmasync_ring_poll_completion(&ring.ring, ring.next + i, &completion),
			  DMASYNC_RING_READY);
		check_int(completion.status, 0);
		check_int(completion.user_data, i);
	}
	ring_close(&ring);
	close(fd);
	close(socket);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(batches_through_a_queue),
	HARNESS_CASE(queue_fds),
	HARNESS_CASE(rings_after_their_end),
	HARNESS_CASE(queues_that_are_refused),
	HARNESS_CASE(classes_are_granted_or_refused),
	HARNESS_CASE(unread_answers),
	HARNESS_CASE(buffer_removed_under_a_batch),
	HARNESS_CASE(broken_ring),
	HARNESS_CASE(stop_drains),
};

HARNESS_MAIN(cases)
