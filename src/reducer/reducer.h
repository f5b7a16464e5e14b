/* reducer.h -- what DDP sees of the reducer beyond its public calls, and how ranks agree on what they are about to train.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_REDUCER_REDUCER_H
#define TUTTI_REDUCER_REDUCER_H

#include "base/base.h"
#include <tutti/reducer.h>

/* ---- Agreement (agree.c) --------------------------------------------------------------------------------------------
 * Every rank describes its items in words; equal words on all ranks are agreement. */
#define TUTTI__ITEM_BYTES 224

typedef struct tutti__item {
    char text[TUTTI__ITEM_BYTES]; /* `"fc1.bias" [256] F32`; zeroed behind the end */
} tutti__item;

/* Collective. MISMATCH, with the same message on every rank, names the first item that differs between rank 0 and the
 * first rank that disagrees with it: "<what> differ between ranks: <item> 3 is ... on rank 0 but ... on rank 1". One small
 * all_gather when they agree. */
tutti_status tutti__agree(tutti_group *group, const char *what, const char *item,
                          const tutti__item *items, size_t n);
/* The same where a constructor begins. `local`: what has become of this rank so far; where that is an error, items are
 * NULL, and all ranks return that of the first such rank, as from tutti__group_agree. */
tutti_status tutti__agree_after(tutti_group *group, tutti_status local, const char *what,
                                const char *item, const tutti__item *items, size_t n);

/* A number that all ranks share, and that nothing else of the group has: how many collectives rank 0 had issued. Collective. */
tutti_status tutti__agree_number(tutti_group *group, uint64_t *number_p);

/* ---- Reducer -------------------------------------------------------------------------------------------------------- */

/* This rank has failed with `message`: tells the others, who wait for what will never come. Nothing if they know already
 * (status is of scope GROUP) or there is nobody. */
void tutti__abort_peers(tutti_group *group, tutti_status status, const char *message);

/* A list of names for a message, cut after eight: "a", "b" and 3 more. Starts as {0}. */
typedef struct tutti__names {
    char text[1024];
    size_t n;
} tutti__names;
void tutti__names_add(tutti__names *names, const char *name);
const char *tutti__names_end(tutti__names *names);

#define TUTTI__MAX_BUCKET_LIMITS 64
typedef struct tutti__bucket_limits {
    double mb[TUTTI__MAX_BUCKET_LIMITS];
    size_t n;
    bool shortens_last; /* the last bucket is at most mb[0], where its gradients allow */
} tutti__bucket_limits;
/* Puts the defaults in for 0; ARG, naming the call, for sizes that make no sense. */
tutti_status tutti__bucket_sizes(const char *call, const tutti_reducer_opts *opts,
                                 tutti__bucket_limits *limits);
/* For what sets hooks. First: may it stand at `place`, where another might be? ARG, STATE. Then, by that and what else the
 * caller has against it: it stands there, or its self is freed. Returns `status`. */
tutti_status tutti__check_hook(const char *call, const tutti_comm_hook *place,
                               const tutti_comm_hook *hook);
tutti_status tutti__settle_hook(tutti_comm_hook *place, const tutti_comm_hook *hook,
                                tutti_status status);
/* From now on each bucket's all_reduce leaves a span in `recorder` (NULL: none). */
void tutti__reducer_set_recorder(tutti_reducer *reducer, tutti__recorder *recorder);
/* Parameters as their gradients lie: the order given, each bucket's together, local ones last. */
const size_t *tutti__reducer_order(const tutti_reducer *reducer);
/* When the last step began. */
uint64_t tutti__reducer_begin_ns(const tutti_reducer *reducer);
/* In how many steps this rank had NaN or infinities; in the last of them, the first parameter with one. NULL: none. */
const char *tutti__reducer_nonfinite(const tutti_reducer *reducer, uint64_t *steps_p);
/* Of a sparse gradient: a byte a row, 1 where it may be other than zero; after a step, where it may on any rank. NULL of
 * a dense one. What is written there holds for the next tutti__reducer_ready_touched. */
unsigned char *tutti__reducer_touched(tutti_reducer *reducer, size_t i);
tutti_status tutti__reducer_ready_touched(tutti_reducer *reducer, size_t i);
/* The step has failed for another reason, with the thread's message: nothing more is sent, finish reports it. */
void tutti__reducer_fail(tutti_reducer *reducer, tutti_status status);
/* Which step the next one is, as all ranks count: calls of backward that do not correspond differ in it. 0: the reducer's own
 * count will do. */
void tutti__reducer_set_common_step(tutti_reducer *reducer, uint64_t step);
/* For the next step: nothing is from here (gradients that are brought must be zero), nor from some other rank; means are
 * over `divisor` ranks (0: all). */
void tutti__reducer_set_join(tutti_reducer *reducer, bool shadow, bool partial, int divisor);
/* Gradient i is zeros, and this rank does not use it. */
void tutti__reducer_bring_zeros(tutti_reducer *reducer, size_t i);

/* ---- What PowerSGD keeps on this rank from step to step, for checkpoints (powersgd.c) ----------------------------------- */

/* Bytes of it, between steps; 0 of any other hook. */
size_t tutti__powersgd_bytes(const tutti_comm_hook *hook);
void tutti__powersgd_save(const tutti_comm_hook *hook, void *to);
/* mean, of n - 1 ranks' bytes, becomes that of n: with `from`, as many bytes of the n-th. What they have lost is averaged, all
 * else is the same on all ranks. FORMAT as below. */
tutti_status tutti__powersgd_mean(void *mean, const void *from, size_t bytes, size_t n);
/* Before the first step. FORMAT for bytes that cannot be. */
tutti_status tutti__powersgd_restore(const tutti_comm_hook *hook, const void *from, size_t bytes);

#endif
