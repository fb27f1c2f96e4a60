/* SPDX-License-Identifier: MIT */
/*
 * Class: files whose close waits. Sockets that linger and files of a FUSE mount that nobody answers
 * for, sent where an fd is taken, where none is, and left in the socket by a client that goes. The
 * control thread never closes them itself. One thread, and for FUSE a process that serves it.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hostile/target.h"

enum { FILES = 8, USERS = 6, REFUSED = 100 };

/* Sends the file in every way there is, so that the daemon has the last reference to it. */
static void hand_over(struct attack *attack, struct raw *raw, int fd, int way)
{
	struct dmasync_buffer_add add = {
		.header = {.size = sizeof add, .opcode = DMASYNC_OP_BUFFER_ADD}};
	struct dmasync_message probe = {.size = sizeof probe, .opcode = DMASYNC_OP_PROBE};
	struct dmasync_message stats = {.size = sizeof stats, .opcode = DMASYNC_OP_STATS};

	switch (way % 4) {
	case 0: /* an fd is taken */
		check_int(harness_send(raw->socket, &add, sizeof add, &fd, 1), 0);
		break;
	case 1:
		check_int(harness_send(raw->socket, &probe, sizeof probe, &fd, 1), 0);
		break;
	case 2: /* none is */
		check_int(harness_send(raw->socket, &stats, sizeof stats, &fd, 1), 0);
		break;
	case 3: { /* nobody has received it when its sender goes */
		int other = harness_connect(attack->socket);

		check_int(harness_send(other, &stats, sizeof stats, &fd, 1), 0);
		close(other);
		break;
	}
	}
	close(fd);
}

static void await_answers(struct raw *raw, int count)
{
	union reply reply;

	for (int i = 0; i < count; i++)
		check(harness_receive(raw->socket, &reply, sizeof reply, NULL, NULL, PATIENCE_MS) >
		      0);
}

/* As root, of another user: the daemon goes by who has connected. */
static void connect_as(const struct attack *attack, uint32_t user, struct raw *raw)
{
	bool root = getuid() == 0;

	if (root && seteuid(attack->first_uid + 1 + user) < 0)
		harness_skip("root here cannot become another user");
	raw->socket = harness_connect(attack->socket);
	check(!root || seteuid(0) == 0);
}

static void open_as(const struct attack *attack, uint32_t user, struct raw *raw)
{
	connect_as(attack, user, raw);
	raw->cookie = 1;
	harness_hello(raw->socket, &raw->hello);
}

/* Files of theirs that the daemon has open: besides a socket and a pidfd each, those that hang. */
static uint32_t files_of(struct raw *observer, const struct attack *attack, uint32_t user)
{
	struct dmasync_users users = {.from = getuid() == 0 ? attack->first_uid + 1 + user
							    : getuid()};
	struct {
		struct dmasync_users_reply reply;
		struct dmasync_user_record record;
	} page;

	raw_call(observer, &users, DMASYNC_OP_USERS, sizeof users, &page, sizeof page);
	check_int(page.record.uid, users.from);
	return page.record.files;
}

/*
 * The daemon stands still while they are sent, so that its references are the last ones and it is
 * its close that waits.
 */
ATTACK(lingering_sockets, .connections = 2, .as_root = getuid() == 0)
{
	int peers[FILES];
	struct raw raw, other;

	open_as(attack, 0, &raw);
	open_as(attack, 0, &other);
	check_int(kill(attack->daemon.pid, SIGSTOP), 0);
	for (int i = 0; i < FILES; i++)
		hand_over(attack, &raw, requests_lingering_socket(&peers[i]), i);
	check_int(kill(attack->daemon.pid, SIGCONT), 0);
	await_answers(&raw, 6); /* of eight, two were sent by who has gone */
	/* Answered, while the closes still wait. */
	check(files_of(&other, attack, 0) > 4);
	check(files_of(&raw, attack, 0) > 4);
	for (int i = 0; i < 5; i++)
		others_go_on(attack);
	check(files_of(&other, attack, 0) > 4);
	raw_close(&raw);
	others_go_on(attack);
	for (int i = 0; i < FILES; i++)
		close(peers[i]);
	raw_close(&other);
}

/*
 * More connections than the user may have, with such a file in each before it is accepted: refused,
 * closed, and everybody else is accepted meanwhile.
 */
ATTACK(refused_with_lingering_sockets, .as_root = getuid() == 0,
       .limits_keys = getuid() == 0 ? "user_connections = 2\n" : "")
{
	struct dmasync_message stats = {.size = sizeof stats, .opcode = DMASYNC_OP_STATS};
	static int peers[REFUSED];
	struct raw raws[2];

	for (int i = 0; i < 2; i++)
		open_as(attack, 0, &raws[i]);
	check_int(kill(attack->daemon.pid, SIGSTOP), 0);
	for (int i = 0; i < REFUSED; i++) {
		struct raw raw;
		int fd = requests_lingering_socket(&peers[i]);

		connect_as(attack, 0, &raw);
		check_int(harness_send(raw.socket, &stats, sizeof stats, &fd, 1), 0);
		close(fd);
		raw_close(&raw);
	}
	check_int(kill(attack->daemon.pid, SIGCONT), 0);
	for (int i = 0; i < 30; i++)
		others_go_on(attack);
	for (int i = 0; i < REFUSED; i++)
		close(peers[i]);
	for (int i = 0; i < 2; i++)
		raw_close(&raws[i]);
}

/* ---- FUSE ---- */

struct fuse {
	int device;
	char path[160];
};

static void answer(int device, const struct fuse_in_header *in, int error, const void *body,
		   size_t size)
{
	unsigned char bytes[256];
	struct fuse_out_header out = {
		.len = (uint32_t)(sizeof out + size), .error = error, .unique = in->unique};

	memcpy(bytes, &out, sizeof out);
	if (size)
		memcpy(bytes + sizeof out, body, size);
	(void)!write(device, bytes, sizeof out + size);
}

static struct fuse_attr attributes(uint64_t node)
{
	return (struct fuse_attr){
		.ino = node, .mode = node == 1 ? S_IFDIR | 0755 : S_IFREG | 0644, .nlink = 1};
}

/* Everything but FLUSH, which a close waits for. */
static void serve_one(int device)
{
	_Alignas(8) static unsigned char bytes[1 << 20];
	ssize_t n = read(device, bytes, sizeof bytes);
	const struct fuse_in_header *in = (const void *)bytes;
	struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096};
	struct fuse_entry_out entry = {.nodeid = 2, .generation = 1, .attr = attributes(2)};
	struct fuse_attr_out attr = {.attr = attributes(n > 0 ? in->nodeid : 1)};
	struct fuse_open_out opened = {.fh = 1};

	if (n < 0)
		_exit(0); /* unmounted */
	switch (in->opcode) {
	case FUSE_INIT:
		answer(device, in, 0, &init, sizeof init);
		break;
	case FUSE_LOOKUP:
		answer(device, in, 0, &entry, sizeof entry);
		break;
	case FUSE_GETATTR:
		answer(device, in, 0, &attr, sizeof attr);
		break;
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		answer(device, in, 0, &opened, sizeof opened);
		break;
	case FUSE_FLUSH:
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break; /* no answer */
	default:
		answer(device, in, -ENOSYS, NULL, 0);
	}
}

/* As root. False where this machine has none. */
static bool fuse_mount(struct fuse *fuse)
{
	char options[128];

	snprintf(fuse->path, sizeof fuse->path, "%s/fuse", harness_directory());
	fuse->device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fuse->device < 0 || mkdir(fuse->path, 0755) < 0)
		return false;
	snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other",
		 fuse->device);
	return mount("dmasync", fuse->path, "fuse", MS_NOSUID | MS_NODEV, options) == 0;
}

static void serve_fuse(struct attack *attack, void *argument)
{
	(void)attack;
	pid_t server = fork();

	check(server >= 0);
	if (server == 0)
		for (;;)
			serve_one(((struct fuse *)argument)->device);
}

/* The mount, who serves it, and a connection of each of its users. */
struct hanging {
	struct fuse fuse;
	pid_t server;
	uint32_t users;
	struct raw raws[USERS], observer;
};

static void hanging_open(struct hanging *hanging, struct attack *attack, uint32_t users)
{
	if (!fuse_mount(&hanging->fuse))
		harness_skip("no FUSE mount here: %s", strerror(errno));
	hanging->server = victim_start(serve_fuse, attack, &hanging->fuse);
	hanging->users = users;
	raw_open(&hanging->observer, attack->socket);
	for (uint32_t i = 0; i < users; i++)
		open_as(attack, i, &hanging->raws[i]);
}

/*
 * By processes of their own: their own closes of the files hang as well. They end with the mount.
 */
static void hanging_send(struct hanging *hanging, struct attack *attack, uint32_t count)
{
	char path[192];

	snprintf(path, sizeof path, "%s/file", hanging->fuse.path);
	for (uint32_t user = 0; user < hanging->users; user++) {
		for (uint32_t i = 0; i < count; i++) {
			pid_t sender = fork();

			check(sender >= 0);
			if (sender > 0)
				continue;
			int fd = open(path, O_RDWR | O_CLOEXEC);

			check(fd >= 0);
			become_attacker(attack, user);
			hand_over(attack, &hanging->raws[user], fd, (int)i);
			_exit(0);
		}
	}
}

/* Unmounted by force, which aborts what waits. */
static void hanging_close(struct hanging *hanging)
{
	check_int(umount2(hanging->fuse.path, MNT_FORCE | MNT_DETACH), 0);
	victim_kill(hanging->server);
	close(hanging->fuse.device);
	while (waitpid(-1, NULL, 0) > 0)
		;
	for (uint32_t i = 0; i < hanging->users; i++)
		raw_close(&hanging->raws[i]);
	raw_close(&hanging->observer);
}

/*
 * Their closes run as helper jobs: as many as one client may have, and its other files wait for
 * them.
 */
ATTACK(files_of_a_fuse_mount, .connections = 2, .as_root = true)
{
	struct hanging hanging;

	hanging_open(&hanging, attack, 1);
	hanging_send(&hanging, attack, FILES);
	harness_until(files_of(&hanging.observer, attack, 0) > 2, PATIENCE_MS);
	for (int i = 0; i < 5; i++)
		others_go_on(attack);
	check(files_of(&hanging.observer, attack, 0) > 2);
	hanging_close(&hanging);
}

/* One person may be many users (subuids): however many helper threads their files hold. */
ATTACK(files_of_many_users, .connections = 1, .users = USERS, .as_root = true)
{
	struct hanging hanging;

	hanging_open(&hanging, attack, USERS);
	hanging_send(&hanging, attack, FILES);
	for (uint32_t i = 0; i < USERS; i++)
		harness_until(files_of(&hanging.observer, attack, i) > 2, PATIENCE_MS);
	for (int i = 0; i < 30; i++)
		others_go_on(attack);
	hanging_close(&hanging);
}

static const struct harness_case cases[] = {
	HARNESS_CASE(lingering_sockets),
	HARNESS_CASE(refused_with_lingering_sockets),
	HARNESS_CASE(files_of_a_fuse_mount),
	HARNESS_CASE(files_of_many_users),
};

HARNESS_MAIN(cases)
