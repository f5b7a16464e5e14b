/* own.h -- our own CUDA kernels, as the module exports them: pointers, sizes, a stream; no tensors.
 * SPDX-License-Identifier: MIT
 *
 * Unless stated otherwise, activations have a dtype of F32, BF16 or F16 and are stored channels last, [rows][channels]
 * with rows = N*H*W; statistics, weights and their gradients are F32. Sums are in F32 or wider and in an order that
 * depends on the sizes only. All pointers are device memory. 0 rows are fine. If tensors are not aligned to 16 bytes, the
 * kernels access single elements. */
#ifndef TUTTI_TENSOR_KERNEL_CUDA_OWN_H
#define TUTTI_TENSOR_KERNEL_CUDA_OWN_H

#include "device/cuda/module.h"
#include "tensor/attention.h"
#include "tensor/formula.h"
#include "tensor/jobs.h"
#include <tutti/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Elements of a dtype among F32, BF16, F16. */
typedef struct tutti__cuda_array {
    void *p;
    tutti_dtype dtype;
} tutti__cuda_array;

/* tutti__move's (tensor/kernel.h); elements of 2, 4, 8 or 16 bytes */
typedef struct tutti__cuda_moved {
    int n;
    int64_t size[TUTTI_MAX_DIMS], to_stride[TUTTI_MAX_DIMS], from_stride[TUTTI_MAX_DIMS];
    int element; /* bytes */
    bool add;    /* F32 */
} tutti__cuda_moved;

enum { TUTTI__CUDA_MAX_SOURCES = 4 };

/* The sources of an elementwise formula: element i of the result, row-major with these sizes, outermost first, reads of each source
 * what is at i's indices times its strides. */
typedef struct tutti__cuda_elements {
    tutti__formula formula;
    float constants[2];
    int64_t n;                                      /* elements of the result */
    tutti__cuda_array src[TUTTI__CUDA_MAX_SOURCES]; /* p NULL: 1 */
    bool flat;                                      /* all are as large as the result */
    int n_dims;
    int64_t size[TUTTI_MAX_DIMS], stride[TUTTI__CUDA_MAX_SOURCES][TUTTI_MAX_DIMS];
} tutti__cuda_elements;

/* Which dimensions are kept and which are folded, outermost first, with strides of the source. */
typedef struct tutti__cuda_fold {
    tutti__fold_kind kind;
    int n_kept, n_folded;
    int64_t kept_size[TUTTI_MAX_DIMS], kept_stride[TUTTI_MAX_DIMS];
    int64_t folded_size[TUTTI_MAX_DIMS], folded_stride[TUTTI_MAX_DIMS];
    int64_t kept, folded; /* their numbers of elements */
    const float *given;   /* [kept]; NULL: 0 */
    double divisor;
    bool root; /* of the result: its square root */
    double power;
} tutti__cuda_fold;

typedef struct tutti__cuda_batch_norm {
    int64_t rows, channels;
    tutti_dtype dtype;
    bool relu;
    const float *w, *b;    /* [C] */
    float *mean, *inv_std; /* [C], of the batch or running */
} tutti__cuda_batch_norm;

/* Outputs of batch norm's statistics. */
typedef struct tutti__cuda_running {
    float *mean, *var; /* [C], or NULL: not updated */
    float momentum, eps;
    double count; /* values per channel */
} tutti__cuda_running;

/* Outputs of sums over rows: each NULL if not wanted. */
typedef struct tutti__cuda_sums {
    double *sums;
    float *db, *dw; /* [C]: = the first and the second of the sums, or += */
    bool add_db, add_dw;
} tutti__cuda_sums;

typedef struct tutti__cuda_windows {
    int64_t N, C, H, W, out_h, out_w;
    int64_t kernel[2], stride[2], padding[2], dilation[2]; /* of H, W */
    int64_t divisor;                                       /* as in tutti__pool */
    bool exclude_padding;
    tutti_dtype dtype;
} tutti__cuda_windows;

typedef struct tutti__cuda_mask {
    uint64_t key;
    uint32_t step, shard, call;
    float p;
    /* [rows][channels] whose elements are numbered as [n][channels][plane], rows = n * plane. Row-major: channels 1. */
    int64_t channels, plane;
} tutti__cuda_mask;

/* As tutti__row_norm (tensor/kernel.h), F32. */
typedef struct tutti__cuda_norm {
    int64_t rows, width, groups, length;
    float eps;
    bool centred;
    const float *x, *weight; /* weight NULL: 1 */
    float *moments;          /* [2][rows] */
} tutti__cuda_norm;

typedef struct tutti__cuda_cross_entropy {
    int64_t N, C; /* logits [N][C], F32 */
    float smoothing;
    int64_t ignore_index;
} tutti__cuda_cross_entropy;

/* Ranks that have parts of the classes. sums NULL: none */
typedef struct tutti__cuda_parts {
    int64_t first, classes; /* of the first logit here; of all ranks */
    int ranks, rank;
    const double *sums; /* [ranks][rows][4]: tutti__row_sums */
} tutti__cuda_parts;

typedef struct tutti__cuda_own {
    /* ---- Copies ---- */
    tutti_status (*cast)(int device, void *stream, tutti__cuda_array to, tutti__cuda_array from,
                         int64_t n);
    /* to [batch][columns][rows] = from [batch][rows][columns], or += it. NCHW to NHWC: N, C, H*W; back: N, H*W, C. */
    tutti_status (*transpose)(int device, void *stream, tutti__cuda_array to,
                              tutti__cuda_array from, int64_t batch, int64_t rows, int64_t columns,
                              bool add);

    tutti_status (*move)(int device, void *stream, void *to, const void *from,
                         const tutti__cuda_moved *c);
    tutti_status (*fill)(int device, void *stream, tutti__cuda_array to, float value, int64_t n);

    /* ---- Elementwise; all of `dtype`; y may be a source ---- */
    tutti_status (*relu)(int device, void *stream, tutti_dtype dtype, void *y, const void *x,
                         int64_t n);
    /* dx = dy where y > 0 (or is NaN), else 0 */
    tutti_status (*relu_backward)(int device, void *stream, tutti_dtype dtype, void *dx,
                                  const void *dy, const void *y, int64_t n);
    tutti_status (*add)(int device, void *stream, tutti_dtype dtype, void *y, const void *a,
                        const void *b, int64_t n);
    /* y [n / channels][channels] += b [channels], in each row */
    tutti_status (*add_bias)(int device, void *stream, tutti_dtype dtype, void *y, const float *b,
                             int64_t n, int64_t channels);
    /* The mask depends on the element's row-major index: Philox(key; step, shard, call, index / 4). */
    tutti_status (*dropout)(int device, void *stream, tutti_dtype dtype, void *y, const void *x,
                            int64_t n, const tutti__cuda_mask *c);

    /* y [n] = the formula of the sources */
    tutti_status (*formula)(int device, void *stream, tutti__cuda_array y,
                            const tutti__cuda_elements *e);
    /* dx [n] = the gradient of source `source`, not yet summed where that is broadcast */
    tutti_status (*formula_backward)(int device, void *stream, tutti__cuda_array dx, int source,
                                     tutti__cuda_array dy, tutti__cuda_array y,
                                     const tutti__cuda_elements *e);

    /* Number i of all i < n (tensor/jobs.h) */
    tutti_status (*job)(int device, void *stream, const tutti__each_job *job, int64_t n);

    /* ---- Folds over dimensions; `to` may be I64 ---- */
    size_t (*fold_scratch)(const tutti__cuda_fold *f); /* bytes */
    tutti_status (*fold)(int device, void *stream, tutti__cuda_array to, tutti__cuda_array from,
                         const tutti__cuda_fold *f, void *scratch);

    /* ---- Batch norm ---- */
    size_t (*batch_norm_scratch)(int64_t rows, int64_t channels); /* bytes */
    /* moments [2][C] = mean and sum of squared deviations. Unless r is NULL, also does what `statistics` does. */
    tutti_status (*batch_norm_moments)(int device, void *stream, const tutti__cuda_batch_norm *c,
                                       const void *x, void *scratch, double *moments,
                                       const tutti__cuda_running *r);
    /* Sets c->mean and c->inv_std from moments (biased), and moves the running ones (unbiased) towards them; moments NULL:
     * sets them from the running ones, which do not change. */
    tutti_status (*batch_norm_statistics)(int device, void *stream, const tutti__cuda_batch_norm *c,
                                          const double *moments, const tutti__cuda_running *r);
    /* y = [relu]((x - mean) * (w * inv_std) + b [+ residual]) */
    tutti_status (*batch_norm_apply)(int device, void *stream, const tutti__cuda_batch_norm *c,
                                     void *y, const void *x, const void *residual);
    /* g = dy, or 0 where the relu's output y is 0 (with c->relu); dresidual = g if wanted. to->sums [2][C]: of g and of
     * g * xhat. */
    tutti_status (*batch_norm_sums)(int device, void *stream, const tutti__cuda_batch_norm *c,
                                    const void *dy, const void *y, const void *x, void *dresidual,
                                    void *scratch, const tutti__cuda_sums *to);
    /* dx = w * inv_std * (g - sums[0] / count - xhat * sums[1] / count) */
    tutti_status (*batch_norm_gradient)(int device, void *stream, const tutti__cuda_batch_norm *c,
                                        const double *sums, double count, void *dx, const void *dy,
                                        const void *y, const void *x);
    /* to [C] (or +=) = the sum over rows: the gradient of a bias. scratch as in batch norm. */
    tutti_status (*sum_rows)(int device, void *stream, tutti_dtype dtype, float *to, const void *x,
                             int64_t rows, int64_t channels, bool add, void *scratch);

    /* ---- Pooling; an image has less than 2^31 pixels ---- */
    tutti_status (*max_pool)(int device, void *stream, const tutti__cuda_windows *c, void *y,
                             const void *x,
                             int32_t *index); /* shaped as y: row * W + column; -1: none */
    tutti_status (*max_pool_backward)(int device, void *stream, const tutti__cuda_windows *c,
                                      void *dx, const void *dy, const int32_t *index);
    tutti_status (*avg_pool)(int device, void *stream, const tutti__cuda_windows *c, void *y,
                             const void *x);
    tutti_status (*avg_pool_backward)(int device, void *stream, const tutti__cuda_windows *c,
                                      void *dx, const void *dy);
    /* [N][H*W][C] to [N][C] and back; out_h and the members after it are not used */
    tutti_status (*global_avg_pool)(int device, void *stream, const tutti__cuda_windows *c, void *y,
                                    const void *x);
    tutti_status (*global_avg_pool_backward)(int device, void *stream, const tutti__cuda_windows *c,
                                             void *dx, const void *dy);

    /* ---- Rows of F32 ---- */
    tutti_status (*softmax)(int device, void *stream, float *y, const float *x, int64_t rows,
                            int64_t width, bool log);
    tutti_status (*softmax_backward)(int device, void *stream, float *dx, const float *dy,
                                     const float *y, int64_t rows, int64_t width, bool log);
    /* sets c->moments; bias NULL: 0 */
    tutti_status (*norm)(int device, void *stream, const tutti__cuda_norm *c, float *y,
                         const float *bias);
    tutti_status (*norm_backward)(int device, void *stream, const tutti__cuda_norm *c, float *dx,
                                  const float *dy);
    /* products [rows][width] = dy (x - mean) inv_std: summed, the gradient of the weight */
    tutti_status (*norm_products)(int device, void *stream, const tutti__cuda_norm *c,
                                  float *products, const float *dy);
    /* saved [3 * N + 1]: for backward. labels are in [0, C), or ignore_index. */
    tutti_status (*cross_entropy)(int device, void *stream, const tutti__cuda_cross_entropy *c,
                                  float *loss, const float *logits, const int64_t *labels,
                                  float *saved);
    tutti_status (*cross_entropy_backward)(int device, void *stream,
                                           const tutti__cuda_cross_entropy *c, float *dx,
                                           const float *dloss, const float *logits,
                                           const int64_t *labels, const float *saved);
    /* If gradients are wanted, logits [rows][C] of F32 or 16 bit become (softmax - target) / divisor. */
    tutti_status (*label_rows)(int device, void *stream, const tutti__cuda_cross_entropy *c,
                               tutti__cuda_array logits, const int64_t *labels, float *loss,
                               bool gradients, double divisor, const tutti__cuda_parts *parts);
    /* sums [rows][4]: tutti__row_sums of logits of the classes from `first` on */
    tutti_status (*label_sums)(int device, void *stream, const tutti__cuda_cross_entropy *c,
                               tutti__cuda_array logits, const int64_t *labels, int64_t first,
                               double *sums);
    size_t (*mse_scratch)(int64_t n); /* bytes */
    tutti_status (*mse)(int device, void *stream, float *loss, const float *x, const float *target,
                        int64_t n, void *scratch);
    tutti_status (*mse_backward)(int device, void *stream, float *dx, const float *dloss,
                                 const float *x, const float *target, int64_t n);

    /* ---- Attention ---- */
    /* mask: of dropout. scratch: a float for each row of queries of all heads. */
    tutti_status (*attention)(int device, void *stream, const tutti__attention *c,
                              const tutti__cuda_mask *mask);
    tutti_status (*attention_backward)(int device, void *stream, const tutti__attention *c,
                                       const tutti__cuda_mask *mask, float *scratch);

    /* ---- Embedding: w [V][D], y [n][D]; indices are in [0, V) ---- */
    tutti_status (*embedding)(int device, void *stream, float *y, const float *w,
                              const int64_t *indices, int64_t n, int64_t D);
    /* dw += rows of dy, those of one index in order */
    tutti_status (*embedding_backward)(int device, void *stream, float *dw, const float *dy,
                                       const int64_t *indices, int64_t n, int64_t D);
} tutti__cuda_own;

/* module/own.cu: assembled from the families' files. */
extern const tutti__cuda_own tutti__cuda_own_table;

#ifdef __cplusplus
}
#endif
#endif
