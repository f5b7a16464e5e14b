/* rounds.h -- an algorithm of a collective as data: what each rank does in each round.   SPDX-License-Identifier: MIT
 *
 * An algorithm is a set of pure functions of the call (tutti__coll), a rank and a round: no memory of its own, no clock, no socket.
 * Whoever runs one decides how bytes move (algorithm/tcp_rounds.c over TCP; the simulator in virtual time) and how long that takes.
 *
 * A rank's rounds follow each other: a round begins when all actions of the rank's round before are complete. Ranks are not
 * synchronised otherwise. Within a round
 *   - messages (SEND, RECV) move concurrently with each other and with the local actions;
 *   - local actions (COPY, REDUCE, FINISH) happen in the order in which they are listed;
 *   - no memory that a message receives into is otherwise read or written, and none that one sends from is written.
 * Messages from one rank to another are received in the order in which they were sent, whatever their rounds. So an algorithm is
 * pipelined by what it puts into one round: receive chunk r, reduce chunk r-1, send chunk r-2.
 *
 * What is in a place at the start: SRC: what this rank gives, as the operation says (core/op_kind.h); of a barrier one byte. The
 * others: nothing that may be read. SRC and DST may be the same memory as far as they hold the same piece: all of it in all_reduce, reduce and
 * broadcast, this rank's piece in all_gather, and root's in gather and scatter. Then DST is written only where SRC is no longer needed, and a COPY of memory to itself is none. Only ranks
 * that take a result have a DST.
 *
 * Types: elements of SRC, DST and HELD are of the call's type. So are those of WORK, except in reductions of 16-bit types (tutti__coll_is_wide), where
 * they are F32: sums are rounded once, at the end. COPY and REDUCE into WORK then widen what they read elsewhere. Sender and receiver use
 * places of the same type. FINISH writes the end of a reduction: divides by the number of ranks for AVG, and rounds. */
#ifndef TUTTI_COMM_ALGORITHM_ROUNDS_H
#define TUTTI_COMM_ALGORITHM_ROUNDS_H

#include "comm/core/operation.h"

enum { TUTTI__COLL_LEVELS = 4 };

/* A call, as far as its algorithm depends on it: the same on all ranks. */
typedef struct tutti__coll {
    tutti__op_kind op;
    tutti_dtype dtype;
    tutti_redop redop;
    int size, root;
    size_t count; /* elements of one piece, as in the signature; 1 (a byte) for a barrier */
    size_t chunk; /* elements of what is pipelined, at least 1; F32 ones if the reduction is wide */
    /* Consecutive ranks that are near each other: block[0] on a host, block[1] of those below one switch, ...; ends with 0, or, if there are unequally many of a level, with `size`. */
    int block[TUTTI__COLL_LEVELS];
} tutti__coll;

typedef enum tutti__coll_place {
    TUTTI__COLL_SRC,
    TUTTI__COLL_DST,
    TUTTI__COLL_WORK, /* scratch for sums */
    TUTTI__COLL_HELD, /* scratch for elements of the call's type */
    TUTTI__COLL_PLACES
} tutti__coll_place;

/* Elements from `at` on. */
typedef struct tutti__coll_at {
    tutti__coll_place place;
    size_t at;
} tutti__coll_at;

typedef enum tutti__coll_kind {
    TUTTI__COLL_SEND,   /* from `from`, to `peer` */
    TUTTI__COLL_RECV,   /* into `to`, from `peer` */
    TUTTI__COLL_COPY,   /* to = from */
    TUTTI__COLL_REDUCE, /* to = to op from */
    TUTTI__COLL_REDUCE_LEFT, /* to = from op to: some reductions (signed zeros, NaN) depend on the order of two */
    TUTTI__COLL_FINISH /* to = from, divided and rounded */
} tutti__coll_kind;

typedef struct tutti__coll_action {
    tutti__coll_kind kind;
    int peer;
    tutti__coll_at to, from;
    size_t count; /* elements, at least 1 */
} tutti__coll_action;

/* A rank's actions in one round. `actions` is the caller's, and has room for most_actions. */
typedef struct tutti__coll_round {
    tutti__coll_action *actions;
    size_t n, capacity;
} tutti__coll_round;

typedef struct tutti__coll_algorithm {
    tutti__op_kind op;
    const char *name;
    /* Of a reduction: it sums in the common order (order.h), as do others, so that which of them is used does not change a bit. */
    bool in_common_order;
    /* Whether it can run the call; NULL: any of its operation. */
    bool (*fits)(const tutti__coll *call);
    size_t (*n_rounds)(const tutti__coll *call);
    /* At most so many actions has a round of any rank. */
    size_t (*most_actions)(const tutti__coll *call);
    /* Elements of the rank's WORK and HELD; NULL: none. */
    size_t (*work)(const tutti__coll *call, int rank);
    size_t (*held)(const tutti__coll *call, int rank);
    /* Adds the rank's actions in a round to `out`. */
    void (*round)(const tutti__coll *call, int rank, size_t round, tutti__coll_round *out);
} tutti__coll_algorithm;

/* ---- For those who run them ------------------------------------------------------------------------------------------ */

/* All, in the order of algorithms.def: those of an operation stand together, `direct` first. */
extern const tutti__coll_algorithm *const tutti__coll_algorithms[];
extern const size_t tutti__coll_n_algorithms;
static inline bool tutti__coll_is_direct(const tutti__coll_algorithm *algorithm)
{
    return strcmp(algorithm->name, "direct") == 0;
}
/* Whether choosing it by size or measurement leaves all results as they are. */
static inline bool tutti__coll_keeps_order(const tutti__coll_algorithm *algorithm)
{
    return algorithm->in_common_order || !tutti__op_table[algorithm->op].reduces;
}
/* NULL: there is none of that name. */
const tutti__coll_algorithm *tutti__coll_find(tutti__op_kind op, const char *name);
/* Whether it can run the call. */
bool tutti__coll_fits(const tutti__coll_algorithm *algorithm, const tutti__coll *call);
/* Replaces what is in `out` by the rank's actions in a round. */
void tutti__coll_actions(const tutti__coll_algorithm *algorithm, const tutti__coll *call, int rank,
                         size_t round, tutti__coll_round *out);
/* Bytes of the rank's scratch: WORK, and after it, from a multiple of 64 on, HELD; *held_p: where that begins. */
size_t tutti__coll_scratch(const tutti__coll_algorithm *algorithm, const tutti__coll *call,
                           int rank, size_t *held_p);

/* Whether sums of 16-bit types are kept as F32 in WORK. Bitwise reductions are not: their type does not matter. */
bool tutti__coll_is_wide(const tutti__coll *call);
/* Bytes of an element in a place. */
size_t tutti__coll_element(const tutti__coll *call, tutti__coll_place place);

/* What links cost. Integers, so that all ranks compute the same from the same numbers, whatever their processors and compilers. */
typedef struct tutti__coll_link {
    uint64_t latency_ns; /* until the first byte of a message is there */
    uint64_t message_ns; /* of a rank's time for each message that it sends or receives */
    uint64_t byte_ps;    /* each byte that a rank sends, or receives */
} tutti__coll_link;

typedef struct tutti__coll_links {
    /* Between ranks of one block[0], of one block[1] but not one block[0], ..., and of all: the first index whose block is 0. */
    tutti__coll_link level[TUTTI__COLL_LEVELS + 1];
    uint64_t reduce_ps; /* each byte that is reduced or copied */
} tutti__coll_links;

/* The index in `level` of the link between two ranks. */
int tutti__coll_level(const tutti__coll *call, int a, int b);
/* Nanoseconds of the call if each round takes as long as its slowest rank: the sum over the rounds, each looked at on some of the ranks. */
uint64_t tutti__coll_estimate(const tutti__coll_algorithm *algorithm, const tutti__coll *call,
                              const tutti__coll_links *links);

/* ---- For algorithms -------------------------------------------------------------------------------------------------- */

/* Each adds an action, or none if count is 0. */
void tutti__coll_send(tutti__coll_round *out, int to, tutti__coll_at from, size_t count);
void tutti__coll_recv(tutti__coll_round *out, int from, tutti__coll_at to, size_t count);
void tutti__coll_local(tutti__coll_round *out, tutti__coll_kind kind, tutti__coll_at to,
                       tutti__coll_at from, size_t count);
static inline tutti__coll_at tutti__coll_src(size_t at)
{
    return (tutti__coll_at){TUTTI__COLL_SRC, at};
}
static inline tutti__coll_at tutti__coll_dst(size_t at)
{
    return (tutti__coll_at){TUTTI__COLL_DST, at};
}
static inline tutti__coll_at tutti__coll_work(size_t at)
{
    return (tutti__coll_at){TUTTI__COLL_WORK, at};
}
static inline tutti__coll_at tutti__coll_held(size_t at)
{
    return (tutti__coll_at){TUTTI__COLL_HELD, at};
}
/* The least k with 2^k >= n; the greatest k with 2^k <= n. */
size_t tutti__coll_log_up(size_t n);
size_t tutti__coll_log_down(size_t n);
/* The i-th of `size` parts of a piece, which differ by one element at most; i counts modulo size. The first is the largest. */
tutti__piece tutti__coll_shard(const tutti__coll *call, int i);
/* The k-th chunk of a part; empty from the last on. How many chunks the largest shard has, at least 1. */
tutti__piece tutti__coll_chunk(const tutti__coll *call, tutti__piece part, size_t k);
size_t tutti__coll_n_chunks(const tutti__coll *call);

#endif
