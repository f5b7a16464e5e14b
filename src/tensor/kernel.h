/* kernel.h -- the arithmetic of operations: one table per kernel family.
 * SPDX-License-Identifier: MIT
 *
 * kernel/reference is plain C, row-major, always built, and the reference in tests; activations of kernel/onednn and
 * kernel/cuda stay in their own layouts between operations. A table lists all that it computes; it inherits nothing. Entries in
 * TUTTI__KERNELS_OPTIONAL may be NULL: then the operation's own plain C (op.h) runs instead, on any device and in any dtype. A
 * table that lacks another entry is rejected by tutti__kernels_check when a context is made. Most operations have no entry at
 * all. kernel/reference uses the operation's plain C for ReLU, softmax, dropout, cross entropy and the mean squared error: if
 * another table does so too, the two do not check each other; gradient checks and PyTorch's values do.
 *
 * Destinations. y, dx, ... arrive without data: the kernel chooses a layout, calls tutti__tensor_alloc, and writes. dw and db
 * of parameters arrive with data (row-major, possibly in a bucket): the kernel overwrites, or adds if ->accumulate. A table of
 * 16-bit kernels gets activations and their gradients (x, y, dx, dy) in 16 bit, and weights, statistics, dw and db in F32: it
 * rounds weights itself and sums in F32. A NULL destination is not needed. batch_norm_backward and relu_backward may reuse dy's
 * memory for their result (tutti__tensor_take): nothing reads dy after them. Sources may have any layout of the family;
 * parameters and buffers are always row-major. batch_norm_forward may leave y lazy (tensor.h); the same family then gets x of
 * conv2d and residual of batch_norm_forward as they are, and every other source computed (op.h). The bits of results depend
 * neither on timing nor on the number of threads. */
#ifndef TUTTI_TENSOR_KERNEL_H
#define TUTTI_TENSOR_KERNEL_H

#include "device/fingerprint.h"
#include "tensor/attention.h"
#include "tensor/formula.h"
#include "tensor/tensor.h"

struct tutti__each_job; /* jobs.h */

typedef enum tutti__direction {
    TUTTI__FORWARD,
    TUTTI__BACKWARD_DATA,
    TUTTI__BACKWARD_WEIGHTS
} tutti__direction;

/* Pairs: of H, then of W. */
typedef struct tutti__conv2d {
    int stride[2], padding[2], dilation[2];
    int groups;
} tutti__conv2d;

/* The last windows may reach beyond the padding (PyTorch's ceil_mode): y's shape says how many there are. */
typedef struct tutti__pool {
    int kernel[2], stride[2], padding[2];
    int dilation[2]; /* max; 1 for average */
    bool
        exclude_padding; /* average: over the pixels inside the image; else padding counts, but not what is beyond it */
    int divisor; /* average: instead of their number; 0: none */
} tutti__pool;

typedef struct tutti__batch_norm {
    float momentum, eps;
    bool training, relu;
    const tutti_peers *peers; /* NULL unless training over several ranks */
} tutti__batch_norm;

/* c = op(a) op(b), all row-major: matrices [rows,inner] and [inner,columns], stored transposed if the flag says so. Along each
 * batch dimension, outermost first, the next matrix is a stride of elements away: 0 in a or b repeats a matrix, 0 in c sums the
 * products. No size is 0. */
typedef struct tutti__matmul {
    int64_t rows, columns, inner;
    bool a_transposed, b_transposed;
    int n_batch;
    int64_t batch[TUTTI_MAX_DIMS], a_stride[TUTTI_MAX_DIMS], b_stride[TUTTI_MAX_DIMS],
        c_stride[TUTTI_MAX_DIMS];
} tutti__matmul;

/* A block of elements that is copied between row-major memories: n >= 1 dimensions, outermost first, in the order of `to`, none of
 * size 0. Strides, in elements, may be negative; no two elements have the same place in `to`. */
typedef struct tutti__move {
    int n;
    int64_t size[TUTTI_MAX_DIMS], to_stride[TUTTI_MAX_DIMS], from_stride[TUTTI_MAX_DIMS];
    size_t element; /* bytes: 2, 4, 8 */
    bool add;       /* instead of copied; F32 only */
    void *to;       /* the first element */
    const void *from;
} tutti__move;

/* What batch norm's forward keeps for its backward, in the arena. */
typedef struct tutti__batch_norm_saved {
    float *mean, *inv_std; /* [C] of the batch */
    void *mask;            /* for relu, in the kernels' own format; NULL if backward reads y */
    double count;          /* values per channel, over all ranks */
} tutti__batch_norm_saved;

/* Batch norm over several ranks, between a kernel's passes (kernel/peer_statistics.c). moments: replaces saved->mean, the squared
 * deviations [C] and saved->count of this rank's values by those of all ranks' values, and updates the running statistics for
 * all kernels. sums [C], of dy and of dy * xhat: this rank's on entry, all ranks' on return. */
tutti_status tutti__peers_moments(const tutti__batch_norm *a, tutti__batch_norm_saved *saved,
                                  double *squares, tutti_tensor *running_mean,
                                  tutti_tensor *running_var);
tutti_status tutti__peers_sums(tutti_ctx *cx, const tutti_peers *peers, int64_t C, double *sum,
                               double *sum_xhat);

/* Rows that are normalised: x [rows][width]. Weight and bias are [groups][width / length]: a row has those of its group, row %
 * groups, and `length` neighbours have one of them in common. */
typedef struct tutti__row_norm {
    int64_t rows, width, groups, length;
    float eps;
    bool centred; /* else the mean is 0 */
} tutti__row_norm;

/* A fold of x, seen as [outer][n][inner], over n. */
typedef struct tutti__fold_args {
    tutti__fold_kind kind;
    int64_t outer, n, inner;
    const float *given; /* [outer][inner], device memory; NULL: 0 */
    double divisor;
    bool root; /* of the result: its square root */
    double power;
} tutti__fold_args;

/* What an elementwise kernel computes (op/elementwise.def). */
typedef struct tutti__formula_args {
    tutti__formula formula;
    unsigned reads; /* by backward: the row's */
    int n_src;
    tutti_tensor *const *src;
    const float *constants; /* [2]; NULL: none */
} tutti__formula_args;

typedef struct tutti__cross_entropy {
    float label_smoothing;
    int64_t ignore_index;
} tutti__cross_entropy;

/* What a rank's logits of a row give, if ranks have parts of the classes. */
typedef struct tutti__row_sums {
    double largest, sum; /* of exp(logit - largest) */
    double own, all;     /* the label's logit, if it is one of them; the sum of all */
} tutti__row_sums;

/* Rows of logits with a label each (op/linear_cross_entropy.c). */
typedef struct tutti__label_rows {
    int64_t rows, classes, ignore_index;
    float label_smoothing;
    bool gradients; /* wanted */
    double divisor; /* of gradients */
    int64_t first;  /* the class of the first logit */
    /* [ranks][rows], device memory, of all ranks that have parts of `all_classes`; NULL: all are here */
    const tutti__row_sums *sums;
    int64_t all_classes;
    int ranks, rank;
} tutti__label_rows;

struct tutti__kernels {
    const char *name; /* "reference" */
    /* Makes cx->kernel_state (engine, caches; cx->threads is set) and frees it. NULL: no state. */
    tutti_status (*open)(tutti_ctx *cx);
    void (*close)(tutti_ctx *cx);
    /* What their bits depend on besides this library, without commas, in text[size]; NULL: only the name. */
    void (*bits)(const tutti_ctx *cx, char *text, size_t size);
    void (*step_end)(tutti_ctx *cx); /* drops pointers into the arena; may be NULL */
    /* Whether these kernels have activations of this 16-bit dtype; if so, the table `half` computes them, with the same
     * state. NULL: no 16-bit dtype. */
    bool (*can_half)(tutti_ctx *cx, tutti_dtype dtype);
    const tutti__kernels *half;
    /* The table for operations with an empty batch, of any dtype; NULL: this table. */
    const tutti__kernels *empty;

    /* dst (row-major, data set) = src in any layout, of the same dtype; adds if dst->accumulate. */
    tutti_status (*reorder)(tutti_tensor *dst, tutti_tensor *src);
    /* Adds all elements of t, in host memory: in a layout, or not stored but with lazy->read. False: not in this layout, and *sums is as it
     * was. NULL: in none. */
    bool (*fingerprint)(tutti__fingerprint_sums *sums, const tutti_tensor *t);
    /* dst (without data) = src in another dtype of F32, BF16, F16. */
    tutti_status (*cast)(tutti_tensor *dst, tutti_tensor *src);

    tutti_status (*move)(tutti_ctx *cx, const tutti__move *c);
    /* t, real and row-major, data set, = value */
    tutti_status (*fill)(tutti_tensor *t, float value);

    /* y [N,M,H',W'] = x [N,C,H,W] * w [M,C/groups,kh,kw] + b [M]; y->shape is set */
    tutti_status (*conv2d_forward)(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                   tutti_tensor *b, const tutti__conv2d *a);
    /* b [C] is added, as a transposed convolution's bias; NULL: none */
    tutti_status (*conv2d_backward_data)(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *w,
                                         tutti_tensor *b, const tutti__conv2d *a);
    tutti_status (*conv2d_backward_weights)(tutti_tensor *dw, tutti_tensor *db, tutti_tensor *dy,
                                            tutti_tensor *x, const tutti__conv2d *a);

    /* y [R,M] = x [R,K] w[M,K]^T + b; leading dimensions are folded into R by the operation */
    tutti_status (*linear_forward)(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                   tutti_tensor *b);
    tutti_status (*linear_backward_data)(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *w);
    tutti_status (*linear_backward_weights)(tutti_tensor *dw, tutti_tensor *db, tutti_tensor *dy,
                                            tutti_tensor *x);

    /* c, without data, has the dtype of a and b, or is F32; F32 if products are summed over a batch dimension */
    tutti_status (*matmul)(tutti_tensor *c, tutti_tensor *a, tutti_tensor *b,
                           const tutti__matmul *m);

    /* y = [relu]((x - mean) * inv_std * w + b [+ residual]); running_* updated in training, used
     * in eval */
    tutti_status (*batch_norm_forward)(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                       tutti_tensor *b, tutti_tensor *residual,
                                       tutti_tensor *running_mean, tutti_tensor *running_var,
                                       const tutti__batch_norm *a, tutti__batch_norm_saved *saved);
    /* dresidual = the gradient after the relu's backward */
    tutti_status (*batch_norm_backward)(tutti_tensor *dx, tutti_tensor *dw, tutti_tensor *db,
                                        tutti_tensor *dresidual, tutti_tensor *dy, tutti_tensor *y,
                                        tutti_tensor *x, tutti_tensor *w,
                                        const tutti__batch_norm *a,
                                        const tutti__batch_norm_saved *saved);

    tutti_status (*add_forward)(tutti_tensor *y, tutti_tensor *a, tutti_tensor *b);
    /* dst += src: both have data, layouts may differ; backward adds two gradients of one tensor so */
    tutti_status (*add_to)(tutti_tensor *dst, tutti_tensor *src);

    /* the argmax is kept in *saved, in the kernels' own format */
    tutti_status (*max_pool_forward)(tutti_tensor *y, tutti_tensor *x, const tutti__pool *a,
                                     void **saved);
    tutti_status (*max_pool_backward)(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *x,
                                      const tutti__pool *a, void *saved);
    tutti_status (*avg_pool_forward)(tutti_tensor *y, tutti_tensor *x, const tutti__pool *a);
    tutti_status (*avg_pool_backward)(tutti_tensor *dx, tutti_tensor *dy, const tutti__pool *a);
    tutti_status (*global_avg_pool_forward)(tutti_tensor *y, tutti_tensor *x);
    tutti_status (*global_avg_pool_backward)(tutti_tensor *dx, tutti_tensor *dy);

    /* Over the device's memory in F32, or in a's dtype if attention_work, which gets a with its pointers then, is not 0 for it; other
     * tensors of 16 bit are converted before. `work`: attention_work bytes, aligned to 64; attention_work NULL: none. */
    size_t (*attention_work)(const tutti_ctx *cx, const tutti__attention *a);
    tutti_status (*attention_forward)(tutti_ctx *cx, const tutti__attention *a, void *work);
    tutti_status (*attention_backward)(tutti_ctx *cx, const tutti__attention *a, void *work);

    /* y [..,D] = rows of w [V,D], selected by indices, which are checked; dy is row-major */
    tutti_status (*embedding_forward)(tutti_tensor *y, tutti_tensor *w, tutti_tensor *indices);
    tutti_status (*embedding_backward)(tutti_tensor *dw, tutti_tensor *dy, tutti_tensor *indices);

    tutti_status (*relu_forward)(tutti_tensor *y, tutti_tensor *x);
    tutti_status (*relu_backward)(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *y);
    /* y = `formula` of the sources, which are broadcast; NULL: 1. */
    tutti_status (*elementwise_forward)(tutti_tensor *y, const tutti__formula_args *e);
    /* dsrc[i] = the gradient of source i, NULL: not wanted; y is read if the formula's row says so */
    tutti_status (*elementwise_backward)(tutti_tensor *const *dsrc, tutti_tensor *dy,
                                         tutti_tensor *y, const tutti__formula_args *e);
    /* y [outer][inner], row-major; I64 for the number of an element */
    tutti_status (*fold)(tutti_tensor *y, tutti_tensor *x, const tutti__fold_args *a);
    /* F32: y = (x - mean) * inv_std * w + b; w, b NULL: 1, 0. moments [2][rows]: mean and inv_std, device memory */
    tutti_status (*norm_forward)(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w, tutti_tensor *b,
                                 const tutti__row_norm *a, float *moments);
    tutti_status (*norm_backward)(tutti_tensor *dx, tutti_tensor *dw, tutti_tensor *db,
                                  tutti_tensor *dy, tutti_tensor *x, tutti_tensor *w,
                                  const tutti__row_norm *a, const float *moments);
    /* loss[rows], of each row of logits [rows,classes]; if they are wanted, gradients in place of the logits. labels: device memory */
    tutti_status (*label_rows)(tutti_tensor *logits, const int64_t *labels, float *loss,
                               const tutti__label_rows *a);
    /* sums[rows], device memory: of each row; 0 if its label is ignored */
    tutti_status (*label_sums)(tutti_tensor *logits, const int64_t *labels, tutti__row_sums *sums,
                               const tutti__label_rows *a);
    /* Computes job i of all i < n (jobs.h), in no order. */
    tutti_status (*job)(tutti_ctx *cx, const struct tutti__each_job *job, int64_t n);
    /* mask: Philox(key; step, shard, call, element/4); scale 1/(1-p) */
    tutti_status (*dropout)(tutti_tensor *y, tutti_tensor *x, float p, uint32_t call);
    tutti_status (*softmax_forward)(tutti_tensor *y, tutti_tensor *x, bool log);
    tutti_status (*softmax_backward)(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *y, bool log);
    /* loss: scalar; *saved: softmax probabilities, or what else backward needs */
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

/* All functions of the table, in its order: required in each, required for F32, and optional. */
#define TUTTI__KERNELS_REQUIRED(X)                                                                 \
    X(reorder)                                                                                     \
    X(cast)                                                                                        \
    X(move)                                                                                        \
    X(fill)                                                                                        \
    X(conv2d_forward)                                                                              \
    X(conv2d_backward_data)                                                                        \
    X(conv2d_backward_weights)                                                                     \
    X(linear_forward)                                                                              \
    X(linear_backward_data)                                                                        \
    X(linear_backward_weights)                                                                     \
    X(matmul)                                                                                      \
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
#define TUTTI__KERNELS_OPTIONAL_PAIRS(X)                                                           \
    X(attention) X(relu) X(elementwise) X(norm) X(softmax) X(cross_entropy) X(mse)
#define TUTTI__KERNELS_OPTIONAL(X)                                                                 \
    X(fingerprint) X(attention_work) X(label_rows) X(label_sums) X(job) X(dropout) X(fold)

/* OK, or INTERNAL with the name of the function that the table lacks; half: the table is for activations of 16 bit. */
tutti_status tutti__kernels_check(const tutti__kernels *kernels, bool half);

extern const tutti__kernels tutti__kernels_reference;
/* Reference kernels on the strict device, with 16 bit emulated as below. */
extern const tutti__kernels tutti__kernels_strict;
/* For CUDA devices: cuda/, always compiled. */
extern const tutti__kernels tutti__kernels_cuda;
/* Row-major, between any two real dtypes: `cast` of every table of the CPU's. */
tutti_status tutti__cast_row_major(tutti_tensor *dst, tutti_tensor *src);
/* `move` and `fill` of every table of the CPU's; and for host memory, on any device, elements of any dtype. */
tutti_status tutti__move_row_major(tutti_ctx *cx, const tutti__move *c);
tutti_status tutti__fill_row_major(tutti_tensor *t, float value);
void tutti__move_on_host(tutti_ctx *cx, const tutti__move *c);
void tutti__fill_on_host(void *p, int64_t count, tutti_dtype dtype, float value);

/* Activations of 16 bit over a context's F32 kernels: rounds sources and results. */
extern const tutti__kernels tutti__kernels_emulated;
/* Functions of it that tables with layouts can use too. */
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
/* The table for tensors of this dtype. UNSUPPORTED: these kernels lack this 16-bit dtype, and emulation is not allowed. */
tutti_status tutti__kernels_of(tutti_ctx *cx, tutti_dtype dtype, const tutti__kernels **kernels_p);
/* The oneDNN table; if the build lacks it, no_onednn.c returns UNSUPPORTED with the remedy. */
tutti_status tutti__kernels_onednn(const tutti__kernels **kernels_p);

#endif
