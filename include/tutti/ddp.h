/* ddp.h -- distributed data parallelism: gradients averaged in buckets while backward still runs.
 * SPDX-License-Identifier: MIT
 *
 * Threads: the module's context's thread calls; reductions and hooks run on the group's. Collective calls return the
 * group's errors too (group.h). */
#ifndef TUTTI_DDP_H
#define TUTTI_DDP_H

#include <tutti/optim.h>
#include <tutti/elastic.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- DDP over a module ------------------------------------------------------------------------------- */

typedef struct tutti_ddp tutti_ddp;

/* Zero means default. */
typedef struct tutti_ddp_opts {
    double bucket_mb, first_bucket_mb; /* as in tutti_reducer_opts, whatever else is set */
    const double *bucket_mb_list;      /* as in tutti_reducer_opts */
    size_t n_bucket_mb_list;
    bool find_unused;  /* the loss need not use every parameter on every rank */
    bool static_graph; /* nor here, but in every step it uses those of the first */
    bool keep_buffers; /* do not broadcast rank 0's buffers at the start of each training step */
    /* Instead of that broadcast: makes the buffers of all ranks agree in its own way, an average say. */
    tutti_status (*buffer_hook)(void *arg, tutti_group *group, tutti_tensor *const *buffers,
                                size_t n);
    void *buffer_hook_arg;
    /* Full names of parameters and buffers that are each rank's own: neither copied from rank 0 nor averaged nor compared. */
    const char *const *ignored;
    size_t n_ignored;
    int check_replicas; /* every so many steps; 0: TUTTI_CHECK_REPLICAS, or never; -1: never */
    tutti_nonfinite nonfinite;
    /* As in tutti_reducer_opts, with the calls below. UNSUPPORTED, by name, with what is not the same on any number of ranks:
     * keep_buffers, a buffer_hook, ignored, a communication hook, sparse gradients, batch norm over all ranks, Join. */
    int shards, wire_bits;
    size_t n_counters;
    uint64_t reserved[2]; /* zero */
} tutti_ddp_opts;

/* Checks that all ranks have the same parameters (number, names, shapes, dtypes, order, which are frozen; one message
 * for all ranks if not), copies rank 0's parameters and buffers to all, and listens to the module's tape: from then on
 * tutti_backward returns averaged gradients. Buckets are laid out in the first backward, in the order in which its
 * gradients get ready (rank 0's), so that communication overlaps from the first step. Forward is not wrapped: there is
 * no prefix in names.
 * A parameter that the loss does not use is an error in that step, before any update, with its name and rank. With
 * find_unused or static_graph, one that no rank uses has no gradient after backward, and optimizers leave it alone; one
 * that some ranks use gets the mean over all, to which the others bring zeros.
 * A parameter that is frozen now takes no part; freezing or thawing later is an error in the next step.
 * The context draws dropout as the shard of this rank, unless its shard was chosen (tutti_ctx_opts, tutti_ctx_set_shard).
 * Collective: what is wrong on one rank (a NULL module, an option) is said by all, "rank 2: ...", and the group lives.
 * Borrows module and group until tutti_ddp_free. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ddp_new(tutti_ddp **ddp_p, tutti_module *module,
                                                     tutti_group *group,
                                                     const tutti_ddp_opts *opts);
/* The module gets gradient memory of its own again, gradients kept (if there is no memory: dropped, with a warning in the
 * log, and the next backward tries again). NULL is fine. */
TUTTI_API void tutti_ddp_free(tutti_ddp *ddp);
/* Copies rank 0's buffers to all ranks. Training steps do it by themselves in tutti_step_begin (unless keep_buffers, or
 * paused); evaluation steps send nothing, so that some ranks may evaluate alone: call this before evaluating. Collective. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ddp_broadcast_buffers(tutti_ddp *ddp);
/* no_sync: backward between pause and resume only accumulates; the first one after resume averages the sum. */
TUTTI_API void tutti_ddp_pause(tutti_ddp *ddp);
TUTTI_API void tutti_ddp_resume(tutti_ddp *ddp);
/* A communication hook, before the first backward; as tutti_reducer_set_hook. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ddp_set_hook(tutti_ddp *ddp,
                                                          const tutti_comm_hook *hook);
/* Compares a digest of all parameters, of the hyper-parameters of all optimizers over the module, and, directly after their
 * broadcast, of buffers (between broadcasts they are each rank's own). MISMATCH, with the same sentence on all ranks, names
 * a hyper-parameter with two ranks' values; else the ranks that differ from the majority, or of two ranks both digests,
 * and the first parameter that differs. Collective; opts.check_replicas does it at the start of every so-many-th averaged
 * step. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ddp_check_replicas(tutti_ddp *ddp);

/* ---- Logical shards: a step that does not depend on the number of ranks (opts.shards) -----------------------
 *     tutti_ddp_begin_step(ddp);
 *     for each shard of this rank: tutti_ddp_begin_shard(ddp, shard, last); then zero_grad, forward and backward as ever,
 *                                  several with pause and resume
 *     tutti_ddp_finish_step(ddp, &again);
 * The mean over all shards is then in the gradients. Each shard begins with the buffers that the step began with, and at the end
 * they are the mean of what the shards have made of them (integers: plus the mean of the increments; F32 and I64 only). Ranks without a
 * shard call begin and finish. The context counts training steps as each shard does (tutti_ctx_step): it goes back where a shard begins,
 * and at the end has gone on by what one shard ran, on all ranks alike; to begin with it is the program's to set, like the
 * ranges. With find_unused (or static_graph, which is the same here) a shard may leave parameters out.
 * tutti_ddp_times is then of all shards of a step together. With a group of NULL tutti_ddp_new sends nothing; tutti_ddp_regroup does what it would have. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ddp_begin_step(tutti_ddp *ddp);
/* Dropout is that of this shard from here on. last: as in tutti_reducer_begin_shard. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ddp_begin_shard(tutti_ddp *ddp, int shard, bool last);
/* *again_p: as tutti_reducer_again; buffers are then as at the beginning, as they are where it fails. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ddp_finish_step(tutti_ddp *ddp, bool *again_p);
/* As tutti_reducer_regroup; also forgets the step at hand. Compares the models, and copies neither parameters nor buffers. With ZeRO
 * what optimizers have in shares is dropped, and they are as before their first step: to keep it, consolidate on a rank that stays, and
 * write it (tutti_optim_state_write, tutti_optim_set_updates) on all in the new group. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ddp_regroup(tutti_ddp *ddp, tutti_group *group);

/* Elastic training of a module (elastic.h): makes DDP for it, with e's shards, and keeps both as a part of the state: parameters,
 * buffers, ranges. *ddp_p, which may be NULL, is e's. opts NULL: defaults; its shards are e's. ARG as tutti_ddp_new. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_elastic_keep_module(tutti_elastic *e,
                                                                 tutti_module *module,
                                                                 const tutti_ddp_opts *opts,
                                                                 tutti_ddp **ddp_p);
/* The optimizer's state and hyper-parameters that change (learning rate, step count); borrowed. After its module. With ZeRO (made for
 * keep_module's DDP) the state is whole on all while a group is formed, and in shares from its first step on: where ranks join or leave,
 * it is brought together before; where one dies, its share is lost, and with it the state of all (tutti_elastic_has_lost_all). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_elastic_keep_optim(tutti_elastic *e,
                                                                tutti_optim *optim);

/* What DDP is and has done. Times of one step: forward from the beginning of the step to its backward; backward's
 * computation; comm the sum of buckets' reductions; exposed what backward waited for them at its end; overlap what of
 * comm ran beside backward. */
typedef struct tutti_ddp_times {
    double forward_ms, backward_ms, comm_ms, exposed_ms, overlap_ms;
} tutti_ddp_times;

typedef struct tutti_ddp_stats {
    int rank, world_size;
    const char *transport; /* tutti_group_transport_name */
    const char *hook;      /* "all_reduce" without one */
    double first_bucket_mb, bucket_mb;
    bool find_unused, static_graph, broadcast_buffers;
    size_t n_parameters, parameter_bytes; /* that are averaged */
    size_t n_buffers, buffer_bytes;       /* that are broadcast */
    size_t n_buckets;                     /* 0 before the first backward; tutti_reducer_bucket */
    uint64_t steps;                       /* averaged backwards */
    tutti_ddp_times last, mean;           /* of them */
    tutti_traffic traffic;
    uint64_t nonfinite_steps;        /* in which this rank had NaN or infinities */
    const char *nonfinite_parameter; /* in the last of them, the first in backward; NULL: none */
    uint64_t reserved[4];            /* zero */
} tutti_ddp_stats;
TUTTI_API tutti_ddp_stats tutti_ddp_get_stats(const tutti_ddp *ddp);

/* The reducer beneath; NULL before the first backward. */
TUTTI_API tutti_reducer *tutti_ddp_reducer(tutti_ddp *ddp);

/* ---- Beyond gradients ---------------------------------------------------------------------------------- */

/* The group as operations and the scaler see it. Good as long as the group is; its calls are collective. */
TUTTI_API tutti_peers tutti_group_peers(tutti_group *group);
/* SyncBatchNorm: every batch norm in the module, at any depth, normalises over the batches of all ranks in training, and
 * its running statistics are then the same bits everywhere; evaluation sends nothing. Names in the state dict stay. Its
 * small collectives (2C + 1 floats forward, 2C backward a layer) wait for the buckets that are under way in the same
 * group, and all ranks must run the same graph. NULL converts back. Borrows the group. */
TUTTI_API void tutti_convert_sync_batch_norm(tutti_module *module, tutti_group *group);

/* ---- ZeRO-1: the optimizer's state in shares ------------------------------------------------------------
 *     tutti_ddp_new(&ddp, ...); tutti_zero_new(&zero, ddp); tutti_sgd_new(&optim, ...);
 * and the same loop as ever. Backward reduces each bucket to the ranks' shares, tutti_optim_step updates this rank's and
 * brings the parameters together again, bucket by bucket. Each rank holds 1 / size of the state; the bits of the
 * parameters are those of training without ZeRO (with clip_grad_norm, whose norm is summed in another order: to
 * rounding). What changes:
 *   - after backward, tutti_tensor_grad is the mean only in this rank's shares; clip_grad_norm and the scaler know that;
 *   - tutti_optim_step and tutti_clip_grad_norm are collective; hyper-parameters that differ between ranks are MISMATCH in
 *     tutti_optim_step, before any update, with names and values;
 *   - an averaged backward that adds to a gradient without zero_grad, of the root or of a child, since the last one is an
 *     error (pause and resume accumulate as ever);
 *   - there is no room for another communication hook.
 * With logical shards (tutti_ddp_opts.shards) gradients are reduced in full, as without ZeRO, and the first three do not hold but for
 * tutti_optim_step: tutti_tensor_grad and clip_grad_norm are those of training without ZeRO, to the bit. */
typedef struct tutti_zero tutti_zero;

/* Before the first backward, for every optimizer of ddp's module. Collective, and ends on all ranks as tutti_ddp_new does; with
 * logical shards it asks no other rank. Borrows ddp: free the optimizers, then ZeRO, then DDP. The module must live as long. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_zero_new(tutti_zero **zero_p, tutti_ddp *ddp);
TUTTI_API void tutti_zero_free(tutti_zero *zero);
/* Gathers all of the optimizer's state on rank `root`, where tutti_optim_state_read gives it until the next step. The
 * other ranks need room for one bucket meanwhile. Collective. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_zero_consolidate(tutti_zero *zero, tutti_optim *optim,
                                                              int root);

/* ---- Join: ranks with different numbers of batches --------------------------------------------------------
 *     tutti_join_begin(&join, &ddp, 1, &opts);
 *     while (this rank has a batch) { step, zero_grad, backward, optimizer as ever }
 *     tutti_join_end(join);      answers for the others' collectives until all have joined
 *     tutti_join_free(join);
 * A rank that has run out of inputs brings zeros to every mean. At the end all ranks have the model of the last joiner (the
 * largest rank of several), and the state of the optimizers that were given. In between, collectives other than DDP's and
 * ZeRO's (a loss that is reduced for the log, a scaler with peers) find no partner on ranks that have joined. */
typedef struct tutti_join tutti_join;

/* Zero means default. */
typedef struct tutti_join_opts {
    bool divide_by_present; /* means are over the ranks that are left; default: over all ranks */
    /* When one rank has run out, the next training step fails on all ranks (STATE, and tutti_join_exhausted), and so does
     * that rank's tutti_join_end; the group lives. Needed with batch norm over all ranks. */
    bool throw_on_early_termination;
    /* To be left with the last joiner's state; with ZeRO, to be stepped for shares. */
    tutti_optim *const *optims;
    size_t n_optims;
    uint64_t reserved[4]; /* zero */
} tutti_join_opts;

/* Collective. ARG: no DDP, DDPs of different groups, batch norm over all ranks without throw_on_early_termination, ZeRO
 * without its optimizers, a buffer_hook; it ends on all ranks as tutti_ddp_new does, but with no DDP, which names no group.
 * Borrows the DDPs and optimizers. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_join_begin(tutti_join **join_p, tutti_ddp *const *ddps,
                                                        size_t n, const tutti_join_opts *opts);
/* This rank has no more inputs: waits for the others, and does its part in what they do. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_join_end(tutti_join *join);
/* Ended because some rank ran out, by throw_on_early_termination. */
TUTTI_API bool tutti_join_exhausted(const tutti_join *join);
/* Without tutti_join_end, on the way out after an error, the group is aborted, so that nobody waits. NULL is fine. */
TUTTI_API void tutti_join_free(tutti_join *join);

#ifdef __cplusplus
}
#endif
#endif
