/* ddp.h -- the inside of DDP.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DDP_DDP_H
#define TUTTI_DDP_DDP_H

#include "base/base.h"
#include "reducer/reducer.h"
#include <tutti/ddp.h>

/* ---- Hyper-parameters (optims.c) -------------------------------------------------------------------------------------- */

struct tutti__optim_entry; /* nn.h */
/* The hyper-parameters of optimizers, from `first` to `end` of a root's list, in words. The caller frees. */
tutti_status tutti__optim_items(const struct tutti__optim_entry *first,
                                const struct tutti__optim_entry *end, tutti__item **items_p,
                                size_t *n_p);
/* Collective. MISMATCH, the same on every rank, names hyper-parameter, ranks and values. */
tutti_status tutti__agree_on_items(tutti_group *group, const tutti__item *items, size_t n);
tutti_status tutti__agree_on_optim(tutti_group *group, const tutti_optim *optim);

/* ---- DDP over a module ------------------------------------------------------------------------------------------------
 *     replicate.c   the same model everywhere: compared, copied from rank 0; buffers
 *     uses.c        which parameters a loss uses, and what is said about those that it does not
 *     ddp.c         buckets in the first backward, and listening to the tape
 *     shards.c      steps over logical shards, whoever computes them */

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

typedef struct tutti__ddp_shards tutti__ddp_shards; /* shards.c */

typedef struct tutti__ddp_clock {
    uint64_t step_ns, backward_ns; /* of this step: when forward and backward began */
    uint64_t steps;                /* averaged */
    tutti_ddp_times last, sum;
} tutti__ddp_clock;

struct tutti_ddp {
    tutti_module *module;
    tutti_group *group;  /* NULL: none now, with shards */
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
    tutti__ddp_shards *shards; /* NULL: means are over ranks */
    bool partial;              /* some ranks have joined */
    bool shadowing;            /* this backward is others': nothing of it is from here */
    tutti_zero *zero;          /* with shards; NULL: none */
};

/* On which the model lies and is computed. */
static inline tutti_stream *tutti__ddp_stream(const tutti_ddp *ddp)
{
    return tutti_ctx_stream(tutti_module_ctx(ddp->module));
}

/* Collective: checks that all ranks have the same model and options, and copies rank 0's state. `local`: see
 * tutti__agree_after. Without a group, what this rank does for itself. */
tutti_status tutti__ddp_replicate(tutti_ddp *ddp, const tutti_ddp_opts *opts, tutti_status local);
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
/* Seconds that the last averaged backward waited for reductions at its end. */
double tutti__ddp_exposed_seconds(const tutti_ddp *ddp);
void tutti__ddp_log_buckets(const tutti_ddp *ddp);

/* The rest of a constructor: checks that all ranks have the same model and options. Collective. */
tutti_status tutti__ddp_enter(tutti_ddp *ddp, tutti_status local);
/* If this step's turn has come. Collective. */
tutti_status tutti__ddp_check_replicas_now(tutti_ddp *ddp);
/* Moves the module's parameters into the order given and its gradients into the reducer's block, where the first of them is;
 * what backward has accumulated while paused moves along. */
tutti_status tutti__ddp_move_module(tutti_ddp *ddp, const size_t *order);

/* ---- Shards (shards.c) ------------------------------------------------------------------------------------------------ */

/* UNSUPPORTED, naming the option that does not go with shards; ARG. */
tutti_status tutti__ddp_check_shards(const tutti_ddp *ddp, const tutti_ddp_opts *opts);
/* The reducer, in no group, and room for buffers. */
tutti_status tutti__ddp_shards_new(tutti_ddp *ddp);
void tutti__ddp_shards_free(tutti_ddp *ddp);
/* A training step begins; its backward that is not paused; what the shard has made of buffers; its end. */
tutti_status tutti__ddp_shard_step(tutti_ddp *ddp);
void tutti__ddp_shard_backward(tutti_ddp *ddp);
tutti_status tutti__ddp_bring_buffers(tutti_ddp *ddp);
void tutti__ddp_shard_clock(tutti_ddp *ddp);
/* In a step: buffers are a shard's own. */
bool tutti__ddp_shards_open(const tutti_ddp *ddp);
/* After a finished step, before the next: buffers and the context are again as that began. */
tutti_status tutti__ddp_take_back(tutti_ddp *ddp);

/* ---- ZeRO with shards (zero.c) ---------------------------------------------------------------------------------------- */

/* Of ddp->zero, which may be NULL. Collective: the state of all optimizers is brought together on every rank, and in shares again with
 * the next step. */
tutti_status tutti__zero_gather(const tutti_ddp *ddp);
/* Leaves the group, NULL or new, that it was in: shares of state that were not brought together are dropped. True if there were any. */
bool tutti__zero_regroup(const tutti_ddp *ddp, tutti_group *group);
/* DDP goes. */
void tutti__zero_leave_ddp(const tutti_ddp *ddp);

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

#endif
