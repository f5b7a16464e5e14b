/* planned_engine.h -- what a group for planning would have sent.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_ENGINE_PLANNED_ENGINE_H
#define TUTTI_COMM_ENGINE_PLANNED_ENGINE_H

#include "base/base.h"

struct tutti__comm;
struct tutti__engine;

/* By kind of call (tutti__op_kind): how many, and bytes of their messages, of which each is all that a rank has before, or after.
 * name NULL: none. */
typedef struct tutti__planned_call {
    const char *name;
    uint64_t n, bytes;
} tutti__planned_call;
#define TUTTI__PLANNED_CALLS 16
typedef struct tutti__planned_calls {
    tutti__planned_call of[TUTTI__PLANNED_CALLS];
    size_t memory; /* bytes of tutti_group_alloc that this rank has */
} tutti__planned_calls;

tutti_status tutti__engine_planned(struct tutti__engine **engine_p, struct tutti__comm *comm);
tutti__planned_calls *tutti__engine_planned_calls(struct tutti__engine *engine);
/* Counts a message of a kind of call (tutti__op_kind). */
void tutti__engine_planned_message(struct tutti__engine *engine, int kind, size_t bytes);

#endif
