/* SPDX-License-Identifier: MIT */
/*
 * Buffers: registration with the daemon, mapping in this process, and their end. Any thread.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/inline.h"
#include "client/internal.h"
#include "daemon/cache/cache.h"

#define IMPORT_BACKENDS                                                                            \
	(DMASYNC_IMPORT_DIRECT | DMASYNC_IMPORT_KERNEL | DMASYNC_IMPORT_COHERENT |                 \
	 DMASYNC_IMPORT_SIMULATED)

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

static int check_reply(struct dmasync *ds, const struct dmasync_buffer_add_reply *reply)
{
	if (reply->handle & ~DMASYNC_UNIT_BUFFER_MASK || reply->handle == 0 || reply->size == 0 ||
	    reply->size > INT64_MAX / 4 || reply->backend < DMASYNC_BACKEND_DIRECT ||
	    reply->backend > DMASYNC_BACKEND_SIMULATED ||
	    (reply->kind != DMASYNC_KIND_MEMFD && reply->kind != DMASYNC_KIND_DMABUF))
		return control_error(ds, control_break(ds, -EPROTO),
				     "dmasyncd at %s registered a buffer and says handle 0x%x, "
				     "%llu bytes, backend %u, kind %u, which cannot be; the "
				     "connection was ended",
				     ds->path, reply->handle, (unsigned long long)reply->size,
				     reply->backend, reply->kind);
	return 0;
}

static int add(struct dmasync *ds, int fd, uint32_t flags, struct dmasync_buffer_add_reply *ret)
{
	struct dmasync_buffer_add request = {
		.flags = flags & DMASYNC_IMPORT_NO_CLEAN ? DMASYNC_BUFFER_NO_CLEAN : 0,
	};
	struct control_reply reply = {.message = ret, .size = sizeof *ret};
	enum dmasync_backend backend = DMASYNC_BACKEND_AUTO;
	int r = backend_of(ds, flags, &backend);

	if (r < 0)
		return r;
	request.backend = (uint32_t)backend;
	if (ds->in_process)
		return inline_buffer_add(ds, ds->in_process, fd, &request, ret);
	r = control_call(ds, DMASYNC_OP_BUFFER_ADD, &request.header, sizeof request, fd, &reply);
	if (r < 0)
		return r;
	control_text(ret->exporter, sizeof ret->exporter);
	return check_reply(ds, ret);
}

int buffer_register(struct dmasync *ds, int fd, uint32_t flags, enum dmasync_memory memory,
		    struct dmasync_buffer **ret)
{
	struct dmasync_buffer *buffer = calloc(1, sizeof *buffer);
	struct dmasync_buffer_add_reply reply = {0};
	int r = buffer ? add(ds, fd, flags, &reply) : -ENOMEM;

	if (r < 0) {
		free(buffer);
		close_fd(fd);
		return r;
	}
	buffer->ds = ds;
	buffer->fd = fd;
	buffer->handle = reply.handle;
	buffer->flags = reply.flags;
	buffer->bytes = reply.size;
	buffer->backend = (enum dmasync_backend)reply.backend;
	buffer->kind = (enum dmasync_buffer_kind)reply.kind;
	buffer->memory = memory;
	memcpy(buffer->exporter, reply.exporter, sizeof buffer->exporter);
	pthread_mutex_init(&buffer->map_lock, NULL);
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
		.backend = buffer->backend,
		.kind = buffer->kind,
		.memory = buffer->memory,
		.fd = buffer->fd,
		.guarantee = buffer->flags & DMASYNC_BUFFER_GUARANTEE,
		.locked = buffer->flags & DMASYNC_BUFFER_LOCKED,
	};

	if (!fork_guard_ok(buffer->ds))
		return -ECHILD;
	static_assert(sizeof own.exporter == sizeof buffer->exporter, "a name");
	memcpy(own.exporter, buffer->exporter, sizeof own.exporter);
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
	if (buffer->backend != DMASYNC_BACKEND_SIMULATED)
		return NULL;
	return map_once(buffer, &buffer->device, CACHE_SIMULATED_DEVICE);
}

DMASYNC_PUBLIC void dmasync_buffer_destroy(struct dmasync_buffer *buffer)
{
	struct dmasync_buffer_remove request = {0};
	struct dmasync_done_reply done;
	struct control_reply reply = {.message = &done, .size = sizeof done};

	if (!buffer || !fork_guard_ok(buffer->ds))
		return;
	/* The daemon refuses a batch that it fetches after the removal: let it fetch them first. */
	queues_drain(buffer->ds);
	request.handle = buffer->handle;
	if (buffer->ds->in_process)
		inline_buffer_remove(buffer->ds->in_process, buffer->handle);
	else if (!control_broken(buffer->ds))
		control_call(buffer->ds, DMASYNC_OP_BUFFER_REMOVE, &request.header, sizeof request,
			     -1, &reply);
	if (buffer->cpu)
		munmap(buffer->cpu, (size_t)buffer->bytes);
	if (buffer->device)
		munmap(buffer->device, (size_t)buffer->bytes);
	close_fd(buffer->fd);
	pthread_mutex_destroy(&buffer->map_lock);
	free(buffer);
}
