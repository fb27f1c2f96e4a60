/* SPDX-License-Identifier: MIT */
/*
 * A request/answer server on a SEQPACKET socket that does the daemon's work for one range. Owns its
 * process and the socket to it. One thread; the child serves.
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "client/ctl/bench.h"
#include "tests/compare/peer_socket.h"

struct socket_peer {
	pid_t pid;
	int fd;
};

struct request {
	uint64_t offset, length;
	uint64_t spin; /* look for the next request, do not sleep */
};

struct answer {
	int32_t status;
	uint32_t reserved;
	uint64_t lines;
};

static ssize_t receive(int fd, void *message, size_t size, bool spin)
{
	ssize_t n;

	do
		n = recv(fd, message, size, spin ? MSG_DONTWAIT : 0);
	while (n < 0 && (errno == EINTR || (spin && errno == EAGAIN)));
	return n;
}

static _Noreturn void serve(int fd, char *memory, uint64_t bytes, const struct cache *cache)
{
	const uint64_t mask = cache->line - 1;
	struct request request = {0};

	while (receive(fd, &request, sizeof request, request.spin != 0) == sizeof request) {
		struct answer answer = {.status = -ERANGE};

		if (request.length && request.length <= bytes &&
		    request.offset <= bytes - request.length) {
			uint64_t last = (request.offset + request.length + mask) & ~mask;
			uintptr_t start = (uintptr_t)(memory + (request.offset & ~mask));
			uintptr_t end = (uintptr_t)(memory + last);

			cache->ops.open();
			cache->ops.clean(start, end, cache->line);
			cache->ops.complete(false);
			answer.status = 0;
			answer.lines = (end - start) / cache->line;
		}
		if (send(fd, &answer, sizeof answer, MSG_NOSIGNAL) != sizeof answer)
			break;
	}
	_exit(0);
}

static _Noreturn void child(int cpu, int fd, int memory_fd, uint64_t bytes,
			    const struct cache *cache, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || bench_pin_thread(cpu) < 0)
		_exit(1);

	char *memory =
		mmap(NULL, (size_t)bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, memory_fd, 0);

	/* Not the connection's socket, which would live on in this process. */
	if (memory == MAP_FAILED || dup2(fd, STDIN_FILENO) < 0 || close_range(3, ~0u, 0) < 0)
		_exit(1);
	serve(STDIN_FILENO, memory, bytes, cache);
}

int socket_peer_start(int cpu, int fd, uint64_t bytes, const struct cache *cache,
		      struct socket_peer **ret)
{
	struct socket_peer *peer = calloc(1, sizeof *peer);
	pid_t self = getpid();
	int pair[2], r;

	if (!peer)
		return -ENOMEM;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		free(peer);
		return -errno;
	}
	peer->fd = pair[0];
	peer->pid = fork();
	if (peer->pid == 0)
		child(cpu, pair[1], fd, bytes, cache, self);
	r = peer->pid < 0 ? -errno : 0;
	close(pair[1]);
	if (r >= 0)
		r = socket_peer_sync(peer, 0, cache->line, false);
	if (r < 0) {
		socket_peer_stop(peer);
		return r;
	}
	*ret = peer;
	return 0;
}

void socket_peer_stop(struct socket_peer *peer)
{
	if (!peer)
		return;
	close_fd(peer->fd);
	if (peer->pid > 0)
		waitpid(peer->pid, NULL, 0);
	free(peer);
}

int socket_peer_sync(struct socket_peer *peer, uint64_t offset, uint64_t length, bool spin)
{
	const struct request request = {offset, length, spin};
	struct answer answer;

	if (send(peer->fd, &request, sizeof request, MSG_NOSIGNAL) != sizeof request)
		return -errno;
	if (receive(peer->fd, &answer, sizeof answer, spin) != sizeof answer)
		return -ECONNRESET;
	return answer.status;
}
