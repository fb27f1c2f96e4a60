/* SPDX-License-Identifier: MIT */
/*
 * From a packet to its handler, by the one table of messages: everything that can be checked
 * without knowing what a request means is checked here. Control thread.
 */
#include <errno.h>
#include <sys/socket.h>

#include "daemon/connection.h"

struct rule {
	const char *name;
	uint32_t size;	   /* bytes of the struct, header included */
	uint32_t trailing; /* bytes of one element that may follow, 0: none */
	uint32_t fds_min, fds_max;
	enum client_state state;
	void (*handler)(struct client *client, struct request *request);
};

#define RULE_(rule_name, opcode, rule_handler, type, unit, reply, min, max, reply_fds, rule_state) \
	[opcode] = {.name = #rule_name,                                                            \
		    .size = sizeof(type),                                                          \
		    .trailing = unit,                                                              \
		    .fds_min = min,                                                                \
		    .fds_max = max,                                                                \
		    .state = CLIENT_##rule_state,                                                  \
		    .handler = handle_##rule_handler},
static const struct rule rules[] = {DMASYNC_MESSAGES(RULE_)};
#undef RULE_

static const struct rule *find_rule(uint16_t opcode)
{
	if (opcode >= sizeof rules / sizeof rules[0] || !rules[opcode].handler)
		return NULL;
	return &rules[opcode];
}

/*
 * The packet is no message: its length cannot be believed, so nothing after it can. An answer,
 * then the end. A packet cut off by the kernel is none of these where its size field says so.
 */
static bool header_is_broken(struct client *client, const struct dmasync_message *header,
			     uint32_t size, int flags)
{
	if (size < sizeof *header) {
		client_error(client, 0, 0, -EPROTO,
			     "a message starts with a header of %zu bytes and this one has %u; the "
			     "connection is closed",
			     sizeof *header, size);
		return true;
	}
	if (flags & MSG_TRUNC ? header->size <= size : header->size != size) {
		client_error(client, header->opcode, header->cookie, -EPROTO,
			     "the header says %u bytes and the packet has %s%u; the connection is "
			     "closed",
			     header->size, flags & MSG_TRUNC ? "more than " : "", size);
		return true;
	}
	if (header->flags) {
		client_error(client, header->opcode, header->cookie, -EPROTO,
			     "a request's flags must be 0 and are %#x; the connection is closed",
			     header->flags);
		return true;
	}
	return false;
}

static bool size_is_right(struct client *client, const struct rule *rule,
			  const struct request *request)
{
	uint32_t size = request->size;

	if (size == rule->size)
		return true;
	if (rule->trailing && size > rule->size && (size - rule->size) % rule->trailing == 0)
		return true;
	if (rule->trailing)
		client_error(client, request->opcode, request->cookie, -EINVAL,
			     "%s has %u bytes and any number of elements of %u bytes; this message "
			     "has %u",
			     rule->name, rule->size, rule->trailing, size);
	else
		client_error(client, request->opcode, request->cookie, -EINVAL,
			     "%s has %u bytes; this message has %u", rule->name, rule->size, size);
	return false;
}

static bool fds_are_right(struct client *client, const struct rule *rule,
			  const struct request *request)
{
	if (request->fd_count >= rule->fds_min && request->fd_count <= rule->fds_max)
		return true;
	if (rule->fds_min == rule->fds_max)
		client_error(client, request->opcode, request->cookie, -EINVAL,
			     "%s takes %u file descriptors; this message has %u", rule->name,
			     rule->fds_min, request->fd_count);
	else
		client_error(client, request->opcode, request->cookie, -EINVAL,
			     "%s takes %u to %u file descriptors; this message has %u", rule->name,
			     rule->fds_min, rule->fds_max, request->fd_count);
	return false;
}

static bool state_is_right(struct client *client, const struct rule *rule,
			   const struct request *request)
{
	if (rule->state == client->state)
		return true;
	client_error(client, request->opcode, request->cookie, -EPROTO,
		     rule->state == CLIENT_NEW ? "%s was answered already; it comes once, first"
					       : "%s before HELLO; shake hands first",
		     rule->name);
	return false;
}

bool request_begin(struct client *client, const struct request *request)
{
	return client_afford(client, request->opcode, request->cookie,
			     ACCOUNT_COST([ACCOUNT_REQUESTS] = 1));
}

void request_end(struct client *client)
{
	client_uncharge(client, ACCOUNT_COST([ACCOUNT_REQUESTS] = 1));
}

static void dispatch_request(struct client *client, struct request *request, int flags)
{
	const struct rule *rule = find_rule(request->opcode);

	if (flags & MSG_TRUNC) {
		client_error(client, request->opcode, request->cookie, -EMSGSIZE,
			     "the message is larger than %u bytes, the most that one may have",
			     DMASYNC_MESSAGE_MAX);
		return;
	}
	if (flags & MSG_CTRUNC) {
		client_error(
			client, request->opcode, request->cookie, -EMFILE,
			"the message's file descriptors did not all arrive: the daemon has no room "
			"for more; try again later");
		return;
	}
	if (!rule) {
		client_error(
			client, request->opcode, request->cookie, -ENOSYS,
			"opcode %u is unknown to this daemon; the features of HELLO say what it "
			"knows",
			request->opcode);
		return;
	}
	if (state_is_right(client, rule, request) && size_is_right(client, rule, request) &&
	    fds_are_right(client, rule, request))
		rule->handler(client, request);
}

void dispatch(struct client *client, uint32_t size, int flags, int *fds, uint32_t fd_count)
{
	const struct dmasync_message *header = (const void *)client->daemon->serving->in;

	if (header_is_broken(client, header, size, flags)) {
		client_drop(client);
	} else {
		struct request request = {
			.message = header,
			.size = size,
			.opcode = header->opcode,
			.cookie = header->cookie,
			.fds = fds,
			.fd_count = fd_count,
		};

		dispatch_request(client, &request, flags);
	}
	client_close_fds(client, fds, fd_count);
}
