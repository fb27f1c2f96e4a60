/* SPDX-License-Identifier: MIT */
/*
 * The policy of backends. Owns the table of exporters: what DMA_BUF_IOCTL_SYNC does for each, and
 * whether line operations on a mapping of our own are right. Pure; any thread.
 */
#include "daemon/buffer/policy.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum kernel_sync {
	KERNEL_SYNC_WORKS,    /* with nothing else attached */
	KERNEL_SYNC_ATTACHED, /* only for devices that have the buffer mapped at that moment */
	KERNEL_SYNC_UNKNOWN,  /* driver by driver, behind one name */
	KERNEL_SYNC_NOTHING,  /* begin and end return 0 and do nothing */
};

struct exporter {
	const char *name;
	bool direct; /* line operations are right, and the memory's pages stay: they cannot fault */
	bool cached; /* always; else the driver or the application chose, and we cannot see it */
	enum kernel_sync kernel;
	const char *what;
};

/*
 * Names as the kernel sets exp_name: a heap's is the heap's own, a module's is KBUILD_MODNAME.
 * All DRM drivers that use the helpers say `drm`: whether the mapping is cached, and whether the
 * driver syncs, cannot be told from here.
 */
static const struct exporter exporters[] = {
	{"system", true, true, KERNEL_SYNC_ATTACHED, "the system heap"},
	{"default_cma_region", true, true, KERNEL_SYNC_ATTACHED, "a CMA heap"},
	{"reserved", true, true, KERNEL_SYNC_ATTACHED, "a CMA heap"},
	{"linux,cma", true, true, KERNEL_SYNC_ATTACHED, "a CMA heap"},
	{"udmabuf", true, true, KERNEL_SYNC_WORKS, "udmabuf"},
	{"videobuf2_dma_contig", true, false, KERNEL_SYNC_NOTHING, "V4L2 dma-contig memory"},
	{"videobuf2_dma_sg", true, true, KERNEL_SYNC_WORKS, "V4L2 dma-sg memory"},
	{"videobuf2_vmalloc", true, true, KERNEL_SYNC_NOTHING, "V4L2 vmalloc memory"},
	{"drm", false, false, KERNEL_SYNC_UNKNOWN, "some DRM driver"},
};

static const struct exporter unknown_exporter = {"", false, false, KERNEL_SYNC_UNKNOWN,
						 "an exporter dmasync does not know"};

static const struct exporter *find_exporter(const char *name)
{
	for (size_t i = 0; i < sizeof exporters / sizeof exporters[0]; i++)
		if (strcmp(exporters[i].name, name) == 0)
			return &exporters[i];
	return &unknown_exporter;
}

const char *policy_backend_name(enum dmasync_backend backend)
{
	switch (backend) {
	case DMASYNC_BACKEND_AUTO:
		return "auto";
	case DMASYNC_BACKEND_DIRECT:
		return "direct";
	case DMASYNC_BACKEND_KERNEL:
		return "kernel";
	case DMASYNC_BACKEND_NONE:
		return "none";
	case DMASYNC_BACKEND_SIMULATED:
		return "simulated";
	}
	return "unknown";
}

__attribute__((format(printf, 3, 4))) static void refuse(struct policy *ret, int error,
							 const char *format, ...)
{
	va_list arguments;

	ret->error = error;
	va_start(arguments, format);
	vsnprintf(ret->why, sizeof ret->why, format, arguments);
	va_end(arguments);
}

__attribute__((format(printf, 4, 5))) static void choose(struct policy *ret,
							 enum dmasync_backend backend,
							 bool guarantee, const char *format, ...)
{
	va_list arguments;

	ret->error = 0;
	ret->backend = backend;
	ret->guarantee = guarantee;
	va_start(arguments, format);
	vsnprintf(ret->why, sizeof ret->why, format, arguments);
	va_end(arguments);
}

static void choose_memfd(const struct policy_facts *facts, struct policy *ret)
{
	switch (facts->requested) {
	case DMASYNC_BACKEND_AUTO:
	case DMASYNC_BACKEND_DIRECT:
		if (facts->line_operations)
			choose(ret, DMASYNC_BACKEND_DIRECT, true,
			       "a sealed memfd is normal cached memory: line operations are right");
		else
			refuse(ret, -EOPNOTSUPP,
			       "no line operation works on this CPU, and the kernel has no sync "
			       "for a "
			       "memfd; pass a dma-buf, from udmabuf for instance");
		return;
	case DMASYNC_BACKEND_KERNEL:
		refuse(ret, -EOPNOTSUPP,
		       "the kernel backend is DMA_BUF_IOCTL_SYNC and a memfd has none; ask for "
		       "direct, "
		       "or make a dma-buf of it with udmabuf");
		return;
	case DMASYNC_BACKEND_NONE:
		choose(ret, DMASYNC_BACKEND_NONE, true,
		       "the client says that all devices of this buffer are coherent");
		return;
	case DMASYNC_BACKEND_SIMULATED:
		if (facts->allow_simulated)
			choose(ret, DMASYNC_BACKEND_SIMULATED, true,
			       "a simulated buffer with a device side of its own, for tests");
		else
			refuse(ret, -EPERM,
			       "simulated buffers are for tests and not allowed here; a daemon "
			       "allows "
			       "them with allow_simulated=yes in [daemon], inline mode with "
			       "DMASYNC_INLINE_SIMULATED");
		return;
	}
}

/* `asked`: who wants the kernel backend, for the sentence; vouched: the configuration does. */
static void choose_kernel(const struct exporter *exporter, const char *asked, bool vouched,
			  struct policy *ret)
{
	switch (exporter->kernel) {
	case KERNEL_SYNC_WORKS:
		choose(ret, DMASYNC_BACKEND_KERNEL, true, "%s: DMA_BUF_IOCTL_SYNC of %s works",
		       asked, exporter->what);
		return;
	case KERNEL_SYNC_ATTACHED:
		choose(ret, DMASYNC_BACKEND_KERNEL, vouched,
		       "%s: DMA_BUF_IOCTL_SYNC of %s works for devices that have the buffer "
		       "mapped, and "
		       "does nothing where none has",
		       asked, exporter->what);
		return;
	case KERNEL_SYNC_UNKNOWN:
		choose(ret, DMASYNC_BACKEND_KERNEL, vouched,
		       "%s: %s; whether its DMA_BUF_IOCTL_SYNC does anything cannot be told from "
		       "user "
		       "space",
		       asked, exporter->what);
		return;
	case KERNEL_SYNC_NOTHING:
		choose(ret, DMASYNC_BACKEND_KERNEL, false,
		       "%s: but DMA_BUF_IOCTL_SYNC of %s is known to do nothing", asked,
		       exporter->what);
		return;
	}
}

static void choose_direct(const struct policy_facts *facts, const struct exporter *exporter,
			  struct policy *ret)
{
	if (facts->line_operations)
		choose(ret, DMASYNC_BACKEND_DIRECT, true, "%s is cached memory%s", exporter->what,
		       exporter->cached
			       ? ": line operations are right"
			       : " where it was allocated non-coherent, else uncached: line "
				 "operations are right there, harmless here");
	else
		choose_kernel(exporter, "no line operation works on this CPU", false, ret);
}

static void choose_configured(const struct policy_facts *facts, const struct exporter *exporter,
			      struct policy *ret)
{
	switch (facts->configured) {
	case DMASYNC_BACKEND_NONE:
		choose(ret, DMASYNC_BACKEND_NONE, true,
		       "the configuration says that all devices of %s buffers are coherent",
		       facts->exporter);
		return;
	case DMASYNC_BACKEND_KERNEL:
		choose_kernel(exporter, "the configuration says kernel", true, ret);
		return;
	case DMASYNC_BACKEND_DIRECT:
		if (facts->line_operations)
			choose(ret, DMASYNC_BACKEND_DIRECT, true,
			       "the configuration says direct for %s", facts->exporter);
		else
			refuse(ret, -EOPNOTSUPP,
			       "the configuration says direct for %s, and no line operation works "
			       "on "
			       "this CPU",
			       facts->exporter);
		return;
	case DMASYNC_BACKEND_AUTO:
	case DMASYNC_BACKEND_SIMULATED: /* config.c takes it for no exporter */
		break;
	}
	if (exporter->direct)
		choose_direct(facts, exporter, ret);
	else
		choose_kernel(exporter, "not known to be cached", false, ret);
}

static void choose_dmabuf(const struct policy_facts *facts, struct policy *ret)
{
	const struct exporter *exporter = find_exporter(facts->exporter);

	if (facts->refuse) {
		refuse(ret, -EPERM, "the configuration refuses buffers of exporter %s",
		       facts->exporter);
		return;
	}
	switch (facts->requested) {
	case DMASYNC_BACKEND_AUTO:
		choose_configured(facts, exporter, ret);
		return;
	case DMASYNC_BACKEND_NONE:
		choose(ret, DMASYNC_BACKEND_NONE, true,
		       "the client says that all devices of this buffer are coherent");
		return;
	case DMASYNC_BACKEND_KERNEL:
		choose_kernel(exporter, "the client asks for kernel",
			      facts->configured == DMASYNC_BACKEND_KERNEL, ret);
		return;
	case DMASYNC_BACKEND_DIRECT:
		if (!facts->line_operations)
			refuse(ret, -EOPNOTSUPP,
			       "no line operation works on this CPU; ask for the kernel backend");
		else if (exporter->direct || facts->configured == DMASYNC_BACKEND_DIRECT)
			choose(ret, DMASYNC_BACKEND_DIRECT, true,
			       "the client asks for direct, which is right for %s",
			       exporter->direct ? exporter->what
						: "it by the configuration's word");
		else
			refuse(ret, -EOPNOTSUPP,
			       "%s (%s): its mapping may fault or be uncached; ask for kernel, or "
			       "set "
			       "backend=direct for it in the daemon's configuration",
			       exporter->what, facts->exporter);
		return;
	case DMASYNC_BACKEND_SIMULATED:
		refuse(ret, -EOPNOTSUPP,
		       "a simulated buffer is a memfd of three equal parts, not a dma-buf");
		return;
	}
}

void policy_choose(const struct policy_facts *facts, struct policy *ret)
{
	memset(ret, 0, sizeof *ret);
	switch (facts->kind) {
	case DMASYNC_KIND_MEMFD:
		choose_memfd(facts, ret);
		return;
	case DMASYNC_KIND_DMABUF:
		choose_dmabuf(facts, ret);
		return;
	}
}
