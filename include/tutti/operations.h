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
TUTTI_API tutti_tensor *tutti_sum(tutti_tensor *x);  /* of all elements: a scalar */

/* Over the dimensions `dims`, {0} for all. keepdim: they stay, with size 1. A scalar has the dimensions 0 and -1. All are computed
 * in double, with one rounding of the result. Of no elements (an empty first dimension) the largest, the smallest, and norms with p
 * < 0 or inf are refused. */
TUTTI_API tutti_tensor *tutti_sum_dim(tutti_tensor *x, tutti_dims dims, bool keepdim);
TUTTI_API tutti_tensor *tutti_mean_dim(tutti_tensor *x, tutti_dims dims, bool keepdim);
/* sum (x - mean)^2 / max(0, n - correction), and its root. PyTorch's default correction is 1. */
TUTTI_API tutti_tensor *tutti_var_dim(tutti_tensor *x, tutti_dims dims, float correction,
                                      bool keepdim);
TUTTI_API tutti_tensor *tutti_std_dim(tutti_tensor *x, tutti_dims dims, float correction,
                                      bool keepdim);
TUTTI_API tutti_tensor *tutti_prod(tutti_tensor *x, tutti_dims dims, bool keepdim);
/* log sum exp(x), without overflow */
TUTTI_API tutti_tensor *tutti_logsumexp(tutti_tensor *x, tutti_dims dims, bool keepdim);
/* torch.linalg.vector_norm, and torch.norm's p: (sum |x|^p)^(1/p); INFINITY: the largest |x|, -INFINITY: the smallest; 0: how many
 * are not 0. */
TUTTI_API tutti_tensor *tutti_vector_norm(tutti_tensor *x, float p, tutti_dims dims, bool keepdim);
/* The largest and smallest elements; equal ones share the gradient, as with torch.max(x) too. NaN if there is one. */
TUTTI_API tutti_tensor *tutti_amax(tutti_tensor *x, tutti_dims dims, bool keepdim);
TUTTI_API tutti_tensor *tutti_amin(tutti_tensor *x, tutti_dims dims, bool keepdim);
/* The same along one dimension, as the values of torch.max(x, dim): the gradient is that of the first of equal ones. */
TUTTI_API tutti_tensor *tutti_max_dim(tutti_tensor *x, int dim, bool keepdim);
TUTTI_API tutti_tensor *tutti_min_dim(tutti_tensor *x, int dim, bool keepdim);
/* Where it is, I64, without gradient. dims: one, or none: in the flattened x. */
TUTTI_API tutti_tensor *tutti_argmax(tutti_tensor *x, tutti_dims dims, bool keepdim);
TUTTI_API tutti_tensor *tutti_argmin(tutti_tensor *x, tutti_dims dims, bool keepdim);

/* Running sums and products along dim: y_k = x_0 + ... + x_k. */
TUTTI_API tutti_tensor *tutti_cumsum(tutti_tensor *x, int dim);
TUTTI_API tutti_tensor *tutti_cumprod(tutti_tensor *x, int dim);

/* The elements along dim in order, and where they were (I64, without gradient). Equal ones keep their order; NaN is larger than all
 * others. */
TUTTI_API tutti_tensor *tutti_sort(tutti_tensor *x, int dim, bool descending);
TUTTI_API tutti_tensor *tutti_argsort(tutti_tensor *x, int dim, bool descending);
/* The k largest (or smallest) along dim, in order. Where they were: the first k of tutti_argsort. */
TUTTI_API tutti_tensor *tutti_topk(tutti_tensor *x, int64_t k, int dim, bool largest);

/* ---- Softmax -------------------------------------------------------------------------------- */

TUTTI_API tutti_tensor *tutti_softmax(tutti_tensor *x);     /* over the last dimension */
TUTTI_API tutti_tensor *tutti_log_softmax(tutti_tensor *x); /* over the last dimension */
/* Over dim. */
TUTTI_API tutti_tensor *tutti_softmax_dim(tutti_tensor *x, int dim);
TUTTI_API tutti_tensor *tutti_log_softmax_dim(tutti_tensor *x, int dim);
TUTTI_API tutti_tensor *tutti_softmin(tutti_tensor *x, int dim); /* softmax of -x */

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
/* The same of x [N,C] or [N,C,L], over N and L; and of x [N,C,D,H,W]. The residual has x's shape. */
TUTTI_API tutti_tensor *tutti_functional_batch_norm1d(tutti_tensor *x,
                                                      const tutti_batch_norm2d_args *args);
TUTTI_API tutti_tensor *tutti_functional_batch_norm3d(tutti_tensor *x,
                                                      const tutti_batch_norm2d_args *args);

/* In the following, weight and bias may be NULL, variances are biased, and eps 0 means PyTorch's 1e-5 (rms_norm: 2^-23), TUTTI_ZERO
 * none.
 *
 * (x - mean) / sqrt(variance + eps) * weight + bias over the last dimensions of x, normalized_shape, which weight and bias have. */
TUTTI_API tutti_tensor *tutti_functional_layer_norm(tutti_tensor *x, tutti_shape normalized_shape,
                                                    tutti_tensor *weight, tutti_tensor *bias,
                                                    float eps);
/* x / sqrt(mean of x^2 + eps) * weight over them. */
TUTTI_API tutti_tensor *tutti_functional_rms_norm(tutti_tensor *x, tutti_shape normalized_shape,
                                                  tutti_tensor *weight, float eps);
/* Of x [N,C,..], over each of `groups` groups of channels of each sample; weight and bias [C]. */
TUTTI_API tutti_tensor *tutti_functional_group_norm(tutti_tensor *x, int groups,
                                                    tutti_tensor *weight, tutti_tensor *bias,
                                                    float eps);
/* Over each channel of each sample. Without running statistics (PyTorch's default). */
TUTTI_API tutti_tensor *tutti_functional_instance_norm(tutti_tensor *x, tutti_tensor *weight,
                                                       tutti_tensor *bias, float eps);
/* x [N,C,L] or more: x / (k + alpha * mean of x^2 over `size` channels around it)^beta; channels that do not exist count as zeros.
 * 0 means PyTorch's 1e-4, 0.75 and 1. */
TUTTI_API tutti_tensor *tutti_functional_local_response_norm(tutti_tensor *x, int size, float alpha,
                                                             float beta, float k);
/* x / max(vector_norm of p over dim, eps); eps 0: PyTorch's 1e-12. */
TUTTI_API tutti_tensor *tutti_normalize(tutti_tensor *x, float p, int dim, float eps);

/* ---- Recurrent layers ----------------------------------------------------------------------- */

/* One layer, one direction, H features; the order of gates is PyTorch's. Several layers are several calls; the other direction is
 * one with `reverse`, and tutti_cat joins both. */
typedef struct tutti_recurrent_args {
    tutti_tensor *weight_ih,
        *weight_hh; /* [gates*H,K], [gates*H,H]: gates 4 (lstm), 3 (gru), 1 (rnn) */
    tutti_tensor *bias_ih, *bias_hh; /* [gates*H] or NULL */
    tutti_tensor *h0, *c0;           /* [N,H] or NULL: zeros; c0: lstm only */
    bool batch_first;                /* x and the result are [N,T,..] instead of [T,N,..] */
    bool reverse;                    /* from the last step to the first */
    bool relu;                       /* rnn: max(., 0) instead of tanh */
    uint64_t reserved[4];            /* zero */
} tutti_recurrent_args;

/* x [T,N,K], T steps -> h of every step [T,N,H]. *h_n and *c_n, if not NULL, become the states after the last step computed, [N,H];
 * poisoned with the result, NULL with it. Under autocast x, states and results are of 16 bit; it computes in F32.
 *   lstm: i, f, o = sigmoid, g = tanh of gx + gh; c = f c + i g; h = o tanh(c)     where gx = x weight_ih^T + bias_ih,
 *   gru: r, z = sigmoid(gx + gh), n = tanh(gx + r gh); h = (1 - z) n + z h         gh = h weight_hh^T + bias_hh
 *   rnn: h = tanh(gx + gh) */
TUTTI_API tutti_tensor *tutti_functional_lstm(tutti_tensor *x, const tutti_recurrent_args *args,
                                              tutti_tensor **h_n, tutti_tensor **c_n);
TUTTI_API tutti_tensor *tutti_functional_gru(tutti_tensor *x, const tutti_recurrent_args *args,
                                             tutti_tensor **h_n);
TUTTI_API tutti_tensor *tutti_functional_rnn(tutti_tensor *x, const tutti_recurrent_args *args,
                                             tutti_tensor **h_n);

/* ---- Random --------------------------------------------------------------------------------- */

/* Zeroes each element with probability p and scales the rest by 1/(1-p); the identity in eval steps. The mask is
 * Philox(seed; step, shard, number of the call in the step, element). */
TUTTI_API tutti_tensor *tutti_dropout(tutti_tensor *x, float p);

/* ---- Losses --------------------------------------------------------------------------------- */

/* Mean cross entropy of logits [N,C] with labels [N] (I64). Labels equal to -100 are ignored, as in PyTorch: not
 * counted in the mean. Other labels outside 0..C-1 poison the result; the message names the row. */
TUTTI_API tutti_tensor *tutti_cross_entropy(tutti_tensor *logits, tutti_tensor *labels);
typedef struct tutti_cross_entropy_opts {
    float label_smoothing; /* in [0, 1]: this share of the target is spread over all classes */
    bool has_ignore_index;
    int64_t ignore_index; /* instead of -100, if has_ignore_index */
    uint64_t reserved[4]; /* zero */
} tutti_cross_entropy_opts;
TUTTI_API tutti_tensor *tutti_cross_entropy_with(tutti_tensor *logits, tutti_tensor *labels,
                                                 const tutti_cross_entropy_opts *opts);
/* Mean of (x - target)^2 over all elements. */
TUTTI_API tutti_tensor *tutti_mse_loss(tutti_tensor *x, tutti_tensor *target);

#ifdef __cplusplus
}
#endif
#endif
