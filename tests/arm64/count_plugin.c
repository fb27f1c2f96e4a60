/* SPDX-License-Identifier: MIT */
/*
 * A QEMU plugin that counts the instructions this project is about, as they are executed: cache
 * maintenance and barriers of arm64. Loaded by qemu-aarch64 and qemu-system-aarch64; any vCPU.
 *
 * The counted program marks its course with HINT #96 to #103, which do nothing. Each mark reports
 * what was executed since the one before:
 *
 *	mark 1
 *	DC CVAC user 64 kernel 0
 *	DSB SY user 1 kernel 0
 *	end
 *
 * "user" and "kernel" are told by the top bit of the instruction's address. The last report is
 * "mark exit". With the argument all=on, INSTRUCTIONS counts every instruction; with stores=on also
 * every store that does not go to the stack, by its width, and the hint DGH.
 *
 *	qemu-aarch64 -plugin libcount-plugin.so,all=on -d plugin -D counts.txt PROGRAM
 */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

/*
 * What is used of QEMU's plugin interface, version 1 (QEMU 4.2 to 8.x), as its documentation gives
 * it: Debian ships the header with no package.
 */
typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_info {
	const char *target_name;
	struct {
		int min, cur;
	} version;
	bool system_emulation;
	struct {
		int smp_vcpus, max_vcpus;
	} system;
};
struct qemu_plugin_tb;
struct qemu_plugin_insn;
enum { QEMU_PLUGIN_CB_NO_REGS = 0 };

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t id,
					   void (*callback)(qemu_plugin_id_t,
							    struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
					    void (*callback)(unsigned int cpu, void *data),
					    int flags, void *data);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t id, void (*callback)(qemu_plugin_id_t, void *),
				    void *data);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *insn);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
void qemu_plugin_outs(const char *text);

EXPORT extern int qemu_plugin_version;
EXPORT int qemu_plugin_version = 1;
EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_plugin_info *info, int argc,
			       char **argv);

#define MARKS_FROM 96u
#define MARKS_TO 103u

/* An instruction word that is counted: (word & mask) == value. */
struct counter {
	const char *name;
	uint32_t mask, value;
	_Atomic uint64_t executed[2]; /* user, kernel */
};

#define ANY_REGISTER UINT32_C(0xffffffe0)

/* SYS instructions: op1, CRn, CRm, op2 of the Arm ARM, section C5.3. */
static struct counter counters[] = {
	{"DC IVAC", ANY_REGISTER, 0xd5087620, {0}},
	{"DC ISW", ANY_REGISTER, 0xd5087640, {0}},
	{"DC CSW", ANY_REGISTER, 0xd5087a40, {0}},
	{"DC CISW", ANY_REGISTER, 0xd5087e40, {0}},
	{"DC ZVA", ANY_REGISTER, 0xd50b7420, {0}},
	{"DC CVAC", ANY_REGISTER, 0xd50b7a20, {0}},
	{"DC CVAU", ANY_REGISTER, 0xd50b7b20, {0}},
	{"DC CVAP", ANY_REGISTER, 0xd50b7c20, {0}},
	{"DC CVADP", ANY_REGISTER, 0xd50b7d20, {0}},
	{"DC CIVAC", ANY_REGISTER, 0xd50b7e20, {0}},
	{"IC IVAU", ANY_REGISTER, 0xd50b7520, {0}},
	{"IC IALLU", ANY_REGISTER, 0xd5087500, {0}},
	{"ISB", 0xfffff0ff, 0xd50330df, {0}},
	{"DSB SY", 0xffffffff, 0xd5033f9f, {0}},
	{"DSB ST", 0xffffffff, 0xd5033e9f, {0}},
	{"DSB LD", 0xffffffff, 0xd5033d9f, {0}},
	{"DSB ISH", 0xffffffff, 0xd5033b9f, {0}},
	{"DSB ISHST", 0xffffffff, 0xd5033a9f, {0}},
	{"DSB ISHLD", 0xffffffff, 0xd503399f, {0}},
	{"DSB OSH", 0xffffffff, 0xd503339f, {0}},
	{"DSB OSHST", 0xffffffff, 0xd503329f, {0}},
	{"DSB OSHLD", 0xffffffff, 0xd503319f, {0}},
	{"DSB NSH", 0xffffffff, 0xd503379f, {0}},
	{"DSB NSHST", 0xffffffff, 0xd503369f, {0}},
	{"DSB NSHLD", 0xffffffff, 0xd503359f, {0}},
	{"DMB SY", 0xffffffff, 0xd5033fbf, {0}},
	{"DMB ST", 0xffffffff, 0xd5033ebf, {0}},
	{"DMB LD", 0xffffffff, 0xd5033dbf, {0}},
	{"DMB ISH", 0xffffffff, 0xd5033bbf, {0}},
	{"DMB ISHST", 0xffffffff, 0xd5033abf, {0}},
	{"DMB ISHLD", 0xffffffff, 0xd50339bf, {0}},
	{"DMB OSH", 0xffffffff, 0xd50333bf, {0}},
	{"DMB OSHST", 0xffffffff, 0xd50332bf, {0}},
	{"DMB OSHLD", 0xffffffff, 0xd50331bf, {0}},
	{"DMB NSH", 0xffffffff, 0xd50337bf, {0}},
	{"DMB NSHST", 0xffffffff, 0xd50336bf, {0}},
	{"DMB NSHLD", 0xffffffff, 0xd50335bf, {0}},
	/* Later architecture revisions' encodings of the same space: none may stay unseen. */
	{"DSB OTHER", 0xfffff0ff, 0xd503309f, {0}},
	{"DMB OTHER", 0xfffff0ff, 0xd50330bf, {0}},
	{NULL, 0, 0, {0}},
};

/*
 * Loads and stores, section C4.1.88 of the Arm ARM. The plain form of iomem_store.h first: an
 * immediate offset. Whatever else stores is counted too, under a name that no test expects.
 */
static struct counter store_counters[] = {
	{"STRB", 0xffc00000, 0x39000000, {0}},	    {"STRH", 0xffc00000, 0x79000000, {0}},
	{"STR W", 0xffc00000, 0xb9000000, {0}},	    {"STR X", 0xffc00000, 0xf9000000, {0}},
	{"STLRB", 0xfffffc00, 0x089ffc00, {0}},	    {"STLRH", 0xfffffc00, 0x489ffc00, {0}},
	{"STLR W", 0xfffffc00, 0x889ffc00, {0}},    {"STLR X", 0xfffffc00, 0xc89ffc00, {0}},
	{"STP", 0x3e400000, 0x28000000, {0}},	    {"STP SIMD", 0x3e400000, 0x2c000000, {0}},
	{"STR SIMD", 0x3f400000, 0x3d000000, {0}},  {"STR SIMD OTHER", 0x3f400000, 0x3c000000, {0}},
	{"STR OTHER", 0x3fc00000, 0x38000000, {0}}, {NULL, 0, 0, {0}},
};

/* No memory stands behind it, so no register is looked at. */
static struct counter dgh = {"DGH", 0xffffffff, 0xd50320df, {0}};
#define STACK_POINTER 31u

static struct counter instructions = {.name = "INSTRUCTIONS"};
static bool count_all, count_stores;

static void report_one(struct counter *counter)
{
	uint64_t user = atomic_exchange(&counter->executed[0], 0);
	uint64_t kernel = atomic_exchange(&counter->executed[1], 0);
	char text[128];

	if (user == 0 && kernel == 0)
		return;
	snprintf(text, sizeof text, "%s user %" PRIu64 " kernel %" PRIu64 "\n", counter->name, user,
		 kernel);
	qemu_plugin_outs(text);
}

static void report(const char *mark)
{
	char text[32];

	snprintf(text, sizeof text, "mark %s\n", mark);
	qemu_plugin_outs(text);
	for (struct counter *counter = counters; counter->name; counter++)
		report_one(counter);
	for (struct counter *counter = store_counters; counter->name; counter++)
		report_one(counter);
	report_one(&dgh);
	report_one(&instructions);
	qemu_plugin_outs("end\n");
}

static void on_executed(unsigned int cpu, void *executed)
{
	(void)cpu;
	atomic_fetch_add_explicit((_Atomic uint64_t *)executed, 1, memory_order_relaxed);
}

static void on_mark(unsigned int cpu, void *number)
{
	char text[16];

	(void)cpu;
	snprintf(text, sizeof text, "%" PRIuPTR, (uintptr_t)number);
	report(text);
}

/* Of a mark its number from 0, else -1. */
static int mark_of(uint32_t word)
{
	uint32_t number;

	if ((word & 0xfffff01f) != 0xd503201f)
		return -1;
	number = word >> 5 & 127;
	return number >= MARKS_FROM && number <= MARKS_TO ? (int)(number - MARKS_FROM) : -1;
}

/* Counts the instruction where it is one of these; true: it is. */
static bool count_in(struct counter *counter, struct qemu_plugin_insn *insn, uint32_t word,
		     bool kernel)
{
	for (; counter->name; counter++) {
		if ((word & counter->mask) == counter->value) {
			qemu_plugin_register_vcpu_insn_exec_cb(insn, on_executed,
							       QEMU_PLUGIN_CB_NO_REGS,
							       &counter->executed[kernel]);
			return true;
		}
	}
	return false;
}

static void on_instruction(struct qemu_plugin_insn *insn)
{
	bool kernel = qemu_plugin_insn_vaddr(insn) >> 63 != 0;
	uint32_t word;
	int mark;

	if (count_all)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_executed, QEMU_PLUGIN_CB_NO_REGS,
						       &instructions.executed[kernel]);
	if (qemu_plugin_insn_size(insn) != sizeof word) /* 32-bit Thumb code */
		return;
	memcpy(&word, qemu_plugin_insn_data(insn), sizeof word);
	mark = mark_of(word);
	if (mark >= 0) {
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark, QEMU_PLUGIN_CB_NO_REGS,
						       (void *)(uintptr_t)mark);
		return;
	}
	if (count_in(counters, insn, word, kernel) || !count_stores)
		return;
	if (word == dgh.value)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_executed, QEMU_PLUGIN_CB_NO_REGS,
						       &dgh.executed[kernel]);
	else if ((word >> 5 & 31) != STACK_POINTER)
		count_in(store_counters, insn, word, kernel);
}

static void on_translated(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	size_t count = qemu_plugin_tb_n_insns(tb);

	(void)id;
	for (size_t i = 0; i < count; i++)
		on_instruction(qemu_plugin_tb_get_insn(tb, i));
}

static void on_exit_of_qemu(qemu_plugin_id_t id, void *unused)
{
	(void)id;
	(void)unused;
	report("exit");
}

int qemu_plugin_install(qemu_plugin_id_t id, const struct qemu_plugin_info *info, int argc,
			char **argv)
{
	if (strcmp(info->target_name, "aarch64") != 0) {
		fprintf(stderr, "count-plugin: the target is %s, only aarch64 is known\n",
			info->target_name);
		return -1;
	}
	for (int i = 0; i < argc; i++) {
		if (strcmp(argv[i], "all=on") == 0) {
			count_all = true;
		} else if (strcmp(argv[i], "stores=on") == 0) {
			count_stores = true;
		} else {
			fprintf(stderr,
				"count-plugin: unknown argument %s; all=on and stores=on are "
				"allowed\n",
				argv[i]);
			return -1;
		}
	}
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translated);
	qemu_plugin_register_atexit_cb(id, on_exit_of_qemu, NULL);
	return 0;
}
