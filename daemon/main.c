/* SPDX-License-Identifier: MIT */
/* dmasyncd: options, daemon, exit status. Everything else is in the library, where tests reach it.
 */
#include <stdio.h>

#include "daemon/daemon.h"
#include "daemon/log.h"
#include "daemon/options.h"

int main(int argc, char *argv[])
{
	struct config config;
	struct daemon *daemon;
	char text[CONFIG_TEXT_SIZE];
	enum daemon_status status;

	log_open(LOG_INFO);
	switch (options_load(argc, argv, stdout, &config, text, sizeof(text))) {
	case OPTIONS_DONE:
		return fflush(stdout) == 0 ? DAEMON_DRAINED : DAEMON_FAILED;
	case OPTIONS_REFUSED:
		log_error("%s", text);
		return DAEMON_MISCONFIGURED;
	case OPTIONS_RUN:
		break;
	}
	log_set_level(config.log_level);
	status = daemon_create(&config, &daemon);
	if (status != DAEMON_DRAINED) {
		config_clear(&config);
		return (int)status;
	}
	status = daemon_run(daemon);
	daemon_free(daemon);
	return (int)status;
}
