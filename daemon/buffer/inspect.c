/* SPDX-License-Identifier: MIT */
/*
 * Tells what a client's fd is. Nothing here trusts the file: a FUSE file, say, is never asked for
 * anything. Called by whoever may block; no state.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "daemon/buffer/map.h"

#ifndef DMA_BUF_MAGIC
#define DMA_BUF_MAGIC 0x444d4142 /* "DMAB" */
#endif

__attribute__((format(printf, 3, 4))) static void refuse(struct buffer_facts *ret, int error,
							 const char *format, ...)
{
	va_list arguments;

	ret->error = error;
	va_start(arguments, format);
	vsnprintf(ret->text, sizeof ret->text, format, arguments);
	va_end(arguments);
}

bool buffer_exporter(const char *fdinfo, char ret[DMASYNC_NAME_SIZE])
{
	static const char key[] = "exp_name:\t";
	const char *line = fdinfo;

	/* A client can put whole lines behind this one, through the buffer's name: first wins. */
	while (strncmp(line, key, sizeof key - 1) != 0) {
		line = strchr(line, '\n');
		if (!line)
			return false;
		line++;
	}
	line += sizeof key - 1;

	size_t length = strcspn(line, "\n");
	if (line[length] != '\n') /* cut off: not to be believed */
		return false;
	if (length > DMASYNC_NAME_SIZE - 1)
		length = DMASYNC_NAME_SIZE - 1;
	memset(ret, 0, DMASYNC_NAME_SIZE);
	memcpy(ret, line, length);
	return true;
}

static bool read_exporter(int fd, char ret[DMASYNC_NAME_SIZE])
{
	char path[64], text[4096];
	size_t length = 0;

	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	int info = open(path, O_RDONLY | O_CLOEXEC);
	if (info < 0)
		return false;
	while (length < sizeof text - 1) {
		ssize_t n = read(info, text + length, sizeof text - 1 - length);

		if (n <= 0)
			break;
		length += (size_t)n;
	}
	close(info);
	text[length] = 0;
	return buffer_exporter(text, ret);
}

static void inspect_memfd(int fd, int seals, struct buffer_facts *ret)
{
	struct statfs filesystem;
	struct stat status;

	if (!(seals & F_SEAL_SHRINK)) {
		/* Files on tmpfs and hugetlbfs have seals too. */
		refuse(ret, -EINVAL,
		       "the fd is neither a dma-buf nor a memfd sealed against shrinking, so a "
		       "mapping of it could fault; create a memfd with MFD_ALLOW_SEALING and "
		       "add F_SEAL_SHRINK");
		return;
	}
	/* fstat(), not lseek(): the file position is the client's too. */
	if (fstat(fd, &status) < 0 || fstatfs(fd, &filesystem) < 0) {
		refuse(ret, -errno, "the memfd cannot be asked for its size: %s", strerror(errno));
		return;
	}
	ret->kind = DMASYNC_KIND_MEMFD;
	ret->file_size = (uint64_t)status.st_size;
	if ((unsigned long)filesystem.f_type == HUGETLBFS_MAGIC)
		ret->page = (uint64_t)filesystem.f_bsize;
}

static void inspect_dmabuf(int fd, struct buffer_facts *ret)
{
	struct statfs filesystem;

	if (fstatfs(fd, &filesystem) < 0 || filesystem.f_type != DMA_BUF_MAGIC) {
		refuse(ret, -EINVAL,
		       "the fd has an exporter's name (%s) and is no dma-buf; pass a dma-buf",
		       ret->exporter);
		return;
	}
	off_t end = lseek(fd, 0, SEEK_END); /* a dma-buf has no file position to disturb */
	if (end < 0) {
		refuse(ret, -errno, "the dma-buf of exporter %s does not tell its size: %s",
		       ret->exporter, strerror(errno));
		return;
	}
	ret->kind = DMASYNC_KIND_DMABUF;
	ret->file_size = (uint64_t)end;
}

void buffer_inspect(int fd, struct buffer_facts *ret)
{
	memset(ret, 0, sizeof *ret);
	ret->page = (uint64_t)sysconf(_SC_PAGESIZE);

	int flags = fcntl(fd, F_GETFL);
	if (flags < 0) {
		refuse(ret, -EBADF, "the fd is not open");
		return;
	}
	int seals = fcntl(fd, F_GET_SEALS);
	if (seals >= 0) {
		inspect_memfd(fd, seals, ret);
	} else if (read_exporter(fd, ret->exporter)) {
		inspect_dmabuf(fd, ret);
	} else {
		refuse(ret, -EINVAL,
		       "the fd is neither a dma-buf nor a memfd sealed against shrinking; pass one "
		       "of "
		       "these");
	}
	if (ret->error)
		return;
	if ((flags & O_ACCMODE) == O_WRONLY)
		refuse(ret, -EACCES,
		       "the fd was opened write-only and cannot be mapped for reading; open it "
		       "O_RDWR or O_RDONLY");
	else if (ret->file_size == 0)
		refuse(ret, -EINVAL, "the file is empty; give it its size before registering it");
}

uint64_t buffer_choose_size(const struct buffer_facts *facts, enum dmasync_backend backend,
			    uint64_t asked, int *error, char text[DMASYNC_TEXT_SIZE])
{
	uint64_t most = facts->file_size;

	if (backend == DMASYNC_BACKEND_SIMULATED) {
		most /= CACHE_SIMULATED_REGIONS;
		if (most > CACHE_SIMULATED_SPAN)
			most = CACHE_SIMULATED_SPAN;
		if (most == 0 || most % facts->page || (asked && asked != most)) {
			*error = -EINVAL;
			snprintf(text, DMASYNC_TEXT_SIZE,
				 "a simulated buffer is a file of three equal parts of whole "
				 "pages, at most %llu bytes each; the file has %llu bytes and %llu "
				 "are to be registered",
				 (unsigned long long)CACHE_SIMULATED_SPAN,
				 (unsigned long long)facts->file_size, (unsigned long long)asked);
			return 0;
		}
		return most;
	}
	if (asked > most) {
		*error = -ERANGE;
		snprintf(text, DMASYNC_TEXT_SIZE,
			 "%llu bytes are to be registered and the file has %llu; register at most "
			 "that, or 0 for all of it",
			 (unsigned long long)asked, (unsigned long long)most);
		return 0;
	}
	return asked ? asked : most;
}
