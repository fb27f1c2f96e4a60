/* SPDX-License-Identifier: MIT */
/*
 * Which batch has its slice next: a runnable list, first come first served, a batch that used up
 * its slice going to the end. One worker's own; nothing is allocated. Classes and shares belong
 * here.
 */
#ifndef DMASYNC_SCHEDULER_H
#define DMASYNC_SCHEDULER_H

#include <stddef.h>

#include "daemon/batch.h"

struct scheduler {
	struct batch *first, *last;
};

static inline void scheduler_add(struct scheduler *scheduler, struct batch *batch)
{
	batch->next_runnable = NULL;
	batch->previous_runnable = scheduler->last;
	if (scheduler->last)
		scheduler->last->next_runnable = batch;
	else
		scheduler->first = batch;
	scheduler->last = batch;
}

static inline void scheduler_remove(struct scheduler *scheduler, struct batch *batch)
{
	if (batch->previous_runnable)
		batch->previous_runnable->next_runnable = batch->next_runnable;
	else
		scheduler->first = batch->next_runnable;
	if (batch->next_runnable)
		batch->next_runnable->previous_runnable = batch->previous_runnable;
	else
		scheduler->last = batch->previous_runnable;
	batch->next_runnable = batch->previous_runnable = NULL;
}

/* Takes the next one off the list; NULL where none is runnable. */
static inline struct batch *scheduler_take(struct scheduler *scheduler)
{
	struct batch *batch = scheduler->first;

	if (batch)
		scheduler_remove(scheduler, batch);
	return batch;
}

#endif
