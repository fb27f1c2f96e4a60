/* SPDX-License-Identifier: MIT */
/*
 * Writes where a fuzzer starts: DIRECTORY/control of the golden messages, right, wrong in each way
 * that the table of messages knows, and in sequences; DIRECTORY/config of the table of keys;
 * and of the texts in the sources of its tests; DIRECTORY/ring and /batch of entries;
 * /client of a client's life; DIRECTORY/control.dict of the table of messages. One thread.
 *
 * usage: fuzz-seeds DIRECTORY TEST-OF-CONFIGURATION.c...
 */
#include <errno.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "daemon/config.h"
#include "fuzz.h"
#include "fuzz_control.h"
#include "proto/message_table.h"
#include "seeds.h"
#include "tests/unit/proto/golden.h"

static const char *directory;

static const struct row {
	const char *name;
	uint16_t opcode;
	uint32_t size, trailing, fds;
} rows[] = {
#define ROW_(row_name, row_opcode, handler, type, unit, reply, min, max, ...)                      \
	{#row_name, row_opcode, sizeof(type), unit, max},
	DMASYNC_MESSAGES(ROW_)
#undef ROW_
};

#define ROWS (sizeof rows / sizeof rows[0])

void seed_save(const struct seed *seed, const char *target, const char *name, const char *how)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof path, "%s/%s", directory, target);
	if (mkdir(path, 0777) < 0 && errno != EEXIST) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		exit(1);
	}
	snprintf(path, sizeof path, "%s/%s/%s-%s", directory, target, name, how);
	file = fopen(path, "we");
	if (!file || fwrite(seed->bytes, 1, seed->size, file) != seed->size || fclose(file)) {
		fprintf(stderr, "%s: %s\n", path, strerror(errno));
		exit(1);
	}
}

/* ---- control ---- */

static void put_packet(struct seed *seed, unsigned int how, unsigned int fds, const void *bytes,
		       size_t size)
{
	put_u8(seed, FUZZ_STEP_PACKET);
	put_u8(seed, how);
	put_u8(seed, fds);
	put_u16(seed, (unsigned int)size);
	put(seed, bytes, size);
}

static const struct row *row_of(uint16_t opcode)
{
	for (size_t i = 0; i < ROWS; i++)
		if (rows[i].opcode == opcode)
			return &rows[i];
	return NULL;
}

/* A step of the table: greeted or not, of this size, with so many fds. */
static void write_case(const char *name, const char *how, bool greeted, const uint8_t *bytes,
		       size_t size, unsigned int fds)
{
	struct seed seed = {.size = 0};

	put_u8(&seed, greeted ? FUZZ_STEP_GREET : FUZZ_STEP_CONNECT);
	put_packet(&seed, FUZZ_PACKET_SETTLE, fds, bytes, size);
	seed_save(&seed, "control", name, how);
}

static void write_messages(void)
{
	for (size_t i = 0; i < golden_case_count; i++) {
		const struct golden_case *golden = &golden_cases[i];
		uint8_t bytes[8192] = {0};
		struct dmasync_message header;
		const struct row *row;

		if (golden->size < sizeof header || golden->size > sizeof bytes - 16)
			continue;
		memcpy(bytes, golden->bytes, golden->size);
		memcpy(&header, bytes, sizeof header);
		row = row_of(header.opcode);
		if (!row || header.flags || header.size != golden->size) {
			write_case(golden->name, "refused", true, bytes, golden->size, 0);
			continue;
		}
		bool greeted = row->opcode != DMASYNC_OP_HELLO;
		unsigned int fds = FUZZ_FD_SEALED | row->fds << 3;

		write_case(golden->name, "right", greeted, bytes, golden->size, fds);
		write_case(golden->name, "state", !greeted, bytes, golden->size, fds);
		write_case(golden->name, "fds", greeted, bytes, golden->size, 3 << 3);
		write_case(golden->name, "all-fds", greeted, bytes, golden->size, 0xff);
		write_case(golden->name, "short", greeted, bytes, golden->size - 1, fds);
		header.size = (uint32_t)golden->size + 1;
		memcpy(bytes, &header, sizeof header);
		write_case(golden->name, "long", greeted, bytes, golden->size + 1, fds);
		header.size--;
		header.flags = DMASYNC_MESSAGE_REPLY;
		memcpy(bytes, &header, sizeof header);
		write_case(golden->name, "flags", greeted, bytes, golden->size, fds);
	}
}

/* A life: a buffer of every kind of fd, a queue, SYNC, and everything away again. */
static void write_lives(void)
{
	static const enum dmasync_backend backends[] = {
		DMASYNC_BACKEND_AUTO, DMASYNC_BACKEND_DIRECT, DMASYNC_BACKEND_KERNEL,
		DMASYNC_BACKEND_NONE, DMASYNC_BACKEND_SIMULATED};
	const struct dmasync_message stats = {.opcode = DMASYNC_OP_STATS};
	const struct dmasync_queue_create create = {
		.header.opcode = DMASYNC_OP_QUEUE_CREATE, .depth = 4, .units = 16};
	const struct dmasync_buffer_remove remove = {.header.opcode = DMASYNC_OP_BUFFER_REMOVE};
	const struct dmasync_queue_remove queue_remove = {.header.opcode = DMASYNC_OP_QUEUE_REMOVE};
	const struct dmasync_watch watch = {.header.opcode = DMASYNC_OP_WATCH, .enable = 1};
	struct {
		struct dmasync_sync_request request;
		struct dmasync_unit units[2];
	} sync = {.request = {.header.opcode = DMASYNC_OP_SYNC}};

	sync.units[0] = sync.units[1] = (struct dmasync_unit){
		.word = dmasync_unit_word(0, DMASYNC_FOR_DEVICE, DMASYNC_TO_DEVICE, 0),
		.length = 640,
		.offset = 64,
	};
	for (unsigned int kind = 0; kind < 8; kind++) {
		for (size_t i = 0; i < sizeof backends / sizeof backends[0]; i++) {
			for (unsigned int settles = 0; settles < 2; settles++) {
				unsigned int how = FUZZ_PACKET_RIGHT | FUZZ_PACKET_NAMES |
						   (settles ? FUZZ_PACKET_SETTLE : 0u);
				struct dmasync_buffer_add add = {.header.opcode =
									 DMASYNC_OP_BUFFER_ADD,
								 .backend = backends[i]};
				struct seed seed = {.size = 0};
				char name[64];

				put_u8(&seed, FUZZ_STEP_GREET);
				put_packet(&seed, how, 0, &watch, sizeof watch);
				put_packet(&seed, how, kind | 1u << 3, &add, sizeof add);
				put_packet(&seed, how, 0, &create, sizeof create);
				put_packet(&seed, how, 0, &sync, sizeof sync);
				put_u8(&seed, FUZZ_STEP_PROGRESS | 5u << 3);
				put_packet(&seed, how, 0, &remove, sizeof remove);
				put_packet(&seed, how, 0, &queue_remove, sizeof queue_remove);
				put_packet(&seed, how, 0, &stats, sizeof stats);
				put_u8(&seed, FUZZ_STEP_LEAVE);
				put_u8(&seed, kind & 3);
				snprintf(name, sizeof name, "life-%u-%zu", kind, i);
				seed_save(&seed, "control", name, settles ? "settled" : "at-once");
			}
		}
	}
}

/* Who does not read, who connects too often, who says nothing. */
static void write_manners(void)
{
	const struct dmasync_message probe = {.opcode = DMASYNC_OP_PROBE};
	struct seed seed = {.size = 0};

	put_u8(&seed, FUZZ_STEP_GREET);
	put_u8(&seed, FUZZ_STEP_READ);
	for (int i = 0; i < 300; i++)
		put_packet(&seed, FUZZ_PACKET_RIGHT, FUZZ_FD_PIPE | (unsigned int)(i & 1) << 3,
			   &probe, sizeof probe);
	put_u8(&seed, FUZZ_STEP_PROGRESS | 6 << 3);
	seed_save(&seed, "control", "manners", "does-not-read");

	seed.size = 0;
	for (unsigned int i = 0; i < 12; i++)
		put_u8(&seed, FUZZ_STEP_CONNECT | (i & 3) << 3);
	put_u8(&seed, FUZZ_STEP_PROGRESS);
	put_u8(&seed, FUZZ_STEP_PROGRESS | 5 << 3);
	seed_save(&seed, "control", "manners", "says-nothing");
}

static void write_dictionary(void)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof path, "%s/control.dict", directory);
	file = fopen(path, "we");
	claim(file);
	fprintf(file, "# Written by fuzz_seeds.c from proto/message_table.h.\n");
	for (size_t i = 0; i < ROWS; i++) {
		struct dmasync_message header = {.size = rows[i].size, .opcode = rows[i].opcode};
		const uint8_t *bytes = (const uint8_t *)&header;

		fprintf(file, "%s=\"", rows[i].name);
		for (size_t j = 0; j < offsetof(struct dmasync_message, cookie); j++)
			fprintf(file, "\\x%02x", (unsigned int)bytes[j]);
		fprintf(file, "\"\n%s_packet=\"\\x%02x\\x05\\x%02x\\x%02x\\x%02x", rows[i].name,
			FUZZ_STEP_PACKET, rows[i].fds << 3, rows[i].size & 0xff, rows[i].size >> 8);
		for (size_t j = 0; j < offsetof(struct dmasync_message, cookie); j++)
			fprintf(file, "\\x%02x", (unsigned int)bytes[j]);
		fprintf(file, "\"\n");
	}
	claim(fclose(file) == 0);
}

/* ---- configuration ---- */

static void write_keys(void)
{
	size_t count;
	const struct config_key *keys = config_keys(&count);

	for (size_t i = 0; i < count; i++) {
		const char *section =
			keys[i].type == CONFIG_BACKEND ? "exporter system" : keys[i].section;
		struct seed seed = {.size = 0};
		int n = snprintf((char *)seed.bytes, sizeof seed.bytes, "f[%s]\n%s = %s\n", section,
				 keys[i].key,
				 keys[i].type == CONFIG_BACKEND ? "kernel"
				 : keys[i].fallback		? keys[i].fallback
								: "0");

		seed.size = (size_t)n;
		seed_save(&seed, "config", keys[i].key, "default");
		n = snprintf((char *)seed.bytes, sizeof seed.bytes,
			     "f[%s]\n%s = %" PRIu64 "\n%s = %" PRIu64 "K ; twice\n", section,
			     keys[i].key, keys[i].max, keys[i].key, keys[i].min);
		seed.size = (size_t)n;
		seed_save(&seed, "config", keys[i].key, "limits");
		n = snprintf((char *)seed.bytes, sizeof seed.bytes, "odmasyncd%c--%s=%" PRIu64, 0,
			     keys[i].key, keys[i].max);
		seed.size = (size_t)n;
		for (size_t at = 1; at < seed.size; at++)
			if (seed.bytes[at] == '_')
				seed.bytes[at] = '-';
		seed_save(&seed, "config", keys[i].key, "option");
	}
}

static void write_lists(void)
{
	static const char *const lists[] = {"c0",    "c0-3,5",	  "c1023",     "c1024",
					    "c3-1",  "c1,1",	  "c,",	       "c0-63",
					    "c0-64", "c 1",	  "c1-",       "c4294967297",
					    "c",     "c1,2,3,-1", "c0-1,1023", "c0x1"};

	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
		struct seed seed = {.size = 0};
		char name[16];

		put(&seed, lists[i], strlen(lists[i]));
		snprintf(name, sizeof name, "%zu", i);
		seed_save(&seed, "config", "cpus", name);
	}
}

/* The next string literal, with those that follow it at once; NULL at the end of the source. */
static const char *next_literal(const char *at, struct seed *seed)
{
	bool inside = false;

	seed->size = 0;
	for (; *at; at++) {
		if (*at == '"') {
			inside = !inside;
			if (!inside && at[1 + strspn(at + 1, " \t\n")] != '"')
				return at + 1;
		} else if (inside && *at == '\\' && at[1]) {
			at++;
			put_u8(seed, *at == 'n'	  ? '\n'
				     : *at == 't' ? '\t'
				     : *at == '0' ? 0
						  : (unsigned char)*at);
		} else if (inside) {
			put_u8(seed, (unsigned char)*at);
		} else if (*at == '\'' && at[1] == '"') {
			at += 2;
		}
	}
	return NULL;
}

/* What the unit tests read as files: whatever has a section. */
static void write_texts(const char *source)
{
	static char text[1 << 17];
	const char *name = strrchr(source, '/') ? strrchr(source, '/') + 1 : source;
	struct seed literal, seed;
	FILE *file = fopen(source, "re");
	size_t size = file ? fread(text, 1, sizeof text - 1, file) : 0;
	unsigned int count = 0;

	if (!file || size == 0) {
		fprintf(stderr, "%s: %s\n", source, strerror(errno));
		exit(1);
	}
	fclose(file);
	text[size] = 0;
	for (const char *at = next_literal(text, &literal); at; at = next_literal(at, &literal)) {
		char how[16];

		if (!memchr(literal.bytes, '[', literal.size))
			continue;
		seed.size = 0;
		put_u8(&seed, 'f');
		put(&seed, literal.bytes, literal.size);
		snprintf(how, sizeof how, "%u", count++);
		seed_save(&seed, "config", name, how);
	}
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: fuzz-seeds DIRECTORY TEST-OF-CONFIGURATION.c...\n");
		return 2;
	}
	directory = argv[1];
	if (mkdir(directory, 0777) < 0 && errno != EEXIST) {
		fprintf(stderr, "%s: %s\n", directory, strerror(errno));
		return 1;
	}
	write_messages();
	write_lives();
	write_manners();
	write_dictionary();
	write_keys();
	write_lists();
	for (int i = 2; i < argc; i++)
		write_texts(argv[i]);
	seeds_write_batches();
	seeds_write_rings();
	seeds_write_clients();
	return 0;
}
