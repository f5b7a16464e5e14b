/* ddp.h -- the inside of the reducer, and how ranks agree on what they are about to train.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DDP_DDP_H
#define TUTTI_DDP_DDP_H

#include "base/base.h"
#include <tutti/ddp.h>

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

/* A number that all ranks share, and that nothing else of the group has: how many collectives rank 0 had issued. Collective. */
tutti_status tutti__agree_number(tutti_group *group, uint64_t *number_p);

struct tutti__optim_entry; /* nn.h */
/* The hyper-parameters of optimizers, from `first` to `end` of a root's list, in words (optims.c). The caller frees. */
tutti_status tutti__optim_items(const struct tutti__optim_entry *first,
                                const struct tutti__optim_entry *end, tutti__item **items_p,
                                size_t *n_p);
/* Collective. MISMATCH, the same on every rank, names hyper-parameter, ranks and values. */
tutti_status tutti__agree_on_items(tutti_group *group, const tutti__item *items, size_t n);
tutti_status tutti__agree_on_optim(tutti_group *group, const tutti_optim *optim);

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
/* Of a sparse gradient: a byte a row, 1 where it may be other than zero; after a step, where it may on any rank. NULL of
 * a dense one. What is written there holds for the next tutti__reducer_ready_touched. */
unsigned char *tutti__reducer_touched(tutti_reducer *reducer, size_t i);
tutti_status tutti__reducer_ready_touched(tutti_reducer *reducer, size_t i);
/* The step has failed for another reason, with the thread's message: nothing more is sent, finish reports it. */
void tutti__reducer_fail(tutti_reducer *reducer, tutti_status status);

/* ---- DDP over a module ------------------------------------------------------------------------------------------------
 *     replicate.c   the same model everywhere: compared, copied from rank 0; buffers
 *     uses.c        which parameters a loss uses, and what is said about those that it does not
 *     ddp.c         buckets in the first backward, and listening to the tape */

typedef enum tutti__role {
    TUTTI__AVERAGED,
    TUTTI__FROZEN, /* did not require a gradient when DDP was made */
    TUTTI__IGNORED /* each rank's own */
} tutti__role;

/* How a parameter got its share of the gradient since the last synchronised backward. */
typedef enum tutti__use {
    TUTTI__UNUSED,
    TUTTI__USED_PAUSED, /* in an earlier backward, while paused */
    TUTTI__USED         /* in this one */
} tutti__use;

typedef struct tutti__ddp_clock {
    uint64_t step_ns, backward_ns; /* of this step: when forward and backward began */
    uint64_t steps;                /* averaged */
    tutti_ddp_times last, sum;
} tutti__ddp_clock;

struct tutti_ddp {
    tutti_module *module;
    tutti_group *group;
    tutti_ddp_opts opts; /* with the defaults; its lists are DDP's own or NULL */
    tutti__bucket_limits limits;
    tutti_comm_hook hook; /* until the reducer is there */
    size_t n;
    tutti_tensor **parameters; /* creation order: place i has parameter->index i */
    tutti__role *roles;
    tutti__use *uses;
    size_t n_buffers;
    tutti_tensor **buffers; /* that are not ignored */
    unsigned char *packed;  /* these buffers, one after the other, in the group's memory */
    size_t packed_bytes;
    tutti_reducer *reducer;
    bool paused, in_step, listening;
    bool all_know; /* this backward's failure is the same on all ranks, and has been told */
    bool moved;    /* the module's gradients lie in the reducer's block */
    uint64_t
        buffers_round; /* the context's, when buffers were made the same everywhere; 0: a step has computed since */
    int source; /* whose buffers and order count: rank 0's, in a join the lowest active rank's */
    tutti_join *join;        /* NULL: none */
    int present;             /* in a join that divides by it: ranks that are active; else 0 */
    uint64_t number;         /* that this DDP has on all ranks */
    uint64_t training_steps; /* begun, paused ones too, since it was made or a join ended */
    uint64_t begun;          /* steps that were not paused, for check_replicas */
    tutti__ddp_clock clock;
    bool partial;   /* some ranks have joined */
    bool shadowing; /* this backward is others': nothing of it is from here */
};

/* Collective: checks that all ranks have the same model and options, and copies rank 0's state. */
tutti_status tutti__ddp_replicate(tutti_ddp *ddp, const tutti_ddp_opts *opts);
/* Whether the step ahead may leave parameters out. */
static inline bool tutti__ddp_may_skip(const tutti_ddp *ddp)
{
    return ddp->opts.find_unused || ddp->opts.static_graph;
}
/* This module's place of a parameter that is averaged; false for another module's on the same context. */
bool tutti__ddp_find(const tutti_ddp *ddp, const tutti_tensor *t, size_t *i_p);
/* Which parameters have a part in the gradient that the backward ahead will finish. */
void tutti__ddp_note_uses(tutti_ddp *ddp, tutti_tensor *const *order, size_t n_order);
/* STATE, naming them, for parameters that were frozen or freed since DDP was made. */
tutti_status tutti__ddp_check_roles(const tutti_ddp *ddp);
/* STATE, naming them, for parameters that the loss does not use: on this rank, and with all ranks together (then all say
 * the same). */
tutti_status tutti__ddp_check_uses(const tutti_ddp *ddp);
tutti_status tutti__ddp_check_uses_together(const tutti_ddp *ddp);

/* An averaged backward is done: takes its times (stats.c). */
void tutti__ddp_clock_end(tutti_ddp *ddp, uint64_t backward_end_ns, uint64_t end_ns);
void tutti__ddp_log_buckets(const tutti_ddp *ddp);

/* ---- Join (join.c) ---------------------------------------------------------------------------------------------------- */

typedef enum tutti__join_kind {
    TUTTI__JOINED, /* has no more inputs */
    TUTTI__JOIN_STEP,
    TUTTI__JOIN_BACKWARD,
    TUTTI__JOIN_CLIP,
    TUTTI__JOIN_UPDATE
} tutti__join_kind;

/* In a join (ddp->join): what this rank does next, before its collectives. STATE, known to all, where a rank has run out
 * and nobody may go on. optim of an update. */
tutti_status tutti__join_announce(tutti_ddp *ddp, tutti__join_kind kind, const void *optim,
                                  double value);
/* The collectives of a backward, with zeros. */
tutti_status tutti__ddp_shadow_backward(tutti_ddp *ddp);
/* Whether a training step begins with a broadcast of buffers. */
bool tutti__ddp_sends_buffers(const tutti_ddp *ddp);
/* Copies ddp->source's parameters and buffers to all. Collective. */
tutti_status tutti__ddp_copy(tutti_ddp *ddp);

/* For the next step: nothing is from here (gradients that are brought must be zero), nor from some other rank; means are
 * over `divisor` ranks (0: all). */
void tutti__reducer_set_join(tutti_reducer *reducer, bool shadow, bool partial, int divisor);
/* Which step the next one is, as all ranks count: calls of backward that do not correspond differ in it. 0: the reducer's own
 * count will do. */
void tutti__reducer_set_common_step(tutti_reducer *reducer, uint64_t step);
/* Gradient i is zeros, and this rank does not use it. */
void tutti__reducer_bring_zeros(tutti_reducer *reducer, size_t i);

#endif
