/* SPDX-License-Identifier: MIT */
/*
 * Everything dies all the time: the daemon by SIGKILL every 200 to 800 ms, clients at random, each
 * replaced at once. Every batch of a client that lives completes exactly once, with the right
 * bytes, and nobody holds more in the end than in the beginning. $CHAOS_SECONDS: how long.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/chaos/chaos.h"
#include "tests/e2e/support.h"

enum { SECONDS = 5, END_MS = 120000 };

static const char config[] = "[daemon]\nallow_simulated = yes\nworkers = 2\n";

struct chaos {
	struct chaos_board *board;
	struct harness_daemon daemon;
	char socket[108];
	pid_t clients[CHAOS_CLIENTS];
	unsigned short seed[3];
	uint32_t started;
	uint64_t daemon_kills, client_kills;
};

static uint32_t between(struct chaos *chaos, uint32_t low, uint32_t high)
{
	return low + (uint32_t)nrand48(chaos->seed) % (high - low + 1);
}

static void start_client(struct chaos *chaos, uint32_t number)
{
	uint32_t seed = ++chaos->started;
	pid_t pid = fork();

	check(pid >= 0);
	if (pid == 0) {
		/* The daemon and this program go first: what they do is what is tried. */
		(void)!nice(5);
		_exit(chaos_client_run(chaos->board, number, seed, chaos->socket));
	}
	chaos->clients[number] = pid;
}

static void describe_problems(const struct chaos *chaos)
{
	for (uint32_t i = 0; i < CHAOS_CLIENTS; i++)
		if (chaos->board->slots[i].problem[0])
			fprintf(stderr, "client %u, manner %u: %s\n", i, i % MANNERS,
				chaos->board->slots[i].problem);
}

/* Kills one that still runs; one that has ended by itself has a problem. */
static void kill_client(struct chaos *chaos, uint32_t number)
{
	int status;

	kill(chaos->clients[number], SIGKILL);
	check_int(waitpid(chaos->clients[number], &status, 0), chaos->clients[number]);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
		describe_problems(chaos);
		fail_case("client %u has ended by itself, status %#x", number, status);
	}
	chaos->client_kills++;
	start_client(chaos, number);
}

static void restart_daemon(struct chaos *chaos)
{
	harness_daemon_kill(&chaos->daemon);
	chaos->daemon_kills++;
	/* Now and then nobody answers for a while. */
	if (between(chaos, 0, 3) == 0)
		usleep(between(chaos, 10, 200) * 1000);
	harness_daemon_start_at(&chaos->daemon, chaos->socket, config, NULL);
}

static void rage(struct chaos *chaos, int64_t milliseconds)
{
	int64_t now = harness_now_ms(), end = now + milliseconds;
	int64_t daemon_dies = now + between(chaos, 200, 800), client_dies = now + 500;

	while ((now = harness_now_ms()) < end) {
		int64_t next = daemon_dies < client_dies ? daemon_dies : client_dies;

		if (next > end)
			next = end;
		if (now < next)
			usleep((useconds_t)(next - now) * 1000);
		if (harness_now_ms() >= client_dies) {
			kill_client(chaos, between(chaos, 0, CHAOS_CLIENTS - 1));
			client_dies = harness_now_ms() + between(chaos, 50, 500);
		}
		if (harness_now_ms() >= daemon_dies) {
			int64_t killed = harness_now_ms();

			restart_daemon(chaos);
			/* From kill to kill; one that takes longer to start is killed once it has.
			 */
			daemon_dies = killed + between(chaos, 200, 800);
		}
	}
}

/* The daemon stays now; the clients drain and look what they hold. */
static void await_clients(struct chaos *chaos)
{
	int64_t end = harness_now_ms() + harness_scaled_ms(END_MS);
	uint32_t ended = 0;

	atomic_store(&chaos->board->stop, true);
	while (ended < CHAOS_CLIENTS) {
		for (uint32_t i = 0; i < CHAOS_CLIENTS; i++)
			if (chaos->clients[i] > 0 &&
			    waitpid(chaos->clients[i], NULL, WNOHANG) == chaos->clients[i]) {
				chaos->clients[i] = 0;
				ended++;
			}
		if (harness_now_ms() > end) {
			describe_problems(chaos);
			fail_case("%u clients do not end", CHAOS_CLIENTS - ended);
		}
		harness_pause();
	}
}

static uint64_t percentile(const struct chaos_board *board, double share)
{
	uint64_t count = 0, seen = 0;

	for (uint32_t i = 0; i < CHAOS_CLIENTS; i++)
		count += board->slots[i].latency.count;
	for (uint32_t bucket = 0; bucket < DMASYNC_HISTOGRAM_BUCKETS; bucket++) {
		for (uint32_t i = 0; i < CHAOS_CLIENTS; i++)
			seen += board->slots[i].latency.bucket[bucket];
		if ((double)seen >= share * (double)count)
			return histogram_bucket_end(bucket);
	}
	return 0;
}

static void report(struct chaos *chaos, int64_t milliseconds)
{
	const struct chaos_board *board = chaos->board;
	uint64_t batches = 0, replayed = 0, in_process = 0, lost = 0, duplicated = 0, failed = 0,
		 wrong = 0;

	for (uint32_t i = 0; i < CHAOS_CLIENTS; i++) {
		const struct chaos_slot *slot = &board->slots[i];

		batches += slot->batches;
		replayed += slot->replayed;
		in_process += slot->in_process;
		lost += slot->lost;
		duplicated += slot->duplicated;
		failed += slot->failed;
		wrong += slot->wrong;
	}
	printf("chaos: %u clients for %.1f s\n", CHAOS_CLIENTS, (double)milliseconds / 1e3);
	printf("  batches     %llu, of them in-process %llu\n", (unsigned long long)batches,
	       (unsigned long long)in_process);
	printf("  kills       %llu of the daemon, %llu of clients\n",
	       (unsigned long long)chaos->daemon_kills, (unsigned long long)chaos->client_kills);
	printf("  replays     %llu\n", (unsigned long long)replayed);
	printf("  lost        %llu\n", (unsigned long long)lost);
	printf("  duplicated  %llu\n", (unsigned long long)duplicated);
	printf("  failed      %llu\n", (unsigned long long)failed);
	printf("  wrong       %llu\n", (unsigned long long)wrong);
	printf("  latency     p50 %.3f ms, p99 %.3f ms, p99.9 %.3f ms\n",
	       (double)percentile(board, 0.5) / 1e6, (double)percentile(board, 0.99) / 1e6,
	       (double)percentile(board, 0.999) / 1e6);
	describe_problems(chaos);
	check_int(lost, 0);
	check_int(duplicated, 0);
	check_int(failed, 0);
	check_int(wrong, 0);
	check(batches > 0);
	check(in_process > 0);
	check(replayed > 0);
}

static void everything_dies(void)
{
	const char *seconds = getenv("CHAOS_SECONDS");
	int64_t milliseconds = (seconds ? strtoll(seconds, NULL, 10) : SECONDS) * 1000;
	struct chaos chaos = {.seed = {1, 2, 3}};
	struct holdings before;

	chaos.board = mmap(NULL, sizeof *chaos.board, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(chaos.board != MAP_FAILED);
	chaos.board->without_sync = getenv("CHAOS_WITHOUT_SYNC") != NULL;
	snprintf(chaos.socket, sizeof chaos.socket, "%s/socket", harness_directory());
	harness_daemon_start_at(&chaos.daemon, chaos.socket, config, NULL);
	before = holdings_of(&chaos.daemon);
	for (uint32_t i = 0; i < CHAOS_CLIENTS; i++)
		start_client(&chaos, i);
	rage(&chaos, milliseconds);
	await_clients(&chaos);
	report(&chaos, milliseconds);
	holdings_await(&chaos.daemon, &before);
	harness_daemon_stop(&chaos.daemon);
	munmap(chaos.board, sizeof *chaos.board);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(everything_dies, .timeout_s = 3600),
};

HARNESS_MAIN(cases)
