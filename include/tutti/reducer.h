/* reducer.h -- the reducer by itself: for a program that computes its own gradients.
 * SPDX-License-Identifier: MIT
 *
 *     tutti_reducer_new(&r, group, parameters, n, NULL);
 *     each step: tutti_reducer_begin(r); ... write tutti_reducer_grad(r, i), tutti_reducer_ready(r, i) ...;
 *                tutti_reducer_finish(r);           gradients now hold the mean over all ranks
 * Each bucket is reduced when it and all before it are full, so that all ranks use the same order.
 * Threads: one thread calls; reductions and hooks run on the group's thread. Collective calls also return the group's errors
 * (group.h). */
#ifndef TUTTI_REDUCER_H
#define TUTTI_REDUCER_H

#include <tutti/group.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tutti_reducer tutti_reducer;

typedef struct tutti_reducer_parameter {
    const char *name; /* for messages; copied */
    size_t count;     /* elements */
    tutti_dtype dtype;
    size_t rows; /* for PowerSGD: it is a matrix [rows, count / rows]; 0: a vector */
    /* F32, rows > 0: a step touches few rows (tutti_reducer_ready_rows), and only those are sent, in a separate bucket. */
    bool sparse;
    bool local; /* not averaged: memory after the buckets, never ready; ranks may differ */
    uint64_t reserved[4]; /* zero */
} tutti_reducer_parameter;

/* What happens if a gradient of this rank has NaN or infinities (checked before it is averaged). */
typedef enum tutti_nonfinite {
    TUTTI_NONFINITE_WARN, /* a log line with parameter, rank and step, at the 1st, 2nd, 4th, 8th ... time */
    /* The step fails on all ranks, with these names. On a device this waits once more, before the last bucket. */
    TUTTI_NONFINITE_ERROR,
    TUTTI_NONFINITE_IGNORE /* no check */
} tutti_nonfinite;

/* Zero means default. */
typedef struct tutti_reducer_opts {
    /* MiB; default 25 and 1. TUTTI_ZERO: a bucket for each gradient. first_bucket_mb also limits the last bucket, which is
     * reduced when backward is over. */
    double bucket_mb, first_bucket_mb;
    /* Instead of the two: MiB of each bucket in turn, the last repeats. Here 0 is zero. */
    const double *bucket_mb_list;
    size_t n_bucket_mb_list;
    const size_t *order; /* in which gradients become ready; NULL: last parameter first */
    bool find_unused;    /* a step may leave gradients out: tutti_reducer_skip */
    /* each step leaves out the same gradients as the first: agreed once, then checked */
    bool static_graph;
    tutti_nonfinite nonfinite;
    /* The stream on which gradients are computed, on their device: a bucket is reduced after the work submitted to the stream
     * before tutti_reducer_ready. It must outlive the reducer. NULL: host memory. Ranks may differ in it. */
    tutti_stream *stream;
    /* Above 0: a step is this many logical shards, whichever ranks compute them (below). Gradients are then F32, none sparse. */
    int shards;
    int wire_bits;        /* with shards: bits per value sent between ranks, 64 (default) or 32 */
    size_t n_counters;    /* with shards: tutti_reducer_counters */
    uint64_t reserved[1]; /* zero */
} tutti_reducer_opts;

/* Collective: parameters, dtypes, names, order and options are compared; a difference is MISMATCH with the same message on
 * every rank. An error of one rank (ARG, MEMORY) is also returned by all ("rank 2: ..."). The group stays usable. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reducer_new(tutti_reducer **reducer_p,
                                                         tutti_group *group,
                                                         const tutti_reducer_parameter *parameters,
                                                         size_t n_parameters,
                                                         const tutti_reducer_opts *opts);
/* In the middle of a step it aborts the group, so that no rank waits for this one. NULL is fine. */
TUTTI_API void tutti_reducer_free(tutti_reducer *reducer);
/* The memory of gradient i, in its bucket, for the life of the reducer. All buckets are one block of memory in bucket
 * order, each gradient starting 64-byte aligned; local ones come last. */
TUTTI_API void *tutti_reducer_grad(tutti_reducer *reducer, size_t i);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reducer_begin(tutti_reducer *reducer);
/* Gradient i is final. STATE, with names, if it was ready before or begin was not called; also kept for finish. */
TUTTI_API tutti_status tutti_reducer_ready(tutti_reducer *reducer, size_t i);
/* The same for a sparse gradient, of which only these rows may be non-zero (in any order, repeated or not). */
TUTTI_API tutti_status tutti_reducer_ready_rows(tutti_reducer *reducer, size_t i,
                                                const int64_t *rows, size_t n_rows);
/* Instead of ready: this rank has no gradient i in this step, and contributes zeros. STATE without find_unused or
 * static_graph. With one of them, finish skips gradients that are neither ready nor skipped. */
TUTTI_API tutti_status tutti_reducer_skip(tutti_reducer *reducer, size_t i);
/* Waits for all buckets, also on a device, so that a failure is known before an update is submitted. STATE, naming the
 * gradients that were never ready (then the group is aborted). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reducer_finish(tutti_reducer *reducer);

/* ---- Logical shards: means that do not depend on which rank computed what -------------------------------------------
 *     tutti_reducer_begin(r);
 *     for each shard of this rank: tutti_reducer_begin_shard(r, last);
 *                                  ... write tutti_reducer_grad(r, i), tutti_reducer_ready(r, i) ...;
 *     tutti_reducer_finish(r);
 * With opts.shards the mean is over that many shards; a rank computes any number of them, including none. A shard's gradient
 * is added as integers, multiples of a power of two that follows from the gradient's range, so the bits of the sum do not depend
 * on the order or the number of ranks; docs/reducer.md says how exact it is. Gradients are private memory of this rank, and may be
 * overwritten as soon as they are ready, except in the last shard, where the means arrive. All shards must be computed: otherwise
 * finish returns STATE on all ranks, with their number. find_unused: a shard may leave gradients out; static_graph means the same.
 * If a gradient is not finite in any shard, its mean is NaN on all ranks. With group NULL tutti_reducer_new sends nothing, and
 * the reducer cannot begin a step before it has a group (tutti_reducer_regroup). */

/* last: buckets are sent while it is computed. More shards may still follow (such as one of a slow rank), at the price of one
 * more reduction at the end. STATE; ARG without shards. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reducer_begin_shard(tutti_reducer *reducer, bool last);
/* After finish. True: a gradient exceeded its range on some rank, and ranges have grown: the means are not valid; begin again
 * and compute all shards again. The same on all ranks. */
TUTTI_API bool tutti_reducer_again(const tutti_reducer *reducer);
/* A number for each gradient that determines the unit of the next step's integers. Like the parameters they are state: a rank
 * that resumes from a checkpoint, or joins, needs them. Length: the number of parameters. */
TUTTI_API float *tutti_reducer_ranges(tutti_reducer *reducer);
/* opts.n_counters integers for the program: zero after begin, summed over all ranks modulo 2^64 after finish. */
TUTTI_API int64_t *tutti_reducer_counters(tutti_reducer *reducer);
/* Continues in another group; a step in progress in the old one is discarded, without waiting for other ranks. NULL: in no group;
 * after that the old one may be freed. Collective in the new one, as tutti_reducer_new. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reducer_regroup(tutti_reducer *reducer,
                                                             tutti_group *group);

/* How many ranks, or shards, had gradient i in the last step. 0: do not update the parameter. */
TUTTI_API int tutti_reducer_users(const tutti_reducer *reducer, size_t i);

typedef struct tutti_bucket_info {
    /* Places in the order, after it was rearranged so that each bucket's gradients are adjacent (with several dtypes). */
    size_t first, n;
    size_t bytes;             /* of gradients, without gaps */
    size_t wire_bytes;        /* that this rank passed to collectives for it in the last step */
    double ready_ms;          /* last step, since begin: all gradients ready, and launched */
    double begin_ms, done_ms; /* its reduction, on the communication thread */
    uint64_t reserved[4];     /* zero */
} tutti_bucket_info;
TUTTI_API size_t tutti_reducer_n_buckets(const tutti_reducer *reducer);
/* Past the end: zeros. */
TUTTI_API tutti_bucket_info tutti_reducer_bucket(const tutti_reducer *reducer, size_t i);
/* The parameter at a place of the order (SIZE_MAX past the end), and a parameter's name. */
TUTTI_API size_t tutti_reducer_at(const tutti_reducer *reducer, size_t place);
TUTTI_API const char *tutti_reducer_name(const tutti_reducer *reducer, size_t i);

/* Over all steps: bytes that this rank passed to collectives, and what they would be uncompressed. */
typedef struct tutti_traffic {
    uint64_t wire_bytes, gradient_bytes;
} tutti_traffic;
TUTTI_API tutti_traffic tutti_reducer_traffic(const tutti_reducer *reducer);

/* PyTorch's compute_bucket_assignment_by_size: goes through the gradients in order, keeps one open bucket per dtype, and
 * closes it with the gradient that reaches the limit. Each bucket has the next limit, the last repeats; a sparse gradient is
 * its own bucket. bucket_of[i] receives the bucket of element i; returns the number of buckets, numbered in the order of
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
 * Without a hook it is averaged by all_reduce. A hook does something else, such as compression. It runs on the group's
 * communication thread while backward continues, one bucket at a time, in index order on every rank, and may call any
 * collectives on the group. A failure ends the step on all ranks. Sparse gradients do not go through hooks. */
typedef struct tutti_bucket_gradient {
    size_t parameter; /* its number, as given to the reducer; DDP: in the module */
    const char *name;
    size_t offset, count; /* elements, from the bucket's start */
    size_t rows;          /* as in tutti_reducer_parameter */
    uint64_t reserved[4]; /* zero */
} tutti_bucket_gradient;

typedef struct tutti_bucket {
    size_t index;
    bool is_last; /* the last one of this step */
    /* This rank's gradients, gaps (zeros) included; the hook replaces them by the mean. On a device, buf.stream is the hooks'
     * stream: the gradients are complete there, and the mean must be computed there. */
    tutti_buf buf;
    size_t n;
    const tutti_bucket_gradient *gradients; /* in the order of their offsets */
    uint64_t reserved[4];                   /* zero */
} tutti_bucket;

typedef struct tutti_comm_hook {
    const char *name; /* static text; the same on all ranks */
    tutti_status (*run)(void *self, tutti_group *group, const tutti_bucket *bucket);
    void (*free)(void *self); /* when the reducer is freed; NULL: nothing to do */
    void *self;
    uint64_t reserved[4]; /* zero */
} tutti_comm_hook;

/* Once, between steps, on every rank; takes ownership of self, also on failure. STATE the second time. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reducer_set_hook(tutti_reducer *reducer,
                                                              const tutti_comm_hook *hook);

/* Ready-made hooks. inner: a hook to wrap, which they take ownership of, also on failure; NULL: all_reduce.
 * bf16, fp16: F32 buckets are sent in 16 bits (in place: no memory, no copy); the mean is summed in F32 and rounded
 * once. Buckets of other dtypes are sent unchanged. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_comm_hook_bf16(tutti_comm_hook *hook_p,
                                                            const tutti_comm_hook *inner);
TUTTI_API TUTTI_NODISCARD tutti_status tutti_comm_hook_fp16(tutti_comm_hook *hook_p,
                                                            const tutti_comm_hook *inner);

/* PowerSGD (Vogels et al., NeurIPS 2019) with PyTorch's rules: a gradient [n, m] is sent as [n, rank] and [m, rank] if
 * (n + m) * rank * min_compression_rate < n * m; other matrices and vectors are sent unchanged. The approximation's error is
 * added to the rank's next gradient (which takes as much memory as a gradient). Zero means default. */
typedef struct tutti_powersgd_opts {
    int rank; /* of the approximation; default 1 */
    /* plain steps before it; default 1000; -1: none. -1 and 1 need both of the next two */
    int64_t start_step;
    bool no_error_feedback; /* errors are not added to the next gradient */
    bool no_warm_start;     /* start each step from random matrices, not from the last step's */
    double min_compression_rate;      /* default 2; TUTTI_ZERO: every matrix is compressed */
    double orthogonalization_epsilon; /* added to norms; default 0 */
    uint64_t seed;                    /* of the random matrices; the same on all ranks */
    uint64_t reserved[4];             /* zero */
} tutti_powersgd_opts;
TUTTI_API TUTTI_NODISCARD tutti_status tutti_comm_hook_powersgd(tutti_comm_hook *hook_p,
                                                                const tutti_powersgd_opts *opts);

#ifdef __cplusplus
}
#endif
#endif
