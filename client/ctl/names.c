/* SPDX-License-Identifier: MIT */
/*
 * The words for the values of proto/types.h. Constants, any thread.
 */
#include <dmasync/dmasync.h>

#include "client/ctl/names.h"

const struct option_choice names_backends[] = {
	{"auto", DMASYNC_BACKEND_AUTO},		  {"direct", DMASYNC_BACKEND_DIRECT},
	{"kernel", DMASYNC_BACKEND_KERNEL},	  {"none", DMASYNC_BACKEND_NONE},
	{"simulated", DMASYNC_BACKEND_SIMULATED}, {NULL, 0},
};

const struct option_choice names_directions[] = {
	{"to_device", DMASYNC_TO_DEVICE},
	{"from_device", DMASYNC_FROM_DEVICE},
	{"bidirectional", DMASYNC_BIDIRECTIONAL},
	{NULL, 0},
};

const struct option_choice names_classes[] = {
	{"realtime", DMASYNC_CLASS_REALTIME},
	{"normal", DMASYNC_CLASS_NORMAL},
	{"bulk", DMASYNC_CLASS_BULK},
	{NULL, 0},
};

const struct option_choice names_memories[] = {
	{"auto", DMASYNC_MEMORY_AUTO},
	{"cma", DMASYNC_MEMORY_CMA},
	{"system", DMASYNC_MEMORY_SYSTEM},
	{"udmabuf", DMASYNC_MEMORY_UDMABUF},
	{"memfd", DMASYNC_MEMORY_MEMFD},
	{"simulated", DMASYNC_MEMORY_SIMULATED},
	{NULL, 0},
};

const struct option_choice names_kinds[] = {
	{"memfd", DMASYNC_KIND_MEMFD},
	{"dma-buf", DMASYNC_KIND_DMABUF},
	{NULL, 0},
};

const struct names_flag names_completion_flags[] = {
	{DMASYNC_COMPLETION_MIXED, "mixed"},
	{DMASYNC_COMPLETION_NO_GUARANTEE, "no_guarantee"},
	{DMASYNC_COMPLETION_REISSUED, "reissued"},
	{DMASYNC_COMPLETION_KERNEL, "kernel"},
	{DMASYNC_COMPLETION_SUSPECT_TIME, "suspect_time"},
	{DMASYNC_COMPLETION_SPLIT, "split"},
	{DMASYNC_COMPLETION_REPLAYED, "replayed"},
	{DMASYNC_COMPLETION_INLINE, "inline"},
	{0, NULL},
};

const char *names_of(const struct option_choice *names, int value)
{
	for (; names->name; names++)
		if (names->value == value)
			return names->name;
	return "unknown";
}

uint32_t names_backend_flag(int backend)
{
	switch ((enum dmasync_backend)backend) {
	case DMASYNC_BACKEND_AUTO:
		return 0;
	case DMASYNC_BACKEND_DIRECT:
		return DMASYNC_IMPORT_DIRECT;
	case DMASYNC_BACKEND_KERNEL:
		return DMASYNC_IMPORT_KERNEL;
	case DMASYNC_BACKEND_NONE:
		return DMASYNC_IMPORT_COHERENT;
	case DMASYNC_BACKEND_SIMULATED:
		return DMASYNC_IMPORT_SIMULATED;
	}
	return 0;
}
