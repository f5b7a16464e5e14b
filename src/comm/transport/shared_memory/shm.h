/* local.h -- ranks that see one control block: threads of a process, or processes with a shared mapping.
 * SPDX-License-Identifier: MIT
 *
 *     control block   header: first failure, bell | a slot a rank: where it is, what it calls, where its buffer lies
 *     counts          for each rank, of its uneven operation: elements for each rank, and expected from each
 *     staging         for each rank three buffers, through which memory goes that peers cannot read
 *     segments        from tutti_group_alloc: a part a rank, read and written by all */
#ifndef TUTTI_COMM_TRANSPORT_LOCAL_H
#define TUTTI_COMM_TRANSPORT_LOCAL_H

#include "comm/group.h"

enum { TUTTI__SHM_STAGES = 3, TUTTI__SHM_SMALL = 16 + 32 * 64 };

/* What a rank says when it starts an operation. Its first cache line alone tells that the rank has come, to what, and
 * where its memory lies, or up to 16 bytes of what is in it. */
typedef struct tutti__shm_call {
    _Alignas(64) _Atomic uint64_t arrived; /* calls so far, once all is said */
    tutti__signature signature;
    union {
        struct {
            uint32_t
                segment; /* where the contribution lies: TUTTI__SHM_STAGED ..., or a segment's number */
            int32_t error; /* alloc: why rank 0 could not, else 0 */
            uint64_t at; /* offset in this rank's part of the segment; HERE, FOREIGN: an address */
        };
        char small[TUTTI__SHM_SMALL]; /* of a small reduction: the contribution itself */
    };
} tutti__shm_call;

#define TUTTI__SHM_STAGED UINT32_MAX       /* it goes through staging buffers */
#define TUTTI__SHM_HERE   (UINT32_MAX - 1) /* in this process */
#define TUTTI__CMA        (UINT32_MAX - 2) /* in its rank's process (foreign.c) */

typedef struct tutti__shm_slot {
    /* Alternate, so that a rank may start the next while others still read the last. */
    tutti__shm_call calls[2];
    /* Meetings so far, but for those that begin an operation. */
    _Alignas(64) _Atomic uint64_t arrived;
    _Alignas(64) _Atomic uint64_t called; /* 1 + the sequence of its last call */
    _Atomic uint32_t cpu;                 /* 1 + where it last waited for long; 0: it has not */
    tutti__cause cause;
    /* Written before the first meeting: how to try whether its memory can be read (foreign.c). */
    int64_t pid;
    uint64_t token, token_at;
    _Atomic uint32_t reads_all; /* it has tried, and can */
} tutti__shm_slot;

typedef struct tutti__shm_block {
    uint64_t bytes;
    uint64_t chunk_bytes;
    _Alignas(64) _Atomic uint32_t first_failed; /* 1 + the rank whose cause counts; 0: none */
    _Atomic uint32_t users;                     /* in one process: who still uses this memory */
    _Alignas(64) _Atomic uint32_t wait_word;    /* on which ranks sleep until all have come */
    _Atomic uint32_t sleepers;
    _Alignas(64) tutti__shm_slot slots[];
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

typedef struct tutti__shm {
    tutti__shm_block *control;
    char *staging;
    uint64_t calls, meetings, tick; /* tick: staged chunks so far; chunk t lies in buffer t mod 3 */
    int looks, yields;              /* at a meeting: before giving the core away, before sleeping */
    tutti__cma cma;
    uint64_t token;
    double moved_ms; /* when it last gave way to a peer on its core */
    pthread_mutex_t segments_lock;
    tutti__shm_segment *segments;
    uint32_t n_segments;
    /* One process or several: how memory is handed out. */
    const struct tutti__shm_memory_ops *memory;
} tutti__shm;

typedef struct tutti__shm_memory_ops {
    bool one_process;
    /* Rank 0 makes a mapping of `bytes` and hands it to the others; 0 or an errno. *handle goes through the call. */
    int (*make)(tutti_group *group, size_t bytes, void **mapping_p, uint64_t *handle_p);
    int (*take)(tutti_group *group, size_t bytes, uint64_t handle, void **mapping_p);
    void (*drop_control)(tutti_group *group, tutti__shm_block *control);
} tutti__shm_memory_ops;

size_t tutti__shm_block_bytes(int size, size_t chunk_bytes);
/* Takes over control (filled by rank 0, chunk_bytes set). */
tutti_status tutti__shm_open(tutti_group *group, const tutti__transport *transport,
                             const tutti__shm_memory_ops *memory, tutti__shm_block *control);
size_t tutti__shm_chunk_bytes(const tutti_group *group);

/* For the transports' tables. */
tutti_status tutti__shm_run(tutti_group *group, tutti__op *op);
void tutti__shm_announce(tutti_group *group, tutti__cause *cause);
void tutti__shm_wake(tutti_group *group, int rank);
void tutti__shm_look(tutti_group *group);
void tutti__shm_see(tutti_group *group);
void tutti__shm_release(tutti_group *group, void *p);
void tutti__shm_close(tutti_group *group);

/* ---- Between meeting.c, local.c (operations), exchange.c (reducing) and pieces.c (moving) --------------------------- */

/* Says what this rank calls, and where its `bytes` at p lie. True if peers can read them there. */
bool tutti__shm_declare(tutti_group *group, const tutti__op *op, const void *p, size_t bytes);
/* All ranks have come, and to the same call. */
tutti_status tutti__shm_enter(tutti_group *group, const tutti__op *op);
void tutti__shm_barrier_open(tutti_group *group);
/* Wakes all who sleep at a meeting, to look again. */
void tutti__shm_wake_all(tutti__shm_block *control);
/* What `rank` says of the running operation. */
static inline tutti__shm_call *tutti__shm_call_of(const tutti__shm *local, int rank)
{
    return &local->control->slots[rank].calls[local->calls & 1];
}
/* All ranks have come. */
tutti_status tutti__shm_barrier(tutti_group *group, const tutti__op *op);
/* After the first meeting: where each contribution of ranks [first, last) lies, NULL if it is staged. */
tutti_status tutti__shm_find_contributions(tutti_group *group, int first, int last, char **at);
/* What `rank` gives to each in the uneven operation of this sequence number, then what it expects from each; read after
 * the first meeting. */
uint64_t *tutti__shm_counts_of(tutti_group *group, uint64_t sequence, int rank);
/* The buffer through which chunk k of the running operation goes from `rank`. */
static inline char *tutti__shm_stage(const tutti__shm *local, int rank, size_t k)
{
    size_t buffer = (size_t)((local->tick + k) % TUTTI__SHM_STAGES);

    return local->staging +
           ((size_t)rank * TUTTI__SHM_STAGES + buffer) * local->control->chunk_bytes;
}

/* Memory of other processes. Agreed on during the first operations; offered where it is agreed and pays. */
void tutti__cma_open(tutti_group *group);
void tutti__cma_agree(tutti_group *group);
void tutti__cma_offer(tutti_group *group, const tutti__op *op, size_t bytes);
tutti_status tutti__cma_read(tutti_group *group, int rank, void *to, const void *at, size_t bytes);

tutti_status tutti__shm_reduce(tutti_group *group, tutti__op *op);
tutti_status tutti__shm_move(tutti_group *group, tutti__op *op);

#endif
