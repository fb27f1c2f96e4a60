/* SPDX-License-Identifier: MIT */
/*
 * Mappings of device memory, on a copy of sysfs in which a file of the disk plays a BAR and
 * /dev/zero a UIO device; each refusal and its sentence. One thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>

#include "client/iomem.h"

#define ZERO "/dev/zero"

static char root[64], device[128], text[512];
static uint64_t page;

static void write_file(const char *path, const void *bytes, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, size), (ssize_t)size);
	close(fd);
}

static void write_text(const char *name, const char *content)
{
	char path[256];

	snprintf(path, sizeof path, "%s/%s", device, name);
	write_file(path, content, strlen(content));
}

static void write_config(unsigned char command)
{
	unsigned char header[64] = {0x86, 0x80, 0x34, 0x12, command, 0};
	char path[256];

	snprintf(path, sizeof path, "%s/config", device);
	write_file(path, header, sizeof header);
}

static void make_bar(const char *name, off_t size)
{
	char path[256];

	write_text(name, "");
	snprintf(path, sizeof path, "%s/%s", device, name);
	assert_int_equal(truncate(path, size), 0);
}

/* A PCI device: BAR 0 memory, 1 ports, 2 prefetchable memory, 3 nothing, 4 half a KiB in a page. */
static int make_device(void **state)
{
	(void)state;
	page = (uint64_t)sysconf(_SC_PAGESIZE);
	snprintf(root, sizeof root, "/tmp/dmasync-iomem-XXXXXX");
	if (!mkdtemp(root))
		return -1;
	snprintf(device, sizeof device, "%s/0000:00:02.0", root);
	if (mkdir(device, 0700) < 0)
		return -1;
	write_text("resource", "0x0000000010000000 0x00000000100000ff 0x0000000000040200\n"
			       "0x000000000000c000 0x000000000000c01f 0x0000000000040101\n"
			       "0x0000008000000000 0x0000008000003fff 0x000000000014220c\n"
			       "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
			       "0x0000000010010200 0x00000000100103ff 0x0000000000040200\n");
	write_config(2);
	make_bar("resource0", (off_t)page);
	make_bar("resource1", 32);
	make_bar("resource2", 4 * (off_t)page);
	make_bar("resource2_wc", 4 * (off_t)page);
	make_bar("resource3", 0);
	make_bar("resource4", 512);
	return 0;
}

static int remove_device(void **state)
{
	char command[128];

	(void)state;
	snprintf(command, sizeof command, "rm -r %s", root);
	return system(command);
}

static int map_file(const char *path, uint32_t map, uint64_t offset, uint64_t length, void **ret,
		    uint64_t *ret_length)
{
	struct dmasync_io_map_params params;

	dmasync_io_map_params_init(&params);
	params.path = path;
	params.map = map;
	params.offset = offset;
	params.length = length;
	params.error_text = text;
	params.error_text_size = sizeof text;
	text[0] = '\0';
	return io_map_below(root, &params, ret, ret_length);
}

static int map_bar(const char *name, uint64_t offset, uint64_t length, void **ret,
		   uint64_t *ret_length)
{
	char path[256];

	snprintf(path, sizeof path, "%s/%s", device, name);
	return map_file(path, 0, offset, length, ret, ret_length);
}

static void refused(int r, int error, const char *part)
{
	assert_int_equal(r, error);
	if (!strstr(text, part))
		fail_msg("\"%s\" is not in \"%s\"", part, text);
}

/* Pages of this process that are mapped from `path`. */
static size_t pages_of(const char *path)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[1024];
	size_t pages = 0;

	assert_non_null(file);
	while (fgets(line, sizeof line, file)) {
		unsigned long long start, end;

		if (strstr(line, path) && sscanf(line, "%llx-%llx", &start, &end) == 2)
			pages += (size_t)((end - start) / page);
	}
	fclose(file);
	return pages;
}

static void a_bar_is_mapped(void **state)
{
	static const char *const names[] = {"resource2", "resource2_wc"};
	unsigned char read[8];
	uint64_t length;
	void *address;
	char path[256];
	int fd;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(map_bar(names[i], 0, 0, &address, &length), 0);
		assert_int_equal(length, 4 * page);
		assert_int_equal(pages_of(names[i]), 4);
		dmasync_io_memset(address, 0, (size_t)length, 0);
		dmasync_io_memcpy_to((char *)address + page + 3, "written", 7, 0);
		dmasync_io_unmap(address, length);
		assert_int_equal(pages_of(names[i]), 0);

		/* A part that begins and ends within pages. */
		assert_int_equal(map_bar(names[i], page + 3, page, &address, &length), 0);
		assert_int_equal(length, page);
		assert_int_equal((uintptr_t)address % page, 3);
		assert_int_equal(pages_of(names[i]), 2);
		assert_memory_equal(address, "written", 7);
		dmasync_io_unmap(address, length);
		assert_int_equal(pages_of(names[i]), 0);

		snprintf(path, sizeof path, "%s/%s", device, names[i]);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		assert_int_equal(pread(fd, read, 8, (off_t)page + 3), 8);
		assert_memory_equal(read, "written", 8);
		close(fd);
	}
	dmasync_io_unmap(NULL, 0);
}

/* The kernel maps the page that such a BAR is in: other devices' registers may be before it. */
static void a_bar_within_a_page_begins_there(void **state)
{
	uint64_t length;
	void *address;

	(void)state;
	assert_int_equal(map_bar("resource4", 0, 0, &address, &length), 0);
	assert_int_equal(length, 512);
	assert_int_equal((uintptr_t)address % page, 0x200);
	dmasync_io_unmap(address, length);
	assert_int_equal(map_bar("resource4", 8, 500, &address, &length), 0);
	assert_int_equal(length, 500);
	assert_int_equal((uintptr_t)address % page, 0x208);
	dmasync_io_unmap(address, length);
	assert_int_equal(pages_of("resource4"), 0);
	refused(map_bar("resource4", 8, 505, &address, &length), -ERANGE, "BAR 4 has 512");
}

static void bars_are_refused_with_a_reason(void **state)
{
	uint64_t length = 77;
	void *address = &length;
	char path[256];

	(void)state;
	refused(map_bar("resource1", 0, 0, &address, &length), -EINVAL, "range of I/O ports");
	refused(map_bar("resource3", 0, 0, &address, &length), -EINVAL, "BAR 3");
	refused(map_bar("resource5", 0, 0, &address, &length), -ENOENT, "No such file");
	refused(map_bar("resource0_wc", 0, 0, &address, &length), -ENOENT,
		"not prefetchable and has no write-combining mapping; take resource0");
	refused(map_bar("resource2", 4 * page, 0, &address, &length), -ERANGE, "BAR 2 has 16384");
	refused(map_bar("resource2", UINT64_MAX, 1, &address, &length), -ERANGE, "BAR 2");
	refused(map_bar("resource2", 1, 4 * page, &address, &length), -ERANGE, "BAR 2");
	refused(map_bar("resource2", 1, UINT64_MAX, &address, &length), -ERANGE, "BAR 2");
	refused(map_bar("config", 0, 0, &address, &length), -EINVAL, "neither a UIO device");
	make_bar("resource6", (off_t)page);
	refused(map_bar("resource6", 0, 0, &address, &length), -EINVAL, "neither a UIO device");
	make_bar("resource2_wx", (off_t)page);
	refused(map_bar("resource2_wx", 0, 0, &address, &length), -EINVAL, "neither a UIO device");
	snprintf(path, sizeof path, "%s/resource2", device);
	refused(map_file(path, 1, 0, 0, &address, &length), -EINVAL, "map is 1");
	write_config(4);
	refused(map_bar("resource2", 0, 0, &address, &length), -ENXIO, "echo 1 > ");
	write_text("config", "");
	refused(map_bar("resource2", 0, 0, &address, &length), -ENXIO, "cannot be read");
	write_text("resource", "0x0 0x0 0x0\n");
	refused(map_bar("resource2", 0, 0, &address, &length), -EINVAL, "no PCI device's");
	refused(map_file(root, 0, 0, 0, &address, &length), -EISDIR, "cannot be opened");
	assert_ptr_equal(address, &length);
	assert_int_equal(length, 77);
}

/* ---- UIO ---- */

static void write_uio(unsigned int map, const char *size, const char *offset)
{
	char command[512], path[256];
	struct stat status;

	assert_int_equal(stat(ZERO, &status), 0);
	snprintf(path, sizeof path, "%s/sys/dev/char/%u:%u/maps/map%u", root, major(status.st_rdev),
		 minor(status.st_rdev), map);
	snprintf(command, sizeof command, "mkdir -p %s", path);
	assert_int_equal(system(command), 0);
	snprintf(command, sizeof command, "%s/size", path);
	write_file(command, size, strlen(size));
	snprintf(command, sizeof command, "%s/offset", path);
	write_file(command, offset, strlen(offset));
}

static void a_uio_map_is_mapped(void **state)
{
	uint64_t length = 77;
	void *address = &length;
	size_t before = pages_of(ZERO);

	(void)state;
	refused(map_file(ZERO, 0, 0, 0, &address, &length), -EINVAL, "no UIO device");
	write_uio(0, "0x2000\n", "0x0\n");
	write_uio(1, "0x0000000000006100\n", "0x00000010\n");
	write_uio(2, "0x0\n", "0x0\n");
	refused(map_file(ZERO, 2, 0, 0, &address, &length), -ENXIO, "has no map 2");
	refused(map_file(ZERO, 3, 0, 0, &address, &length), -ENXIO, "has no map 3");
	refused(map_file(ZERO, 1, 0x6100, 0, &address, &length), -ERANGE, "map 1 has 24816");
	write_uio(3, "0x1000\n", "0x1000\n");
	refused(map_file(ZERO, 3, 0, 0, &address, &length), -ENXIO, "nothing of it");
	assert_ptr_equal(address, &length);

	assert_int_equal(map_file(ZERO, 0, 0, 0, &address, &length), 0);
	assert_int_equal(length, 0x2000);
	assert_int_equal((uintptr_t)address % page, 0);
	dmasync_io_memset(address, 0xff, (size_t)length, 0);
	dmasync_io_unmap(address, length);
	assert_int_equal(pages_of(ZERO), before);

	/* The memory begins within a page; the size of its map counts from that page. */
	assert_int_equal(map_file(ZERO, 1, 0, 0, &address, &length), 0);
	assert_int_equal(length, 0x6100 - 0x10);
	assert_int_equal((uintptr_t)address % page, 0x10);
	dmasync_io_unmap(address, length);
	assert_int_equal(pages_of(ZERO), before);

	/* And what is asked for in a later one. */
	assert_int_equal(map_file(ZERO, 1, 2 * page + 4, page, &address, &length), 0);
	assert_int_equal(length, page);
	assert_int_equal((uintptr_t)address % page, 0x14);
	assert_int_equal(pages_of(ZERO), before + 2);
	dmasync_io_unmap(address, length);
	assert_int_equal(pages_of(ZERO), before);
}

static void parameters_are_checked(void **state)
{
	struct {
		struct dmasync_io_map_params params;
		uint64_t later;
	} larger = {.later = 1};
	struct dmasync_io_map_params *params = &larger.params;
	uint64_t length;
	void *address;

	(void)state;
	dmasync_io_map_params_init(params);
	assert_int_equal(params->size, sizeof *params);
	assert_int_equal(dmasync_io_map(params, &address, &length),
			 -EINVAL); /* no text asked for */
	params->error_text = text;
	params->error_text_size = sizeof text;
	refused(dmasync_io_map(params, &address, &length), -EINVAL, "no path");
	params->error_text_size = 4;
	assert_int_equal(dmasync_io_map(params, &address, &length), -EINVAL);
	assert_string_equal(text, "no ");
	params->error_text_size = sizeof text;
	params->path = "/nowhere/uio0";
	refused(dmasync_io_map(params, &address, &length), -ENOENT, "/nowhere/uio0");
	params->flags = 1;
	refused(dmasync_io_map(params, &address, &length), -EINVAL, "must be 0");
	params->flags = 0;
	params->reserved = 1;
	refused(dmasync_io_map(params, &address, &length), -EINVAL, "must be 0");
	params->reserved = 0;
	params->size = sizeof larger;
	assert_int_equal(dmasync_io_map(params, &address, &length), -E2BIG);
	params->size = 4;
	assert_int_equal(dmasync_io_map(params, &address, &length), -EINVAL);
}

#define WITH_DEVICE(test) cmocka_unit_test_setup_teardown(test, make_device, remove_device)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_DEVICE(a_bar_is_mapped),
		WITH_DEVICE(a_bar_within_a_page_begins_there),
		WITH_DEVICE(bars_are_refused_with_a_reason),
		WITH_DEVICE(a_uio_map_is_mapped),
		cmocka_unit_test(parameters_are_checked),
	};

	return cmocka_run_group_tests_name("client-iomem-map", tests, NULL, NULL);
}
