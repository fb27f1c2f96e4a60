/* SPDX-License-Identifier: MIT */
/* BUFFER_ADD, BUFFER_REMOVE, PROBE and SYNC on them: what is taken, what is refused and why. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/unit/connection/requests.h"

#define SIZE 65536u

static void add_refused(int socket, int fd, enum dmasync_backend backend, uint64_t size, int error,
			const char *text)
{
	struct dmasync_buffer_add add = {.backend = backend, .size = size};

	requests_refused(socket, DMASYNC_OP_BUFFER_ADD, &add, sizeof add, &fd, 1, error, text);
}

/* A machine whose line operations do not work refuses memfds: then there is nothing to test here.
 */
static int connect_with_lines(struct harness_daemon *daemon, const char *config)
{
	struct dmasync_hello_reply hello;

	harness_daemon_start(daemon, config, NULL);
	int socket = harness_connect(daemon->socket);

	harness_hello(socket, &hello);
	if (!hello.line_size) {
		harness_daemon_stop(daemon);
		harness_skip("no line operation works on this CPU");
	}
	return socket;
}

static void fds_that_are_no_buffers(void)
{
	struct harness_daemon daemon;
	int socket = connect_with_lines(&daemon, "");
	struct requests_holdings before = requests_holdings(&daemon);
	int pipes[2], pair[2];
	char *path = harness_write_file("plain", "not a buffer\n");
	int plain = open(path, O_RDWR | O_CLOEXEC), null = open("/dev/null", O_RDWR | O_CLOEXEC);
	int directory = open("/", O_RDONLY | O_CLOEXEC), nowhere = open("/", O_PATH | O_CLOEXEC);
	int event = eventfd(0, EFD_CLOEXEC);

	check_int(pipe2(pipes, O_CLOEXEC), 0);
	check_int(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	const int fds[] = {plain, null, directory, nowhere, event, pipes[0], pipes[1], pair[0]};

	for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
		add_refused(socket, fds[i], DMASYNC_BACKEND_AUTO, 0, -EINVAL,
			    "neither a dma-buf nor a memfd");

	struct dmasync_stats_reply stats;

	requests_stats(socket, &stats);
	check_int(stats.buffers, 0);
	check_int(stats.mapped_bytes, 0);
	for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++)
		close(fds[i]);
	close(pair[1]);
	requests_same_holdings(&daemon, before);
	free(path);
	close(socket);
	harness_daemon_stop(&daemon);
}

static int reopened(int fd, int flags)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int other = open(path, flags | O_CLOEXEC);

	check(other >= 0);
	return other;
}

static void memfds_that_are_refused(void)
{
	struct harness_daemon daemon;
	int socket = connect_with_lines(&daemon, "");
	struct requests_holdings before = requests_holdings(&daemon);
	int unsealed = harness_memfd(SIZE, 0), grow = harness_memfd(SIZE, F_SEAL_GROW);
	int empty = harness_memfd(0, F_SEAL_SHRINK), good = harness_memfd(SIZE, F_SEAL_SHRINK);
	int write_only = reopened(good, O_WRONLY);

	add_refused(socket, unsealed, DMASYNC_BACKEND_AUTO, 0, -EINVAL, "F_SEAL_SHRINK");
	add_refused(socket, grow, DMASYNC_BACKEND_AUTO, 0, -EINVAL, "F_SEAL_SHRINK");
	add_refused(socket, empty, DMASYNC_BACKEND_AUTO, 0, -EINVAL, "empty");
	add_refused(socket, write_only, DMASYNC_BACKEND_AUTO, 0, -EACCES, "write-only");
	add_refused(socket, good, DMASYNC_BACKEND_AUTO, SIZE + 1, -ERANGE, "65537");
	add_refused(socket, good, DMASYNC_BACKEND_AUTO, UINT64_MAX, -ERANGE,
		    "18446744073709551615");
	add_refused(socket, good, DMASYNC_BACKEND_KERNEL, 0, -EOPNOTSUPP, "memfd");
	add_refused(socket, good, DMASYNC_BACKEND_SIMULATED, 0, -EPERM, "allow_simulated");

	struct dmasync_stats_reply stats;

	requests_stats(socket, &stats);
	check_int(stats.buffers, 0);
	check_int(stats.mapped_bytes, 0);
	check_int(stats.refused, 8);
	close(unsealed);
	close(grow);
	close(empty);
	close(write_only);
	close(good);
	requests_same_holdings(&daemon, before);
	close(socket);
	harness_daemon_stop(&daemon);
}

static void added_synced_removed(void)
{
	struct harness_daemon daemon;
	int socket = connect_with_lines(&daemon, "");
	struct requests_holdings before = requests_holdings(&daemon);
	struct dmasync_stats_reply stats;
	union reply reply;
	/* Read-only is all the daemon needs; its size need not be whole pages. */
	int fd = harness_memfd(SIZE - 100, F_SEAL_SHRINK), read_only = reopened(fd, O_RDONLY);

	check_int(requests_add(socket, read_only, 0, DMASYNC_BACKEND_AUTO, 0, &reply), 0);
	check_int(reply.buffer.backend, DMASYNC_BACKEND_DIRECT);
	check_int(reply.buffer.kind, DMASYNC_KIND_MEMFD);
	check_int(reply.buffer.size, SIZE - 100);
	check(reply.buffer.flags & DMASYNC_BUFFER_GUARANTEE);
	check_text(reply.buffer.exporter, "");
	uint32_t handle = reply.buffer.handle;

	check(handle != 0);
	check_int(handle & ~DMASYNC_UNIT_BUFFER_MASK, 0);
	/* Mapped, and its fd closed. */
	harness_until(harness_count_fds(daemon.pid) == before.fds, 5000);
	check_int(harness_count_shared_maps(daemon.pid), before.shared_maps + 1);
	requests_stats(socket, &stats);
	check_int(stats.buffers, 1);
	check_int(stats.mapped_bytes, SIZE);

	struct dmasync_unit units[] = {
		requests_unit(handle, 0, SIZE - 100),
		requests_unit(handle, 4096, 0),
	};

	check_int(requests_sync(socket, units, 2, &reply), 0);
	check_int(reply.sync.completion.status, 0);
	check_int(reply.sync.completion.user_data, 77);
	check_int(reply.sync.completion.entries, 2);
	check(reply.sync.completion.lines > 0);
	check(reply.sync.completion.batch_id != 0);

	units[1] = requests_unit(handle, SIZE - 101, 2);
	check_int(requests_sync(socket, units, 2, &reply), 0);
	check_int(reply.sync.completion.status, -ERANGE);
	check_int(reply.sync.completion.reason, DMASYNC_REASON_OUT_OF_RANGE);
	check_int(reply.sync.completion.bad_entry, 1);
	check_int(reply.sync.completion.lines, 0);

	check_int(requests_sync(socket, units, 0, &reply), 0);
	check_int(reply.sync.completion.status, -EINVAL);
	check_int(reply.sync.completion.reason, DMASYNC_REASON_EMPTY_BATCH);

	check_int(requests_remove(socket, handle), 0);
	requests_same_holdings(&daemon, before);
	check_int(requests_remove(socket, handle), -ENOENT);
	check_int(requests_sync(socket, units, 1, &reply), 0);
	check_int(reply.sync.completion.reason, DMASYNC_REASON_UNKNOWN_BUFFER);
	requests_stats(socket, &stats);
	check_int(stats.buffers, 0);
	check_int(stats.mapped_bytes, 0);
	check_int(stats.batches, 4);
	check_int(stats.failed, 3);
	close(read_only);
	close(fd);
	close(socket);
	harness_daemon_stop(&daemon);
}

/* An old handle names nothing, also when its place is taken again. */
static void handles_are_not_reused(void)
{
	struct harness_daemon daemon;
	int socket = connect_with_lines(&daemon, "[limits]\nmax_buffers=2\n");
	int fd = harness_memfd(4096, F_SEAL_SHRINK);
	uint32_t old[50];
	union reply reply;

	for (size_t i = 0; i < 50; i++) {
		check_int(requests_add(socket, fd, DMASYNC_BUFFER_NO_CLEAN, DMASYNC_BACKEND_AUTO, 0,
				       &reply),
			  0);
		old[i] = reply.buffer.handle;
		for (size_t j = 0; j < i; j++) {
			struct dmasync_unit unit = requests_unit(old[j], 0, 64);

			check(old[j] != old[i]);
			check_int(requests_sync(socket, &unit, 1, &reply), 0);
			check_int(reply.sync.completion.reason, DMASYNC_REASON_UNKNOWN_BUFFER);
			check_int(requests_remove(socket, old[j]), -ENOENT);
		}
		check_int(requests_remove(socket, old[i]), 0);
	}
	/* Nor does another connection's. */
	int other = requests_connect(&daemon);

	check_int(requests_add(socket, fd, 0, DMASYNC_BACKEND_AUTO, 0, &reply), 0);
	struct dmasync_unit unit = requests_unit(reply.buffer.handle, 0, 64);

	check_int(requests_remove(other, reply.buffer.handle), -ENOENT);
	check_int(requests_sync(other, &unit, 1, &reply), 0);
	check_int(reply.sync.completion.reason, DMASYNC_REASON_UNKNOWN_BUFFER);
	close(other);
	close(fd);
	close(socket);
	harness_daemon_stop(&daemon);
}

static void limits_of_buffers(void)
{
	struct harness_daemon daemon;
	int socket = connect_with_lines(
		&daemon,
		"[limits]\nmax_buffers=3\nmax_buffer_bytes=128K\nmax_total_buffer_bytes=192K\n");
	int fd = harness_memfd(SIZE, F_SEAL_SHRINK), large = harness_memfd(SIZE * 4, F_SEAL_SHRINK);
	int other = requests_connect(&daemon);
	union reply reply;
	uint32_t handle;

	add_refused(socket, large, DMASYNC_BACKEND_AUTO, 0, -ENOSPC, "max_buffer_bytes=131072");
	check_int(requests_add(socket, fd, 0, DMASYNC_BACKEND_AUTO, 0, &reply), 0);
	handle = reply.buffer.handle;
	check_int(requests_add(socket, fd, 0, DMASYNC_BACKEND_AUTO, 0, &reply), 0);
	add_refused(socket, fd, DMASYNC_BACKEND_AUTO, 4096, -ENOSPC, "max_buffer_bytes");
	/* Nothing is mapped for a coherent buffer, so it costs no bytes. */
	check_int(requests_add(socket, fd, 0, DMASYNC_BACKEND_NONE, 0, &reply), 0);
	check_int(reply.buffer.backend, DMASYNC_BACKEND_NONE);
	add_refused(socket, fd, DMASYNC_BACKEND_NONE, 0, -ENOSPC, "max_buffers=3");

	check_int(requests_add(other, fd, 0, DMASYNC_BACKEND_AUTO, 0, &reply), 0);
	add_refused(other, fd, DMASYNC_BACKEND_AUTO, 4096, -ENOSPC,
		    "max_total_buffer_bytes=196608");
	check_int(requests_remove(socket, handle), 0);
	check_int(requests_add(other, fd, 0, DMASYNC_BACKEND_AUTO, 4096, &reply), 0);
	check_int(reply.buffer.size, 4096);
	close(fd);
	close(large);
	close(other);
	close(socket);
	harness_daemon_stop(&daemon);
}

static void simulated_buffers(void)
{
	struct harness_daemon daemon;
	union reply reply;

	harness_daemon_start(&daemon, "[daemon]\nallow_simulated=yes\n", NULL);
	int socket = requests_connect(&daemon);
	struct requests_holdings before = requests_holdings(&daemon);
	int fd = harness_memfd(3 * SIZE, F_SEAL_SHRINK),
	    odd = harness_memfd(3 * SIZE + 3, F_SEAL_SHRINK);
	unsigned char *memory = mmap(NULL, 3 * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	check(memory != MAP_FAILED);
	memset(memory, 0x11, 100);
	add_refused(socket, odd, DMASYNC_BACKEND_SIMULATED, 0, -EINVAL, "three equal parts");
	add_refused(socket, fd, DMASYNC_BACKEND_SIMULATED, SIZE / 2, -EINVAL, "three equal parts");
	check_int(requests_add(socket, fd, 0, DMASYNC_BACKEND_SIMULATED, SIZE, &reply), 0);
	check_int(reply.buffer.backend, DMASYNC_BACKEND_SIMULATED);
	check_int(reply.buffer.size, SIZE);
	/* The registration has cleaned what was dirty. */
	check_int(memory[SIZE], 0x11);
	check_int(memory[SIZE + 99], 0x11);

	struct dmasync_unit unit = requests_unit(reply.buffer.handle, 0, 64);
	uint32_t handle = reply.buffer.handle;

	memory[0] = 0x22;
	memory[64] = 0x22;
	check_int(memory[SIZE], 0x11);
	check_int(requests_sync(socket, &unit, 1, &reply), 0);
	check_int(reply.sync.completion.status, 0);
	check_int(memory[SIZE], 0x22);	    /* cleaned */
	check_int(memory[SIZE + 64], 0x11); /* not asked for */
	check_int(requests_remove(socket, handle), 0);

	memset(memory, 0x33, SIZE);
	check_int(requests_add(socket, fd, DMASYNC_BUFFER_NO_CLEAN, DMASYNC_BACKEND_SIMULATED, 0,
			       &reply),
		  0);
	check_int(memory[SIZE], 0x22);
	munmap(memory, 3 * SIZE);
	check_int(requests_remove(socket, reply.buffer.handle), 0);
	close(fd);
	close(odd);
	requests_same_holdings(&daemon, before);
	close(socket);
	harness_daemon_stop(&daemon);
}

static void probe(void)
{
	struct harness_daemon daemon;
	int socket = connect_with_lines(&daemon, "");
	struct requests_holdings before = requests_holdings(&daemon);
	struct dmasync_message request = {0};
	union reply reply;
	int fd = harness_memfd(SIZE, F_SEAL_SHRINK), bad = harness_memfd(SIZE, 0);

	check_int(
		requests_call(socket, DMASYNC_OP_PROBE, &request, sizeof request, NULL, 0, &reply),
		0);
	check_int(reply.header.size, sizeof reply.probe);
	check_int(reply.probe.fd_known, 0);
	check(reply.probe.line_size >= 16);
	check(reply.probe.workers >= 1);
	check(reply.probe.cache_ops[0] != 0);
	check(reply.probe.loop[0] != 0);
	check_int(requests_call(socket, DMASYNC_OP_PROBE, &request, sizeof request, &fd, 1, &reply),
		  0);
	check_int(reply.probe.fd_known, 1);
	check_int(reply.probe.error, 0);
	check_int(reply.probe.backend, DMASYNC_BACKEND_DIRECT);
	check_int(reply.probe.kind, DMASYNC_KIND_MEMFD);
	check_int(reply.probe.flags, DMASYNC_BUFFER_GUARANTEE);
	check_int(reply.probe.size, SIZE);
	check(strstr(reply.probe.why, "memfd"));
	check_int(
		requests_call(socket, DMASYNC_OP_PROBE, &request, sizeof request, &bad, 1, &reply),
		0);
	check_int(reply.probe.fd_known, 1);
	check_int(reply.probe.error, -EINVAL);
	check(strstr(reply.probe.why, "F_SEAL_SHRINK"));
	close(fd);
	close(bad);
	requests_same_holdings(&daemon, before);
	close(socket);
	harness_daemon_stop(&daemon);
}

/* Memory of clients is touched under a guard: seen without a fault, which takes huge pages. */
static void faults_are_caught(void)
{
	static const char key[] = "SigCgt:";
	struct harness_daemon daemon;
	char path[64], line[256];
	unsigned long long caught = 0;

	harness_daemon_start(&daemon, "", NULL);
	snprintf(path, sizeof path, "/proc/%d/status", (int)daemon.pid);
	FILE *file = fopen(path, "re");

	check(file);
	while (fgets(line, sizeof line, file))
		if (strncmp(line, key, sizeof key - 1) == 0)
			caught = strtoull(line + sizeof key - 1, NULL, 16);
	fclose(file);
	check(caught & 1ull << (SIGBUS - 1));
	check(caught & 1ull << (SIGSEGV - 1));
	harness_daemon_stop(&daemon);
}

static unsigned long free_huge_pages(unsigned long *ret_bytes)
{
	unsigned long pages = 0, kib = 0;
	char line[128];
	FILE *file = fopen("/proc/meminfo", "re");

	check(file);
	while (fgets(line, sizeof line, file)) {
		if (strncmp(line, "HugePages_Free:", 15) == 0)
			pages = strtoul(line + 15, NULL, 10);
		if (strncmp(line, "Hugepagesize:", 13) == 0)
			kib = strtoul(line + 13, NULL, 10);
	}
	fclose(file);
	*ret_bytes = kib * 1024;
	return pages;
}

static int huge_memfd(unsigned long bytes)
{
	int fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);

	check(fd >= 0);
	check_int(ftruncate(fd, (off_t)bytes), 0);
	check_int(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	return fd;
}

/*
 * Memory that faults although its file cannot shrink: a huge page punched out, and none left to
 * replace it. The batch fails, that client goes, another one goes on.
 */
static void memory_that_faults(void)
{
	struct harness_daemon daemon;
	unsigned long bytes, pages = free_huge_pages(&bytes);
	struct dmasync_stats_reply stats;
	union reply reply;

	if (pages < 1)
		harness_skip("no free huge page: sysctl vm.nr_hugepages=2");
	int socket = connect_with_lines(&daemon, "");
	int other = requests_connect(&daemon), fd = huge_memfd(bytes);

	check_int(requests_add(socket, fd, 0, DMASYNC_BACKEND_AUTO, 0, &reply), 0);
	check_int(reply.buffer.size, bytes);
	struct dmasync_unit unit = requests_unit(reply.buffer.handle, 4096, 4096);

	check_int(requests_sync(socket, &unit, 1, &reply), 0);
	check_int(reply.sync.completion.status, 0);
	check_int(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes), 0);

	int all = huge_memfd(pages * bytes);

	check_int(fallocate(all, 0, 0, (off_t)(pages * bytes)), 0);
	check_int(requests_sync(socket, &unit, 1, &reply), 0);
	check_int(reply.sync.completion.status, -EFAULT);
	check_int(reply.sync.completion.reason, DMASYNC_REASON_FAULT);
	check_int(harness_receive(socket, &reply, sizeof reply, NULL, NULL, 5000), 0);
	harness_until((requests_stats(other, &stats), stats.clients == 1), 5000);
	check_int(stats.faults, 1);
	check_int(stats.buffers, 0);
	close(all);
	close(fd);
	close(other);
	close(socket);
	harness_daemon_stop(&daemon);
}

/* The handle that BUFFER_ADD gives to who would like `wanted`. */
static uint32_t add_wanted(int socket, int fd, uint32_t wanted)
{
	struct dmasync_buffer_add add = {.backend = DMASYNC_BACKEND_SIMULATED, .handle = wanted};
	union reply reply;

	check_int(requests_call(socket, DMASYNC_OP_BUFFER_ADD, &add, sizeof add, &fd, 1, &reply),
		  0);
	return reply.buffer.handle;
}

/* What a library asks for after a restart: the handles that its entries name already. */
static void a_handle_that_is_asked_for(void)
{
	enum { GENERATION_ONE = 1 << 14 };
	struct harness_daemon daemon;

	harness_daemon_start(&daemon,
			     "[daemon]\nallow_simulated = yes\n[limits]\nmax_buffers = 8\n", NULL);
	int socket = requests_connect(&daemon), fd = harness_memfd(SIZE * 3, F_SEAL_SHRINK);
	uint32_t fifth = 5 * GENERATION_ONE + 4;

	check_int(add_wanted(socket, fd, fifth), fifth);
	/* Its place is taken, behind the table, or no handle at all: any other. */
	check(add_wanted(socket, fd, fifth) != fifth);
	check(add_wanted(socket, fd, GENERATION_ONE + 8) != GENERATION_ONE + 8);
	check(add_wanted(socket, fd, 7) != 7);
	/* Its successor in that place is told from it. */
	check_int(requests_remove(socket, fifth), 0);
	for (int i = 0; i < 5; i++) {
		uint32_t handle = add_wanted(socket, fd, 0);

		check(handle != fifth);
		if ((handle & (GENERATION_ONE - 1)) == 4)
			check_int(handle >> 14, 6);
	}

	struct dmasync_buffer_add wide = {.handle = 1u << 24}, reserved = {.reserved = 1};

	requests_refused(socket, DMASYNC_OP_BUFFER_ADD, &wide, sizeof wide, &fd, 1, -EINVAL,
			 "24 bits");
	requests_refused(socket, DMASYNC_OP_BUFFER_ADD, &reserved, sizeof reserved, &fd, 1, -EINVAL,
			 "reserved");
	close(fd);
	close(socket);
	harness_daemon_stop(&daemon);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(a_handle_that_is_asked_for), HARNESS_CASE(fds_that_are_no_buffers),
	HARNESS_CASE(memfds_that_are_refused),	  HARNESS_CASE(added_synced_removed),
	HARNESS_CASE(handles_are_not_reused),	  HARNESS_CASE(limits_of_buffers),
	HARNESS_CASE(simulated_buffers),	  HARNESS_CASE(probe),
	HARNESS_CASE(faults_are_caught),	  HARNESS_CASE(memory_that_faults),
};

HARNESS_MAIN(cases)
