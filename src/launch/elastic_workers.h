/* elastic_workers.h -- the agent's part in an elastic round: brings what its workers say and how they end to the coordinator,
 * and does what that orders.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_ELASTIC_WORKERS_H
#define TUTTI_LAUNCH_ELASTIC_WORKERS_H

#include "launch/membership.h"

/* Hears all workers; after tutti__workers_reap, so that the last words of a dead one are heard before it is judged. From the
 * first READY on, deaths are the coordinator's to judge. */
void tutti__elastic_hear(tutti__workers *workers, tutti__membership *membership);
/* The coordinator has said that the round is elastic, though none of ours may have spoken yet. */
void tutti__elastic_begin(tutti__workers *workers, tutti__membership *membership);
/* Others may go on without this node, nobody knows: its workers end their generation with the step at hand, and wait. */
void tutti__elastic_pause(tutti__workers *workers);
/* To a coordinator that knows nothing of this node's workers: all of it. */
void tutti__elastic_tell_all(tutti__workers *workers, tutti__membership *membership);
/* When `hear` has something to tell (tutti__now_ns); UINT64_MAX: when a worker speaks. */
uint64_t tutti__elastic_deadline(const tutti__workers *workers);
/* True: the message was an order about one worker, and is done. `mask` and `sigpipe`: as for tutti__workers_start. */
bool tutti__elastic_obey(tutti__workers *workers, const json_t *message, const sigset_t *mask,
                         const struct sigaction *sigpipe, tutti_status *status_p);

#endif
