/* SPDX-License-Identifier: MIT */
/*
 * dmasyncctl as its users run it: every command against a real daemon, human and --json, and what
 * it answers to wrong command lines and to no daemon. Shapes and counts, never times.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/ctl/json.h"
#include "tests/lib/harness.h"

#define RUN_MS 60000
#define ARGUMENTS_MAX 24

static char *program;

static void find_program(void)
{
	if (!program)
		program = harness_built("client/ctl/dmasyncctl");
}

/* Runs dmasyncctl with these arguments, NULL-terminated. */
static void run(struct harness_output *output, const char *const *arguments)
{
	const char *argv[ARGUMENTS_MAX + 2];
	size_t count = 1;

	find_program();
	argv[0] = program;
	while (arguments[count - 1]) {
		check(count <= ARGUMENTS_MAX);
		argv[count] = arguments[count - 1];
		count++;
	}
	argv[count] = NULL;
	harness_run(output, RUN_MS, argv);
}
#define RUN(output, ...) run(output, (const char *const[]){__VA_ARGS__, NULL})

static void expect_text(const char *text, const char *part)
{
	if (!strstr(text, part))
		fail_case("\"%s\" does not contain \"%s\"", text, part);
}

static void expect_status(const struct harness_output *output, int status)
{
	if (output->status != status)
		fail_case("exit status %d instead of %d; stdout:\n%sstderr:\n%s", output->status,
			  status, output->out, output->err);
}

/* Success, nothing on stderr, and one document; to be freed. */
static json *document_of(const char *const *arguments)
{
	struct harness_output output;

	run(&output, arguments);
	expect_status(&output, 0);
	check_text(output.err, "");
	json *document = json_tokener_parse(output.out);
	if (!document)
		fail_case("not JSON: %s", output.out);
	harness_output_clear(&output);
	return document;
}
#define DOCUMENT(...) document_of((const char *const[]){__VA_ARGS__, NULL})

static json *member(json *object, const char *key)
{
	json *value = NULL;

	if (!json_object_object_get_ex(object, key, &value))
		fail_case("no member \"%s\" in %s", key, json_object_to_json_string(object));
	return value;
}

static int64_t number(json *object, const char *key)
{
	json *value = member(object, key);

	if (!json_object_is_type(value, json_type_int))
		fail_case("\"%s\" is no whole number: %s", key, json_object_to_json_string(value));
	return json_object_get_int64(value);
}

static double decimal(json *object, const char *key)
{
	json *value = member(object, key);

	if (!json_object_is_type(value, json_type_double))
		fail_case("\"%s\" is no decimal: %s", key, json_object_to_json_string(value));
	return json_object_get_double(value);
}

static const char *text(json *object, const char *key)
{
	return json_object_get_string(member(object, key));
}

static json *element(json *array, size_t index)
{
	check(json_object_is_type(array, json_type_array));
	check(index < json_object_array_length(array));
	return json_object_array_get_idx(array, index);
}

/* {count, mean, p50, p90, p99, p99_9, max}, in order. */
static void check_percentiles(json *object, int64_t count)
{
	static const char *const keys[] = {"p50", "p90", "p99", "p99_9", "max"};
	int64_t last = 0;

	check_int(number(object, "count"), count);
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
		check(number(object, keys[i]) >= last);
		last = number(object, keys[i]);
	}
}

static void start(struct harness_daemon *daemon)
{
	harness_daemon_start(daemon, "[daemon]\nallow_simulated=yes\n", NULL);
	setenv("DMASYNC_SOCKET", daemon->socket, 1);
}

/* ---- without a daemon ---- */

static void wrong_command_lines_are_told_what_is_allowed(void)
{
	static const struct {
		const char *arguments[8];
		const char *sentence;
	} lines[] = {
		{{NULL},
		 "no command; allowed are stats, clients, users, batches, probe, sync, selftest, "
		 "bench"},
		{{"frob"}, "unknown command \"frob\"; allowed are stats, clients"},
		{{"--frob"}, "unknown option \"--frob\""},
		{{"--socket"}, "--socket needs a path"},
		{{"stats", "--frob"}, "allowed are --json, --socket, --help"},
		{{"stats", "-x"}, "unknown option \"-x\""},
		{{"stats", "more"}, "\"more\" is one argument too many"},
		{{"stats", "--json=1"}, "unknown option"},
		{{"batches", "--last"}, "--last needs a value"},
		{{"batches", "--last", "x"}, "--last: \"x\" is not a whole number"},
		{{"batches", "--last", "401"}, "--last: \"401\" is out of bounds; 0 to 400"},
		{{"batches", "--follow=1"}, "--follow takes no value"},
		{{"sync", "--direction", "up"}, "is not one of: to_device, from_device, bidirec"},
		{{"sync", "--offset", "1T"}, "--offset: \"1T\" is not a size as 4096"},
		{{"sync", "--rows", "0"}, "--rows: \"0\" is out of bounds"},
		{{"sync", "--rows", "2"}, "--rows needs --length"},
		{{"sync", "--for-cpu", "--for-device"}, "exclude each other"},
		{{"sync", "--fd", "3", "file"}, "exclude each other"},
		{{"sync", "one", "two"}, "\"two\" is one argument too many"},
		{{"probe", "--fd", "3", "file"}, "exclude each other"},
		{{"bench"}, "no command; allowed are sg, latency, iomem"},
		{{"bench", "frob"}, "unknown command \"frob\"; allowed are sg, latency, iomem"},
		{{"bench", "sg", "--iterations", "0"}, "out of bounds"},
		{{"bench", "sg", "--size", "4K", "--entry", "8K"}, "larger than the buffer"},
		{{"bench", "sg", "--size", "1G", "--entry", "1"}, "16777216 are allowed"},
		{{"bench", "latency", "--period", "33"}, "is not a time with its unit"},
		{{"bench", "latency", "--period", "1us"}, "1.00 ms to 10.0 s are allowed"},
		{{"bench", "iomem", "--offset", "4K"}, "are for --map"},
		{{"bench", "iomem", "--map", "x", "--offset", "4"}, "no multiple of 8"},
		{{"bench", "iomem", "--rounds", "0"}, "out of bounds"},
	};

	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		struct harness_output output;

		run(&output, lines[i].arguments);
		expect_status(&output, 2);
		check_text(output.out, "");
		check(strncmp(output.err, "dmasyncctl: ", 12) == 0);
		expect_text(output.err, lines[i].sentence);
		harness_output_clear(&output);
	}
}

static void help_is_there_for_every_command(void)
{
	static const char *const commands[][4] = {
		{"--help"},
		{"-h"},
		{"stats", "--help"},
		{"clients", "--help"},
		{"batches", "--help"},
		{"probe", "--help"},
		{"sync", "--help"},
		{"selftest", "--help"},
		{"bench", "--help"},
		{"bench", "sg", "--help"},
		{"bench", "latency", "--help"},
		{"bench", "iomem", "--help"},
	};
	struct harness_output output;

	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
		run(&output, commands[i]);
		expect_status(&output, 0);
		check_text(output.err, "");
		expect_text(output.out, "usage: dmasyncctl");
		expect_text(output.out, "--socket PATH");
		harness_output_clear(&output);
	}
	RUN(&output, "--version");
	expect_status(&output, 0);
	check_text(output.out, "dmasyncctl " DMASYNC_VERSION "\n");
	harness_output_clear(&output);
}

static void without_a_daemon_only_probe_works(void)
{
	static const char *const commands[][4] = {
		{"stats"},
		{"clients"},
		{"users"},
		{"batches"},
		{"batches", "--follow"},
		{"sync"},
		{"bench", "sg"},
		{"bench", "latency"},
	};
	struct harness_output output;
	char path[200];

	snprintf(path, sizeof path, "%s/nobody", harness_directory());
	setenv("DMASYNC_SOCKET", path, 1);
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
		run(&output, commands[i]);
		expect_status(&output, 1);
		check_text(output.out, "");
		expect_text(output.err, path);
		harness_output_clear(&output);
	}

	RUN(&output, "probe");
	expect_status(&output, 0);
	expect_text(output.out, "daemon: none (");
	expect_text(output.out, path);
	harness_output_clear(&output);

	char *file = harness_write_file("file", "x");
	json *document = DOCUMENT("probe", "--json", file);
	check(!json_object_get_boolean(member(member(document, "daemon"), "running")));
	expect_text(text(member(document, "daemon"), "error"), path);
	check(json_object_array_length(member(document, "cpus")) > 0);
	number(member(document, "cache"), "line_bytes");
	member(member(document, "memory"), "ram_above_4gib");
	check_text(text(member(document, "fd"), "backend"), "unknown");
	json_object_put(document);
	free(file);
}

static void a_full_disk_is_no_success(void)
{
	struct harness_output output;
	char command[512];

	find_program();
	snprintf(command, sizeof command, "exec %s --help > /dev/full", program);
	harness_run(&output, RUN_MS, (const char *const[]){"/bin/sh", "-c", command, NULL});
	expect_status(&output, 1);
	expect_text(output.err, "standard output could not be written");
	harness_output_clear(&output);
}

/* ---- with one ---- */

static void sync_tells_what_was_covered(void)
{
	struct harness_daemon daemon;
	struct harness_output output;
	json *document;

	start(&daemon);
	document = DOCUMENT("sync", "--json", "--scratch", "64K", "--memory", "simulated",
			    "--backend", "simulated");
	check_text(text(document, "backend"), "simulated");
	check_int(number(document, "lines"), 1024);
	check_int(number(document, "bytes"), 65536);
	check_int(number(document, "entries"), 1);
	check_int(number(document, "elided"), 0);
	check_int(number(document, "status"), 0);
	json_object_put(document);

	document = DOCUMENT("--json", "sync", "--memory", "simulated", "--backend=simulated",
			    "--offset", "100", "--length", "200", "--rows", "3", "--stride", "4K",
			    "--for-cpu", "--direction", "from_device");
	check_int(number(document, "lines"), 3 * 4); /* 100..299 lies in four lines of 64 */
	json_object_put(document);

	document = DOCUMENT("sync", "--json", "--backend", "none");
	check_int(number(document, "lines"), 0);
	check_int(number(document, "elided"), 1);
	json_object_put(document);

	RUN(&output, "sync", "--memory", "simulated", "--backend", "simulated");
	expect_status(&output, 0);
	expect_text(output.out, "synced: 16384 lines (1 MiB) of 1 entry, 0 elided");
	harness_output_clear(&output);
	harness_daemon_stop(&daemon);
}

static void sync_needs_no_daemon(void)
{
	struct harness_output output;
	json *document, *flags;

	document =
		DOCUMENT("sync", "--inline", "--json", "--scratch", "64K", "--memory", "simulated");
	check_text(text(document, "backend"), "simulated");
	check_int(number(document, "lines"), 1024);
	check_int(number(document, "status"), 0);
	flags = member(document, "flags");
	check_int(json_object_array_length(flags), 1);
	check_text(json_object_get_string(json_object_array_get_idx(flags, 0)), "inline");
	json_object_put(document);

	RUN(&output, "sync", "--inline", "--memory", "simulated", "--offset", "1M");
	expect_status(&output, 0);
	expect_text(output.out, "flag:   inline");
	harness_output_clear(&output);
	RUN(&output, "sync", "--inline", "--memory", "memfd", "--backend", "kernel");
	expect_status(&output, 1);
	expect_text(output.err, "a memfd has none");
	harness_output_clear(&output);
}

/* The configuration says that the machine has Arm SI L1 4311569. */
static void second_pass_issues_twice(void)
{
	struct harness_daemon daemon;
	struct harness_output output;
	json *document, *errata;

	harness_daemon_start(&daemon, "[daemon]\nallow_simulated=yes\nsecond_pass=yes\n", NULL);
	setenv("DMASYNC_SOCKET", daemon.socket, 1);
	document = DOCUMENT("sync", "--json", "--scratch", "64K", "--memory", "simulated",
			    "--backend", "simulated");
	check_int(number(document, "lines"), 2 * 1024);
	check_int(number(document, "bytes"), 65536);
	check_int(number(document, "status"), 0);
	json_object_put(document);

	document = DOCUMENT("probe", "--json");
	errata = member(member(document, "daemon"), "errata");
	check_int((int64_t)json_object_array_length(errata), 1);
	check_text(text(json_object_array_get_idx(errata, 0), "name"), "Arm SI L1 4311569");
	json_object_put(document);
	RUN(&output, "probe");
	expect_text(output.out, "each line operation is issued twice, for erratum Arm SI L1");
	harness_output_clear(&output);
	harness_daemon_stop(&daemon);
}

static void probe_says_what_the_loop_is(void)
{
	struct harness_daemon daemon;
	struct harness_output output;
	json *document, *section;

	harness_daemon_start(&daemon, "", (const char *[]){"--loop", "epoll", NULL});
	setenv("DMASYNC_SOCKET", daemon.socket, 1);
	document = DOCUMENT("probe", "--json");
	section = member(document, "daemon");
	check_text(text(section, "loop"), "epoll");
	check_text(text(section, "loop_text"), "the configuration says loop = epoll");
	json_object_put(document);
	RUN(&output, "probe");
	expect_text(output.out, "loop: epoll\n  epoll: the configuration says loop = epoll\n");
	harness_output_clear(&output);
	harness_daemon_stop(&daemon);
}

static void sync_takes_an_fd_or_a_path(void)
{
	struct harness_daemon daemon;
	struct harness_output output;
	char path[64], command[256];
	int memfd = harness_memfd(8192, F_SEAL_SHRINK);
	json *document;

	start(&daemon);
	snprintf(path, sizeof path, "/proc/%d/fd/%d", getpid(), memfd);
	document = DOCUMENT("sync", "--json", "--backend", "none", path);
	check_int(number(document, "buffer_bytes"), 8192);
	json_object_put(document);
	document = DOCUMENT("probe", "--json", path);
	check_text(text(member(document, "fd"), "kind"), "memfd, sealed against shrinking");
	check_int(number(member(document, "fd"), "bytes"), 8192);
	json_object_put(document);

	snprintf(command, sizeof command, "exec %s sync --backend none --fd 7 7<>%s", program,
		 path);
	harness_run(&output, RUN_MS, (const char *const[]){"/bin/sh", "-c", command, NULL});
	expect_status(&output, 0);
	expect_text(output.out, "buffer: memfd, 8 KiB, backend none");
	harness_output_clear(&output);
	close(memfd);
	harness_daemon_stop(&daemon);
}

static void what_cannot_be_synced_is_an_error(void)
{
	struct harness_daemon daemon;
	struct harness_output output;
	char *file = harness_write_file("file", "x");

	start(&daemon);
	static const struct {
		const char *arguments[8];
		const char *sentence;
	} lines[] = {
		{{"sync", "/nonexistent"}, "/nonexistent: No such file"},
		{{"sync", "--fd", "77"}, "--fd 77: Bad file descriptor"},
		{{"sync", "--backend", "none", "--offset", "2M"}, "does not lie inside"},
		{{"sync", "--backend", "none", "--length", "2M"}, "does not lie inside"},
		{{"sync", "--backend", "none", "--length", "64", "--rows", "2"}, "sync: "},
		{{"sync", "--scratch", "1024G"}, "scratch buffer: "},
	};
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		run(&output, lines[i].arguments);
		expect_status(&output, 1);
		check_text(output.out, "");
		expect_text(output.err, lines[i].sentence);
		harness_output_clear(&output);
	}
	RUN(&output, "sync", file);
	expect_status(&output, 1);
	expect_text(output.err, "neither a dma-buf nor a memfd");
	harness_output_clear(&output);
	free(file);
	harness_daemon_stop(&daemon);
}

static bool only_client(void)
{
	json *document = DOCUMENT("stats", "--json");
	bool only = number(document, "clients") == 1 && number(document, "buffers") == 0;

	json_object_put(document);
	return only;
}

static void stats_clients_and_batches_count(void)
{
	struct harness_daemon daemon;
	struct harness_output output;
	json *document, *batches;

	start(&daemon);
	for (int i = 0; i < 3; i++)
		json_object_put(DOCUMENT("sync", "--json", "--backend", "none"));

	/* A client that has ended is let go of in the daemon's own time. */
	harness_until(only_client(), 10000);
	document = DOCUMENT("stats", "--json");
	check_text(text(document, "daemon"), DMASYNC_VERSION);
	check_int(number(document, "batches"), 3);
	check_int(number(document, "entries"), 3);
	check_int(number(document, "elided"), 3);
	check_int(number(document, "failed"), 0);
	check_int(number(document, "workers"), 1);
	static const char *const phases[] = {"queued", "issue", "barrier", "total"};
	for (size_t i = 0; i < sizeof phases / sizeof *phases; i++)
		check_percentiles(member(member(document, "latency_ns"), phases[i]), 3);
	json_object_put(document);

	document = DOCUMENT("clients", "--json");
	/* By id: who came last is this one. */
	json *clients = member(document, "clients");
	json *self = element(clients, json_object_array_length(clients) - 1);
	check_text(text(self, "name"), "dmasyncctl");
	check_int(number(self, "uid"), geteuid());
	check_int(number(self, "queues"), 0);
	json_object_put(document);

	document = DOCUMENT("batches", "--json", "--last", "2");
	batches = member(document, "batches");
	check_int(json_object_array_length(batches), 2);
	check(number(element(batches, 0), "batch_id") < number(element(batches, 1), "batch_id"));
	check_int(number(element(batches, 1), "status"), 0);
	check_int(number(element(batches, 1), "elided"), 1);
	json_object_put(document);
	document = DOCUMENT("batches", "--json", "--last", "0");
	check_int(json_object_array_length(member(document, "batches")), 0);
	json_object_put(document);

	RUN(&output, "stats");
	expect_status(&output, 0);
	expect_text(output.out, ", 0 queues, 0 buffers (0 B mapped), 1 worker\n");
	expect_text(output.out, "\nphase ");
	harness_output_clear(&output);
	RUN(&output, "clients");
	expect_status(&output, 0);
	expect_text(output.out, "dmasyncctl");
	harness_output_clear(&output);
	RUN(&output, "batches");
	expect_status(&output, 0);
	expect_text(output.out, "ok\n");
	harness_output_clear(&output);
	RUN(&output, "--socket", daemon.socket, "probe");
	expect_status(&output, 0);
	expect_text(output.out, "daemon: dmasyncd " DMASYNC_VERSION ", 1 worker");
	harness_output_clear(&output);
	harness_daemon_stop(&daemon);
}

/* A dmasyncctl whose standard output is read line by line. */
static pid_t follow(FILE **ret_lines)
{
	int pipes[2];
	pid_t pid;

	find_program();
	check(pipe2(pipes, O_CLOEXEC) == 0);
	pid = fork();
	if (pid == 0) {
		dup2(pipes[1], STDOUT_FILENO);
		execl(program, program, "batches", "--follow", "--json", (char *)NULL);
		_exit(127);
	}
	check(pid > 0);
	close(pipes[1]);
	*ret_lines = fdopen(pipes[0], "r");
	check(*ret_lines != NULL);
	return pid;
}

static int64_t next_id(FILE *lines)
{
	char line[4096];

	check(fgets(line, sizeof line, lines) != NULL);
	json *record = json_tokener_parse(line);
	if (!record)
		fail_case("not JSON: %s", line);
	int64_t id = number(record, "batch_id");
	json_object_put(record);
	return id;
}

static void follow_streams_what_was_and_what_comes(void)
{
	struct harness_daemon daemon;
	FILE *lines;
	int64_t last = 0;
	int status;

	start(&daemon);
	for (int i = 0; i < 3; i++)
		json_object_put(DOCUMENT("sync", "--json", "--backend", "none"));
	pid_t pid = follow(&lines);

	for (int i = 0; i < 8; i++) {
		int64_t id;

		/* The first three come at once: then it watches. */
		if (i >= 3)
			json_object_put(DOCUMENT("sync", "--json", "--backend", "none"));
		id = next_id(lines);
		check(id > last); /* each once, in order */
		last = id;
	}
	harness_daemon_stop(&daemon);
	check(fgetc(lines) == EOF);
	check(waitpid(pid, &status, 0) == pid);
	check(WIFEXITED(status));
	check_int(WEXITSTATUS(status), 1); /* the daemon has gone */
	fclose(lines);
}

static void need_two_cpus_and_line_operations(void)
{
	cpu_set_t cpus;

	check(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
	if (CPU_COUNT(&cpus) < 2)
		harness_skip("one CPU: client and worker cannot run side by side");
	json *document = DOCUMENT("probe", "--json");
	int64_t line = number(member(document, "cache"), "line_bytes");
	json_object_put(document);
	if (line == 0)
		harness_skip("no line operation works on this machine");
}

static void bench_sg_has_its_shape(void)
{
	struct harness_daemon daemon;
	struct harness_output output;
	json *document;

	start(&daemon);
	need_two_cpus_and_line_operations();
	document =
		DOCUMENT("bench", "sg", "--iterations", "3", "--random", "--json", "--size", "1M");
	check_int(number(document, "entry_bytes"), 4096);
	check_int(number(document, "entries"), 256);
	check_int(number(document, "lines") * number(document, "line_bytes"), 1 << 20);
	check_int(number(document, "daemon_lines"), number(document, "lines"));
	check(decimal(document, "per_entry_barrier_us") > 0);
	check(decimal(document, "one_barrier_us") > 0);
	check(decimal(document, "daemon_issue_us") > 0);
	check(decimal(document, "daemon_barrier_us") >= 0);
	check(decimal(document, "inline_end_to_end_us") > 0);
	double reduction = 100 * (1 - decimal(document, "daemon_end_to_end_us") /
					      decimal(document, "per_entry_barrier_us"));
	check(reduction - decimal(document, "reduction_pct") < 0.1);
	check(decimal(document, "reduction_pct") - reduction < 0.1);
	json_object_put(document);

	/* Unaligned entries, not more than the published run has, flushed, worker asleep. */
	document = DOCUMENT("bench", "sg", "--iterations", "2", "--size", "1M", "--entry", "48",
			    "--for-cpu", "--asleep", "--json");
	check_int(number(document, "entries"), 20480);
	check(json_object_get_boolean(member(document, "entries_capped")));
	check_text(text(document, "sync"), "for_cpu");
	/* In order they are one range: each line once. */
	check_int(number(document, "lines"), (20480 * 48 + number(document, "line_bytes") - 1) /
						     number(document, "line_bytes"));
	check_int(number(document, "daemon_lines"), number(document, "lines"));
	json_object_put(document);

	RUN(&output, "bench", "sg", "--iterations", "2", "--size", "64K");
	expect_status(&output, 0);
	expect_text(output.out, "64 KiB in entries of 4 KiB: 16 entries, ascending order");
	expect_text(output.out, "daemon, end to end");
	harness_output_clear(&output);
	harness_daemon_stop(&daemon);
}

static void bench_latency_has_its_shape(void)
{
	struct harness_daemon daemon;
	struct harness_output output;
	json *document;

	start(&daemon);
	need_two_cpus_and_line_operations();
	document = DOCUMENT("bench", "latency", "--iterations", "1500", "--cold-iterations", "3",
			    "--period", "5ms", "--json");
	check(number(document, "client_cpu") != number(document, "worker_cpu"));
	check_percentiles(member(document, "round_trip_ns"), 1500);
	check_percentiles(member(document, "ping_pong_ns"), 1500);
	check_percentiles(member(document, "cold_round_trip_ns"), 3);
	check_percentiles(member(document, "wake_ns"), 3);
	check_int(number(document, "period_ns"), 5000000);
	json_object_put(document);
	RUN(&output, "bench", "latency", "--iterations", "10", "--cold-iterations", "2", "--period",
	    "2ms");
	expect_status(&output, 0);
	expect_text(output.out, "ping-pong");
	harness_output_clear(&output);
	harness_daemon_stop(&daemon);
}

/* No daemon is there. */
static void bench_iomem_has_its_shape(void)
{
	static const char *const keys[] = {"write64_copy_ns", "write32_copy_ns", "memset_ns",
					   "memcpy_to_ns"};
	struct harness_output output;
	json *document = DOCUMENT("bench", "iomem", "--rounds", "1", "--json"), *rows, *ratios;
	size_t forms;

	check_text(text(document, "memory"), "ordinary");
	rows = member(document, "rows");
	ratios = member(document, "each_to_one");
	/* None, then each barrier behind the last store and at every one; ten sizes. */
	forms = 1 + 2 * json_object_array_length(ratios);
	check(json_object_array_length(ratios) >= 1);
	check_int((int64_t)json_object_array_length(rows), (int64_t)(10 * forms));
	for (size_t i = 0; i < 10 * forms; i++) {
		json *row = json_object_array_get_idx(rows, i);

		check_int(number(row, "bytes"), 8 << i % 10);
		check_text(text(row, "placement"), i < 10 ? "none" : i / 10 % 2 ? "one" : "each");
		for (size_t key = 0; key < 4; key++)
			check(decimal(row, keys[key]) > 0);
	}
	for (size_t i = 0; i < json_object_array_length(ratios); i++) {
		json *ratio = json_object_array_get_idx(ratios, i);
		json *one = json_object_array_get_idx(rows, 10 * (1 + 2 * i) + 9);
		json *each = json_object_array_get_idx(rows, 10 * (2 + 2 * i) + 9);
		double difference = decimal(each, "memset_ns") / decimal(one, "memset_ns") -
				    decimal(ratio, "memset");

		check(difference < 0.1 && difference > -0.1);
		check_text(text(ratio, "barrier"), text(each, "barrier"));
	}
	json_object_put(document);

	RUN(&output, "bench", "iomem", "--rounds", "1");
	expect_status(&output, 0);
	expect_text(output.out, "block writes to memory of this machine");
	expect_text(output.out, " times one");
	harness_output_clear(&output);
	RUN(&output, "bench", "iomem", "--map", "/dev/null");
	expect_status(&output, 1);
	expect_text(output.err, "bench iomem: /dev/null is no UIO device");
	harness_output_clear(&output);
}

static void bench_brings_a_daemon_of_its_own_and_leaves_nothing(void)
{
	struct harness_output output;
	char nobody[200];

	snprintf(nobody, sizeof nobody, "%s/nobody", harness_directory());
	setenv("DMASYNC_SOCKET", nobody, 1);
	setenv("TMPDIR", harness_directory(), 1);
	need_two_cpus_and_line_operations();
	json_object_put(
		DOCUMENT("bench", "sg", "--spawn", "--iterations", "1", "--size", "64K", "--json"));

	RUN(&output, "bench", "sg", "--spawn=/bin/false");
	expect_status(&output, 1);
	expect_text(output.err, "has ended at once (exit status 1)");
	harness_output_clear(&output);
	RUN(&output, "bench", "latency", "--spawn=/nonexistent");
	expect_status(&output, 1);
	expect_text(output.err, "/nonexistent: No such file");
	harness_output_clear(&output);
	if (rmdir(harness_directory()) < 0)
		fail_case("something was left behind: %s", strerror(errno));
	check(mkdir(harness_directory(), 0700) == 0);
}

/* Every line stale without sync, none with; and what it says where there is nothing to try. */
static void selftest_finds_every_stale_line_of_a_simulated_device(void)
{
	struct harness_output output;
	struct harness_daemon daemon;
	json *document, *ways, *range;

	setenv("TMPDIR", harness_directory(), 1);
	document = DOCUMENT("selftest", "--simulated", "--spawn", "--json", "--size", "20000",
			    "--rounds", "3");
	check_text(text(document, "verdict"), "works");
	check_int(number(document, "window_bytes"), 19968);
	ways = member(document, "ways");
	check_int((int64_t)json_object_array_length(ways), 2);
	check(!json_object_get_boolean(member(element(ways, 0), "synced")));
	check_int(number(element(ways, 0), "lines"), 312);
	check_int(number(element(ways, 0), "stale"), 312);
	check_int(number(element(ways, 0), "mixed"), 0);
	range = element(member(element(ways, 0), "wrong_ranges"), 0);
	check_int(number(range, "offset"), 0);
	check_int(number(range, "bytes"), 19968);
	check(json_object_get_boolean(member(element(ways, 1), "synced")));
	check_text(text(element(ways, 1), "backend"), "simulated");
	check_int(number(element(ways, 1), "rounds"), 3);
	check_int(number(element(ways, 1), "fresh"), 312);
	check_int(number(element(ways, 1), "stale"), 0);
	check_int((int64_t)json_object_array_length(member(element(ways, 1), "wrong_ranges")), 0);
	json_object_put(document);

	RUN(&output, "selftest", "--simulated", "--spawn");
	expect_status(&output, 0);
	expect_text(output.out, "without sync: 2048 of 2048 lines stale");
	expect_text(output.out, "backend simulated: 0 of 2048 lines stale");
	harness_output_clear(&output);

	/* A daemon that allows no simulated buffers. */
	harness_daemon_start(&daemon, "", NULL);
	setenv("DMASYNC_SOCKET", daemon.socket, 1);
	RUN(&output, "selftest", "--simulated");
	expect_status(&output, 1);
	expect_text(output.err, "allow_simulated");
	harness_output_clear(&output);
	RUN(&output, "selftest", "--v4l2", "/dev/null");
	expect_status(&output, 1);
	expect_text(output.err, "/dev/null is no V4L2 device");
	harness_output_clear(&output);
	harness_daemon_stop(&daemon);
	RUN(&output, "selftest");
	expect_status(&output, 2);
	expect_text(output.err, "--v4l2 DEVICE or --simulated");
	harness_output_clear(&output);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(wrong_command_lines_are_told_what_is_allowed),
	HARNESS_CASE(help_is_there_for_every_command),
	HARNESS_CASE(without_a_daemon_only_probe_works),
	HARNESS_CASE(a_full_disk_is_no_success),
	HARNESS_CASE(sync_tells_what_was_covered),
	HARNESS_CASE(sync_needs_no_daemon),
	HARNESS_CASE(second_pass_issues_twice),
	HARNESS_CASE(probe_says_what_the_loop_is),
	HARNESS_CASE(sync_takes_an_fd_or_a_path),
	HARNESS_CASE(what_cannot_be_synced_is_an_error),
	HARNESS_CASE(stats_clients_and_batches_count),
	HARNESS_CASE(follow_streams_what_was_and_what_comes),
	HARNESS_CASE(selftest_finds_every_stale_line_of_a_simulated_device, .timeout_s = 60),
	HARNESS_CASE(bench_sg_has_its_shape, .timeout_s = 60),
	HARNESS_CASE(bench_latency_has_its_shape, .timeout_s = 60),
	HARNESS_CASE(bench_iomem_has_its_shape, .timeout_s = 60),
	HARNESS_CASE(bench_brings_a_daemon_of_its_own_and_leaves_nothing, .timeout_s = 60),
};

HARNESS_MAIN(cases)
