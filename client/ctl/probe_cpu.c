/* SPDX-License-Identifier: MIT */
/*
 * Probe: the CPUs, and which line operations work on them at what cost. Owns nothing. Main thread.
 */
#include <inttypes.h>
#include <string.h>
#include <sys/utsname.h>

#include "client/ctl/format.h"
#include "client/ctl/probe.h"
#include "daemon/cache/cache.h"

#define MODEL_SIZE 96

/* MIDR_EL1: implementer [31:24], variant [23:20], part [15:4], revision [3:0]. */
static const struct {
	uint32_t implementer, part;
	const char *name;
} parts[] = {
	{0x41, 0xd03, "Cortex-A53"},  {0x41, 0xd04, "Cortex-A35"},   {0x41, 0xd05, "Cortex-A55"},
	{0x41, 0xd07, "Cortex-A57"},  {0x41, 0xd08, "Cortex-A72"},   {0x41, 0xd09, "Cortex-A73"},
	{0x41, 0xd0a, "Cortex-A75"},  {0x41, 0xd0b, "Cortex-A76"},   {0x41, 0xd0c, "Neoverse-N1"},
	{0x41, 0xd0d, "Cortex-A77"},  {0x41, 0xd0e, "Cortex-A76AE"}, {0x41, 0xd40, "Neoverse-V1"},
	{0x41, 0xd41, "Cortex-A78"},  {0x41, 0xd42, "Cortex-A78AE"}, {0x41, 0xd44, "Cortex-X1"},
	{0x41, 0xd46, "Cortex-A510"}, {0x41, 0xd47, "Cortex-A710"},  {0x41, 0xd48, "Cortex-X2"},
	{0x41, 0xd49, "Neoverse-N2"}, {0x41, 0xd4b, "Cortex-A78C"},  {0x41, 0xd4d, "Cortex-A715"},
	{0x41, 0xd4e, "Cortex-X3"},   {0x41, 0xd4f, "Neoverse-V2"},  {0x41, 0xd80, "Cortex-A520"},
	{0x41, 0xd81, "Cortex-A720"}, {0x41, 0xd82, "Cortex-X4"},    {0x46, 0x001, "A64FX"},
	{0x4e, 0x004, "Carmel"},      {0x4e, 0x010, "Olympus"},
};

void probe_midr_text(uint64_t midr, char *text, size_t size)
{
	uint32_t implementer = (uint32_t)(midr >> 24) & 0xff, part = (uint32_t)(midr >> 4) & 0xfff;
	uint32_t variant = (uint32_t)(midr >> 20) & 0xf, revision = (uint32_t)midr & 0xf;

	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		if (parts[i].implementer == implementer && parts[i].part == part) {
			snprintf(text, size, "%s r%up%u", parts[i].name, variant, revision);
			return;
		}
	}
	snprintf(text, size, "implementer 0x%02x part 0x%03x r%up%u", implementer, part, variant,
		 revision);
}

/* One CPU after the other; text is printed for runs of equal ones ("cpu 0-3: Cortex-A55 r2p0"). */
struct cpus {
	const char *root;
	json *array;
	char model[MODEL_SIZE]; /* of the machine, where the CPUs have none of their own */
	char run_text[MODEL_SIZE + 32];
	unsigned int run_first, run_last;
	bool run;
};

static void end_run(struct cpus *cpus)
{
	if (!cpus->run)
		return;
	if (cpus->run_first == cpus->run_last)
		printf("  cpu %u: %s\n", cpus->run_first, cpus->run_text);
	else
		printf("  cpu %u-%u: %s\n", cpus->run_first, cpus->run_last, cpus->run_text);
	cpus->run = false;
}

static void each_cpu(void *context, const char *name)
{
	struct cpus *cpus = context;
	unsigned int number;
	char line[64], model[MODEL_SIZE];
	uint64_t midr = 0;
	int end = 0;

	/* "cpufreq" and "cpuidle" stand beside "cpu0". */
	if (sscanf(name, "cpu%u%n", &number, &end) != 1 || name[end])
		return;
	bool known =
		probe_read_line(line, sizeof line, cpus->root,
				"/sys/devices/system/cpu/%s/regs/identification/midr_el1", name) &&
		sscanf(line, "%" SCNx64, &midr) == 1;
	if (known)
		probe_midr_text(midr, model, sizeof model);
	else
		snprintf(model, sizeof model, "%s", cpus->model);

	if (cpus->array) {
		json *cpu = json_new_object();

		json_add_uint(cpu, "cpu", number);
		json_add_string(cpu, "model", model);
		if (known) {
			snprintf(line, sizeof line, "0x%08" PRIx64, midr);
			json_add_string(cpu, "midr", line);
		} else {
			json_add_null(cpu, "midr");
		}
		json_append(cpus->array, cpu);
		return;
	}

	char text[sizeof cpus->run_text];
	if (known)
		snprintf(text, sizeof text, "%s (MIDR 0x%08" PRIx64 ")", model, midr);
	else
		snprintf(text, sizeof text, "%s", model);
	if (cpus->run && number == cpus->run_last + 1 && strcmp(text, cpus->run_text) == 0) {
		cpus->run_last = number;
		return;
	}
	end_run(cpus);
	memcpy(cpus->run_text, text, sizeof text);
	cpus->run_first = cpus->run_last = number;
	cpus->run = true;
}

/* The value of the first "key : value" line of /proc/cpuinfo that has one of these keys. */
static void read_model(const char *root, char model[MODEL_SIZE])
{
	static const char *const keys[] = {"model name", "uarch", "Model", "Hardware"};
	char path[256], line[512];

	snprintf(model, MODEL_SIZE, "unknown");
	snprintf(path, sizeof path, "%s/proc/cpuinfo", root);
	FILE *file = fopen(path, "re");
	if (!file)
		return;
	while (fgets(line, sizeof line, file)) {
		const char *colon = strchr(line, ':');

		line[strcspn(line, "\n")] = '\0';
		for (size_t i = 0; colon && i < sizeof keys / sizeof *keys; i++) {
			size_t length = strlen(keys[i]);

			if (strncmp(line, keys[i], length) == 0 &&
			    strspn(line + length, " \t:") > 0) {
				const char *value = colon + 1 + strspn(colon + 1, " \t");

				format_text(model, MODEL_SIZE, value, strlen(value));
				fclose(file);
				return;
			}
		}
	}
	fclose(file);
}

void probe_cpus(const char *root, json *document)
{
	struct cpus cpus = {.root = root};
	struct utsname name;
	char board[MODEL_SIZE], raw[MODEL_SIZE];
	bool board_known;

	memset(&name, 0, sizeof name);
	uname(&name);
	read_model(root, cpus.model);
	board_known = probe_read_line(raw, sizeof raw, root, "/sys/firmware/devicetree/base/model");
	if (board_known)
		format_text(board, sizeof board, raw, sizeof raw);

	if (document) {
		json_add_string(document, "architecture", name.machine);
		json_add_string(document, "kernel", name.release);
		if (board_known)
			json_add_string(document, "board", board);
		else
			json_add_null(document, "board");
		cpus.array = json_new_array();
	} else {
		printf("machine: %s, Linux %s%s%s\n", name.machine, name.release,
		       board_known ? ", " : "", board_known ? board : "");
	}
	probe_each(root, "/sys/devices/system/cpu", "cpu", each_cpu, &cpus);
	if (document)
		json_add(document, "cpus", cpus.array);
	else
		end_run(&cpus);
}

static void ops_json(json *array, const char *name, const struct cache *cache, bool chosen)
{
	json *ops = json_new_object();

	json_add_string(ops, "name", name);
	json_add_bool(ops, "works", cache->line != 0);
	json_add_bool(ops, "chosen", chosen);
	if (cache->line) {
		json_add_decimal(ops, "clean_ns", cache->clean_ps / 1e3, 3);
		json_add_decimal(ops, "flush_ns", cache->flush_ps / 1e3, 3);
		json_add_decimal(ops, "barrier_ns", cache->barrier_ps / 1e3, 3);
		json_add_bool(ops, "trapped", cache->trapped);
	}
	json_add_string(ops, "why", cache->why);
	json_append(array, ops);
}

static void ops_row(struct table *table, const char *name, const struct cache *cache, bool chosen)
{
	char text[FORMAT_SIZE];

	table_cell(table, "  %s", name);
	table_cell(table, "%s", cache->line ? format_ps(text, cache->clean_ps) : "-");
	table_cell(table, "%s", cache->line ? format_ps(text, cache->flush_ps) : "-");
	table_cell(table, "%s", cache->line ? format_ps(text, cache->barrier_ps) : "-");
	table_cell(table, "%s%s", chosen ? "chosen; " : "", cache->why);
}

void probe_cache(json *document)
{
	struct table *_table_ table = document ? NULL : table_new("lrrrl");
	struct cache chosen = {0};
	json *array = document ? json_new_array() : NULL;
	bool found = false;

	cache_select(NULL, &chosen);
	table_cell(table, "  line operations");
	table_cell(table, "clean");
	table_cell(table, "flush");
	table_cell(table, "barrier");
	table_cell(table, "result");
	for (const struct cache_candidate *c = cache_candidates(); c->ops; c++) {
		bool is_chosen = chosen.line && strcmp(c->ops->name, chosen.ops.name) == 0;
		struct cache tried = {0};

		cache_try(c, NULL, &tried);
		found = true;
		if (document)
			ops_json(array, c->ops->name, is_chosen ? &chosen : &tried, is_chosen);
		else
			ops_row(table, c->ops->name, is_chosen ? &chosen : &tried, is_chosen);
	}

	if (document) {
		json *cache = json_new_object();

		json_add_uint(cache, "line_bytes", chosen.line);
		json_add_uint(cache, "granule_bytes", chosen.granule);
		if (chosen.line)
			json_add_string(cache, "chosen", chosen.ops.name);
		else
			json_add_null(cache, "chosen");
		json_add_string(cache, "why", chosen.why);
		json_add(cache, "operations", array);
		json_add(document, "cache", cache);
	} else if (chosen.line) {
		printf("cache: lines of %zu bytes, granule %zu bytes (what shares one may be "
		       "disturbed)\n",
		       chosen.line, chosen.granule);
		table_print(table, stdout);
	} else {
		printf("cache: %s\n", chosen.why);
		if (found)
			table_print(table, stdout);
	}
}
