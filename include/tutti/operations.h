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

/* The ranks that an operation computes with: functions that exchange floats, made from a group by tutti_group_peers
 * (ddp.h). They block; all ranks call them in the same order. stream: on whose device the values are, after the work submitted to it;
 * NULL: in host memory. */
typedef struct tutti_peers {
    void *self;
    int rank, size; /* size 0 or 1: alone, nothing is called */
    /* all (size x n) = every rank's n values, in rank order */
    tutti_status (*all_gather)(void *self, tutti_stream *stream, const float *values, size_t n,
                               float *all);
    /* values = their sum over all ranks, in rank order */
    tutti_status (*sum)(void *self, tutti_stream *stream, float *values, size_t n);
    /* own (n) = values number rank, of n each, of the sum of all ranks' (size x n), which may be written; NULL: by sum */
    tutti_status (*reduce_scatter)(void *self, tutti_stream *stream, float *values, size_t n,
                                   float *own);
    /* This rank has failed and calls nothing any more: calls of the others fail with `why`. Of layers divided among ranks; NULL: the
     * others wait for as long as they do. */
    void (*abort)(void *self, tutti_status status, const char *why);
    /* Layers divided among ranks: whatever the size, their sums are of so many parts, in one order, so that the bits do not depend on the
     * size; a power of two, of which the size is a divisor. 0: of one part a rank, in rank order. Set by tutti_group_peers_of_parts. */
    int parts;
    uint64_t reserved[1]; /* zero */
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

/* ---- Attention ------------------------------------------------------------------------------ */

/* Zero means default. */
typedef struct tutti_attention_opts {
    /* Broadcast to [..,H,L,S]. Real: added to the scores, -INFINITY where a key takes no part; I64, PyTorch's booleans: a key takes
     * part where it is not 0. NULL: none. A query without keys has the result 0. */
    tutti_tensor *attn_mask;
    float dropout_p; /* of the softmax's results; 0 in eval steps */
    float scale;     /* 0: 1 / sqrt(D); TUTTI_ZERO */
    bool is_causal;  /* query i sees keys up to i only; a mask may be given, too */
    bool
        causal_lower_right; /* up to i + S - L: the last query sees all, as behind a cache of keys */
    /* Fewer heads of k and v than of q, which share them in equal groups. scaled_dot_product_attention only: whether k and v may have
     * them. multi_head_attention only: their number; 0: as many as of q. */
    bool enable_gqa;
    int kv_heads;
    /* Of heads that are divided among ranks: this one has those from first_head on of all_heads, for which dropout draws their numbers;
     * 0, 0: all. */
    int first_head, all_heads;
    uint64_t reserved[3]; /* zero */
} tutti_attention_opts;

/* softmax(scale q k^T + mask) v for each head: q [..,H,L,D], k [..,H,S,D], v [..,H,S,Dv] -> [..,H,L,Dv]. The leading dimensions
 * are broadcast, and may be absent. Memory is linear in L and S: backward computes the scores again. */
TUTTI_API tutti_tensor *tutti_scaled_dot_product_attention(tutti_tensor *q, tutti_tensor *k,
                                                           tutti_tensor *v,
                                                           const tutti_attention_opts *opts);
/* The same where heads are columns, so that none is moved: q [N,L,heads*D], k [N,S,kv_heads*D], v [N,S,kv_heads*Dv]
 * -> [N,L,heads*Dv]. With k and v NULL, q is [N,L,(heads+2*kv_heads)*D]: queries, keys and values, one behind the other in each row. */
TUTTI_API tutti_tensor *tutti_multi_head_attention(tutti_tensor *q, tutti_tensor *k,
                                                   tutti_tensor *v, int heads,
                                                   const tutti_attention_opts *opts);

typedef enum tutti_rope_scaling {
    TUTTI_ROPE_PLAIN,
    TUTTI_ROPE_LINEAR, /* angles divided by factor */
    TUTTI_ROPE_LLAMA3  /* only those of long waves, with a transition */
} tutti_rope_scaling;

/* Zero means default: Llama's. */
typedef struct tutti_rope_opts {
    double theta;     /* 0: 10000 */
    int64_t position; /* of the first row of x, as behind a cache of keys */
    tutti_rope_scaling scaling;
    double factor;            /* 0: 8 */
    double low_freq_factor;   /* llama3; 0: 1 */
    double high_freq_factor;  /* llama3; 0: 4 */
    int64_t original_context; /* llama3: tokens before scaling; 0: 8192 */
    uint64_t reserved[4];     /* zero */
} tutti_rope_opts;

/* Rotary positions: in each head of x [N,T,heads*D], the pairs (i, i + D/2) are rotated by (position + t) theta^(-2i/D), as
 * Hugging Face's Llama does, with its rounding of angles. D is even. opts may be NULL. */
TUTTI_API tutti_tensor *tutti_rope(tutti_tensor *x, int heads, const tutti_rope_opts *opts);

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

/* What becomes of the losses of all elements, or of all labels. Options may be NULL: those of PyTorch. Sources of a loss must have
 * the same shape, if nothing else is said. */
typedef enum tutti_reduction {
    TUTTI_REDUCTION_MEAN,
    TUTTI_REDUCTION_SUM,
    TUTTI_REDUCTION_NONE,     /* the loss of each */
    TUTTI_REDUCTION_BATCHMEAN /* the sum, divided by the first dimension: kl_div */
} tutti_reduction;

/* Mean cross entropy of logits [N,C] with labels [N] (I64), or of the other shapes of tutti_cross_entropy_with. Labels equal to -100 are ignored, as in PyTorch: not
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

typedef struct tutti_linear_cross_entropy_opts {
    float label_smoothing; /* this and the next four: as for cross_entropy */
    bool has_ignore_index;
    int64_t ignore_index;
    tutti_tensor *weight;
    tutti_reduction reduction;
    /* rows whose logits exist at once, about; 0: as many as 64 MiB hold, at least 64; or all, where their logits take no more than that and
     * the gradient of weight, of which several chunks need two */
    int64_t chunk_rows;
    uint64_t reserved[4]; /* zero */
} tutti_linear_cross_entropy_opts;
/* Cross entropy of the logits x weight^T + bias, for many classes V: x [..,K], weight [V,K], bias [V] or NULL, target [..] or, of
 * all rows, [R] (I64). The logits of all rows do not exist at once, nor do their gradients; for several chunks of rows, forward
 * computes the gradients, and a recorded step needs memory for weight's a second time. Class probabilities as target (F32), the
 * reduction NONE, a weight of classes, F16, and devices other than the CPU store the logits, as linear and cross_entropy do. */
TUTTI_API tutti_tensor *tutti_linear_cross_entropy(tutti_tensor *x, tutti_tensor *weight,
                                                   tutti_tensor *bias, tutti_tensor *target,
                                                   const tutti_linear_cross_entropy_opts *opts);

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
