/* fingerprint_run.c -- the loop of fingerprints, for several instruction sets.   SPDX-License-Identifier: MIT
 *
 * Not by TUTTI__CLONES: products of 32-bit words are one instruction in each set, for which gcc has no name that is the same in all. */
#include "device/fingerprint_run.h"

#include <stdbool.h>

/* AHEAD: elements; the CPU's own prefetching ends with a page. */
enum { LANES = TUTTI__FINGERPRINT_LANES, AHEAD = 1024 };

/* With vectors of BYTES; MULTIPLY: the products of the low halves of 64-bit words. */
#define RUN(name, isa, BYTES, MULTIPLY)                                                            \
    typedef float name##_floats __attribute__((vector_size((BYTES) / 2), aligned(4), may_alias));  \
    typedef double name##_doubles __attribute__((vector_size(BYTES), aligned(8), may_alias));      \
    typedef uint64_t name##_pairs __attribute__((vector_size(BYTES), aligned(4), may_alias));      \
                                                                                                   \
    isa static void name(tutti__fingerprint_parts *parts, const float *x, const double *signs,     \
                         const uint32_t *w, const uint32_t *keys, size_t n)                        \
    {                                                                                              \
        enum { D = LANES * 8 / (BYTES), P = LANES * 4 / (BYTES) };                                 \
        name##_doubles *squares = (name##_doubles *)parts->squares, s[D], d[D] = {{0}};            \
        name##_doubles *dot = (name##_doubles *)parts->dot;                                        \
        name##_pairs even[P] = {{0}}, odd[P] = {{0}};                                              \
                                                                                                   \
        for (int j = 0; j < D; j++)                                                                \
            s[j] = squares[j];                                                                     \
        for (size_t i = 0; i < n; i += LANES) {                                                    \
            __builtin_prefetch(x + i + AHEAD);                                                     \
            for (int j = 0; j < D; j++) {                                                          \
                const name##_doubles v =                                                           \
                    __builtin_convertvector(((const name##_floats *)(x + i))[j], name##_doubles);  \
                                                                                                   \
                s[j] += v * v;                                                                     \
                d[j] += v * ((const name##_doubles *)(signs + i))[j];                              \
            }                                                                                      \
            for (int j = 0; j < P; j++) {                                                          \
                const name##_pairs a = ((const name##_pairs *)(w + i))[j];                         \
                const name##_pairs k = ((const name##_pairs *)(keys + i))[j];                      \
                                                                                                   \
                even[j] += MULTIPLY(a, k);                                                         \
                odd[j] += MULTIPLY(a >> 32, k >> 32);                                              \
            }                                                                                      \
        }                                                                                          \
        for (int j = 0; j < D; j++) {                                                              \
            squares[j] = s[j];                                                                     \
            dot[j] += d[j];                                                                        \
        }                                                                                          \
        for (int j = 0; j < P; j++)                                                                \
            for (int l = 0; l < (BYTES) / 8; l++)                                                  \
                parts->digest += even[j][l] + odd[j][l];                                           \
    }

#define IN_C(a, b) (((a)&UINT32_MAX) * ((b)&UINT32_MAX))
/* clang makes the instruction of IN_C. Without immintrin.h, which takes long to compile. */
#if defined(__x86_64__) && !defined(__clang__)
typedef int ints16 __attribute__((vector_size(64))), ints8 __attribute__((vector_size(32)));
typedef int ints4 __attribute__((vector_size(16)));
typedef long long longs8 __attribute__((vector_size(64)));
#define IN_AVX512(a, b)                                                                            \
    (run_avx512_pairs) __builtin_ia32_pmuludq512_mask((ints16)(a), (ints16)(b), (longs8){0}, 255)
#define IN_AVX2(a, b) (run_avx2_pairs) __builtin_ia32_pmuludq256((ints8)(a), (ints8)(b))
#define IN_SSE2(a, b) (run_basic_pairs) __builtin_ia32_pmuludq128((ints4)(a), (ints4)(b))
#else
#define IN_AVX512 IN_C
#define IN_AVX2   IN_C
#define IN_SSE2   IN_C
#endif

RUN(run_basic, , 16, IN_SSE2)
#ifdef __x86_64__
RUN(run_avx2, __attribute__((target("avx2"))), 32, IN_AVX2)
RUN(run_avx512, __attribute__((target("avx512f"))), 64, IN_AVX512)
#endif

tutti__fingerprint_run *tutti__fingerprint_run_at(int i)
{
#ifdef __x86_64__
    const bool has[] = {__builtin_cpu_supports("avx512f") != 0, __builtin_cpu_supports("avx2") != 0,
                        true};
    tutti__fingerprint_run *const run[] = {run_avx512, run_avx2, run_basic};
#else
    const bool has[] = {true};
    tutti__fingerprint_run *const run[] = {run_basic};
#endif

    for (size_t k = 0; k < sizeof run / sizeof *run; k++)
        if (has[k] && i-- == 0)
            return run[k];
    return NULL;
}
