/* ddp.h -- shared by DDP's files.   SPDX-License-Identifier: MIT */
#ifndef TUTTI_DDP_DDP_H
#define TUTTI_DDP_DDP_H

#include "base/base.h"
#include "reducer/reducer.h"
#include "tensor/tensor.h"
#include <tutti/ddp.h>

/* ---- Hyper-parameters (optims.c) -------------------------------------------------------------------------------------- */

struct tutti__optim_entry; /* nn.h */
/* The hyper-parameters of optimizers, from `first` to `end` of a root's list, as text. The caller frees them. */
tutti_status tutti__optim_items(const struct tutti__optim_entry *first,
                                const struct tutti__optim_entry *end, tutti__item **items_p,
                                size_t *n_p);
/* Collective. MISMATCH, the same on every rank, with hyper-parameter, ranks and values. */
tutti_status tutti__agree_on_items(tutti_group *group, const tutti__item *items, size_t n);
tutti_status tutti__agree_on_optim(tutti_group *group, const tutti_optim *optim);

/* ---- DDP over a module ------------------------------------------------------------------------------------------------
 *     replicate.c       the same model on all ranks: compared, copied from rank 0; buffers
 *     uses.c            which parameters a loss uses, and the errors about those that it does not
 *     ddp.c             buckets in the first backward, and listening to the tape
 *     late.c            tables that are tied to a head
 *     logical_shards.c  steps over logical shards, whichever rank computes them */

typedef enum tutti__role {
    TUTTI__AVERAGED,
    TUTTI__FROZEN, /* did not require a gradient when DDP was made */
    TUTTI__IGNORED /* each rank has its own */
} tutti__role;

/* Whether and when a parameter got a gradient since the last averaged backward. */
typedef enum tutti__use {
    TUTTI__UNUSED,
    TUTTI__USED_PAUSED, /* in an earlier backward, while paused */
    TUTTI__USED         /* in this one */
} tutti__use;

typedef struct tutti__ddp_shards tutti__ddp_shards; /* logical_shards.c */
typedef struct tutti__flips tutti__flips;           /* flips.c */

typedef struct tutti__ddp_clock {
    uint64_t step_ns, backward_ns; /* of this step: when forward and backward began */
    uint64_t steps;                /* averaged */
    tutti_ddp_times last, sum;
} tutti__ddp_clock;

struct tutti_ddp {
    tutti_module *module;
    tutti_group *group;  /* NULL: none at present (with shards) */
    tutti_ddp_opts opts; /* defaults filled in; its lists are copies or NULL */
    tutti__bucket_limits limits;
    tutti_comm_hook hook; /* until there is a reducer */
    size_t n;
    tutti_tensor **parameters; /* in creation order: element i has parameter->index i */
    tutti__role *roles;
    tutti__use *uses;
    size_t n_buffers;
    tutti_tensor **buffers; /* without ignored ones */
    unsigned char *packed;  /* these buffers back to back, in the group's memory */
    size_t packed_bytes;
    tutti_reducer *reducer;
    /* By parameter: its gradient may be ready before some rows of it (late_rows.c); and it was, in this step. NULL:
     * none */
    bool *late, *rows_left;
    unsigned char *row_marks; /* room for the longest of them */
    tutti__late_rows late_rows;
    bool plain_means; /* the hook is ZeRO's, in F32: its means are those of all_reduce */
    bool paused, in_step, listening;
    bool all_know; /* this backward's failure is the same on all ranks: no need to tell peers */
    bool moved;    /* the module's gradients are in the reducer's block */
    /* the context's, when buffers were last made the same; 0: a step has changed them since */
    uint64_t buffers_round;
    int source; /* rank whose buffers and order are used: 0, in a join the lowest active one */
    tutti_join *join;        /* NULL: none */
    int present;             /* in a join that divides by it: ranks that are active; else 0 */
    uint64_t number;         /* this DDP's number, the same on all ranks */
    uint64_t training_steps; /* begun, including paused ones, since construction or the last join */
    uint64_t begun;          /* steps that were not paused, for check_replicas */
    tutti__ddp_clock clock;
    tutti__ddp_shards *shards; /* NULL: means are over ranks */
    bool partial;              /* some ranks have joined */
    bool shadowing;            /* this rank has joined, and brings zeros to this backward */
    tutti_zero *zero;          /* NULL: opts.zero is 0 */
    tutti__flips *flips;       /* NULL: none are injected */
};

/* The stream on which the model is computed. */
static inline tutti_stream *tutti__ddp_stream(const tutti_ddp *ddp)
{
    return tutti_ctx_stream(tutti_module_ctx(ddp->module));
}

/* Collective: checks that all ranks have the same model and options, and copies rank 0's state. `local`: see
 * tutti__agree_after. Without a group only the local part. */
tutti_status tutti__ddp_replicate(tutti_ddp *ddp, const tutti_ddp_opts *opts, tutti_status local);
/* Whether the next step may leave parameters out. */
static inline bool tutti__ddp_may_skip(const tutti_ddp *ddp)
{
    return ddp->opts.find_unused || ddp->opts.static_graph;
}
/* The index of an averaged parameter in this module; false for parameters of other modules on the context. */
bool tutti__ddp_find(const tutti_ddp *ddp, const tutti_tensor *t, size_t *i_p);
/* Notes which parameters have a gradient in the step that the coming backward ends. */
void tutti__ddp_note_uses(tutti_ddp *ddp, tutti_tensor *const *order, size_t n_order);
/* STATE, naming them, for parameters that were frozen or unfrozen since DDP was made. */
tutti_status tutti__ddp_check_roles(const tutti_ddp *ddp);
/* STATE, naming them, for parameters that the loss does not use: on this rank; the second: on all ranks, collectively (all return
 * the same message). */
tutti_status tutti__ddp_check_uses(const tutti_ddp *ddp);
tutti_status tutti__ddp_check_uses_together(const tutti_ddp *ddp);

/* ---- Tables that are tied to a head (late.c) ---- */

/* In a backward, from its beginning: whether a parameter's gradient can be sent before the rows that embeddings add to it. */
bool tutti__ddp_is_late(const tutti_ddp *ddp, const tutti_tensor *t);
/* Before any backward: whether it will be, as far as its names tell. */
bool tutti__ddp_may_be_late(const tutti_ddp *ddp, const tutti_tensor *t);
/* Takes the flags that all ranks have agreed on, by parameter. */
tutti_status tutti__ddp_take_late(tutti_ddp *ddp, const bool *late);
/* The tape's gradient of a parameter is final but for rows to which embeddings add. */
void tutti__ddp_ready_but_rows(void *self, tutti_tensor *parameter);

/* Records the times of an averaged backward (stats.c). */
void tutti__ddp_clock_end(tutti_ddp *ddp, uint64_t backward_end_ns, uint64_t end_ns);
/* Seconds that the last averaged backward waited for reductions at its end. */
double tutti__ddp_exposed_seconds(const tutti_ddp *ddp);
void tutti__ddp_log_buckets(const tutti_ddp *ddp);

/* The rest of a constructor: checks that all ranks have the same model and options. Collective. */
tutti_status tutti__ddp_enter(tutti_ddp *ddp, tutti_status local);
/* If opts.check_replicas is due in this step. Collective. */
tutti_status tutti__ddp_check_replicas_now(tutti_ddp *ddp);
/* Moves the module's parameters into the given order and its gradients into the reducer's block, which begins with the first of
 * them; gradients accumulated while paused are moved along. */
tutti_status tutti__ddp_move_module(tutti_ddp *ddp, const size_t *order);
/* Likewise into reserved memory, with that order. */
tutti_status tutti__ddp_move_reserved(tutti_ddp *ddp, const size_t *order, const void ***from_p);
/* The same for ZeRO-3, whose parameters get reserved memory. Before that makes the reducer, without a backward: the last parameter made is
 * taken to be ready first. Collective. from_p: as tutti__flat_reserve. */
tutti_status tutti__ddp_reserve_module(tutti_ddp *ddp, const void ***from_p);

/* ---- Shards (logical_shards.c) ---------------------------------------------------------------------------------------- */

/* UNSUPPORTED, naming the option that cannot be combined with shards; ARG. */
tutti_status tutti__ddp_check_shards(const tutti_ddp *ddp, const tutti_ddp_opts *opts);
/* Makes the reducer, without a group, and memory for buffers. */
tutti_status tutti__ddp_shards_new(tutti_ddp *ddp);
void tutti__ddp_shards_free(tutti_ddp *ddp);
/* With ZeRO-3: the module into reserved memory. */
tutti_status tutti__ddp_shards_reserve(tutti_ddp *ddp, const void ***from_p);
/* At the beginning of a training step; in its backward, unless paused; to bring the shard's buffers; at its end. */
tutti_status tutti__ddp_shard_step(tutti_ddp *ddp);
void tutti__ddp_shard_backward(tutti_ddp *ddp);
tutti_status tutti__ddp_bring_buffers(tutti_ddp *ddp);
void tutti__ddp_shard_clock(tutti_ddp *ddp);
/* Within a step, when buffers belong to a shard. */
bool tutti__ddp_shards_open(const tutti_ddp *ddp);
/* Buffer i as it was when the open step began. */
void *tutti__ddp_saved_buffer(const tutti_ddp *ddp, size_t i);
/* As tutti__reducer_drop. */
tutti_status tutti__ddp_drop_step(tutti_ddp *ddp);
/* After a finished step, before the next: resets buffers and the context to the beginning of that step. */
tutti_status tutti__ddp_take_back(tutti_ddp *ddp);

/* ---- ZeRO (zero.c, zero_reduce.c, zero_state.c) -------------------------------------------------------------------------------------- */

/* From stage 2 on: so many buckets are whole while they are being reduced, besides those that backward writes. */
#define TUTTI__ZERO_IN_FLIGHT 2
/* UNSUPPORTED: opts.zero gives memory back, which the device or the group's transport cannot. */
tutti_status tutti__zero_check(const tutti_ddp *ddp);
/* Makes ddp->zero, of opts.zero. Local. */
tutti_status tutti__zero_open(tutti_ddp *ddp);
void tutti__zero_free(tutti_ddp *ddp);
/* With opts.zero_ranks: makes the group of the ranks that divide among them. Collective, when ranks have agreed. */
tutti_status tutti__zero_part(const tutti_ddp *ddp);
/* That group; NULL: all ranks divide. */
tutti_group *tutti__zero_parted(const tutti_ddp *ddp);
/* Stage 3: each rank has a share of the parameters too. Then, when ranks have agreed: makes the reducer and lays out the shares, with
 * initial values. Collective. */
bool tutti__zero_has_parameters(const tutti_ddp *ddp);
tutti_status tutti__zero_lay_out(tutti_ddp *ddp);
/* ddp->zero may be NULL in these. A backward has begun, or (averaged) has ended with means. */
void tutti__zero_backward(const tutti_ddp *ddp, bool averaged);
/* With logical shards, when the reducer has begun a step: tells it what is divided. */
tutti_status tutti__zero_begin_step(const tutti_ddp *ddp);
/* With logical shards. Collective: gathers the state of all optimizers on every rank; the next step shards it again. */
tutti_status tutti__zero_gather(const tutti_ddp *ddp);
/* The same of averages, if ranks have shares of them. Before the group changes. */
tutti_status tutti__zero_gather_average(tutti_ema *ema);
/* Changes to another group, or NULL. Sharded state that was not gathered is dropped, unless it is kept; true if any was dropped. */
bool tutti__zero_regroup(const tutti_ddp *ddp, tutti_group *group);
/* Then, in a group: what can fail of that. */
tutti_status tutti__zero_enter(const tutti_ddp *ddp);
/* With copies: from now on shares are kept from group to group, and tutti__zero_recover is called in each. */
void tutti__zero_keep(const tutti_ddp *ddp);
/* A step has begun in this group, and the update that follows it has changed nothing, because the group died before. */
bool tutti__zero_is_unchanged(const tutti_ddp *ddp);
/* The last update's parameters did not all arrive; the next group brings them. */
bool tutti__zero_is_incomplete(const tutti_ddp *ddp);
void tutti__zero_drop(const tutti_ddp *ddp);
/* Collective, in a new group: all that kept shares get all of the state and the parameters, from shares and copies of the last group.
 * step: that of this rank's state, -1: it has none. *forgets_p: this rank must get the state from rank 0. PEER, on all ranks: a share
 * is lost, and all forget. */
tutti_status tutti__zero_recover(const tutti_ddp *ddp, int64_t generation, int64_t step,
                                 bool *forgets_p);

/* ---- Join (join.c) ---------------------------------------------------------------------------------------------------- */

typedef enum tutti__join_kind {
    TUTTI__JOINED, /* has no more inputs */
    TUTTI__JOIN_STEP,
    TUTTI__JOIN_BACKWARD,
    TUTTI__JOIN_CLIP,
    TUTTI__JOIN_UPDATE
} tutti__join_kind;

/* In a join (ddp->join): announces what this rank does next, before its collectives. STATE on all ranks if one has run out of
 * inputs and the join must end. optim: of an update. */
tutti_status tutti__join_announce(tutti_ddp *ddp, tutti__join_kind kind, const void *optim,
                                  double value);
/* Takes part in the collectives of a backward with zeros. */
tutti_status tutti__ddp_shadow_backward(tutti_ddp *ddp);
/* Averages the gradients that backwards have added up while it was paused; then it is not paused. */
tutti_status tutti__ddp_average(tutti_ddp *ddp);
/* Whether a training step begins with a broadcast of buffers. */
bool tutti__ddp_sends_buffers(const tutti_ddp *ddp);
/* Copies ddp->source's parameters and buffers to all. Collective. */
tutti_status tutti__ddp_copy(tutti_ddp *ddp);

#endif
