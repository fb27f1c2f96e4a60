/* SPDX-License-Identifier: MIT */
/*
 * Starts the demo's three processes, connected in a ring of socket pairs, and waits for them. The
 * parent's one thread; SIGINT, SIGTERM, SIGHUP and SIGCHLD are blocked in it (process.h).
 */
#include "pipeline.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "link.h"
#include "process.h"

enum { SENSOR, ISP, CONSUMER, STAGES };

/* links[i] joins stage i and the next one; ends[0] is stage i's. */
struct links {
	int ends[STAGES][2];
};

static void close_links(const struct links *links, int except, int and_except)
{
	for (int i = 0; i < STAGES; i++)
		for (int end = 0; end < 2; end++) {
			int fd = links->ends[i][end];

			if (fd >= 0 && fd != except && fd != and_except)
				close(fd);
		}
}

/* In the new process. Only its own ends stay open, so that each side sees the other's death. */
static int run_stage(int stage, const struct pipeline *pipeline, const struct links *links,
		     struct results *results)
{
	int next = links->ends[stage][0];
	int previous = links->ends[(stage + STAGES - 1) % STAGES][1];

	close_links(links, next, previous);
	switch (stage) {
	case SENSOR:
		return sensor_run(pipeline, next, previous);
	case ISP:
		return isp_run(pipeline, previous, next, results);
	case CONSUMER:
		return consumer_run(pipeline, previous, next, results);
	}
	return EXIT_FAILURE;
}

int pipeline_run(const struct pipeline *pipeline, struct results *ret)
{
	struct links links = {{{-1, -1}, {-1, -1}, {-1, -1}}};
	pid_t stages[STAGES] = {-1, -1, -1};
	struct results *results = mmap(NULL, sizeof *results, PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int r = results == MAP_FAILED ? -errno : 0;

	if (r < 0)
		return complain("demo", "no memory for the results", r);
	for (int i = 0; i < STAGES && r == 0; i++)
		r = link_create(links.ends[i]);
	for (int i = 0; i < STAGES && r == 0; i++) {
		stages[i] = process_fork();
		if (stages[i] == 0)
			_exit(run_stage(i, pipeline, &links, results));
		if (stages[i] < 0)
			r = (int)stages[i];
	}
	close_links(&links, -1, -1);
	if (r < 0)
		complain("demo", "cannot start the pipeline", r);

	/* The first failure ends them all. */
	int ended = process_wait_all(stages, STAGES, r < 0);

	if (r == 0)
		r = ended;
	if (r == 0)
		*ret = *results;
	munmap(results, sizeof *results);
	return r;
}
