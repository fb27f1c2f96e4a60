/* SPDX-License-Identifier: MIT */
/*
 * libpmem as a peer. Owns what dlopen() returned, for the life of the process. It is loaded and not
 * linked: the program builds and runs where it is not installed. One thread.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "client/internal.h"
#include "tests/compare/peer_pmem.h"

/* As in <libpmem.h>; its ABI has been the same since version 1.0. */
static void (*flush)(const void *address, size_t length);
static void (*drain)(void);
static void (*persist)(const void *address, size_t length);

static bool find(void *library, const char *name, void *ret_function)
{
	void *symbol = dlsym(library, name);

	/* ISO C has no cast from an object pointer to a function pointer; POSIX has this. */
	memcpy(ret_function, &symbol, sizeof symbol);
	return symbol;
}

static const char *load(void)
{
	static const char *const variables[] = {"PMEM_NO_FLUSH", "PMEM_NO_CLWB",
						"PMEM_NO_CLFLUSHOPT"};
	int (*has_auto_flush)(void);

	for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
		unsetenv(variables[i]);

	void *library = dlopen("libpmem.so.1", RTLD_NOW);

	if (!library)
		return "libpmem is not installed (package libpmem1)";
	if (!find(library, "pmem_flush", &flush) || !find(library, "pmem_drain", &drain) ||
	    !find(library, "pmem_persist", &persist) ||
	    !find(library, "pmem_has_auto_flush", &has_auto_flush))
		return "this libpmem lacks pmem_flush, pmem_drain, pmem_persist or "
		       "pmem_has_auto_flush";
	/* There it flushes nothing, and there is nothing to measure beside. */
	if (has_auto_flush() == 1)
		return "libpmem flushes nothing here: the platform says eADR";
	return NULL;
}

const char *pmem_missing(void)
{
	static const char *why;
	static bool loaded;

	if (!loaded)
		why = load();
	loaded = true;
	return why;
}

uint64_t pmem_persist_each(const struct bench_list *list)
{
	int64_t start = now_ns();

	for (uint32_t i = 0; i < list->count; i++)
		persist(list->memory + list->ranges[i].offset, (size_t)list->ranges[i].length);
	return (uint64_t)(now_ns() - start);
}

uint64_t pmem_flush_each(const struct bench_list *list)
{
	int64_t start = now_ns();

	for (uint32_t i = 0; i < list->count; i++)
		flush(list->memory + list->ranges[i].offset, (size_t)list->ranges[i].length);
	drain();
	return (uint64_t)(now_ns() - start);
}
