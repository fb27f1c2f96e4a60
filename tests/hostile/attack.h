/* SPDX-License-Identifier: MIT */
/*
 * What every attack has in common: a real daemon, well-behaved clients beside the attacker, and the
 * comparison of before and after. A class of attack is a file with nothing but its attacks.
 *
 *	ATTACK(a_ring_of_noise, .connections = 1)
 *	{
 *		struct raw raw;
 *
 *		raw_open(&raw, attack->socket);
 *		...
 *		others_go_on(attack);
 *	}
 *
 * The attack runs in a process of its own; as root, as a user of its own. While it does, and when
 *it is over, the case fails unless:
 * - the daemon lives and answers STATS;
 * - the well-behaved clients (of another user, as root) complete batches with the right contents,
 *   connect anew and register buffers anew, all the time;
 * - none of their batches waited for more work of others than the scheduler allows, in lines and in
 *   entries, as the worker counted them; those of class realtime for no more than one slice;
 * - in the end the daemon has no more fds, mappings, charges and memory than in the beginning, its
 *   sums are right, and it ends with 0 when it is told to.
 */
#ifndef TESTS_HOSTILE_ATTACK_H
#define TESTS_HOSTILE_ATTACK_H

#include "tests/e2e/support.h"
#include "tests/unit/connection/requests.h"

/* Of a slice, in lines or what costs as much. Small, so that the bounds are. */
#define ATTACK_SLICE 512u

#define ATTACK_USERS 1000u

struct honest;

struct attack {
	struct harness_daemon daemon;
	const char *socket;
	uid_t first_uid; /* of those that are this case's alone, as root */
	struct honest *honest;
};

struct attack_plan {
	void (*run)(struct attack *attack);
	const char *daemon_keys; /* more lines of [daemon] and of [limits] */
	const char *limits_keys;
	/* Who has batches in work at the same time; 0 is 1. They follow into the bound. */
	uint32_t users;
	uint32_t connections; /* of each user */
	uint32_t queues;      /* in all */
	uint32_t workers;     /* as `daemon_keys` says; 0 is 1 */
	bool bulk, realtime;  /* such batches are among them */
	uint64_t peak_bytes;  /* more memory than the usual that the daemon may have meanwhile */
	bool as_root;	      /* the attack goes on as root, to become several users itself */
	const char *logged;   /* must stand in so many lines of the daemon's log */
	unsigned int logged_lines;
	uint64_t faults; /* of line operations, in the end */
};

#define ATTACK(attack_name, ...)                                                                   \
	static void attack_name##_run(struct attack *attack);                                      \
	static void attack_name(void)                                                              \
	{                                                                                          \
		attack_carry_out(                                                                  \
			&(const struct attack_plan){.run = attack_name##_run, __VA_ARGS__});       \
	}                                                                                          \
	static void attack_name##_run(struct attack *attack)

void attack_carry_out(const struct attack_plan *plan);

/* ---- for the attack, in its process ---- */

/* Waits until the well-behaved clients have got on from here. */
void others_go_on(struct attack *attack);
uint64_t others_rounds(const struct attack *attack); /* they have done so far */

/* As root: from here on user number `index` (below ATTACK_USERS) of the attack. Else nothing. */
void become_attacker(const struct attack *attack, uint32_t index);

/* Whether the attack is of another user than the daemon and the others; else it was not root. */
bool is_another_user(const struct attack *attack);

/* A process that does this and then sleeps with all it has; returns when it sleeps. */
pid_t victim_start(void (*run)(struct attack *attack, void *argument), struct attack *attack,
		   void *argument);
/* Kills it, in whatever it does. */
void victim_kill(pid_t victim);

/* Random numbers, the same ones each time. */
uint32_t attack_random(void);

#endif
