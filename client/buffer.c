/* SPDX-License-Identifier: MIT */
/*
 * Buffers: registration with the daemon, mapping in this process, and their end. Any thread.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "client/inline.h"
#include "client/internal.h"
#include "daemon/cache/cache.h"

#define IMPORT_BACKENDS                                                                            \
	(DMASYNC_IMPORT_DIRECT | DMASYNC_IMPORT_KERNEL | DMASYNC_IMPORT_COHERENT |                 \
	 DMASYNC_IMPORT_SIMULATED)

/* A handle may be taken for as long as another thread is busy giving it back. */
#define ADD_TRIES 100u

static int backend_of(struct dmasync *ds, uint32_t flags, enum dmasync_backend *ret)
{
	if (flags & ~(IMPORT_BACKENDS | DMASYNC_IMPORT_NO_CLEAN))
		return control_error(ds, -EINVAL, "buffer flags 0x%x: only 0x%x are known", flags,
				     IMPORT_BACKENDS | DMASYNC_IMPORT_NO_CLEAN);
	switch (flags & IMPORT_BACKENDS) {
	case 0:
		*ret = DMASYNC_BACKEND_AUTO;
		return 0;
	case DMASYNC_IMPORT_DIRECT:
		*ret = DMASYNC_BACKEND_DIRECT;
		return 0;
	case DMASYNC_IMPORT_KERNEL:
		*ret = DMASYNC_BACKEND_KERNEL;
		return 0;
	case DMASYNC_IMPORT_COHERENT:
		*ret = DMASYNC_BACKEND_NONE;
		return 0;
	case DMASYNC_IMPORT_SIMULATED:
		*ret = DMASYNC_BACKEND_SIMULATED;
		return 0;
	}
	return control_error(ds, -EINVAL,
			     "buffer flags 0x%x name more than one backend; give one or none",
			     flags);
}

/* More than that could not be mapped here without a fault. Dma-bufs told no size before 5.3. */
static bool has_bytes(int fd, uint64_t size)
{
	struct stat file;

	return fstat(fd, &file) < 0 || file.st_size <= 0 || size <= (uint64_t)file.st_size;
}

static int check_reply(struct dmasync *ds, int fd, const struct dmasync_buffer_add_reply *reply)
{
	if (reply->handle & ~DMASYNC_UNIT_BUFFER_MASK || reply->handle == 0 || reply->size == 0 ||
	    reply->size > INT64_MAX / 4 || !has_bytes(fd, reply->size) ||
	    reply->backend < DMASYNC_BACKEND_DIRECT || reply->backend > DMASYNC_BACKEND_SIMULATED ||
	    (reply->kind != DMASYNC_KIND_MEMFD && reply->kind != DMASYNC_KIND_DMABUF))
		return control_error(ds, control_end(ds, -EPROTO),
				     "dmasyncd at %s registered a buffer and says handle 0x%x, "
				     "%llu bytes, backend %u, kind %u, which cannot be; the "
				     "connection was ended",
				     ds->path, reply->handle, (unsigned long long)reply->size,
				     reply->backend, reply->kind);
	return 0;
}

static int fill_request(struct dmasync *ds, uint32_t flags, struct dmasync_buffer_add *ret)
{
	enum dmasync_backend backend = DMASYNC_BACKEND_AUTO;
	int r = backend_of(ds, flags, &backend);

	*ret = (struct dmasync_buffer_add){
		.flags = flags & DMASYNC_IMPORT_NO_CLEAN ? DMASYNC_BUFFER_NO_CLEAN : 0,
		.backend = (uint32_t)backend,
	};
	return r;
}

/*
 * Here alone. While no daemon answers, it is as if the last one had known it: the next one will be
 * told. -EAGAIN: a daemon has come meanwhile, and was not.
 */
static int add_inline(struct dmasync *ds, int fd, const struct dmasync_buffer_add *request,
		      struct dmasync_buffer_add_reply *ret, uint32_t *ret_life)
{
	uint32_t life = control_life(ds);

	if (ds->fallback && life_is_up(life))
		return -EAGAIN;
	*ret_life = ds->fallback ? life - 1 : life;
	return inline_buffer_add(ds, ds->in_process, fd, request, ret);
}

/* Tells the daemon of that life to forget a buffer. */
static void remove_from_daemon(struct dmasync *ds, uint32_t life, uint32_t handle)
{
	struct dmasync_buffer_remove request = {.handle = handle};
	struct dmasync_done_reply done;
	struct control_reply reply = {.message = &done, .size = sizeof done};

	if (life_is_up(life))
		control_call_in(ds, life, DMASYNC_OP_BUFFER_REMOVE, &request.header, sizeof request,
				-1, &reply);
}

/*
 * The other side knows it by the same handle, so that entries in a ring are right on either.
 * -EAGAIN: the handle is taken there, by a buffer that another daemon had given it to and that is
 * about to go.
 */
static int add_to_fallback(struct dmasync *ds, int fd, struct dmasync_buffer_add *request,
			   const struct dmasync_buffer_add_reply *added, uint32_t life)
{
	struct dmasync_buffer_add_reply own;
	int r;

	request->handle = added->handle;
	request->flags |= DMASYNC_BUFFER_NO_CLEAN; /* the daemon has cleaned it */
	r = inline_buffer_add(ds, ds->in_process, fd, request, &own);
	if (r == 0 && own.handle != added->handle) {
		inline_buffer_remove(ds->in_process, own.handle);
		r = -EAGAIN;
	}
	if (r < 0)
		remove_from_daemon(ds, life, added->handle);
	return r;
}

static int add(struct dmasync *ds, int fd, uint32_t flags, struct dmasync_buffer_add_reply *ret,
	       uint32_t *ret_life)
{
	struct dmasync_buffer_add request;
	struct control_reply reply = {.message = ret, .size = sizeof *ret};
	int r = fill_request(ds, flags, &request);

	if (r < 0)
		return r;
	if (ds->in_process && !ds->fallback)
		return add_inline(ds, fd, &request, ret, ret_life);
	r = control_call(ds, DMASYNC_OP_BUFFER_ADD, &request.header, sizeof request, fd, &reply);
	if (r == -ENOTCONN && ds->fallback)
		return add_inline(ds, fd, &request, ret, ret_life);
	if (r < 0)
		return r;
	control_text(ret->exporter, sizeof ret->exporter);
	*ret_life = reply.life;
	r = check_reply(ds, fd, ret);
	return r == 0 && ds->fallback ? add_to_fallback(ds, fd, &request, ret, reply.life) : r;
}

/* A daemon's answer about a buffer; life_lock where others may look at it already. */
static void fill_in(struct dmasync_buffer *buffer, const struct dmasync_buffer_add_reply *reply)
{
	buffer->flags = reply->flags;
	buffer->backend = (enum dmasync_backend)reply->backend;
	buffer->kind = (enum dmasync_buffer_kind)reply->kind;
	memcpy(buffer->exporter, reply->exporter, sizeof buffer->exporter);
}

int buffer_register_again(struct dmasync_buffer *buffer)
{
	struct dmasync *ds = buffer->ds;
	struct dmasync_buffer_add request;
	struct dmasync_buffer_add_reply added = {0};
	struct control_reply reply = {.message = &added, .size = sizeof added};
	/*
	 * Not cleaned once more: it was when it came, every for_device has cleaned since, and a
	 * device may be writing to it now.
	 */
	int r = fill_request(ds, buffer->import_flags | DMASYNC_IMPORT_NO_CLEAN, &request);

	if (r < 0)
		return r;
	/* Entries in the rings and in open batches name it. */
	request.handle = buffer->handle;
	r = control_exchange(ds, DMASYNC_OP_BUFFER_ADD, &request.header, sizeof request, buffer->fd,
			     &reply, now_ns() + (int64_t)ds->timeout_ms * 1000000);
	if (r == 0)
		r = check_reply(ds, buffer->fd, &added);
	if (r < 0)
		return r;
	if (added.handle != buffer->handle || added.size < buffer->bytes)
		return control_error(
			ds, -EOPNOTSUPP,
			"the dmasyncd that now answers at %s registers a buffer as 0x%x "
			"of %llu bytes that was 0x%x of %llu before: it cannot take "
			"over; disconnect and connect anew",
			ds->path, added.handle, (unsigned long long)added.size, buffer->handle,
			(unsigned long long)buffer->bytes);
	control_text(added.exporter, sizeof added.exporter);
	pthread_mutex_lock(&ds->life_lock);
	fill_in(buffer, &added);
	pthread_mutex_unlock(&ds->life_lock);
	return 0;
}

/*
 * From here on a new daemon will register it again. False where one came since `life`, in which the
 * buffer was registered: then it knows nothing of it. A life that is merely over is as good.
 */
static bool buffer_link(struct dmasync_buffer *buffer, uint32_t life)
{
	struct dmasync *ds = buffer->ds;
	bool same;

	pthread_mutex_lock(&ds->request_lock);
	same = control_life(ds) - life <= 1;
	if (same) {
		buffer->next = ds->buffers;
		ds->buffers = buffer;
	}
	pthread_mutex_unlock(&ds->request_lock);
	return same;
}

/* The life in which the daemon knows it, or will not hear of it any more. */
static uint32_t buffer_unlink(struct dmasync_buffer *buffer)
{
	struct dmasync *ds = buffer->ds;
	uint32_t life;

	pthread_mutex_lock(&ds->request_lock);
	for (struct dmasync_buffer **place = &ds->buffers; *place; place = &(*place)->next) {
		if (*place == buffer) {
			*place = buffer->next;
			break;
		}
	}
	/* A daemon that is just taking over may know it already. */
	if (ds->link.state == LINK_REGISTERING && buffer->attempt == ds->link.cookie)
		control_forget_buffer(ds, buffer->handle);
	life = control_life(ds);
	pthread_mutex_unlock(&ds->request_lock);
	return life;
}

static int add_patiently(struct dmasync *ds, int fd, uint32_t flags,
			 struct dmasync_buffer_add_reply *ret, uint32_t *ret_life)
{
	int r = -EAGAIN;

	for (uint32_t tries = 0; r == -EAGAIN && tries < ADD_TRIES; tries++)
		r = add(ds, fd, flags, ret, ret_life);
	return r;
}

int buffer_register(struct dmasync *ds, int fd, uint32_t flags, enum dmasync_memory memory,
		    struct dmasync_buffer **ret)
{
	struct dmasync_buffer *buffer = calloc(1, sizeof *buffer);
	struct dmasync_buffer_add_reply reply = {0};
	uint32_t life = 0;
	int r = buffer ? 0 : -ENOMEM;

	if (buffer) {
		buffer->ds = ds;
		buffer->fd = fd;
		buffer->memory = memory;
		buffer->import_flags = flags;
		pthread_mutex_init(&buffer->map_lock, NULL);
	}
	for (bool linked = false; !linked;) {
		if (r == 0)
			r = add_patiently(ds, fd, flags, &reply, &life);
		if (r < 0) {
			free(buffer);
			close_fd(fd);
			return r;
		}
		buffer->handle = reply.handle;
		buffer->bytes = reply.size;
		fill_in(buffer, &reply);
		linked = buffer_link(buffer, life);
		if (!linked && ds->fallback)
			inline_buffer_remove(ds->in_process, buffer->handle);
	}
	*ret = buffer;
	return 0;
}

DMASYNC_PUBLIC int dmasync_buffer_import(struct dmasync *ds, int fd, uint32_t flags,
					 struct dmasync_buffer **ret)
{
	int own;

	if (!fork_guard_ok(ds))
		return -ECHILD;
	own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (own < 0)
		return control_error(ds, -errno, "cannot import fd %d: %s", fd, describe(-errno));
	return buffer_register(ds, own, flags, DMASYNC_MEMORY_AUTO, ret);
}

DMASYNC_PUBLIC int dmasync_buffer_get_info(const struct dmasync_buffer *buffer,
					   struct dmasync_buffer_info *info)
{
	struct dmasync_buffer_info own = {
		.handle = buffer->handle,
		.bytes = buffer->bytes,
		.memory = buffer->memory,
		.fd = buffer->fd,
	};

	if (!fork_guard_ok(buffer->ds))
		return -ECHILD;
	static_assert(sizeof own.exporter == sizeof buffer->exporter, "a name");
	pthread_mutex_lock(&buffer->ds->life_lock);
	own.backend = buffer->backend;
	own.kind = buffer->kind;
	own.guarantee = buffer->flags & DMASYNC_BUFFER_GUARANTEE;
	own.locked = buffer->flags & DMASYNC_BUFFER_LOCKED;
	memcpy(own.exporter, buffer->exporter, sizeof own.exporter);
	pthread_mutex_unlock(&buffer->ds->life_lock);
	return params_return(info, &own, sizeof own);
}

/* Maps `region` (see daemon/cache/cache.h for a simulated buffer's regions) once. */
static void *map_once(struct dmasync_buffer *buffer, void **place, uint64_t region)
{
	void *memory;

	if (!fork_guard_ok(buffer->ds) || buffer->bytes > SIZE_MAX)
		return NULL;
	pthread_mutex_lock(&buffer->map_lock);
	if (!*place) {
		memory = mmap(NULL, (size_t)buffer->bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
			      buffer->fd, (off_t)(region * buffer->bytes));
		if (memory != MAP_FAILED)
			*place = memory;
	}
	memory = *place;
	pthread_mutex_unlock(&buffer->map_lock);
	return memory;
}

DMASYNC_PUBLIC void *dmasync_buffer_map(struct dmasync_buffer *buffer)
{
	return map_once(buffer, &buffer->cpu, CACHE_SIMULATED_CPU);
}

DMASYNC_PUBLIC void *dmasync_buffer_map_device(struct dmasync_buffer *buffer)
{
	/* Never chosen by a policy, so it is what was asked for. */
	if (!(buffer->import_flags & DMASYNC_IMPORT_SIMULATED))
		return NULL;
	return map_once(buffer, &buffer->device, CACHE_SIMULATED_DEVICE);
}

DMASYNC_PUBLIC void dmasync_buffer_destroy(struct dmasync_buffer *buffer)
{
	uint32_t life;

	if (!buffer || !fork_guard_ok(buffer->ds))
		return;
	/* The daemon refuses a batch that it fetches after the removal: let it fetch them first. */
	queues_drain(buffer->ds);
	life = buffer_unlink(buffer);
	/* Here first: while the daemon has not given the handle to another, nobody asks for it. */
	if (buffer->ds->in_process)
		inline_buffer_remove(buffer->ds->in_process, buffer->handle);
	if (!buffer->ds->in_process || buffer->ds->fallback)
		remove_from_daemon(buffer->ds, life, buffer->handle);
	if (buffer->cpu)
		munmap(buffer->cpu, (size_t)buffer->bytes);
	if (buffer->device)
		munmap(buffer->device, (size_t)buffer->bytes);
	close_fd(buffer->fd);
	pthread_mutex_destroy(&buffer->map_lock);
	free(buffer);
}
