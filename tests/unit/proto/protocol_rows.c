/* SPDX-License-Identifier: MIT */
/*
 * Prints the tables that PROTOCOL.md must hold, from the headers themselves: a heading, then rows
 * that its rows must start with. check_protocol.py compares. One thread.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "layout.h"

static void print_structs(void)
{
	for (size_t i = 0; i < layout_struct_count; i++) {
		const struct layout_struct *s = &layout_structs[i];

		printf("#### `%s`: %zu bytes\n", s->name, s->size);
		for (size_t j = 0; j < s->field_count; j++) {
			const struct layout_field *f = &s->fields[j];

			printf("| %zu | %zu | %s", f->offset, f->size, f->type);
			if (f->element != f->size)
				printf("[%zu]", f->size / f->element);
			printf(" | %s |\n", f->name);
		}
	}
}

/* A type's name as it stands in the tables: without "struct ". */
static const char *bare(const char *type)
{
	return type + strlen("struct ");
}

static void print_messages(void)
{
	printf("#### Requests\n");
#define ROW(name, opcode, handler, request, trailing, reply, min, max, reply_fds, state)           \
	printf("| %d | %s | %s | %zu | %d | %s | %zu | %d to %d | %d | %s |\n", opcode, #name,     \
	       bare(#request), sizeof(request), trailing, bare(#reply), sizeof(reply), min, max,   \
	       reply_fds, #state);
	DMASYNC_MESSAGES(ROW)
#undef ROW
}

static void print_reasons(void)
{
	printf("#### Reasons\n");
#define ROW(name, value, error, text) printf("| %d | %s | %s | %s |\n", value, #name, #error, text);
	DMASYNC_REASONS(ROW)
#undef ROW
}

#define VALUE(name) printf("| %" PRIu64 " | %s |\n", (uint64_t)(name), #name);
#define HEX(name) printf("| %#" PRIx64 " | %s |\n", (uint64_t)(name), #name);

static void print_values(void)
{
	printf("#### Message constants\n");
	VALUE(DMASYNC_PROTOCOL_VERSION)
	VALUE(DMASYNC_MESSAGE_MAX)
	VALUE(DMASYNC_MESSAGE_FDS)
	VALUE(DMASYNC_NAME_SIZE)
	VALUE(DMASYNC_TEXT_SIZE)
	VALUE(DMASYNC_CLIENTS_PAGE)
	VALUE(DMASYNC_USERS_PAGE)
	VALUE(DMASYNC_BATCHES_PAGE)
	HEX(DMASYNC_NO_ENTRY)
	printf("#### Header flags\n");
	HEX(DMASYNC_MESSAGE_REPLY)
	HEX(DMASYNC_MESSAGE_ERROR)
	HEX(DMASYNC_MESSAGE_EVENT)
	printf("#### Features\n");
	HEX(DMASYNC_FEATURE_STRIDED)
	HEX(DMASYNC_FEATURE_SIMULATED)
	HEX(DMASYNC_FEATURE_KERNEL)
	HEX(DMASYNC_FEATURE_DIRECT)
	HEX(DMASYNC_FEATURE_WATCH)
	printf("#### Backends\n");
	VALUE(DMASYNC_BACKEND_AUTO)
	VALUE(DMASYNC_BACKEND_DIRECT)
	VALUE(DMASYNC_BACKEND_KERNEL)
	VALUE(DMASYNC_BACKEND_NONE)
	VALUE(DMASYNC_BACKEND_SIMULATED)
	printf("#### Kinds of buffer\n");
	VALUE(DMASYNC_KIND_MEMFD)
	VALUE(DMASYNC_KIND_DMABUF)
	printf("#### Buffer flags\n");
	HEX(DMASYNC_BUFFER_NO_CLEAN)
	HEX(DMASYNC_BUFFER_LOCKED)
	HEX(DMASYNC_BUFFER_GUARANTEE)
	printf("#### Errata\n");
	HEX(DMASYNC_ERRATUM_CORTEX_A53_R0P1)
	HEX(DMASYNC_ERRATUM_CORTEX_A53_R0P2)
	HEX(DMASYNC_ERRATUM_SI_L1_4311569)
	HEX(DMASYNC_ERRATUM_NEOVERSE_N1_1542419)
	HEX(DMASYNC_ERRATUM_OLYMPUS_T410_1027)
	printf("#### Classes\n");
	VALUE(DMASYNC_CLASS_NORMAL)
	VALUE(DMASYNC_CLASS_REALTIME)
	VALUE(DMASYNC_CLASS_BULK)
	printf("#### Phases\n");
	VALUE(DMASYNC_PHASE_QUEUED)
	VALUE(DMASYNC_PHASE_ISSUE)
	VALUE(DMASYNC_PHASE_BARRIER)
	VALUE(DMASYNC_PHASE_TOTAL)
	printf("#### File descriptors of a queue\n");
	VALUE(DMASYNC_QUEUE_RING)
	VALUE(DMASYNC_QUEUE_WORKER_PAGE)
	VALUE(DMASYNC_QUEUE_DOORBELL)
	VALUE(DMASYNC_QUEUE_NOTIFICATION)
	printf("#### Completion flags\n");
	HEX(DMASYNC_COMPLETION_EXTENDED)
	HEX(DMASYNC_COMPLETION_MIXED)
	HEX(DMASYNC_COMPLETION_NO_GUARANTEE)
	HEX(DMASYNC_COMPLETION_REISSUED)
	HEX(DMASYNC_COMPLETION_KERNEL)
	HEX(DMASYNC_COMPLETION_SUSPECT_TIME)
	HEX(DMASYNC_COMPLETION_REPLAYED)
	HEX(DMASYNC_COMPLETION_INLINE)
	HEX(DMASYNC_COMPLETION_SPLIT)
	printf("#### Ring constants\n");
	HEX(DMASYNC_RING_MAGIC)
	VALUE(DMASYNC_RING_LAYOUT)
	HEX(DMASYNC_RING_START)
	VALUE(DMASYNC_RING_MIN_DEPTH)
	VALUE(DMASYNC_RING_MAX_DEPTH)
	VALUE(DMASYNC_RING_MIN_UNITS)
	VALUE(DMASYNC_RING_MAX_UNITS)
	VALUE(DMASYNC_RING_PAGE)
	printf("#### The word of a unit\n");
	HEX(DMASYNC_UNIT_BUFFER_MASK)
	HEX(UINT32_C(3) << DMASYNC_UNIT_DIRECTION_SHIFT)
	HEX(UINT32_C(3) << DMASYNC_UNIT_SYNC_SHIFT)
	HEX(DMASYNC_UNIT_STRIDED)
	HEX(DMASYNC_UNIT_RESERVED)
	printf("#### Sync and direction\n");
	VALUE(DMASYNC_FOR_DEVICE)
	VALUE(DMASYNC_FOR_CPU)
	VALUE(DMASYNC_TO_DEVICE)
	VALUE(DMASYNC_FROM_DEVICE)
	VALUE(DMASYNC_BIDIRECTIONAL)
	printf("#### Histogram constants\n");
	VALUE(DMASYNC_HISTOGRAM_SUB_BITS)
	VALUE(DMASYNC_HISTOGRAM_MAX_EXPONENT)
	VALUE(DMASYNC_HISTOGRAM_BUCKETS)
}

int main(void)
{
	const char *gap = layout_check();

	if (gap) {
		fprintf(stderr, "layout.h does not cover struct %s\n", gap);
		return 1;
	}
	print_structs();
	print_messages();
	print_reasons();
	print_values();
	return 0;
}
