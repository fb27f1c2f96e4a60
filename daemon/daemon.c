/* SPDX-License-Identifier: MIT */
/*
 * Putting the daemon together, running it, and taking it apart: signals, the events of workers and
 * helpers. Control thread.
 */
#include "daemon/daemon.h"

#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "daemon/cache/errata.h"
#include "daemon/clock.h"
#include "daemon/close_file.h"
#include "daemon/guard.h"
#include "daemon/log.h"
#include "daemon/loop_choice.h"
#include "daemon/notify.h"
#include "daemon/placement.h"
#include "daemon/reload.h"
#include "daemon/repin.h"

#define HELPERS_END_MS 2000 /* for jobs that run at the end; the process then ends without them */
#define SECOND_REQUEST_NS UINT64_C(1000000000) /* to stop: sooner it is the first one again */

/* ---- events ---- */

static void handle_workers(struct daemon *daemon)
{
	struct mailbox_node *node = mailbox_take(&daemon->events);

	while (node) {
		struct worker_command *command = (struct worker_command *)node;

		node = node->next;
		if (command->type == WORKER_TUNE)
			free(command); /* ours, from daemon_tune_workers() */
		else
			connections_worker_event(daemon, command);
	}
}

static void handle_jobs(struct daemon *daemon)
{
	struct mailbox_node *node = mailbox_take(&daemon->jobs);

	while (node) {
		struct helper_job *job = (struct helper_job *)node;

		node = node->next;
		job->finished(job);
	}
}

static void events_ready(void *context, uint32_t events)
{
	struct daemon *daemon = context;
	uint64_t count;

	(void)events;
	/* Read before the mailboxes are taken: what is posted later writes again. */
	if (read(daemon->events_fd, &count, sizeof(count)) < 0 && errno != EAGAIN)
		log_error("the eventfd of the workers cannot be read: %s", strerror(errno));
	handle_workers(daemon);
	handle_jobs(daemon);
	repin_look(daemon->repin);
	notify_changed(daemon->notify);
}

/* ---- signals ---- */

static void stop(struct daemon *daemon, int signal_number)
{
	if (daemon->stopping) {
		/* Sent to the process and to its group, as timeout(1) does: one request. */
		if (clock_ns() - daemon->stop_ns < SECOND_REQUEST_NS)
			return;
		log_warning("second %s: leaving without waiting for batches in work",
			    strsignal(signal_number));
		loop_exit(daemon->loop, DAEMON_FAILED);
		return;
	}
	log_info("%s: finishing what was submitted", strsignal(signal_number));
	notify_stopping(daemon->notify);
	connections_stop(daemon);
	daemon->stopping = true;
	daemon->stop_ns = clock_ns();
}

static void signal_ready(void *context, uint32_t events)
{
	struct daemon *daemon = context;
	struct signalfd_siginfo info;

	(void)events;
	while (read(daemon->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
		if (info.ssi_signo != SIGHUP)
			stop(daemon, (int)info.ssi_signo);
		else if (!daemon->stopping)
			daemon_reload(daemon);
	}
}

static int take_signals(struct daemon *daemon)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	/* A peer that has gone is an error of write, not a death. */
	if (sigaction(SIGPIPE, &ignore, NULL) < 0 || sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	daemon->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
	return daemon->signal_fd < 0 ? -errno : 0;
}

/* ---- start ---- */

/* Whether anything here can hand out dma-bufs, which the kernel backend is for. */
static bool dmabufs_may_exist(void)
{
	static const char *const patterns[] = {"/dev/dma_heap/*", "/dev/udmabuf", "/dev/dri/*",
					       "/dev/video*"};

	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		glob_t found;
		int r = glob(patterns[i], GLOB_NOSORT, NULL, &found);

		if (r == 0)
			globfree(&found);
		if (r == 0)
			return true;
	}
	return false;
}

/* By the CPUs, by the kernel's parameters, or because the configuration says so. */
static void find_errata(struct daemon *daemon)
{
	const struct cache_erratum *errata;
	size_t count;

	daemon->errata = cache_errata_here("", NULL);
	if (daemon->config.second_pass)
		daemon->errata |= DMASYNC_ERRATUM_SI_L1_4311569;
	daemon->cache.second_pass = (daemon->errata & DMASYNC_ERRATUM_SI_L1_4311569) != 0;

	errata = cache_errata(&count);
	for (size_t i = 0; i < count; i++) {
		if (daemon->errata & errata[i].bit)
			log_notice("erratum in force: %s: %s", errata[i].name, errata[i].changes);
	}
}

static enum daemon_status select_operations(struct daemon *daemon)
{
	int r = cache_select(daemon->config.cpus, &daemon->cache);

	if (r < 0) {
		log_error("the line operations of this CPU cannot be tried: %s", strerror(-r));
		return DAEMON_FAILED;
	}
	find_errata(daemon);
	r = cache_simulated_measure(&daemon->simulated_ps);
	if (r < 0)
		log_warning("the cost of simulated line operations cannot be measured: %s; their "
			    "slices are slice_lines=%" PRIu32 " long",
			    strerror(-r), daemon->config.slice_lines);
	daemon->kernel_backend = dmabufs_may_exist();
	if (daemon->cache.line)
		return DAEMON_DRAINED;
	if (daemon->kernel_backend) {
		log_warning("no line operation works here (%s): every buffer takes the kernel "
			    "backend, whole buffers at a time",
			    daemon->cache.why);
		return DAEMON_DRAINED;
	}
	if (daemon->config.allow_simulated) {
		log_warning("no line operation works here (%s) and nothing provides dma-bufs: "
			    "simulated buffers alone can be synced",
			    daemon->cache.why);
		return DAEMON_DRAINED;
	}
	log_error("there is nothing this daemon could do here: no line operation works (%s), and "
		  "there is no /dev/dma_heap, /dev/udmabuf, /dev/dri or /dev/video* whose dma-bufs "
		  "the kernel could sync; load the driver, or set allow_simulated = yes for tests",
		  daemon->cache.why);
	return DAEMON_MISCONFIGURED;
}

static enum daemon_status choose_cpus(struct daemon *daemon, int cpus[CONFIG_CPUS_MAX],
				      uint32_t *ret_count)
{
	cpu_set_t allowed;
	char text[CONFIG_TEXT_SIZE];

	if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0) {
		log_error("the CPUs of this process cannot be told: %s", strerror(errno));
		return DAEMON_FAILED;
	}
	/*
	 * A thread that no ordinary one can preempt belongs on a CPU that somebody set aside for
	 * it, not on whichever was free.
	 */
	if (daemon->config.fifo && !daemon->config.cpus) {
		log_error("policy = fifo without cpus: name the CPUs that the workers may have to "
			  "themselves, as in cpus = 3, or take policy = other");
		return DAEMON_MISCONFIGURED;
	}
	if (placement_choose(&daemon->config, &allowed, cpus, ret_count, text, sizeof(text)) < 0) {
		log_error("%s", text);
		return DAEMON_MISCONFIGURED;
	}
	if (*text)
		log_warning("%s", text);
	daemon->one_cpu = CPU_COUNT(&allowed) == 1;
	return DAEMON_DRAINED;
}

static void explain_policy(const struct daemon *daemon, const struct worker *worker)
{
	if (worker_policy(worker) == WORKER_POLICY_REFUSED)
		log_warning("worker %" PRIu32
			    " is refused policy = fifo (%s): it needs CAP_SYS_NICE "
			    "or LimitRTPRIO=%" PRIu32 ", and a unit without RestrictRealtime=; it "
			    "runs on under SCHED_OTHER",
			    worker_index(worker), strerror(-worker_policy_error(worker)),
			    daemon->config.priority);
}

static int start_workers(struct daemon *daemon, const int *cpus, uint32_t count)
{
	daemon->workers = calloc(count + 1, sizeof(*daemon->workers));
	if (!daemon->workers)
		return -ENOMEM;
	daemon->ordinary_count = count;
	for (uint32_t i = 0; i <= count; i++) {
		bool slow = i == count;
		int r = worker_start(
			&(const struct worker_params){
				.index = i,
				.count = count + 1,
				.loop = loop_choice_of_workers(daemon),
				.cpu = slow ? -1 : cpus[i],
				.slow = slow,
				.cache = &daemon->cache,
				.priority =
					daemon->config.fifo && !slow ? daemon->config.priority : 0,
				.rt_share = daemon->config.rt_share,
				.spin_us = daemon_spin_us(daemon),
				.spin_min_us = daemon->config.spin_min_us,
				.slice_us = daemon->config.slice_us,
				.slice_lines = daemon->config.slice_lines,
				.normal_share = daemon->config.normal_share,
				.bulk_share = daemon->config.bulk_share,
				.simulated_ps = daemon_simulated_ps(daemon),
				.split_lines = daemon->config.split_lines,
				.share_barrier_lines = daemon->config.share_barrier
							       ? daemon->config.share_barrier_lines
							       : 0,
				.share_barrier_us = daemon->config.share_barrier_us,
				.peers = count > 1 && !slow ? daemon->workers : NULL,
				.max_batch_lines = daemon->config.max_batch_lines,
				.fence_timeout_ms = daemon->config.fence_timeout_ms,
				.overruns_to_move = daemon->config.overruns_to_move,
				.events = &daemon->events,
				.events_fd = daemon->events_fd,
				.helpers = daemon->helpers,
			},
			&daemon->workers[i]);

		if (r < 0)
			return r;
		explain_policy(daemon, daemon->workers[i]);
		loop_choice_worker_started(daemon->workers[i]);
		daemon->worker_count++;
	}
	return 0;
}

/* Of one client at once: a quarter of the threads, so that one whose files hang is not noticed. */
static uint32_t jobs_per_client(uint32_t threads)
{
	return threads < 8 ? 1 : threads / 4;
}

static enum daemon_status start_loop(struct daemon *daemon)
{
	enum daemon_status status = loop_choose(daemon);

	if (status != DAEMON_DRAINED)
		return status;

	int r = loop_watch(daemon->loop, daemon->signal_fd, POLLIN, signal_ready, daemon,
			   &daemon->signal_watch);

	if (r == 0)
		r = loop_watch(daemon->loop, daemon->events_fd, POLLIN, events_ready, daemon,
			       &daemon->events_watch);
	if (r == 0)
		r = notify_create(daemon, &daemon->notify);
	if (r < 0)
		log_error("the control loop cannot be set up: %s", strerror(-r));
	return r < 0 ? DAEMON_FAILED : DAEMON_DRAINED;
}

static enum daemon_status start_threads(struct daemon *daemon, const int *cpus, uint32_t count)
{
	uint32_t threads = daemon->config.helper_threads, closers = (threads + 1) / 2;
	int r = helpers_create(threads, jobs_per_client(threads), &daemon->helpers);

	if (r == 0)
		r = helpers_create(closers, jobs_per_client(closers), &daemon->closers);
	if (r < 0) {
		log_error("helper threads cannot be started: %s", strerror(-r));
		return DAEMON_FAILED;
	}
	r = start_workers(daemon, cpus, count);
	if (r < 0)
		return loop_choice_worker_failed(daemon, r);
	r = repin_create(daemon, cpus, count, &daemon->repin);
	if (r < 0)
		log_error("the workers' CPUs cannot be looked after: %s", strerror(-r));
	return r < 0 ? DAEMON_FAILED : DAEMON_DRAINED;
}

static enum daemon_status start(struct daemon *daemon)
{
	int cpus[CONFIG_CPUS_MAX];
	uint32_t cpu_count;
	enum daemon_status status = choose_cpus(daemon, cpus, &cpu_count);

	if (status != DAEMON_DRAINED)
		return status;
	daemon_fit_config(daemon, &daemon->config);
	accounts_set_limits(&daemon->accounts, &daemon->config, &daemon->machine);
	if (getrandom(&daemon->instance, sizeof(daemon->instance), 0) < 0 ||
	    take_signals(daemon) < 0) {
		log_error("cannot start: %s", strerror(errno));
		return DAEMON_FAILED;
	}
	daemon->events_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	if (daemon->events_fd < 0) {
		log_error("no eventfd: %s", strerror(errno));
		return DAEMON_FAILED;
	}
	/* Before other threads: it changes the umask, cache_select() the signal handlers. */
	int r = listener_open(daemon->config.socket, &daemon->listener);

	if (r < 0)
		return r == -EINVAL ? DAEMON_MISCONFIGURED : DAEMON_FAILED;
	daemon->listen_fd = daemon->listener.fd;
	status = select_operations(daemon);
	if (status != DAEMON_DRAINED)
		return status;
	/* After cache_select(), which puts back the handlers it found; before any thread. */
	r = guard_install();
	if (r == 0)
		r = close_file_install();
	if (r < 0) {
		log_error("the handlers for faults of clients' memory and closes of their files "
			  "cannot be installed: %s",
			  strerror(-r));
		return DAEMON_FAILED;
	}
	status = start_loop(daemon);
	if (status == DAEMON_DRAINED)
		status = start_threads(daemon, cpus, cpu_count);
	if (status != DAEMON_DRAINED)
		return status;
	r = connections_start(daemon);
	if (r < 0)
		log_error("connections cannot be served: %s", strerror(-r));
	return r < 0 ? DAEMON_FAILED : DAEMON_DRAINED;
}

enum daemon_status daemon_create(struct config *config, struct daemon **ret)
{
	struct daemon *daemon = calloc(1, sizeof(*daemon));

	if (!daemon) {
		log_error("out of memory");
		return DAEMON_FAILED;
	}
	daemon->config = *config;
	*config = (struct config){0};
	daemon->listener.fd = daemon->listen_fd = daemon->signal_fd = daemon->events_fd = -1;
	daemon->start_ns = clock_ns();

	enum daemon_status status = start(daemon);

	if (status != DAEMON_DRAINED) {
		daemon_free(daemon);
		return status;
	}
	*ret = daemon;
	return DAEMON_DRAINED;
}

/* ---- run and end ---- */

/* "1 worker on CPU 3", "2 workers on CPUs 2,3". */
static void describe_workers(const struct daemon *daemon, char *text, size_t text_size)
{
	bool many = daemon->ordinary_count > 1;
	int n = snprintf(text, text_size, "%" PRIu32 " worker%s on CPU%s ", daemon->ordinary_count,
			 many ? "s" : "", many ? "s" : "");

	for (uint32_t i = 0; i < daemon->ordinary_count && n > 0 && (size_t)n < text_size; i++)
		n += snprintf(text + n, text_size - (size_t)n, "%s%d", i ? "," : "",
			      worker_cpu(daemon->workers[i]));
}

enum daemon_status daemon_run(struct daemon *daemon)
{
	const char *socket = daemon->listener.path ? daemon->listener.path : "systemd's socket";
	char workers[CONFIG_CPUS_MAX * sizeof("1023,") + 32];
	int r;

	describe_workers(daemon, workers, sizeof(workers));
	log_info("dmasyncd " DMASYNC_VERSION " serves %s: %s, %zu-byte lines, %s, %s", socket,
		 daemon->cache.line ? daemon->cache.ops.name : "no line operations",
		 daemon->cache.line, workers, loop_name(daemon->loop));
	notify_ready(daemon->notify);
	r = loop_run(daemon->loop);
	if (r < 0) {
		log_error("the control loop broke: %s", strerror(-r));
		return DAEMON_FAILED;
	}
	return r == DAEMON_DRAINED ? DAEMON_DRAINED : DAEMON_FAILED;
}

void daemon_stopped(struct daemon *daemon)
{
	daemon->workers_stopped = true;
	loop_exit(daemon->loop, DAEMON_DRAINED);
}

/* Where nobody asked them before: the start failed, or the loop broke. */
static void stop_workers(struct daemon *daemon)
{
	struct worker_command *commands = calloc(daemon->worker_count, sizeof(*commands));
	uint32_t answers = 0;

	for (uint32_t i = 0; commands && i < daemon->worker_count; i++) {
		commands[i].type = WORKER_STOP;
		worker_post(daemon->workers[i], &commands[i]);
	}
	while (commands && answers < daemon->worker_count) {
		struct pollfd answer = {.fd = daemon->events_fd, .events = POLLIN};
		uint64_t count;

		if (poll(&answer, 1, -1) < 0 && errno != EINTR)
			break;
		if (read(daemon->events_fd, &count, sizeof(count)) < 0)
			continue;
		for (struct mailbox_node *node = mailbox_take(&daemon->events); node;
		     node = node->next) {
			const struct worker_command *command = (struct worker_command *)node;

			answers += command >= commands && command < commands + daemon->worker_count;
		}
	}
	free(commands);
}

void daemon_free(struct daemon *daemon)
{
	if (!daemon)
		return;
	if (daemon->stopping && !daemon->workers_stopped) {
		/* Left in the middle of the drain: threads still use the rest, and the process
		 * ends. */
		listener_close(&daemon->listener);
		return;
	}

	bool drained = daemon->workers_stopped;

	if (daemon->worker_count && !drained)
		stop_workers(daemon);
	/* Workers after helpers, which post to them, and which they submit to no more. */
	helpers_free(daemon->helpers, HELPERS_END_MS);
	helpers_free(daemon->closers, HELPERS_END_MS);
	daemon->helpers = daemon->closers = NULL;
	for (uint32_t i = 0; i < daemon->worker_count; i++)
		worker_join(daemon->workers[i]);
	if (drained)
		handle_jobs(daemon); /* closes that took until now; they submit nothing */
	daemon->worker_count = 0;    /* after the clients, who have something for each */
	free(daemon->workers);
	connections_free(daemon);
	notify_free(daemon->notify);
	repin_free(daemon->repin);
	loop_unwatch(daemon->events_watch);
	loop_unwatch(daemon->signal_watch);
	loop_free(daemon->loop);
	listener_close(&daemon->listener);
	if (daemon->signal_fd >= 0)
		close(daemon->signal_fd);
	if (daemon->events_fd >= 0)
		close(daemon->events_fd);
	config_clear(&daemon->config);
	free(daemon);
}
