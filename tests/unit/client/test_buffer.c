/* SPDX-License-Identifier: MIT */
/*
 * Import, allocation, what is tried and said where the machine has nothing, mapping, removal.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/internal.h"
#include "tests/unit/client/fake.h"

static void import(void **state)
{
	static const struct {
		uint32_t flags;
		enum dmasync_backend backend;
		uint32_t wire_flags;
	} cases[] = {
		{0, DMASYNC_BACKEND_AUTO, 0},
		{DMASYNC_IMPORT_NO_CLEAN, DMASYNC_BACKEND_AUTO, DMASYNC_BUFFER_NO_CLEAN},
		{DMASYNC_IMPORT_DIRECT, DMASYNC_BACKEND_DIRECT, 0},
		{DMASYNC_IMPORT_KERNEL, DMASYNC_BACKEND_KERNEL, 0},
		{DMASYNC_IMPORT_COHERENT | DMASYNC_IMPORT_NO_CLEAN, DMASYNC_BACKEND_NONE,
		 DMASYNC_BUFFER_NO_CLEAN},
	};
	struct fake *fake = fake_start();
	struct dmasync *ds = fake_connect(fake);
	int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	char *memory;

	(void)state;
	assert_int_equal(ftruncate(fd, 8192), 0);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct dmasync_buffer_info info = {.size = sizeof info};
		struct dmasync_buffer *buffer = NULL;

		assert_int_equal(dmasync_buffer_import(ds, fd, cases[i].flags, &buffer), 0);
		pthread_mutex_lock(&fake->lock);
		assert_int_equal(fake->last_add.backend, cases[i].backend);
		assert_int_equal(fake->last_add.flags, cases[i].wire_flags);
		assert_true(fake->last_add.size == 0);
		pthread_mutex_unlock(&fake->lock);
		assert_int_equal(dmasync_buffer_get_info(buffer, &info), 0);
		assert_int_equal(info.handle, i + 1);
		assert_true(info.bytes == 8192);
		assert_int_equal(info.memory, DMASYNC_MEMORY_AUTO);
		assert_int_not_equal(info.fd, fd);
		assert_int_equal(fcntl(info.fd, F_GETFD), FD_CLOEXEC);
		assert_true(info.locked);
		assert_false(info.guarantee);
		assert_int_equal(strlen(info.exporter), sizeof info.exporter - 1);
		memory = dmasync_buffer_map(buffer);
		assert_non_null(memory);
		assert_ptr_equal(dmasync_buffer_map(buffer), memory);
		assert_null(dmasync_buffer_map_device(buffer));
		memory[8191] = (char)i;
		dmasync_buffer_destroy(buffer);
		assert_int_equal(fake->last_remove.handle, i + 1);
	}
	dmasync_buffer_destroy(NULL);
	dmasync_disconnect(ds);
	close(fd);
	fake_stop(fake);
}

static void import_errors(void **state)
{
	struct fake *fake = fake_start();
	struct dmasync *ds = fake_connect(fake);
	struct dmasync_buffer *buffer = NULL;
	char text[256];

	(void)state;
	assert_int_equal(dmasync_buffer_import(ds, -1, 0, &buffer), -EBADF);
	dmasync_error_text(ds, text, sizeof text);
	assert_non_null(strstr(text, "fd -1"));
	assert_int_equal(dmasync_buffer_import(ds, fake->stop_fd, 1u << 9, &buffer), -EINVAL);
	assert_int_equal(dmasync_buffer_import(ds, fake->stop_fd,
					       DMASYNC_IMPORT_DIRECT | DMASYNC_IMPORT_KERNEL,
					       &buffer),
			 -EINVAL);
	dmasync_error_text(ds, text, sizeof text);
	assert_non_null(strstr(text, "more than one backend"));
	assert_int_equal(fake_requests(fake, DMASYNC_OP_BUFFER_ADD), 0);
	assert_null(buffer);
	dmasync_disconnect(ds);
	fake_stop(fake);
}

static void allocate_memfd(void **state)
{
	struct fake *fake = fake_start();
	struct dmasync *ds = fake_connect(fake);
	struct dmasync_buffer *buffer = fake_buffer(ds, 5000);
	struct dmasync_buffer_info info = {.size = sizeof info};
	uint64_t bytes = ((uint64_t)sysconf(_SC_PAGESIZE) + 4999) /
			 (uint64_t)sysconf(_SC_PAGESIZE) * (uint64_t)sysconf(_SC_PAGESIZE);

	(void)state;
	assert_int_equal(dmasync_buffer_get_info(buffer, &info), 0);
	assert_true(info.bytes == bytes);
	assert_int_equal(info.memory, DMASYNC_MEMORY_MEMFD);
	assert_int_equal(fcntl(info.fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
			 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	memset(dmasync_buffer_map(buffer), 1, (size_t)bytes);
	dmasync_buffer_destroy(buffer);
	dmasync_disconnect(ds);
	fake_stop(fake);
}

static void allocate_simulated(void **state)
{
	struct fake *fake = fake_start();
	struct dmasync *ds = fake_connect(fake);
	struct dmasync_buffer_info info = {.size = sizeof info};
	struct dmasync_buffer_params params;
	struct dmasync_buffer *buffer = NULL, *again = NULL;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char *cpu, *device;
	struct stat file;

	(void)state;
	dmasync_buffer_params_init(&params);
	params.bytes = 1;
	params.memory = DMASYNC_MEMORY_SIMULATED;
	assert_int_equal(dmasync_buffer_alloc(ds, &params, &buffer), 0);
	assert_int_equal(fake->last_add.backend, DMASYNC_BACKEND_SIMULATED);
	assert_int_equal(dmasync_buffer_get_info(buffer, &info), 0);
	assert_int_equal(info.bytes, page);
	assert_int_equal(fstat(info.fd, &file), 0);
	assert_int_equal(file.st_size, 3 * page);
	cpu = dmasync_buffer_map(buffer);
	device = dmasync_buffer_map_device(buffer);
	assert_non_null(cpu);
	assert_non_null(device);
	/* Two sides of their own; another process that imports the fd sees the same two. */
	memset(cpu, 'c', page);
	memset(device, 'd', page);
	assert_int_equal(cpu[page - 1], 'c');
	assert_int_equal(dmasync_buffer_import(ds, info.fd, DMASYNC_IMPORT_SIMULATED, &again), 0);
	assert_int_equal(((char *)dmasync_buffer_map(again))[0], 'c');
	assert_int_equal(((char *)dmasync_buffer_map_device(again))[page - 1], 'd');
	dmasync_buffer_destroy(again);
	dmasync_buffer_destroy(buffer);
	dmasync_disconnect(ds);
	fake_stop(fake);
}

static void allocate_errors(void **state)
{
	struct fake *fake = fake_start();
	struct dmasync *ds = fake_connect(fake);
	struct dmasync_buffer_params params;
	struct {
		struct dmasync_buffer_params params;
		char later[8];
	} larger = {.later = {1}};
	struct dmasync_buffer *buffer = NULL;
	char text[512];

	(void)state;
	dmasync_buffer_params_init(&params);
	assert_int_equal(dmasync_buffer_alloc(ds, &params, &buffer), -EINVAL);
	params.bytes = UINT64_MAX;
	assert_int_equal(dmasync_buffer_alloc(ds, &params, &buffer), -EINVAL);
	params.bytes = INT64_MAX / 4 + 1;
	assert_int_equal(dmasync_buffer_alloc(ds, &params, &buffer), -EINVAL);
	params.bytes = 4096;
	params.memory = (enum dmasync_memory)6;
	assert_int_equal(dmasync_buffer_alloc(ds, &params, &buffer), -EINVAL);
	params.memory = DMASYNC_MEMORY_AUTO;
	params.flags = DMASYNC_IMPORT_SIMULATED;
	assert_int_equal(dmasync_buffer_alloc(ds, &params, &buffer), -EINVAL);
	params.flags = 0;
	params.reserved = 1;
	assert_int_equal(dmasync_buffer_alloc(ds, &params, &buffer), -EINVAL);
	params.reserved = 0;
	params.size = 4;
	assert_int_equal(dmasync_buffer_alloc(ds, &params, &buffer), -EINVAL);
	dmasync_error_text(ds, text, sizeof text);
	assert_non_null(strstr(text, "struct dmasync_buffer_params says its size is 4; "));
	assert_non_null(strstr(text, "dmasync_buffer_params_init()"));
	larger.params.size = sizeof larger;
	assert_int_equal(dmasync_buffer_alloc(ds, &larger.params, &buffer), -E2BIG);
	dmasync_error_text(ds, text, sizeof text);
	assert_non_null(strstr(text, "behind the first 24"));
	dmasync_buffer_params_init(&params);
	params.bytes = 4096;
	params.memory = DMASYNC_MEMORY_MEMFD;
	fake_set(fake, DMASYNC_OP_BUFFER_ADD, FAKE_REFUSE_SUPPORT);
	assert_int_equal(dmasync_buffer_alloc(ds, &params, &buffer), -EOPNOTSUPP);
	dmasync_error_text(ds, text, sizeof text);
	assert_string_equal(text, "this fake syncs nothing");
	fake_set(fake, DMASYNC_OP_BUFFER_ADD, FAKE_REFUSE);
	assert_int_equal(dmasync_buffer_alloc(ds, &params, &buffer), -ENOSPC);
	assert_null(buffer);
	dmasync_disconnect(ds);
	fake_stop(fake);
}

static void touch(const char *directory, const char *name)
{
	char path[256];
	int fd;

	snprintf(path, sizeof path, "%s/%s", directory, name);
	fd = open(path, O_CREAT | O_CLOEXEC | O_RDWR, 0600);
	assert_true(fd >= 0);
	close(fd);
}

static void untouch(const char *directory, const char *name)
{
	char path[256];

	snprintf(path, sizeof path, "%s/%s", directory, name);
	unlink(path);
}

/* The order in which heaps are tried, told by files that are none: their ioctl fails. */
static void automatic_order(void **state)
{
	static const char *const names[] = {
		"system",  "linux,cma", "default_cma_region", "reserved", "vpu-cma0",
		"CMA-isp", "udmabuf",
	};
	char directory[] = "/tmp/dmasync-test-XXXXXX", udmabuf[64], text[512];
	struct memory_places places = {.heaps = directory, .udmabuf = udmabuf};
	struct fake *fake = fake_start();
	struct dmasync *ds = fake_connect(fake);
	struct dmasync_buffer_info info = {.size = sizeof info};
	struct dmasync_buffer_params params;
	struct dmasync_buffer *buffer = NULL;
	static const char *const order[] = {
		"default_cma_region: ", "reserved: ", "linux,cma: ", "CMA-isp: ",
		"vpu-cma0: ",		"udmabuf: ",
	};
	const char *at = text;

	(void)state;
	assert_non_null(mkdtemp(directory));
	snprintf(udmabuf, sizeof udmabuf, "%s/udmabuf", directory);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		touch(directory, names[i]);
	dmasync_buffer_params_init(&params);
	params.bytes = 4096;

	/* Everything fails but the memfd. */
	assert_int_equal(buffer_alloc_from(ds, &params, &places, &buffer), 0);
	assert_int_equal(dmasync_buffer_get_info(buffer, &info), 0);
	assert_int_equal(info.memory, DMASYNC_MEMORY_MEMFD);
	dmasync_buffer_destroy(buffer);
	buffer = NULL;

	/* And now the daemon will not have that either: the text lists all, in order. */
	fake_set(fake, DMASYNC_OP_BUFFER_ADD, FAKE_REFUSE_SUPPORT);
	assert_int_equal(buffer_alloc_from(ds, &params, &places, &buffer), -EOPNOTSUPP);
	dmasync_error_text(ds, text, sizeof text);
	for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
		at = strstr(at, order[i]);
		if (!at)
			fail_msg("\"%s\" does not list \"%s\" in its place", text, order[i]);
	}
	assert_non_null(strstr(at, "this fake syncs nothing"));
	assert_null(strstr(text, "/system"));

	params.memory = DMASYNC_MEMORY_SYSTEM;
	assert_int_equal(buffer_alloc_from(ds, &params, &places, &buffer), -ENODEV);
	dmasync_error_text(ds, text, sizeof text);
	assert_non_null(strstr(text, "/system: "));
	params.memory = DMASYNC_MEMORY_UDMABUF;
	assert_int_equal(buffer_alloc_from(ds, &params, &places, &buffer), -ENODEV);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		untouch(directory, names[i]);
	rmdir(directory);

	/* No heaps at all. */
	params.memory = DMASYNC_MEMORY_CMA;
	assert_int_equal(buffer_alloc_from(ds, &params, &places, &buffer), -ENODEV);
	dmasync_error_text(ds, text, sizeof text);
	assert_non_null(strstr(text, directory));
	assert_null(buffer);
	dmasync_disconnect(ds);
	fake_stop(fake);
}

static void sentences(void **state)
{
	struct dmasync_completion completion = {
		.status = -ERANGE,
		.reason = DMASYNC_REASON_OUT_OF_RANGE,
		.bad_entry = 3,
	};
	char text[512], small[8];

	(void)state;
	dmasync_completion_text(&completion, text, sizeof text);
	assert_string_equal(text, "entry 3: the range does not lie inside its buffer (ERANGE)");
	assert_int_equal(dmasync_completion_text(&completion, small, sizeof small), strlen(text));
	assert_string_equal(small, "entry 3");
	completion.bad_entry = DMASYNC_NO_ENTRY;
	completion.reason = DMASYNC_REASON_CANCELLED;
	completion.status = -ECANCELED;
	dmasync_completion_text(&completion, text, sizeof text);
	assert_string_equal(text, "the batch was cancelled: its queue is going away (ECANCELED)");
	/* A reason that this library does not know yet. */
	completion.reason = 4711;
	completion.status = -EIO;
	dmasync_completion_text(&completion, text, sizeof text);
	assert_non_null(strstr(text, "(EIO)"));
	completion.status = -4000;
	dmasync_completion_text(&completion, text, sizeof text);
	assert_non_null(strstr(text, "4000"));
	completion.status = 0;
	dmasync_completion_text(&completion, text, sizeof text);
	assert_string_equal(text, "no error");
	assert_int_equal(dmasync_strerror(-ECHILD, NULL, 0), dmasync_strerror(-ECHILD, text, 512));
	assert_non_null(strstr(text, "fork"));
	dmasync_strerror(-EXDEV, text, sizeof text);
	assert_string_equal(text, strerror(EXDEV));
	snprintf(text, sizeof text, "%d.%d.%d", DMASYNC_VERSION_MAJOR, DMASYNC_VERSION_MINOR,
		 DMASYNC_VERSION_PATCH);
	assert_string_equal(dmasync_version(), text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		fake_test(import),	    fake_test(import_errors),
		fake_test(allocate_memfd),  fake_test(allocate_simulated),
		fake_test(allocate_errors), fake_test(automatic_order),
		fake_test(sentences),
	};

	return cmocka_run_group_tests_name("client buffer", tests, NULL, NULL);
}
