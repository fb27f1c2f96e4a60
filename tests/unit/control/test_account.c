/* SPDX-License-Identifier: MIT */
/* The accounts: limits at N and one more, the share of a user, and sums that end at zero. */
#include "daemon/account.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Neither root nor who runs the test. */
#define HONEST 70000u
#define GREEDY 70001u

static const struct limits_machine machine = {
	.files = 4096, .maps = 65530, .memory = UINT64_C(8) << 30};

struct fixture {
	struct config config;
	struct accounts accounts;
};

static int setup(void **state)
{
	static struct fixture fixture;

	memset(&fixture, 0, sizeof fixture);
	assert_int_equal(config_defaults(&fixture.config), 0);
	accounts_set_limits(&fixture.accounts, &fixture.config, &machine);
	*state = &fixture;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *fixture = *state;

	assert_int_equal(fixture->accounts.user_count, 0);
	assert_null(fixture->accounts.users);
	assert_true(fixture->accounts.errors == 0);
	for (int i = 0; i < ACCOUNT_RESOURCES; i++)
		assert_true(fixture->accounts.used[i] == 0);
	config_clear(&fixture->config);
	return 0;
}

static struct account_cost one_of(int resource, uint64_t amount)
{
	struct account_cost cost = {0};

	cost.amount[resource] = amount;
	return cost;
}

static void refused(struct accounts *accounts, struct account *account, int resource,
		    uint64_t amount, int error, const char *text)
{
	struct account_refusal refusal = {0};
	struct account_cost cost = one_of(resource, amount);
	uint64_t before = accounts->refused;

	assert_int_equal(account_charge(accounts, account, &cost, &refusal), error);
	assert_int_equal(refusal.resource, resource);
	assert_non_null(strstr(refusal.text, text));
	assert_true(accounts->refused == before + 1);
}

static void charge(struct accounts *accounts, struct account *account, int resource,
		   uint64_t amount)
{
	struct account_refusal refusal;
	struct account_cost cost = one_of(resource, amount);

	if (account_charge(accounts, account, &cost, &refusal) < 0)
		fail_msg("%s", refusal.text);
}

static void uncharge(struct accounts *accounts, struct account *account, int resource,
		     uint64_t amount)
{
	struct account_cost cost = one_of(resource, amount);

	account_uncharge(accounts, account, &cost);
}

/* Exactly the limit, whole and in single steps; one more is refused and changes nothing. */
static void test_connection_limits(void **state)
{
	struct fixture *fixture = *state;
	struct accounts *accounts = &fixture->accounts;
	static const struct {
		int resource, error;
		const char *text;
	} rows[] = {
		{ACCOUNT_BUFFERS, -ENOSPC, "max_buffers=256"},
		{ACCOUNT_BUFFER_BYTES, -ENOSPC, "max_buffer_bytes=1073741824"},
		{ACCOUNT_QUEUES, -ENOSPC, "max_queues=16"},
		{ACCOUNT_REQUESTS, -EBUSY, "max_requests=64"},
	};

	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		uint64_t limit = accounts->limits.connection[rows[i].resource];
		struct account account, other;

		assert_int_equal(account_open(accounts, HONEST, &account), 0);
		assert_int_equal(account_open(accounts, HONEST, &other), 0);
		refused(accounts, &account, rows[i].resource, limit + 1, rows[i].error,
			rows[i].text);
		assert_true(account.used[rows[i].resource] == 0);
		charge(accounts, &account, rows[i].resource, limit);
		refused(accounts, &account, rows[i].resource, 1, rows[i].error, rows[i].text);
		uncharge(accounts, &account, rows[i].resource, 1);
		charge(accounts, &account, rows[i].resource, 1);
		charge(accounts, &other, rows[i].resource, 1); /* a limit of its own */
		assert_true(account.user->used[rows[i].resource] == limit + 1);
		assert_true(accounts->used[rows[i].resource] == limit + 1);
		uncharge(accounts, &other, rows[i].resource, 1);
		uncharge(accounts, &account, rows[i].resource, limit);
		account_close(accounts, &other);
		account_close(accounts, &account);
	}
}

/* What is set for a user holds for all its connections, and for root too. */
static void test_user_limits(void **state)
{
	struct fixture *fixture = *state;
	struct accounts *accounts = &fixture->accounts;
	struct config *config = &fixture->config;
	static const struct {
		int resource, error;
		uint64_t limit;
		const char *text;
	} rows[] = {
		{ACCOUNT_CONNECTIONS, -EUSERS, 3, "user_connections=3"},
		{ACCOUNT_BUFFERS, -ENOSPC, 5, "user_buffers=5"},
		{ACCOUNT_BUFFER_BYTES, -ENOSPC, 65536, "user_buffer_bytes=65536"},
		{ACCOUNT_QUEUES, -ENOSPC, 7, "user_queues=7"},
		{ACCOUNT_QUEUE_BYTES, -ENOSPC, 99999, "user_queue_bytes=99999"},
		{ACCOUNT_FILES, -EMFILE, 11, "user_files=11"},
		{ACCOUNT_BATCHES, -ENOSPC, 64, "user_batches=64"},
		{ACCOUNT_REQUESTS, -EBUSY, 13, "user_requests=13"},
	};

	config->user_connections = 3;
	config->user_buffers = 5;
	config->user_buffer_bytes = 65536;
	config->user_queues = 7;
	config->user_queue_bytes = 99999;
	config->user_files = 11;
	config->user_batches = 64;
	config->user_requests = 13;
	accounts_set_limits(accounts, config, &machine);
	for (uid_t uid = 0; uid <= HONEST; uid += HONEST) {
		for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
			struct account first, second;

			assert_int_equal(account_open(accounts, uid, &first), 0);
			assert_int_equal(account_open(accounts, uid, &second), 0);
			charge(accounts, &first, rows[i].resource, rows[i].limit - 1);
			refused(accounts, &second, rows[i].resource, 2, rows[i].error,
				rows[i].text);
			charge(accounts, &second, rows[i].resource, 1);
			refused(accounts, &first, rows[i].resource, 1, rows[i].error, rows[i].text);
			uncharge(accounts, &first, rows[i].resource, rows[i].limit - 1);
			uncharge(accounts, &second, rows[i].resource, 1);
			account_close(accounts, &first);
			account_close(accounts, &second);
		}
	}
}

/* All of a cost or nothing, whichever part of it does not fit. */
static void test_all_or_nothing(void **state)
{
	struct accounts *accounts = &((struct fixture *)*state)->accounts;
	struct account account;
	struct account_refusal refusal;

	assert_int_equal(account_open(accounts, HONEST, &account), 0);
	for (int missing = 0; missing < ACCOUNT_RESOURCES; missing++) {
		struct account_cost cost;

		for (int i = 0; i < ACCOUNT_RESOURCES; i++)
			cost.amount[i] = 1;
		assert_int_equal(account_charge(accounts, &account, &cost, &refusal), 0);
		account_uncharge(accounts, &account, &cost);
		cost.amount[missing] = UINT64_MAX;
		if (accounts->limits.total[missing] == UINT64_MAX &&
		    accounts->limits.connection[missing] == UINT64_MAX)
			continue;
		assert_true(account_charge(accounts, &account, &cost, &refusal) < 0);
		assert_int_equal(refusal.resource, missing);
		for (int i = 0; i < ACCOUNT_RESOURCES; i++)
			assert_true(account.used[i] == 0 && accounts->used[i] == 0);
	}
	account_close(accounts, &account);
}

/* Amounts and sums near the end of the number: refused, nothing wraps. */
static void test_near_the_maximum(void **state)
{
	static const uint64_t amounts[] = {UINT64_MAX, UINT64_MAX - 1, UINT64_MAX / 2 + 1,
					   (UINT64_C(1) << 63) - 1};
	struct accounts *accounts = &((struct fixture *)*state)->accounts;
	struct account account;

	assert_int_equal(account_open(accounts, 0, &account), 0);
	charge(accounts, &account, ACCOUNT_BUFFER_BYTES, 1);
	for (size_t i = 0; i < sizeof amounts / sizeof amounts[0]; i++)
		refused(accounts, &account, ACCOUNT_BUFFER_BYTES, amounts[i], -ENOSPC,
			"max_buffer_bytes");
	assert_true(account.used[ACCOUNT_BUFFER_BYTES] == 1);
	uncharge(accounts, &account, ACCOUNT_BUFFER_BYTES, 1);
	account_close(accounts, &account);
}

static uint64_t take_all(struct accounts *accounts, struct account *account, int resource)
{
	struct account_cost cost = one_of(resource, 1);
	struct account_refusal refusal;
	uint64_t count = 0;

	while (account_charge(accounts, account, &cost, &refusal) == 0)
		count++;
	return count;
}

/* Half of what the others leave, rounded up: 2048 of 4096, then 1024, ..., and never nothing. */
static void test_shares(void **state)
{
	struct accounts *accounts = &((struct fixture *)*state)->accounts;
	struct account accounts_of[13];
	uint64_t total = accounts->limits.total[ACCOUNT_CONNECTIONS], left = total;

	assert_true(total == 4096);
	for (uid_t i = 0; i < 13; i++) {
		assert_int_equal(account_open(accounts, GREEDY + i, &accounts_of[i]), 0);
		uint64_t got = take_all(accounts, &accounts_of[i], ACCOUNT_CONNECTIONS);

		assert_true(got == left / 2 + left % 2);
		assert_true(got > 0);
		left -= got;
	}
	assert_true(left == 0);
	refused(accounts, &accounts_of[0], ACCOUNT_CONNECTIONS, 1, -EUSERS, "max_connections=4096");
	/* When one goes, the others may have half of what is left to them, each. */
	uncharge(accounts, &accounts_of[0], ACCOUNT_CONNECTIONS, 2048);
	refused(accounts, &accounts_of[1], ACCOUNT_CONNECTIONS, 2000, -EUSERS, "its share is");
	charge(accounts, &accounts_of[1], ACCOUNT_CONNECTIONS, 512);
	refused(accounts, &accounts_of[1], ACCOUNT_CONNECTIONS, 1, -EUSERS, "its share is 1536");
	uncharge(accounts, &accounts_of[1], ACCOUNT_CONNECTIONS, 512);
	for (uid_t i = 0; i < 13; i++) {
		uncharge(accounts, &accounts_of[i], ACCOUNT_CONNECTIONS,
			 accounts_of[i].used[ACCOUNT_CONNECTIONS]);
		account_close(accounts, &accounts_of[i]);
	}
}

/* Root and who runs the daemon have no share, but the whole is the limit. */
static void test_trusted(void **state)
{
	struct accounts *accounts = &((struct fixture *)*state)->accounts;
	const uid_t uids[] = {0, geteuid()};

	for (size_t i = 0; i < 2; i++) {
		struct account account;

		assert_int_equal(account_open(accounts, uids[i], &account), 0);
		assert_true(take_all(accounts, &account, ACCOUNT_CONNECTIONS) == 4096);
		uncharge(accounts, &account, ACCOUNT_CONNECTIONS, 4096);
		account_close(accounts, &account);
	}
}

/* A thousand users with two connections each: one more user gets what it wants. */
static void test_many_users(void **state)
{
	static struct account many[1000];
	struct accounts *accounts = &((struct fixture *)*state)->accounts;
	struct account honest;

	for (uid_t i = 0; i < 1000; i++) { /* in an order that is not that of the list */
		assert_int_equal(account_open(accounts, 100000 + i * 7919 % 1000, &many[i]), 0);
		charge(accounts, &many[i], ACCOUNT_CONNECTIONS, 2);
		charge(accounts, &many[i], ACCOUNT_FILES, 3);
	}
	assert_int_equal(accounts->user_count, 1000);
	for (const struct account_user *user = accounts->users; user->next; user = user->next)
		assert_true(user->uid < user->next->uid && user->next->previous == user);
	assert_int_equal(account_open(accounts, HONEST, &honest), 0);
	charge(accounts, &honest, ACCOUNT_CONNECTIONS, 16);
	charge(accounts, &honest, ACCOUNT_FILES, 300);
	for (uid_t i = 0; i < 1000; i++) {
		uncharge(accounts, &many[i], ACCOUNT_CONNECTIONS, 2);
		uncharge(accounts, &many[i], ACCOUNT_FILES, 3);
		account_close(accounts, &many[i]);
	}
	uncharge(accounts, &honest, ACCOUNT_CONNECTIONS, 16);
	uncharge(accounts, &honest, ACCOUNT_FILES, 300);
	account_close(accounts, &honest);
}

/* What is there already is counted beyond every limit, and told. */
static void test_forced(void **state)
{
	struct accounts *accounts = &((struct fixture *)*state)->accounts;
	uint64_t total = accounts->limits.total[ACCOUNT_FILES];
	struct account honest, greedy;
	struct account_refusal refusal;
	struct account_cost half = one_of(ACCOUNT_FILES, total / 2 + 2);

	assert_int_equal(account_open(accounts, HONEST, &honest), 0);
	assert_int_equal(account_open(accounts, GREEDY, &greedy), 0);
	charge(accounts, &greedy, ACCOUNT_FILES, total / 2);
	assert_false(account_over(accounts, &greedy, ACCOUNT_FILES, &refusal));
	account_force(accounts, &greedy, &half);
	assert_true(account_over(accounts, &greedy, ACCOUNT_FILES, &refusal));
	assert_int_equal(refusal.error, -EMFILE);
	assert_true(accounts_over(accounts, ACCOUNT_FILES));
	assert_true(account_over(accounts, &honest, ACCOUNT_FILES, &refusal));
	uncharge(accounts, &greedy, ACCOUNT_FILES, total / 2 + 2);
	assert_false(accounts_over(accounts, ACCOUNT_FILES));
	assert_false(account_over(accounts, &honest, ACCOUNT_FILES, &refusal));
	uncharge(accounts, &greedy, ACCOUNT_FILES, total / 2);
	account_close(accounts, &honest);
	account_close(accounts, &greedy);
}

/* A hundred thousand connections of fifty users come and go, refused or not: the sums are right. */
static void test_sums(void **state)
{
	static struct account open[64];
	struct accounts *accounts = &((struct fixture *)*state)->accounts;
	uint64_t random = 1, sum[ACCOUNT_RESOURCES] = {0}, refusals = 0;

	for (int i = 0; i < 100000; i++) {
		random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		struct account *account = &open[random >> 58];
		struct account_cost cost;

		if (account->user) {
			struct account_cost all;

			memcpy(all.amount, account->used, sizeof all.amount);
			account_uncharge(accounts, account, &all);
			for (int j = 0; j < ACCOUNT_RESOURCES; j++)
				sum[j] -= all.amount[j];
			account_close(accounts, account);
			continue;
		}
		assert_int_equal(
			account_open(accounts, 80000 + (uid_t)(random >> 32) % 50, account), 0);
		for (int j = 0; j < ACCOUNT_RESOURCES; j++)
			cost.amount[j] = (random >> (j * 4)) % 300;
		struct account_refusal refusal;
		if (account_charge(accounts, account, &cost, &refusal) < 0) {
			refusals++;
			continue;
		}
		for (int j = 0; j < ACCOUNT_RESOURCES; j++)
			sum[j] += cost.amount[j];
		for (int j = 0; j < ACCOUNT_RESOURCES; j++)
			assert_true(accounts->used[j] == sum[j]);
	}
	assert_true(refusals > 0 && refusals == accounts->refused);
	for (size_t i = 0; i < 64; i++) {
		struct account_cost all;

		if (!open[i].user)
			continue;
		memcpy(all.amount, open[i].used, sizeof all.amount);
		account_uncharge(accounts, &open[i], &all);
		account_close(accounts, &open[i]);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_connection_limits), TEST(test_user_limits), TEST(test_all_or_nothing),
		TEST(test_near_the_maximum),  TEST(test_shares),      TEST(test_trusted),
		TEST(test_many_users),	      TEST(test_forced),      TEST(test_sums),
	};

	return cmocka_run_group_tests_name("account", tests, NULL, NULL);
}
