/* shm.h -- ranks that see one block of memory: threads of a process, or processes with a shared mapping.
 * SPDX-License-Identifier: MIT
 *
 *     block      header: first failure, wait word | a slot a rank: where it is, what it calls, where its buffer lies
 *     counts     for each rank, of its uneven operation: elements for each rank, and expected from each
 *     staging    for each rank six buffers, through which memory goes that peers cannot read
 *     segments   from tutti_group_alloc: a part a rank, read and written by all
 *
 * shm.c makes the block and says calls in it; barrier.c waits in it; access.c keeps peers off the buffers of a call that has
 * failed; segment.c allocates; cma.c reads other processes; way.c
 * chooses between it and staging; threads.c and processes.c hand memory out. The algorithms
 * (algorithm/shm_*.c) are made of these. */
#ifndef TUTTI_COMM_TRANSPORT_SHM_H
#define TUTTI_COMM_TRANSPORT_SHM_H

#include "comm/core/failure.h"

enum { TUTTI__SHM_STAGES = 6, TUTTI__SHM_AHEAD = 2, TUTTI__SHM_SMALL = 16 + 64 * 64 };

/* What a rank says when it starts an operation. Its first cache line alone tells that the rank has come, to what, and
 * where its memory lies, or up to 16 bytes of what is in it. */
typedef struct tutti__shm_call {
    _Alignas(64) _Atomic uint64_t arrived; /* calls so far, once all is said */
    tutti__signature signature;
    union {
        struct {
            uint32_t
                segment; /* where what it declares lies: TUTTI__SHM_STAGED ..., or a segment's number */
            int32_t error; /* alloc: why rank 0 could not, else 0 */
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
    /* Barriers so far, but for those that begin an operation. */
    _Alignas(64) _Atomic uint64_t arrived;
    _Alignas(64) _Atomic uint64_t called; /* 1 + the sequence of its last call */
    /* Its last timed calls, in turn, once entered, and what it had copied in before (way.c). */
    _Atomic uint32_t took_ns[2], staged_ns[2];
    _Atomic uint32_t cpu; /* 1 + where it last waited for long; 0: it has not */
    /* It reads or writes peers' buffers (access.c). Not in the line beside one that peers poll: processors fetch lines in
     * pairs, and the fence after this store would wait until it is fetched back. */
    _Alignas(128) _Atomic uint32_t accessing;
    tutti__cause cause;
    /* Written before the first barrier: how to try whether its memory can be read (cma.c). */
    int64_t pid;
    uint64_t token, token_at;
    _Atomic uint32_t reads_all; /* it has tried, and can */
} tutti__shm_slot;

typedef struct tutti__shm_block {
    uint64_t bytes;
    uint64_t chunk_bytes;
    _Alignas(64) _Atomic uint32_t first_failed; /* 1 + the rank whose cause counts; 0: none */
    _Atomic uint32_t abandoned; /* 1 + a rank that left a call with an error; 0: none */
    _Atomic uint32_t users;     /* in one process: who still uses this memory */
    _Alignas(64) _Atomic uint32_t wait_word; /* on which ranks sleep until all have come */
    _Atomic uint32_t sleepers;
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

/* How far ranks know whether they can read each other's memory. */
typedef enum tutti__cma {
    TUTTI__CMA_NEW,
    TUTTI__CMA_PUBLISHED,
    TUTTI__CMA_TRIED,
    TUTTI__CMA_ALWAYS,
    TUTTI__CMA_NEVER
} tutti__cma;

/* way.h */
typedef enum tutti__shm_way {
    TUTTI__BY_STORES,
    TUTTI__BY_STRINGS,
    TUTTI__BY_KERNEL,
    TUTTI__SHM_WAYS
} tutti__shm_way;

enum { TUTTI__SHM_PACES = 12 };

/* Of calls of one operation and about one size. */
typedef struct tutti__shm_pace {
    uint32_t calls;
    float ns[TUTTI__SHM_WAYS]; /* that they take; 0: not known */
} tutti__shm_pace;

typedef struct tutti__shm tutti__shm;

/* How memory is handed out: among threads, or among processes. */
typedef struct tutti__shm_memory {
    bool one_process;
    /* Rank 0 makes a mapping of `bytes` and hands it to the others; 0 or an errno. *handle goes through the call. */
    int (*make)(tutti__shm *shm, size_t bytes, void **mapping_p, uint64_t *handle_p);
    int (*take)(tutti__shm *shm, size_t bytes, uint64_t handle, void **mapping_p);
    void (*drop_block)(tutti__shm_block *block);
} tutti__shm_memory;

struct tutti__shm {
    tutti__comm *comm;
    tutti__shm_block *block;
    char *staging;
    void **pointers;                /* tutti__shm_pointers */
    uint64_t calls, barriers, tick; /* tick: staged chunks so far; chunk t lies in buffer t mod 6 */
    const void *exposed; /* what peers may access in the running operation; NULL: nothing */
    size_t exposed_bytes;
    int looks, yields; /* at a barrier: before giving the core away, before sleeping */
    tutti__cma cma;
    uint64_t token;
    tutti__shm_way way; /* of the running operation */
    bool by_strings;    /* it copies by them */
    tutti__shm_pace paces[TUTTI__N_OPS][TUTTI__SHM_PACES];
    uint64_t n_timed, began_ns, staged_ns;
    bool is_timed;   /* the running operation */
    float *timed;    /* what the last timed call is to teach; NULL: nothing */
    double moved_ms; /* when it last gave way to a peer on its core */
    pthread_mutex_t segments_lock;
    tutti__shm_segment *segments;
    uint32_t n_segments;
    const tutti__shm_memory *memory;
    struct tutti__control *control; /* descriptors come by it; NULL among threads */
};

/* ---- Init, teardown ------------------------------------------------------------------------------------ */

/* Ranks that are threads; the store hands the pointer over, under `prefix`. */
tutti_status tutti__shm_open_threads(tutti__shm **shm_p, tutti__comm *comm, tutti_store *store,
                                     const char *prefix, double deadline);
/* Processes of one host; `control`, of the outermost communicator, hands descriptors over. */
tutti_status tutti__shm_open_processes(tutti__shm **shm_p, tutti__comm *comm,
                                       struct tutti__control *control, double deadline);
/* NULL is fine. */
void tutti__shm_close(tutti__shm *shm);
/* False if this process cannot share memory with others of its host, and why: "memfd_create: Operation not permitted". */
bool tutti__shm_probe(const tutti__comm *comm, char *why, size_t capacity);

/* Between shm.c, threads.c and processes.c. `block`, filled by rank 0 up to chunk_bytes, belongs to the new shm. */
tutti_status tutti__shm_new(tutti__shm **shm_p, tutti__comm *comm, const tutti__shm_memory *memory,
                            tutti__shm_block *block);
size_t tutti__shm_block_bytes(int size, size_t chunk_bytes);
size_t tutti__shm_chunk_bytes(const tutti__comm *comm);

/* ---- Failure ------------------------------------------------------------------------------------------- */

void tutti__shm_announce(tutti__shm *shm, tutti__cause *cause);
void tutti__shm_look(tutti__shm *shm);
/* Brings peers[].seen up to date. */
void tutti__shm_see(tutti__shm *shm);
/* Wakes all who sleep at a barrier, to look again. */
void tutti__shm_wake_all(tutti__shm *shm);

/* ---- Calls and barriers -------------------------------------------------------------------------------- */

/* Publishes what this rank calls. */
tutti__shm_call *tutti__shm_publish(tutti__shm *shm, const tutti__op *op);
/* The same, and where its `bytes` at p lie, which peers are to read or write. True if they can. */
bool tutti__shm_declare(tutti__shm *shm, const tutti__op *op, const void *p, size_t bytes);
/* This rank has arrived at the call that it has published: peers may read it. tutti__shm_enter does so if nobody did before. */
void tutti__shm_arrive(tutti__shm *shm);
/* The barrier that begins an operation: all ranks have come, and to the same call. */
tutti_status tutti__shm_enter(tutti__shm *shm, const tutti__op *op);
/* One within it: all ranks have come so far. */
tutti_status tutti__shm_barrier(tutti__shm *shm, const tutti__op *op);
/* The same, but the others need have come to the barrier that was `lag` before this one only. */
tutti_status tutti__shm_barrier_behind(tutti__shm *shm, const tutti__op *op, uint64_t lag);
void tutti__shm_barrier_open(tutti__shm *shm);

/* An operation that has been entered reads and writes peers' buffers only between these two, and meets no barrier there.
 * access_begin fails where a rank has left a call with an error, whose buffer is its program's again. */
tutti_status tutti__shm_access_begin(tutti__shm *shm);
void tutti__shm_access_end(tutti__shm *shm);
/* tutti__shm_enter and access_begin in one, for the price of the first. Where it fails tutti__shm_leave ends the access. */
tutti_status tutti__shm_enter_access(tutti__shm *shm, const tutti__op *op);
/* The operation of this rank ends with an error, wherever it was: from now on no peer accesses its buffer. Without effect
 * while the communicator lives, and a second time. */
void tutti__shm_leave(tutti__shm *shm);
/* The error of a call that another rank has left with one; OK if none has. */
tutti_status tutti__shm_check_abandoned(tutti__shm *shm);
/* Something has failed, of which this rank will hear in a moment, unless it was not that: true once it has. */
bool tutti__shm_await_cause(tutti__shm *shm);

/* Three times as many as there are ranks, all NULL: the running operation's until it ends. */
void **tutti__shm_pointers(tutti__shm *shm);

/* What `rank` says of the running operation. */
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
/* What `rank` gives to each in the uneven operation of this sequence number, then what it expects from each; read after
 * the operation was entered. */
uint64_t *tutti__shm_counts_of(tutti__shm *shm, uint64_t sequence, int rank);

/* ---- Memory -------------------------------------------------------------------------------------------- */

/* The buffer through which chunk k of the running operation goes from `rank`. Chunk k + AHEAD may be copied in while others
 * are AHEAD barriers behind: of those that they may still read, k - AHEAD - 1 is the first. The first AHEAD chunks of an
 * operation may be there before it is entered, when others may still read the last AHEAD + 1 of the one before. */
static inline char *tutti__shm_stage(const tutti__shm *shm, int rank, size_t k)
{
    size_t buffer = (size_t)((shm->tick + k) % TUTTI__SHM_STAGES);

    return shm->staging + ((size_t)rank * TUTTI__SHM_STAGES + buffer) * shm->block->chunk_bytes;
}

/* Once the operation is entered: where what ranks [first, last) have declared lies, NULL if peers cannot reach it. */
tutti_status tutti__shm_find_contributions(tutti__shm *shm, int first, int last, char **at);
/* The segment in whose part of this rank these bytes lie, or NULL. */
const tutti__shm_segment *tutti__shm_segment_of(tutti__shm *shm, const void *p, size_t bytes);
/* The operation `alloc`; its inverse, of this rank alone; all that are left. */
tutti_status tutti__shm_alloc(tutti__shm *shm, const tutti__op *op);
void tutti__shm_release(tutti__shm *shm, void *p);
void tutti__shm_release_all(tutti__shm *shm);

/* For tutti__p2p_memory, `self` being the shm: where a message lies in a segment, and copying it from there. */
bool tutti__shm_find(void *self, const void *p, size_t bytes, uint64_t *segment, uint64_t *offset);
bool tutti__shm_copy(void *self, int outer_rank, uint64_t segment, uint64_t offset, void *to,
                     size_t bytes);

#endif
