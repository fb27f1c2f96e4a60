/* SPDX-License-Identifier: MIT */
/*
 * What the demo's processes say to one another over socket pairs: "this frame is yours now", and
 * once, at the start, the buffers' file descriptors. One thread at each end.
 */
#ifndef DEMO_LINK_H
#define DEMO_LINK_H

#include <stdint.h>

#include "frame.h"

struct frame_message {
	uint32_t buffer;
	uint32_t number;
	struct exposure exposure; /* from ISP to consumer */
};

/* A pair of connected ends; each message arrives whole. */
int link_create(int ret_ends[2]);

int link_send(int link, const struct frame_message *message);
/* 1: a message; 0: the other side is done and has closed its end. */
int link_receive(int link, struct frame_message *ret);

int link_send_fds(int link, const int *fds, uint32_t count);
/* Exactly `count` of them, owned by the caller. */
int link_receive_fds(int link, int *ret_fds, uint32_t count);

#endif
