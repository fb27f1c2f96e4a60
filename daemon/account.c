/* SPDX-License-Identifier: MIT */
/* The accounts of users and connections. Owns the list of users. Control thread only. */
#include "daemon/account.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "daemon/clock.h"
#include "daemon/log.h"

#define NO_LIMIT UINT64_MAX
#define LOG_PAUSE_NS UINT64_C(10000000000)

/* What a resource is called, and the keys of the configuration that limit it. */
static const struct resource {
	const char *name, *words;
	const char *connection_key, *user_key, *total_key; /* NULL: follows from the machine */
	int error;
	const char *remedy;
} resources[ACCOUNT_RESOURCES] = {
	[ACCOUNT_CONNECTIONS] = {"connections", "connections", NULL, "user_connections",
				 "max_connections", -EUSERS, "close one first"},
	[ACCOUNT_BUFFERS] = {"buffers", "buffers", "max_buffers", "user_buffers", NULL, -ENOSPC,
			     "remove one first"},
	[ACCOUNT_BUFFER_BYTES] = {"buffer_bytes", "bytes of buffers", "max_buffer_bytes",
				  "user_buffer_bytes", "max_total_buffer_bytes", -ENOSPC,
				  "remove buffers first"},
	[ACCOUNT_MAPS] = {"maps", "mappings", NULL, NULL, NULL, -ENOSPC,
			  "remove buffers or queues first"},
	[ACCOUNT_FILES] = {"files", "open files", NULL, "user_files", NULL, -EMFILE,
			   "remove buffers or queues first, or raise LimitNOFILE"},
	[ACCOUNT_QUEUES] = {"queues", "queues", "max_queues", "user_queues", NULL, -ENOSPC,
			    "remove one first"},
	[ACCOUNT_QUEUE_BYTES] = {"queue_bytes", "bytes of queues", NULL, "user_queue_bytes",
				 "max_total_queue_bytes", -ENOSPC,
				 "remove queues first, or make them smaller"},
	[ACCOUNT_BATCHES] = {"batches", "places for batches in flight", NULL, "user_batches", NULL,
			     -ENOSPC, "remove queues first, or make them less deep"},
	[ACCOUNT_REQUESTS] = {"requests", "unanswered requests", "max_requests", "user_requests",
			      NULL, -EBUSY, "wait for answers first"},
	[ACCOUNT_ANSWERS] = {"answers", "unread answers", NULL, NULL, NULL, -ENOBUFS,
			     "read them first"},
	[ACCOUNT_WATCHES] = {"watches", "streams of batch records", NULL, NULL, NULL, -ENOSPC,
			     "end one first"},
};

const char *account_name(enum account_resource resource)
{
	return resources[resource].name;
}

/* ---- limits ---- */

/* 0 in the configuration: not set. */
static uint64_t set_or_none(uint64_t value)
{
	return value ? value : NO_LIMIT;
}

void accounts_set_limits(struct accounts *accounts, const struct config *config,
			 const struct limits_machine *machine)
{
	struct account_limits *limits = &accounts->limits;

	for (int i = 0; i < ACCOUNT_RESOURCES; i++)
		limits->connection[i] = limits->user[i] = limits->total[i] = NO_LIMIT;
	limits->connection[ACCOUNT_BUFFERS] = config->max_buffers;
	limits->connection[ACCOUNT_BUFFER_BYTES] = config->max_buffer_bytes;
	limits->connection[ACCOUNT_QUEUES] = config->max_queues;
	limits->connection[ACCOUNT_REQUESTS] = config->max_requests;

	limits->user[ACCOUNT_CONNECTIONS] = set_or_none(config->user_connections);
	limits->user[ACCOUNT_BUFFERS] = set_or_none(config->user_buffers);
	limits->user[ACCOUNT_BUFFER_BYTES] = set_or_none(config->user_buffer_bytes);
	limits->user[ACCOUNT_FILES] = set_or_none(config->user_files);
	limits->user[ACCOUNT_QUEUES] = set_or_none(config->user_queues);
	limits->user[ACCOUNT_QUEUE_BYTES] = set_or_none(config->user_queue_bytes);
	limits->user[ACCOUNT_BATCHES] = set_or_none(config->user_batches);
	limits->user[ACCOUNT_REQUESTS] = set_or_none(config->user_requests);

	limits->total[ACCOUNT_CONNECTIONS] = config->max_connections;
	limits->total[ACCOUNT_BUFFER_BYTES] = config->max_total_buffer_bytes;
	limits->total[ACCOUNT_QUEUE_BYTES] = config->max_total_queue_bytes;
	limits->total[ACCOUNT_FILES] = limits_client_files(config, machine);
	limits->total[ACCOUNT_MAPS] = limits_client_maps(machine);
	limits->total[ACCOUNT_REQUESTS] = limits->total[ACCOUNT_ANSWERS] = limits_messages(machine);
	limits->total[ACCOUNT_WATCHES] = LIMITS_WATCHES;
}

/* Half of what the others leave, rounded up: the last place is for whoever asks first. */
static uint64_t user_share(const struct accounts *accounts, const struct account_user *user,
			   enum account_resource resource)
{
	uint64_t total = accounts->limits.total[resource];
	uint64_t others = accounts->used[resource] - user->used[resource];
	uint64_t left = total > others ? total - others : 0;

	if (accounts->limits.user[resource] != NO_LIMIT || total == NO_LIMIT || user->trusted)
		return NO_LIMIT;
	return left / 2 + left % 2;
}

static bool fits(uint64_t used, uint64_t amount, uint64_t limit)
{
	return amount <= limit && used <= limit - amount;
}

__attribute__((format(printf, 5, 6))) static void refuse(struct account_refusal *ret,
							 enum account_resource resource,
							 uint64_t used, uint64_t limit,
							 const char *format, ...)
{
	va_list arguments;

	ret->resource = resource;
	ret->error = resources[resource].error;
	ret->used = used;
	ret->limit = limit;
	va_start(arguments, format);
	vsnprintf(ret->text, sizeof ret->text, format, arguments);
	va_end(arguments);
}

static void refuse_connection(struct account_refusal *ret, enum account_resource resource,
			      uint64_t used, uint64_t limit)
{
	const struct resource *what = &resources[resource];

	refuse(ret, resource, used, limit,
	       "this connection has %llu %s, %llu more are asked for, and %s=%llu; %s",
	       (unsigned long long)used, what->words, (unsigned long long)ret->amount,
	       what->connection_key, (unsigned long long)limit, what->remedy);
}

static void refuse_user(struct account_refusal *ret, enum account_resource resource, uid_t uid,
			uint64_t used, uint64_t limit)
{
	const struct resource *what = &resources[resource];

	refuse(ret, resource, used, limit,
	       "user %u has %llu %s, %llu more are asked for, and %s=%llu; %s", (unsigned)uid,
	       (unsigned long long)used, what->words, (unsigned long long)ret->amount,
	       what->user_key, (unsigned long long)limit, what->remedy);
}

static void refuse_share(struct account_refusal *ret, enum account_resource resource, uid_t uid,
			 uint64_t used, uint64_t limit)
{
	const struct resource *what = &resources[resource];

	refuse(ret, resource, used, limit,
	       "user %u has %llu %s, %llu more are asked for, and its share is %llu: half of what "
	       "other users leave; %s",
	       (unsigned)uid, (unsigned long long)used, what->words,
	       (unsigned long long)ret->amount, (unsigned long long)limit, what->remedy);
}

static void refuse_total(struct account_refusal *ret, enum account_resource resource, uint64_t used,
			 uint64_t limit)
{
	const struct resource *what = &resources[resource];

	if (what->total_key)
		refuse(ret, resource, used, limit,
		       "the daemon serves %llu %s, %llu more are asked for, and %s=%llu; try again "
		       "later, or raise it in the daemon's configuration",
		       (unsigned long long)used, what->words, (unsigned long long)ret->amount,
		       what->total_key, (unsigned long long)limit);
	else
		refuse(ret, resource, used, limit,
		       "the daemon has %llu %s for all clients, %llu more are asked for, and this "
		       "machine allows it %llu; try again later",
		       (unsigned long long)used, what->words, (unsigned long long)ret->amount,
		       (unsigned long long)limit);
}

static bool user_allows(const struct accounts *accounts, const struct account_user *user,
			enum account_resource resource, struct account_refusal *ret)
{
	uint64_t used = user->used[resource], limit = accounts->limits.user[resource];

	if (!fits(used, ret->amount, limit)) {
		refuse_user(ret, resource, user->uid, used, limit);
		return false;
	}
	if (!fits(accounts->used[resource], ret->amount, accounts->limits.total[resource])) {
		refuse_total(ret, resource, accounts->used[resource],
			     accounts->limits.total[resource]);
		return false;
	}
	limit = user_share(accounts, user, resource);
	if (!fits(used, ret->amount, limit)) {
		refuse_share(ret, resource, user->uid, used, limit);
		return false;
	}
	return true;
}

static bool account_allows(const struct accounts *accounts, const struct account *account,
			   enum account_resource resource, struct account_refusal *ret)
{
	uint64_t used = account->used[resource], limit = accounts->limits.connection[resource];

	if (!fits(used, ret->amount, limit)) {
		refuse_connection(ret, resource, used, limit);
		return false;
	}
	return user_allows(accounts, account->user, resource, ret);
}

/* ---- charges ---- */

/* Of the daemon, never of a client: the end in a debug build (b_ndebug), a figure in the others. */
static void mistake(struct accounts *accounts, const char *what)
{
	accounts->errors++;
	log_error("a mistake of the daemon's accounts: %s", what);
	assert(accounts->errors == 0);
}

int account_charge(struct accounts *accounts, struct account *account,
		   const struct account_cost *cost, struct account_refusal *ret)
{
	for (int i = 0; i < ACCOUNT_RESOURCES; i++) {
		ret->amount = cost->amount[i];
		if (ret->amount &&
		    !account_allows(accounts, account, (enum account_resource)i, ret)) {
			account->user->refused++;
			accounts->refused++;
			return ret->error;
		}
	}
	account_force(accounts, account, cost);
	return 0;
}

void account_force(struct accounts *accounts, struct account *account,
		   const struct account_cost *cost)
{
	for (int i = 0; i < ACCOUNT_RESOURCES; i++) {
		account->used[i] += cost->amount[i];
		account->user->used[i] += cost->amount[i];
		accounts->used[i] += cost->amount[i];
	}
}

void account_uncharge(struct accounts *accounts, struct account *account,
		      const struct account_cost *cost)
{
	for (int i = 0; i < ACCOUNT_RESOURCES; i++) {
		uint64_t amount = cost->amount[i];

		if (amount > account->used[i]) {
			mistake(accounts, "more is taken back than was charged");
			amount = account->used[i];
		}
		account->used[i] -= amount;
		account->user->used[i] -= amount;
		accounts->used[i] -= amount;
	}
}

bool account_over(const struct accounts *accounts, const struct account *account,
		  enum account_resource resource, struct account_refusal *ret)
{
	ret->amount = 0;
	return !user_allows(accounts, account->user, resource, ret);
}

bool accounts_over(const struct accounts *accounts, enum account_resource resource)
{
	return accounts->used[resource] > accounts->limits.total[resource];
}

/* ---- users ---- */

static struct account_user *find_user(struct accounts *accounts, uid_t uid)
{
	struct account_user *before = NULL, *user = accounts->users;

	for (; user && user->uid < uid; user = user->next)
		before = user;
	if (user && user->uid == uid)
		return user;

	struct account_user *fresh = calloc(1, sizeof *fresh);

	if (!fresh)
		return NULL;
	fresh->uid = uid;
	/* Who runs the daemon could take it apart anyway, and so could root. */
	fresh->trusted = uid == 0 || uid == geteuid();
	fresh->previous = before;
	fresh->next = user;
	if (before)
		before->next = fresh;
	else
		accounts->users = fresh;
	if (user)
		user->previous = fresh;
	accounts->user_count++;
	return fresh;
}

int account_open(struct accounts *accounts, uid_t uid, struct account *account)
{
	struct account_user *user = find_user(accounts, uid);

	if (!user)
		return -ENOMEM;
	user->references++;
	*account = (struct account){.user = user};
	return 0;
}

/* What is left is taken back, so that a mistake costs the user's next connection nothing. */
static void settle(struct accounts *accounts, struct account *account)
{
	for (int i = 0; i < ACCOUNT_RESOURCES; i++) {
		if (!account->used[i])
			continue;
		account->user->used[i] -= account->used[i];
		accounts->used[i] -= account->used[i];
		account->used[i] = 0;
		mistake(accounts, "a connection has gone and not all of it was taken back");
	}
}

static bool all_zero(const uint64_t used[ACCOUNT_RESOURCES])
{
	for (int i = 0; i < ACCOUNT_RESOURCES; i++)
		if (used[i])
			return false;
	return true;
}

void account_close(struct accounts *accounts, struct account *account)
{
	struct account_user *user = account->user;

	if (!user)
		return;
	settle(accounts, account);
	account->user = NULL;
	if (--user->references)
		return;
	if (!all_zero(user->used))
		mistake(accounts, "a user has gone and its sums are not zero");
	if (user->previous)
		user->previous->next = user->next;
	else
		accounts->users = user->next;
	if (user->next)
		user->next->previous = user->previous;
	free(user);
	if (--accounts->user_count == 0 && !all_zero(accounts->used))
		mistake(accounts, "everybody has gone and the sums are not zero");
}

/* ---- the log ---- */

void account_log(struct account *account, pid_t pid, const struct account_refusal *refusal)
{
	struct account_user *user = account->user;
	char process[32], uid[32], resource[48], used[48], limit[48], more[64] = "";
	const char *fields[] = {process, uid, resource, used, limit, NULL};
	uint64_t now = clock_ns();

	if (user->logged_ns && now - user->logged_ns < LOG_PAUSE_NS) {
		user->log_suppressed++;
		return;
	}
	if (user->log_suppressed)
		snprintf(more, sizeof more, " (%llu more were not logged)",
			 (unsigned long long)user->log_suppressed);
	user->logged_ns = now;
	user->log_suppressed = 0;
	snprintf(process, sizeof process, "DMASYNC_PID=%d", (int)pid);
	snprintf(uid, sizeof uid, "DMASYNC_UID=%u", (unsigned)user->uid);
	snprintf(resource, sizeof resource, "DMASYNC_RESOURCE=%s", account_name(refusal->resource));
	snprintf(used, sizeof used, "DMASYNC_USED=%llu", (unsigned long long)refusal->used);
	snprintf(limit, sizeof limit, "DMASYNC_LIMIT=%llu", (unsigned long long)refusal->limit);
	log_fields(LOG_NOTICE, fields, "process %d of user %u was refused %s%s: %s", (int)pid,
		   (unsigned)user->uid, resources[refusal->resource].words, more, refusal->text);
}
