/* flight_recorder.h -- the flight recorder: the last collectives of a rank.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_COMM_ENGINE_FLIGHT_RECORDER_H
#define TUTTI_COMM_ENGINE_FLIGHT_RECORDER_H

#include "comm/engine/engine.h"

typedef struct tutti__flight {
    tutti__comm *comm;
    tutti_store *store;        /* where the launcher reads reports; NULL: none */
    bool launched;             /* `store` is the launcher's, which reads the reports */
    int attempt;               /* of an elastic launcher */
    tutti__engine *engine;     /* NULL until it is open */
    tutti__recorder *recorder; /* NULL: off */
    int n;                     /* how many it keeps */
    /* Writes up to n queued operations, with their future sequence numbers; returns how many there are. */
    size_t (*queued)(void *queue, tutti__signature *signatures, size_t n);
    void *queue; /* NULL: none */
    pthread_mutex_t report_lock;
    _Atomic bool reported;
} tutti__flight;

/* Reads TUTTI_FLIGHT and makes the ring. The members above `recorder` are set by the caller, before or after. */
tutti_status tutti__flight_open(tutti__flight *flight);
/* The group is dead: reports once what this rank did last, to the launcher, to the folder TUTTI_FLIGHT_DIR, or to the log.
 * Called by the first call that returns the failure; without one, by the control channel's thread or tutti_group_free. */
void tutti__flight_report(tutti__flight *flight);
/* Reports if that is still due; from now on the group's other threads report nothing. */
void tutti__flight_close(tutti__flight *flight);
void tutti__flight_destroy(tutti__flight *flight);

static inline uint64_t tutti__flight_begin(tutti__flight *flight, const tutti__signature *signature,
                                           uint64_t begin_ns)
{
    const tutti__time_span event = {
        .name = tutti__op_table[signature->op].name,
        .category = "comm",
        .begin_ns = begin_ns,
        .arg = (int64_t)signature->sequence,
        .detail = {signature->count,
                   (uint64_t)signature->root << 32 | (uint64_t)signature->on_device << 25 |
                       (uint64_t)signature->coalesced << 24 | (uint64_t)signature->redop << 16 |
                       (uint64_t)signature->dtype << 8 | signature->op,
                   (uint64_t)signature->reducer << 48 | (uint64_t)signature->bucket << 32 |
                       (uint32_t)signature->tag},
        .thread = 1};

    return tutti__record_open(flight->recorder, &event);
}

static inline void tutti__flight_end(tutti__flight *flight, uint64_t ticket, uint64_t begin_ns)
{
    /* To a few milliseconds: the exact time would take a large part of a small collective. */
    uint64_t end_ns = ticket ? tutti__now_coarse_ns() : 0;

    tutti__record_close(flight->recorder, ticket, end_ns > begin_ns ? end_ns : begin_ns);
}

#endif
