/* rounds_parts.h -- shared by the files of the rounds, of which each calls only those before it: rounds_actions.c, rounds_pause.c,
 * rounds_events.c, rounds.c.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_ROUNDS_PARTS_H
#define TUTTI_LAUNCH_ROUNDS_PARTS_H

#include "launch/decide/rounds.h"

enum { TUTTI__ROUNDS_REPEAT_MS = 30000 }; /* between two lines about what is waited for */

/* rounds_actions.c */
/* Takes an action, by opts.act. */
void tutti__round_do(const tutti__rounds *r, const tutti__round_action *action);
void tutti__round_say(const tutti__rounds *r, const char *format, ...) TUTTI_PRINTF(2, 3);
static inline uint64_t tutti__round_ms(double seconds, double otherwise)
{
    return (uint64_t)(tutti__or(seconds, otherwise) * 1e3);
}
/* The node of the round with that id; NULL: not connected. */
tutti__round_node *tutti__round_find(const tutti__rounds *r, int id);
/* It is not found by its id any more. */
void tutti__round_unhash(tutti__rounds *r, tutti__round_node *n);
int tutti__round_count(const tutti__rounds *r);
/* Ends the job, and tells all nodes. */
void tutti__round_end_job(tutti__rounds *r, int code);
void tutti__round_tell_end(tutti__rounds *r, tutti__round_node *n);
/* Orders all nodes of the round to end their workers. */
void tutti__round_stop(tutti__rounds *r, bool failing);
/* Adds it to the round, with its number and its ranks. */
void tutti__round_enter(tutti__rounds *r, tutti__round_node *n);
/* Prepares the generations of a round, without nodes. */
void tutti__round_renew(tutti__rounds *r, int number);
/* Keeps the first failure, but a cause replaces the loss of a peer (3). node: whose worker it is; or NULL. */
void tutti__round_note_failure(tutti__rounds *r, tutti__round_node *node, int code,
                               const char *why);
/* When a coordinator that waits for nodes gives up. */
uint64_t tutti__round_limit(const tutti__rounds *r);

/* rounds_pause.c */
/* For `seconds` nothing begins without the state: nodes of a lost coordinator are expected. */
void tutti__round_hold(tutti__rounds *r, double seconds);
/* Begins as the successor of a lost coordinator: with its list, and paused until enough nodes have come. */
void tutti__round_succeed(tutti__rounds *r);
/* Whether this side of a partitioned network may continue; never both. */
bool tutti__round_may_continue(tutti__rounds *r);
/* Pauses the round, or continues it. */
void tutti__round_consider_pause(tutti__rounds *r);
/* A node of the round is lost, with its workers; the others continue, or pause. */
void tutti__round_continue_without(tutti__rounds *r, int id);
/* After too long a pause: the other nodes may have continued elsewhere, and ended the job. */
void tutti__round_consider_giving_up(tutti__rounds *r);
/* Excludes the nodes that cannot reach another (act_on_worker). */
void tutti__round_exclude(tutti__rounds *r);
/* Sends the list to nodes that do not have it. */
void tutti__round_spread_list(tutti__rounds *r);
/* A node comes back, with a list: it may lack the newest, which it then gets, also if it is not in it, because it counts in the one before; and it
 * gets none that is older than its own. */
void tutti__round_note_list(tutti__rounds *r, tutti__round_node *n, const tutti__roster *theirs);
/* Whether this coordinator must not take the node back: the node knows of our successor, or precedes us in the list, and
 * neither side has continued yet. Then it was told. */
bool tutti__round_redirects(tutti__rounds *r, tutti__round_node *n, const tutti__roster *theirs);

#endif
