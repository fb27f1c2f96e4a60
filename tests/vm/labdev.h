/* SPDX-License-Identifier: MIT */
/*
 * What /dev/labdev, a module of the lab kernel, can be asked: it imports a dma-buf for a device
 * that is not coherent and maps it there. For programs that run in a guest of tests/vm.
 */
#ifndef TESTS_VM_LABDEV_H
#define TESTS_VM_LABDEV_H

#include <linux/ioctl.h>
#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdint.h>
#endif

#define LABDEV_PATH "/dev/labdev"

struct labdev_attach {
	int32_t fd;	   /* in */
	uint32_t nents;	   /* out: pieces the device sees */
	uint64_t bytes;	   /* out */
	uint32_t coherent; /* out: 1 where the kernel calls the device coherent */
	uint32_t reserved;
};

/* One buffer for each open file; closing it detaches. */
#define LABDEV_ATTACH _IOWR('V', 1, struct labdev_attach)
#define LABDEV_DETACH _IO('V', 2)
/* In: an address of the caller; out: PAR_EL1, its memory attributes in [63:56]. */
#define LABDEV_PAR _IOWR('V', 3, uint64_t)

#endif
