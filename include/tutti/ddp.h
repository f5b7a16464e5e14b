/* ddp.h -- distributed data parallelism: gradients averaged in buckets while backward still runs.
 * SPDX-License-Identifier: MIT */
#ifndef TUTTI_DDP_H
#define TUTTI_DDP_H

#include <tutti/group.h>
#include <tutti/nn.h>

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
} tutti_reducer_parameter;

/* Zero means default. */
typedef struct tutti_reducer_opts {
    double bucket_mb;       /* MiB; default 25 */
    double first_bucket_mb; /* MiB; default 1 */
    const size_t *order;    /* in which gradients get ready; NULL: last parameter first */
} tutti_reducer_opts;

/* Collective: parameters, dtypes, names and order are compared, and a difference is MISMATCH with the same message on
 * every rank. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reducer_new(tutti_reducer **reducer_p,
                                                         tutti_group *group,
                                                         const tutti_reducer_parameter *parameters,
                                                         size_t n_parameters,
                                                         const tutti_reducer_opts *opts);
TUTTI_API void tutti_reducer_free(tutti_reducer *reducer);
/* Where gradient i lies, in its bucket, for the life of the reducer. All buckets are one block of memory in bucket
 * order, each gradient starting 64-byte aligned. */
TUTTI_API void *tutti_reducer_grad(tutti_reducer *reducer, size_t i);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reducer_begin(tutti_reducer *reducer);
/* Gradient i is final. STATE, with names, if it was ready before or begin was not called; also kept for finish. */
TUTTI_API tutti_status tutti_reducer_ready(tutti_reducer *reducer, size_t i);
/* Waits for all buckets. STATE naming the gradients that never got ready (then the group is aborted). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reducer_finish(tutti_reducer *reducer);

typedef struct tutti_bucket_info {
    size_t first,
        n; /* places in the order, once it brings each bucket's gradients together (several dtypes) */
    size_t bytes;    /* of gradients, gaps not counted */
    double ready_ms; /* of the last step, since begin: all gradients there and launched */
    double done_ms;  /* reduced */
} tutti_bucket_info;
TUTTI_API size_t tutti_reducer_n_buckets(const tutti_reducer *reducer);
TUTTI_API tutti_bucket_info tutti_reducer_bucket(const tutti_reducer *reducer, size_t i);

/* PyTorch's compute_bucket_assignment_by_size for dense gradients, by itself: walks sizes in order, keeps one open
 * bucket a dtype, closes it with the tensor that reaches the limit; limits advance a bucket, the last repeats.
 * bucket_of[i] receives the bucket of element i; returns the number of buckets, numbered in the order of closing
 * (by_first_index false) or of their first element. */
TUTTI_API size_t tutti_bucket_assignment(const size_t *bytes, const tutti_dtype *dtypes, size_t n,
                                         const size_t *limits, size_t n_limits, bool by_first_index,
                                         size_t *bucket_of);

/* ---- DDP over a module ------------------------------------------------------------------------------- */

typedef struct tutti_ddp tutti_ddp;

/* Zero means default. */
typedef struct tutti_ddp_opts {
    double bucket_mb, first_bucket_mb; /* MiB; default 25 and 1, whatever else is set */
    bool keep_buffers; /* do not broadcast rank 0's buffers at the start of each training step */
} tutti_ddp_opts;

/* Checks that all ranks have the same parameters (number, names, shapes, dtypes, order; one message for all ranks if
 * not), copies rank 0's parameters and buffers to all, and listens to the module's tape: from then on tutti_backward
 * returns averaged gradients. Buckets are laid out in the first backward, in the order in which its gradients get
 * ready (rank 0's), so that communication overlaps from the first step. A parameter that the loss does not use is an
 * error in that step, before any update, with its name. Forward is not wrapped: there is no prefix in names.
 * Collective. Borrows module and group until tutti_ddp_free. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ddp_new(tutti_ddp **ddp_p, tutti_module *module,
                                                     tutti_group *group,
                                                     const tutti_ddp_opts *opts);
TUTTI_API void tutti_ddp_free(tutti_ddp *ddp);
/* Copies rank 0's buffers to all ranks. Training steps do it by themselves in tutti_step_begin (unless keep_buffers, or
 * paused); evaluation steps send nothing, so that some ranks may evaluate alone: call this before evaluating. Collective. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_ddp_broadcast_buffers(tutti_ddp *ddp);
/* no_sync: backward between pause and resume only accumulates; the first one after resume averages the sum. */
TUTTI_API void tutti_ddp_pause(tutti_ddp *ddp);
TUTTI_API void tutti_ddp_resume(tutti_ddp *ddp);
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

#ifdef __cplusplus
}
#endif
#endif
