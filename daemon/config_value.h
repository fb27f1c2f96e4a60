/* SPDX-License-Identifier: MIT */
/*
 * Single values of the configuration, from text and to text. Private to config*.c. Nothing is
 * shared; any thread.
 */
#ifndef DMASYNC_CONFIG_VALUE_H
#define DMASYNC_CONFIG_VALUE_H

#include "daemon/config.h"

/*
 * Parses `value` into the field of `config` that `key` names; NULL unsets a text. What was wrong
 * with it, as a clause without subject ("not a whole number"), is *ret_problem on -EINVAL and
 * -ERANGE.
 */
int config_value_set(struct config *config, const struct config_key *key, const char *value,
		     const char **ret_problem);

/* "auto", "direct", "kernel", "none" or "refuse". */
int config_backend_parse(const char *value, struct config_exporter *exporter);
const char *config_backend_name(const struct config_exporter *exporter);

/* config.c: more of a sentence; a copy of an override, which config_clear() frees. -ENOMEM. */
void config_append(char *text, size_t text_size, const char *more);
int config_override_add(struct config *config, const struct config_override *from);

#endif
