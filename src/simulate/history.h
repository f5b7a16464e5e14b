/* history.h -- random histories of a job on several nodes: nodes and workers that come, die and are cut off, and what the launcher's
 * machines make of them.   SPDX-License-Identifier: MIT
 *
 * One process at virtual time: the machines of src/launch/decide (rounds, generations, lists, succession), with models of the agents
 * around them, their workers, and the network. A history is a function of its seed and these options. Nodes come, their processes are
 * killed, their machines lose power and come back, they are told to end, workers die, connections between some or all nodes are cut,
 * slow, and mended. After that nothing more happens. In each history (docs/design/elasticity.md):
 *
 *   ends       every process ends, within minutes
 *   one        two coordinators never both make progress; if there are deaths as well as cuts (a node that is excluded, or gives up,
 *              is dead), or nodes that have completed the job, they may
 *   restarts   are never more than allowed
 *   ranks      of a round, and of a generation, are dense and unique
 *   once       no action is repeated: no round, generation, list or end is told twice, or after a later one
 *   newest     rank 0 of a generation has the newest state of its members; with deaths alone that peers notice, the newest of all that
 *              live
 *   success    if the job of a node ends with 0, so does each node that was in it and was not told to end; but one that was cut off
 *              meanwhile, or lost the coordinator, and reached nobody who knows for long enough to ask, may end otherwise, and a
 *              signal to another node may end its side with 143 */
#ifndef TUTTI_SIMULATE_HISTORY_H
#define TUTTI_SIMULATE_HISTORY_H

#include "base/base.h"

enum { TUTTI__HISTORY_NODES = 16, TUTTI__HISTORY_WORKERS = 8 }; /* at most */

typedef struct tutti__history_opts {
    int nodes, workers; /* workers of each node */
    FILE *events;       /* what happens, a line each; NULL: nothing */
} tutti__history_opts;

typedef struct tutti__history tutti__history;

typedef struct tutti__history_result {
    uint64_t virtual_ms, messages;
    const char *broken; /* an invariant, and where it was broken; NULL: none. Until the next run. */
} tutti__history_result;

/* Errors: MEMORY. */
tutti_status tutti__history_new(tutti__history **history_p, const tutti__history_opts *opts);
void tutti__history_free(tutti__history *history);
/* Errors: MEMORY; a broken invariant is a result. */
tutti_status tutti__history_run(tutti__history *history, uint64_t seed,
                                tutti__history_result *result);
/* The state of the nodes at the end of the last run. */
void tutti__history_show(const tutti__history *history, FILE *out);

#endif
