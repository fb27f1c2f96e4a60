/* SPDX-License-Identifier: MIT */
/*
 * /dev/labdev, a kernel module for tests: imports a dma-buf for a device that is not coherent, so
 * that exporters that sync for their importers have one, and tells the memory attributes of a user
 * address. Each open file is one importer; its ioctls are serialised by a mutex.
 *
 * The interface is labdev.h. Built by build-kernel.sh, also against a prebuilt kernel's headers.
 */
#include <linux/dma-buf.h>
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/err.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/platform_device.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/version.h>

#include "labdev.h"

static struct platform_device *importer;

struct attachment {
	struct mutex mutex;
	struct dma_buf *buffer; /* NULL: nothing attached */
	struct dma_buf_attachment *attachment;
	struct sg_table *table;
};

static void detach(struct attachment *a)
{
	if (!a->buffer)
		return;
	dma_buf_unmap_attachment_unlocked(a->attachment, a->table, DMA_BIDIRECTIONAL);
	dma_buf_detach(a->buffer, a->attachment);
	dma_buf_put(a->buffer);
	a->buffer = NULL;
}

static int attach(struct attachment *a, int fd)
{
	struct dma_buf *buffer = dma_buf_get(fd);
	struct dma_buf_attachment *attachment;
	struct sg_table *table;

	if (IS_ERR(buffer))
		return PTR_ERR(buffer);
	attachment = dma_buf_attach(buffer, &importer->dev);
	if (IS_ERR(attachment)) {
		dma_buf_put(buffer);
		return PTR_ERR(attachment);
	}
	table = dma_buf_map_attachment_unlocked(attachment, DMA_BIDIRECTIONAL);
	if (IS_ERR(table)) {
		dma_buf_detach(buffer, attachment);
		dma_buf_put(buffer);
		return PTR_ERR(table);
	}
	a->buffer = buffer;
	a->attachment = attachment;
	a->table = table;
	return 0;
}

static bool importer_is_coherent(void)
{
#ifdef CONFIG_ARCH_HAS_SYNC_DMA_FOR_DEVICE
	return dev_is_dma_coherent(&importer->dev);
#else
	return true;
#endif
}

static long attach_call(struct attachment *a, void __user *argument)
{
	struct labdev_attach call;
	struct scatterlist *piece;
	int i, r;

	if (copy_from_user(&call, argument, sizeof(call)))
		return -EFAULT;
	detach(a);
	r = attach(a, call.fd);
	if (r < 0)
		return r;
	call.nents = a->table->nents;
	call.bytes = 0;
	for_each_sgtable_dma_sg(a->table, piece, i) call.bytes += sg_dma_len(piece);
	call.coherent = importer_is_coherent();
	return copy_to_user(argument, &call, sizeof(call)) ? -EFAULT : 0;
}

static long par_call(uint64_t __user *argument)
{
	uint64_t address, par = 1; /* F: no translation */

	if (get_user(address, argument))
		return -EFAULT;
#ifdef CONFIG_ARM64
	preempt_disable(); /* PAR_EL1 is this CPU's */
	asm volatile("at s1e0r, %1\n\tisb\n\tmrs %0, par_el1"
		     : "=r"(par)
		     : "r"(address)
		     : "memory");
	preempt_enable();
#endif
	return put_user(par, argument);
}

static long labdev_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	struct attachment *a = file->private_data;
	long r = -ENOTTY;

	mutex_lock(&a->mutex);
	switch (command) {
	case LABDEV_ATTACH:
		r = attach_call(a, (void __user *)argument);
		break;
	case LABDEV_DETACH:
		detach(a);
		r = 0;
		break;
	case LABDEV_PAR:
		r = par_call((uint64_t __user *)argument);
		break;
	}
	mutex_unlock(&a->mutex);
	return r;
}

static int labdev_open(struct inode *inode, struct file *file)
{
	struct attachment *a = kzalloc(sizeof(*a), GFP_KERNEL);

	if (!a)
		return -ENOMEM;
	mutex_init(&a->mutex);
	file->private_data = a;
	return 0;
}

static int labdev_release(struct inode *inode, struct file *file)
{
	detach(file->private_data);
	kfree(file->private_data);
	return 0;
}

static const struct file_operations operations = {
	.owner = THIS_MODULE,
	.open = labdev_open,
	.release = labdev_release,
	.unlocked_ioctl = labdev_ioctl,
};

static struct miscdevice device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "labdev",
	.fops = &operations,
};

static int __init labdev_init(void)
{
	int r;

	/* Nothing in the device tree describes it, so the kernel takes it for not coherent. */
	importer = platform_device_register_simple("labdev-importer", -1, NULL, 0);
	if (IS_ERR(importer))
		return PTR_ERR(importer);
	r = dma_coerce_mask_and_coherent(&importer->dev, DMA_BIT_MASK(64));
	if (!r)
		r = misc_register(&device);
	if (r)
		platform_device_unregister(importer);
	return r;
}

static void __exit labdev_exit(void)
{
	misc_deregister(&device);
	platform_device_unregister(importer);
}

module_init(labdev_init);
module_exit(labdev_exit);
MODULE_DESCRIPTION("importer of dma-bufs for tests");
MODULE_LICENSE("Dual MIT/GPL");
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 13, 0)
MODULE_IMPORT_NS("DMA_BUF");
#else
MODULE_IMPORT_NS(DMA_BUF);
#endif
