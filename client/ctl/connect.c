/* SPDX-License-Identifier: MIT */
/* The daemon as the commands reach it. Owns nothing: connections are the caller's. Main thread. */
#include "client/ctl/connect.h"

int connect_quietly(const struct ctl *ctl, struct dmasync **ret, char *text, size_t size)
{
	struct dmasync_connect_params params;

	text[0] = '\0';
	dmasync_connect_params_init(&params);
	params.socket = ctl->socket;
	params.name = "dmasyncctl";
	/* Figures of two daemons would be told as those of one. */
	params.flags = DMASYNC_NO_RECONNECT;
	params.error_text = text;
	params.error_text_size = size;

	int r = dmasync_connect_with(&params, ret);
	if (r < 0 && !text[0])
		dmasync_strerror(r, text, size);
	return r;
}

int connect_daemon(const struct ctl *ctl, struct dmasync **ret)
{
	char text[CLIENT_ERROR_TEXT_SIZE];

	return connect_quietly(ctl, ret, text, sizeof text) < 0 ? ctl_fail("%s", text) : CTL_OK;
}

int connect_inline(struct dmasync **ret)
{
	char text[CLIENT_ERROR_TEXT_SIZE];
	int r = dmasync_connect(NULL, DMASYNC_INLINE | DMASYNC_INLINE_SIMULATED, ret);

	if (r == 0)
		return CTL_OK;
	dmasync_strerror(r, text, sizeof text);
	return ctl_fail("inline mode: %s", text);
}

bool connect_command(struct ctl *ctl, const struct option_usage *usage, int argc, char **argv,
		     struct dmasync **ret, int *ret_status)
{
	if (!options_parse(ctl, usage, argc, argv, NULL, ret_status))
		return false;
	*ret_status = connect_daemon(ctl, ret);
	return *ret_status == CTL_OK;
}

int connect_request(struct dmasync *ds, enum dmasync_opcode opcode, struct dmasync_message *request,
		    size_t request_size, int fd, void *reply, size_t reply_min, size_t reply_max,
		    size_t *ret_size)
{
	struct control_reply expected = {
		.message = reply,
		.size = reply_min,
		.size_max = reply_max,
	};
	int r = control_call(ds, opcode, request, request_size, fd, &expected);

	if (r < 0)
		return r;
	*ret_size = expected.size;
	return 0;
}

int connect_explain(struct dmasync *ds, const char *what, int error)
{
	char text[CLIENT_ERROR_TEXT_SIZE];

	if (dmasync_error_text(ds, text, sizeof text) == 0)
		dmasync_strerror(error, text, sizeof text);
	return ctl_fail("%s: %s", what, text);
}
