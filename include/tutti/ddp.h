/* ddp.h -- distributed data parallelism: gradients averaged in buckets while backward still runs.
 * SPDX-License-Identifier: MIT
 *
 * Threads: the module's context's thread calls; reductions and hooks run on the group's. Collective calls return the
 * group's errors too (group.h). */
#ifndef TUTTI_DDP_H
#define TUTTI_DDP_H

#include <tutti/group.h>
#include <tutti/optim.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The reducer by itself: for a program that computes its own gradients --------------------------
 *     tutti_reducer_new(&r, group, parameters, n, NULL);
 *     each step: tutti_reducer_begin(r); ... write tutti_reducer_grad(r, i), tutti_reducer_ready(r, i) ...;
 *                tutti_reducer_finish(r);           gradients now hold the mean over all ranks
 * Buckets are reduced in index order as soon as they and all before them are full, so that ranks cannot disagree.
 * Threads: one thread calls; the reduction runs on the group's thread. */
typedef struct tutti_reducer tutti_reducer;

typedef struct tutti_reducer_parameter {
    const char *name; /* for messages; copied */
    size_t count;     /* elements */
    tutti_dtype dtype;
    size_t rows; /* of the matrix [rows, count / rows] that it is, for PowerSGD; 0: a vector */
    /* F32, rows > 0: a step touches few rows (tutti_reducer_ready_rows), and only those travel, in a bucket of their own. */
    bool sparse;
    bool local; /* each rank's own: memory behind the buckets, never ready; ranks may differ */
} tutti_reducer_parameter;

/* What is done about NaN and infinities in a gradient of this rank, seen before it is averaged. */
typedef enum tutti_nonfinite {
    TUTTI_NONFINITE_WARN, /* a log line with parameter, rank and step, the 1st, 2nd, 4th, 8th ... time */
    TUTTI_NONFINITE_ERROR, /* the step fails on all ranks, with these names */
    TUTTI_NONFINITE_IGNORE /* nobody looks */
} tutti_nonfinite;

/* Zero means default. */
typedef struct tutti_reducer_opts {
    double bucket_mb;       /* MiB; default 25 */
    double first_bucket_mb; /* MiB; default 1; also of what is reduced when backward is over */
    /* MiB of one bucket after the other, the last repeats; instead of the two. */
    const double *bucket_mb_list;
    size_t n_bucket_mb_list;
    const size_t *order; /* in which gradients get ready; NULL: last parameter first */
    bool find_unused;    /* a step may leave gradients out: tutti_reducer_skip */
    bool static_graph;   /* each step leaves out what the first did: asked once, then checked */
    tutti_nonfinite nonfinite;
} tutti_reducer_opts;

/* Collective: parameters, dtypes, names, order and options are compared, and a difference is MISMATCH with the same
 * message on every rank. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reducer_new(tutti_reducer **reducer_p,
                                                         tutti_group *group,
                                                         const tutti_reducer_parameter *parameters,
                                                         size_t n_parameters,
                                                         const tutti_reducer_opts *opts);
/* In the middle of a step it aborts the group, so that nobody waits. NULL is fine. */
TUTTI_API void tutti_reducer_free(tutti_reducer *reducer);
/* Where gradient i lies, in its bucket, for the life of the reducer. All buckets are one block of memory in bucket
 * order, each gradient starting 64-byte aligned; local ones come last. */
TUTTI_API void *tutti_reducer_grad(tutti_reducer *reducer, size_t i);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reducer_begin(tutti_reducer *reducer);
/* Gradient i is final. STATE, with names, if it was ready before or begin was not called; also kept for finish. */
TUTTI_API tutti_status tutti_reducer_ready(tutti_reducer *reducer, size_t i);
/* The same for a sparse one, of which only these rows may be other than zero (in any order, repeated or not). */
TUTTI_API tutti_status tutti_reducer_ready_rows(tutti_reducer *reducer, size_t i,
                                                const int64_t *rows, size_t n_rows);
/* In place of ready: this rank has no gradient i in this step, and brings zeros. STATE without find_unused or
 * static_graph. What is neither ready nor skipped when finish is called, is skipped. */
TUTTI_API tutti_status tutti_reducer_skip(tutti_reducer *reducer, size_t i);
/* Waits for all buckets. STATE naming the gradients that never got ready (then the group is aborted). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reducer_finish(tutti_reducer *reducer);
/* How many ranks brought gradient i in the last step. 0: nobody, so leave the parameter as it is. */
TUTTI_API int tutti_reducer_users(const tutti_reducer *reducer, size_t i);

typedef struct tutti_bucket_info {
    /* Places in the order, once it brings each bucket's gradients together (several dtypes). */
    size_t first, n;
    size_t bytes;             /* of gradients, gaps not counted */
    size_t wire_bytes;        /* that this rank gave to collectives for it, in the last step */
    double ready_ms;          /* of the last step, since begin: all gradients there and launched */
    double begin_ms, done_ms; /* its reduction, on the communication thread */
} tutti_bucket_info;
TUTTI_API size_t tutti_reducer_n_buckets(const tutti_reducer *reducer);
/* Past the end: zeros. */
TUTTI_API tutti_bucket_info tutti_reducer_bucket(const tutti_reducer *reducer, size_t i);
/* The parameter at a place of the order (SIZE_MAX past the end), and a parameter's name. */
TUTTI_API size_t tutti_reducer_at(const tutti_reducer *reducer, size_t place);
TUTTI_API const char *tutti_reducer_name(const tutti_reducer *reducer, size_t i);

/* Of all steps: what this rank gave to collectives, and what it would have given uncompressed. */
typedef struct tutti_traffic {
    uint64_t wire_bytes, gradient_bytes;
} tutti_traffic;
TUTTI_API tutti_traffic tutti_reducer_traffic(const tutti_reducer *reducer);

/* PyTorch's compute_bucket_assignment_by_size, by itself: walks the gradients in order, keeps one open bucket a dtype,
 * closes it with the gradient that reaches the limit; limits advance a bucket, the last repeats; a sparse gradient is a
 * bucket. bucket_of[i] receives the bucket of element i; returns the number of buckets, numbered in the order of
 * closing (by_first_index false) or of their first element. */
typedef struct tutti_bucket_item {
    size_t bytes;
    tutti_dtype dtype;
    bool sparse;
} tutti_bucket_item;
TUTTI_API size_t tutti_bucket_assignment(const tutti_bucket_item *items, size_t n,
                                         const size_t *limits, size_t n_limits, bool by_first_index,
                                         size_t *bucket_of);

/* ---- Communication hooks: what happens to a full bucket ------------------------------------------------
 * Without one it is averaged by all_reduce. A hook does something else: compresses, say. It runs on the group's
 * communication thread while backward goes on, a bucket at a time, in index order on every rank, and may call any
 * collective on the group, as often as it likes. A failure ends the step on all ranks. Sparse gradients do not come to
 * hooks. */
typedef struct tutti_bucket_gradient {
    size_t parameter; /* its number, as given to the reducer; DDP: in the module */
    const char *name;
    size_t offset, count; /* elements, from the bucket's start */
    size_t rows;          /* as in tutti_reducer_parameter */
} tutti_bucket_gradient;

typedef struct tutti_bucket {
    size_t index;
    bool is_last;  /* that the hook sees in this step */
    tutti_buf buf; /* this rank's gradients, gaps (zeros) included; to become the mean */
    size_t n;
    const tutti_bucket_gradient *gradients; /* in the order in which they lie */
} tutti_bucket;

typedef struct tutti_comm_hook {
    const char *name; /* static text; the same on all ranks */
    tutti_status (*run)(void *self, tutti_group *group, const tutti_bucket *bucket);
    void (*free)(void *self); /* when the reducer goes; NULL: nothing to do */
    void *self;
} tutti_comm_hook;

/* Once, between steps, on every rank; takes self over, also where it fails. STATE the second time. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reducer_set_hook(tutti_reducer *reducer,
                                                              const tutti_comm_hook *hook);

/* Ready-made ones. inner: a hook to wrap, which they take over, also where they fail; NULL: all_reduce.
 * bf16, fp16: F32 buckets travel in 16 bits (in place: no memory, no copy); the mean is summed in F32 and rounded
 * once. Buckets of other dtypes go as they are. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_comm_hook_bf16(tutti_comm_hook *hook_p,
                                                            const tutti_comm_hook *inner);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_comm_hook_fp16(tutti_comm_hook *hook_p,
                                                            const tutti_comm_hook *inner);

/* PowerSGD (Vogels et al., NeurIPS 2019) with PyTorch's rules: a gradient [n, m] travels as [n, rank] and [m, rank] if
 * (n + m) * rank * min_compression_rate < n * m; vectors, and the others, as they are. What a rank's gradient lost
 * is added to its next one (one more gradient's memory). Zero means default. */
typedef struct tutti_powersgd_opts {
    int rank;               /* of the approximation; default 1 */
    int64_t start_step;     /* plain steps before; default 1000; 1 needs both of the next two */
    bool no_error_feedback; /* what was lost stays lost */
    bool no_warm_start;     /* start each step from random matrices, not from the last step's */
    double min_compression_rate;      /* default 2 */
    double orthogonalization_epsilon; /* added to norms; default 0 */
    uint64_t seed;                    /* of the random matrices; the same on all ranks */
} tutti_powersgd_opts;
TUTTI_API TUTTI_NODISCARD tutti_status tutti_comm_hook_powersgd(tutti_comm_hook *hook_p,
                                                                const tutti_powersgd_opts *opts);

/* ---- DDP over a module ------------------------------------------------------------------------------- */

typedef struct tutti_ddp tutti_ddp;

/* Zero means default. */
typedef struct tutti_ddp_opts {
    double bucket_mb, first_bucket_mb; /* MiB; default 25 and 1, whatever else is set */
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
    int check_replicas; /* every so many steps; 0: TUTTI_CHECK_REPLICAS, or never */
    tutti_nonfinite nonfinite;
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
 * Collective. Borrows module and group until tutti_ddp_free. */
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
 *   - there is no room for another communication hook. */
typedef struct tutti_zero tutti_zero;

/* Before the first backward, for every optimizer of ddp's module. Borrows ddp: free the optimizers, then ZeRO, then DDP.
 * The module must live as long. */
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
} tutti_join_opts;

/* Collective. ARG: no DDP, DDPs of different groups, batch norm over all ranks without throw_on_early_termination, ZeRO
 * without its optimizers, a buffer_hook. Borrows the DDPs and optimizers. */
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
