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

/* The same elements, row-major, in another shape, of any dtype; without a copy unless a kernel has them in its own order. */

TUTTI_API tutti_tensor *tutti_flatten(tutti_tensor *x); /* [N, ...] -> [N, K] */
/* Dimensions start_dim to end_dim as one; torch.flatten's defaults are 0 and -1. A scalar becomes [1]. */
TUTTI_API tutti_tensor *tutti_flatten_dims(tutti_tensor *x, int start_dim, int end_dim);
/* One of the dimensions may be -1: computed from the others. view is reshape. */
TUTTI_API tutti_tensor *tutti_reshape(tutti_tensor *x, tutti_shape shape);
TUTTI_API tutti_tensor *tutti_view(tutti_tensor *x, tutti_shape shape);
/* Without its dimensions of size 1; or without these, if they have it. */
TUTTI_API tutti_tensor *tutti_squeeze(tutti_tensor *x);
TUTTI_API tutti_tensor *tutti_squeeze_dim(tutti_tensor *x, int dim);
TUTTI_API tutti_tensor *tutti_squeeze_dims(tutti_tensor *x, tutti_dims dims);
/* With a dimension of size 1 in place dim of the result. */
TUTTI_API tutti_tensor *tutti_unsqueeze(tutti_tensor *x, int dim);

/* x with dimensions of size 1, and missing leading ones, repeated to `shape`; -1 keeps a dimension. */
TUTTI_API tutti_tensor *tutti_expand(tutti_tensor *x, tutti_shape shape);

/* Operations that only move elements: of any dtype, I64 too. The results are copies. */

TUTTI_API tutti_tensor *tutti_permute(tutti_tensor *x, tutti_dims dims); /* dims: each one once */
TUTTI_API tutti_tensor *tutti_transpose(tutti_tensor *x, int dim0, int dim1);
/* Dimension source.d[i] becomes destination.d[i]; the others keep their order. */
TUTTI_API tutti_tensor *tutti_movedim(tutti_tensor *x, tutti_dims source, tutti_dims destination);
/* n tensors behind each other; their shapes may differ in dim only. */
TUTTI_API tutti_tensor *tutti_cat(tutti_tensor *const *tensors, int n, int dim);
/* n tensors of one shape along a new dimension, place dim of the result. */
TUTTI_API tutti_tensor *tutti_stack(tutti_tensor *const *tensors, int n, int dim);
/* x[start:end:step] in dim, with Python's rules: negative positions count from the end; INT64_MAX is the end. step >= 1 */
TUTTI_API tutti_tensor *tutti_slice(tutti_tensor *x, int dim, int64_t start, int64_t end,
                                    int64_t step);
/* `length` elements of dim from `start` on, which must be there; select: one, without the dimension. Negative: from the end. */
TUTTI_API tutti_tensor *tutti_narrow(tutti_tensor *x, int dim, int64_t start, int64_t length);
TUTTI_API tutti_tensor *tutti_select(tutti_tensor *x, int dim, int64_t index);
/* Parts of x along dim, into the caller's array: of split_size elements each (the last may be smaller), at most n; of n sizes, whose
 * sum is the dimension's; of equal sizes, at most `chunks`. They return the number of parts; the array's other elements are NULL. On
 * errors all elements are poisoned, and they return 0. */
TUTTI_API int tutti_split(tutti_tensor *x, int64_t split_size, int dim, tutti_tensor **parts,
                          int n);
TUTTI_API int tutti_split_with_sizes(tutti_tensor *x, const int64_t *sizes, int n, int dim,
                                     tutti_tensor **parts);
TUTTI_API int tutti_chunk(tutti_tensor *x, int chunks, int dim, tutti_tensor **parts);
TUTTI_API tutti_tensor *tutti_flip(tutti_tensor *x, tutti_dims dims); /* in reverse */
/* Element i of dims.d[k] goes to i + shifts.d[k], from the end on to the beginning; without dims, x with its one shift counts as one
 * dimension. */
TUTTI_API tutti_tensor *tutti_roll(tutti_tensor *x, tutti_shape shifts, tutti_dims dims);
/* pad [n]: pairs of how many elements are added before and after a dimension (negative: removed), of the last dimension first. They
 * are `value`; or the dimension's: mirrored at the first and last element, these themselves, or from the other end. */
typedef enum tutti_pad_mode {
    TUTTI_PAD_CONSTANT,
    TUTTI_PAD_REFLECT,
    TUTTI_PAD_REPLICATE,
    TUTTI_PAD_CIRCULAR
} tutti_pad_mode;
TUTTI_API tutti_tensor *tutti_pad(tutti_tensor *x, const int64_t *pad, int n, tutti_pad_mode mode,
                                  float value);
/* Copies of x behind each other, times.d[i] of dimension i; more numbers than dimensions add leading ones. */
TUTTI_API tutti_tensor *tutti_repeat(tutti_tensor *x, tutti_shape times);
/* Each element `repeats` times in a row: of x as one dimension, or along dim. */
TUTTI_API tutti_tensor *tutti_repeat_interleave(tutti_tensor *x, int64_t repeats);
TUTTI_API tutti_tensor *tutti_repeat_interleave_dim(tutti_tensor *x, int64_t repeats, int dim);
/* x [..,M,N] where column - row <= diagonal (triu: >= diagonal), elsewhere 0. */
TUTTI_API tutti_tensor *tutti_tril(tutti_tensor *x, int64_t diagonal);
TUTTI_API tutti_tensor *tutti_triu(tutti_tensor *x, int64_t diagonal);
/* [..,C r r,H,W] -> [..,C,H r,W r], and back */
TUTTI_API tutti_tensor *tutti_pixel_shuffle(tutti_tensor *x, int64_t upscale_factor);
TUTTI_API tutti_tensor *tutti_pixel_unshuffle(tutti_tensor *x, int64_t downscale_factor);
typedef struct tutti_unfold_opts {
    int kernel[2], stride[2], padding[2],
        dilation[2];      /* of rows, of columns; 0: stride, dilation 1 */
    uint64_t reserved[4]; /* zero */
} tutti_unfold_opts;
/* torch.nn.functional.unfold: [N,C,H,W] or [C,H,W] -> [N,C kh kw,L], a column for each window; padded with 0. */
TUTTI_API tutti_tensor *tutti_unfold(tutti_tensor *x, tutti_unfold_opts opts);

/* ---- By index -------------------------------------------------------------------------------- */

/* Indices are I64. One that is out of range poisons the result; the message names its place. Gradients of repeated indices are added
 * in their order: the same bits with any number of threads. */

/* Row indices[..] of weight [V,D] for each index (any shape) -> [..,D]. */
TUTTI_API tutti_tensor *tutti_functional_embedding(tutti_tensor *weight, tutti_tensor *indices);
typedef struct tutti_embedding_opts {
    bool has_padding_idx;
    int64_t padding_idx; /* if has_padding_idx: this row gets no gradient; negative: from the end */
    uint64_t reserved[4]; /* zero */
} tutti_embedding_opts;
TUTTI_API tutti_tensor *tutti_functional_embedding_with(tutti_tensor *weight, tutti_tensor *indices,
                                                        const tutti_embedding_opts *opts);
/* y[i][j][k] = x[i][index[i][j][k]][k] for dim 1; index has as many dimensions as x, and is no larger than x but in dim. x of any
 * dtype. take_along_dim: the same, but index and x are broadcast to each other in other dimensions, and negative indices count from
 * the end. (tutti_gather and tutti_scatter are collectives: comm.h.) */
TUTTI_API tutti_tensor *tutti_functional_gather(tutti_tensor *x, int dim, tutti_tensor *index);
TUTTI_API tutti_tensor *tutti_take_along_dim(tutti_tensor *x, tutti_tensor *index, int dim);
/* Slices index[0], index[1], ... of dim; index [I]; x of any dtype. */
TUTTI_API tutti_tensor *tutti_index_select(tutti_tensor *x, int dim, tutti_tensor *index);
/* x, but y[i][index[i][j][k]][k] = src[i][j][k] for dim 1, or a value, or += src. Of several src for one place the last is there, and
 * has the gradient (in PyTorch any). index is no larger than src, nor than x but in dim. */
TUTTI_API tutti_tensor *tutti_functional_scatter(tutti_tensor *x, int dim, tutti_tensor *index,
                                                 tutti_tensor *src);
TUTTI_API tutti_tensor *tutti_scatter_value(tutti_tensor *x, int dim, tutti_tensor *index,
                                            float value);
TUTTI_API tutti_tensor *tutti_scatter_add(tutti_tensor *x, int dim, tutti_tensor *index,
                                          tutti_tensor *src);
/* labels [..] -> [..,classes], F32 (in PyTorch integers): 1 in each label's place, elsewhere 0; without gradient. classes -1: the
 * largest label and one. */
TUTTI_API tutti_tensor *tutti_one_hot(tutti_tensor *labels, int64_t classes);

/* ---- Reductions ----------------------------------------------------------------------------- */

TUTTI_API tutti_tensor *tutti_mean(tutti_tensor *x); /* of all elements: a scalar */

/* ---- Softmax -------------------------------------------------------------------------------- */

TUTTI_API tutti_tensor *tutti_softmax(tutti_tensor *x);     /* over the last dimension */
TUTTI_API tutti_tensor *tutti_log_softmax(tutti_tensor *x); /* over the last dimension */

/* ---- Products ------------------------------------------------------------------------------- */

/* x [..,K], weight [M,K], bias [M] or NULL -> [..,M] */
TUTTI_API tutti_tensor *tutti_functional_linear(tutti_tensor *x, tutti_tensor *weight,
                                                tutti_tensor *bias);
/* Matrix products sum in F32, and under autocast take 16 bit. matmul has torch.matmul's shapes: a [..,M,K], b [..,K,N] -> [..,M,N],
 * where the leading dimensions are broadcast; a vector a [K] is a row, b [K] a column, and the result has no such dimension. */
TUTTI_API tutti_tensor *tutti_matmul(tutti_tensor *a, tutti_tensor *b);
typedef struct tutti_matmul_opts {
    bool transpose_a;     /* a is [..,K,M]: a^T b, without a copy */
    bool transpose_b;     /* b is [..,N,K]: a b^T, as of queries and keys */
    uint64_t reserved[4]; /* zero */
} tutti_matmul_opts;
TUTTI_API tutti_tensor *tutti_matmul_with(tutti_tensor *a, tutti_tensor *b,
                                          const tutti_matmul_opts *opts);
TUTTI_API tutti_tensor *tutti_mm(tutti_tensor *a, tutti_tensor *b); /* [M,K] [K,N] -> [M,N] */
TUTTI_API tutti_tensor *tutti_bmm(tutti_tensor *a,
                                  tutti_tensor *b);                 /* [B,M,K] [B,K,N] -> [B,M,N] */
TUTTI_API tutti_tensor *tutti_mv(tutti_tensor *a, tutti_tensor *x); /* [M,K] [K] -> [M] */
TUTTI_API tutti_tensor *tutti_dot(tutti_tensor *a, tutti_tensor *b);   /* [K] [K] -> a scalar */
TUTTI_API tutti_tensor *tutti_outer(tutti_tensor *a, tutti_tensor *b); /* [M] [N] -> [M,N] */
/* beta * input + alpha * a b; input is broadcast to the product's shape, and not read, so may be NULL, if beta is 0. PyTorch's defaults are 1. */
TUTTI_API tutti_tensor *tutti_addmm(tutti_tensor *input, tutti_tensor *a, tutti_tensor *b,
                                    float beta, float alpha);
TUTTI_API tutti_tensor *tutti_baddbmm(tutti_tensor *input, tutti_tensor *a, tutti_tensor *b,
                                      float beta, float alpha);
/* torch.einsum of one or two operands: "bhqd,bhkd->bhqk". Labels are letters; "..." stands for leading dimensions, which are
 * broadcast; a label twice in an operand is its diagonal; labels that are not in the result are summed over. Without "->", the
 * result has "..." and all labels that are there once, in the alphabet's order (capitals first). */
TUTTI_API tutti_tensor *tutti_einsum(const char *equation, tutti_tensor *const *operands, int n);

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
