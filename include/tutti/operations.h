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

/* ---- Softmax -------------------------------------------------------------------------------- */

TUTTI_API tutti_tensor *tutti_softmax(tutti_tensor *x);     /* over the last dimension */
TUTTI_API tutti_tensor *tutti_log_softmax(tutti_tensor *x); /* over the last dimension */

/* ---- Products ------------------------------------------------------------------------------- */

/* x [..,K], weight [M,K], bias [M] or NULL -> [..,M] */
TUTTI_API tutti_tensor *tutti_functional_linear(tutti_tensor *x, tutti_tensor *weight,
                                                tutti_tensor *bias);

/* ---- Convolution ---------------------------------------------------------------------------- */

typedef struct tutti_conv2d_opts {
    int stride, padding;                 /* in both dimensions; stride 0 means 1 */
    int groups, dilation;                /* 0 means 1 */
    int stride_w, padding_w, dilation_w; /* of columns; 0: as of rows; padding_w -1: none */
    bool same;            /* PyTorch's padding="same": H' = H, W' = W; stride 1, padding 0 */
    uint64_t reserved[1]; /* zero */
} tutti_conv2d_opts;

/* x [N,C,H,W], weight [M,C/groups,kh,kw], bias [M] or NULL -> [N,M,H',W'],
 * H' = (H + 2 padding - dilation (kh - 1) - 1) / stride + 1. groups = C: depthwise. */
TUTTI_API tutti_tensor *tutti_functional_conv2d(tutti_tensor *x, tutti_tensor *weight,
                                                tutti_tensor *bias, tutti_conv2d_opts opts);
/* x [N,C,L], weight [M,C/groups,k], bias [M] or NULL -> [N,M,L']; stride_w, padding_w and dilation_w must be 0. */
TUTTI_API tutti_tensor *tutti_functional_conv1d(tutti_tensor *x, tutti_tensor *weight,
                                                tutti_tensor *bias, tutti_conv2d_opts opts);

typedef struct tutti_conv_transpose_opts {
    int stride, padding, output_padding; /* in both dimensions; stride 0 means 1 */
    int groups, dilation;                /* 0 means 1 */
    /* of columns; 0: as of rows; padding_w, output_padding_w -1: none */
    int stride_w, padding_w, output_padding_w, dilation_w;
    uint64_t reserved[4]; /* zero */
} tutti_conv_transpose_opts;

/* The gradient of x of a convolution, as an operation: x [N,M,H,W], weight [M,C/groups,kh,kw], bias [C] or NULL -> [N,C,H',W'],
 * H' = (H - 1) stride - 2 padding + dilation (kh - 1) + output_padding + 1; output_padding is below stride or dilation. */
TUTTI_API tutti_tensor *tutti_functional_conv_transpose2d(tutti_tensor *x, tutti_tensor *weight,
                                                          tutti_tensor *bias,
                                                          tutti_conv_transpose_opts opts);
/* x [N,M,L], weight [M,C/groups,k], bias [C] or NULL -> [N,C,L']; the options of columns must be 0. */
TUTTI_API tutti_tensor *tutti_functional_conv_transpose1d(tutti_tensor *x, tutti_tensor *weight,
                                                          tutti_tensor *bias,
                                                          tutti_conv_transpose_opts opts);

/* ---- Pools ---------------------------------------------------------------------------------- */

typedef struct tutti_pool_opts {
    int kernel, stride, padding; /* in both dimensions; stride 0: the kernel's size */
    int : 32;
    int kernel_w, stride_w, padding_w; /* of columns; 0: as of rows; padding_w -1: none */
    int16_t dilation, dilation_w;      /* of maxima; 0: 1, and as of rows */
    int divisor;                       /* of averages: instead of the number of pixels; 0: none */
    bool ceil_mode;                    /* rounds H' and W' up: the last windows reach beyond */
    bool exclude_padding;              /* of averages: PyTorch's count_include_pad=False */
    uint64_t reserved[1];              /* zero */
} tutti_pool_opts;

/* [N,C,H,W] -> [N,C,H',W'], H' = (H + 2 padding - dilation (kernel - 1) - 1) / stride + 1; pads with -inf */
TUTTI_API tutti_tensor *tutti_max_pool2d(tutti_tensor *x, tutti_pool_opts opts);
/* Mean over the window; padding counts as zeros, and is counted unless exclude_padding. */
TUTTI_API tutti_tensor *tutti_avg_pool2d(tutti_tensor *x, tutti_pool_opts opts);
/* [N,C,L] -> [N,C,L']; the options of columns must be 0. */
TUTTI_API tutti_tensor *tutti_max_pool1d(tutti_tensor *x, tutti_pool_opts opts);
TUTTI_API tutti_tensor *tutti_avg_pool1d(tutti_tensor *x, tutti_pool_opts opts);
TUTTI_API tutti_tensor *tutti_global_avg_pool2d(tutti_tensor *x); /* [N,C,H,W] -> [N,C,1,1] */
/* [N,C,H,W] -> [N,C,height,width]: pixel i of height is over rows floor(i H / height) to ceil((i + 1) H / height) - 1, columns
 * likewise. 0 keeps a dimension. */
TUTTI_API tutti_tensor *tutti_adaptive_avg_pool2d(tutti_tensor *x, int64_t height, int64_t width);
TUTTI_API tutti_tensor *tutti_adaptive_max_pool2d(tutti_tensor *x, int64_t height, int64_t width);
TUTTI_API tutti_tensor *tutti_adaptive_avg_pool1d(tutti_tensor *x, int64_t length); /* of [N,C,L] */
TUTTI_API tutti_tensor *tutti_adaptive_max_pool1d(tutti_tensor *x, int64_t length);

/* ---- Resizing images -------------------------------------------------------------------------- */

typedef enum tutti_interpolation {
    TUTTI_NEAREST,       /* pixel floor(i H / H') */
    TUTTI_NEAREST_EXACT, /* pixel floor((i + 1/2) H / H') */
    TUTTI_BILINEAR       /* between the pixels around (i + 1/2) H / H' - 1/2 */
} tutti_interpolation;

typedef struct tutti_interpolate_opts {
    int64_t height, width; /* of the result; 0: by the scale */
    /* H' = floor(H scale_h), and 1 / scale_h is used instead of H / H'; scale_w 0: as scale_h */
    double scale_h, scale_w;
    tutti_interpolation mode;
    bool align_corners;   /* bilinear: the corner pixels' centres meet, not the images' edges */
    uint64_t reserved[4]; /* zero */
} tutti_interpolate_opts;

/* [N,C,H,W] -> [N,C,H',W'] */
TUTTI_API tutti_tensor *tutti_interpolate(tutti_tensor *x, tutti_interpolate_opts opts);

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
