/* shm.h -- ranks that see one block of memory: threads of a process, or processes with a shared mapping.
 * SPDX-License-Identifier: MIT
 *
 *     block      header: first failure | a slot a rank: its barrier counters, its call, its buffer's address
 *     nodes      among many ranks: how many of a group have arrived at a barrier; futexes
 *     counts     for each rank, of its uneven operation: elements for each rank, and expected from each
 *     result     of a reduction that one rank makes for all
 *     staging    for each rank six buffers for data that peers cannot read directly
 *     segments   from tutti_group_alloc: one part a rank, read and written by all
 *
 * block.c publishes calls; shm.c opens it; tree.c counts who has arrived, barrier.c waits; access.c keeps peers off the buffers of a failed
 * call; segment.c allocates; cma.c reads other processes; copy_method.c chooses between that and staging; threads.c and
 * processes.c make the mappings. The algorithms (algorithm/shm_*.c) are made of these. */
#ifndef TUTTI_COMM_TRANSPORT_SHM_H
#define TUTTI_COMM_TRANSPORT_SHM_H

#include "comm/core/failure.h"
#include "comm/core/pace.h"

/* OPEN: barriers that ranks may be in at the same time, a power of two. */
enum {
    TUTTI__SHM_STAGES = 6,
    TUTTI__SHM_AHEAD = 2,
    TUTTI__SHM_OPEN = 4,
    TUTTI__SHM_CORES = 1024, /* a core of a higher number is not counted */
    TUTTI__SHM_MANY =
        64, /* ranks: among more, each does not look at what each has measured or tried */
    TUTTI__SHM_SMALL = 16 + 64 * 64
};

/* What a rank publishes when it starts an operation. Its first cache line alone shows that the rank has arrived, its call,
 * and the address of its memory, or up to 16 bytes of its data. */
typedef struct tutti__shm_call {
    _Alignas(64) _Atomic uint64_t arrived; /* calls so far, written last */
    tutti__signature signature;
    union {
        struct {
            /* the segment of the declared memory: TUTTI__SHM_STAGED ..., or a number */
            uint32_t segment;
            int32_t error; /* alloc: why rank 0 failed, else 0 */
            uint64_t at;   /* offset in this rank's part of the segment; HERE, CMA: an address */
        };
        char small[TUTTI__SHM_SMALL]; /* of a small operation: the contribution itself */
    };
} tutti__shm_call;

#define TUTTI__SHM_STAGED UINT32_MAX       /* it goes through staging buffers */
#define TUTTI__SHM_HERE   (UINT32_MAX - 1) /* in this process */
#define TUTTI__CMA        (UINT32_MAX - 2) /* in its rank's process (cma.c) */

typedef struct tutti__shm_slot {
    /* Alternate, so that a rank may start the next while others still read the last. */
    tutti__shm_call calls[2];
    /* Barriers so far, except those that begin an operation. */
    _Alignas(64) _Atomic uint64_t arrived;
    _Alignas(64) _Atomic uint64_t called; /* 1 + the sequence of its last call */
    /* Of its last timed calls, alternating: the time after entering, and the time of the copies before (copy_method.c). */
    _Atomic uint32_t took_ns[2], staged_ns[2];
    _Atomic uint32_t cpu; /* 1 + the CPU on which it last waited long; 0: none */
    /* It reads or writes peers' buffers (access.c). Not in a line adjacent to one that peers poll: processors fetch lines
     * in pairs, and the fence after this store would wait until it is fetched back. */
    _Alignas(128) _Atomic uint32_t accessing;
    tutti__cause cause;
    /* Written before the first barrier: for testing whether its memory can be read (cma.c). */
    int64_t pid;
    uint64_t token, token_at;
    _Atomic uint32_t reads_all; /* it has tested that it can read all */
} tutti__shm_slot;

/* A group of neighbouring ranks, or of such groups (tree.c). */
typedef struct tutti__shm_node {
    /* By a barrier's number modulo OPEN: how many have arrived at it and those before it with the same remainder, and which
     * rank did so last, for all of the group. */
    _Alignas(64) _Atomic uint64_t arrived[TUTTI__SHM_OPEN];
    _Atomic uint32_t last[TUTTI__SHM_OPEN];
    /* On which its ranks sleep until a barrier is over; without a tree all ranks sleep on the first node's. */
    _Alignas(64) _Atomic uint32_t futex;
    _Atomic uint32_t sleepers;
} tutti__shm_node;

typedef struct tutti__shm_block {
    uint64_t bytes;
    uint64_t chunk_bytes;
    uint32_t fan; /* members of a node; 0: no tree, ranks look at each other's counters */
    _Alignas(64) _Atomic uint32_t first_failed; /* 1 + the rank whose cause counts; 0: none */
    _Atomic uint32_t abandoned; /* 1 + a rank that left a call with an error; 0: none */
    _Atomic uint32_t users;     /* of one process: threads that still use this memory */
    /* By the tree: the last barrier at which all have arrived. */
    _Alignas(64) _Atomic uint64_t passed;
    /* By the first barrier: on which cores any rank may run, and 1000 times the least number of cores that a cgroup grants. */
    _Alignas(64) _Atomic uint64_t cores[TUTTI__SHM_CORES / 64];
    _Atomic uint64_t least_quota; /* 0: none */
    _Alignas(128) tutti__shm_slot slots[];
} tutti__shm_block;

typedef struct tutti__shm_segment {
    struct tutti__shm_segment *next;
    uint32_t number;
    char *base;    /* of rank 0's part */
    size_t stride; /* from one rank's part to the next */
    size_t bytes;  /* of the whole mapping */
    void *mapping;
} tutti__shm_segment;

/* Whether ranks can read each other's memory, and how far that is known. */
typedef enum tutti__cma {
    TUTTI__CMA_NEW,
    TUTTI__CMA_PUBLISHED,
    TUTTI__CMA_TRIED,
    TUTTI__CMA_ALWAYS,
    TUTTI__CMA_NEVER
} tutti__cma;

/* copy_method.h */
typedef enum tutti__copy_method {
    TUTTI__COPY_BY_STORES,
    TUTTI__COPY_BY_STRINGS,
    TUTTI__COPY_BY_KERNEL,
    TUTTI__COPY_METHODS
} tutti__copy_method;

typedef struct tutti__shm tutti__shm;

/* How mappings are made: among threads, or among processes. */
typedef struct tutti__shm_memory {
    bool one_process;
    /* Rank 0 makes a mapping of `bytes` and sends it to the others; 0 or an errno. *handle is published with the call. */
    int (*make)(tutti__shm *shm, size_t bytes, void **mapping_p, uint64_t *handle_p);
    tutti_status (*take)(tutti__shm *shm, size_t bytes, uint64_t handle, void **mapping_p);
    void (*drop_block)(tutti__shm_block *block);
} tutti__shm_memory;

struct tutti__shm {
    tutti__comm *comm;
    tutti__shm_block *block;
    int fan;                      /* the block's */
    tutti__shm_node *nodes, *bed; /* bed: on whose futex this rank sleeps */
    size_t n_beds;                /* the first so many nodes have sleepers */
    uint64_t *counts;
    size_t counts_row; /* numbers of a rank in it */
    char *result, *staging;
    void **pointers; /* tutti__shm_pointers */
    /* barriers: by the tree also those that begin an operation. tick: staged chunks so far; chunk t uses buffer t mod 6 */
    uint64_t calls, barriers, tick;
    bool swaps; /* in the running operation all ranks stage: they swap buffers (tutti__shm_stage) */
    const void *exposed; /* what peers may access in the running operation; NULL: nothing */
    size_t exposed_bytes;
    int looks, yields; /* polls before yielding, yields before sleeping, at a barrier */
    /* Of a tree: whether ranks share cores, which all know after the first barrier, and until then do not. Then they sleep at
     * once, and work for all may be one rank's. */
    bool crowded, knows_cores;
    tutti__cma cma;
    uint64_t token;
    tutti__copy_method copy_method; /* of the running operation */
    bool by_strings;                /* copies use rep movsb */
    tutti__pace paces[TUTTI__N_OPS][TUTTI__PACE_SIZES];
    tutti__pace *pace; /* the running operation's; NULL: none */
    /* Bytes for all ranks if all pieces were as large as the largest of the last call, for each operation whose pieces differ:
     * the only size on which ranks agree before a call. */
    size_t uneven_bytes[TUTTI__N_OPS];
    uint64_t n_timed, began_ns, staged_ns;
    bool is_timed;   /* the running operation */
    float *timed;    /* the mean that the last timed call will update; NULL: none */
    double moved_ms; /* when it last moved to another CPU */
    pthread_mutex_t segments_lock;
    tutti__shm_segment *segments;
    uint32_t n_segments;
    const tutti__shm_memory *memory;
    struct tutti__control *control; /* for descriptors; NULL among threads */
};

/* ---- Init, teardown ------------------------------------------------------------------------------------ */

/* Ranks that are threads, or processes of one host; `control`, of the outermost communicator, transfers pointers or
 * descriptors. */
tutti_status tutti__shm_open_threads(tutti__shm **shm_p, tutti__comm *comm,
                                     struct tutti__control *control, double deadline);
tutti_status tutti__shm_open_processes(tutti__shm **shm_p, tutti__comm *comm,
                                       struct tutti__control *control, double deadline);
/* NULL is fine. */
void tutti__shm_close(tutti__shm *shm);
/* False if this process cannot share memory with others of its host, and why: "memfd_create: Operation not permitted". */
bool tutti__shm_probe(const tutti__comm *comm, char *why, size_t capacity);

/* Used by threads.c and processes.c. `block`, filled by rank 0 up to chunk_bytes, belongs to the new shm. */
tutti_status tutti__shm_new(tutti__shm **shm_p, tutti__comm *comm, const tutti__shm_memory *memory,
                            tutti__shm_block *block);
size_t tutti__shm_block_bytes(int size, size_t chunk_bytes);
/* What rank 0 writes into a new block. */
void tutti__shm_block_init(tutti__shm_block *block, const tutti__comm *comm);
size_t tutti__shm_chunk_bytes(const tutti__comm *comm);

/* ---- Failure ------------------------------------------------------------------------------------------- */

void tutti__shm_announce(tutti__shm *shm, tutti__cause *cause);
void tutti__shm_look(tutti__shm *shm);
/* Updates peers[].seen. */
void tutti__shm_see(tutti__shm *shm);
/* Wakes all ranks that sleep at a barrier, to check again. */
void tutti__shm_wake_all(tutti__shm *shm);

/* ---- Calls and barriers -------------------------------------------------------------------------------- */

/* Publishes this rank's call. */
tutti__shm_call *tutti__shm_publish(tutti__shm *shm, const tutti__operation *op);
/* The same, and the address of its `bytes` at p, which peers are to read or write. True if they can. */
bool tutti__shm_declare(tutti__shm *shm, const tutti__operation *op, const void *p, size_t bytes);
/* Marks this rank as arrived at the call that it has published: peers may read it. tutti__shm_enter does so if it was not
 * called. */
void tutti__shm_arrive(tutti__shm *shm);
/* The barrier that begins an operation: all ranks have arrived, with the same call. */
tutti_status tutti__shm_enter(tutti__shm *shm, const tutti__operation *op);
/* A barrier within it: all ranks have reached it. */
tutti_status tutti__shm_barrier(tutti__shm *shm, const tutti__operation *op);
/* The same, but the others need only have reached the barrier that was `lag` before this one. */
tutti_status tutti__shm_barrier_behind(tutti__shm *shm, const tutti__operation *op, uint64_t lag);
void tutti__shm_barrier_open(tutti__shm *shm);
void tutti__shm_set_patience(tutti__shm *shm, bool crowded);

/* ---- The tree of arrivals (tree.c) --------------------------------------------------------------------- */

/* Done by the rank that arrives last of all, before any rank goes on. */
typedef struct tutti__shm_last {
    tutti_status (*act)(void *self); /* NULL: nothing */
    void *self;
} tutti__shm_last;

/* Nodes that n ranks need at most. */
size_t tutti__shm_n_nodes(int n);
/* How many ranks a node has, of those of `comm`; 0: no tree. */
int tutti__shm_fan(const tutti__comm *comm);
void tutti__shm_tree_open(tutti__shm *shm);
/* After the first barrier. */
void tutti__shm_count_cores(tutti__shm *shm);
/* This rank arrives at barrier `number`, without waiting. enters: it begins `op`, and calls are compared. */
tutti_status tutti__shm_tree_arrive(tutti__shm *shm, uint64_t number, const tutti__operation *op,
                                    bool enters, tutti__shm_last last);
/* Whether all have arrived. */
static inline bool tutti__shm_tree_passed(const tutti__shm *shm, uint64_t number)
{
    return atomic_load_explicit(&shm->block->passed, memory_order_acquire) >= number;
}
/* tutti__shm_enter with something to do for the last rank; only with a tree. */
tutti_status tutti__shm_enter_last(tutti__shm *shm, const tutti__operation *op,
                                   tutti__shm_last last);

/* After entering, an operation reads and writes peers' buffers only between these two, with no barrier in between.
 * access_begin fails if a rank has left a call with an error: its buffer belongs to its program again. */
tutti_status tutti__shm_access_begin(tutti__shm *shm);
void tutti__shm_access_end(tutti__shm *shm);
/* tutti__shm_enter and access_begin in one, at the cost of the first. If it fails, tutti__shm_leave ends the access. */
tutti_status tutti__shm_enter_access(tutti__shm *shm, const tutti__operation *op);
/* Ends this rank's operation with an error, at any point: from now on no peer accesses its buffer. Without effect while
 * the communicator is alive, and when called again. */
void tutti__shm_leave(tutti__shm *shm);
/* The error of a call that another rank has left with an error; OK if none has. */
tutti_status tutti__shm_check_abandoned(tutti__shm *shm);
/* After an error that another rank's failure may explain: waits a moment for that failure to be known. True if it is. */
bool tutti__shm_await_cause(tutti__shm *shm);

/* Three pointers a rank, all NULL: for the running operation. */
void **tutti__shm_pointers(tutti__shm *shm);

/* What `rank` has published for the running operation. */
static inline tutti__shm_call *tutti__shm_call_of(const tutti__shm *shm, int rank)
{
    return &shm->block->slots[rank].calls[shm->calls & 1];
}
/* Whether the others can read and write what `rank` has declared. */
static inline bool tutti__shm_reaches(const tutti__shm *shm, int rank)
{
    uint32_t segment = tutti__shm_call_of(shm, rank)->segment;

    return segment != TUTTI__SHM_STAGED && segment != TUTTI__CMA;
}
/* The counts that `rank` gives to each rank in the uneven operation with this sequence number, those that it expects from
 * each, and the largest that it gives; read them after the operation was entered. */
/* Numbers of a rank in the table of counts: whole cache lines. */
static inline size_t tutti__shm_counts_row(int size)
{
    return ((size_t)size * 2 + 8) / 8 * 8;
}
static inline uint64_t *tutti__shm_counts_of(const tutti__shm *shm, uint64_t sequence, int rank)
{
    return shm->counts +
           ((size_t)(sequence & 1) * (size_t)shm->comm->size + (size_t)rank) * shm->counts_row;
}

/* ---- Memory -------------------------------------------------------------------------------------------- */

/* The staging buffer of `rank` for chunk k of the running operation. Chunk k + AHEAD may be copied in while others are
 * AHEAD barriers behind: the first chunk that they may still read is k - AHEAD - 1. The first AHEAD chunks of an operation
 * may be there before it is entered, when others may still read the last AHEAD + 1 of the one before. All of that is about the
 * chunk's number, whoever writes it: so if all ranks stage, each buffer alternates between two of them. A rank then writes
 * lines that it has read before, which is quicker than writing those that it wrote and others have read since. */
static inline char *tutti__shm_stage(const tutti__shm *shm, int rank, size_t k)
{
    uint64_t chunk = shm->tick + k, swapped = shm->swaps ? chunk / TUTTI__SHM_STAGES % 2 : 0;
    size_t buffer = (size_t)(chunk % TUTTI__SHM_STAGES);
    size_t owner = ((size_t)rank + (size_t)swapped) % (size_t)shm->comm->size;

    return shm->staging + (owner * TUTTI__SHM_STAGES + buffer) * shm->block->chunk_bytes;
}

/* After the operation is entered: the addresses of what ranks [first, last) have declared, NULL if peers cannot access it. */
tutti_status tutti__shm_find_contributions(tutti__shm *shm, int first, int last, char **at);
/* The segment whose part of this rank contains these bytes, or NULL. */
const tutti__shm_segment *tutti__shm_segment_of(tutti__shm *shm, const void *p, size_t bytes);
/* The collective operation `alloc`; its inverse, for this rank alone; and for all that are left. */
tutti_status tutti__shm_alloc(tutti__shm *shm, const tutti__operation *op);
void tutti__shm_release(tutti__shm *shm, void *p);
void tutti__shm_release_all(tutti__shm *shm);

/* For tutti__p2p_memory, `self` being the shm: a message's position in a segment, and copying it from there. */
bool tutti__shm_find(void *self, const void *p, size_t bytes, uint64_t *segment, uint64_t *offset);
bool tutti__shm_copy(void *self, int outer_rank, uint64_t segment, uint64_t offset, void *to,
                     size_t bytes);

#endif
