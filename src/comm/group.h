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

#include "base/base.h"
#include "comm/bootstrap/socket.h"
#include <pthread.h>
#include <stdatomic.h>
#include <tutti/group.h>

/* ---- An operation: one collective call -------------------------------------------------------------- */

typedef enum tutti__op_kind {
    TUTTI__OP_ALL_REDUCE,
    TUTTI__OP_REDUCE,
    TUTTI__OP_REDUCE_SCATTER,
    TUTTI__OP_BROADCAST,
    TUTTI__OP_SCATTER,
    TUTTI__OP_GATHER,
    TUTTI__OP_ALL_GATHER,
    TUTTI__OP_ALL_GATHER_V,
    TUTTI__OP_ALL_TO_ALL,
    TUTTI__OP_ALL_TO_ALL_V,
    TUTTI__OP_BARRIER,
    TUTTI__OP_ALLOC,
    TUTTI__OP_SEND, /* by the post, not by a transport */
    TUTTI__OP_RECV,
    TUTTI__N_OPS
} tutti__op_kind;

/* What holds for every operation of a kind. What is not rooted is given or taken by all; what does not reduce moves pieces
 * unchanged. */
typedef struct tutti__op_traits {
    const char *name;
    bool reduces;   /* what is taken is the reduction of what is given */
    bool from_root; /* root alone gives */
    bool to_root;   /* root alone takes */
    bool scatters;  /* src holds a piece for each rank, in rank order; else one piece for all */
    bool gathers;   /* dst holds a piece of each rank, in rank order */
    bool uneven;    /* pieces differ in size: counts say how, and print.count is 0 */
} tutti__op_traits;

/* What ranks must agree on; every message begins with it. */
typedef struct tutti__signature {
    uint64_t group, sequence;
    uint64_t count; /* elements of one piece; bytes of an alloc */
    uint8_t op, dtype, redop;
    uint8_t zero[5];
    uint32_t root; /* of a send or receive: the other rank */
    int32_t tag;   /* of those */
} tutti__signature;

typedef struct tutti__op {
    tutti__signature signature;
    const void *src; /* this rank's contribution; where it is reduced in place, src == dst */
    void *dst;
    /* Uneven: elements of the piece for each rank (NULL unless it scatters), and of each. Borrowed, or the work's. */
    const size_t *src_counts, *dst_counts;
    int timeout_ms;
    double deadline; /* set when it starts */
} tutti__op;

/* Elements, from the beginning of src or dst. */
typedef struct tutti__piece {
    size_t at, count;
} tutti__piece;

const tutti__op_traits *tutti__op_traits_of(const tutti__op *op);
const char *tutti__op_name(tutti__op_kind kind);
/* What `from` gives to `to`, as it lies in from's src; uneven: of this rank's own only. Nothing where one does not give
 * or the other does not take. */
tutti__piece tutti__piece_out(const tutti__op *op, int from, int to);
/* The same, as it lies in this rank's dst, whose counts those are. */
tutti__piece tutti__piece_in(const tutti_group *group, const tutti__op *op, int from);
/* Elements that this rank gives: all of its src. */
size_t tutti__op_given(const tutti_group *group, const tutti__op *op);
/* True if no rank has anything to move: a barrier, for one. */
bool tutti__op_is_empty(const tutti__op *op);
/* The i-th of n parts of `count` elements, cut at multiples of `grain`: equal ones, but that the last are short or empty. */
tutti__piece tutti__part(size_t count, size_t n, size_t i, size_t grain);
/* Bytes of a chunk, whole cache lines: what tests ask for, else `standard`. */
size_t tutti__tuned_bytes(const tutti_group *group, size_t standard);
/* "all_reduce #12 (F32 x 1000, sum)" */
void tutti__signature_text(const tutti__signature *signature, char *text, size_t capacity);
bool tutti__signature_equal(const tutti__signature *a, const tutti__signature *b);
/* Bytes of one piece. */
size_t tutti__op_bytes(const tutti__signature *signature);

/* ---- Reduction -------------------------------------------------------------------------------------- */

/* dst[i] = src[0][i] op src[1][i] op ... in this order, divided by `size` for AVG, for count elements, then copied to
 * the other destinations. 16-bit types accumulate in f32. A destination may be one of the sources. */
void tutti__reduce(tutti_dtype dtype, tutti_redop op, void *const *dst, size_t n_dst,
                   const void *const *src, size_t n_src, size_t count);

/* The same for one destination: the sum divided by `divisor`, whatever n_src. */
void tutti__average(tutti_dtype dtype, size_t divisor, void *dst, const void *const *src,
                    size_t n_src, size_t count);

/* Why a group is dead. */
typedef struct tutti__cause {
    int32_t status;  /* OK: it lives */
    int32_t culprit; /* rank, -1: none in particular */
    char text[1024];
} tutti__cause;

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

typedef struct tutti__peer {
    char host[64];
    int64_t pid;
    int32_t world_rank;    /* its rank in the job; this group may be a part of it */
    _Atomic bool left;     /* said goodbye */
    _Atomic uint64_t seen; /* 1 + the sequence of the last call that it announced; 0: none */
} tutti__peer;

/* Sizes that tests make small. Zero means default. */
typedef struct tutti__tuning {
    size_t chunk_bytes; /* a staging buffer's; rank 0's counts for all */
    bool stage_all;     /* behave as if no memory could be read by peers */
    int spin;           /* times the core is given away before sleeping; -1: none */
    int host;           /* not 0: as if ranks with another number were on another host */
    /* The port that others are to call, given the one at which this rank listens; NULL: that one. */
    int (*advertise)(int rank, int port);
} tutti__tuning;

/* Memory of tutti_group_alloc that only this rank sees. */
typedef struct tutti__plain {
    struct tutti__plain *next;
    void *p;
    size_t bytes;
} tutti__plain;

struct tutti_group {
    int rank, size, local_rank, local_size, timeout_ms;
    int process;                 /* that made it */
    int heartbeat_ms;            /* asked for; 0: off */
    _Atomic int call_timeout_ms; /* of the collectives issued from now on */
    /* Of a split: each rank's in the group that all splits began with; else NULL. */
    int *global_ranks;
    bool tcp;                   /* asked for everywhere */
    bool mpi;                   /* carries this group, and its splits */
    char name[64], prefix[160]; /* of its keys in the store */
    uint64_t id;
    tutti__tuning tuning;
    /* NULL, or the group inside which this one works and dies: its post, its causes, its ranks in all messages. */
    tutti_group *outer;
    int *outer_ranks;    /* of each rank here */
    tutti_group *parent; /* while a split sets this group up: its death ends that; else NULL */
    tutti_store *store;  /* kept for split; NULL in a group of one */
    tutti__secret secret;
    tutti__peer *peers;
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

    pthread_mutex_t failure_lock, report_lock; /* the second while the last collectives are told */
    _Atomic bool reported;                     /* they are */
    tutti__cause cause;
    _Atomic bool failed;

    _Atomic uint64_t sequence; /* of the next operation to run */
    uint64_t bytes;            /* that this rank contributed; of whoever has the turn */
    int n_splits;
    struct tutti__queue *queue;
};

tutti_status tutti__group_init(tutti_group **group_p, const tutti_group_opts *opts,
                               const tutti__tuning *tuning);
/* "auto", "native", "mpi", "nccl"; false for anything else. */
bool tutti__backend_parse(const char *text, tutti_backend *backend_p);

/* ---- Failure ---------------------------------------------------------------------------------------- */

/* Kills the group, on all ranks, unless it is dead already. Returns the status of the first cause, no message made. */
tutti_status tutti__group_fail(tutti_group *group, tutti_status status, int culprit,
                               const char *format, ...) TUTTI_PRINTF(4, 5);
/* Kills it here only: the others know. */
void tutti__group_adopt(tutti_group *group, const tutti__cause *cause);
/* Is it dead, as far as this rank or, by shared memory, any rank knows? */
bool tutti__group_failed(tutti_group *group);
/* Of a dead group: that of its cause. */
tutti_status tutti__group_status(tutti_group *group);
/* What tutti__group_error says. */
void tutti__error_text(tutti_group *group, const tutti__signature *signature, char *text,
                       size_t capacity);
/* What the rank is called in messages. */
int tutti__outer_rank(const tutti_group *group, int rank);
/* It has said goodbye. */
bool tutti__has_left(const tutti_group *group, int rank);
/* Makes the message of a call on a dead group; `print` NULL: not of an operation. */
tutti_status tutti__group_error(tutti_group *group, const tutti__signature *signature);
/* "rank 3 (hostb, process 4711)" */
void tutti__peer_text(const tutti_group *group, int rank, char *text, size_t capacity);
/* While the group is being made: leaves in the store why that failed, unless another rank was first, whose reason then is
 * *first (NULL: not asked for). */
void tutti__note_cause(tutti_group *group, tutti_status status, tutti__cause *first);
tutti_status tutti__fail_lost(tutti_group *group, int rank);
tutti_status tutti__fail_late(tutti_group *group, const tutti__op *op, const bool *missing);
/* MISMATCH naming both calls. */
tutti_status tutti__fail_different(tutti_group *group, int low, const tutti__signature *low_print,
                                   int high, const tutti__signature *high_print);
/* The same unless theirs equals ours. */
tutti_status tutti__check_signature(tutti_group *group, const tutti__signature *ours, int rank,
                                    const tutti__signature *theirs);
/* Uneven: `from` gives `sent` elements to `to`; MISMATCH if that expects another number. */
tutti_status tutti__check_sent(tutti_group *group, const tutti__signature *signature, int from,
                               int to, size_t sent, size_t expected);

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
