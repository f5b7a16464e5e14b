/* onednn_state.h -- state of the oneDNN kernels in a context, and functions shared by their files.   SPDX-License-Identifier: MIT
 *
 * Layouts are interned, primitives and their memory objects are cached by what they compute; running a primitive sets the
 * addresses of its arguments. Row-major is layout NULL, as everywhere. */
#ifndef TUTTI_TENSOR_KERNEL_ONEDNN_STATE_H
#define TUTTI_TENSOR_KERNEL_ONEDNN_STATE_H

#include "tensor/kernel.h"
#include "tensor/kernel/onednn/shim.h"
#include "tensor/kernel/vector/isa.h"
#include "tensor/parallel.h"

typedef struct tutti__onednn tutti__onednn; /* in a context; below */

/* OK, or the failure of a oneDNN call, with its name. */
tutti_status tutti__onednn_check(dnnl_status_t status, const char *what);

/* Applies TUTTI_CPU_ISA, before any other call of oneDNN; ARG, UNSUPPORTED. */
tutti_status tutti__onednn_isa_choose(void);
const char *tutti__onednn_isa_name(void); /* the instruction set in use: "avx2" */
/* Our own kernels for the instruction set that oneDNN uses. */
const tutti__isa *tutti__onednn_isa(void);
/* Whether that set has products of BF16. */
bool tutti__onednn_has_bf16(void);

/* Whether pd is faster than oneDNN's reference implementation, and not made of it. */
bool tutti__onednn_is_fast(dnnl_primitive_desc_t pd);

/* ---- Layouts ------------------------------------------------------------------------------------------ */

/* A tensor [N,C,H,W] as rows of channels: channel c of pixel s of image n is at
 * n * image + (c / inner) * block + s * step + c % inner. Row-major: inner 1, step 1; nChw16c: inner and step 16;
 * nhwc: inner and step C. */
typedef struct tutti__onednn_view {
    int64_t n, c, s;
    int64_t inner, block, step, image;
    int64_t padded_c;
} tutti__onednn_view;

/* The interned layout of md for a tensor of this shape; NULL in *layout_p is row-major. */
tutti_status tutti__onednn_layout(tutti_ctx *cx, tutti__const_md md,
                                  const tutti__layout **layout_p);
/* False if a 4-D layout has no such view. */
bool tutti__onednn_view_of(tutti_shape shape, const tutti__layout *layout,
                           tutti__onednn_view *view_p);

/* The layout that other kernels have chosen for activations of this shape, for gradients that have no tensor to follow. */
const tutti__layout *tutti__onednn_usual_layout(tutti_ctx *cx, tutti_shape shape,
                                                tutti_dtype dtype);
dnnl_data_type_t tutti__onednn_type(tutti_dtype dtype); /* for F32, BF16, F16 */
/* A new descriptor; free it with tutti__md_free. A layout includes the dtype; NULL is row-major in `dtype`. */
dnnl_status_t tutti__onednn_md_of(tutti__md *md_p, tutti_shape shape, const tutti__layout *layout,
                                  tutti_dtype dtype);

/* t's elements in that layout: t->data itself, or a copy made once a step and kept with t. */
tutti_status tutti__onednn_in(tutti_tensor *t, const tutti__layout *layout, void **data_p);
/* The same; or, if t is a lazy norm in that layout, its source, with *norm_p set; else *norm_p is NULL. */
tutti_status tutti__onednn_in_norm(tutti_tensor *t, const tutti__layout *layout, void **data_p,
                                   const tutti__channel_norm **norm_p);
/* The same of weights: seen in another shape of the same row-major elements (groups), and in another dtype, that of the layout (16
 * bit). Always the same shape for a layout. */
tutti_status tutti__onednn_in_as(tutti_tensor *t, tutti_shape shape, const tutti__layout *layout,
                                 tutti_dtype dtype, void **data_p);
/* y [N,C,H,W] += b [C] */
tutti_status tutti__onednn_add_bias(tutti_tensor *y, tutti_tensor *b);
/* x's elements in a layout that has a view: its own, or row-major. */
tutti_status tutti__onednn_walk(tutti_tensor *x, tutti__onednn_view *view_p,
                                const tutti__layout **layout_p, void **data_p);
/* The result of batch norm, if not stored. */
typedef struct tutti__onednn_lazy {
    tutti__lazy lazy; /* the first member */
    tutti__channel_norm norm;
} tutti__onednn_lazy;
/* Its `compute`, by which it is told from lazy tensors of other operations. */
tutti_status tutti__onednn_norm_compute(tutti_tensor *y);
/* The address and layout of elements. */
typedef struct tutti__onednn_place {
    const tutti__layout *layout;
    tutti_dtype dtype;
    void *data;
} tutti__onednn_place;
/* to = from (or +=) */
tutti_status tutti__onednn_reorder(tutti_ctx *cx, tutti_shape shape,
                                   const tutti__onednn_place *from, const tutti__onednn_place *to,
                                   bool accumulate);

/* kernels.fingerprint */
bool tutti__onednn_fingerprint(tutti__fingerprint_sums *sums, const tutti_tensor *t);

/* ---- Primitives ----------------------------------------------------------------------------------------- */

typedef enum tutti__onednn_kind {
    TUTTI__ONEDNN_CONVOLUTION,
    TUTTI__ONEDNN_POOLING,
    TUTTI__ONEDNN_MATMUL,
    TUTTI__ONEDNN_REORDER
} tutti__onednn_kind;

typedef struct tutti__onednn_key {
    int64_t v[20]; /* kind, direction, then what the kind needs */
} tutti__onednn_key;

#define TUTTI__ONEDNN_MAX_ARGS 5

/* A part's share of a primitive's argument: all of it, its images, or a separate copy (for its own sum). */
typedef enum tutti__onednn_share {
    TUTTI__ONEDNN_WHOLE,
    TUTTI__ONEDNN_IMAGES,
    TUTTI__ONEDNN_EACH
} tutti__onednn_share;

/* Which of the descriptor's memories an argument of the primitive is. */
typedef struct tutti__onednn_arg {
    int arg;
    dnnl_query_t query;
    int index;
    tutti__onednn_share share;
} tutti__onednn_arg;

typedef struct tutti__onednn_primitive {
    struct tutti__onednn_primitive *next;
    tutti__onednn_key key;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive; /* NULL: has not run yet, or only its parts do */
    bool lent;                  /* pd and primitive belong to the previous part */
    bool holds_signals;
    bool
        clears_scratch; /* it reads scratch memory that it has not written: zero it before each run */
    int n_args;         /* without the scratchpad, which is last in exec */
    tutti__onednn_arg args[TUTTI__ONEDNN_MAX_ARGS];
    dnnl_exec_arg_t exec[TUTTI__ONEDNN_MAX_ARGS + 1];
    const tutti__layout *layouts[TUTTI__ONEDNN_MAX_ARGS]; /* a workspace has none */
    size_t bytes[TUTTI__ONEDNN_MAX_ARGS], scratch_bytes;
    struct tutti__onednn_primitive *parts; /* NULL: runs as one */
    int n_parts;                           /* 1 if it runs as one */
    int64_t images, most;                  /* of the whole; and of each part except the last */
} tutti__onednn_primitive;

/* NULL: not made yet. */
tutti__onednn_primitive *tutti__onednn_find(tutti_ctx *cx, const tutti__onednn_key *key);
/* Takes ownership of pd, also on failure. */
tutti_status tutti__onednn_add(tutti_ctx *cx, const tutti__onednn_key *key,
                               dnnl_primitive_desc_t pd, const tutti__onednn_arg *args, int n_args,
                               tutti__onednn_primitive **primitive_p);
void tutti__onednn_primitives_free(tutti__onednn *od);

/* oneDNN computes on one thread at a time, on each of ours: its own threads would wait for each other by spinning, and it
 * splits some sums by the number of threads. A large primitive is split into parts of its first dimension, by the shapes
 * alone, which run concurrently if the context has several threads. */
#define TUTTI__ONEDNN_MAX_PARTS 8
typedef struct tutti__onednn_parts {
    /* *pd_p: the same for this number of images, in the layouts of the whole */
    dnnl_status_t (*make)(tutti_ctx *cx, const void *self, const tutti__onednn_primitive *whole,
                          int64_t images, dnnl_primitive_desc_t *pd_p);
    const void *self;
    int64_t images; /* the first dimension */
    int n;          /* parts, at most */
} tutti__onednn_parts;
/* The layout of this number of images of p's i-th argument. */
dnnl_status_t tutti__onednn_md_images(tutti__md *md_p, const tutti__onednn_primitive *p, int i,
                                      int64_t images);
/* Leaves p whole if there would be one part, if images are not contiguous, or if oneDNN has no fast code for the parts. */
tutti_status tutti__onednn_cut(tutti_ctx *cx, tutti__onednn_primitive *p,
                               const tutti__onednn_parts *parts);
/* data: of p's arguments, in the order of its args; for a share EACH, n_parts times the bytes. */
tutti_status tutti__onednn_run(tutti_ctx *cx, tutti__onednn_primitive *p, void *const *data);
/* How many parts are worthwhile for work that is `times` the minimum of one: by the shapes alone. */
int tutti__onednn_parts_of(int64_t times);
/* The interned layout of this tag. */
tutti_status tutti__onednn_tagged(tutti_ctx *cx, tutti_shape shape, dnnl_format_tag_t tag,
                                  const tutti__layout **layout_p);
/* That of [N][C/lanes][H][W][lanes], channels being filled up to whole vectors by zeros. */
tutti_status tutti__onednn_blocked(tutti_ctx *cx, tutti_shape shape,
                                   const tutti__layout **layout_p);
/* Memory for a result between two primitives; valid until the next call. */
tutti_status tutti__onednn_staging(tutti_ctx *cx, size_t bytes, void **p);
/* Memory for use within a kernel; valid until any primitive runs. */
tutti_status tutti__onednn_scratch(tutti_ctx *cx, size_t bytes, void **p);

/* Between these two, oneDNN's calls from this thread use no other thread, if oneDNN uses OpenMP; afterwards the program's
 * setting is restored. Use them around making and running primitives. */
int tutti__onednn_alone_begin(void);
void tutti__onednn_alone_end(int kept);

/* OK, or UNSUPPORTED: a oneDNN whose threads can only be supplied by C++. */
tutti_status tutti__onednn_check_runtime(void);
/* The number of threads on which results depend if oneDNN uses TBB, which cannot be limited from C; else 0. */
int tutti__onednn_foreign_threads(void);

/* Called before oneDNN generates code: 2.6 writes through NULL if it is out of memory for that. MEMORY. */
tutti_status tutti__onednn_room_for_code(void);

/* ---- The state ------------------------------------------------------------------------------------------------ */

typedef struct tutti__onednn_memory {
    void *p;
    size_t bytes;
} tutti__onednn_memory;

/* The choice of TUTTI_CONV for 3x3 convolutions. */
typedef enum tutti__onednn_conv {
    TUTTI__ONEDNN_CONV_AUTO,
    TUTTI__ONEDNN_CONV_WINOGRAD,
    TUTTI__ONEDNN_CONV_DIRECT
} tutti__onednn_conv;

struct tutti__onednn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    /* scratchpad: ours; add: dst += instead of dst = */
    dnnl_primitive_attr_t attributes, add_attributes;
    struct tutti__onednn_layout_entry *layouts;
    tutti__onednn_primitive *primitives;
    size_t n_primitives;
    tutti__onednn_memory scratch, staging;
    const tutti__isa *isa; /* our own kernels, for the same instruction set */
    tutti__onednn_conv conv;
};

/* db [C] (or +=) = the sum of dy [N,C,H,W] over all but C. */
tutti_status tutti__onednn_bias_gradient(tutti_tensor *db, tutti_tensor *dy);

tutti_status tutti__onednn_open(tutti_ctx *cx);
void tutti__onednn_close(tutti_ctx *cx);
void tutti__onednn_step_end(tutti_ctx *cx);

/* ---- Kernels of the table -------------------------------------------------------------------------------- */

/* TUTTI_CONV; ARG. */
tutti_status tutti__onednn_conv_choose(tutti__onednn_conv *conv_p);
const char *tutti__onednn_conv_name(tutti__onednn_conv conv);
tutti_status tutti__onednn_conv2d_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                          tutti_tensor *b, const tutti__conv2d *a);
tutti_status tutti__onednn_conv2d_backward_data(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *w,
                                                tutti_tensor *b, const tutti__conv2d *a);
tutti_status tutti__onednn_conv2d_backward_weights(tutti_tensor *dw, tutti_tensor *db,
                                                   tutti_tensor *dy, tutti_tensor *x,
                                                   const tutti__conv2d *a);
/* By our own Winograd, for 3x3, stride 1 with padding up to 2 and stride 2 with padding 1: whether the instruction set and
 * these channels are supported. */
bool tutti__winograd_can(tutti_ctx *cx, tutti_shape x, tutti_shape w);
tutti_status tutti__winograd_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                     tutti_tensor *b, const tutti__conv2d *a);
tutti_status tutti__winograd_backward_data(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *w,
                                           const tutti__conv2d *a);
tutti_status tutti__winograd_backward_weights(tutti_tensor *dw, tutti_tensor *dy, tutti_tensor *x,
                                              const tutti__conv2d *a);

/* The weight gradient by a product for each tap of the kernel: whether these channels and this kernel are supported. */
bool tutti__taps_can(tutti_ctx *cx, tutti_shape x, tutti_shape w);
tutti_status tutti__taps_backward_weights(tutti_tensor *dw, tutti_tensor *dy, tutti_tensor *x,
                                          const tutti__conv2d *a);

tutti_status tutti__onednn_linear_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                          tutti_tensor *b);
tutti_status tutti__onednn_linear_backward_data(tutti_tensor *dx, tutti_tensor *dy,
                                                tutti_tensor *w);
tutti_status tutti__onednn_linear_backward_weights(tutti_tensor *dw, tutti_tensor *db,
                                                   tutti_tensor *dy, tutti_tensor *x);
tutti_status tutti__onednn_half_linear_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                               tutti_tensor *b);
tutti_status tutti__onednn_half_linear_backward_data(tutti_tensor *dx, tutti_tensor *dy,
                                                     tutti_tensor *w);
tutti_status tutti__onednn_half_linear_backward_weights(tutti_tensor *dw, tutti_tensor *db,
                                                        tutti_tensor *dy, tutti_tensor *x);
size_t tutti__onednn_attention_work(const tutti_ctx *cx, const tutti__attention *a);
tutti_status tutti__onednn_attention_forward(tutti_ctx *cx, const tutti__attention *a, void *work);
tutti_status tutti__onednn_attention_backward(tutti_ctx *cx, const tutti__attention *a, void *work);
tutti_status tutti__onednn_matmul(tutti_tensor *c, tutti_tensor *a, tutti_tensor *b,
                                  const tutti__matmul *m);
tutti_status tutti__onednn_half_matmul(tutti_tensor *c, tutti_tensor *a, tutti_tensor *b,
                                       const tutti__matmul *m);
/* c = or += op(a) op(b) + bias: c [rows,columns] of `result`, a and b of `dtype`, as they are ('N') or stored transposed ('T');
 * the rows are computed in parts, unless a is transposed. Or `batch` of them (0 and 1 are one), in parts of the batch. */
typedef struct tutti__onednn_half {
    char op[2];
    int64_t rows, columns, inner, batch;
    bool a_repeated, b_repeated; /* a or b is the same in the whole batch */
    tutti_dtype dtype, result;
    bool bias, add;
} tutti__onednn_half;
/* By our own products, where the CPU has BF16 instructions that oneDNN may use as well; *done_p: whether. */
tutti_status tutti__onednn_multiply_half(tutti_ctx *cx, tutti_dtype dtype,
                                         const tutti__half_product *p, bool *done_p);
/* data: a, b, c, bias [columns] of F32 */
tutti_status tutti__onednn_half_run(tutti_ctx *cx, const tutti__onednn_half *h,
                                    void *const data[4]);
/* Whether oneDNN has products in this 16-bit dtype here, forward and backward. */
bool tutti__onednn_can_convolve(tutti_ctx *cx, tutti_dtype dtype);
bool tutti__onednn_can_multiply(tutti_ctx *cx, tutti_dtype dtype);
tutti_status tutti__onednn_batch_norm_forward(tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                              tutti_tensor *b, tutti_tensor *residual,
                                              tutti_tensor *running_mean, tutti_tensor *running_var,
                                              const tutti__batch_norm *a,
                                              tutti__batch_norm_saved *saved);
tutti_status tutti__onednn_batch_norm_backward(tutti_tensor *dx, tutti_tensor *dw, tutti_tensor *db,
                                               tutti_tensor *dresidual, tutti_tensor *dy,
                                               tutti_tensor *y, tutti_tensor *x, tutti_tensor *w,
                                               const tutti__batch_norm *a,
                                               const tutti__batch_norm_saved *saved);
tutti_status tutti__onednn_max_pool_forward(tutti_tensor *y, tutti_tensor *x, const tutti__pool *a,
                                            void **saved);
tutti_status tutti__onednn_max_pool_backward(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *x,
                                             const tutti__pool *a, void *saved);
tutti_status tutti__onednn_half_max_pool_forward(tutti_tensor *y, tutti_tensor *x,
                                                 const tutti__pool *a, void **saved);
tutti_status tutti__onednn_half_max_pool_backward(tutti_tensor *dx, tutti_tensor *dy,
                                                  tutti_tensor *x, const tutti__pool *a,
                                                  void *saved);
tutti_status tutti__onednn_avg_pool_forward(tutti_tensor *y, tutti_tensor *x, const tutti__pool *a);
tutti_status tutti__onednn_avg_pool_backward(tutti_tensor *dx, tutti_tensor *dy,
                                             const tutti__pool *a);
tutti_status tutti__onednn_global_avg_pool_forward(tutti_tensor *y, tutti_tensor *x);
tutti_status tutti__onednn_global_avg_pool_backward(tutti_tensor *dx, tutti_tensor *dy);
tutti_status tutti__onednn_relu_forward(tutti_tensor *y, tutti_tensor *x);
tutti_status tutti__onednn_relu_backward(tutti_tensor *dx, tutti_tensor *dy, tutti_tensor *y);
tutti_status tutti__onednn_add_forward(tutti_tensor *y, tutti_tensor *a, tutti_tensor *b);
tutti_status tutti__onednn_add_to(tutti_tensor *dst, tutti_tensor *src);

#endif
