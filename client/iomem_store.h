/* SPDX-License-Identifier: MIT */
/*
 * Single stores, loads and barriers for device memory, one instruction each. Any thread.
 *
 * Instructions and not volatile accesses where an architecture is known: a volatile store may still
 * be given an address that is written back (arm64 "str x0, [x1], 8"), which a hypervisor that has
 * to emulate the access cannot decode. "Q" and a plain "m" of x86-64 and riscv64 are addresses
 * only. The output operand tells the compiler what is written; volatile keeps them all, once each,
 * in order.
 */
#ifndef DMASYNC_CLIENT_IOMEM_STORE_H
#define DMASYNC_CLIENT_IOMEM_STORE_H

#include <stdint.h>

#define IO_INLINE static inline __attribute__((always_inline))

/* ---- one store, one load ---- */

#if defined(__aarch64__)

#define IO_STORE(bits, suffix, instruction)                                                        \
	IO_INLINE void io_store##bits##suffix(volatile void *to, uint##bits##_t value)             \
	{                                                                                          \
		__asm__ volatile(instruction                                                       \
				 : "=Q"(*(volatile uint##bits##_t *)to)                            \
				 : "rZ"(value));                                                   \
	}
#define IO_LOAD(bits, instruction)                                                                 \
	IO_INLINE uint##bits##_t io_load##bits(const volatile void *from)                          \
	{                                                                                          \
		uint##bits##_t value;                                                              \
		__asm__ volatile(instruction                                                       \
				 : "=r"(value)                                                     \
				 : "Q"(*(const volatile uint##bits##_t *)from));                   \
		return value;                                                                      \
	}
IO_STORE(8, , "strb %w1, %0")
IO_STORE(16, , "strh %w1, %0")
IO_STORE(32, , "str %w1, %0")
IO_STORE(64, , "str %x1, %0")
IO_LOAD(8, "ldrb %w0, %1")
IO_LOAD(64, "ldr %x0, %1")

#elif defined(__x86_64__)

#define IO_STORE(bits, instruction, registers)                                                     \
	IO_INLINE void io_store##bits(volatile void *to, uint##bits##_t value)                     \
	{                                                                                          \
		__asm__ volatile(instruction                                                       \
				 : "=m"(*(volatile uint##bits##_t *)to)                            \
				 : registers(value));                                              \
	}
#define IO_LOAD(bits, instruction, registers)                                                      \
	IO_INLINE uint##bits##_t io_load##bits(const volatile void *from)                          \
	{                                                                                          \
		uint##bits##_t value;                                                              \
		__asm__ volatile(instruction                                                       \
				 : registers(value)                                                \
				 : "m"(*(const volatile uint##bits##_t *)from));                   \
		return value;                                                                      \
	}
IO_STORE(8, "movb %b1, %0", "q")
IO_STORE(16, "movw %w1, %0", "r")
IO_STORE(32, "movl %k1, %0", "r")
IO_STORE(64, "movq %q1, %0", "r")
IO_LOAD(8, "movb %1, %b0", "=q")
IO_LOAD(64, "movq %1, %q0", "=r")

#elif defined(__riscv) && __riscv_xlen == 64

#define IO_STORE(bits, instruction)                                                                \
	IO_INLINE void io_store##bits(volatile void *to, uint##bits##_t value)                     \
	{                                                                                          \
		__asm__ volatile(instruction                                                       \
				 : "=m"(*(volatile uint##bits##_t *)to)                            \
				 : "rJ"(value));                                                   \
	}
#define IO_LOAD(bits, instruction)                                                                 \
	IO_INLINE uint##bits##_t io_load##bits(const volatile void *from)                          \
	{                                                                                          \
		uint##bits##_t value;                                                              \
		__asm__ volatile(instruction                                                       \
				 : "=r"(value)                                                     \
				 : "m"(*(const volatile uint##bits##_t *)from));                   \
		return value;                                                                      \
	}
IO_STORE(8, "sb %z1, %0")
IO_STORE(16, "sh %z1, %0")
IO_STORE(32, "sw %z1, %0")
IO_STORE(64, "sd %z1, %0")
IO_LOAD(8, "lbu %0, %1")
IO_LOAD(64, "ld %0, %1")

#else

#define IO_ACCESS(bits)                                                                            \
	IO_INLINE void io_store##bits(volatile void *to, uint##bits##_t value)                     \
	{                                                                                          \
		*(volatile uint##bits##_t *)to = value;                                            \
	}                                                                                          \
	IO_INLINE uint##bits##_t io_load##bits(const volatile void *from)                          \
	{                                                                                          \
		return *(const volatile uint##bits##_t *)from;                                     \
	}
IO_ACCESS(8)
IO_ACCESS(16)
IO_ACCESS(32)
#if UINTPTR_MAX > UINT32_MAX
IO_ACCESS(64)
#else
/* In halves, in the order of their addresses: which of them is the lower one, the CPU says. */
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the lower half is taken to come first"
#endif
IO_INLINE void io_store64(volatile void *to, uint64_t value)
{
	io_store32(to, (uint32_t)value);
	io_store32((volatile char *)to + 4, (uint32_t)(value >> 32));
}
IO_INLINE uint64_t io_load64(const volatile void *from)
{
	uint64_t low = io_load32(from);

	return low | (uint64_t)io_load32((const volatile char *)from + 4) << 32;
}
#endif

#endif

/* ---- barriers ---- */

#define IO_ASM(instruction) __asm__ volatile(instruction ::: "memory")

/* All earlier stores before all later loads, as devices see it. */
IO_INLINE void io_order(void)
{
#if defined(__aarch64__)
	IO_ASM("dmb osh");
#elif defined(__x86_64__)
	IO_ASM("mfence");
#elif defined(__riscv)
	IO_ASM("fence iorw, iorw");
#elif defined(__arm__)
	IO_ASM("dsb sy");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Nothing more comes for the write-combining buffers. */
IO_INLINE void io_flush(void)
{
#if defined(__aarch64__)
	IO_ASM("hint #6"); /* DGH; what an assembler older than Armv8.6 calls it */
#elif defined(__x86_64__)
	IO_ASM("sfence");
#elif defined(__riscv)
	IO_ASM("fence ow, ow");
#elif defined(__arm__)
	IO_ASM("dsb st");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* Is io_flush() but a hint, which costs nothing where it does nothing? */
#if defined(__aarch64__)
#define IO_FLUSH_IS_HINT 1
#else
#define IO_FLUSH_IS_HINT 0
#endif

/*
 * Before a single write: earlier stores, to ordinary memory that a device reads as to uncached
 * memory, come first. x86-64 keeps stores in order; what is left is the compiler.
 */
IO_INLINE void io_stores_first(void)
{
#if defined(__aarch64__)
	IO_ASM("dmb oshst");
#elif defined(__x86_64__)
	IO_ASM("");
#elif defined(__riscv)
	IO_ASM("fence ow, ow");
#elif defined(__arm__)
	IO_ASM("dsb st");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/*
 * A store before all later loads. On arm64 a store-release: that it holds back later loads of the
 * same device is NVIDIA's word about the CPUs with the erratum, not the architecture's. Elsewhere
 * the store and its barrier.
 */
#if defined(__aarch64__)
IO_STORE(8, _ordered, "stlrb %w1, %0")
IO_STORE(16, _ordered, "stlrh %w1, %0")
IO_STORE(32, _ordered, "stlr %w1, %0")
IO_STORE(64, _ordered, "stlr %x1, %0")
#else
#define IO_STORE_ORDERED(bits)                                                                     \
	IO_INLINE void io_store##bits##_ordered(volatile void *to, uint##bits##_t value)           \
	{                                                                                          \
		io_store##bits(to, value);                                                         \
		io_order();                                                                        \
	}
IO_STORE_ORDERED(8)
IO_STORE_ORDERED(16)
IO_STORE_ORDERED(32)
IO_STORE_ORDERED(64)
#endif

#endif
