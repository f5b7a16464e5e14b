/* elastic_workers.h -- the agent's part in an elastic round: reports its workers' messages and ends to the coordinator,
 * and executes its orders.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_LAUNCH_ELASTIC_WORKERS_H
#define TUTTI_LAUNCH_ELASTIC_WORKERS_H

#include "launch/agent/membership.h"
#include "launch/process/node_workers.h"

/* Reads messages of all workers; call it after tutti__workers_reap, so that the last messages of a dead worker are read before
 * its end is handled. From the first READY on, the coordinator decides about dead workers. */
void tutti__elastic_receive(tutti__workers *workers, tutti__membership *membership);
/* The coordinator has declared the round elastic, possibly before any worker of this node was READY. */
void tutti__elastic_begin(tutti__workers *workers, tutti__membership *membership);
/* Others may be continuing without this node: its workers end their generation after the current step, and wait. */
void tutti__elastic_pause(tutti__workers *workers);
/* Workers that are being stopped, and are in no group, end: one that waits for a generation, or forms one with nodes that it cannot
 * reach, does not look whether it was signalled, and the coordinator may answer no more. */
void tutti__elastic_tell_last(tutti__workers *workers);
/* Reports the state of all workers to a coordinator that does not know it. */
void tutti__elastic_report_all(tutti__workers *workers, tutti__membership *membership);
/* Whether a worker is in a generation, and does not wait for one. */
bool tutti__elastic_is_at_work(const tutti__workers *workers);
/* When `receive` must report something (tutti__now_ns); UINT64_MAX: only after a worker's message. */
uint64_t tutti__elastic_deadline(const tutti__workers *workers);
/* Executes an order about one worker of the current round; ignores other messages. */
tutti_status tutti__elastic_execute(tutti__workers *workers, const json_t *message);

#endif
