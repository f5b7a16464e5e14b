/* operations.h -- operations on tensors, named as in PyTorch.
 * SPDX-License-Identifier: MIT
 *
 * Shapes in comments: N batch, C channels, H height, W width, L length, K features in, M features out, V rows of a table. A result
 * is a step tensor, poisoned if the operation failed (tensor.h). Under autocast each operation takes the dtype of PyTorch's lists.
 * An operation that is not here: op.h. */
#ifndef TUTTI_OPERATIONS_H
#define TUTTI_OPERATIONS_H

#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Elementwise, of one tensor ------------------------------------------------------------- */

TUTTI_API tutti_tensor *tutti_relu(tutti_tensor *x);    /* max(x, 0) */
TUTTI_API tutti_tensor *tutti_sigmoid(tutti_tensor *x); /* 1 / (1 + exp(-x)) */
TUTTI_API tutti_tensor *tutti_tanh(tutti_tensor *x);    /* hyperbolic tangent */
TUTTI_API tutti_tensor *tutti_neg(tutti_tensor *x);     /* -x */
TUTTI_API tutti_tensor *tutti_abs(tutti_tensor *x);     /* |x|; the gradient of 0 is 0 */
TUTTI_API tutti_tensor *tutti_exp(tutti_tensor *x);     /* e^x */
/* The natural logarithm; tutti_log (status.h) writes messages. */
TUTTI_API tutti_tensor *tutti_functional_log(tutti_tensor *x);
TUTTI_API tutti_tensor *tutti_sqrt(tutti_tensor *x);
TUTTI_API tutti_tensor *tutti_rsqrt(tutti_tensor *x); /* 1 / sqrt(x) */
TUTTI_API tutti_tensor *tutti_square(tutti_tensor *x);
TUTTI_API tutti_tensor *tutti_reciprocal(tutti_tensor *x); /* 1 / x */
TUTTI_API tutti_tensor *tutti_sin(tutti_tensor *x);        /* x in radians */
TUTTI_API tutti_tensor *tutti_cos(tutti_tensor *x);
TUTTI_API tutti_tensor *tutti_silu(tutti_tensor *x);        /* x sigmoid(x) */
TUTTI_API tutti_tensor *tutti_relu6(tutti_tensor *x);       /* min(max(x, 0), 6) */
TUTTI_API tutti_tensor *tutti_hardsigmoid(tutti_tensor *x); /* relu6(x + 3) / 6 */
TUTTI_API tutti_tensor *tutti_hardswish(tutti_tensor *x);   /* x hardsigmoid(x) */
TUTTI_API tutti_tensor *tutti_logsigmoid(tutti_tensor *x);  /* log(sigmoid(x)) */
/* x where x > 0, else negative_slope x; PyTorch's default is 0.01. */
TUTTI_API tutti_tensor *tutti_leaky_relu(tutti_tensor *x, float negative_slope);
/* x where x > 0, else alpha (e^x - 1); PyTorch's default is 1. */
TUTTI_API tutti_tensor *tutti_elu(tutti_tensor *x, float alpha);
/* log(1 + exp(beta x)) / beta, but x where beta x > threshold; PyTorch's defaults are 1 and 20. beta must not be 0. */
TUTTI_API tutti_tensor *tutti_softplus(tutti_tensor *x, float beta, float threshold);
/* min(max(x, min_val), max_val), min_val <= max_val; PyTorch's defaults are -1 and 1. */
TUTTI_API tutti_tensor *tutti_hardtanh(tutti_tensor *x, float min_val, float max_val);
/* min(max(x, min), max); -INFINITY, INFINITY: no bound. Elements at a bound or beyond get no gradient (before 2.15
 * PyTorch gives those at a bound theirs). */
TUTTI_API tutti_tensor *tutti_clamp(tutti_tensor *x, float min, float max);
TUTTI_API tutti_tensor *tutti_pow_scalar(tutti_tensor *x, float exponent); /* x^exponent */
TUTTI_API tutti_tensor *tutti_add_scalar(tutti_tensor *x, float value);    /* x + value */
/* 1 where x and value compare so, else 0, in F32 or x's 16-bit dtype, without gradient. x may be I64, which is
 * compared as F32. */
TUTTI_API tutti_tensor *tutti_eq_scalar(tutti_tensor *x, float value);
TUTTI_API tutti_tensor *tutti_ne_scalar(tutti_tensor *x, float value);
TUTTI_API tutti_tensor *tutti_lt_scalar(tutti_tensor *x, float value);
TUTTI_API tutti_tensor *tutti_le_scalar(tutti_tensor *x, float value);
TUTTI_API tutti_tensor *tutti_gt_scalar(tutti_tensor *x, float value);
TUTTI_API tutti_tensor *tutti_ge_scalar(tutti_tensor *x, float value);
/* x P(x), P the cumulative function of the normal distribution: (1 + erf(x / sqrt 2)) / 2, or PyTorch's approximate="tanh",
 * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2. */
typedef enum tutti_gelu_form { TUTTI_GELU_EXACT, TUTTI_GELU_TANH } tutti_gelu_form;
TUTTI_API tutti_tensor *tutti_gelu(tutti_tensor *x, tutti_gelu_form form);
TUTTI_API tutti_tensor *tutti_scale(tutti_tensor *x, float factor); /* x * factor */
/* x as F32, BF16 or F16, rounded to nearest even; x itself if it has that dtype. I64 becomes F32 only,
 * without a gradient. */
TUTTI_API tutti_tensor *tutti_cast(tutti_tensor *x, tutti_dtype dtype);

/* ---- Elementwise, with broadcasting --------------------------------------------------------- */

/* As in PyTorch, shapes are aligned at their last dimensions, and a dimension that is 1 or missing is
 * repeated; gradients are summed over it. */
TUTTI_API tutti_tensor *tutti_add(tutti_tensor *a, tutti_tensor *b); /* a + b */
TUTTI_API tutti_tensor *tutti_sub(tutti_tensor *a, tutti_tensor *b); /* a - b */
TUTTI_API tutti_tensor *tutti_mul(tutti_tensor *a, tutti_tensor *b); /* a * b */
TUTTI_API tutti_tensor *tutti_div(tutti_tensor *a, tutti_tensor *b); /* a / b */
TUTTI_API tutti_tensor *tutti_pow(tutti_tensor *a, tutti_tensor *b); /* a^b */
/* The lesser and the greater of a and b; NaN if one is. Equal ones get half of the gradient each. */
TUTTI_API tutti_tensor *tutti_minimum(tutti_tensor *a, tutti_tensor *b);
TUTTI_API tutti_tensor *tutti_maximum(tutti_tensor *a, tutti_tensor *b);
/* a where the condition is not zero, else b. The condition may have any dtype, and has no gradient; a and b may both be
 * I64. */
TUTTI_API tutti_tensor *tutti_where(tutti_tensor *condition, tutti_tensor *a, tutti_tensor *b);
/* value where the mask is not zero, else x. The mask may have any dtype, and has no gradient; if x is I64, value must be an
 * integer. */
TUTTI_API tutti_tensor *tutti_masked_fill(tutti_tensor *x, tutti_tensor *mask, double value);
/* 1 where a and b compare so, else 0, in F32 or the sources' 16-bit dtype, without gradient. Two I64 tensors are
 * compared exactly, I64 and a real tensor as F32. */
TUTTI_API tutti_tensor *tutti_eq(tutti_tensor *a, tutti_tensor *b);
TUTTI_API tutti_tensor *tutti_ne(tutti_tensor *a, tutti_tensor *b);
TUTTI_API tutti_tensor *tutti_lt(tutti_tensor *a, tutti_tensor *b);
TUTTI_API tutti_tensor *tutti_le(tutti_tensor *a, tutti_tensor *b);
TUTTI_API tutti_tensor *tutti_gt(tutti_tensor *a, tutti_tensor *b);
TUTTI_API tutti_tensor *tutti_ge(tutti_tensor *a, tutti_tensor *b);

/* ---- Shape ---------------------------------------------------------------------------------- */

TUTTI_API tutti_tensor *tutti_flatten(tutti_tensor *x); /* [N, ...] -> [N, K] */
/* The same elements, row-major, in another shape; one of its dimensions may be -1: computed from the others. */
TUTTI_API tutti_tensor *tutti_reshape(tutti_tensor *x, tutti_shape shape);
/* x with dimensions of size 1, and missing leading ones, repeated to `shape`; -1 keeps a dimension. */
TUTTI_API tutti_tensor *tutti_expand(tutti_tensor *x, tutti_shape shape);

/* Operations that only move elements: of any dtype, I64 too. The results are copies. */

TUTTI_API tutti_tensor *tutti_permute(tutti_tensor *x, tutti_dims dims); /* dims: each one once */
TUTTI_API tutti_tensor *tutti_transpose(tutti_tensor *x, int dim0, int dim1);
/* n tensors behind each other; their shapes may differ in dim only. */
TUTTI_API tutti_tensor *tutti_cat(tutti_tensor *const *tensors, int n, int dim);
/* x[start:end:step] in dim, with Python's rules: negative positions count from the end; INT64_MAX is the end. step >= 1 */
TUTTI_API tutti_tensor *tutti_slice(tutti_tensor *x, int dim, int64_t start, int64_t end,
                                    int64_t step);

/* ---- Rows by index -------------------------------------------------------------------------- */

/* Row indices[..] of weight [V,D] for each index (I64, any shape) -> [..,D]. An index outside 0..V-1 poisons the result;
 * the message names its place. */
TUTTI_API tutti_tensor *tutti_functional_embedding(tutti_tensor *weight, tutti_tensor *indices);

/* ---- Reductions ----------------------------------------------------------------------------- */

TUTTI_API tutti_tensor *tutti_mean(tutti_tensor *x); /* of all elements: a scalar */

/* ---- Softmax -------------------------------------------------------------------------------- */

TUTTI_API tutti_tensor *tutti_softmax(tutti_tensor *x);     /* over the last dimension */
TUTTI_API tutti_tensor *tutti_log_softmax(tutti_tensor *x); /* over the last dimension */

/* ---- Products ------------------------------------------------------------------------------- */

/* x [..,K], weight [M,K], bias [M] or NULL -> [..,M] */
TUTTI_API tutti_tensor *tutti_functional_linear(tutti_tensor *x, tutti_tensor *weight,
                                                tutti_tensor *bias);

/* ---- Convolution ---------------------------------------------------------------------------- */

typedef struct tutti_conv2d_opts {
    int stride, padding;  /* in both dimensions; stride 0 means 1. Groups 1, dilation 1 */
    uint64_t reserved[4]; /* zero */
} tutti_conv2d_opts;

/* x [N,C,H,W], weight [M,C,kh,kw], bias [M] or NULL -> [N,M,H',W'] */
TUTTI_API tutti_tensor *tutti_functional_conv2d(tutti_tensor *x, tutti_tensor *weight,
                                                tutti_tensor *bias, tutti_conv2d_opts opts);
/* ---- Pools ---------------------------------------------------------------------------------- */

typedef struct tutti_pool_opts {
    int kernel, stride, padding; /* square windows; stride 0: the kernel's size */
    uint64_t reserved[4];        /* zero */
} tutti_pool_opts;

/* [N,C,H,W]; pads with -inf */
TUTTI_API tutti_tensor *tutti_max_pool2d(tutti_tensor *x, tutti_pool_opts opts);
/* Mean over the window; padding counts as zeros and is counted (PyTorch's count_include_pad). */
TUTTI_API tutti_tensor *tutti_avg_pool2d(tutti_tensor *x, tutti_pool_opts opts);
TUTTI_API tutti_tensor *tutti_global_avg_pool2d(tutti_tensor *x); /* [N,C,H,W] -> [N,C,1,1] */

/* ---- Normalisation -------------------------------------------------------------------------- */

/* The ranks that an operation computes with: two functions that exchange floats, made from a group by tutti_group_peers
 * (ddp.h). Both block; all ranks call them in the same order. */
typedef struct tutti_peers {
    void *self;
    int rank, size; /* size 0 or 1: alone, nothing is called */
    /* all (size x n) = every rank's n values, in rank order */
    tutti_status (*all_gather)(void *self, const float *values, size_t n, float *all);
    /* values = their sum over all ranks, in rank order */
    tutti_status (*sum)(void *self, float *values, size_t n);
    uint64_t reserved[4]; /* zero */
} tutti_peers;

typedef struct tutti_batch_norm2d_args {
    tutti_tensor *weight, *bias;              /* [C] parameters */
    tutti_tensor *running_mean, *running_var; /* [C] buffers: read in eval, updated in training */
    /* 0: PyTorch's 0.1 and 1e-5. TUTTI_ZERO: running statistics stay as they are; nothing is added to the variance */
    float momentum, eps;
    bool relu;                /* max(., 0) of the result, in the same pass */
    tutti_tensor *residual;   /* added before the relu; NULL: none */
    const tutti_peers *peers; /* training: normalise over their batches too; NULL: only this batch.
                                 Borrowed until backward is done */
    uint64_t reserved[4];     /* zero */
} tutti_batch_norm2d_args;

/* Over N, H, W of x [N,C,H,W]; biased variance to normalise, unbiased into running_var, as in PyTorch. With peers
 * (SyncBatchNorm) over all of their values, in forward (2C + 1 floats a rank) and backward (2C); batches may differ in
 * size and be empty (N = 0). The gradients of weight and bias stay this rank's share: DDP averages them. */
TUTTI_API tutti_tensor *tutti_functional_batch_norm2d(tutti_tensor *x,
                                                      const tutti_batch_norm2d_args *args);

/* ---- Random --------------------------------------------------------------------------------- */

/* Zeroes each element with probability p and scales the rest by 1/(1-p); the identity in eval steps. The mask is
 * Philox(seed; step, shard, number of the call in the step, element). */
TUTTI_API tutti_tensor *tutti_dropout(tutti_tensor *x, float p);

/* ---- Losses --------------------------------------------------------------------------------- */

/* What becomes of the losses of all elements, or of all labels. Options may be NULL: those of PyTorch. Sources of a loss must have
 * the same shape, if nothing else is said. */
typedef enum tutti_reduction {
    TUTTI_REDUCTION_MEAN,
    TUTTI_REDUCTION_SUM,
    TUTTI_REDUCTION_NONE,     /* the loss of each */
    TUTTI_REDUCTION_BATCHMEAN /* the sum, divided by the first dimension: kl_div */
} tutti_reduction;

/* Mean cross entropy of logits [N,C] with labels [N] (I64). Labels equal to -100 are ignored, as in PyTorch: not
 * counted in the mean. Other labels outside 0..C-1 poison the result; the message names the row. */
TUTTI_API tutti_tensor *tutti_cross_entropy(tutti_tensor *logits, tutti_tensor *labels);
typedef struct tutti_cross_entropy_opts {
    float label_smoothing; /* in [0, 1]: this share of the target is spread over all classes */
    bool has_ignore_index;
    int64_t ignore_index; /* instead of -100, if has_ignore_index */
    /* [C], of each class, without gradient; NULL: 1. A mean is then divided by the sum of the labels' weights. */
    tutti_tensor *weight;
    tutti_reduction reduction;
    uint64_t reserved[4]; /* zero */
} tutti_cross_entropy_opts;
/* Of logits [N,C], [N,C,d1,...] or [C] with labels [N], [N,d1,...] or a scalar; or with probabilities in logits' shape (F32), of
 * which none is ignored, and whose mean is over N d1 ... */
TUTTI_API tutti_tensor *tutti_cross_entropy_with(tutti_tensor *logits, tutti_tensor *labels,
                                                 const tutti_cross_entropy_opts *opts);

typedef struct tutti_nll_loss_opts {
    tutti_reduction reduction;
    tutti_tensor *weight; /* as for cross_entropy */
    bool has_ignore_index;
    int64_t ignore_index; /* instead of -100, if has_ignore_index */
    uint64_t reserved[4]; /* zero */
} tutti_nll_loss_opts;
/* Minus the element of x, log-probabilities, that belongs to the label, times its class's weight; shapes as for cross_entropy. */
TUTTI_API tutti_tensor *tutti_nll_loss(tutti_tensor *x, tutti_tensor *labels,
                                       const tutti_nll_loss_opts *opts);

typedef struct tutti_loss_opts {
    tutti_reduction reduction;
    uint64_t reserved[4]; /* zero */
} tutti_loss_opts;
/* (x - target)^2 */
TUTTI_API tutti_tensor *tutti_mse_loss(tutti_tensor *x, tutti_tensor *target); /* mean */
TUTTI_API tutti_tensor *tutti_mse_loss_with(tutti_tensor *x, tutti_tensor *target,
                                            const tutti_loss_opts *opts);
/* |x - target| */
TUTTI_API tutti_tensor *tutti_l1_loss(tutti_tensor *x, tutti_tensor *target,
                                      const tutti_loss_opts *opts);

typedef struct tutti_smooth_l1_loss_opts {
    tutti_reduction reduction;
    float beta;           /* 0: 1; TUTTI_ZERO: l1_loss */
    uint64_t reserved[4]; /* zero */
} tutti_smooth_l1_loss_opts;
/* With d = |x - target|: d^2 / (2 beta) where d < beta, else d - beta / 2. */
TUTTI_API tutti_tensor *tutti_smooth_l1_loss(tutti_tensor *x, tutti_tensor *target,
                                             const tutti_smooth_l1_loss_opts *opts);

typedef struct tutti_huber_loss_opts {
    tutti_reduction reduction;
    float delta;          /* 0: 1; must be positive */
    uint64_t reserved[4]; /* zero */
} tutti_huber_loss_opts;
/* With d = |x - target|: d^2 / 2 where d <= delta, else delta (d - delta / 2). */
TUTTI_API tutti_tensor *tutti_huber_loss(tutti_tensor *x, tutti_tensor *target,
                                         const tutti_huber_loss_opts *opts);

typedef struct tutti_kl_div_opts {
    tutti_reduction reduction;
    bool log_target;      /* target, too, contains logarithms */
    uint64_t reserved[4]; /* zero */
} tutti_kl_div_opts;
/* target (log target - x), x log-probabilities. The divergence of a batch is TUTTI_REDUCTION_BATCHMEAN. */
TUTTI_API tutti_tensor *tutti_kl_div(tutti_tensor *x, tutti_tensor *target,
                                     const tutti_kl_div_opts *opts);

typedef struct tutti_binary_cross_entropy_opts {
    tutti_reduction reduction;
    tutti_tensor *weight;     /* of each loss, broadcast to x; NULL: 1 */
    tutti_tensor *pos_weight; /* with logits only: of the first term, broadcast to x; NULL: 1 */
    uint64_t reserved[4];     /* zero */
} tutti_binary_cross_entropy_opts;
/* -(target log x + (1 - target) log(1 - x)), where logarithms are at least -100. x: probabilities; the loss of others is NaN. */
TUTTI_API tutti_tensor *tutti_binary_cross_entropy(tutti_tensor *x, tutti_tensor *target,
                                                   const tutti_binary_cross_entropy_opts *opts);
/* -(pos_weight target log s + (1 - target) log(1 - s)), s = sigmoid(x) */
TUTTI_API tutti_tensor *tutti_binary_cross_entropy_with_logits(
    tutti_tensor *x, tutti_tensor *target, const tutti_binary_cross_entropy_opts *opts);

typedef struct tutti_poisson_nll_loss_opts {
    tutti_reduction reduction;
    bool linear_input;    /* x is the rate, not its logarithm: PyTorch's log_input=False */
    bool full;            /* also add log(target!), by Stirling's formula, where target > 1 */
    float eps;            /* 0: 1e-8; TUTTI_ZERO: nothing is added to a linear x */
    uint64_t reserved[4]; /* zero */
} tutti_poisson_nll_loss_opts;
/* e^x - target x, or if linear x - target log(x + eps) */
TUTTI_API tutti_tensor *tutti_poisson_nll_loss(tutti_tensor *x, tutti_tensor *target,
                                               const tutti_poisson_nll_loss_opts *opts);

typedef struct tutti_gaussian_nll_loss_opts {
    tutti_reduction reduction;
    bool full;            /* also add log(2 pi) / 2 */
    float eps;            /* 0: 1e-6; must be positive */
    uint64_t reserved[4]; /* zero */
} tutti_gaussian_nll_loss_opts;
/* (log v + (x - target)^2 / v) / 2, v = max(variance, eps), whose gradient is that of the variance. */
TUTTI_API tutti_tensor *tutti_gaussian_nll_loss(tutti_tensor *x, tutti_tensor *target,
                                                tutti_tensor *variance,
                                                const tutti_gaussian_nll_loss_opts *opts);

/* log(1 + exp(-target x)), target -1 or 1 */
TUTTI_API tutti_tensor *tutti_soft_margin_loss(tutti_tensor *x, tutti_tensor *target,
                                               const tutti_loss_opts *opts);
typedef struct tutti_margin_loss_opts {
    tutti_reduction reduction;
    float margin;         /* 0: 1 for hinge_embedding_loss, else 0; TUTTI_ZERO */
    uint64_t reserved[4]; /* zero */
} tutti_margin_loss_opts;
/* x where target is 1, max(0, margin - x) where it is -1. */
TUTTI_API tutti_tensor *tutti_hinge_embedding_loss(tutti_tensor *x, tutti_tensor *target,
                                                   const tutti_margin_loss_opts *opts);
/* max(0, margin - target (a - b)), target -1 or 1 */
TUTTI_API tutti_tensor *tutti_margin_ranking_loss(tutti_tensor *a, tutti_tensor *b,
                                                  tutti_tensor *target,
                                                  const tutti_margin_loss_opts *opts);
/* With c the cosine of a and b, [N,D] or [D], over D: 1 - c where target, [N] or a scalar, is 1, max(0, c - margin) where it is
 * -1. */
TUTTI_API tutti_tensor *tutti_cosine_embedding_loss(tutti_tensor *a, tutti_tensor *b,
                                                    tutti_tensor *target,
                                                    const tutti_margin_loss_opts *opts);
typedef struct tutti_triplet_margin_loss_opts {
    tutti_reduction reduction;
    float margin;         /* 0: 1; TUTTI_ZERO */
    float p;              /* of the norm; 0: 2 */
    float eps;            /* 0: 1e-6; TUTTI_ZERO */
    bool swap;            /* the lesser of the distances from negative to anchor and to positive */
    uint64_t reserved[4]; /* zero */
} tutti_triplet_margin_loss_opts;
/* max(0, margin + d(anchor, positive) - d(anchor, negative)), d the pairwise_distance; all [N,D] or [D]. */
TUTTI_API tutti_tensor *tutti_triplet_margin_loss(tutti_tensor *anchor, tutti_tensor *positive,
                                                  tutti_tensor *negative,
                                                  const tutti_triplet_margin_loss_opts *opts);

/* ---- Distances ------------------------------------------------------------------------------ */

/* sum(a b) / (max(|a|, eps) max(|b|, eps)) over dim, which the result lacks; a and b are broadcast. PyTorch's defaults are dim 1 and
 * eps 1e-8. */
TUTTI_API tutti_tensor *tutti_cosine_similarity(tutti_tensor *a, tutti_tensor *b, int dim,
                                                float eps);
/* The p-norm of a - b + eps over the last dimension, which becomes 1 if keepdim, else is left out; p is not 0, and may be
 * INFINITY. a and b have the same shape. PyTorch's defaults are 2, 1e-6 and false. */
TUTTI_API tutti_tensor *tutti_pairwise_distance(tutti_tensor *a, tutti_tensor *b, float p,
                                                float eps, bool keepdim);

#ifdef __cplusplus
}
#endif
#endif
