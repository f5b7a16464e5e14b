/* reduce.c -- adding up what several ranks contributed.   SPDX-License-Identifier: MIT
 *
 * Block by block: the block's sum grows in a small scratch of the accumulator's type, one source after the other in rank
 * order, and is then stored to every destination. The scratch stays in the first-level cache, each source is read once
 * and each destination written once, and a destination may be one of the sources. The sum of two, which is half of what
 * two ranks of one host do, goes without the scratch: there the stores are what costs. */
#include "base/half.h"
#include "comm/group.h"

#include <string.h>

/* Each iteration of the next loop may write what it reads, and nothing that another one reads. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

enum { BLOCK = 1024 }; /* elements */

#define SAME(x) (x)

/* NaN wins, as in PyTorch. */
#define ADD(a, x)   ((a) + (x))
#define MUL(a, x)   ((a) * (x))
#define LEAST(a, x) ((x) < (a) || (x) != (x) ? (x) : (a))
#define MOST(a, x)  ((x) > (a) || (x) != (x) ? (x) : (a))

/* Integers wrap: sums and products are those of the unsigned type of the same width, at least 32 bits. */
#define FOLD(name, T, ACC, LOAD, COMBINE)                                                          \
    TUTTI__CLONES static void name(ACC *restrict acc, const T *restrict x, size_t n)               \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            const ACC value = (ACC)LOAD(x[i]);                                                     \
                                                                                                   \
            acc[i] = COMBINE(acc[i], value);                                                       \
        }                                                                                          \
    }

#define TYPE(name, T, ACC, WIDE, LOAD, STORE, DIVIDE)                                              \
    TUTTI__CLONES static void name##_load(ACC *restrict acc, const T *restrict x, size_t n)        \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            acc[i] = (ACC)LOAD(x[i]);                                                              \
    }                                                                                              \
    TUTTI__CLONES static void name##_store(T *restrict y, const ACC *restrict acc, size_t n)       \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            y[i] = (T)STORE(acc[i]);                                                               \
    }                                                                                              \
    TUTTI__CLONES static void name##_divide(ACC *acc, size_t ranks, size_t n)                      \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            acc[i] = DIVIDE(acc[i], (ACC)ranks);                                                   \
    }                                                                                              \
    FOLD(name##_add, T, WIDE, LOAD, ADD)                                                           \
    FOLD(name##_mul, T, WIDE, LOAD, MUL)                                                           \
    FOLD(name##_min, T, ACC, LOAD, LEAST)                                                          \
    FOLD(name##_max, T, ACC, LOAD, MOST)                                                           \
    TUTTI__CLONES static void name##_add2(T *y, T *z, const T *a, const T *b, size_t n)            \
    {                                                                                              \
        INDEPENDENT for (size_t i = 0; i < n; i++)                                                 \
        {                                                                                          \
            const ACC sum = (ACC)((WIDE)LOAD(a[i]) + (WIDE)LOAD(b[i]));                            \
                                                                                                   \
            y[i] = z[i] = (T)STORE(sum);                                                           \
        }                                                                                          \
    }                                                                                              \
    TUTTI__CLONES static void name##_avg2(T *y, T *z, const T *a, const T *b, size_t n)            \
    {                                                                                              \
        INDEPENDENT for (size_t i = 0; i < n; i++)                                                 \
        {                                                                                          \
            const ACC sum = (ACC)((WIDE)LOAD(a[i]) + (WIDE)LOAD(b[i]));                            \
                                                                                                   \
            y[i] = z[i] = (T)STORE(DIVIDE(sum, (ACC)2));                                           \
        }                                                                                          \
    }                                                                                              \
    static void name##_reduce(tutti_redop op, void *const *dst, size_t n_dst,                      \
                              const void *const *src, size_t n_src, size_t count, size_t divisor)  \
    {                                                                                              \
        union {                                                                                    \
            ACC as[BLOCK];                                                                         \
            WIDE wide[BLOCK];                                                                      \
        } acc;                                                                                     \
                                                                                                   \
        if (n_src == 2 && n_dst <= 2 && (op == TUTTI_SUM || (op == TUTTI_AVG && divisor == 2))) {  \
            (op == TUTTI_SUM ? name##_add2 : name##_avg2)(dst[0], dst[n_dst - 1], src[0], src[1],  \
                                                          count);                                  \
            return;                                                                                \
        }                                                                                          \
        for (size_t at = 0; at < count; at += BLOCK) {                                             \
            size_t n = count - at < BLOCK ? count - at : BLOCK;                                    \
                                                                                                   \
            name##_load(acc.as, (const T *)src[0] + at, n);                                        \
            for (size_t s = 1; s < n_src; s++) {                                                   \
                const T *x = (const T *)src[s] + at;                                               \
                                                                                                   \
                if (op == TUTTI_PRODUCT)                                                           \
                    name##_mul(acc.wide, x, n);                                                    \
                else if (op == TUTTI_MIN)                                                          \
                    name##_min(acc.as, x, n);                                                      \
                else if (op == TUTTI_MAX)                                                          \
                    name##_max(acc.as, x, n);                                                      \
                else                                                                               \
                    name##_add(acc.wide, x, n);                                                    \
            }                                                                                      \
            if (op == TUTTI_AVG)                                                                   \
                name##_divide(acc.as, divisor, n);                                                 \
            name##_store((T *)dst[0] + at, acc.as, n);                                             \
            for (size_t d = 1; d < n_dst; d++)                                                     \
                memcpy((T *)dst[d] + at, (T *)dst[0] + at, n * sizeof(T));                         \
        }                                                                                          \
    }

#define OVER(a, b)    ((a) / (b))
#define NOT_INT(a, b) ((void)(b), (a)) /* refused before it comes here */

TYPE(f32, float, float, float, SAME, SAME, OVER)
TYPE(f64, double, double, double, SAME, SAME, OVER)
TYPE(f16, uint16_t, float, float, tutti__f32_of_f16, tutti__f16_of_f32, OVER)
TYPE(bf16, uint16_t, float, float, tutti__f32_of_bf16, tutti__bf16_of_f32, OVER)
TYPE(i8, int8_t, int32_t, uint32_t, SAME, SAME, NOT_INT)
TYPE(u8, uint8_t, uint32_t, uint32_t, SAME, SAME, NOT_INT)
TYPE(i32, int32_t, int32_t, uint32_t, SAME, SAME, NOT_INT)
TYPE(i64, int64_t, int64_t, uint64_t, SAME, SAME, NOT_INT)

/* Bit by bit the width of a type does not matter: bytes stand for all of them. */
#define BITS(name, COMBINE)                                                                        \
    TUTTI__CLONES static void name(uint8_t *restrict acc, const uint8_t *restrict x, size_t n)     \
    {                                                                                              \
        for (size_t i = 0; i < n; i++)                                                             \
            acc[i] = acc[i] COMBINE x[i];                                                          \
    }

BITS(bits_and, &)
BITS(bits_or, |)
BITS(bits_xor, ^)

static void bits_reduce(tutti_redop op, void *const *dst, size_t n_dst, const void *const *src,
                        size_t n_src, size_t bytes)
{
    uint8_t acc[4 * BLOCK];

    for (size_t at = 0; at < bytes; at += sizeof acc) {
        size_t n = bytes - at < sizeof acc ? bytes - at : sizeof acc;

        memcpy(acc, (const uint8_t *)src[0] + at, n);
        for (size_t s = 1; s < n_src; s++) {
            const uint8_t *x = (const uint8_t *)src[s] + at;

            if (op == TUTTI_BAND)
                bits_and(acc, x, n);
            else if (op == TUTTI_BOR)
                bits_or(acc, x, n);
            else
                bits_xor(acc, x, n);
        }
        for (size_t d = 0; d < n_dst; d++)
            memcpy((uint8_t *)dst[d] + at, acc, n);
    }
}

/* `divisor`: of AVG. */
static void reduce_by(tutti_dtype dtype, tutti_redop op, void *const *dst, size_t n_dst,
                      const void *const *src, size_t n_src, size_t count, size_t divisor)
{
    if (op == TUTTI_BAND || op == TUTTI_BOR || op == TUTTI_BXOR) {
        bits_reduce(op, dst, n_dst, src, n_src, count * tutti_dtype_size(dtype));
        return;
    }
    switch (dtype) {
    case TUTTI_F32:
        f32_reduce(op, dst, n_dst, src, n_src, count, divisor);
        break;
    case TUTTI_F64:
        f64_reduce(op, dst, n_dst, src, n_src, count, divisor);
        break;
    case TUTTI_F16:
        f16_reduce(op, dst, n_dst, src, n_src, count, divisor);
        break;
    case TUTTI_BF16:
        bf16_reduce(op, dst, n_dst, src, n_src, count, divisor);
        break;
    case TUTTI_I8:
        i8_reduce(op, dst, n_dst, src, n_src, count, divisor);
        break;
    case TUTTI_U8:
        u8_reduce(op, dst, n_dst, src, n_src, count, divisor);
        break;
    case TUTTI_I32:
        i32_reduce(op, dst, n_dst, src, n_src, count, divisor);
        break;
    case TUTTI_I64:
        i64_reduce(op, dst, n_dst, src, n_src, count, divisor);
        break;
    }
}

void tutti__reduce(tutti_dtype dtype, tutti_redop op, void *const *dst, size_t n_dst,
                   const void *const *src, size_t n_src, size_t count)
{
    reduce_by(dtype, op, dst, n_dst, src, n_src, count, n_src);
}

void tutti__average(tutti_dtype dtype, size_t divisor, void *dst, const void *const *src,
                    size_t n_src, size_t count)
{
    reduce_by(dtype, TUTTI_AVG, &dst, 1, src, n_src, count, divisor);
}
