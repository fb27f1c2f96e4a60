/* SPDX-License-Identifier: MIT */
/*
 * Which line operations work here, and what they cost. Once at start, before there are threads:
 * signal handlers belong to the whole process. The only state that is not a parameter is
 * thread-local, is set while a candidate is tried, and exists because a handler takes no context.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "daemon/cache/cache.h"
#include "daemon/cache/cpus.h"

#define MEASURED_BYTES 16384u
#define MEASURED_BARRIERS 64u
#define MEASURED_SYSCALLS 64u

/*
 * The best of so many, or of those that trapped operations leave time for; never of less than a
 * few, as the time may have gone to another process.
 */
#define RUNS 15u
#define FEWEST_RUNS 4u
#define RUNS_NS UINT64_C(10000000)

static const int guarded_signals[] = {SIGILL, SIGSEGV, SIGBUS};
#define GUARDED_SIGNALS (sizeof guarded_signals / sizeof guarded_signals[0])

static _Thread_local sigjmp_buf *volatile escape;

static void on_signal(int signal_number)
{
	struct sigaction action = {.sa_handler = SIG_DFL};

	if (escape)
		siglongjmp(*escape, signal_number);
	/* Not ours: the instruction is executed again and does what it would have done. */
	sigaction(signal_number, &action, NULL);
}

/* Calls function(context). Returns 0, or the signal that ended it. */
static int guarded(void (*function)(void *context), void *context)
{
	struct sigaction action = {.sa_handler = on_signal}, before[GUARDED_SIGNALS];
	sigset_t set, mask_before;
	sigjmp_buf here;
	int caught;

	sigemptyset(&action.sa_mask);
	sigemptyset(&set);
	for (size_t i = 0; i < GUARDED_SIGNALS; i++) {
		sigaction(guarded_signals[i], &action, &before[i]);
		sigaddset(&set, guarded_signals[i]);
	}
	/* A fault whose signal is blocked kills the process, handler or not. */
	pthread_sigmask(SIG_UNBLOCK, &set, &mask_before);

	caught = sigsetjmp(here, 1);
	if (caught == 0) {
		escape = &here;
		function(context);
	}
	escape = NULL;

	pthread_sigmask(SIG_SETMASK, &mask_before, NULL);
	for (size_t i = 0; i < GUARDED_SIGNALS; i++)
		sigaction(guarded_signals[i], &before[i], NULL);
	return caught;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

struct trial {
	const struct cache_ops *ops;
	size_t line;
	uintptr_t memory, end;	     /* whole lines, writable */
	uint64_t clean_ns, flush_ns; /* the whole memory, barrier included */
	uint64_t barriers_ns;	     /* MEASURED_BARRIERS of them */
	uint64_t syscall_ns;	     /* one system call that does nothing */
	bool damaged;		     /* the operations changed what the memory holds */
};

/* The daemon maps clients' buffers read-only: the operations must be content with that. */
static const unsigned char read_only[3 * CACHE_LINE_MAX] = {1};

/* Under the guard: once, and is the memory as it was? */
static void try_once(void *context)
{
	struct trial *trial = context;
	unsigned char *bytes = (unsigned char *)trial->memory;
	size_t size = trial->end - trial->memory;
	uintptr_t constant =
		((uintptr_t)read_only + CACHE_LINE_MAX) & ~(uintptr_t)(CACHE_LINE_MAX - 1);

	for (size_t i = 0; i < size; i++)
		bytes[i] = (unsigned char)(i * 7 + i / 251);
	trial->ops->open();
	trial->ops->clean(trial->memory, trial->end, trial->line);
	trial->ops->flush(trial->memory, trial->end, trial->line);
	trial->ops->clean(constant, constant + trial->line, trial->line);
	trial->ops->flush(constant, constant + trial->line, trial->line);
	trial->ops->complete(true);
	for (size_t i = 0; i < size; i++) {
		if (bytes[i] != (unsigned char)(i * 7 + i / 251))
			trial->damaged = true;
	}
}

/* Of several runs every one but the first finds the lines clean: the one before has seen to it. */
static uint64_t time_clean(const struct trial *trial)
{
	uint64_t start = now_ns();

	trial->ops->clean(trial->memory, trial->end, trial->line);
	trial->ops->complete(false);
	return now_ns() - start;
}

static uint64_t time_flush(const struct trial *trial)
{
	uint64_t start = now_ns();

	trial->ops->flush(trial->memory, trial->end, trial->line);
	trial->ops->complete(true);
	return now_ns() - start;
}

static uint64_t time_barriers(const struct trial *trial)
{
	uint64_t start = now_ns();

	for (unsigned int i = 0; i < MEASURED_BARRIERS; i++)
		trial->ops->complete(true);
	return now_ns() - start;
}

static uint64_t time_syscall(const struct trial *trial)
{
	uint64_t start = now_ns();

	(void)trial;
	for (unsigned int i = 0; i < MEASURED_SYSCALLS; i++)
		(void)syscall(SYS_getppid);
	return (now_ns() - start) / MEASURED_SYSCALLS;
}

/* The least of several runs: what disturbs a measurement only ever adds to it. */
static uint64_t least(uint64_t (*measure)(const struct trial *trial), const struct trial *trial)
{
	uint64_t start = now_ns(), best = UINT64_MAX;

	for (unsigned int i = 0; i < RUNS && (i < FEWEST_RUNS || now_ns() - start < RUNS_NS); i++) {
		uint64_t ns = measure(trial);

		if (ns < best)
			best = ns;
	}
	return best;
}

/* Under the guard. */
static void measure(void *context)
{
	struct trial *trial = context;
	uint64_t again;

	trial->ops->open();
	trial->syscall_ns = least(time_syscall, trial);
	trial->clean_ns = least(time_clean, trial);
	trial->flush_ns = least(time_flush, trial);
	trial->barriers_ns = least(time_barriers, trial);
	/* Some time later: whatever slowed the machine down meanwhile must not make a trap cheap.
	 */
	again = least(time_syscall, trial);
	if (again < trial->syscall_ns)
		trial->syscall_ns = again;
}

/* `ns` for `count` operations, less one barrier, in picoseconds for one of them. */
static uint32_t per_operation_ps(uint64_t ns, uint64_t barrier_ps, uint64_t count)
{
	uint64_t ps = ns * 1000;

	ps = ps > barrier_ps ? (ps - barrier_ps) / count : 0;
	return ps < UINT32_MAX ? (uint32_t)ps : UINT32_MAX;
}

static void describe(const struct cache_candidate *candidate, const struct trial *trial,
		     const char *cpus, struct cache *ret)
{
	uint64_t lines = (trial->end - trial->memory) / trial->line;
	const char *erratum = candidate->trapping ? candidate->trapping() : NULL;

	ret->ops = *candidate->ops;
	ret->line = trial->line;
	ret->granule = candidate->granule(cpus);
	ret->second_pass = candidate->second_pass && candidate->second_pass();
	ret->barrier_ps = per_operation_ps(trial->barriers_ns, 0, MEASURED_BARRIERS);
	ret->clean_ps = per_operation_ps(trial->clean_ns, ret->barrier_ps, lines);
	ret->flush_ps = per_operation_ps(trial->flush_ns, ret->barrier_ps, lines);
	/*
	 * A trapped operation costs an exception, as a system call does, and its emulation; one
	 * that is not, a small part of that (QEMU, Cortex-A53: 1160 against 11 ns). The measurement
	 * decides: with a known erratum a fraction of a system call is enough, without one, as
	 * behind a hypervisor, it takes all of it. A kernel may also leave the erratum alone.
	 */
	if (candidate->trapping)
		ret->trapped = ret->clean_ps / 1000 >=
			       (erratum ? trial->syscall_ns / 4 : trial->syscall_ns);

	cache_say(ret, "%s%s: tried and works", ret->why[0] ? "; " : "", candidate->ops->name);
	if (ret->trapped)
		cache_say(ret, ", but each operation traps into the kernel (%s)",
			  erratum ? erratum : "no known erratum: a hypervisor?");
	else if (erratum)
		cache_say(ret, "; not trapped in spite of %s", erratum);
}

void cache_try(const struct cache_candidate *candidate, const char *cpus, struct cache *ret)
{
	unsigned char buffer[MEASURED_BYTES + CACHE_LINE_MAX];
	const char *name = candidate->ops->name;
	struct trial trial = {.ops = candidate->ops};
	const char *separator;
	int caught;

	if (!cache_offers(candidate, cpus, ret, &trial.line))
		return;
	separator = ret->why[0] ? "; " : "";
	trial.memory = ((uintptr_t)buffer + trial.line - 1) & ~(trial.line - 1);
	trial.end = trial.memory + MEASURED_BYTES;

	caught = guarded(try_once, &trial);
	if (caught == 0 && !trial.damaged)
		caught = guarded(measure, &trial);
	if (caught)
		cache_say(ret, "%s%s: SIG%s when tried", separator, name, sigabbrev_np(caught));
	else if (trial.damaged)
		cache_say(ret, "%s%s: changes memory", separator, name);
	else
		describe(candidate, &trial, cpus, ret);
}

int cache_select(const char *cpus, struct cache *ret)
{
	struct cache found = {.line = 0};
	cpu_set_t wanted, before;
	bool moved = false;

	if (cpus) {
		int r = cache_cpus_parse(cpus, &wanted);

		if (r < 0)
			return r;
		/*
		 * Try where the work will be done. Where the list cannot be had (offline, outside
		 * the cpuset) this CPU has to do: the worker meets the same refusal and says so.
		 */
		moved = sched_getaffinity(0, sizeof before, &before) == 0 &&
			sched_setaffinity(0, sizeof wanted, &wanted) == 0;
	}

	for (const struct cache_candidate *candidate = cache_candidates();
	     candidate->ops && found.line == 0; candidate++)
		cache_try(candidate, cpus, &found);
	if (!found.why[0])
		cache_say(&found, "%s", CACHE_WHY_NONE);

	if (moved)
		sched_setaffinity(0, sizeof before, &before);
	*ret = found;
	return 0;
}
