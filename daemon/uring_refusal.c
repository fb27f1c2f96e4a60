/* SPDX-License-Identifier: MIT */
/* Why a kernel refuses io_uring, as far as this process can tell. Owns nothing; any thread. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "daemon/uring.h"

#define SYSCTL "/proc/sys/kernel/io_uring_disabled"

/* A number from a file that has it after `key` ("" for the first thing in the file); -1: none. */
static int read_number(const char *path, const char *key)
{
	char line[256];
	int number = -1;
	FILE *file = fopen(path, "re");

	if (!file)
		return -1;
	while (number < 0 && fgets(line, sizeof(line), file)) {
		if (strncmp(line, key, strlen(key)) == 0 &&
		    sscanf(line + strlen(key), "%d", &number) != 1)
			number = -1;
	}
	fclose(file);
	return number;
}

static bool filtered(void)
{
	return read_number("/proc/self/status", "Seccomp:") > 0;
}

static const char *not_permitted(void)
{
	/* 6.6 and later have the sysctl; ProcSubset=pid of a unit hides it. */
	bool sysctls_shown = access("/proc/sys/kernel/ostype", F_OK) == 0;

	switch (read_number(SYSCTL, "")) {
	case 2:
		return "sysctl kernel.io_uring_disabled is 2, which refuses it to everybody; 0 "
		       "allows it";
	case 1:
		return "sysctl kernel.io_uring_disabled is 1, which refuses it to all outside "
		       "kernel.io_uring_group; 0 allows it";
	}
	if (filtered() && sysctls_shown)
		return "the seccomp filter of this container or unit refuses it; io_uring_setup, "
		       "io_uring_enter and io_uring_register (systemd: @aio) are to be allowed";
	if (!sysctls_shown)
		return "sysctl kernel.io_uring_disabled is not 0 (it cannot be read here), or the "
		       "seccomp filter of this container or unit refuses io_uring_setup, "
		       "io_uring_enter or io_uring_register (systemd: @aio)";
	return "a security module (SELinux, AppArmor) refuses it to this process";
}

void uring_refusal(int error, char *text, size_t text_size)
{
	struct rlimit limit;

	switch (error) {
	case -EPERM:
	case -EACCES:
		snprintf(text, text_size, "%s", not_permitted());
		return;
	case -ENOSYS:
		snprintf(text, text_size, "%s",
			 filtered() ? "the seccomp filter of this container or unit hides it, or "
				      "the kernel was built without CONFIG_IO_URING"
				    : "the kernel was built without CONFIG_IO_URING");
		return;
	case -ENOMEM:
		if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
			snprintf(text, text_size,
				 "there is no memory for a ring, or RLIMIT_MEMLOCK, %" PRIu64
				 " bytes here, is used up: kernels up to 5.11 charge rings to it; "
				 "raise LimitMEMLOCK",
				 (uint64_t)limit.rlim_cur);
		else
			snprintf(text, text_size, "there is no memory for a ring");
		return;
	case -EINVAL:
		snprintf(text, text_size, "this kernel's io_uring is too old");
		return;
	default:
		snprintf(text, text_size, "%s", strerror(-error));
		return;
	}
}
