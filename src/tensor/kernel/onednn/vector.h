/* vector.h -- sixteen floats at a time, on whatever the machine has.   SPDX-License-Identifier: MIT
 *
 * Vectors of the compiler, not of one processor: on AVX-512 a tutti__v16 is one register, elsewhere several. Functions
 * marked TUTTI__CLONES are compiled for each instruction set and chosen when the program starts. Vectors stay inside
 * functions (their calling convention differs between instruction sets), hence the macros. */
#ifndef TUTTI_TENSOR_KERNEL_ONEDNN_VECTOR_H
#define TUTTI_TENSOR_KERNEL_ONEDNN_VECTOR_H

#include <stdint.h>
#include <string.h>

#define TUTTI__WIDTH 16

typedef float tutti__v16 __attribute__((vector_size(64)));
typedef int32_t tutti__v16i __attribute__((vector_size(64)));
typedef float tutti__v16_anywhere __attribute__((vector_size(64), aligned(4), may_alias));

#if defined(__has_feature)
#define TUTTI__HAS_FEATURE(x) __has_feature(x)
#else
#define TUTTI__HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || TUTTI__HAS_FEATURE(thread_sanitizer)
#define TUTTI__THREAD_SANITIZER 1
#else
#define TUTTI__THREAD_SANITIZER 0
#endif
/* Under a sanitizer one clone does: the choosers run before its runtime is ready. */
#if TUTTI__THREAD_SANITIZER || defined(__SANITIZE_ADDRESS__) ||                                    \
    TUTTI__HAS_FEATURE(address_sanitizer) || !defined(__x86_64__) || !defined(__linux__)
#define TUTTI__CLONES
#else
#define TUTTI__CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#define TUTTI__INLINE static inline __attribute__((always_inline))

/* v = the first n of 16 floats at p, the rest zero */
#define TUTTI__LOAD(v, p, n)                                                                       \
    do {                                                                                           \
        if ((n) == TUTTI__WIDTH) {                                                                 \
            (v) = *(const tutti__v16_anywhere *)(p);                                               \
        } else {                                                                                   \
            (v) = (tutti__v16){0};                                                                 \
            memcpy(&(v), (p), (size_t)(n) * sizeof(float));                                        \
        }                                                                                          \
    } while (0)

#define TUTTI__STORE(p, v, n)                                                                      \
    do {                                                                                           \
        if ((n) == TUTTI__WIDTH)                                                                   \
            *(tutti__v16_anywhere *)(p) = (v);                                                     \
        else                                                                                       \
            memcpy((p), &(v), (size_t)(n) * sizeof(float));                                        \
    } while (0)

/* v where the lane of mask is -1, 0 where it is 0 */
#define TUTTI__WHERE(mask, v) ((tutti__v16)((mask) & (tutti__v16i)(v)))
/* max(v, 0), but a NaN stays one */
#define TUTTI__RELU(v) ((tutti__v16)(~((v) < 0) & (tutti__v16i)(v)))

#endif
