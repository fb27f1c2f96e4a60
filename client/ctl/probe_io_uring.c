/* SPDX-License-Identifier: MIT */
/* Probe: what the kernel's io_uring offers to this process. Owns nothing. Main thread. */
#include <liburing.h>
#include <string.h>

#include "client/ctl/probe.h"

static const struct {
	unsigned int flag;
	const char *name;
} features[] = {
	{IORING_FEAT_SINGLE_MMAP, "single_mmap"},	{IORING_FEAT_NODROP, "nodrop"},
	{IORING_FEAT_SUBMIT_STABLE, "submit_stable"},	{IORING_FEAT_FAST_POLL, "fast_poll"},
	{IORING_FEAT_POLL_32BITS, "poll_32bits"},	{IORING_FEAT_EXT_ARG, "ext_arg"},
	{IORING_FEAT_NATIVE_WORKERS, "native_workers"}, {IORING_FEAT_CQE_SKIP, "cqe_skip"},
};

/* What the daemon asks for, best first; an older kernel refuses the first ones with EINVAL. */
static const struct {
	unsigned int flags;
	const char *name;
} setups[] = {
	{IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL,
	 "single_issuer, defer_taskrun, submit_all"},
	{IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SUBMIT_ALL, "coop_taskrun, submit_all"},
	{0, "no flags"},
};

static const struct {
	int opcode;
	const char *name;
} opcodes[] = {
	{IORING_OP_READ, "read"},
	{IORING_OP_POLL_ADD, "poll_add"},
	{IORING_OP_ACCEPT, "accept"},
	{IORING_OP_TIMEOUT, "timeout"},
	{IORING_OP_ASYNC_CANCEL, "async_cancel"},
};

static const char *refusal(int error)
{
	switch (error) {
	case -EPERM:
		return "forbidden: kernel.io_uring_disabled or a container's seccomp filter";
	case -ENOSYS:
		return "not there: not built into this kernel, or filtered";
	case -ENOMEM:
		return "no memory: RLIMIT_MEMLOCK on an old kernel";
	}
	return strerror(-error);
}

static void add_name(json *array, const char *name, bool *first)
{
	if (array)
		json_append(array, json_object_new_string(name));
	else
		printf("%s%s", *first ? "" : ", ", name);
	*first = false;
}

void probe_io_uring(json *document)
{
	struct io_uring ring;
	struct io_uring_params params;
	size_t setup = 0;
	int r;

	do {
		memset(&params, 0, sizeof params);
		params.flags = setups[setup].flags;
		r = io_uring_queue_init_params(4, &ring, &params);
	} while (r == -EINVAL && ++setup < sizeof setups / sizeof *setups);

	json *section = document ? json_new_object() : NULL;
	if (document) {
		json_add(document, "io_uring", section);
		json_add_bool(section, "available", r >= 0);
	}
	if (r < 0) {
		if (document)
			json_add_string(section, "error", refusal(r));
		else
			printf("io_uring: %s\n", refusal(r));
		return;
	}

	bool first = true;
	json *array = document ? json_new_array() : NULL;
	if (document)
		json_add_string(section, "setup", setups[setup].name);
	else
		printf("io_uring: works with %s\n  features: ", setups[setup].name);
	for (size_t i = 0; i < sizeof features / sizeof *features; i++)
		if (params.features & features[i].flag)
			add_name(array, features[i].name, &first);
	if (document)
		json_add(section, "features", array);

	struct io_uring_probe *probe = io_uring_get_probe_ring(&ring);
	first = true;
	array = document ? json_new_array() : NULL;
	if (!document)
		printf("\n  operations: ");
	for (size_t i = 0; probe && i < sizeof opcodes / sizeof *opcodes; i++)
		if (io_uring_opcode_supported(probe, opcodes[i].opcode))
			add_name(array, opcodes[i].name, &first);
	if (document)
		json_add(section, "operations", array);
	else
		putchar('\n');
	io_uring_free_probe(probe);
	io_uring_queue_exit(&ring);
}
