/* SPDX-License-Identifier: MIT */
/*
 * libdmasync: writes to device memory, in blocks with one barrier. For what follows a sync: a
 * descriptor written into a BAR, a doorbell rung. Needs no daemon and no connection.
 *
 * The memory is a mapping of a device's registers or of its memory: from dmasync_io_map(), from
 * VFIO, from any mmap(). To it, every store has exactly the width that is stated here and is
 * issued exactly once, in ascending order; none is torn, merged, widened or repeated, as a
 * compiler may do with memcpy() or with plain assignments. Ordinary memory will do as well.
 *
 * A batch cannot carry such a write ("after the barrier, store this word there"), and will not:
 * the daemon would then write device memory for its clients, with its rights and not with theirs.
 * A client waits for its completion and writes by itself. What the batch has covered has reached
 * the point of coherency then, and the completion was read with an acquire.
 *
 * What is ordered (docs: dmasync_io(3)):
 *
 *	block writes	as Linux's memset_io() and memcpy_toio(): relaxed. No barrier, except on
 *			CPUs that have an erratum for which one is needed: there each call ends in
 *			one, so that no later load of the device passes the call's stores. (NVIDIA
 *			Olympus, T410-OLY-1027: "dmb osh".)
 *	single writes	as Linux's writel(): after earlier stores, also those to uncached memory
 *			("dmb oshst" before it on arm64, "fence ow,ow" on riscv64). On CPUs with
 *			that erratum they are store-releases.
 *
 * More is asked for by the flags of a call. Which CPUs need what is found out once, at the first
 * call, from the MIDR of every CPU in sysfs, and is the library's only state: a constant that
 * threads may find at the same time, each the same. Where sysfs has no MIDR, arm64 takes the
 * barrier. DMASYNC_IO_MIDR=0x4e0f0100 in the environment is taken for the MIDR of every CPU (not
 * in set-user-ID programs).
 *
 * Threads: any, at any time; calls on the same addresses are the caller's to order. None fails:
 * an address that is not mapped, or misaligned where the memory does not allow it, is a signal.
 */
#ifndef DMASYNC_IOMEM_H
#define DMASYNC_IOMEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Flags of a write. 0: as above. Unknown ones are not looked at.
 *
 * ORDERED: the stores of the call before any later load, on every CPU: "dmb osh" on arm64,
 * "mfence" on x86-64, "fence iorw,iorw" on riscv64.
 * FLUSH: what stands in write-combining buffers goes out: "sfence" on x86-64; arm64 has a hint for
 * it (DGH), riscv64 a barrier of stores. Later loads are not held back.
 * RELAXED: no barrier, not even for the erratum: the caller has one of his own. Not with ORDERED.
 * EACH: the barrier after every single store and not once behind the last; on arm64 every store is
 * then a store-release. To measure what that costs (dmasyncctl bench iomem).
 */
#define DMASYNC_IO_ORDERED (1u << 0)
#define DMASYNC_IO_FLUSH (1u << 1)
#define DMASYNC_IO_RELAXED (1u << 2)
#define DMASYNC_IO_EACH (1u << 3)

/*
 * `length` bytes at `to` become `value`, or those at `from`: single bytes until `to` is a multiple
 * of 8, then 64-bit words, then the rest in bytes. `from` may be unaligned; it is ordinary memory
 * and does not overlap. Units: bytes.
 */
void dmasync_io_memset(volatile void *to, int value, size_t length, uint32_t flags);
void dmasync_io_memcpy_to(volatile void *to, const void *from, size_t length, uint32_t flags);

/*
 * `words` words of 32 or 64 bits, no other store: for a descriptor or a write-combining window.
 * `to` is a multiple of the word, `from` need not be. On arm64 they end in a hint that nothing
 * more is coming for the write-combining buffer (DGH), or in the barrier in its place.
 */
void dmasync_io_write32_copy(volatile void *to, const void *from, size_t words, uint32_t flags);
void dmasync_io_write64_copy(volatile void *to, const void *from, size_t words, uint32_t flags);

/*
 * `length` bytes from a device into ordinary memory: single bytes until `from` is a multiple of 8,
 * then 64-bit words, then bytes, each read once, in ascending order. `to` may be unaligned.
 */
void dmasync_io_read_from(void *to, const volatile void *from, size_t length);

/*
 * One store of that width, after all earlier stores of this thread: a doorbell after a descriptor.
 * `to` is a multiple of the width. On x86-64 stores stay in order by themselves, except those to
 * write-combining memory before it: write these with DMASYNC_IO_FLUSH.
 */
void dmasync_io_write8(volatile void *to, uint8_t value, uint32_t flags);
void dmasync_io_write16(volatile void *to, uint16_t value, uint32_t flags);
void dmasync_io_write32(volatile void *to, uint32_t value, uint32_t flags);
/*
 * On 32-bit CPUs, which have no such store, two of 32 bits, the lower half first; the same goes
 * for the 64-bit words above.
 */
void dmasync_io_write64(volatile void *to, uint64_t value, uint32_t flags);

/* Do block writes end in a barrier here? What was found out at the first call. */
bool dmasync_io_needs_barrier(void);

/* ---- mapping ---- */

struct dmasync_io_map_params {
	uint32_t size;	   /* sizeof this struct, as the caller knows it */
	uint32_t flags;	   /* 0 */
	const char *path;  /* "/dev/uio0", or ".../0000:00:02.0/resource2" or "resource2_wc" */
	uint32_t map;	   /* which map of a UIO device; 0 for a PCI one */
	uint32_t reserved; /* 0 */
	uint64_t offset;   /* bytes into it, of any alignment */
	uint64_t length;   /* bytes; 0: all behind offset */
	char *error_text;  /* out: on failure a sentence, cut to error_text_size; or NULL */
	size_t error_text_size;
};

/* Zeroes and sets size. */
void dmasync_io_map_params_init(struct dmasync_io_map_params *params);

/*
 * Maps device memory, readable and writable: a map of a UIO device, of the size that its driver
 * says in sysfs, less what stands before the memory in its first page; or a memory BAR of a PCI
 * device by its file in sysfs, resourceN (uncached) or resourceN_wc (write-combining, where the BAR
 * is prefetchable). The file is closed again; a UIO device's fd, for its interrupts, is the
 * caller's to open.
 *
 * -ENOENT: no such file, or BAR without a write-combining one. -EACCES, -EPERM: not allowed to
 * open or map it (root, a udev rule; not under kernel lockdown). -EINVAL: neither of the two, an
 * I/O port BAR, or refused by the kernel. -ENXIO: the UIO device has no such map, or the device
 * does not answer to memory accesses (it is not enabled). -ERANGE: not inside the memory.
 * -E2BIG, -EINVAL as for other parameter structs. The error text says which.
 */
int dmasync_io_map(const struct dmasync_io_map_params *params, void **ret_address,
		   uint64_t *ret_length);

/* Ends a mapping of dmasync_io_map(), of both values that it returned. NULL is fine. */
void dmasync_io_unmap(void *address, uint64_t length);

#ifdef __cplusplus
}
#endif

#endif
