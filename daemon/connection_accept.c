/* SPDX-License-Identifier: MIT */
/*
 * The listening socket, who is at the other end, and the start of serving. Never spins
 * where fds run out: one client is refused with a sentence, then accepting pauses. Control thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/close_file.h"
#include "daemon/connection.h"
#include "daemon/log.h"
#include "daemon/notify.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* since Linux 6.5 */
#endif

#define ACCEPTS_PER_TURN 16
#define ACCEPT_PAUSE_NS UINT64_C(100000000)

/* Closes of refused sockets that hang; of one user, they take turns with what else it has. */
#define REFUSED_CLOSING_MAX 64u
#define REFUSED_LANE UINT64_MAX

/* ---- the peer ---- */

/*
 * A process that forked and died leaves its socket open in its child. -ESRCH: it has died already.
 * -1 in *ret where its death cannot be watched (another pid namespace, an old kernel).
 */
static int watch_peer(int fd, pid_t pid, int *ret)
{
	socklen_t size = sizeof *ret;

	*ret = -1;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, ret, &size) == 0)
		return 0;
	*ret = -1;
	if (errno == ESRCH)
		return -ESRCH;
	if (pid <= 0)
		return 0;
	int pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (pid_fd < 0)
		return errno == ESRCH ? -ESRCH : 0;
	*ret = pid_fd;
	return 0;
}

static void peer_died(void *context, uint32_t events)
{
	(void)events;
	client_drop(context);
}

static void handshake_timed_out(void *context)
{
	struct client *client = context;

	client_error(client, DMASYNC_OP_HELLO, 0, -ETIMEDOUT,
		     "no HELLO within %u ms; the connection is closed",
		     client->daemon->config.handshake_timeout_ms);
	client_drop(client);
}

/* ---- a new client ---- */

static void link_client(struct client *client)
{
	struct daemon *daemon = client->daemon;
	struct connections *connections = daemon->serving;

	client->previous = connections->last_client;
	if (client->previous)
		client->previous->next = client;
	else
		daemon->clients = client;
	connections->last_client = client;
	notify_changed(daemon->notify);
	daemon->connections++;
}

static int start_watching(struct client *client)
{
	struct loop *loop = client->daemon->loop;
	int r = loop_watch(loop, client->fd, POLLIN, client_readable, client, &client->watch);

	if (r == 0 && client->pid_fd >= 0)
		r = loop_watch(loop, client->pid_fd, POLLIN, peer_died, client, &client->pid_watch);
	if (r == 0)
		r = loop_timer_create(loop, handshake_timed_out, client, &client->handshake);
	if (r == 0)
		r = loop_timer_set(client->handshake,
				   client->daemon->config.handshake_timeout_ms * UINT64_C(1000000));
	return r;
}

/* The account is the client's on success. */
static int client_create(struct daemon *daemon, int fd, int pid_fd, const struct ucred *peer,
			 const struct account *account)
{
	struct client *client = calloc(1, sizeof *client);

	if (!client)
		return -ENOMEM;
	client->account = *account;
	client->daemon = daemon;
	client->state = CLIENT_NEW;
	client->id = ++daemon->next_client_id;
	client->fd = fd;
	client->pid_fd = pid_fd;
	client->pid = peer->pid;
	client->observer = privilege_granted(&daemon->serving->observers, fd, peer);
	client->realtime = privilege_granted(&daemon->serving->realtime, fd, peer);
	client->connected_ns = clock_ns();
	client->owner.client_id = client->id;
	client->owner.pid = (uint32_t)peer->pid;
	client->owner.user_id = helper_user_id(peer->uid);

	int r = start_watching(client);

	if (r < 0) {
		loop_unwatch(client->watch);
		loop_unwatch(client->pid_watch);
		loop_timer_free(client->handshake);
		free(client);
		return r;
	}
	link_client(client);
	log_debug("client %llu: pid %d, uid %u", (unsigned long long)client->id, (int)peer->pid,
		  (unsigned)peer->uid);
	return 0;
}

/* ---- refused ---- */

/*
 * A socket with fds in it that nobody has received: closing it may take as long as they like, if it
 * is not interrupted.
 */
struct refused {
	struct helper_job job; /* first */
	struct daemon *daemon;
	struct account account;
	int fd;
};

static void refused_run(struct helper_job *job)
{
	close_file(((struct refused *)job)->fd);
}

static void refused_finished(struct helper_job *job)
{
	struct refused *refused = (struct refused *)job;
	struct daemon *daemon = refused->daemon;
	struct connections *connections = daemon->serving;

	account_uncharge(&daemon->accounts, &refused->account, ACCOUNT_COST([ACCOUNT_FILES] = 1));
	account_close(&daemon->accounts, &refused->account);
	free(refused);
	if (connections->refused_closing-- == REFUSED_CLOSING_MAX && connections->listen_watch)
		loop_rewatch(connections->listen_watch, POLLIN);
	clients_resume(daemon);
}

/*
 * Charged to the user as an open file. Where too many hang, nobody is accepted until one has ended:
 * each would cost the daemon an fd for good.
 */
static void close_on_helper(struct daemon *daemon, int fd, uid_t uid)
{
	struct refused *refused = calloc(1, sizeof *refused);

	if (!refused || account_open(&daemon->accounts, uid, &refused->account) < 0) {
		free(refused);
		close(fd); /* may block, but the fd must not leak */
		return;
	}
	account_force(&daemon->accounts, &refused->account, ACCOUNT_COST([ACCOUNT_FILES] = 1));
	refused->daemon = daemon;
	refused->fd = fd;
	refused->job = (struct helper_job){
		.run = refused_run,
		.client_id = REFUSED_LANE,
		.user_id = helper_user_id(uid),
		.done = &daemon->jobs,
		.done_fd = daemon->events_fd,
		.finished = refused_finished,
	};
	if (++daemon->serving->refused_closing == REFUSED_CLOSING_MAX)
		loop_rewatch(daemon->serving->listen_watch, 0);
	helpers_submit(daemon->helpers, &refused->job);
}

/* Nothing arrives after the shutdown; what has arrived is taken where it holds no fds. */
static void discard(struct daemon *daemon, int fd, uid_t uid)
{
	shutdown(fd, SHUT_RDWR);
	if (connection_drain(fd))
		close(fd);
	else
		close_on_helper(daemon, fd, uid);
}

static void refuse_and_close(struct daemon *daemon, int fd, uid_t uid, int error, const char *text)
{
	daemon->refused++;
	connection_refuse(fd, error, text);
	discard(daemon, fd, uid);
}

/* ---- who has connected ---- */

static void serve_user(struct daemon *daemon, int fd, const struct ucred *peer,
		       struct account *account)
{
	struct account_refusal refusal;
	struct account_cost cost = {{[ACCOUNT_CONNECTIONS] = 1, [ACCOUNT_FILES] = 2}};
	int pid_fd;

	if (account_charge(&daemon->accounts, account, &cost, &refusal) < 0) {
		if (connection_log_allowed(daemon->serving))
			account_log(account, peer->pid, &refusal);
		refuse_and_close(daemon, fd, peer->uid, refusal.error, refusal.text);
		return;
	}
	int r = watch_peer(fd, peer->pid, &pid_fd);

	if (pid_fd < 0) {
		cost.amount[ACCOUNT_FILES]--;
		account_uncharge(&daemon->accounts, account, ACCOUNT_COST([ACCOUNT_FILES] = 1));
	}
	if (r == 0 && client_create(daemon, fd, pid_fd, peer, account) == 0) {
		account->user = NULL; /* the client's */
		return;
	}
	account_uncharge(&daemon->accounts, account, &cost);
	if (pid_fd >= 0)
		close(pid_fd);
	if (r < 0)
		discard(daemon, fd, peer->uid); /* it has died already */
	else
		refuse_and_close(daemon, fd, peer->uid, -ENOMEM,
				 "the daemon has no memory for another connection");
}

static void serve(struct daemon *daemon, int fd)
{
	struct ucred peer = {.uid = (uid_t)-1};
	socklen_t size = sizeof peer;
	struct account account;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0) {
		discard(daemon, fd, peer.uid);
		return;
	}
	if (account_open(&daemon->accounts, peer.uid, &account) < 0) {
		refuse_and_close(daemon, fd, peer.uid, -ENOMEM,
				 "the daemon has no memory for another user");
		return;
	}
	serve_user(daemon, fd, &peer, &account);
	account_close(&daemon->accounts, &account);
}

/* ---- the listening socket ---- */

static void resume_accepting(void *context)
{
	struct daemon *daemon = context;
	struct connections *connections = daemon->serving;

	if (connections->reserve_fd < 0)
		connections->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (connections->refused_closing < REFUSED_CLOSING_MAX)
		loop_rewatch(connections->listen_watch, POLLIN);
}

static void refuse_unknown(struct daemon *daemon, int fd)
{
	struct ucred peer = {.uid = (uid_t)-1};
	socklen_t size = sizeof peer;

	(void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size);
	refuse_and_close(daemon, fd, peer.uid, -EMFILE,
			 "the daemon has no file descriptor left; try again later");
}

/*
 * No fd is left, and accept would fail again at once for as long as somebody waits: the reserve is
 * given up to tell one client why, and nobody is accepted for a while.
 */
static void no_fds(struct daemon *daemon, int error)
{
	struct connections *connections = daemon->serving;

	if (connections->reserve_fd >= 0) {
		close(connections->reserve_fd);
		connections->reserve_fd = -1;
		int fd = accept4(daemon->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0)
			refuse_unknown(daemon, fd);
		if (connection_log_allowed(connections))
			log_warning(
				"no connection can be accepted (%s): raise LimitNOFILE or lower "
				"max_connections",
				strerror(error));
	}
	loop_rewatch(connections->listen_watch, 0);
	if (loop_timer_set(connections->accept_timer, ACCEPT_PAUSE_NS) < 0)
		loop_rewatch(connections->listen_watch, POLLIN);
}

static void accept_ready(void *context, uint32_t events)
{
	struct daemon *daemon = context;

	(void)events;
	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		if (daemon->serving->refused_closing >= REFUSED_CLOSING_MAX)
			return;
		int fd = accept4(daemon->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			serve(daemon, fd);
			continue;
		}
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
			no_fds(daemon, errno);
		else if (errno == EINTR || errno == ECONNABORTED)
			continue;
		return;
	}
}

/* ---- start and end ---- */

int connections_start(struct daemon *daemon)
{
	struct connections *connections = calloc(1, sizeof *connections);
	int r;

	if (!connections)
		return -ENOMEM;
	daemon->serving = connections;
	connections->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	r = connections->reserve_fd < 0 ? -errno : 0;
	privilege_look_up("observer_group", daemon->config.observer_group,
			  "only root sees others' batch records", &connections->observers);
	privilege_look_up("realtime_group", daemon->config.realtime_group,
			  "only root may have realtime queues", &connections->realtime);
	if (r == 0) {
		connections->worker_stops =
			calloc(daemon->worker_count, sizeof *connections->worker_stops);
		r = connections->worker_stops ? 0 : -ENOMEM;
	}
	if (r == 0)
		r = loop_timer_create(daemon->loop, resume_accepting, daemon,
				      &connections->accept_timer);
	if (r == 0)
		r = loop_timer_create(daemon->loop, connections_stop_timed_out, daemon,
				      &connections->stop_timer);
	if (r == 0)
		r = loop_timer_create(daemon->loop, linger_tick, daemon,
				      &connections->linger_timer);
	if (r == 0)
		r = loop_timer_create(daemon->loop, watch_tick, daemon, &connections->watch_timer);
	if (r == 0)
		r = loop_watch(daemon->loop, daemon->listen_fd, POLLIN, accept_ready, daemon,
			       &connections->listen_watch);
	if (r < 0)
		connections_free(daemon);
	return r;
}

void connections_stop_listening(struct connections *connections)
{
	loop_unwatch(connections->listen_watch);
	loop_timer_free(connections->accept_timer);
	loop_timer_free(connections->watch_timer);
	connections->listen_watch = NULL;
	connections->accept_timer = connections->watch_timer = NULL;
}

void connections_free(struct daemon *daemon)
{
	struct connections *connections = daemon->serving;

	if (!connections)
		return;
	connections_stop_listening(connections);
	if (connections->reserve_fd >= 0)
		close(connections->reserve_fd);
	loop_timer_free(connections->stop_timer);
	loop_timer_free(connections->linger_timer);
	free(connections->worker_stops);
	free(connections);
	daemon->serving = NULL;
}
