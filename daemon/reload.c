/* SPDX-License-Identifier: MIT */
/*
 * Reading the configuration again while the daemon runs, and bringing the workers what is theirs.
 * Owns nothing. Control thread.
 */
#include "daemon/reload.h"

#include <inttypes.h>
#include <stdlib.h>

#include "daemon/daemon.h"
#include "daemon/log.h"
#include "daemon/machine_limits.h"
#include "daemon/notify.h"

void daemon_tune_workers(struct daemon *daemon)
{
	for (uint32_t i = 0; i < daemon->worker_count; i++) {
		struct worker_command *command = calloc(1, sizeof(*command));

		if (!command) {
			log_error("out of memory: worker %" PRIu32 " keeps its old settings", i);
			continue;
		}
		command->type = WORKER_TUNE;
		command->rt_share = daemon->config.rt_share;
		command->spin_us = daemon_spin_us(daemon);
		command->spin_min_us = daemon->config.spin_min_us;
		command->slice_us = daemon->config.slice_us;
		command->slice_lines = daemon->config.slice_lines;
		command->normal_share = daemon->config.normal_share;
		command->bulk_share = daemon->config.bulk_share;
		command->simulated_ps = daemon_simulated_ps(daemon);
		command->split_lines = daemon->config.split_lines;
		command->share_barrier_lines =
			daemon->config.share_barrier ? daemon->config.share_barrier_lines : 0;
		command->share_barrier_us = daemon->config.share_barrier_us;
		command->overruns_to_move = daemon->config.overruns_to_move;
		command->max_batch_lines = daemon->config.max_batch_lines;
		command->fence_timeout_ms = daemon->config.fence_timeout_ms;
		worker_post(daemon->workers[i], command);
	}
}

uint32_t daemon_simulated_ps(const struct daemon *daemon)
{
	return daemon->config.allow_simulated ? daemon->simulated_ps : 0;
}

void daemon_fit_config(struct daemon *daemon, struct config *config)
{
	char text[CONFIG_TEXT_SIZE];

	limits_read(&daemon->machine);
	limits_fit(config, &daemon->machine, text, sizeof(text));
	if (*text)
		log_info("lowered %s", text);
	if (config->spin_min_us > config->spin_us) {
		log_info("spin_min_us = %" PRIu32 " is more than spin_us = %" PRIu32 ": as spin_us",
			 config->spin_min_us, config->spin_us);
		config->spin_min_us = config->spin_us;
	}
}

static void take(struct daemon *daemon, const struct config *fresh)
{
	char text[CONFIG_TEXT_SIZE];
	int r = config_reload(&daemon->config, fresh, text, sizeof(text));

	if (r < 0)
		log_error("out of memory: the configuration was read in part");
	else if (!*text)
		log_notice("configuration read again; nothing differs");
	else
		log_message(r ? LOG_WARNING : LOG_NOTICE, "configuration read again: %s", text);
	log_set_level(daemon->config.log_level);
	accounts_set_limits(&daemon->accounts, &daemon->config, &daemon->machine);
	daemon_tune_workers(daemon);
}

void daemon_reload(struct daemon *daemon)
{
	struct config fresh;
	char text[CONFIG_TEXT_SIZE];

	notify_reloading(daemon->notify);
	if (config_reread(&daemon->config, &fresh, text, sizeof(text)) < 0) {
		log_error("%s; nothing was changed", text);
	} else {
		daemon_fit_config(daemon, &fresh);
		take(daemon, &fresh);
		config_clear(&fresh);
	}
	notify_ready(daemon->notify);
}
