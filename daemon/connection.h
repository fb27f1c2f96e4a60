/* SPDX-License-Identifier: MIT */
/*
 * The connections of clients, and what the files that serve them share: connection_accept.c,
 * connection.c (life and death), connection_stop.c, connection_io.c (packets), dispatch.c,
 * handle_*.c, buffer.c and buffer_add.c. Control thread only.
 */
#ifndef DMASYNC_CONNECTION_H
#define DMASYNC_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "daemon/buffer/table.h"
#include "daemon/daemon.h"
#include "daemon/privilege.h"
#include "proto/message_table.h"

/* The kernel's SCM_MAX_FD: always offer room for all, what finds none is dropped inside recvmsg. */
#define CONNECTION_FDS_MAX 253

struct buffer_facts;
struct removal;
struct policy;

enum client_state {
	CLIENT_NEW,	  /* before HELLO was answered */
	CLIENT_READY,	  /* served */
	CLIENT_LEAVING,	  /* shut down; workers and helpers are to let go of what it has */
	CLIENT_RELEASING, /* nobody uses any of it: a helper unmaps and frees */
	CLIENT_RELEASED,  /* gone but for fds of its that a helper is still closing */
};

/* An answer or event that did not fit into the socket yet. */
struct out_message {
	struct out_message *next;
	uint32_t size;
	uint32_t fd_count;
	int fds[DMASYNC_MESSAGE_FDS]; /* owned, and charged */
	unsigned char bytes[];
};

/* A queue as the control thread sees it: the commands are part of it, so that none can be missing.
 */
struct client_queue {
	struct helper_job free_job; /* first */
	struct client_queue *next;
	struct client *client;
	struct queue *queue;
	struct account_cost cost;
	struct worker *worker;
	struct worker_command add, remove;
	enum dmasync_class klass;
	bool removing;
	bool nowhere; /* its worker let go of it, and no other was given it */
	bool answer;  /* somebody waits for the removal, with this cookie */
	uint64_t cookie;
};

struct client {
	struct helper_job release_job; /* first */
	struct client *next, *previous;
	struct daemon *daemon;
	enum client_state state;
	uint64_t id;
	pid_t pid;
	struct account account;
	bool observer; /* sees others' batch records */
	bool realtime; /* may have queues of that class */
	char name[DMASYNC_NAME_SIZE];
	uint64_t connected_ns;
	bool refusal_logged, misdeed_logged; /* one line of the log each */
	bool keep_rings; /* dropped for no wish of its own: it may submit what they hold again */

	int fd, pid_fd; /* -1 once given away */
	struct loop_watch *watch, *pid_watch;
	struct loop_timer *handshake;
	struct out_message *out_first, *out_last;
	uint32_t fd_answers; /* with fds, since the socket was last seen empty */
	bool lingers;	     /* dropped, and the socket stays open for what lies unread in it */
	uint32_t turn_bytes; /* of answers, in this turn of the loop */
	bool waits_for_fds;  /* a packet with fds lies in the socket and is not received yet */

	/* What has yet to come back before its memory may go. */
	uint32_t commands; /* with workers */
	uint32_t jobs;	   /* with helpers, on its buffers and queues */
	uint32_t closing;  /* fds with helpers, to be closed */
	uint32_t close_jobs;

	struct buffer_table buffers;
	struct removal *unfinished;	  /* buffer.c: removals that go with the client */
	struct account_cost release_cost; /* of the buffers that a helper lets go of at the end */

	struct client_queue *queues;
	uint32_t next_queue_id;
	uint32_t class_queues[DMASYNC_CLASSES]; /* its queues by class */
	uint32_t moved; /* queues and SYNC batches of its that went to the slow worker */
	struct batch_owner owner;
	struct worker_command **stops; /* by worker index: made when it first serves this client;
					* context: set while it is with the worker */

	struct watch *watching; /* handle_records.c; NULL: does not watch */
};

/* The state of all connections; daemon->serving. */
struct connections {
	struct loop_watch *listen_watch;
	struct loop_timer *accept_timer; /* runs while accepting is paused for want of fds */
	int reserve_fd;			 /* given up to answer a client when no fd is left */
	uint32_t refused_closing;	 /* refused sockets whose close may block, with helpers */
	struct loop_timer *linger_timer; /* runs while some client lingers */
	uint32_t lingering;
	bool reads_paused;		/* some client is not read from until fds are closed */
	struct loop_timer *watch_timer; /* runs while somebody watches */
	uint32_t watchers;
	uint32_t syncs[CONFIG_CPUS_MAX + 1]; /* SYNC batches in work, by worker index */
	bool mlock_logged;

	struct privilege observers, realtime;

	uint64_t log_window_ns; /* of the lines that clients can cause */
	uint32_t log_lines, log_suppressed;

	struct client *last_client;
	struct worker_command *worker_stops; /* one for each; context: set once it has ended */
	bool workers_stopping;
	struct loop_timer *stop_timer;
	bool dropping; /* the time to drain is over */
	uint32_t workers_stopped;
	bool stopped; /* daemon_stopped() was called */

	_Alignas(8) unsigned char in[DMASYNC_MESSAGE_MAX];
	_Alignas(8) unsigned char out[DMASYNC_MESSAGE_MAX]; /* large answers are built here */
};

/* One request, for its handler. The fds that it does not take out are closed. */
struct request {
	const void *message;
	uint32_t size;
	uint16_t opcode;
	uint64_t cookie;
	int *fds;
	uint32_t fd_count;
};

/* ---- connection.c, connection_accept.c, connection_stop.c ---- */

/* Ends a client. It stays allocated, and in the list, until a later turn of the loop. */
void client_drop(struct client *client);
/* A batch met memory of this client that was promised not to go away. */
void client_faulted(struct client *client);
/* After a command, job or close came back: goes on with the teardown. */
void client_step(struct client *client);
static inline bool client_alive(const struct client *client)
{
	return client->state == CLIENT_NEW || client->state == CLIENT_READY;
}
/* The answer to WORKER_STOP: the thread has ended and lets go of everything. */
void connections_worker_stopped(struct daemon *daemon, struct worker_command *command);
/* The timer of connections_stop(), which runs while they drain. */
void connections_stop_timed_out(void *context);
void connections_stop_listening(struct connections *connections);
/* After a client has gone. */
void connections_check_stopped(struct daemon *daemon);
/*
 * A line about what a client did: one refusal (LOG_INFO) and one misdeed (above it) of each client,
 * and so many in all in ten seconds.
 */
__attribute__((format(printf, 3, 4))) void client_log(struct client *client, int level,
						      const char *format, ...);
bool connection_log_allowed(struct connections *connections);
/* Charges, or answers the request with the refusal: false. */
bool client_afford(struct client *client, uint16_t opcode, uint64_t cookie,
		   const struct account_cost *cost);
void client_uncharge(struct client *client, const struct account_cost *cost);
/* Whether the fds that came with the request may stay; false: it was refused. */
bool client_keeps_files(struct client *client, const struct request *request);
/* close() on a helper, and uncharged then: a client whose fds hang is read from no more. */
void client_close_fds(struct client *client, int *fds, uint32_t count);
/* The same for one that was found to be a buffer: its close does not hang. */
void client_close_buffer(struct client *client, int fd);
/* Its socket, shut down: unread packets in it may hold fds whose close hangs. */
void client_close_socket(struct client *client);
/* Sends a job to the helpers, to come back to finished(); counted in client->jobs by the caller. */
enum client_lane {
	LANE_CLIENT, /* what takes its time */
	LANE_CLOSE,  /* what this client's files may make hang for good: threads of their own */
	LANE_DAEMON, /* what never hangs and is not to wait for the rest */
};
void client_submit(struct client *client, enum client_lane lane, struct helper_job *job,
		   void (*run)(struct helper_job *job), void (*finished)(struct helper_job *job));

/* ---- connection_linger.c ---- */

/* Whether one more answer with fds may be sent. */
bool linger_allows_answer(struct client *client);
uint32_t linger_answers_max(const struct daemon *daemon);
/* Of a client that is dropped: false where its socket can be closed. */
bool linger_begin(struct client *client);
void linger_tick(void *context);
/* Closes them all. */
void linger_stop(struct daemon *daemon);

/* ---- connection_io.c ---- */

void client_readable(void *context, uint32_t events);
/* What the socket is watched for follows from what is outstanding. */
void client_rewatch(struct client *client);
/* Fds were closed: who was not read from for want of them may be again. */
void clients_resume(struct daemon *daemon);
void client_drop_output(struct client *client);
/* Fills in size, opcode, cookie, flags. Takes over the fds, also on failure. */
void client_reply(struct client *client, uint16_t opcode, uint64_t cookie, void *message,
		  uint32_t size, int *fds, uint32_t fd_count);
void client_done(struct client *client, uint16_t opcode, uint64_t cookie);
/* An error that account.c has a sentence for and logs. */
void client_refuse(struct client *client, uint16_t opcode, uint64_t cookie,
		   const struct account_refusal *refusal);
__attribute__((format(printf, 5, 6))) void client_error(struct client *client, uint16_t opcode,
							uint64_t cookie, int error,
							const char *format, ...);
/* An event: never queued, never waits. -EAGAIN: no room, or answers wait; client dropped on others
 */
int client_event(struct client *client, uint16_t opcode, uint64_t cookie, void *message,
		 uint32_t size);
/* Answers on a socket that becomes no client, or whose client is being refused. */
void connection_refuse(int fd, int error, const char *text);
/*
 * Takes what lies unread in a socket that was shut down. False: there are fds among it, and the
 * close may block.
 */
bool connection_drain(int fd);

/* ---- dispatch.c ---- */

/* One packet of `size` bytes in daemon->serving->in; flags of recvmsg. Uses or closes the fds. */
void dispatch(struct client *client, uint32_t size, int flags, int *fds, uint32_t fd_count);

/* Charges an asynchronous request; false: there are too many, and it was answered so. */
bool request_begin(struct client *client, const struct request *request);
void request_end(struct client *client);

/* ---- handle_*.c: one function for each row of the table ---- */

#define HANDLER_(name, opcode, handler, ...)                                                       \
	void handle_##handler(struct client *client, struct request *request);
DMASYNC_MESSAGES(HANDLER_)
#undef HANDLER_

/* handle_queue.c */
void queue_moved(struct client_queue *queue);
void queue_added(struct client_queue *queue);
void queue_removed(struct client_queue *queue);
void queue_remove(struct client_queue *queue);
/* An id that no queue of the client has, and never 0. */
uint32_t queue_take_id(struct client *client);
/* Counts `client` as served by the worker: it will be told when the client goes. -ENOMEM. */
int client_serve(struct client *client, struct worker *worker);

/*
 * To the slow worker, for what has overrun: false where it is not to go on there, since the client
 * or the daemon ends.
 */
bool client_moves(struct client *client, const char *what);

/* handle_sync.c */
void sync_answered(struct worker_command *command);

/* handle_records.c */
void watch_stop(struct client *client);
void watch_tick(void *context);

/* buffer.c, buffer_add.c */
int buffers_create(struct client *client);
void buffer_grace_answered(struct worker_command *command);
/* On a helper, when nobody uses anything of the client any more; adds up what they cost. */
void buffers_release(struct client *client, struct account_cost *cost);
void buffers_free(struct client *client);
/* The policy's answer for an inspected fd (buffer/map.h, buffer/policy.h). */
void buffer_policy(struct daemon *daemon, const struct buffer_facts *facts,
		   enum dmasync_backend requested, struct policy *ret);

#endif
