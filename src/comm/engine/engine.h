/* engine.h -- what runs a group's collectives.   SPDX-License-Identifier: MIT
 *
 *     single_engine.c          a group of one
 *     shared_memory_engine.c   ranks of one host
 *     tcp_engine.c             ranks that share no memory: over TCP, or MPI's messages
 *     hierarchical_engine.c    shared memory within hosts, messages between them */
#ifndef TUTTI_COMM_ENGINE_ENGINE_H
#define TUTTI_COMM_ENGINE_ENGINE_H

#include "comm/algorithm/levels.h"
#include "comm/core/failure.h"

typedef struct tutti__engine tutti__engine;

/* Functions that may be NULL say what that means. */
typedef struct tutti__engine_ops {
    /* At set-up, after it is observed: measures what its algorithms are chosen by. NULL: nothing. */
    tutti_status (*measure)(tutti__engine *engine, double deadline);
    /* How it chooses algorithms. NULL: there is no choice. */
    struct tutti__tuner *(*tuner)(tutti__engine *engine);
    /* Announces the next operation to the others, without waiting; the caller then does other things while the cache line
     * travels. NULL, or not called: run does it. */
    void (*publish)(tutti__engine *engine, tutti__operation *op);
    /* Runs one operation, on host memory, to completion; GROUP errors through tutti__comm_fail. When it returns, with any
     * status, no rank uses the operation's buffers any more. */
    tutti_status (*run)(tutti__engine *engine, tutti__operation *op);
    /* Agrees with the others on the first failure: if another rank was first, its cause replaces *cause. NULL: not possible. */
    void (*announce)(tutti__engine *engine, tutti__cause *cause);
    /* Makes a running operation notice that `rank` has left; -1: that the group is dead. NULL: it polls. */
    void (*wake)(tutti__engine *engine, int rank);
    /* Adopts a failure that another rank announced. NULL: not possible. */
    void (*look)(tutti__engine *engine);
    /* Updates peers[].seen, which otherwise grows only when signatures are compared; NULL: nothing to update. */
    void (*see)(tutti__engine *engine);
    /* Operations run when they are submitted, by the caller; those for which it gets a handle between such calls of +1 and -1. NULL: a
     * thread runs the latter. */
    void (*at_once)(tutti__engine *engine, int more);
    void (*release)(tutti__engine *engine, void *p); /* memory of an alloc */
    void (*close)(tutti__engine *engine);            /* frees it */
} tutti__engine_ops;

struct tutti__engine {
    const tutti__engine_ops *ops;
    tutti__comm *comm;
    const char *name;
};

/* Registers the engine as an observer: any thread may then call it. */
void tutti__engine_observe(tutti__engine *engine);

struct tutti__shm;
struct tutti__tcp;
/* Each takes ownership of what it is given, also when it fails. */
tutti_status tutti__engine_single(tutti__engine **engine_p, tutti__comm *comm);
tutti_status tutti__engine_shared_memory(tutti__engine **engine_p, tutti__comm *comm,
                                         struct tutti__shm *shm);
tutti_status tutti__engine_tcp(tutti__engine **engine_p, tutti__comm *comm, struct tutti__tcp *tcp,
                               const tutti__places *places);
/* `host`: this host's ranks, within comm, with `shm` their memory. */
tutti_status tutti__engine_hierarchical(tutti__engine **engine_p, tutti__comm *comm,
                                        struct tutti__tcp *tcp, tutti__comm *host,
                                        struct tutti__shm *shm, const tutti__places *places);

#endif
