/* SPDX-License-Identifier: MIT */
/*
 * cache_select() with candidates of the test's own: each way in which one can be unfit, what is
 * said of it, and that the process is afterwards as it was before.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "daemon/cache/cache.h"

static struct cache_candidate offered[4];
static unsigned int cleans, flushes, barriers;
static const char *asked_for; /* the CPUs that present() saw */

/* Instead of the architecture's. */
const struct cache_candidate *cache_candidates(void)
{
	return offered;
}

static void nothing(void)
{
}

static void works(uintptr_t start, uintptr_t end, size_t line)
{
	assert_true(start % line == 0 && end % line == 0 && start < end);
	cleans++;
}

static void works_too(uintptr_t start, uintptr_t end, size_t line)
{
	assert_true(start % line == 0 && end % line == 0 && start < end);
	flushes++;
}

static void barrier(bool flushed)
{
	(void)flushed;
	barriers++;
}

static void is_illegal(uintptr_t start, uintptr_t end, size_t line)
{
	(void)start;
	(void)end;
	(void)line;
#if defined __x86_64__
	__asm__ volatile("ud2");
#elif defined __aarch64__
	__asm__ volatile("udf #0");
#else
	raise(SIGILL);
#endif
}

/* As an operation that needs write permission: the bytes stay, read-only memory faults. */
static void writes(uintptr_t start, uintptr_t end, size_t line)
{
	for (uintptr_t address = start; address < end; address += line) {
		volatile unsigned char *byte = (volatile unsigned char *)address;

		*byte = *byte;
	}
}

/* As an operation on a mapping that lost its file. */
static void is_truncated(uintptr_t start, uintptr_t end, size_t line)
{
	int fd = memfd_create("truncated", MFD_CLOEXEC);
	volatile char *page = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

	(void)start;
	(void)end;
	(void)line;
	close(fd);
	(void)*page;
}

static const void *first_memory;

/* As DC ZVA in the place of DC CVAC. Read-only memory comes later. */
static void zeroes(uintptr_t start, uintptr_t end, size_t line)
{
	(void)line;
	if (!first_memory)
		first_memory = (const void *)start;
	if (first_memory == (const void *)start)
		memset((void *)start, 0, end - start);
}

/* As an operation that the kernel emulates, but dearer than any. */
static void traps(uintptr_t start, uintptr_t end, size_t line)
{
	for (uintptr_t address = start; address < end; address += line) {
		for (unsigned int i = 0; i < 16; i++)
			(void)syscall(SYS_getppid);
	}
}

static bool here(const char *cpus)
{
	asked_for = cpus;
	return true;
}

static bool missing(const char *cpus)
{
	(void)cpus;
	return false;
}

static size_t line_0(const char *cpus)
{
	(void)cpus;
	return 0;
}

static size_t line_24(const char *cpus)
{
	(void)cpus;
	return 24;
}

static size_t line_8(const char *cpus)
{
	(void)cpus;
	return 8;
}

static size_t line_65536(const char *cpus)
{
	(void)cpus;
	return 65536;
}

static size_t line_32(const char *cpus)
{
	(void)cpus;
	return 32;
}

static size_t granule_128(const char *cpus)
{
	(void)cpus;
	return 128;
}

static const char *known_erratum(void)
{
	return "Cortex-Test r1p2";
}

static const char *no_erratum(void)
{
	return NULL;
}

#define OPS(variable, name_, clean_, flush_)                                                       \
	static const struct cache_ops variable = {.name = name_,                                   \
						  .open = nothing,                                 \
						  .clean = clean_,                                 \
						  .flush = flush_,                                 \
						  .complete = barrier}
OPS(good_ops, "good", works, works_too);
OPS(illegal_ops, "illegal", is_illegal, works_too);
OPS(illegal_flush_ops, "illegal flush", works, is_illegal);
OPS(writing_ops, "writing", writes, works_too);
OPS(truncated_ops, "truncated", is_truncated, works_too);
OPS(zeroing_ops, "zeroing", zeroes, works_too);
OPS(trapping_ops, "trapping", traps, traps);

static void offer(size_t place, const struct cache_ops *ops)
{
	offered[place] = (struct cache_candidate){
		.ops = ops, .present = here, .line = line_32, .granule = granule_128};
}

static int setup(void **state)
{
	(void)state;
	memset(offered, 0, sizeof offered);
	cleans = flushes = barriers = 0;
	asked_for = "never asked";
	first_memory = NULL;
	return 0;
}

static void first_that_works_is_taken(void **state)
{
	struct cache cache;

	(void)state;
	offer(0, &good_ops);
	offer(1, &illegal_ops);
	assert_int_equal(cache_select(NULL, &cache), 0);
	assert_string_equal(cache.ops.name, "good");
	assert_ptr_equal(cache.ops.clean, works);
	assert_int_equal(cache.line, 32);
	assert_int_equal(cache.granule, 128);
	assert_false(cache.trapped);
	assert_string_equal(cache.why, "good: tried and works");
	assert_null(asked_for);
	/* Tried, then measured more than once. */
	assert_true(cleans > 2 && flushes > 2 && barriers > 2);
}

/* `ops` is passed over with `said`, and the next candidate is taken. */
static void check_passed_over(const struct cache_ops *ops, const char *said)
{
	struct cache cache;
	char expected[200];

	setup(NULL);
	offer(0, ops);
	offer(1, &good_ops);
	assert_int_equal(cache_select(NULL, &cache), 0);
	assert_string_equal(cache.ops.name, "good");
	snprintf(expected, sizeof expected, "%s; good: tried and works", said);
	assert_string_equal(cache.why, expected);
}

static void candidate_that_faults_is_passed_over(void **state)
{
	(void)state;
	check_passed_over(&illegal_ops, "illegal: SIGILL when tried");
	check_passed_over(&illegal_flush_ops, "illegal flush: SIGILL when tried");
	check_passed_over(&writing_ops, "writing: SIGSEGV when tried");
	check_passed_over(&truncated_ops, "truncated: SIGBUS when tried");
}

static void candidate_that_changes_memory_is_passed_over(void **state)
{
	(void)state;
	check_passed_over(&zeroing_ops, "zeroing: changes memory");
}

static void candidate_that_is_missing_is_not_tried(void **state)
{
	struct cache cache;

	(void)state;
	offer(0, &good_ops);
	offered[0].present = missing;
	assert_int_equal(cache_select(NULL, &cache), 0);
	assert_int_equal(cache.line, 0);
	assert_string_equal(cache.why, "good: not there");
	assert_int_equal(cleans + flushes + barriers, 0);
}

static void impossible_line_is_refused(void **state)
{
	static size_t (*const lines[])(const char *) = {line_0, line_8, line_24, line_65536};
	struct cache cache;

	(void)state;
	for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
		setup(NULL);
		offer(0, &good_ops);
		offered[0].line = lines[i];
		assert_int_equal(cache_select(NULL, &cache), 0);
		assert_int_equal(cache.line, 0);
		assert_non_null(strstr(cache.why, "good: a line of"));
		assert_int_equal(cleans + flushes + barriers, 0);
	}
}

static void nothing_works_is_no_error(void **state)
{
	struct cache cache;

	(void)state;
	assert_int_equal(cache_select(NULL, &cache), 0);
	assert_int_equal(cache.line, 0);
	assert_null(cache.ops.clean);
	assert_string_equal(cache.why, "this architecture has no line operations for user space");

	offer(0, &illegal_ops);
	offer(1, &truncated_ops);
	assert_int_equal(cache_select(NULL, &cache), 0);
	assert_int_equal(cache.line, 0);
	assert_null(cache.ops.clean);
	assert_string_equal(cache.why, "illegal: SIGILL when tried; truncated: SIGBUS when tried");
}

static void trapped_operations_are_told_by_their_cost(void **state)
{
	struct cache cache;

	(void)state;
	offer(0, &trapping_ops);
	offered[0].trapping = known_erratum;
	assert_int_equal(cache_select(NULL, &cache), 0);
	assert_true(cache.trapped);
	assert_string_equal(cache.why, "trapping: tried and works, but each operation traps into "
				       "the kernel (Cortex-Test r1p2)");

	offered[0].trapping = no_erratum;
	assert_int_equal(cache_select(NULL, &cache), 0);
	assert_true(cache.trapped);
	assert_non_null(strstr(cache.why, "no known erratum"));

	/* The erratum alone makes no trap. */
	offer(0, &good_ops);
	offered[0].trapping = known_erratum;
	assert_int_equal(cache_select(NULL, &cache), 0);
	assert_false(cache.trapped);
	assert_string_equal(cache.why,
			    "good: tried and works; not trapped in spite of Cortex-Test r1p2");
}

static void own_handler(int signal_number)
{
	(void)signal_number;
}

static void handlers_and_mask_are_restored(void **state)
{
	static const int signals[] = {SIGILL, SIGSEGV, SIGBUS};
	struct sigaction own = {.sa_handler = own_handler, .sa_flags = SA_RESTART}, before[3], now;
	sigset_t blocked, mask_before, mask;
	struct cache cache;

	(void)state;
	sigemptyset(&own.sa_mask);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGILL);
	sigaddset(&blocked, SIGUSR1);
	for (size_t i = 0; i < 3; i++)
		sigaction(signals[i], &own, &before[i]);
	/* Blocked signals too: a fault would otherwise kill the process. */
	sigprocmask(SIG_BLOCK, &blocked, &mask_before);
	offer(0, &illegal_ops);
	offer(1, &good_ops);
	assert_int_equal(cache_select(NULL, &cache), 0);
	sigprocmask(SIG_SETMASK, &mask_before, &mask);
	for (size_t i = 0; i < 3; i++) {
		sigaction(signals[i], &before[i], &now);
		assert_ptr_equal(now.sa_handler, own_handler);
		assert_int_equal(now.sa_flags & SA_RESTART, SA_RESTART);
	}
	assert_string_equal(cache.ops.name, "good");
	assert_int_equal(sigismember(&mask, SIGILL), 1);
	assert_int_equal(sigismember(&mask, SIGUSR1), 1);
	assert_int_equal(sigismember(&mask, SIGSEGV), 0);
}

static void cpus_are_asked_for_and_left_again(void **state)
{
	cpu_set_t before, after;
	struct cache cache;
	char list[16];
	unsigned int cpu = 0;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
	while (!CPU_ISSET(cpu, &before))
		cpu++;
	snprintf(list, sizeof list, "%u", cpu);
	offer(0, &good_ops);
	assert_int_equal(cache_select(list, &cache), 0);
	assert_ptr_equal(asked_for, list);
	assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
	assert_true(CPU_EQUAL(&before, &after));

	/* A CPU that is not there is the caller's trouble later; the choice is made all the same.
	 */
	assert_int_equal(cache_select("1023", &cache), 0);
	assert_string_equal(cache.ops.name, "good");
}

static void malformed_cpus_are_refused(void **state)
{
	static const char *const lists[] = {"", "a", "1,", ",1", "1-", "-1", "3-1", "0 ", "0x1"};
	struct cache cache = {.line = 7};

	(void)state;
	offer(0, &good_ops);
	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
		assert_int_equal(cache_select(lists[i], &cache), -EINVAL);
	assert_int_equal(cache_select("0-1024", &cache), -ERANGE);
	assert_int_equal(cache_select("99999999999999999999", &cache), -ERANGE);
	assert_int_equal(cache.line, 7);
	assert_int_equal(cleans + flushes + barriers, 0);
}

/* Nothing is executed, so also what would fault is chosen; and what is not there is not. */
static void choosing_tries_nothing(void **state)
{
	static const struct cache_ops illegal = {
		.name = "illegal",
		.open = nothing,
		.clean = is_illegal,
		.flush = is_illegal,
		.complete = barrier,
	};
	struct cache cache;

	(void)state;
	offer(0, &good_ops);
	offered[0].present = missing;
	offer(1, &illegal);
	offered[1].line = line_24;
	offer(2, &illegal);
	cache_choose(&cache);
	assert_string_equal(cache.ops.name, "illegal");
	assert_int_equal(cache.line, offered[2].line(NULL));
	assert_int_equal(cache.granule, offered[2].granule(NULL));
	assert_int_equal(cache.clean_ps + cache.flush_ps + cache.barrier_ps, 0);
	assert_non_null(strstr(cache.why, "good: not there; illegal: a line of 24 bytes is none"));
	assert_non_null(strstr(cache.why, "illegal: there, not tried"));
	assert_int_equal(cleans + flushes + barriers, 0);

	offered[0].ops = NULL;
	cache_choose(&cache);
	assert_int_equal(cache.line, 0);
	assert_null(cache.ops.open);
	assert_string_equal(cache.why, CACHE_WHY_NONE);
}

int main(void)
{
#define CASE(function) cmocka_unit_test_setup(function, setup)
	const struct CMUnitTest tests[] = {
		CASE(first_that_works_is_taken),
		CASE(candidate_that_faults_is_passed_over),
		CASE(candidate_that_changes_memory_is_passed_over),
		CASE(candidate_that_is_missing_is_not_tried),
		CASE(impossible_line_is_refused),
		CASE(nothing_works_is_no_error),
		CASE(trapped_operations_are_told_by_their_cost),
		CASE(handlers_and_mask_are_restored),
		CASE(cpus_are_asked_for_and_left_again),
		CASE(malformed_cpus_are_refused),
		CASE(choosing_tries_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
