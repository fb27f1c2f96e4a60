/* SPDX-License-Identifier: MIT */
/*
 * The demo: a camera pipeline of three processes and a dmasyncd of its own. First everything as it
 * should be, then the same frames with one sync left out, to show what breaks. One thread.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pipeline.h"
#include "private_daemon.h"
#include "process.h"

enum { OVERLAY_LINES = 256 / LINE * (64 + 32) };

static const char usage[] =
	"usage: dmasync-demo [--frames N] [--backend simulated|direct] [--memory KIND]\n"
	"                    [--socket PATH]\n"
	"\n"
	"  --frames N             frames of each run, 1 to 1000000 (300)\n"
	"  --backend simulated    memory with a device's side of its own: a sync that is left out\n"
	"                         shows on every machine (the default)\n"
	"  --backend direct       this CPU's cache instructions on real memory\n"
	"  --memory KIND          of --backend direct: cma or system (of a dma-heap), udmabuf,\n"
	"                         memfd; else the first of cma, udmabuf and memfd that is there\n"
	"  --socket PATH          use the daemon that listens there; else one is started for the "
	"demo\n"
	"  --help\n"
	"\n"
	"Exit status 0: every frame was right, and on simulated memory each omission was found.\n";

/* dmasyncctl, as one would type it. */
static int run_ctl(const char *socket, const char *command, const char *option, const char *value)
{
	char program[PATH_MAX];
	const char *arguments[] = {program, "--socket", socket, command, option, value, NULL};

	built_program("../ctl/dmasyncctl", program, sizeof program);
	printf("\n$ dmasyncctl %s%s%s%s%s\n", command, option ? " " : "", option ? option : "",
	       value ? " " : "", value ? value : "");

	pid_t child = process_spawn(arguments, false);

	return child < 0 ? (int)child : process_wait_all(&child, 1, false);
}

static void show_where(const struct results *results)
{
	printf("  Where (X: wrong lines; each cell is 60 x 60 pixels):\n");
	for (uint32_t row = 0; row < ZONE_ROWS; row++) {
		printf("    ");
		for (uint32_t column = 0; column < ZONE_COLUMNS; column++) {
			uint32_t chroma = results->wrong_in_zone[ZONE_ROWS + row / 2][column];

			putchar(results->wrong_in_zone[row][column] + chroma ? 'X' : '.');
		}
		printf("\n");
	}
}

static void show_omission(const struct pipeline *pipeline, const struct results *results)
{
	printf("  %u of %u frames wrong; %llu lines wrong (%llu of them in the overlay), %llu "
	       "bytes\n",
	       results->frames_wrong, pipeline->frames, (unsigned long long)results->lines_wrong,
	       (unsigned long long)results->lines_wrong_in_overlay,
	       (unsigned long long)results->bytes_wrong);
	if (results->frames_wrong == 0)
		return;
	if (results->exposures_wrong != 0)
		printf("  %u of %u measurements wrong. The first: mean %u instead of %u, region %u "
		       "instead of %u\n",
		       results->exposures_wrong, pipeline->frames, results->measured.mean,
		       results->expected.mean, results->measured.region_mean,
		       results->expected.region_mean);
	if (results->lines_wrong != 0)
		show_where(results);
}

/* What has to go wrong on memory that is not coherent, to the line. */
static bool is_detected(const struct pipeline *pipeline, const struct results *results)
{
	bool in_overlay = results->lines_wrong == results->lines_wrong_in_overlay;

	if (results->frames_wrong != pipeline->frames || !in_overlay)
		return false;
	if (pipeline->left_out == LEFT_OUT_FOR_DEVICE)
		return results->lines_wrong == (uint64_t)pipeline->frames * OVERLAY_LINES &&
		       results->exposures_wrong == 0;
	return results->exposures_wrong == pipeline->frames;
}

/* 0: it went as it should. 1: it did not. Negative: it did not run. */
static int run_with_omission(struct pipeline *pipeline, enum left_out left_out, const char *title)
{
	struct results results;

	pipeline->left_out = left_out;
	printf("\n%s\n", title);

	int r = pipeline_run(pipeline, &results);

	if (r < 0)
		return r;
	show_omission(pipeline, &results);
	if (pipeline->simulated) {
		printf("  %s\n",
		       left_out == LEFT_OUT_FOR_DEVICE
			       ? "The overlay stayed in the ISP's cache: the consumer saw "
				 "the sensor's pixels."
			       : "The ISP measured what its cache held before, and drew that.");

		bool detected = is_detected(pipeline, &results);

		printf("  %s\n", detected ? "Found, in every frame."
					  : "NOT FOUND as expected: something is wrong here.");
		return detected ? 0 : 1;
	}
	if (results.frames_wrong == 0)
		printf("  No difference: three processes on coherent CPUs. A device that is not\n"
		       "  coherent would see what --backend simulated shows.\n");
	return results.frames_wrong == 0 ? 0 : 1;
}

static const char *memory_name(enum dmasync_memory memory)
{
	switch (memory) {
	case DMASYNC_MEMORY_AUTO:
		return "unknown memory";
	case DMASYNC_MEMORY_CMA:
		return "a CMA heap's memory";
	case DMASYNC_MEMORY_SYSTEM:
		return "the system heap's memory";
	case DMASYNC_MEMORY_UDMABUF:
		return "udmabuf memory";
	case DMASYNC_MEMORY_MEMFD:
		return "memfd memory";
	case DMASYNC_MEMORY_SIMULATED:
		return "simulated non-coherent memory";
	}
	return "unknown memory";
}

/* Before three processes complain of the same thing. */
static int check_daemon(const struct pipeline *pipeline)
{
	struct dmasync *ds;
	int r = pipeline_connect(pipeline, "demo", &ds);

	if (r == -EOPNOTSUPP && pipeline->simulated)
		fprintf(stderr, "demo: simulated memory needs a daemon with allow_simulated=yes in "
				"[daemon]; --backend direct does not\n");
	if (r == 0)
		dmasync_disconnect(ds);
	return r;
}

static int run_all(struct pipeline *pipeline)
{
	struct results results;
	int wrong = 0, r;

	printf("Sensor, ISP and consumer: %u frames NV12 %d x %d in %d shared buffers\n",
	       pipeline->frames, FRAME_WIDTH, FRAME_HEIGHT, PIPELINE_BUFFERS);
	r = pipeline_run(pipeline, &results);
	if (r < 0)
		return r;
	printf("  on %s; lines synced per frame: %llu for the CPU, %llu for the device, of %d\n",
	       memory_name(results.memory),
	       (unsigned long long)results.lines_for_cpu / pipeline->frames,
	       (unsigned long long)results.lines_for_device / pipeline->frames, FRAME_LINES);
	if (results.frames_wrong != 0) {
		show_omission(pipeline, &results);
		wrong = 1;
	}

	r = run_ctl(pipeline->socket, "stats", NULL, NULL);
	if (r == 0)
		r = run_ctl(pipeline->socket, "batches", "--last", "8");
	if (r < 0)
		return r;

	r = run_with_omission(pipeline, LEFT_OUT_FOR_DEVICE,
			      "Left out on purpose: for_device, after the ISP drew its overlay");
	if (r < 0)
		return r;
	wrong |= r;
	r = run_with_omission(pipeline, LEFT_OUT_FOR_CPU,
			      "Left out on purpose: for_cpu, before the ISP measures");
	return r < 0 ? r : wrong | r;
}

static int parse_memory(const char *name, enum dmasync_memory *ret)
{
	static const struct {
		const char *name;
		enum dmasync_memory memory;
	} kinds[] = {
		{"cma", DMASYNC_MEMORY_CMA},
		{"system", DMASYNC_MEMORY_SYSTEM},
		{"udmabuf", DMASYNC_MEMORY_UDMABUF},
		{"memfd", DMASYNC_MEMORY_MEMFD},
	};

	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		if (strcmp(name, kinds[i].name) == 0) {
			*ret = kinds[i].memory;
			return 0;
		}
	}
	fprintf(stderr, "demo: --memory %s: cma, system, udmabuf or memfd\n", name);
	return -EINVAL;
}

/* 0, or 1 for --help; negative after a sentence. */
static int parse_options(int argc, char **argv, struct pipeline *pipeline)
{
	static const struct option options[] = {
		{"frames", required_argument, NULL, 'f'}, {"backend", required_argument, NULL, 'b'},
		{"memory", required_argument, NULL, 'm'}, {"socket", required_argument, NULL, 's'},
		{"help", no_argument, NULL, 'h'},	  {0},
	};
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
		char *end = NULL;
		long n;

		switch (option) {
		case 'f':
			n = strtol(optarg, &end, 10);
			if (end == optarg || *end || n < 1 || n > 1000000) {
				fprintf(stderr, "demo: --frames %s: a number from 1 to 1000000\n",
					optarg);
				return -EINVAL;
			}
			pipeline->frames = (uint32_t)n;
			break;
		case 'b':
			if (strcmp(optarg, "simulated") != 0 && strcmp(optarg, "direct") != 0) {
				fprintf(stderr, "demo: --backend %s: simulated or direct\n",
					optarg);
				return -EINVAL;
			}
			pipeline->simulated = strcmp(optarg, "simulated") == 0;
			break;
		case 'm':
			if (parse_memory(optarg, &pipeline->memory) < 0)
				return -EINVAL;
			break;
		case 's':
			pipeline->socket = optarg;
			break;
		case 'h':
			fputs(usage, stdout);
			return 1;
		default:
			fputs(usage, stderr);
			return -EINVAL;
		}
	}
	if (pipeline->memory != DMASYNC_MEMORY_AUTO && pipeline->simulated) {
		fprintf(stderr, "demo: --memory goes with --backend direct\n");
		return -EINVAL;
	}
	if (optind < argc) {
		fprintf(stderr, "demo: %s: takes no arguments\n", argv[optind]);
		return -EINVAL;
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct pipeline pipeline = {.frames = 300, .simulated = true};
	struct private_daemon daemon = {0};
	int r = parse_options(argc, argv, &pipeline);

	if (r != 0)
		return r < 0 ? 2 : EXIT_SUCCESS;
	process_init();
	if (!pipeline.socket) {
		r = private_daemon_start(&daemon);
		if (r < 0)
			return EXIT_FAILURE;
		pipeline.socket = daemon.socket;
	}
	r = check_daemon(&pipeline);
	if (r == 0)
		r = run_all(&pipeline);
	if (private_daemon_stop(&daemon) < 0 && r == 0) {
		fprintf(stderr, "demo: the daemon did not end well\n");
		r = -ECHILD;
	}
	if (process_interrupted())
		fprintf(stderr, "demo: interrupted\n");
	if (r == 0)
		printf("\nEvery frame was right where every sync was made.\n");
	return r == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
