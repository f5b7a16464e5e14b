/* isa.h -- arithmetic that is compiled once for each instruction set, over plain memory.   SPDX-License-Identifier: MIT
 *
 * Every file in this folder's isa/ is compiled for each set (CMakeLists.txt lists them) with its TUTTI__ISA and
 * TUTTI__LANES, and exports its functions in one table per set. Activations come in blocks of `lanes` channels:
 * [N][C/lanes][H][W][lanes]. */
#ifndef TUTTI_TENSOR_KERNEL_VECTOR_ISA_H
#define TUTTI_TENSOR_KERNEL_VECTOR_ISA_H

#include "tensor/kernel.h"
#include "tensor/kernel/vector/runs.h"
#include "tensor/parallel.h"

#include <stddef.h>

#if defined __x86_64__ && defined __GNUC__ && __GNUC__ >= 11 && !defined __clang__
#define TUTTI__HAS_AMX 1 /* the compiler knows AMX */
#endif

/* The shapes of a convolution, as forward: x [n,in_c,in_h,in_w], w [out_c,in_c,kernel,kernel], y [n,out_c,out_h,out_w]. */
typedef struct tutti__conv_shape {
    int64_t n, in_c, out_c, in_h, in_w, out_h, out_w;
    int64_t kernel, stride, padding;
    /* the weights' in_c, if x has further channels that are zeros, up to whole vectors; 0: in_c */
    int64_t own_in_c;
} tutti__conv_shape;

/* c [rows,columns] = or += a [rows,inner] b [inner,columns]; no size is 0.
 * a(i,k) is a[i * a_row + k * a_k], b(k,j) is b[k * b_k + j * b_column]; one of the two steps of each is 1.
 * c(i,j) is c[i * c_step + j]; or transposed (transposed), c[i + j * c_step], which cannot add, and requires a_k and b_k to be
 * 1. Along each batch dimension, outermost first, a, b and c of the next product are a stride away; 0 for c adds the products up,
 * not if transposed. */
typedef struct tutti__product {
    int64_t rows, columns, inner;
    const float *a, *b;
    float *c;
    int64_t a_row, a_k, b_k, b_column, c_step;
    bool transposed, add;
    const float *bias; /* [rows], added to each column if c is transposed; or NULL */
    int n_batch;       /* 0: one product */
    int64_t batch[TUTTI_MAX_DIMS], a_batch[TUTTI_MAX_DIMS], b_batch[TUTTI_MAX_DIMS],
        c_batch[TUTTI_MAX_DIMS];
} tutti__product;

/* c [rows,columns] = or += a b + bias in BF16, with sums in F32; no size is 0. a is BF16; b too, or F32 that is rounded. Steps as in
 * tutti__product, one of a's and one of b's is 1. c is BF16, or F32, which may be added to. bias [columns] or NULL. */
typedef struct tutti__half_product {
    int64_t rows, columns, inner;
    const uint16_t *a;
    const void *b;
    void *c;
    bool b_f32, c_f32, add;
    int64_t a_row, a_k, b_k, b_column, c_step;
    const float *bias;
} tutti__half_product;

/* Max pooling of planes [in_h][in_w][lanes]. Windows lie inside and do not overlap. */
typedef struct tutti__pool_shape {
    int64_t planes, in_h, in_w, out_h, out_w;
    int kernel[2], stride[2]; /* of at most 256 pixels */
} tutti__pool_shape;

typedef struct tutti__isa {
    const char *name; /* the set's, as in TUTTI_CPU_ISA */
    int lanes;        /* floats per vector */
    const tutti__runs *runs;

    /* `work`: multiply_work bytes of memory, aligned to a vector. */
    size_t (*multiply_work)(const tutti_ctx *cx, const tutti__product *p);
    void (*multiply)(tutti_ctx *cx, const tutti__product *p, void *work);
    size_t (*multiply_half_work)(const tutti_ctx *cx);
    bool (*multiply_half)(tutti_ctx *cx, const tutti__half_product *p,
                          void *work); /* false: not with this CPU */

    /* kernel.h: the same */
    size_t (*attention_work)(const tutti_ctx *cx, const tutti__attention *a);
    void (*attention_forward)(tutti_ctx *cx, const tutti__attention *a, void *work);
    void (*attention_backward)(tutti_ctx *cx, const tutti__attention *a, void *work);
    /* The same of BF16. half_attention_work 0: not with this CPU */
    size_t (*half_attention_work)(const tutti_ctx *cx, const tutti__attention *a);
    void (*half_attention_forward)(tutti_ctx *cx, const tutti__attention *a, void *work);
    void (*half_attention_backward)(tutti_ctx *cx, const tutti__attention *a, void *work);

    /* Winograd, for kernel 3, stride 1 and padding up to 2 or stride 2 and padding 1, and channels that are multiples of
     * lanes. `work`: winograd_work bytes of memory, aligned to a vector. Weights are row-major; bias [out_c] or NULL. If
     * norm is not NULL, the convolution's source is not x but, bit for bit, what runs->normalise computes from it; not with own_in_c. */
    size_t (*winograd_work)(const tutti_ctx *cx, const tutti__conv_shape *s,
                            tutti__direction direction);
    void (*winograd_forward)(tutti_ctx *cx, const tutti__conv_shape *s, float *y, const float *x,
                             const tutti__channel_norm *norm, const float *w, const float *bias,
                             void *work);
    void (*winograd_data)(tutti_ctx *cx, const tutti__conv_shape *s, float *dx, const float *dy,
                          const float *w, void *work);
    void (*winograd_weights)(tutti_ctx *cx, const tutti__conv_shape *s, float *dw, bool accumulate,
                             const float *dy, const float *x, const tutti__channel_norm *norm,
                             void *work);

    /* taps, as many as y has elements: which pixel of its window each is, in row-major order */
    void (*max_pool_forward)(tutti_ctx *cx, const tutti__pool_shape *s, float *y, uint8_t *taps,
                             const float *x);
    void (*max_pool_backward)(tutti_ctx *cx, const tutti__pool_shape *s, float *dx, const float *dy,
                              uint8_t *taps);
} tutti__isa;

/* The table for the instruction set that TUTTI_CPU_ISA allows and the CPU has; never NULL. "avx512_amx" is avx512 with products of
 * BF16 by AMX. */
const tutti__isa *tutti__isa_of(const char *isa);
/* Whether this process may use AMX: the CPU has it, and the system gives it room for the registers, for which this asks. */
bool tutti__isa_may_use_amx(void);

#endif
