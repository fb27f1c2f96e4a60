/* SPDX-License-Identifier: MIT */
/* See attack.h. One thread of the test's process, and the attack in a child of it. */
#include "tests/hostile/attack.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hostile/honest.h"
#include "tests/lib/sanitizer.h"

enum {
	UIDS = 1024, /* of a case: the honest one's and the attack's */
	UIDS_FROM = 100000,
	PIDS = 1 << 20,
	GO_ON_ROUNDS = 3,
	WARM_UP_ROUNDS = 40,
	NORMAL_SHARE = 10,   /* percent: the configuration's defaults */
	CREDIT_PER_LOOK = 8, /* of other queues' work for a look at one more of the idle ones */
	OWN_QUEUES = 2,
	SKIPPED = 77,
	LOG_LINES = 200,     /* 20 in ten seconds for what clients do, and the daemon's own */
	MAPS_PER_THREAD = 4, /* stack and guard, arena and what is left of its reservation */
};

#define USUAL_BYTES (UINT64_C(48) << 20)

#if UNDER_ASAN || UNDER_TSAN /* freed memory is kept for a while, and every byte has its shadow */
#define MEMORY_SLACK (UINT64_C(1) << 30)
#define MAPS_SLACK 10000
#else
#define MEMORY_SLACK (UINT64_C(8) << 20)
#define MAPS_SLACK 0
#endif

/* ---- what the daemon has ---- */

struct state {
	unsigned int fds, shared_maps, maps, threads;
	uint64_t private_bytes;
	struct dmasync_stats_reply stats;
};

static uint64_t status_kib(pid_t pid, const char *key)
{
	char path[64], line[256];
	uint64_t kib = 0;
	bool found = false;

	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	FILE *file = fopen(path, "re");

	check(file);
	while (!found && fgets(line, sizeof line, file))
		found = strncmp(line, key, strlen(key)) == 0 &&
			sscanf(line + strlen(key), ": %" SCNu64, &kib) == 1;
	fclose(file);
	check(found);
	return kib;
}

/* The most it ever had is from here on. */
static void forget_peak(pid_t pid)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/clear_refs", (int)pid);
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	check(fd >= 0);
	check_int(write(fd, "5", 1), 1);
	close(fd);
}

static void look(const struct attack *attack, struct raw *monitor, struct state *ret)
{
	pid_t pid = attack->daemon.pid;

	raw_stats(monitor, &ret->stats);
	ret->fds = harness_count_fds(pid);
	ret->shared_maps = harness_count_shared_maps(pid);
	ret->maps = harness_count_maps(pid);
	ret->threads = harness_count_threads(pid);
	ret->private_bytes = status_kib(pid, "RssAnon") << 10;
}

/* Every sum that stands in STATS, in one row. */
#define CHARGES 12
static void charges(const struct dmasync_stats_reply *stats, uint64_t ret[CHARGES])
{
	const uint64_t row[CHARGES] = {
		stats->clients, stats->buffers, stats->queues,	     stats->users,
		stats->files,	stats->maps,	stats->places,	     stats->requests,
		stats->answers, stats->watches, stats->mapped_bytes, stats->queue_bytes,
	};

	memcpy(ret, row, sizeof row);
}

static bool is_back(const struct attack *attack, struct raw *monitor, const struct state *before)
{
	uint64_t then[CHARGES], now[CHARGES];
	struct state state;

	look(attack, monitor, &state);
	charges(&before->stats, then);
	charges(&state.stats, now);
	return memcmp(then, now, sizeof now) == 0 && state.fds == before->fds &&
	       state.shared_maps == before->shared_maps;
}

static bool is_alive(const struct attack *attack)
{
	siginfo_t info = {0};

	check_int(waitid(P_PID, (id_t)attack->daemon.pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
	return info.si_pid == 0;
}

static void report(const struct state *before, const struct state *after)
{
	static const char *const names[CHARGES] = {
		"clients", "buffers",  "queues",  "users",   "files",	     "maps",
		"places",  "requests", "answers", "watches", "mapped bytes", "queue bytes"};
	uint64_t then[CHARGES], now[CHARGES];

	charges(&before->stats, then);
	charges(&after->stats, now);
	for (int i = 0; i < CHARGES; i++)
		if (then[i] != now[i])
			fprintf(stderr, "%s: %" PRIu64 " before, %" PRIu64 " after\n", names[i],
				then[i], now[i]);
	fprintf(stderr, "fds: %u before, %u after; shared mappings: %u before, %u after\n",
		before->fds, after->fds, before->shared_maps, after->shared_maps);
}

static void compare(const struct attack *attack, const struct attack_plan *plan,
		    struct raw *monitor, const struct state *before)
{
	int64_t end = harness_now_ms() + harness_scaled_ms(PATIENCE_MS);
	struct state after;

	while (!is_back(attack, monitor, before)) {
		if (harness_now_ms() > end) {
			look(attack, monitor, &after);
			report(before, &after);
			fail_case("the daemon does not return to what it had before the attack");
		}
		harness_pause();
	}
	look(attack, monitor, &after);
	check_int(after.stats.sum_errors, 0);
	check_int(after.stats.faults, plan->faults);

	/* A thread may have got its arena meanwhile. */
	if (after.maps > before->maps + MAPS_PER_THREAD * after.threads + MAPS_SLACK)
		fail_case("%u mappings with %u threads, %u before the attack", after.maps,
			  after.threads, before->maps);
	/* What is freed in pieces the allocator may keep: as much as was in use at once, no more.
	 */
	uint64_t slack = MEMORY_SLACK + plan->peak_bytes;

	if (after.private_bytes > before->private_bytes + slack)
		fail_case("%" PRIu64 " bytes of private memory, %" PRIu64 " before the attack",
			  after.private_bytes, before->private_bytes);
	uint64_t peak = status_kib(attack->daemon.pid, "VmHWM") << 10;
	uint64_t allowed = before->private_bytes + USUAL_BYTES + plan->peak_bytes + MEMORY_SLACK;

	if (peak > allowed)
		fail_case("%" PRIu64 " bytes of memory at its most, %" PRIu64 " are allowed", peak,
			  allowed);
}

/* ---- the scheduler's bound ---- */

static uint64_t at_least_one(uint64_t n)
{
	return n ? n : 1;
}

/* Who takes turns with the well-behaved client: users, or connections where all are of one. */
static uint64_t rivals(const struct attack_plan *plan)
{
	uint64_t users = at_least_one(plan->users);

	return getuid() == 0 ? users : users * at_least_one(plan->connections);
}

/*
 * Slices that a normal batch may wait for, from daemon/scheduler.h: the one during which it was
 * submitted; of every rival two in the round that is on (its credit, and what it overdraws) and one
 * in the next, before us; and those until its queue is looked at, where it is none of the recent
 * ones. After each of them may come one of class bulk. Realtime leaves normal its share, and that
 * may be in debt by two slices. A worker of several helps another one for a slice after each.
 */
static uint64_t normal_slices(const struct attack_plan *plan)
{
	uint64_t looks = (plan->queues + OWN_QUEUES) * (uint64_t)CREDIT_PER_LOOK;
	uint64_t slices = 1 + 3 * rivals(plan) + 1 + looks / ATTACK_SLICE;

	if (plan->realtime)
		slices = (slices + 2) * (100 / NORMAL_SHARE);
	if (plan->workers > 1)
		slices *= 2;
	return plan->bulk ? 2 * slices : slices;
}

/* The slice during which it was submitted, and the turns of rivals of the same class. */
static uint64_t urgent_slices(const struct attack_plan *plan)
{
	uint64_t slices = plan->realtime ? 2 * (1 + 3 * rivals(plan)) : 1;

	return plan->workers > 1 ? 2 * slices : slices;
}

static void check_bound(const char *what, uint64_t waited, uint64_t slices)
{
	if (waited > slices * ATTACK_SLICE)
		fail_case("a batch waited for %" PRIu64 " %s of others, the bound is %" PRIu64
			  " slices of %u",
			  waited, what, slices, ATTACK_SLICE);
}

static void check_bounds(const struct attack *attack, const struct attack_plan *plan,
			 struct raw *monitor)
{
	const struct honest *honest = attack->honest;
	struct dmasync_stats_reply stats;
	int urgent = DMASYNC_CLASS_REALTIME;

	raw_stats(monitor, &stats);
	printf("others waited for %" PRIu64 " lines and %" PRIu64
	       " entries of %u that are allowed, urgent ones for %" PRIu64 " and %" PRIu64
	       " of %u\n",
	       atomic_load(&honest->waited_lines), atomic_load(&honest->waited_entries),
	       (unsigned)normal_slices(plan) * ATTACK_SLICE, stats.class_waited_lines[urgent],
	       stats.class_waited_entries[urgent], (unsigned)urgent_slices(plan) * ATTACK_SLICE);
	check(atomic_load(&honest->records) > 0);
	check(stats.class_batches[urgent] > 0);
	check_bound("lines", atomic_load(&honest->waited_lines), normal_slices(plan));
	check_bound("entries", atomic_load(&honest->waited_entries), normal_slices(plan));
	check_bound("lines", stats.class_waited_lines[urgent], urgent_slices(plan));
	check_bound("entries", stats.class_waited_entries[urgent], urgent_slices(plan));
}

/* ---- the course of an attack ---- */

static void begin(struct attack *attack, const struct attack_plan *plan)
{
	char *config;

	check(asprintf(&config,
		       "[daemon]\nallow_simulated = yes\nslice_lines = %u\nslice_us = 10000\n"
		       "normal_share = %d\n%s%s%s%s[limits]\n%s",
		       ATTACK_SLICE, NORMAL_SHARE, honest_group() ? "realtime_group = " : "",
		       honest_group() ? honest_group() : "", honest_group() ? "\n" : "",
		       plan->daemon_keys ? plan->daemon_keys : "",
		       plan->limits_keys ? plan->limits_keys : "") > 0);
	harness_daemon_start(&attack->daemon, config, NULL);
	free(config);
	attack->socket = attack->daemon.socket;
	/* The kernel counts some things by user, over all tests that run. */
	attack->first_uid = UIDS_FROM + (uid_t)(getpid() % PIDS) * UIDS;
	check_int(chmod(harness_directory(), 0711), 0);
	check_int(chmod(attack->socket, 0666), 0);

	void *memory = mmap(NULL, sizeof *attack->honest, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	check(memory != MAP_FAILED);
	attack->honest = memory;
}

static void await_rounds(const struct attack *attack, uint64_t more)
{
	uint64_t from = atomic_load(&attack->honest->rounds);

	harness_until(atomic_load(&attack->honest->rounds) >= from + more, PATIENCE_MS);
}

/* The same, but a well-behaved client that ends is not waited for. */
static void await_honest(const struct attack *attack, pid_t honest, uint64_t more)
{
	uint64_t from = atomic_load(&attack->honest->rounds);
	siginfo_t info = {0};

	harness_until(atomic_load(&attack->honest->rounds) >= from + more ||
			      (waitid(P_PID, (id_t)honest, &info, WEXITED | WNOHANG | WNOWAIT),
			       info.si_pid),
		      PATIENCE_MS);
	if (info.si_pid && info.si_status == SKIPPED)
		harness_skip("as the well-behaved client says");
	if (info.si_pid)
		fail_case("the well-behaved client failed");
}

static void honest_end(struct attack *attack, pid_t honest)
{
	int status;

	atomic_store(&attack->honest->stop, true);
	check_int(waitpid(honest, &status, 0), honest);
	if (status != 0)
		fail_case("the well-behaved client failed");
	atomic_store(&attack->honest->stop, false);
}

static pid_t attack_start(struct attack *attack, const struct attack_plan *plan)
{
	pid_t pid = fork();

	check(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!plan->as_root)
		become_attacker(attack, 0);
	plan->run(attack);
	_exit(0);
}

/* Until the attack has ended; its exit status. The daemon lives and answers all the while. */
static int watch(const struct attack *attack, pid_t attacker, pid_t honest, struct raw *monitor)
{
	struct dmasync_stats_reply stats;
	int status;

	for (;;) {
		pid_t ended = waitpid(attacker, &status, WNOHANG);

		check(ended == 0 || ended == attacker);
		if (!is_alive(attack))
			fail_case("the daemon has died");
		if (waitpid(honest, NULL, WNOHANG) != 0)
			fail_case("the well-behaved client failed");
		raw_stats(monitor, &stats);
		if (ended)
			return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
		harness_pause();
	}
}

static unsigned int count_in_log(const struct attack *attack, const char *text)
{
	char line[1024];
	unsigned int count = 0;
	FILE *log = fopen(attack->daemon.log, "re");

	check(log);
	while (fgets(line, sizeof line, log))
		count += strstr(line, text) != NULL;
	fclose(log);
	return count;
}

void attack_carry_out(const struct attack_plan *plan)
{
	struct attack attack = {0};
	struct raw monitor;
	struct state before;

	if (plan->as_root && getuid() != 0)
		harness_skip("only root can become several users");
	begin(&attack, plan);
	raw_open(&monitor, attack.socket);

	/* Threads, arenas and tables come with the first clients and stay. */
	pid_t honest = honest_start(attack.socket, attack.first_uid, attack.honest);

	await_honest(&attack, honest, WARM_UP_ROUNDS);
	honest_end(&attack, honest);
	harness_until((look(&attack, &monitor, &before),
		       before.stats.clients == 1 && before.stats.files == 2),
		      PATIENCE_MS);
	forget_peak(attack.daemon.pid);

	honest = honest_start(attack.socket, attack.first_uid, attack.honest);
	await_honest(&attack, honest, GO_ON_ROUNDS);
	int status = watch(&attack, attack_start(&attack, plan), honest, &monitor);

	if (status == SKIPPED)
		harness_skip("as the attack says");
	if (status != 0)
		fail_case("the attack ended with %d", status);
	await_honest(&attack, honest, GO_ON_ROUNDS);
	honest_end(&attack, honest);
	check_bounds(&attack, plan, &monitor);
	compare(&attack, plan, &monitor, &before);
	check(count_in_log(&attack, "") <= LOG_LINES);
	if (plan->logged)
		check_int(count_in_log(&attack, plan->logged), plan->logged_lines);
	raw_close(&monitor);
	harness_daemon_stop(&attack.daemon);
	munmap(attack.honest, sizeof *attack.honest);
}

/* ---- for the attack ---- */

void others_go_on(struct attack *attack)
{
	await_rounds(attack, GO_ON_ROUNDS);
}

uint64_t others_rounds(const struct attack *attack)
{
	return atomic_load(&attack->honest->rounds);
}

void become_attacker(const struct attack *attack, uint32_t index)
{
	check(index < ATTACK_USERS);
	honest_become(attack->first_uid + 1 + index, NULL);
}

bool is_another_user(const struct attack *attack)
{
	return getuid() > attack->first_uid && getuid() <= attack->first_uid + ATTACK_USERS;
}

pid_t victim_start(void (*run)(struct attack *attack, void *argument), struct attack *attack,
		   void *argument)
{
	int ready[2];
	char byte;

	check_int(pipe2(ready, O_CLOEXEC), 0);
	pid_t pid = fork();

	check(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(ready[0]);
		run(attack, argument);
		check_int(write(ready[1], "", 1), 1);
		for (;;)
			pause();
	}
	close(ready[1]);
	check_int(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

void victim_kill(pid_t victim)
{
	int status;

	kill(victim, SIGKILL);
	check_int(waitpid(victim, &status, 0), victim);
	check(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

uint32_t attack_random(void)
{
	static unsigned short seed[3] = {9, 10, 11};

	return (uint32_t)jrand48(seed);
}
