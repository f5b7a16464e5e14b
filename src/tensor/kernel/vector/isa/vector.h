/* vector.h -- vectors of the instruction set for which a file of this folder is being compiled.   SPDX-License-Identifier: MIT
 *
 * The build defines TUTTI__ISA (avx512, avx2, base) and TUTTI__LANES (floats per vector: 16, 8, 4). It uses the compiler's
 * generic vectors, and only inside inlined functions, since their calling convention differs between sets. */
#ifndef TUTTI_TENSOR_KERNEL_VECTOR_ISA_FOLDER_VECTOR_H
#define TUTTI_TENSOR_KERNEL_VECTOR_ISA_FOLDER_VECTOR_H

#include "tensor/kernel/vector/isa.h"

#include <stdint.h>
#ifdef __aarch64__
#include <arm_neon.h>
#endif

#define W TUTTI__LANES

typedef float vec __attribute__((vector_size(W * 4)));
typedef int32_t veci __attribute__((vector_size(W * 4)));
/* unaligned, at any array of floats */
typedef float vec_at __attribute__((vector_size(W * 4), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))
/* A loop over vectors in registers, unrolled first: otherwise gcc keeps them in memory too. */
#define EACH(i, n) _Pragma("GCC unroll 16") for (int i = 0; i < (n); i++)

/* Non-temporal stores: lines that are overwritten whole need not be fetched. p is aligned to a vector. Others see what was
 * stored only after streamed(), which must be called in the same job. Not from immintrin.h: compiling that takes longer
 * than most files here. */
#if defined __clang__ && defined __SSE__
#define TUTTI__STREAM(p, v) __builtin_nontemporal_store(v, (vec *)(p))
#elif defined __AVX512F__ && W == 16
#define TUTTI__STREAM __builtin_ia32_movntps512
#elif defined __AVX__ && W == 8
#define TUTTI__STREAM __builtin_ia32_movntps256
#elif defined __SSE__ && W == 4
#define TUTTI__STREAM __builtin_ia32_movntps
#else
#define TUTTI__STREAM(p, v) (*(vec *)(p) = (v))
#endif
INLINE void stream(float *p, vec v)
{
    TUTTI__STREAM(p, v);
}
INLINE void streamed(void)
{
#ifdef __SSE__
    __builtin_ia32_sfence();
#endif
}

/* a b + c, rounded once where the set has such an instruction. Nothing else is fused (-ffp-contract=off): the compiler may
 * choose another of a sum's products in each function that a transform is inlined into, which gives other bits. */
INLINE vec multiply_add(vec a, vec b, vec c)
{
#if defined __FMA__ && W >= 8 && __has_builtin(__builtin_elementwise_fma)
    return __builtin_elementwise_fma(a, b, c);
#elif defined __AVX512F__ && W == 16
    /* of all lanes, in the current rounding mode; the mask is signed for gcc, unsigned for clang */
#ifdef __clang__
    return __builtin_ia32_vfmaddps512_mask(a, b, c, 0xffff, 4);
#else
    return __builtin_ia32_vfmaddps512_mask(a, b, c, -1, 4);
#endif
#elif defined __FMA__ && W == 8
    return __builtin_ia32_vfmaddps256(a, b, c);
#elif defined __aarch64__
    return vfmaq_f32(c, a, b);
#else
    return a * b + c;
#endif
}

/* a x + y, in the same way. a - 0 is a in each lane, even if it is -0. */
INLINE vec axpy(float a, vec x, vec y)
{
    return multiply_add(a - (vec){0}, x, y);
}

/* A vector of the lanes that f(lane, s), a constant, names: those of a, then those of b. */
#if W == 16
#define TUTTI__LANES_OF(f, s)                                                                      \
    f(0, s), f(1, s), f(2, s), f(3, s), f(4, s), f(5, s), f(6, s), f(7, s), f(8, s), f(9, s),      \
        f(10, s), f(11, s), f(12, s), f(13, s), f(14, s), f(15, s)
#elif W == 8
#define TUTTI__LANES_OF(f, s) f(0, s), f(1, s), f(2, s), f(3, s), f(4, s), f(5, s), f(6, s), f(7, s)
#else
#define TUTTI__LANES_OF(f, s) f(0, s), f(1, s), f(2, s), f(3, s)
#endif
#ifdef __clang__
#define TUTTI__SHUFFLE(a, b, f, s) __builtin_shufflevector(a, b, TUTTI__LANES_OF(f, s))
#else
#define TUTTI__SHUFFLE(a, b, f, s) __builtin_shuffle(a, b, (veci){TUTTI__LANES_OF(f, s)})
#endif

/* Swap bit s of the row's number with that of the lane's. */
#define TUTTI__LOW(lane, s)  ((lane) & (s) ? W + (lane) - (s) : (lane))
#define TUTTI__HIGH(lane, s) ((lane) & (s) ? W + (lane) : (lane) + (s))
#define TUTTI__SWAP_BIT(rows, s)                                                                   \
    for (int i_ = 0; i_ < W; i_++)                                                                 \
        if (!(i_ & (s))) {                                                                         \
            const vec a_ = (rows)[i_], b_ = (rows)[i_ + (s)];                                      \
                                                                                                   \
            (rows)[i_] = TUTTI__SHUFFLE(a_, b_, TUTTI__LOW, s);                                    \
            (rows)[i_ + (s)] = TUTTI__SHUFFLE(a_, b_, TUTTI__HIGH, s);                             \
        }

/* Transposes W rows of W floats. */
INLINE void transpose(vec *rows)
{
#if W >= 16
    TUTTI__SWAP_BIT(rows, 8)
#endif
#if W >= 8
    TUTTI__SWAP_BIT(rows, 4)
#endif
    TUTTI__SWAP_BIT(rows, 2)
    TUTTI__SWAP_BIT(rows, 1)
}

#if W >= 8
typedef float vec_half_at __attribute__((vector_size(W * 2), aligned(4), may_alias));
#define TUTTI__BOTH(i, s) (i)
#endif

/* The same of rows in memory, `step` apart: halves are swapped by the loads. */
INLINE void load_transposed(vec *rows, const float *from, int64_t step)
{
#if W >= 8
    for (int i = 0; i < W; i++) {
        const float *at = from + i % (W / 2) * step + i / (W / 2) * (W / 2);

        rows[i] = __builtin_shufflevector(*(const vec_half_at *)at,
                                          *(const vec_half_at *)(at + W / 2 * step),
                                          TUTTI__LANES_OF(TUTTI__BOTH, 0));
    }
#if W >= 16
    TUTTI__SWAP_BIT(rows, 4)
#endif
    TUTTI__SWAP_BIT(rows, 2)
    TUTTI__SWAP_BIT(rows, 1)
#else
    for (int i = 0; i < W; i++)
        rows[i] = *(const vec_at *)(from + i * step);
    transpose(rows);
#endif
}

/* name_avx2: the name by which other files use a function of this folder */
#define TUTTI__JOIN_(a, b)  a##_##b
#define TUTTI__JOIN(a, b)   TUTTI__JOIN_(a, b)
#define TUTTI__OF_ISA(name) TUTTI__JOIN(name, TUTTI__ISA)

#define tutti__multiply_work           TUTTI__OF_ISA(tutti__multiply_work)
#define tutti__multiply                TUTTI__OF_ISA(tutti__multiply)
#define tutti__multiply_half_work      TUTTI__OF_ISA(tutti__multiply_half_work)
#define tutti__multiply_half           TUTTI__OF_ISA(tutti__multiply_half)
#define tutti__attention_work          TUTTI__OF_ISA(tutti__attention_work)
#define tutti__attention_forward       TUTTI__OF_ISA(tutti__attention_forward)
#define tutti__attention_backward      TUTTI__OF_ISA(tutti__attention_backward)
#define tutti__half_attention_work     TUTTI__OF_ISA(tutti__half_attention_work)
#define tutti__half_attention_forward  TUTTI__OF_ISA(tutti__half_attention_forward)
#define tutti__half_attention_backward TUTTI__OF_ISA(tutti__half_attention_backward)
#define tutti__winograd_work           TUTTI__OF_ISA(tutti__winograd_work)
#define tutti__winograd_forward        TUTTI__OF_ISA(tutti__winograd_forward)
#define tutti__winograd_data           TUTTI__OF_ISA(tutti__winograd_data)
#define tutti__winograd_weights        TUTTI__OF_ISA(tutti__winograd_weights)
#define tutti__max_pool_forward        TUTTI__OF_ISA(tutti__max_pool_forward)
#define tutti__max_pool_backward       TUTTI__OF_ISA(tutti__max_pool_backward)

size_t tutti__multiply_work(const tutti_ctx *cx, const tutti__product *p);
void tutti__multiply(tutti_ctx *cx, const tutti__product *p, void *work);
size_t tutti__multiply_half_work(const tutti_ctx *cx);
bool tutti__multiply_half(tutti_ctx *cx, const tutti__half_product *p, void *work);
size_t tutti__attention_work(const tutti_ctx *cx, const tutti__attention *a);
void tutti__attention_forward(tutti_ctx *cx, const tutti__attention *a, void *work);
void tutti__attention_backward(tutti_ctx *cx, const tutti__attention *a, void *work);
size_t tutti__half_attention_work(const tutti_ctx *cx, const tutti__attention *a);
void tutti__half_attention_forward(tutti_ctx *cx, const tutti__attention *a, void *work);
void tutti__half_attention_backward(tutti_ctx *cx, const tutti__attention *a, void *work);
#if W == 16 && defined TUTTI__HAS_AMX /* of the table avx512_amx */
bool tutti__multiply_half_amx(tutti_ctx *cx, const tutti__half_product *p, void *work);
void tutti__half_attention_forward_amx(tutti_ctx *cx, const tutti__attention *a, void *work);
void tutti__half_attention_backward_amx(tutti_ctx *cx, const tutti__attention *a, void *work);
#endif
size_t tutti__winograd_work(const tutti_ctx *cx, const tutti__conv_shape *s,
                            tutti__direction direction);
void tutti__winograd_forward(tutti_ctx *cx, const tutti__conv_shape *s, float *y, const float *x,
                             const tutti__channel_norm *norm, const float *w, const float *bias,
                             void *work);
void tutti__winograd_data(tutti_ctx *cx, const tutti__conv_shape *s, float *dx, const float *dy,
                          const float *w, void *work);
void tutti__winograd_weights(tutti_ctx *cx, const tutti__conv_shape *s, float *dw, bool accumulate,
                             const float *dy, const float *x, const tutti__channel_norm *norm,
                             void *work);
void tutti__max_pool_forward(tutti_ctx *cx, const tutti__pool_shape *s, float *y, uint8_t *taps,
                             const float *x);
void tutti__max_pool_backward(tutti_ctx *cx, const tutti__pool_shape *s, float *dx, const float *dy,
                              uint8_t *taps);

#endif
