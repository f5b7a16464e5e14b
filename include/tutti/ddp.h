/* ddp.h -- distributed data parallelism: gradients averaged in buckets while backward still runs.
 * SPDX-License-Identifier: MIT
 *
 * Threads: the thread of the module's context calls; reductions and hooks run on the group's thread. Collective calls also
 * return the group's errors (group.h). */
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
    double bucket_mb, first_bucket_mb; /* as in tutti_reducer_opts */
    const double *bucket_mb_list;      /* as in tutti_reducer_opts */
    size_t n_bucket_mb_list;
    bool find_unused;  /* the loss need not use every parameter on every rank */
    bool static_graph; /* the same, but every step uses the parameters that the first step used */
    bool keep_buffers; /* do not broadcast rank 0's buffers at the start of each training step */
    /* Instead of that broadcast: makes the buffers of all ranks agree in another way, such as by averaging. */
    tutti_status (*buffer_hook)(void *arg, tutti_group *group, tutti_tensor *const *buffers,
                                size_t n);
    void *buffer_hook_arg;
    /* Full names of parameters and buffers that are not copied from rank 0, averaged or compared: each rank has its own. They do not
     * count in tutti_clip_grad_norm's norm, which is the same on all ranks, and are scaled like the others. */
    const char *const *ignored;
    size_t n_ignored;
    int check_replicas; /* interval in steps; 0: TUTTI_CHECK_REPLICAS, or never; -1: never */
    tutti_nonfinite nonfinite;
    /* As in tutti_reducer_opts, with the calls below. UNSUPPORTED together with anything whose result depends on the number of
     * ranks: keep_buffers, a buffer_hook, ignored, a communication hook, sparse gradients, batch norm over all ranks, Join. */
    int shards, wire_bits;
    size_t n_counters;
    int zero;         /* stage of ZeRO, below; 0: none */
    int shard_copies; /* ranks that have each share of the optimizer state: 0 and 1: one, 2: two; below */
    int zero_ranks; /* so many neighbours divide among them what zero shards; 0: all ranks; below */
    bool offload_parameters;  /* zero 3 on a GPU: shares of parameters are in host memory; below */
    tutti_dtype reduce_dtype; /* with zero: TUTTI_BF16 or TUTTI_F16: gradients are sent so; below */
    uint64_t reserved[4];     /* zero */
} tutti_ddp_opts;

/* Checks that all ranks have the same parameters (number, names, shapes, dtypes, order, which are frozen; if not, all ranks
 * return the same message), copies rank 0's parameters and buffers to all, and listens to the module's tape: from then on
 * tutti_backward returns averaged gradients. Buckets are laid out in the first backward, in the order in which rank 0's
 * gradients become ready, so that communication overlaps from the first step. Forward is not wrapped: names get no prefix.
 * A parameter that the loss does not use is an error in that step, before any update, with its name and rank. With
 * find_unused or static_graph, a parameter that no rank uses has no gradient after backward, and optimizers do not change it;
 * one that some ranks use gets the mean over all ranks, where the others contribute zeros.
 * A parameter that is frozen now is not averaged; freezing or unfreezing one later is an error in the next step.
 * Dropout uses the rank as the context's shard, unless a shard was set (tutti_ctx_opts, tutti_ctx_set_shard).
 * Collective: an error of one rank (a NULL module, an option) is returned by all ("rank 2: ..."), and the group stays usable.
 * Borrows module and group until tutti_ddp_free. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ddp_new(tutti_ddp **ddp_p, tutti_module *module,
                                                     tutti_group *group,
                                                     const tutti_ddp_opts *opts);
/* Moves the gradients back to the module's own memory (if there is not enough, they are dropped with a warning in the log,
 * and the next backward tries again). With ZeRO from stage 2 on, whose gradients are this rank's shares, drops them. NULL is fine. */
TUTTI_API void tutti_ddp_free(tutti_ddp *ddp);
/* Copies rank 0's buffers to all ranks. Training steps do this in tutti_step_begin (unless keep_buffers, or paused);
 * evaluation steps send nothing, so that some ranks may evaluate alone: call this before evaluating. Collective. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ddp_broadcast_buffers(tutti_ddp *ddp);
/* no_sync: backward between pause and resume only accumulates; the first one after resume averages the sum. */
TUTTI_API void tutti_ddp_pause(tutti_ddp *ddp);
TUTTI_API void tutti_ddp_resume(tutti_ddp *ddp);
/* A communication hook, before the first backward; as tutti_reducer_set_hook. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ddp_set_hook(tutti_ddp *ddp,
                                                          const tutti_comm_hook *hook);
/* Compares a digest of all parameters, of the hyper-parameters and state of all optimizers over the module (with ZeRO without the
 * state), and, directly after their broadcast, of buffers (between broadcasts ranks' buffers differ). MISMATCH, with the same
 * message on all ranks, names a hyper-parameter with two ranks' values; else the ranks that differ from the majority (of two ranks,
 * both digests), and the first tensor that differs. Collective; with opts.check_replicas K it runs at the start of every K-th averaged step. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ddp_check_replicas(tutti_ddp *ddp);

/* ---- Logical shards: a step that does not depend on the number of ranks (opts.shards) -----------------------
 *     tutti_ddp_begin_step(ddp);
 *     for each shard of this rank: tutti_ddp_begin_shard(ddp, shard, last); then zero_grad, forward and backward as usual
 *                                  (several of them with pause and resume)
 *     tutti_ddp_finish_step(ddp, &again);
 * The gradients then hold the mean over all shards. Each shard starts from the buffers at the start of the step; at its end
 * the buffers are the mean of the shards' results (integers: plus the mean of the increments; F32 and I64 only). Ranks without
 * a shard call begin and finish. The context's count of training steps (tutti_ctx_step) is reset when a shard begins, and after
 * the step it has advanced by the steps of one shard, on all ranks alike; its initial value is the program's to set, like the
 * ranges. With find_unused (or static_graph, which means the same here) a shard may leave parameters out.
 * tutti_ddp_times then covers all shards of a step. With group NULL tutti_ddp_new sends nothing, and tutti_ddp_regroup does its
 * comparison later. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ddp_begin_step(tutti_ddp *ddp);
/* From here on dropout is that of this shard. last: as in tutti_reducer_begin_shard. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ddp_begin_shard(tutti_ddp *ddp, int shard, bool last);
/* *again_p: as tutti_reducer_again; if true, or on failure, buffers are as at the start of the step. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ddp_finish_step(tutti_ddp *ddp, bool *again_p);
/* As tutti_reducer_regroup; also discards the current step. Compares the models, and copies no parameters or buffers. With ZeRO
 * the sharded optimizer state is dropped, and optimizers are as before their first step: to keep it, consolidate it on a rank that
 * stays, and write it (tutti_optim_state_write, tutti_optim_set_updates) on all ranks of the new group. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ddp_regroup(tutti_ddp *ddp, tutti_group *group);

/* Elastic training of a module (elastic.h): makes DDP for it, with e's shards, and keeps both as a part of the state: parameters,
 * buffers, ranges. *ddp_p (ddp_p may be NULL) is owned by e. opts NULL: defaults; its shards are e's. ARG as tutti_ddp_new. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_elastic_keep_module(tutti_elastic *e,
                                                                 tutti_module *module,
                                                                 const tutti_ddp_opts *opts,
                                                                 tutti_ddp **ddp_p);
/* Keeps the optimizer's state and its hyper-parameters that change (learning rate, step count); borrowed. Call it after its
 * module's. With ZeRO (made for keep_module's DDP) every rank has all of the state while a group is formed, and a share from
 * the group's first step on. When ranks join or leave, it is gathered before; when one dies, its share is lost, and with it
 * everybody's state (tutti_elastic_has_lost_all). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_elastic_keep_optim(tutti_elastic *e,
                                                                tutti_optim *optim);
/* Keeps an average of the weights, which may change between finish and commit; borrowed. Call it after its module's. With zero 3 each rank has the
 * averages of its share, as of the optimizer's state, and all call tutti_ema_swap together. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_elastic_keep_ema(tutti_elastic *e, tutti_ema *ema);

/* Options and statistics. Times of one step: forward, from the start of the step to backward; backward, its computation;
 * comm, the sum of buckets' reductions; exposed, how long backward waited for them at its end; overlap, the part of comm
 * that ran during backward. */
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

/* Its reducer; NULL before the first backward. */
TUTTI_API tutti_reducer *tutti_ddp_reducer(tutti_ddp *ddp);

/* ---- Beyond gradients ---------------------------------------------------------------------------------- */

/* The group for operations and the scaler. Valid as long as the group; its calls are collective. */
TUTTI_API tutti_peers tutti_group_peers(tutti_group *group);
/* The same, whose sums are of `parts` parts in one binary tree, so that layers divided among them (tutti_module_parallelize) have the same
 * bits on any number of ranks that divides it: tutti_peers.parts. */
TUTTI_API tutti_peers tutti_group_peers_of_parts(tutti_group *group, int parts);
/* tutti_module_parallelize among the ranks of a group, which is borrowed: of a tutti_mesh's dimension, say. All of them must get the same
 * samples, so DDP works on the group of the other dimension. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_parallelize(tutti_module *root, tutti_group *group,
                                                         const tutti_parallel_rule *rules,
                                                         size_t n);
/* SyncBatchNorm: in training, every batch norm in the module, at any depth, normalises over the batches of all ranks, and
 * its running statistics have the same bits on all; evaluation sends nothing. Names in the state dict stay. Its small
 * collectives (2C + 1 floats forward, 2C backward, per layer) wait for buckets in flight in the same group, and all ranks must
 * run the same graph. NULL converts back. Borrows the group. */
TUTTI_API void tutti_convert_sync_batch_norm(tutti_module *module, tutti_group *group);

/* ---- ZeRO: sharded optimizer state, gradients and parameters (opts.zero) -------------------------------------
 * The same loop as without it, and the bits of the parameters are those of training without, with clip_grad_norm too.
 * Each of the ranks holds 1 / size of
 *   stage 1    the optimizer state: backward reduce-scatters each bucket to the ranks' shares; tutti_optim_step updates this
 *              rank's share and all-gathers the parameters, bucket by bucket;
 *   stage 2    and the gradients: when a bucket is reduced, memory outside of this rank's share serves the next ones. At
 *              most a few buckets are whole at a time, except between pause and resume, which accumulate whole gradients;
 *   stage 3    and the parameters: before an operation reads one, the shares of its bucket are all-gathered, one bucket ahead by
 *              the order of the last step; two or three buckets are whole at a time. With tutti_ctx_opts.defers_parameters no rank
 *              ever has all initial values. With find_unused or static_graph all are gathered at the first operation of a step.
 * Hybrid: with zero_ranks S, a divisor of the group's size, ranks 0 to S - 1 divide all of that among them, and so do S to 2 S - 1, ...: each
 * holds 1 / S, and parameters come from these ranks alone, such as those of a host. Gradients are still the mean over all ranks, with
 * the same bits. UNSUPPORTED with shards.
 * Offload: with offload_parameters, in stage 3 on a GPU, a rank's shares are in pinned memory of the host, where optimizers update them, as
 * after tutti_optim_offload, which they then need not call: the GPU has those of a few buckets, and gradients. There is no tutti_ema.
 * In 16 bits: with reduce_dtype TUTTI_BF16 or TUTTI_F16 each rank's gradients are rounded to that before they are sent; the mean is summed in
 * F32, and rounded once. The bits are those of plain DDP with tutti_comm_hook_bf16 or _fp16. UNSUPPORTED with shards, which have wire_bits.
 * What changes:
 *   - after backward, tutti_tensor_grad is the mean only in this rank's shares, elsewhere undefined; clip_grad_norm and the scaler
 *     handle that;
 *   - tutti_optim_step and tutti_clip_grad_norm are collective; hyper-parameters that differ between ranks are MISMATCH in
 *     tutti_optim_step, before any update, with names and values;
 *   - each averaged backward needs a zero_grad, of the root or of a child, since the previous one, else it is an error (pause
 *     and resume accumulate as usual);
 *   - no communication hook can be set; stages above 1 do not go together with Join or MPI;
 *   - stage 3: all ranks run the same operations on the model, also in evaluation. tutti_tensor_read of a parameter, digests and files
 *     of the model work where tutti_zero_consolidate has gathered it, until the next update or load; tutti_tensor_write
 *     is for all ranks, with the same values. There is no tutti_module_flat and no tutti_ema. After tutti_ddp_free the module cannot compute.
 * With logical shards (opts.shards) stage 1 reduces gradients in full, as without ZeRO, and of the above only tutti_optim_step
 * changes. Stage 2: after tutti_ddp_finish_step the above holds; a scaler needs tutti_group_peers; the sums of a rank's shards take 8 bytes a
 * parameter (wire_bits 32: 4) while it computes more than one. Stage 3: instead of gathers each rank reads a bucket's shares from the others, which
 * need not call anything, so ranks may run different operations, and tutti_tensor_read works on any; all ranks have all parameters until a
 * group's first update, and a rank must not free DDP or leave the group while others read. In elastic training a death
 * then loses a share of the state, and all return to the start or a checkpoint, unless opts.shard_copies is 2: each rank also has the
 * share of the rank before it, 2 / size of the state (and of gradients), and only two neighbours that die together lose a share. Then a module has one
 * optimizer; tutti_optim_step is OK, and the step is to be committed, even if the group dies while parameters are gathered, so nothing
 * may read parameters between commit and the next tutti_elastic_begin; and what is kept must not change between tutti_elastic_finish
 * and tutti_optim_step, since the step may be done again if that fails.
 * Free the optimizers before DDP. */
typedef struct tutti_zero tutti_zero;

/* ddp's; NULL: opts.zero is 0. */
TUTTI_API tutti_zero *tutti_ddp_zero(tutti_ddp *ddp);

/* What this rank has of F32 parameters and their gradients, in bytes, whole pages aside. Between steps, and the most at a time, where
 * gradients are counted without what pause and resume accumulate. Optimizer state: tutti_optim_state_bytes. */
typedef struct tutti_zero_stats {
    int stage;
    size_t parameter_bytes, most_parameter_bytes;
    size_t gradient_bytes;
    uint64_t
        gathered_bytes;   /* of parameters, received from other ranks before operations (stage 3) */
    uint64_t reserved[4]; /* zero */
} tutti_zero_stats;
TUTTI_API tutti_zero_stats tutti_zero_get_stats(const tutti_zero *zero);
/* Gathers all of the optimizer's state on rank `root`, where tutti_optim_state_read returns it until the next step; in stage 3 the
 * parameters too. The other ranks need memory for one bucket meanwhile. Collective. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_zero_consolidate(tutti_zero *zero, tutti_optim *optim,
                                                              int root);

/* ---- Join: ranks with different numbers of batches --------------------------------------------------------
 *     tutti_join_begin(&join, &ddp, 1, &opts);
 *     while (this rank has a batch) { step, zero_grad, backward, optimizer as usual }
 *     tutti_join_end(join);      takes part in the others' collectives until all have joined
 *     tutti_join_free(join);
 * A rank that has run out of inputs contributes zeros to every mean. At the end all ranks have the model of the last joiner
 * (of several, the largest rank), and its state of the given optimizers. In between, ranks that have joined do not take part in
 * collectives other than DDP's and ZeRO's (such as a loss reduced for the log, or a scaler with peers). */
typedef struct tutti_join tutti_join;

/* Zero means default. */
typedef struct tutti_join_opts {
    bool divide_by_present; /* means over the ranks that still have inputs; default: over all */
    /* When one rank has run out, the next training step fails on all ranks (STATE, and tutti_join_exhausted), and so does
     * that rank's tutti_join_end; the group stays usable. Required with batch norm over all ranks. */
    bool throw_on_early_termination;
    /* Optimizers that get the last joiner's state at the end; with ZeRO, they also step for this rank's shares. */
    tutti_optim *const *optims;
    size_t n_optims;
    uint64_t reserved[4]; /* zero */
} tutti_join_opts;

/* Collective. ARG: no DDP, DDPs of different groups, batch norm over all ranks without throw_on_early_termination, ZeRO
 * without its optimizers, a buffer_hook; errors are returned on all ranks as in tutti_ddp_new (except without a DDP, since there
 * is then no group). Borrows the DDPs and optimizers. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_join_begin(tutti_join **join_p, tutti_ddp *const *ddps,
                                                        size_t n, const tutti_join_opts *opts);
/* This rank has no more inputs: takes part in the others' collectives until they have finished too. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_join_end(tutti_join *join);
/* True: ended by throw_on_early_termination, because a rank ran out. */
TUTTI_API bool tutti_join_exhausted(const tutti_join *join);
/* Without a tutti_join_end before it (after an error), the group is aborted, so that no rank waits. NULL is fine. */
TUTTI_API void tutti_join_free(tutti_join *join);

#ifdef __cplusplus
}
#endif
#endif
