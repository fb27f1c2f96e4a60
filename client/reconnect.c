/* SPDX-License-Identifier: MIT */
/*
 * The way back to a daemon after one has gone: noticed, connected, greeted, buffers registered. Any
 * thread; request_lock makes it one at a time. Queues follow in their own threads (replay.c).
 *
 * There is no thread for it. Whoever calls the library does the next step, if it is time for one,
 * and goes on. So a step must not wait: connect() does not block, and HELLO is sent in one step and
 * its answer looked for in others, for a socket unit accepts connections also for a daemon that
 * cannot start. Only a daemon that has answered is waited for, a few buffers at a time.
 */
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "client/internal.h"

/* Between two attempts: first soon, for a supervisor may be quick, then seldom. */
#define PAUSE_FIRST_NS 1000000
#define PAUSE_LAST_NS 250000000
/* Between two looks for the answer to HELLO: a quarter of the time it has taken so far. */
#define LOOK_FIRST_NS 200000
#define LOOK_LAST_NS 20000000
/* A step that has taken so long registers no other buffer. */
#define STEP_NS 2000000

static enum dmasync_state state_of(struct dmasync *ds)
{
	if ((ds->in_process && !ds->fallback) || reconnect_falls_back(ds))
		return DMASYNC_STATE_INLINE;
	if (control_broken(ds))
		return DMASYNC_STATE_BROKEN;
	return life_is_up(control_life(ds)) ? DMASYNC_STATE_CONNECTED : DMASYNC_STATE_RECONNECTING;
}

/* Tells the callback what it was not told yet. No lock is held. */
static void tell(struct dmasync *ds)
{
	dmasync_state_fn callback = NULL;
	void *context;
	enum dmasync_state state;

	pthread_mutex_lock(&ds->life_lock);
	state = state_of(ds);
	if (state != ds->state_told)
		callback = ds->state_callback;
	context = ds->state_context;
	ds->state_told = state;
	pthread_mutex_unlock(&ds->life_lock);
	if (callback)
		callback(ds, state, context);
}

static void look_again(struct dmasync *ds, int64_t when)
{
	atomic_store_explicit(&ds->next_look_ns, when, memory_order_relaxed);
}

/*
 * The next attempt, later than the last one was. Many clients lose their daemon at the same moment:
 * half of the pause is as random as the clock's last digits are, so that they do not come in step.
 */
static void schedule(struct dmasync *ds, int64_t now)
{
	int64_t half = ds->link.pause_ns / 2;

	look_again(ds, now + half + now % (half + 1));
	atomic_store_explicit(&ds->unanswered, true, memory_order_relaxed);
	ds->link.pause_ns *= 2;
	if (ds->link.pause_ns > PAUSE_LAST_NS)
		ds->link.pause_ns = PAUSE_LAST_NS;
}

static int end(struct dmasync *ds, int error)
{
	ds->link.state = LINK_ENDED;
	control_end(ds, 0);
	shutdown(ds->socket, SHUT_RDWR);
	return error;
}

bool reconnect_may_pass(int error)
{
	switch (error) {
	case -ECONNRESET:
	case -ETIMEDOUT:
	case -EUSERS:
	case -EMFILE:
	case -ENFILE:
	case -ENOMEM:
	case -ENOSPC:
	case -EBUSY:
	case -EAGAIN:
		return true;
	}
	return false;
}

/* An attempt that came to nothing: 0, or the error where it was the last one. */
static int fail(struct dmasync *ds, int64_t now, int error)
{
	/* One that cannot take over is as none, for who can do without. */
	if (!reconnect_may_pass(error) && !ds->fallback)
		return end(ds, error);
	shutdown(ds->socket, SHUT_RDWR);
	ds->link.state = LINK_DOWN;
	schedule(ds, now);
	return 0;
}

static void lose(struct dmasync *ds, int64_t now)
{
	struct link *link = &ds->link;

	link->state = LINK_DOWN;
	link->lost_ns = now;
	atomic_store_explicit(&ds->unanswered, false, memory_order_relaxed);
	/* At once; but where a daemon was there for a moment only, as if it had never been. */
	if (link->pause_ns == 0 || now - link->up_ns > PAUSE_LAST_NS) {
		link->pause_ns = PAUSE_FIRST_NS;
		look_again(ds, now);
	} else {
		schedule(ds, now);
	}
}

void reconnect_begin_without(struct dmasync *ds)
{
	int64_t now = now_ns();

	lose(ds, now);
	schedule(ds, now);
}

static int send_hello(struct dmasync *ds, int64_t now)
{
	struct dmasync_hello hello;
	int r;

	connection_fill_hello(ds, ds->features_wanted, &hello);
	r = control_send(ds, DMASYNC_OP_HELLO, &hello.header, sizeof hello, -1, now);
	if (r < 0)
		return fail(ds, now, r);
	ds->link.state = LINK_GREETING;
	ds->link.hello_ns = now;
	ds->link.cookie = hello.header.cookie;
	look_again(ds, now + LOOK_FIRST_NS);
	return 0;
}

static int attempt(struct dmasync *ds, int64_t now)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int r = 0;

	if (fd < 0) {
		control_error(ds, -errno, "cannot make a socket: %s", describe(-errno));
		schedule(ds, now);
		return 0;
	}
	/* The first connection has shown that it fits. */
	memcpy(address.sun_path, ds->path, strlen(ds->path) + 1);
	if (connect(fd, (void *)&address, sizeof address) < 0) {
		/*
		 * Whatever it is: no socket yet, nobody who listens, a backlog that is full, a mode
		 * that its maker has not set yet. Only time tells them from what stays.
		 */
		connection_explain(ds, errno == EAGAIN ? -ETIMEDOUT : -errno);
		schedule(ds, now);
	} else if (dup3(fd, ds->socket, O_CLOEXEC) < 0) {
		control_error(ds, -errno, "cannot take a new socket: %s", describe(-errno));
		schedule(ds, now);
	} else {
		/*
		 * Threads that still sleep on the old socket under this number are woken by its
		 * hang-up; those that come now find their life over.
		 */
		r = send_hello(ds, now);
	}
	close(fd);
	return r;
}

/* ---- a daemon that answers ---- */

static int lacks(struct dmasync *ds, const char *what, uint64_t has, uint64_t had)
{
	return control_error(
		ds, -EOPNOTSUPP,
		"the dmasyncd that now answers at %s cannot take over: its %s is %llu, "
		"and %llu is in use; disconnect and connect anew",
		ds->path, what, (unsigned long long)has, (unsigned long long)had);
}

/* Is it as good as the one before? Features have been asked for with HELLO. */
static int compare(struct dmasync *ds, const struct dmasync_hello_reply *hello)
{
	uint32_t depth = 0, units = 0, queues = 0, buffers = 0;
	uint64_t bytes = 0;

	pthread_mutex_lock(&ds->queues_lock);
	for (struct dmasync_queue *q = ds->queues; q; q = q->next) {
		depth = depth > q->ring.depth ? depth : q->ring.depth;
		units = units > q->ring.unit_count ? units : q->ring.unit_count;
		queues++;
	}
	pthread_mutex_unlock(&ds->queues_lock);
	for (struct dmasync_buffer *b = ds->buffers; b; b = b->next) {
		buffers++;
		bytes += b->bytes;
	}
	/* Applications lay their buffers out by these two. */
	if (hello->line_size != ds->hello.line_size)
		return lacks(ds, "line size", hello->line_size, ds->hello.line_size);
	if (hello->granule > ds->hello.granule)
		return lacks(ds, "granule", hello->granule, ds->hello.granule);
	if (hello->max_depth < depth)
		return lacks(ds, "max_depth", hello->max_depth, depth);
	if (hello->max_units < units)
		return lacks(ds, "max_units", hello->max_units, units);
	if (hello->max_queues < queues)
		return lacks(ds, "max_queues", hello->max_queues, queues);
	if (hello->max_buffers < buffers)
		return lacks(ds, "max_buffers", hello->max_buffers, buffers);
	/* Otherwise its refusal of the last buffer would look like one that may pass. */
	if (hello->max_buffer_bytes < bytes)
		return lacks(ds, "max_buffer_bytes", hello->max_buffer_bytes, bytes);
	return 0;
}

/* The daemon has taken over. 1, or an error where the connection was ended meanwhile. */
static int up(struct dmasync *ds)
{
	int r = 1;

	pthread_mutex_lock(&ds->life_lock);
	if (atomic_load_explicit(&ds->ended, memory_order_relaxed)) {
		r = -ECONNRESET;
	} else {
		ds->link.state = LINK_UP;
		ds->link.up_ns = now_ns();
		atomic_fetch_add_explicit(&ds->restarts, 1, memory_order_relaxed);
		/* Release: the buffers are registered. Pairs with the acquire in control_life(). */
		atomic_fetch_add_explicit(&ds->life, 1, memory_order_release);
	}
	pthread_mutex_unlock(&ds->life_lock);
	return r < 0 ? end(ds, r) : r;
}

/* Some of the buffers, and all of it once the last one is. */
static int register_buffers(struct dmasync *ds, int64_t now)
{
	for (struct dmasync_buffer *b = ds->buffers; b; b = b->next) {
		int r;

		if (b->attempt == ds->link.cookie)
			continue;
		if (now_ns() - now > STEP_NS) {
			look_again(ds, now);
			return 0;
		}
		r = buffer_register_again(b);
		if (r < 0)
			return fail(ds, now_ns(), r);
		b->attempt = ds->link.cookie;
	}
	return up(ds);
}

static int greet(struct dmasync *ds, int64_t now)
{
	struct pollfd p = {.fd = ds->socket, .events = POLLIN | POLLRDHUP};
	struct dmasync_hello_reply hello = {0};
	struct control_reply reply = {.message = &hello, .size = sizeof hello};
	int64_t waited = now - ds->link.hello_ns, pause = waited / 4;
	int r;

	if (poll(&p, 1, 0) <= 0) {
		if (waited < (int64_t)ds->connect_timeout_ms * 1000000) {
			pause = pause < LOOK_FIRST_NS ? LOOK_FIRST_NS : pause;
			look_again(ds, now + (pause < LOOK_LAST_NS ? pause : LOOK_LAST_NS));
			return 0;
		}
		control_error(ds, 0,
			      "something accepts connections at %s and does not answer within %u "
			      "ms; look at: systemctl status dmasyncd.service",
			      ds->path, ds->connect_timeout_ms);
		return fail(ds, now, -ETIMEDOUT);
	}
	r = control_await(ds, DMASYNC_OP_HELLO, ds->link.cookie, &reply, now);
	if (r == 0)
		r = connection_check_hello(ds, &hello, ds->features_wanted);
	if (r == 0)
		r = compare(ds, &hello);
	if (r < 0)
		return fail(ds, now_ns(), r);
	ds->link.state = LINK_REGISTERING;
	return register_buffers(ds, now);
}

/* ---- a step ---- */

static int step(struct dmasync *ds)
{
	struct link *link = &ds->link;
	int64_t now = now_ns();

	if (life_is_up(control_life(ds)))
		return 1; /* somebody else was quicker */
	if (control_broken(ds)) {
		if (link->state == LINK_UP && ds->flags & DMASYNC_NO_RECONNECT)
			control_gone(ds);
		link->state = LINK_ENDED;
		return -ECONNRESET;
	}
	if (link->state == LINK_UP)
		lose(ds, now);
	if (now < atomic_load_explicit(&ds->next_look_ns, memory_order_relaxed))
		return 0;
	if (link->state == LINK_GREETING)
		return greet(ds, now);
	if (link->state == LINK_REGISTERING)
		return register_buffers(ds, now);
	if (ds->give_up_ms && !ds->fallback &&
	    now - link->lost_ns > (int64_t)ds->give_up_ms * 1000000)
		return end(ds, -ECONNRESET); /* the last attempt has said why */
	return attempt(ds, now);
}

int reconnect_step(struct dmasync *ds)
{
	int r;

	if (life_is_up(control_life(ds)))
		return 1;
	/* Of the loss the callback hears first, of what comes of it then. */
	tell(ds);
	/* Whoever has it does the step, or has a request out that is about to fail. */
	if (pthread_mutex_trylock(&ds->request_lock) != 0)
		return control_broken(ds) ? -ECONNRESET : 0;
	r = step(ds);
	pthread_mutex_unlock(&ds->request_lock);
	tell(ds);
	return r < 0 ? -ECONNRESET : r;
}

int reconnect_until(struct dmasync *ds, int64_t deadline)
{
	for (;;) {
		int r = reconnect_step(ds);
		int64_t now, when;
		struct timespec pause;

		if (r != 0)
			return r < 0 ? r : 0;
		if (reconnect_falls_back(ds))
			return -ENOTCONN;
		now = now_ns();
		if (now >= deadline)
			return -ETIMEDOUT; /* the last attempt has said why */
		when = atomic_load_explicit(&ds->next_look_ns, memory_order_relaxed);
		when = when > now + LOOK_FIRST_NS ? when : now + LOOK_FIRST_NS;
		pause = to_timespec((when < deadline ? when : deadline) - now);
		nanosleep(&pause, NULL);
	}
}

DMASYNC_PUBLIC int dmasync_get_state(struct dmasync *ds, struct dmasync_state_info *info)
{
	struct dmasync_state_info own = {0};
	uint32_t life;

	if (!fork_guard_ok(ds))
		return -ECHILD;
	life = control_life(ds);
	if (!life_is_up(life) || !control_alive(ds, life, 0))
		reconnect_step(ds);
	own.state = state_of(ds);
	own.restarts = atomic_load_explicit(&ds->restarts, memory_order_relaxed);
	own.replayed = atomic_load_explicit(&ds->replayed, memory_order_relaxed);
	return params_return(info, &own, sizeof own);
}

DMASYNC_PUBLIC int dmasync_set_state_callback(struct dmasync *ds, dmasync_state_fn callback,
					      void *context)
{
	if (!fork_guard_ok(ds))
		return -ECHILD;
	pthread_mutex_lock(&ds->life_lock);
	ds->state_callback = callback;
	ds->state_context = context;
	pthread_mutex_unlock(&ds->life_lock);
	return 0;
}
