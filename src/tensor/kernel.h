/* kernel.h -- the arithmetic behind operations: one table a kernel family.
 * SPDX-License-Identifier: MIT
 *
 * kernel/reference is plain C, row-major, always built, the oracle; activations of kernel/onednn and kernel/cuda stay in
 * layouts of their own between operations. A table says all that it computes: nothing is inherited. What may be missing is
 * listed below it (TUTTI__KERNELS_OPTIONAL): the operation's own plain C (op.h) then takes its place, on any device and in any
 * dtype. A table that lacks another entry is refused where a context is made, by tutti__kernels_check. Most operations have
 * no entry at all. kernel/reference takes the operation's own plain C for ReLU, softmax, dropout, cross entropy and the mean squared
 * error: where another table does so too, the two do not check each other; gradient checks and PyTorch's values do.
 *
 * Destinations. y, dx, ... arrive without data: the kernel picks a layout, calls
 * tutti__tensor_alloc, and writes. dw and db of parameters arrive with data (row-major, possibly
 * in a bucket): the kernel writes, or adds if ->accumulate. A table of 16-bit kernels sees activations and their gradients
 * (x, y, dx, dy) of 16 bit, and weights, statistics, dw and db of F32 all the same: it rounds weights itself, sums in F32. A
 * NULL destination is not wanted. batch_norm_backward and relu_backward may take dy's memory for their result
 * (tutti__tensor_take): nothing reads dy after them. Sources may have any layout of the family; parameters and buffers are
 * always row-major. batch_norm_forward may leave y lazy (tensor.h); the same family then gets x of conv2d, and residual of
 * batch_norm_forward, as they are, and every other source computed (op.h). Results depend neither on timing nor on the number of threads, to the bit. */
#ifndef TUTTI_TENSOR_KERNEL_H
#define TUTTI_TENSOR_KERNEL_H

#include "tensor/tensor.h"

typedef enum tutti__direction {
    TUTTI__FORWARD,
    TUTTI__BACKWARD_DATA,
    TUTTI__BACKWARD_WEIGHTS
} tutti__direction;

typedef struct tutti__conv2d {
    int stride, padding;
} tutti__conv2d;

typedef struct tutti__pool {
    int kernel, stride, padding;
} tutti__pool;

typedef struct tutti__batch_norm {
    float momentum, eps;
    bool training, relu;
    const tutti_peers *peers; /* NULL unless training over several ranks */
} tutti__batch_norm;

/* What batch norm's forward keeps for its backward, in the arena. */
typedef struct tutti__batch_norm_saved {
    float *mean, *inv_std; /* [C] of the batch */
    void *mask;            /* kernels' own, for relu; may be NULL if backward looks at y */
    double count;          /* values a channel, of all ranks */
} tutti__batch_norm_saved;

/* Batch norm over several ranks, between a kernel's passes (kernel/peers.c). moments: saved->mean, squared deviations [C]
 * and saved->count of this rank's values become those of all ranks' values; also updates the running statistics, whatever
 * the kernels. sums [C]: of dy and of dy * xhat, here -> of all ranks. */
tutti_status tutti__peers_moments(const tutti__batch_norm *a, tutti__batch_norm_saved *saved,
                                  double *squares, tutti_tensor *running_mean,
                                  tutti_tensor *running_var);
tutti_status tutti__peers_sums(tutti_ctx *cx, const tutti_peers *peers, int64_t C, double *sum,
                               double *sum_xhat);

typedef struct tutti__cross_entropy {
    float label_smoothing;
    int64_t ignore_index;
} tutti__cross_entropy;

struct tutti__kernels {
    const char *name; /* "reference" */
    /* Makes cx->kernel_state (engine, caches; cx->threads is set) and frees it. NULL: there is none. */
    tutti_status (*open)(tutti_ctx *cx);
    void (*close)(tutti_ctx *cx);
    /* What else than this library their bits depend on, without commas, in text[size]; NULL: the name says it all. */
    void (*bits)(const tutti_ctx *cx, char *text, size_t size);
    void (*step_end)(tutti_ctx *cx); /* forgets what pointed into the arena; may be NULL */
    /* Whether these kernels compute with activations of this 16-bit dtype, then by the table `half`, which has the same
     * state. NULL: with none. */
    bool (*can_half)(tutti_ctx *cx, tutti_dtype dtype);
    const tutti__kernels *half;
    /* What runs where a source is an empty batch, of any dtype; NULL: this table. */
    const tutti__kernels *empty;

    /* dst (row-major, data set) = src in any layout, of the same dtype; adds if dst->accumulate. */
    tutti_status (*reorder)(tutti_tensor *dst, tutti_tensor *src);
    /* dst (without data) = src in another dtype of F32, BF16, F16. */
    tutti_status (*cast)(tutti_tensor *dst, tutti_tensor *src);

    /* y [N,M,H',W'] = x [N,C,H,W] * w [M,C,kh,kw] + b [M]; y->shape is set */
    tutti_status (*conv2d_forward)(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                   tutti_tensor *b, const tutti__conv2d *a);
    tutti_status (*conv2d_backward_data)(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *w,
                                         const tutti__conv2d *a);
    tutti_status (*conv2d_backward_weights)(tutti_tensor *dw, tutti_tensor *db, tutti_tensor *dy,
                                            tutti_tensor *x, const tutti__conv2d *a);

    /* y [R,M] = x [R,K] w[M,K]^T + b; leading dimensions are folded into R by the operation */
    tutti_status (*linear_forward)(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                   tutti_tensor *b);
    tutti_status (*linear_backward_data)(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *w);
    tutti_status (*linear_backward_weights)(tutti_tensor *dw, tutti_tensor *db, tutti_tensor *dy,
                                            tutti_tensor *x);

    /* y = [relu]((x - mean) * inv_std * w + b [+ residual]); running_* updated in training, used
     * in eval */
    tutti_status (*batch_norm_forward)(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                       tutti_tensor *b, tutti_tensor *residual,
                                       tutti_tensor *running_mean, tutti_tensor *running_var,
                                       const tutti__batch_norm *a, tutti__batch_norm_saved *saved);
    /* dresidual gets the gradient behind the relu */
    tutti_status (*batch_norm_backward)(tutti_tensor *dx, tutti_tensor *dw, tutti_tensor *db,
                                        tutti_tensor *dresidual, tutti_tensor *dy, tutti_tensor *y,
                                        tutti_tensor *x, tutti_tensor *w,
                                        const tutti__batch_norm *a,
                                        const tutti__batch_norm_saved *saved);

    tutti_status (*add_forward)(tutti_tensor *y, tutti_tensor *a, tutti_tensor *b);
    /* dst += src: both have data, layouts may differ; how backward joins two gradients */
    tutti_status (*add_to)(tutti_tensor *dst, tutti_tensor *src);

    /* argmax: kernels' own, kept in *saved */
    tutti_status (*max_pool_forward)(tutti_tensor *y, tutti_tensor *x, const tutti__pool *a,
                                     void **saved);
    tutti_status (*max_pool_backward)(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *x,
                                      const tutti__pool *a, void *saved);
    tutti_status (*avg_pool_forward)(tutti_tensor *y, tutti_tensor *x, const tutti__pool *a);
    tutti_status (*avg_pool_backward)(tutti_tensor *dx, tutti_tensor *dy, const tutti__pool *a);
    tutti_status (*global_avg_pool_forward)(tutti_tensor *y, tutti_tensor *x);
    tutti_status (*global_avg_pool_backward)(tutti_tensor *dx, tutti_tensor *dy);

    /* y [..,D] = rows of w [V,D], which indices (checked) name; dy is row-major */
    tutti_status (*embedding_forward)(tutti_tensor *y, tutti_tensor *w, tutti_tensor *indices);
    tutti_status (*embedding_backward)(tutti_tensor *dw, tutti_tensor *dy, tutti_tensor *indices);

    tutti_status (*relu_forward)(tutti_tensor *y, tutti_tensor *x);
    tutti_status (*relu_backward)(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *y);
    /* mask: Philox(key; step, shard, call, element/4); scale 1/(1-p) */
    tutti_status (*dropout)(tutti_tensor *y, tutti_tensor *x, float p, uint32_t call);
    tutti_status (*softmax_forward)(tutti_tensor *y, tutti_tensor *x, bool log);
    tutti_status (*softmax_backward)(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *y, bool log);
    /* loss: scalar; *saved: softmax probabilities or what else backward wants */
    tutti_status (*cross_entropy_forward)(tutti_tensor *loss, tutti_tensor *logits,
                                          tutti_tensor *labels, const tutti__cross_entropy *a,
                                          void **saved);
    tutti_status (*cross_entropy_backward)(tutti_tensor *dx, tutti_tensor *dloss,
                                           tutti_tensor *logits, tutti_tensor *labels,
                                           const tutti__cross_entropy *a, void *saved);
    tutti_status (*mse_forward)(tutti_tensor *loss, tutti_tensor *x, tutti_tensor *target);
    tutti_status (*mse_backward)(tutti_tensor *dx, tutti_tensor *dloss, tutti_tensor *x,
                                 tutti_tensor *target);
};

/* Every function of the table, in its order: what each must have, what those of F32 must have, and what may be NULL. */
#define TUTTI__KERNELS_REQUIRED(X)                                                                 \
    X(reorder)                                                                                     \
    X(cast)                                                                                        \
    X(conv2d_forward)                                                                              \
    X(conv2d_backward_data)                                                                        \
    X(conv2d_backward_weights)                                                                     \
    X(linear_forward)                                                                              \
    X(linear_backward_data)                                                                        \
    X(linear_backward_weights)                                                                     \
    X(batch_norm_forward)                                                                          \
    X(batch_norm_backward)                                                                         \
    X(add_forward)                                                                                 \
    X(add_to)                                                                                      \
    X(max_pool_forward)                                                                            \
    X(max_pool_backward)                                                                           \
    X(avg_pool_forward)                                                                            \
    X(avg_pool_backward)                                                                           \
    X(global_avg_pool_forward)                                                                     \
    X(global_avg_pool_backward)
#define TUTTI__KERNELS_REQUIRED_F32(X) X(embedding_forward) X(embedding_backward)
/* <name>_forward and <name>_backward: both or none. */
#define TUTTI__KERNELS_OPTIONAL_PAIRS(X) X(relu) X(softmax) X(cross_entropy) X(mse)
#define TUTTI__KERNELS_OPTIONAL(X)       X(dropout)

/* OK, or INTERNAL with the name of the function that the table lacks; half: it is for activations of 16 bit. */
tutti_status tutti__kernels_check(const tutti__kernels *kernels, bool half);

extern const tutti__kernels tutti__kernels_reference;
/* The same on the strict device, with 16 bit as emulated below. */
extern const tutti__kernels tutti__kernels_strict;
/* By CUDA, on its devices: cuda/, always compiled. */
extern const tutti__kernels tutti__kernels_cuda;
/* Row-major, between any two real dtypes: `cast` of every table of the CPU's. */
tutti_status tutti__cast_row_major(tutti_tensor *dst, tutti_tensor *src);

/* Activations of 16 bit over a context's F32 kernels: rounded before, rounded after. */
extern const tutti__kernels tutti__kernels_emulated;
/* Those of its functions that do for tables with layouts too. */
tutti_status tutti__emulated_max_pool_forward(tutti_tensor *y, tutti_tensor *x,
                                              const tutti__pool *a, void **saved);
tutti_status tutti__emulated_max_pool_backward(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *x,
                                               const tutti__pool *a, void *saved);
tutti_status tutti__emulated_avg_pool_forward(tutti_tensor *y, tutti_tensor *x,
                                              const tutti__pool *a);
tutti_status tutti__emulated_avg_pool_backward(tutti_tensor *dx, tutti_tensor *dy,
                                               const tutti__pool *a);
tutti_status tutti__emulated_global_avg_pool_forward(tutti_tensor *y, tutti_tensor *x);
tutti_status tutti__emulated_global_avg_pool_backward(tutti_tensor *dx, tutti_tensor *dy);
/* The table for tensors of this dtype. UNSUPPORTED: 16 bit, which these kernels lack and emulation is not allowed. */
tutti_status tutti__kernels_of(tutti_ctx *cx, tutti_dtype dtype, const tutti__kernels **kernels_p);
/* The oneDNN table; UNSUPPORTED with the remedy from no_onednn.c where the build lacks it. */
tutti_status tutti__kernels_onednn(const tutti__kernels **kernels_p);

#endif
