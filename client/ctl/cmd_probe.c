/* SPDX-License-Identifier: MIT */
/*
 * dmasyncctl probe: what this machine can do, what the daemon says of it, and how an fd would be
 * synced. Main thread.
 */
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "client/ctl/connect.h"
#include "client/ctl/files.h"
#include "client/ctl/format.h"
#include "client/ctl/names.h"
#include "client/ctl/options.h"
#include "client/ctl/probe.h"

static void probe_daemon(const struct dmasync_probe_reply *reply, const char *version,
			 json *section)
{
	char ops[DMASYNC_NAME_SIZE], loop[DMASYNC_NAME_SIZE], text[DMASYNC_NAME_SIZE],
		about[DMASYNC_TEXT_SIZE];
	char clean[FORMAT_SIZE], flush[FORMAT_SIZE], barrier[FORMAT_SIZE];

	if (section) {
		json_add_field(section, "version", version, DMASYNC_NAME_SIZE);
		json_add_field(section, "cache_ops", reply->cache_ops, sizeof reply->cache_ops);
		json_add_uint(section, "line_bytes", reply->line_size);
		json_add_uint(section, "granule_bytes", reply->granule);
		json_add_decimal(section, "clean_ns", reply->clean_picoseconds / 1e3, 3);
		json_add_decimal(section, "flush_ns", reply->flush_picoseconds / 1e3, 3);
		json_add_decimal(section, "barrier_ns", reply->barrier_picoseconds / 1e3, 3);
		json_add_bool(section, "trapped", reply->trapped != 0);
		json_add_uint(section, "workers", reply->workers);
		json_add_field(section, "loop", reply->loop, sizeof reply->loop);
		json_add_field(section, "loop_text", reply->loop_text, sizeof reply->loop_text);
		json *errata = json_new_array();

		probe_list_errata(reply->errata, errata);
		json_add(section, "errata", errata);
		return;
	}
	printf("daemon: dmasyncd %s, %u worker%s, loop: %s\n",
	       format_text(text, sizeof text, version, DMASYNC_NAME_SIZE), reply->workers,
	       reply->workers == 1 ? "" : "s",
	       format_text(loop, sizeof loop, reply->loop, sizeof reply->loop));
	printf("  %s: %s\n", loop,
	       format_text(about, sizeof about, reply->loop_text, sizeof reply->loop_text));
	printf("  line operations: %s, clean %s, flush %s, barrier %s%s\n",
	       format_text(ops, sizeof ops, reply->cache_ops, sizeof reply->cache_ops),
	       format_ps(clean, reply->clean_picoseconds),
	       format_ps(flush, reply->flush_picoseconds),
	       format_ps(barrier, reply->barrier_picoseconds),
	       reply->trapped ? "; each one traps into the kernel" : "");
	if (reply->errata & DMASYNC_ERRATUM_SI_L1_4311569)
		puts("  each line operation is issued twice, for erratum Arm SI L1 4311569");
}

/*
 * What an fd is, without asking its file: seals and the first exp_name line alone. A client may
 * forge later lines through the buffer's name.
 */
struct fd_facts {
	bool dmabuf, sealed; /* sealed: a file that can carry seals has F_SEAL_SHRINK */
	bool sealable;
	char exporter[DMASYNC_NAME_SIZE];
};

static void look_at_fd(int fd, struct fd_facts *ret)
{
	char path[64], line[256];
	int seals = fcntl(fd, F_GET_SEALS);

	memset(ret, 0, sizeof *ret);
	ret->sealable = seals >= 0;
	ret->sealed = seals >= 0 && seals & F_SEAL_SHRINK;
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	FILE *file = fopen(path, "re");
	if (!file)
		return;
	while (!ret->dmabuf && fgets(line, sizeof line, file)) {
		if (strncmp(line, "exp_name:", 9) == 0) {
			const char *name = line + 9 + strspn(line + 9, " \t");

			format_text(ret->exporter, sizeof ret->exporter, name, strcspn(name, "\n"));
			ret->dmabuf = true;
		}
	}
	fclose(file);
}

static const char *fd_kind(const struct fd_facts *facts)
{
	if (facts->dmabuf)
		return "dma-buf";
	if (facts->sealed)
		return "memfd, sealed against shrinking";
	if (facts->sealable)
		return "memfd, or file in memory, without F_SEAL_SHRINK";
	return "neither a dma-buf nor a memfd";
}

static void probe_fd(int fd, const struct dmasync_probe_reply *reply, json *document)
{
	struct fd_facts facts;
	char why[DMASYNC_TEXT_SIZE], size[FORMAT_SIZE];
	bool known = reply && reply->fd_known;

	look_at_fd(fd, &facts);
	snprintf(why, sizeof why, "only the daemon's policy knows, and no daemon answers");
	if (known)
		format_text(why, sizeof why, reply->why, sizeof reply->why);
	else if (reply)
		snprintf(why, sizeof why, "the daemon did not look at the fd");
	const char *backend = !known		 ? "unknown"
			      : reply->error < 0 ? "refused"
						 : names_of(names_backends, (int)reply->backend);

	if (document) {
		json *section = json_new_object();

		json_add_string(section, "kind", fd_kind(&facts));
		json_add_string(section, "exporter", facts.exporter);
		if (known && reply->error == 0)
			json_add_uint(section, "bytes", reply->size);
		else
			json_add_null(section, "bytes");
		json_add_string(section, "backend", backend);
		json_add_bool(section, "guarantee",
			      known && reply->flags & DMASYNC_BUFFER_GUARANTEE);
		if (known && reply->error < 0)
			json_add_int(section, "error", reply->error);
		json_add_string(section, "why", why);
		json_add(document, "fd", section);
		return;
	}
	printf("fd: %s%s%s", fd_kind(&facts), facts.dmabuf ? " of exporter " : "", facts.exporter);
	if (known && reply->error == 0)
		printf(", %s", format_bytes(size, reply->size));
	printf("\n  backend: %s\n  why: %s\n", backend, why);
	if (known && reply->error == 0 && !(reply->flags & DMASYNC_BUFFER_GUARANTEE))
		puts("  no guarantee: a sync of it may not reach the point of coherency");
}

/* The daemon's part; true where *ret is valid. No daemon is no failure of probe. */
static bool ask_daemon(const struct ctl *ctl, int fd, struct dmasync_probe_reply *ret,
		       json *document)
{
	struct dmasync *_connection_ ds = NULL;
	struct dmasync_message request = {0};
	json *section = document ? json_new_object() : NULL;
	char text[CLIENT_ERROR_TEXT_SIZE];
	size_t size;
	int r = connect_quietly(ctl, &ds, text, sizeof text);

	if (r >= 0) {
		r = connect_request(ds, DMASYNC_OP_PROBE, &request, sizeof request, fd, ret,
				    sizeof *ret, sizeof *ret, &size);
		if (r < 0)
			dmasync_error_text(ds, text, sizeof text);
	}
	if (document) {
		json_add(document, "daemon", section);
		json_add_bool(section, "running", r >= 0);
		if (r < 0)
			json_add_string(section, "error", text);
	}
	if (r >= 0)
		probe_daemon(ret, ds->hello.daemon, section);
	else if (!document)
		printf("daemon: none (%s)\n", text);
	return r >= 0;
}

int cmd_probe(struct ctl *ctl, int argc, char **argv)
{
	uint64_t fd_number = FILES_NO_FD;
	const char *path = NULL;
	const struct option options[] = {
		{.name = "fd",
		 .argument = "N",
		 .kind = OPTION_COUNT,
		 .value = &fd_number,
		 .max = INT_MAX,
		 .help = "also tell how this inherited file descriptor would be synced"},
	};
	const struct option_usage usage = {
		.synopsis = "probe [OPTION...] [PATH]",
		.about = "What this machine is: CPUs, line operations that work here and what one "
			 "costs,\n"
			 "memory that may be bounced, dma-buf allocators, DRM and V4L2 devices and "
			 "whether\n"
			 "the device tree calls them coherent, io_uring; what the daemon says of "
			 "itself; and,\n"
			 "for a file descriptor or a file, which backend it would get there and "
			 "why. Works\n"
			 "without a daemon too. What user space cannot know is called unknown.\n",
		.options = options,
		.count = sizeof options / sizeof *options,
		.operand = "PATH",
	};
	struct dmasync_probe_reply reply = {0};
	int status, fd;

	if (!options_parse(ctl, &usage, argc, argv, &path, &status))
		return status;
	status = files_choose(path, fd_number, &fd);
	if (status != CTL_OK)
		return status;

	json *document = ctl->json ? json_new_object() : NULL;
	probe_cpus("", document);
	probe_cache(document);
	probe_errata("", document);
	probe_memory("", document);
	probe_allocators("", document);
	probe_devices("", coherence_here, document);
	probe_io_uring(document);
	bool answered = ask_daemon(ctl, fd, &reply, document);
	if (fd >= 0)
		probe_fd(fd, answered ? &reply : NULL, document);
	if (document)
		json_print(document);
	if (fd >= 0)
		close(fd);
	return CTL_OK;
}
