/* reducer.h -- the reducer by itself: for a program that computes its own gradients.
 * SPDX-License-Identifier: MIT
 *
 *     tutti_reducer_new(&r, group, parameters, n, NULL);
 *     each step: tutti_reducer_begin(r); ... write tutti_reducer_grad(r, i), tutti_reducer_ready(r, i) ...;
 *                tutti_reducer_finish(r);           gradients now hold the mean over all ranks
 * Buckets are reduced in index order as soon as they and all before them are full, so that ranks cannot disagree.
 * Threads: one thread calls; the reduction, and hooks, run on the group's. Collective calls return the group's errors too
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
    size_t rows; /* of the matrix [rows, count / rows] that it is, for PowerSGD; 0: a vector */
    /* F32, rows > 0: a step touches few rows (tutti_reducer_ready_rows), and only those travel, in a bucket of their own. */
    bool sparse;
    bool local; /* each rank's own: memory behind the buckets, never ready; ranks may differ */
    uint64_t reserved[4]; /* zero */
} tutti_reducer_parameter;

/* What is done about NaN and infinities in a gradient of this rank, seen before it is averaged. */
typedef enum tutti_nonfinite {
    TUTTI_NONFINITE_WARN, /* a log line with parameter, rank and step, the 1st, 2nd, 4th, 8th ... time */
    /* The step fails on all ranks, with these names. On a device that is one more wait, before the last bucket. */
    TUTTI_NONFINITE_ERROR,
    TUTTI_NONFINITE_IGNORE /* nobody looks */
} tutti_nonfinite;

/* Zero means default. */
typedef struct tutti_reducer_opts {
    /* MiB; default 25 and 1. TUTTI_ZERO: a bucket for each gradient. The first's is also that of what is reduced when
     * backward is over. */
    double bucket_mb, first_bucket_mb;
    /* MiB of one bucket after the other, the last repeats; instead of the two. 0 is zero. */
    const double *bucket_mb_list;
    size_t n_bucket_mb_list;
    const size_t *order; /* in which gradients get ready; NULL: last parameter first */
    bool find_unused;    /* a step may leave gradients out: tutti_reducer_skip */
    bool static_graph;   /* each step leaves out what the first did: asked once, then checked */
    tutti_nonfinite nonfinite;
    /* The stream in which gradients are written, on the device where they lie: a bucket is reduced behind what was given to the
     * stream before tutti_reducer_ready. It outlives the reducer. NULL: memory of the host. Ranks may differ in it. */
    tutti_stream *stream;
    /* Above 0: a step is so many logical shards, whoever computes them (below). Ranges are then F32, none sparse. */
    int shards;
    int wire_bits; /* of a contribution that travels between ranks, with shards: 64, the default, or 32 */
    size_t n_counters;    /* with shards: tutti_reducer_counters */
    uint64_t reserved[1]; /* zero */
} tutti_reducer_opts;

/* Collective: parameters, dtypes, names, order and options are compared, and a difference is MISMATCH with the same
 * message on every rank. So is what is wrong on one of them (ARG, MEMORY: "rank 2: ..."). The group lives. */
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
/* Waits for all buckets, also on a device: what failed is known before an update is given to its stream. STATE naming the
 * gradients that never got ready (then the group is aborted). */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reducer_finish(tutti_reducer *reducer);

/* ---- Logical shards: means that do not depend on who computed what -------------------------------------------
 *     tutti_reducer_begin(r);
 *     for each shard of this rank: tutti_reducer_begin_shard(r, last); ... write tutti_reducer_grad(r, i), tutti_reducer_ready(r, i) ...;
 *     tutti_reducer_finish(r);
 * With opts.shards the mean is over that many shards, of which a rank computes as many as it likes, none included. A shard's
 * gradient is added as an integer, a multiple of a power of two that the gradient's range gives, so that the sum is the same
 * bits in whatever order and on however many ranks: docs/reducer.md says how exact it is. Gradients are memory of this rank alone, and
 * may be overwritten as soon as they are ready, but in the last shard, where means arrive. All shards together must come: STATE in
 * finish, with how many did, on all ranks. find_unused: a shard may leave gradients out; static_graph is the same.
 * What is not finite in any shard is NaN in the mean, on all ranks. opts, without a group: tutti_reducer_new is called with
 * group NULL, sends nothing, and the reducer cannot begin before it has one. */

/* last: buckets leave while it is computed. More may follow all the same (a shard of a rank that is late), for one more
 * reduction at the end. STATE, ARG without shards. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reducer_begin_shard(tutti_reducer *reducer, bool last);
/* After finish: true: a gradient was larger than its range, on some rank, and ranges have grown: the means are of no use, begin
 * again and compute all shards anew. The same on all ranks. */
TUTTI_API bool tutti_reducer_again(const tutti_reducer *reducer);
/* A number for each gradient from which the next step's multiple follows. With the parameters they are state: who goes on from
 * a checkpoint, or joins, needs them. Length: the number of parameters. */
TUTTI_API float *tutti_reducer_ranges(tutti_reducer *reducer);
/* opts.n_counters integers of the program's own: zero after begin, and summed over all ranks, modulo 2^64, after finish. */
TUTTI_API int64_t *tutti_reducer_counters(tutti_reducer *reducer);
/* Goes on in another group; what was under way in the old one is given up, without waiting for anybody. NULL: in none; after that
 * the old one may be freed. Collective in the new one, as tutti_reducer_new. */
TUTTI_API TUTTI_NODISCARD tutti_status tutti_reducer_regroup(tutti_reducer *reducer,
                                                             tutti_group *group);

/* How many ranks, or shards, brought gradient i in the last step. 0: nobody, so leave the parameter as it is. */
TUTTI_API int tutti_reducer_users(const tutti_reducer *reducer, size_t i);

typedef struct tutti_bucket_info {
    /* Places in the order, once it brings each bucket's gradients together (several dtypes). */
    size_t first, n;
    size_t bytes;             /* of gradients, gaps not counted */
    size_t wire_bytes;        /* that this rank gave to collectives for it, in the last step */
    double ready_ms;          /* of the last step, since begin: all gradients there and launched */
    double begin_ms, done_ms; /* its reduction, on the communication thread */
    uint64_t reserved[4];     /* zero */
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
    uint64_t reserved[4]; /* zero */
} tutti_bucket_gradient;

typedef struct tutti_bucket {
    size_t index;
    bool is_last; /* that the hook sees in this step */
    /* This rank's gradients, gaps (zeros) included; to become the mean. On a device: in a stream of the hooks', in which the
     * gradients are there, and in which the mean is to be. */
    tutti_buf buf;
    size_t n;
    const tutti_bucket_gradient *gradients; /* in the order in which they lie */
    uint64_t reserved[4];                   /* zero */
} tutti_bucket;

typedef struct tutti_comm_hook {
    const char *name; /* static text; the same on all ranks */
    tutti_status (*run)(void *self, tutti_group *group, const tutti_bucket *bucket);
    void (*free)(void *self); /* when the reducer goes; NULL: nothing to do */
    void *self;
    uint64_t reserved[4]; /* zero */
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
    int rank; /* of the approximation; default 1 */
    int64_t
        start_step; /* plain steps before; default 1000; -1: none. -1 and 1 need both of the next two */
    bool no_error_feedback; /* what was lost stays lost */
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
