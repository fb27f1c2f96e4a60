/* SPDX-License-Identifier: MIT */
/*
 * Connecting to nobody, to somebody silent, to somebody who talks nonsense: the error, its
 * sentence, and that it comes back at all.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/client/fake.h"

static int try_connect(const char *path, uint32_t timeout_ms, char *text, size_t size)
{
	struct dmasync_connect_params params;
	struct dmasync *ds = (void *)1;
	int r;

	dmasync_connect_params_init(&params);
	params.socket = path;
	params.timeout_ms = timeout_ms;
	params.error_text = text;
	params.error_text_size = size;
	r = dmasync_connect_with(&params, &ds);
	if (r == 0)
		dmasync_disconnect(ds);
	else
		assert_ptr_equal(ds, (void *)1);
	return r;
}

static void assert_says(const char *text, const char *words)
{
	if (!strstr(text, words))
		fail_msg("\"%s\" does not say \"%s\"", text, words);
}

static void no_socket(void **state)
{
	char text[256] = "";

	(void)state;
	assert_int_equal(try_connect("/nowhere/dmasync", 1000, text, sizeof text), -ENOENT);
	assert_says(text, "/nowhere/dmasync");
	assert_says(text, "systemctl start dmasyncd.socket");
	/* A text that does not fit is cut and ends. */
	assert_int_equal(try_connect("/nowhere/dmasync", 1000, text, 10), -ENOENT);
	assert_int_equal(strlen(text), 9);
	assert_int_equal(try_connect("/nowhere/dmasync", 1000, NULL, 0), -ENOENT);
}

static void nobody_listens(void **state)
{
	struct fake *fake = fake_start();
	char text[256] = "";

	(void)state;
	fake_die(fake);
	close(fake->listen_fd);
	assert_int_equal(try_connect(fake->path, 1000, text, sizeof text), -ECONNREFUSED);
	assert_says(text, fake->path);
	assert_says(text, "systemctl start dmasyncd.socket");
	fake->listen_fd = dup(fake->stop_fd);
	fake_stop(fake);
}

static void path_too_long(void **state)
{
	char path[200], text[512] = "";

	(void)state;
	memset(path, 'p', sizeof path);
	path[sizeof path - 1] = '\0';
	assert_int_equal(try_connect(path, 1000, text, sizeof text), -ENAMETOOLONG);
	assert_says(text, "107");
}

static void wrong_kind_of_socket(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char directory[] = "/tmp/dmasync-test-XXXXXX", text[512] = "";
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)state;
	assert_non_null(mkdtemp(directory));
	snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", directory);
	assert_int_equal(bind(fd, (void *)&address, sizeof address), 0);
	assert_int_equal(listen(fd, 1), 0);
	assert_int_equal(try_connect(address.sun_path, 1000, text, sizeof text), -EPROTOTYPE);
	assert_says(text, "SOCK_SEQPACKET");
	close(fd);
	unlink(address.sun_path);
	rmdir(directory);
}

/* A user who may not: as root nothing is forbidden, so a child becomes nobody. */
static void no_permission(void **state)
{
	struct fake *fake = fake_start();
	int status = 0;
	pid_t child;

	(void)state;
	chmod(fake->directory, 0755);
	chmod(fake->path, 0600);
	child = fork();
	if (child == 0) {
		char text[512] = "";

		if (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0)
			_exit(77);
		if (geteuid() != 65534)
			_exit(77);
		if (try_connect(fake->path, 1000, text, sizeof text) != -EACCES)
			_exit(1);
		_exit(strstr(text, "group dmasync") && strstr(text, fake->path) ? 0 : 2);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	fake_stop(fake);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_int_equal(status, 0);
}

/* A socket unit whose daemon cannot start: the backlog takes us, nobody ever accepts. */
static void accepts_and_never_answers(void **state)
{
	struct fake *fake = fake_start();
	char text[256] = "";

	(void)state;
	fake_set(fake, DMASYNC_OP_HELLO, FAKE_SILENT);
	assert_int_equal(try_connect(fake->path, 50, text, sizeof text), -ETIMEDOUT);
	assert_says(text, "50 ms");
	assert_says(text, fake->path);
	fake_stop(fake);
}

static void full_backlog(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct fake *fake = fake_start();
	char text[256] = "";
	int fds[32], n = 0;

	(void)state;
	/* Nobody accepts any more; fill the backlog. */
	fake_die(fake);
	strcpy(address.sun_path, fake->path);
	for (; n < 32; n++) {
		fds[n] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
		if (connect(fds[n], (void *)&address, sizeof address) < 0)
			break;
	}
	assert_true(n < 32);
	assert_int_equal(errno, EAGAIN);
	assert_int_equal(try_connect(fake->path, 50, text, sizeof text), -ETIMEDOUT);
	assert_says(text, "no more connections");
	for (; n >= 0; n--)
		close(fds[n]);
	fake_stop(fake);
}

static void nonsense(void **state)
{
	static const struct {
		enum fake_mode mode;
		int error;
	} cases[] = {
		{FAKE_SHORT, -EPROTO},	       {FAKE_LONG, -EPROTO},
		{FAKE_HEADER_ONLY, -EPROTO},   {FAKE_LYING_SIZE, -EPROTO},
		{FAKE_WRONG_OPCODE, -EPROTO},  {FAKE_WRONG_FLAGS, -EPROTO},
		{FAKE_FUTURE_COOKIE, -EPROTO}, {FAKE_EXTRA_FD, -EPROTO},
		{FAKE_MANY_FDS, -EPROTO},      {FAKE_BAD_ERRNO, -EPROTO},
		{FAKE_BAD_BODY, -EPROTO},      {FAKE_HANG_UP, -ECONNRESET},
		{FAKE_REFUSE, -ENOSPC},	       {FAKE_GOOD, 0},
	};
	struct fake *fake = fake_start();

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char text[256] = "";

		fake_set(fake, DMASYNC_OP_HELLO, cases[i].mode);
		assert_int_equal(try_connect(fake->path, 5000, text, sizeof text), cases[i].error);
		assert_true(cases[i].error == 0 || text[0]);
	}
	fake_stop(fake);
}

static void versions_and_features(void **state)
{
	struct fake *fake = fake_start();
	struct dmasync_connect_params params;
	struct dmasync *ds = NULL;
	char text[256] = "";

	(void)state;
	atomic_store(&fake->version, 2);
	assert_int_equal(try_connect(fake->path, 5000, text, sizeof text), -EPROTO);
	assert_says(text, "version 2");
	atomic_store(&fake->version, 1);

	dmasync_connect_params_init(&params);
	params.socket = fake->path;
	params.features_required = DMASYNC_FEATURE_DIRECT | DMASYNC_FEATURE_STRIDED;
	params.error_text = text;
	params.error_text_size = sizeof text;
	assert_int_equal(dmasync_connect_with(&params, &ds), -EOPNOTSUPP);
	assert_says(text, "0x8");
	assert_true(fake->last_hello.features_required == params.features_required);
	params.features_required = DMASYNC_FEATURE_STRIDED;
	params.name = "a name of more than thirty-one bytes, which is cut";
	assert_int_equal(dmasync_connect_with(&params, &ds), 0);
	assert_string_equal(fake->last_hello.name, "a name of more than thirty-one ");
	dmasync_disconnect(ds);
	fake_stop(fake);
}

static void environment(void **state)
{
	struct fake *fake = fake_start();
	struct dmasync *ds = NULL;

	(void)state;
	setenv("DMASYNC_SOCKET", fake->path, 1);
	assert_int_equal(dmasync_connect(NULL, 0, &ds), 0);
	assert_string_equal(fake->last_hello.name, program_invocation_short_name);
	dmasync_disconnect(ds);
	setenv("DMASYNC_SOCKET", "/nowhere/else", 1);
	assert_int_equal(dmasync_connect(NULL, 0, &ds), -ENOENT);
	/* What the caller says goes before the environment. */
	assert_int_equal(dmasync_connect(fake->path, 0, &ds), 0);
	dmasync_disconnect(ds);
	unsetenv("DMASYNC_SOCKET");
	fake_stop(fake);
}

static void parameters(void **state)
{
	struct fake *fake = fake_start();
	struct {
		struct dmasync_connect_params params;
		char later[16];
	} larger;
	struct dmasync *ds = NULL;

	(void)state;
	memset(&larger, 0, sizeof larger);
	dmasync_connect_params_init(&larger.params);
	larger.params.socket = fake->path;
	larger.params.size = sizeof larger;
	assert_int_equal(dmasync_connect_with(&larger.params, &ds), 0);
	dmasync_disconnect(ds);
	larger.later[15] = 1;
	assert_int_equal(dmasync_connect_with(&larger.params, &ds), -E2BIG);
	larger.params.size = sizeof larger - 1;
	assert_int_equal(dmasync_connect_with(&larger.params, &ds), 0);
	dmasync_disconnect(ds);

	larger.params.size = offsetof(struct dmasync_connect_params, features_required);
	larger.params.features_required = UINT64_MAX; /* behind the end: not looked at */
	assert_int_equal(dmasync_connect_with(&larger.params, &ds), 0);
	dmasync_disconnect(ds);
	larger.params.size = 7;
	assert_int_equal(dmasync_connect_with(&larger.params, &ds), -EINVAL);
	larger.params.size = 0x7f7f7f7f;
	assert_int_equal(dmasync_connect_with(&larger.params, &ds), -EINVAL);

	dmasync_connect_params_init(&larger.params);
	larger.params.socket = fake->path;
	larger.params.reserved = 1;
	assert_int_equal(dmasync_connect_with(&larger.params, &ds), -EINVAL);
	assert_int_equal(dmasync_connect(fake->path, 1u << 31, &ds), -EINVAL);
	fake_stop(fake);
}

static void info(void **state)
{
	struct fake *fake = fake_start();
	struct dmasync *ds = fake_connect(fake);
	struct {
		struct dmasync_info info;
		char later[8];
	} larger;

	(void)state;
	memset(&larger, 0, sizeof larger);
	larger.info.size = sizeof larger.info;
	assert_int_equal(dmasync_get_info(ds, &larger.info), 0);
	assert_int_equal(larger.info.size, sizeof larger.info);
	assert_int_equal(larger.info.protocol, 1);
	assert_int_equal(larger.info.line_size, 64);
	assert_int_equal(larger.info.max_units, 131072);
	assert_string_equal(larger.info.daemon_version, "0.1.0-fake");
	assert_int_equal(strlen(larger.info.cache_ops), sizeof larger.info.cache_ops - 1);
	larger.info.size = sizeof larger;
	assert_int_equal(dmasync_get_info(ds, &larger.info), 0);
	assert_int_equal(larger.info.size, sizeof larger);
	larger.later[0] = 1;
	assert_int_equal(dmasync_get_info(ds, &larger.info), -E2BIG);
	memset(&larger, 0, sizeof larger);
	larger.info.size = offsetof(struct dmasync_info, line_size);
	assert_int_equal(dmasync_get_info(ds, &larger.info), 0);
	assert_int_equal(larger.info.protocol, 1);
	assert_int_equal(larger.info.line_size, 0);
	larger.info.size = 0;
	assert_int_equal(dmasync_get_info(ds, &larger.info), -EINVAL);
	dmasync_disconnect(ds);
	dmasync_disconnect(NULL);
	fake_stop(fake);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		fake_test(no_socket),
		fake_test(nobody_listens),
		fake_test(path_too_long),
		fake_test(wrong_kind_of_socket),
		fake_test(no_permission),
		fake_test(accepts_and_never_answers),
		fake_test(full_backlog),
		fake_test(nonsense),
		fake_test(versions_and_features),
		fake_test(environment),
		fake_test(parameters),
		fake_test(info),
	};

	return cmocka_run_group_tests_name("client connect", tests, NULL, NULL);
}
