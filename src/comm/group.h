/* group.h -- the inside of a group, and what other layers may ask of it beyond the public contract.
 * SPDX-License-Identifier: MIT
 *
 *     collective.c   public calls: arguments -> an operation
 *     operation.c    the table of operations: what each is called, who gives, who takes, which piece lies where
 *     work.c         the queue of operations and its thread
 *     fingerprint.c  what a call says about itself on the wire, and how two that differ are told
 *     transport/     how an operation runs: local.c (memory that all ranks see), tcp.c (messages), hierarchy.c (both),
 *                    single.c, and what they are made of
 *     backend/       MPI as the engine
 *     group.c        joining, leaving, splitting, aborting
 *     setup.c        ranks find each other; mesh.c: connections between all of them
 *     post.c         frames between all ranks, whatever the transport; heartbeat.c: who is silent
 *     letter.c       sends and receives by the post; send_recv.c: the public calls
 *     failure.c      the first cause, agreed by all ranks
 *     flight.c       the last collectives, and telling them when the group dies */
#ifndef TUTTI_COMM_GROUP_H
#define TUTTI_COMM_GROUP_H

#include "comm/bootstrap/socket.h"
#include "comm/core/failure.h"
#include "comm/core/reduce.h"

/* ---- Group ------------------------------------------------------------------------------------------ */

typedef struct tutti__transport {
    const char *name;
    /* Runs one operation to its end; GROUP errors through tutti__group_fail. */
    tutti_status (*run)(tutti_group *group, tutti__op *op);
    /* Agrees with the others on the first failure: if another was there first, it replaces *cause. NULL: no such way. */
    void (*announce)(tutti_group *group, tutti__cause *cause);
    /* Makes an operation that runs notice that `rank` has left; -1: that the group is dead. */
    void (*wake)(tutti_group *group, int rank);
    /* Adopts a failure that another rank announced. */
    void (*look)(tutti_group *group);
    /* Brings peers[].seen up to date, which only grows otherwise by comparing fingerprints; NULL: that is all. */
    void (*see)(tutti_group *group);
    void (*release)(tutti_group *group, void *p); /* of an alloc */
    void (*close)(tutti_group *group);            /* leaves; frees group->transport_state */
} tutti__transport;

/* Memory of tutti_group_alloc that only this rank sees. */
typedef struct tutti__plain {
    struct tutti__plain *next;
    void *p;
    size_t bytes;
} tutti__plain;

struct tutti_group {
    tutti__comm comm;
    int process;                 /* that made it */
    int heartbeat_ms;            /* asked for; 0: off */
    _Atomic int call_timeout_ms; /* of the collectives issued from now on */
    /* Of a split: each rank's in the group that all splits began with; else NULL. */
    int *global_ranks;
    bool tcp;           /* asked for everywhere */
    bool mpi;           /* carries this group, and its splits */
    char prefix[160];   /* of its keys in the store */
    tutti_store *store; /* kept for split; NULL in a group of one */
    tutti__secret secret;
    tutti_device device;
    tutti__recorder *recorder; /* of its last collectives; NULL: off */
    int flights;               /* how many it keeps */
    int attempt;               /* of an elastic launcher */
    bool launched;             /* `store` is the launcher's, which asks for the last collectives */

    struct tutti__control *control; /* NULL: of one rank, or inside another */
    const tutti__transport *transport;
    void *transport_state;
    _Atomic bool opened;      /* the transport is up: other threads may call it */
    struct tutti__wire *wire; /* data connections to peers; NULL: none */
    tutti__plain *plain;      /* allocs of transports that share no memory */
    pthread_mutex_t plain_lock;

    pthread_mutex_t report_lock; /* while the last collectives are told */
    _Atomic bool reported;       /* they are */

    _Atomic uint64_t sequence; /* of the next operation to run */
    uint64_t bytes;            /* that this rank contributed; of whoever has the turn */
    int n_splits;
    struct tutti__queue *queue;
};

tutti_status tutti__group_init(tutti_group **group_p, const tutti_group_opts *opts,
                               const tutti__tuning *tuning);
/* "auto", "native", "mpi", "nccl"; false for anything else. */
bool tutti__backend_parse(const char *text, tutti_backend *backend_p);

/* While the group is being made: leaves in the store why that failed, unless another rank was first, whose reason then is
 * *first (NULL: not asked for). */
void tutti__note_cause(tutti_group *group, tutti_status status, tutti__cause *first);

/* ---- Flight recorder -------------------------------------------------------------------------------- */

/* Reads TUTTI_FLIGHT and makes the ring. */
tutti_status tutti__flight_open(tutti_group *group);
static inline uint64_t tutti__flight_begin(tutti_group *group, const tutti__signature *signature,
                                           uint64_t begin_ns)
{
    const tutti__event event = {.name = tutti__op_name((tutti__op_kind)signature->op),
                                .category = "comm",
                                .begin_ns = begin_ns,
                                .arg = (int64_t)signature->sequence,
                                .detail = {signature->count, (uint64_t)signature->root << 32 |
                                                                 (uint64_t)signature->redop << 16 |
                                                                 (uint64_t)signature->dtype << 8 |
                                                                 signature->op},
                                .thread = 1};

    return tutti__record_open(group->recorder, &event);
}
static inline void tutti__flight_end(tutti_group *group, uint64_t ticket, uint64_t begin_ns)
{
    /* To a few milliseconds: the exact time would be a tenth of a small collective. */
    uint64_t end_ns = ticket ? tutti__now_coarse_ns() : 0;

    tutti__record_close(group->recorder, ticket, end_ns > begin_ns ? end_ns : begin_ns);
}
/* The group is dead: tells the launcher, once, what this rank did last, or the folder TUTTI_FLIGHT_DIR, or the log. By the
 * first call that returns the failure; where none does, by the watcher or by tutti_group_free. */
void tutti__flight_report(tutti_group *group);
/* The last chance; from now on the group's other threads report no more. */
void tutti__flight_close(tutti_group *group);

/* ---- Work ------------------------------------------------------------------------------------------- */

tutti_status tutti__queue_new(tutti_group *group);
/* ARG for a buffer that cannot be. */
/* A NULL group is refused, as the store refuses a NULL store. */
tutti_status tutti__check_group(const char *call, const tutti_group *group);
tutti_status tutti__check_buf(const char *call, const char *name, tutti_buf buf);
/* Runs or queues the operation; see tutti_work. */
tutti_status tutti__submit(tutti_group *group, const tutti__op *op, tutti_work **work_p);
/* Runs `call` on the communication thread, in the order of the calls; collectives that it calls on this group run at once,
 * before what was called after it. Every rank submits it at the same place and calls the same within. */
tutti_status tutti__submit_call(tutti_group *group, tutti_status (*call)(void *arg), void *arg,
                                tutti_work **work_p);
/* Fills in up to n of the queued operations, with the numbers that they will have; returns how many there are. */
size_t tutti__queue_list(tutti_group *group, tutti__signature *signatures, size_t n);
/* A work that others finish, where its deadline is over tutti__p2p_expire. `from`: who sent, of a receive. */
tutti_work *tutti__work_open(tutti_group *group, const tutti__signature *signature,
                             double deadline);
void tutti__work_finish(tutti_work *work, tutti_status status, const char *message, int from);
/* Finishes what is queued (at once where the group is dead) and ends the thread. */
void tutti__queue_free(tutti_group *group);
/* Waits until the work is done and says when it ran, by tutti__now_ns. The handle stays: tutti_work_wait frees it. */
void tutti__work_times(tutti_work *work, uint64_t *begin_ns_p, uint64_t *end_ns_p);

/* ---- Transports ------------------------------------------------------------------------------------- */

extern const tutti__transport tutti__single_transport;

/* alloc and release for transports that share no memory. */
tutti_status tutti__plain_alloc(tutti_group *group, const tutti__op *op);
void tutti__plain_release(tutti_group *group, void *p);
void tutti__plain_free_all(tutti_group *group);

/* Ranks that are threads. The store hands pointers over. */
tutti_status tutti__shm_open_threads(tutti_group *group, double deadline);
/* False if this process cannot share memory with others of its host, and why: "memfd_create: Operation not permitted". */
bool tutti__shm_probe(const tutti_group *group, char *why, size_t capacity);
/* Processes of one host; the post hands descriptors over. */
tutti_status tutti__shm_open_processes(tutti_group *group, double deadline);
/* sockets[c * size + r] for data, c = 0 .. channels - 1, to each peer, which it takes over. */
tutti_status tutti__tcp_open(tutti_group *group, const int *sockets, int channels);

/* ---- Mesh ------------------------------------------------------------------------------------------- */

/* Whom to connect with, and how: addresses and fds at [channel * size + rank]. */
typedef struct tutti__mesh {
    int channels, listeners[2]; /* -1: none */
    tutti__address *addresses;  /* length 0: no such connection is wanted */
    int *fds;                   /* -1: none; its own */
} tutti__mesh;

/* Connects every pair of ranks that wants it: the higher rank calls, the lower accepts at its listeners. Closes all on
 * failure. */
tutti_status tutti__mesh_connect(tutti_group *group, const tutti__mesh *mesh, double deadline);

#endif
