/* reduce.c -- combines the contributions of several ranks.   SPDX-License-Identifier: MIT
 *
 * Tile by tile: a tile is summed in a small accumulator, one source after the other in rank order, and is then stored to
 * every destination; so each source is read once, each destination is written once, and a destination may be one of the
 * sources. A tile is several cache lines, because stores that alternate between uncached destinations line by line are
 * slow. The next tile is prefetched meanwhile, because no processor's prefetchers follow that many streams across that
 * many pages. */
#include "base/base.h"
#include "base/half.h"
#include "comm/core/reduce.h"

#include <string.h>

enum { LINE = 64, TILE_BYTES = 8 * LINE };

typedef struct job {
    tutti_redop op;
    size_t n_dst, n_src, divisor; /* divisor: of AVG */
    void *const *dst;
    const void *const *src;
} job;

static inline void fetch(const void *tile, bool write)
{
    for (int line = 0; line < TILE_BYTES; line += LINE)
        if (write)
            __builtin_prefetch((const char *)tile + line, 1);
        else
            __builtin_prefetch((const char *)tile + line, 0);
}

/* If there are as many destinations as sources, they are the same memory. */
static inline void fetch_all(const job *j, size_t offset)
{
    for (size_t d = 0; d < j->n_dst; d++)
        fetch((const char *)j->dst[d] + offset, true);
    for (size_t s = 0; j->n_dst < j->n_src && s < j->n_src; s++)
        fetch((const char *)j->src[s] + offset, false);
}

/* Keeps the compiler from interchanging the loop over ranks with the loop over elements inside it. */
#define IN_ORDER() __asm__ volatile("" ::: "memory")

/* NaN propagates, as in PyTorch. */
#define ADD(a, x)   ((a) + (x))
#define MUL(a, x)   ((a) * (x))
#define LEAST(a, x) ((x) < (a) || (x) != (x) ? (x) : (a))
#define MOST(a, x)  ((x) > (a) || (x) != (x) ? (x) : (a))
#define AND(a, x)   ((a) & (x))
#define OR(a, x)    ((a) | (x))
#define XOR(a, x)   ((a) ^ (x))

#define SAME(x) (x)

/* Whether it is the mean. AVG of integers is refused earlier, so no loop is compiled for it. */
#define MEAN(op)    ((op) == TUTTI_AVG)
#define NO_MEAN(op) ((void)(op), false)

/* Iterations are independent. Clang lacks this pragma, and checks for overlap before the loop. */
#ifdef __clang__
#define INDEPENDENT
#else
#define INDEPENDENT _Pragma("GCC ivdep")
#endif

/* Combines one more source, x, with FIRST, the result so far, into TO of type TO_T. FIRST or x may be the memory of TO,
 * element by element. */
#define LOOP(COMBINE, ACC, WIDE, LOAD, FIRST, TO, TO_T, STORE)                                     \
    INDEPENDENT for (size_t i = 0; i < n; i++)                                                     \
    {                                                                                              \
        const WIDE a = (WIDE)(ACC)FIRST, b = (WIDE)LOAD(x[i]);                                     \
                                                                                                   \
        TO = (TO_T)STORE((ACC)COMBINE(a, b));                                                      \
    }                                                                                              \
    break;

#define ARITHMETIC(ACC, WIDE, LOAD, FIRST, TO, TO_T, STORE)                                        \
    case TUTTI_PRODUCT:                                                                            \
        LOOP(MUL, ACC, WIDE, LOAD, FIRST, TO, TO_T, STORE)                                         \
    case TUTTI_MIN:                                                                                \
        LOOP(LEAST, ACC, ACC, LOAD, FIRST, TO, TO_T, STORE)                                        \
    case TUTTI_MAX:                                                                                \
        LOOP(MOST, ACC, ACC, LOAD, FIRST, TO, TO_T, STORE)                                         \
    default:                                                                                       \
        LOOP(ADD, ACC, WIDE, LOAD, FIRST, TO, TO_T, STORE)
#define BITWISE(ACC, WIDE, LOAD, FIRST, TO, TO_T, STORE)                                           \
    case TUTTI_BAND:                                                                               \
        LOOP(AND, ACC, WIDE, LOAD, FIRST, TO, TO_T, STORE)                                         \
    case TUTTI_BOR:                                                                                \
        LOOP(OR, ACC, WIDE, LOAD, FIRST, TO, TO_T, STORE)                                          \
    default:                                                                                       \
        LOOP(XOR, ACC, WIDE, LOAD, FIRST, TO, TO_T, STORE)

/* WIDE: the type of sums and products, so that integers wrap. Two sources need no accumulator in memory. */
#define TYPE(name, T, ACC, WIDE, LOAD, STORE, AVERAGE, CASES)                                      \
    static inline                                                                                  \
        __attribute__((always_inline)) void name##_pair(const job *j, size_t at, size_t n)         \
    {                                                                                              \
        const T *w = (const T *)j->src[0] + at, *x = (const T *)j->src[1] + at;                    \
        T *y = (T *)j->dst[0] + at; /* may be a source */                                          \
        const ACC divisor = (ACC)j->divisor;                                                       \
                                                                                                   \
        if (AVERAGE(j->op)) {                                                                      \
            INDEPENDENT for (size_t i = 0; i < n; i++)                                             \
            {                                                                                      \
                const WIDE a = (WIDE)(ACC)LOAD(w[i]), b = (WIDE)LOAD(x[i]);                        \
                                                                                                   \
                y[i] = (T)STORE((ACC)((ACC)ADD(a, b) / divisor));                                  \
            }                                                                                      \
            return;                                                                                \
        }                                                                                          \
        switch (j->op) {                                                                           \
            CASES(ACC, WIDE, LOAD, LOAD(w[i]), y[i], T, STORE)                                     \
        }                                                                                          \
    }                                                                                              \
    static inline                                                                                  \
        __attribute__((always_inline)) void name##_many(const job *j, size_t at, size_t n)         \
    {                                                                                              \
        const T *x = (const T *)j->src[0] + at;                                                    \
        ACC acc[TILE_BYTES / sizeof(T)];                                                           \
                                                                                                   \
        for (size_t i = 0; i < n; i++)                                                             \
            acc[i] = (ACC)LOAD(x[i]);                                                              \
        for (size_t s = 1; s < j->n_src; s++) {                                                    \
            IN_ORDER();                                                                            \
            x = (const T *)j->src[s] + at;                                                         \
            switch (j->op) {                                                                       \
                CASES(ACC, WIDE, LOAD, acc[i], acc[i], ACC, SAME)                                  \
            }                                                                                      \
        }                                                                                          \
        if (AVERAGE(j->op))                                                                        \
            for (size_t i = 0; i < n; i++)                                                         \
                acc[i] = (ACC)(acc[i] / (ACC)j->divisor);                                          \
        {                                                                                          \
            T *restrict sum = (T *)j->dst[0] + at; /* may be a source */                           \
                                                                                                   \
            for (size_t i = 0; i < n; i++)                                                         \
                sum[i] = (T)STORE(acc[i]);                                                         \
        }                                                                                          \
    }                                                                                              \
    static inline                                                                                  \
        __attribute__((always_inline)) void name##_tile(const job *j, size_t at, size_t n)         \
    {                                                                                              \
        const T *y = (const T *)j->dst[0] + at;                                                    \
                                                                                                   \
        if (j->n_src == 2)                                                                         \
            name##_pair(j, at, n);                                                                 \
        else                                                                                       \
            name##_many(j, at, n);                                                                 \
        for (size_t d = 1; d < j->n_dst; d++) {                                                    \
            T *restrict z = (T *)j->dst[d] + at; /* another rank's */                              \
                                                                                                   \
            IN_ORDER();                                                                            \
            for (size_t i = 0; i < n; i++)                                                         \
                z[i] = y[i];                                                                       \
        }                                                                                          \
    }                                                                                              \
    /* Less than a tile. Clones of it would save nanoseconds, and cost seconds of compile time. */ \
    static __attribute__((noinline)) void name##_rest(const job *j, size_t at, size_t n)           \
    {                                                                                              \
        name##_tile(j, at, n);                                                                     \
    }                                                                                              \
    TUTTI__CLONES static void name(const job *j, size_t count)                                     \
    {                                                                                              \
        const size_t tile = TILE_BYTES / sizeof(T);                                                \
        size_t at = 0;                                                                             \
                                                                                                   \
        for (; count - at >= tile; at += tile) {                                                   \
            if (count - at >= 2 * tile)                                                            \
                fetch_all(j, (at + tile) * sizeof(T));                                             \
            name##_tile(j, at, tile);                                                              \
        }                                                                                          \
        if (at < count)                                                                            \
            name##_rest(j, at, count - at);                                                        \
    }

TYPE(f32, float, float, float, SAME, SAME, MEAN, ARITHMETIC)
TYPE(f64, double, double, double, SAME, SAME, MEAN, ARITHMETIC)
TYPE(f16, uint16_t, float, float, tutti__f32_of_f16, tutti__f16_of_f32, MEAN, ARITHMETIC)
TYPE(bf16, uint16_t, float, float, tutti__f32_of_bf16, tutti__bf16_of_f32, MEAN, ARITHMETIC)
TYPE(i8, int8_t, int8_t, uint8_t, SAME, SAME, NO_MEAN, ARITHMETIC)
TYPE(u8, uint8_t, uint8_t, uint8_t, SAME, SAME, NO_MEAN, ARITHMETIC)
TYPE(i16, int16_t, int16_t, uint32_t, SAME, SAME, NO_MEAN, ARITHMETIC)
TYPE(u16, uint16_t, uint16_t, uint32_t, SAME, SAME, NO_MEAN, ARITHMETIC)
TYPE(i32, int32_t, int32_t, uint32_t, SAME, SAME, NO_MEAN, ARITHMETIC)
TYPE(i64, int64_t, int64_t, uint64_t, SAME, SAME, NO_MEAN, ARITHMETIC)
TYPE(u32, uint32_t, uint32_t, uint32_t, SAME, SAME, NO_MEAN, ARITHMETIC)
TYPE(u64, uint64_t, uint64_t, uint64_t, SAME, SAME, NO_MEAN, ARITHMETIC)
/* Bitwise operations do not depend on the type's width: bytes stand for all. */
TYPE(bits, uint8_t, uint8_t, uint8_t, SAME, SAME, NO_MEAN, BITWISE)

static void (*const REDUCE[])(const job *j, size_t count) = {
    [TUTTI_F32] = f32, [TUTTI_F64] = f64, [TUTTI_F16] = f16, [TUTTI_BF16] = bf16,
    [TUTTI_I8] = i8,   [TUTTI_U8] = u8,   [TUTTI_I16] = i16, [TUTTI_U16] = u16,
    [TUTTI_I32] = i32, [TUTTI_U32] = u32, [TUTTI_I64] = i64, [TUTTI_U64] = u64};

static void run(const job *j, tutti_dtype dtype, size_t count)
{
    if (j->op == TUTTI_BAND || j->op == TUTTI_BOR || j->op == TUTTI_BXOR)
        bits(j, count * tutti_dtype_size(dtype));
    else
        REDUCE[dtype](j, count);
}

void tutti__reduce(tutti_dtype dtype, tutti_redop op, void *const *dst, size_t n_dst,
                   const void *const *src, size_t n_src, size_t count)
{
    run(&(job){op, n_dst, n_src, n_src, dst, src}, dtype, count);
}

void tutti__average(tutti_dtype dtype, size_t divisor, void *dst, const void *const *src,
                    size_t n_src, size_t count)
{
    run(&(job){TUTTI_AVG, 1, n_src, divisor, &dst, src}, dtype, count);
}

/* ---- Scaling ----------------------------------------------------------------------------------------- */

#define SCALE(name, T, ACC, LOAD, STORE)                                                           \
    TUTTI__CLONES static void name(double factor, void *dst, const void *src, size_t count)        \
    {                                                                                              \
        const ACC f = (ACC)factor;                                                                 \
        const T *x = src;                                                                          \
        T *y = dst; /* may be x */                                                                 \
                                                                                                   \
        INDEPENDENT for (size_t i = 0; i < count; i++)                                             \
        {                                                                                          \
            const ACC a = (ACC)LOAD(x[i]);                                                         \
                                                                                                   \
            y[i] = (T)STORE(a * f);                                                                \
        }                                                                                          \
    }

SCALE(scale_f32, float, float, SAME, SAME)
SCALE(scale_f64, double, double, SAME, SAME)
SCALE(scale_f16, uint16_t, float, tutti__f32_of_f16, tutti__f16_of_f32)
SCALE(scale_bf16, uint16_t, float, tutti__f32_of_bf16, tutti__bf16_of_f32)

void tutti__scale(tutti_dtype dtype, double factor, void *dst, const void *src, size_t count)
{
    switch (dtype) {
    case TUTTI_F32:
        scale_f32(factor, dst, src, count);
        break;
    case TUTTI_F64:
        scale_f64(factor, dst, src, count);
        break;
    case TUTTI_F16:
        scale_f16(factor, dst, src, count);
        break;
    default:
        scale_bf16(factor, dst, src, count);
    }
}
