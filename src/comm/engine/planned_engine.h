/* planned_engine.h -- what a group for planning would have sent.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_ENGINE_PLANNED_ENGINE_H
#define TUTTI_COMM_ENGINE_PLANNED_ENGINE_H

#include "base/base.h"
#include <tutti/group.h>

struct tutti__comm;
struct tutti__engine;

/* By kind of call (tutti__op_kind): how many, and bytes of their messages, of which each is all that a rank has before, or after.
 * name NULL: none. */
typedef struct tutti__planned_call {
    const char *name;
    uint64_t n, bytes;
} tutti__planned_call;
#define TUTTI__PLANNED_CALLS 16

/* A collective, in the order of the calls. */
typedef struct tutti__planned_entry {
    const char *name; /* of the operation */
    tutti_dtype dtype;
    int group;         /* which of those that write into this log */
    uint64_t bytes;    /* of the whole message */
    bool asynchronous; /* this rank goes on meanwhile */
    double at;         /* by the log's clock */
} tutti__planned_entry;

typedef struct tutti__planned_log {
    tutti__planned_entry *p; /* the caller frees it */
    size_t n, room;
    double (*clock)(void *of);
    void *of;
    bool incomplete; /* there was no memory */
} tutti__planned_log;

typedef struct tutti__planned_calls {
    tutti__planned_call of[TUTTI__PLANNED_CALLS];
    size_t memory;           /* bytes of tutti_group_alloc that this rank has */
    tutti__planned_log *log; /* of collectives, from now on; NULL: none */
    int log_group;
} tutti__planned_calls;

tutti_status tutti__engine_planned(struct tutti__engine **engine_p, struct tutti__comm *comm);
tutti__planned_calls *tutti__engine_planned_calls(struct tutti__engine *engine);
/* Counts a message of a kind of call (tutti__op_kind). */
void tutti__engine_planned_message(struct tutti__engine *engine, int kind, size_t bytes);

#endif
